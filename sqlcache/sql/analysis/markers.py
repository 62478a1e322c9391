"""What a prepared statement's markers stand for, as far as a date may be wanted in their place.

Where it is, MySQL takes a 0 or a 20200101 for a date, and what comes in its place later as well. A
text does not say which columns are dates, so this gives the names of those that markers meet.
"""

import re
from collections.abc import Sequence
from sys import intern

from sqlcache.sql.analysis.cursor import NAMES
from sqlcache.sql.analysis.lookaround import VALUES, Lookaround
from sqlcache.sql.lexer import Kind, Token, word_set
from sqlcache.sql.statement import Markers

ROWS = ""
"""In place of a column's name: the marker is a number of rows, in LIMIT."""

_DATES = re.compile(r"DATE|TIME|DAY|YEAR|MONTH|WEEK|QUARTER|HOUR|MINUTE|SECOND|INTERVAL|CONVERT_TZ")
# What gives columns other names, or has other columns, than those of its tables.
_RENAMES = word_set("WITH JSON_TABLE UNION EXCEPT INTERSECT MINUS TABLE VALUES")
_BEFORE = word_set("WHERE AND OR XOR NOT ON HAVING WHEN SELECT")
_NO_ALIAS_AFTER = _BEFORE | word_set("BY DISTINCT ALL FROM JOIN BETWEEN LIKE IN IS CASE THEN ELSE")
_AFTER = word_set("AND OR XOR THEN GROUP ORDER HAVING LIMIT JOIN LEFT RIGHT INNER CROSS FOR WINDOW")


def markers(tokens: Sequence[Token]) -> Markers:
    """Those of a query: of a list of them, as many as its shape has."""
    return _Reader(tokens).read()


class _Reader(Lookaround):
    def __init__(self, tokens: Sequence[Token]) -> None:
        super().__init__(tokens)
        words = [token.word for token in tokens]
        self._renames = words.count("SELECT") > 1 or not _RENAMES.isdisjoint(words)
        stars = any(t.is_operator(b"*") or t.word == "TABLE" for t in tokens)
        self._unnamed = self._renames and stars
        self._aliases = {t.name.lower() for at, t in enumerate(tokens) if self._is_alias(at)}

    def read(self) -> Markers:
        places = (at for at, token in enumerate(self._tokens) if token.kind is Kind.PARAMETER)
        names = frozenset(intern(t.name.lower()) for t in self._tokens if t.kind in NAMES)
        dates = self._unnamed or any(_DATES.search(name.upper()) for name in names)
        return Markers(tuple(map(self._column, places)), names, dates)

    def _is_alias(self, at: int) -> bool:
        """Whether the name there may be one that the statement gives."""
        before = self._token(at - 1)
        follows = before.kind in NAMES and before.word not in _NO_ALIAS_AFTER
        return self._tokens[at].kind in NAMES and (
            follows or before.is_operator(b")") or before.kind in (Kind.STRING, Kind.NUMBER)
        )

    def _column(self, at: int) -> str | None:
        """The column that a marker is compared with and nothing else; ROWS; or None."""
        if self._token(at - 1).word in ("LIMIT", "OFFSET") or self._token(at - 3).word == "LIMIT":
            return ROWS
        if self._renames:
            return None
        start, end = self._comparison(at)
        name = self._name_before(start)
        return name if name is not None and self._ends(end, _AFTER) else None

    def _comparison(self, at: int) -> tuple[int, int]:
        """Where the comparison begins, behind the column, and where it is over."""
        if self._compares(at - 1):
            return at - 1, at + 1
        for between in (at - 1, at - 3):
            limits = self._token(between + 1), self._token(between + 3)
            both = all(limit.kind in VALUES for limit in limits)
            if self._token(between).word == "BETWEEN" and both:
                return self._without_not(between), between + 4
        first, end = self._list_around(at)
        start = first - 1
        opens = self._token(start).is_operator(b"(") and self._token(start - 1).word == "IN"
        if opens and self._token(end).is_operator(b")"):
            return self._without_not(start - 1), end + 1
        return -1, at

    def _without_not(self, at: int) -> int:
        return at - 1 if self._token(at - 1).word == "NOT" else at

    def _name_before(self, at: int) -> str | None:
        """The column's name that ends there, if it is all of the operand."""
        name = self._token(at - 1)
        if at < 1 or name.kind not in NAMES or name.name.lower() in self._aliases:
            return None
        before = self._token(self._path_to(at - 1) - 1)
        begins = before.word in _BEFORE or before.is_operator(b"(") or before.is_operator(b",")
        return name.name.lower() if begins else None
