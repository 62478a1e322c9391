"""Which values a statement pins columns to: those that all rows have that it reads, or changes.

Told from the tokens alone, and only of statements that are written plainly: all else pins nothing.

- A query of one table, whose WHERE is comparisons of columns with values, or with lists of these,
  joined by AND. Or of several, where what they are joined by are equal columns.
- UPDATE and DELETE of one table, with such a WHERE. Which columns an UPDATE sets is told with any,
  and to what with such a one.
- INSERT and REPLACE of rows of values into columns that are named.

Whether a word is a column, and whether a value is one that the column can have, is for who knows
the table.

`found` says what may be found. `queries` and `changes` read, by the `conditions` of a WHERE, in the
`words` of a statement.
"""

from collections.abc import Sequence

from sqlcache.sql.lexer import Kind, Token, word_set
from sqlcache.sql.pins.changes import Change
from sqlcache.sql.pins.found import Pins
from sqlcache.sql.pins.queries import Query

_NAMES = (Kind.WORD, Kind.NAME)
_NOT_PLAIN = frozenset((Kind.HINT, Kind.VERSIONED, Kind.DIRECTIVE, Kind.OTHER))
_MORE = word_set("UNION EXCEPT INTERSECT MINUS TABLE WITH PROCEDURE ROLLUP CUBE GROUPING")
"""What a query may have more tables by, without another SELECT, or rows that are no table's."""
_READ_ALL = word_set("NATURAL TABLE PROCEDURE PARTITION")
"""What a query may read columns by that it does not name."""


def named_columns(tokens: Sequence[Token]) -> frozenset[str] | None:
    """All names in a query, among which are those of all columns that it reads; None where it may
    read others."""
    names = set()
    for at, token in enumerate(tokens):
        if token.kind in _NOT_PLAIN or token.word in _READ_ALL:
            return None
        if token.is_operator(b"*") and not _is_counted(tokens, at):
            return None
        if token.kind in _NAMES:
            if not token.text.isascii():  # which servers may fold in other ways
                return None
            names.add(token.name.lower())
    return frozenset(names)


def _is_counted(tokens: Sequence[Token], at: int) -> bool:
    """Whether what stands there is that of a COUNT(*)."""
    before, after = tokens[max(at - 2, 0) : at], tokens[at + 1 : at + 2]
    return (
        [each.text.upper() for each in before] == [b"COUNT", b"("]
        and [each.text for each in after] == [b")"]
        and before[0].kind is Kind.WORD
    )


def set_columns(tokens: Sequence[Token]) -> frozenset[str] | None:
    """The columns of one table that an UPDATE sets, or what begins behind ON DUPLICATE KEY UPDATE;
    None where that is not written plainly."""
    return Change(tokens).set_columns()


def pins(tokens: Sequence[Token]) -> Pins | None:
    """What a statement pins; None where it is not written plainly."""
    if not tokens or any(each.kind in _NOT_PLAIN or each.is_operator(b";") for each in tokens):
        return None
    plain = _is_plain(tokens)
    match tokens[0].word:
        case "UPDATE":
            return Change(tokens).update(plain=plain)
        case _ if not plain:
            return None
        case "SELECT":
            return Query(tokens).select()
        case "DELETE":
            return Change(tokens).delete()
        case "INSERT" | "REPLACE":
            return Change(tokens).insert()
    return None


def _is_plain(tokens: Sequence[Token]) -> bool:
    """Whether there is but one query, and only such literals as are found again in other texts of
    this shape."""
    words = [token.word for token in tokens]
    if words.count("SELECT") != (words[0] == "SELECT") or not _MORE.isdisjoint(words):
        return False
    odd = (
        (token.kind is Kind.STRING and token.text[:1] != b"'")
        or (token.kind is Kind.NUMBER and not token.text[:1].isdigit())
        for token in tokens
    )
    return not any(odd)
