"""What the literals of a query tell of it, where its shape leaves open what it does.

Whether STR_TO_DATE makes a TIME hangs on its format, and whether CONVERT_TZ looks into the server's
tables of time zones on how these are written.

Source: MySQL 9.7 and MariaDB 10.11, asked for the type of STR_TO_DATE by each specifier alone, and
before and behind others. Both go by pairs of bytes from the format's beginning, so `%%Y` has no
year. One of `_OF_DATES` makes it a DATE or DATETIME, whatever else stands there, and whatever the
value: what that has not is 0 then, and what it cannot be is NULL. A day of the month does not do
so: `%d %H` makes a TIME, of more hours. In a character set of two bytes MySQL reads other pairs.

Zones that are offsets both know without their tables, and in any character set; MySQL some more,
from -13:59 to +14:00. What is no offset may become the name of one.
"""

import re
from collections.abc import Iterator, Sequence

from sqlcache.sql.analysis.lookaround import NOTHING, closings
from sqlcache.sql.lexer import Kind, Token
from sqlcache.sql.statement import Told

_OF_DATES = frozenset(b"MUVWXYabcjmuvwxy")
_PLAIN = re.compile(rb"""(['"])([^'"\\\x00-\x1f\x7f-\xff]*)\1""")
_PAIR = re.compile(rb"%(.)")
_OFFSET = re.compile(rb"[+-](?:0?[0-9]|1[0-2]):[0-5][0-9]|\+13:00")

_CALLS = {"STR_TO_DATE": Told.DATES, "CONVERT_TZ": Told.OFFSETS}
_CONSTANTS = frozenset(("NULL", "TRUE", "FALSE"))  # have the shape of literals


def may_tell(tokens: Sequence[Token]) -> Told:
    """What literals might tell of a query with the shape that these tokens have."""
    found = Told.NOTHING
    for at, end in _calls(tokens):
        if ends_in_literal(tokens, end):
            found |= _CALLS[tokens[at].word]
    return found


def ends_in_literal(tokens: Sequence[Token], end: int) -> bool:
    """Whether there may be a literal just before the parenthesis there, by the shape alone."""
    last = tokens[end - 1]
    return last.kind in (Kind.STRING, Kind.NUMBER) or last.word in _CONSTANTS


def tell(tokens: Sequence[Token]) -> Told:
    """What the literals of a query tell. What it has in versioned comments is not looked at, and
    may hold such calls as well."""
    if any(token.kind is Kind.VERSIONED for token in tokens):
        return Told.NOTHING
    tokens = [token for token in tokens if token.kind not in (Kind.HINT, Kind.DIRECTIVE)]
    told = Told.DATES | Told.OFFSETS
    for at, end in _calls(tokens):
        kind = _CALLS[tokens[at].word]
        if kind is Told.DATES and not _makes_date(_literal_before(tokens, end)):
            told &= ~kind
        if kind is Told.OFFSETS and not (
            _OFFSET.fullmatch(_literal_before(tokens, end))
            and _OFFSET.fullmatch(_literal_before(tokens, end - 2))
        ):
            told &= ~kind
    return told


def _calls(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Where calls begin that are told of, and the parentheses that end them."""
    if not any(token.word in _CALLS for token in tokens):
        return
    closed_at = closings(tokens)
    for at, token in enumerate(tokens):
        if token.word in _CALLS and at + 1 < len(tokens) and tokens[at + 1].is_operator(b"("):
            yield at, closed_at.get(at + 1, at + 1)


def _literal_before(tokens: Sequence[Token], at: int) -> bytes:
    """What the string says that is an argument, but no call's first, and ends there: plain ASCII
    without escapes; b"" for all else."""
    before, literal = tokens[at - 2] if at > 1 else NOTHING, tokens[at - 1]
    if literal.kind is not Kind.STRING or not before.is_operator(b","):
        return b""
    plain = _PLAIN.fullmatch(literal.text)
    return b"" if plain is None else plain[2]


def _makes_date(form: bytes) -> bool:
    return any(pair[1][0] in _OF_DATES for pair in _PAIR.finditer(form))
