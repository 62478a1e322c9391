"""The functions a statement calls, and what they mean for it.

A name before a parenthesis is a call unless it surely means something else there. A call of a
function that is not built in may write anything.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from sqlcache.sql import functions
from sqlcache.sql.analysis.cursor import NAMES, Cursor
from sqlcache.sql.lexer import Kind as TokenKind
from sqlcache.sql.lexer import Token, word_set
from sqlcache.sql.names import TableRef
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.routines import NONE_DECLARED, Declared, Routine
from sqlcache.sql.statement import Statement, changed
from sqlcache.sql.tables import QUERY_STARTS, path_at, ref_of


class Call(NamedTuple):
    """One call; `at` is the index of the name's last part."""

    path: tuple[str, ...]
    at: int
    name: str  # in upper case
    stored: bool  # surely or possibly a stored or loadable function, and none that is declared
    empty: bool  # called without arguments
    declared: Routine | None = None


# Reserved by MySQL and MariaDB alike: before a parenthesis they are no function's name.
_NOT_CALLED = word_set(
    "ALL AND AS BETWEEN BY CASE DISTINCT DIV ELSE EXISTS FROM GROUP HAVING IN INDEX INTO IS JOIN"
    " KEY LIKE LIMIT NOT ON OR ORDER PARTITION REGEXP RETURN RLIKE SELECT SET STRAIGHT_JOIN THEN"
    " UNION USING VALUES WHEN WHERE WHILE XOR BINARY CHAR DECIMAL DOUBLE FLOAT INT NUMERIC"
    " VARCHAR VARBINARY BIGINT ELSEIF IF UNIQUE CHECK KEYS FOREIGN PRIMARY REFERENCES"
)
_QUERY_WORDS = QUERY_STARTS - {"VALUES"}  # which is a function in ON DUPLICATE KEY UPDATE
# A type, or a name with columns, follows these.
_BEFORE_COLUMN_LIST = word_set("AS INTO INSERT REPLACE IGNORE DELAYED LOW_PRIORITY")
# Not reserved everywhere, so a function may have such a name; but none follows a parenthesis.
_NOT_CALLED_AFTER_PARENTHESIS = frozenset(("OVER", "AGAINST", "VALUE"))


def calls(
    tokens: Sequence[Token],
    column_lists: frozenset[int],
    dialect: Dialect,
    declared: Declared = NONE_DECLARED,
) -> Iterator[Call]:
    """Every call of a function: a name before a parenthesis that means nothing else there."""
    for at in range(1, len(tokens)):
        if not tokens[at].is_operator(b"(") or at - 1 in column_lists:
            continue
        token = tokens[at - 1]
        if token.kind not in NAMES:
            continue
        start = at - 1
        while (
            start >= 2 and tokens[start - 1].is_operator(b".") and tokens[start - 2].kind in NAMES
        ):
            start -= 2
        before = tokens[start - 1] if start else None
        if token.kind is TokenKind.WORD and _means_no_call(token, before, tokens[at + 1 : at + 2]):
            continue
        name = token.word
        spaced = token.end != tokens[at].start and not dialect.ignore_space
        stored = name not in functions.KNOWN or (spaced and name in functions.ADJACENT_ONLY)
        empty = at + 1 < len(tokens) and tokens[at + 1].is_operator(b")")
        path = tuple(part.name for part in tokens[start:at:2])
        known = declared.find(path)
        yield Call(path, at - 1, name or token.name, stored and known is None, empty, known)


def _means_no_call(token: Token, before: Token | None, after: Sequence[Token]) -> bool:
    word = token.word
    if word in _NOT_CALLED and word not in functions.KNOWN:
        return True
    if after and after[0].word in _QUERY_WORDS:
        return True  # no function takes a query without parentheses of its own
    if before is None:
        return False
    if word in _NOT_CALLED_AFTER_PARENTHESIS and before.is_operator(b")"):
        return True
    if word == "COLUMNS":
        return before.kind in (TokenKind.STRING, TokenKind.PARAMETER)
    return before.word in _BEFORE_COLUMN_LIST or (before.word == "MEMBER" and word == "OF")


class Use(NamedTuple):
    """What the functions of a statement mean for it."""

    names: frozenset[str]  # of those that are not declared
    stored: str  # the name of one that may be a stored function and is not declared, or ""
    code: frozenset[tuple[str, ...]]  # the paths of all those
    not_cacheable: str  # the name of one whose answers must not be cached, or ""
    sequences: frozenset[TableRef]
    odd_sequence: bool
    declared: frozenset[Routine]


def function_use(
    cursor: Cursor, tokens: Sequence[Token], column_lists: frozenset[int] = frozenset()
) -> Use:
    """The functions called in a part of a statement.

    `column_lists` are indices of names before a parenthesis that holds names of columns.
    """
    options = cursor.options
    called = list(calls(tokens, column_lists, options.dialect, options.declared))
    stored = (call.name for call in called if call.stored)
    bare = (token.word for token in tokens if token.word in functions.BARE)
    once = not options.parameters_allowed
    unsteady = [call.name for call in called if not _is_deterministic(call, once=once)]
    sequences, odd_sequence = _sequences(tokens, called)
    return Use(
        frozenset(call.name for call in called if call.declared is None),
        next(stored, ""),
        frozenset(call.path for call in called if call.stored),
        next(iter([*unsteady, *bare]), ""),
        sequences,
        odd_sequence,
        frozenset(call.declared for call in called if call.declared is not None),
    )


def _is_deterministic(call: Call, *, once: bool) -> bool:
    """Whether it answers the same again. `once`: in a statement that is run once."""
    if call.declared is not None:
        return call.declared.deterministic
    if call.name in functions.CLOCK_WITHOUT_ARGUMENTS:
        return not call.empty
    if once and call.name in functions.KEEPING_STATE:
        return True
    return call.name in functions.DETERMINISTIC


def _sequences(tokens: Sequence[Token], called: Sequence[Call]) -> tuple[frozenset[TableRef], bool]:
    """The sequences that are used, and whether there is one whose name cannot be read."""
    named_at = [c.at + 2 for c in called if c.name in functions.SEQUENCE and not c.stored]
    named_at += [  # NEXT VALUE FOR, PREVIOUS VALUE FOR
        at + 2
        for at, (token, following) in enumerate(pairwise(tokens))
        if token.word == "VALUE" and following.word == "FOR"
    ]
    paths = [path_at(tokens, at) for at in named_at]
    refs = [ref_of(path.parts) if path else None for path in paths]
    odd = any(  # s.NEXTVAL under sql_mode ORACLE
        t.kind is TokenKind.NAME and t.text.upper() in (b"NEXTVAL", b"CURRVAL") for t in tokens
    )
    return frozenset(ref for ref in refs if ref is not None), odd or None in refs


def with_functions(statement: Statement, use: Use) -> Statement:
    """Adds what a statement's functions may read and write."""
    known = statement.by_code or not statement.writes_everything
    return changed(
        statement,
        reads=statement.reads.union(*(each.reads for each in use.declared)),
        writes=statement.writes.union(use.sequences, *(each.writes for each in use.declared)),
        writes_everything=statement.writes_everything or bool(use.stored) or use.odd_sequence,
        functions=use.names,
        code=statement.code | use.code,
        by_code=known and not use.odd_sequence and (statement.by_code or bool(use.code)),
        calls_stored=statement.calls_stored or bool(use.stored or use.declared),
        routines=statement.routines | use.declared,
        reason=statement.reason
        or (f"calls {use.stored}(), which is not built in" if use.stored else ""),
    )
