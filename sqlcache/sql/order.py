"""How far a query decides which rows its answer has, and in which order."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlcache.sql.lexer import Kind, Token, word_set

_BY_READING = word_set(
    "ANY_VALUE FIRST_VALUE GROUP_CONCAT JSON_ARRAYAGG JSON_OBJECTAGG LAG LAST_VALUE LEAD MATCH",
    "NTH_VALUE NTILE ROW_NUMBER ST_COLLECT",
)
"""Functions whose values may differ with the order in which rows are read, or with what the server
knows of a table."""
_FRAMES = word_set("ROWS GROUPS")
_AFTER_TERMS = word_set("LIMIT OFFSET FETCH FOR ROWS INTO")
_TURNS = word_set("ASC DESC")
_MOST_DIGITS = 20


class Order(NamedTuple):
    """What two answers to one query, at one moment, have in common.

    `is_open`: nothing. `terms`: by what the rows are ordered: a column of the answer by its place
    from 1, or by its name, with its table's in front if it has one; None where it is by something
    else; () where it is by nothing. `cut_at`: of so many rows LIMIT may have left out others; None:
    of no number. How many rows there are is decided even then.
    """

    is_open: bool = False
    terms: tuple[int | tuple[str, ...], ...] | None = ()
    cut_at: int | None = None


OPEN = Order(is_open=True)


def order_of(tokens: Iterable[Token]) -> Order:
    """That of one statement's answers. What a column outside of GROUP BY holds is not looked at."""
    depth = 0
    top: list[Token | None] = []  # None: something in parentheses
    for token in tokens:
        if token.kind is Kind.VERSIONED or token.word in _BY_READING:
            return OPEN
        if token.is_operator(b"("):
            top.append(None)
            depth += 1
        elif token.is_operator(b")"):
            depth -= 1
        elif depth <= 0:
            top.append(token)
        elif token.word in ("LIMIT", "FETCH") or token.word in _FRAMES:
            return OPEN
    return Order(terms=_terms(top), cut_at=_cut_at(top))


def _cut_at(top: Sequence[Token | None]) -> int | None:
    words = [token.word if token is not None else "" for token in top]
    if "LIMIT" not in words:
        return 0 if "FETCH" in words or "OFFSET" in words else None
    after = top[words.index("LIMIT") + 1 :]
    only = after[0] if len(after) == 1 else None
    # Behind an OFFSET, others may stand in front of what there is.
    return (only is not None and _number(only)) or 0


def _terms(top: Sequence[Token | None]) -> tuple[int | tuple[str, ...], ...] | None:
    places = [at for at, token in enumerate(top) if token is not None and token.word == "ORDER"]
    if not places:
        return ()
    terms: list[int | tuple[str, ...] | None] = []
    parts: list[Token | None] = []
    for token in (*top[places[-1] + 2 :], None):
        ends = token is not None and token.word in _AFTER_TERMS
        if ends or (token is not None and token.is_operator(b",")):
            terms.append(_term(parts))
            parts = []
            if ends:
                break
        else:
            parts.append(token)
    else:
        terms.append(_term(parts[:-1]))
    known = tuple(term for term in terms if term is not None)
    return known if len(known) == len(terms) else None


def _term(parts: Sequence[Token | None]) -> int | tuple[str, ...] | None:
    """A column; None where it is something else."""
    tokens = [token for token in parts if token is not None]
    if len(tokens) != len(parts) or not tokens:
        return None
    if tokens[-1].word in _TURNS:
        tokens.pop()
    names, dots = tokens[::2], tokens[1::2]
    if len(tokens) == 1 and tokens[0].kind is Kind.NUMBER:
        return _number(tokens[0])
    named = all(token.kind in (Kind.WORD, Kind.NAME) for token in names)
    dotted = all(token.is_operator(b".") for token in dots)
    whole = len(tokens) % 2 == 1 and len(names) <= 2
    return tuple(token.name for token in names) if named and dotted and whole else None


def _number(token: Token) -> int | None:
    """A whole number; None for others, and for one that counts no rows and no columns."""
    digits = token.text.lstrip(b"0") or b"0"
    return int(digits) if token.text.isdigit() and len(digits) <= _MOST_DIGITS else None
