"""What became visible in the log at once: which tables have changed rows, what statements ran."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sqlcache.sql.pieces import Dialect
from sqlcache.sql.statement import ADDS, Changes

MOST_TABLES: Final = 10_000
MOST_STATEMENTS: Final = 1_000
MOST_TEXT_BYTES: Final = 4_194_304
_TABLE_BYTES: Final = 500  # each with changed rows takes
_DEFINES_NOTHING: Final = re.compile(rb"(?:INSERT|REPLACE|UPDATE|DELETE|LOAD)\b", re.IGNORECASE)

Place = tuple[str, int]
"""A file of the log, and where in it."""


class Logged(NamedTuple):
    """A statement that the log has as its text, in UTF-8. `schema` was the default one. `shape` is
    the text's, b"" where it has none; `session` tells the one that ran it from others."""

    text: bytes
    schema: str | None
    dialect: Dialect
    shape: bytes = b""
    session: bytes = b""

    @property
    def read_as(self) -> tuple[bytes, str | None, Dialect]:
        """What else than literals decides what it does."""
        return self.shape, self.schema, self.dialect

    @property
    def may_define(self) -> bool:
        """Whether it may change definitions."""
        return not _DEFINES_NOTHING.match(self.shape or self.text)


class Commit(NamedTuple):
    """A commit's GTID, MySQL's or MariaDB's: what it begins with, and the number that comes last.
    `server` is the number of the server on which it was made; 0 of one that was not found in the
    log."""

    source: str
    number: int
    server: int


@dataclass(slots=True)
class Change:
    """What became visible at once.

    `tables` are those with changed rows, by schema and name as the server writes them, and what was
    done to these. `everything` says why that may have been anything; "" where it is known.
    """

    tables: dict[tuple[str, str], Changes] = field(default_factory=dict)
    statements: list[Logged] = field(default_factory=list)
    everything: str = ""
    commit: Commit | None = None
    """None where it has no GTID that is read."""
    name: bytes | None = None
    """What tags' logs call it, see `names`."""
    end: Place = ("", 0)
    """Where the log goes on behind it."""
    is_placed: bool = True
    """Whether that tells when it can be seen, see `Source.can_be_seen`: not of a branch, which the
    log has before it is committed, nor behind 4 GiB of a file."""
    session: int | None = None
    """The one that unlocks its tables after it is done for all that the log says, and by that lets
    it be seen: that is so of those without transactions."""
    text_bytes: int = 0
    _query: int | None = None  # that the session was at when it was asked first; 0 for none

    def __bool__(self) -> bool:
        return bool(self.tables or self.statements or self.everything)

    @property
    def size_bytes(self) -> int:
        """About how many bytes of memory it takes."""
        return self.text_bytes + _TABLE_BYTES * len(self.tables)

    def may_be_locked(self, queries: Mapping[int, int]) -> bool:
        """Whether its session is at what it was at when this was asked first. `queries`: what those
        are at that are at work."""
        query = queries.get(self.session or 0)
        if self._query is None:
            self._query = query or 0
        return query is not None and query == self._query

    def merge(self, tables: Iterable[tuple[tuple[str, str], Changes]]) -> None:
        """Adds tables with changed rows."""
        for name, changes in tables:
            self.tables[name] = changes.with_(self.tables.get(name, ADDS))
        if len(self.tables) > MOST_TABLES:
            self.everything = "a transaction wrote more tables than are kept apart"
            self.tables.clear()

    def add(self, statement: Logged) -> None:
        """Adds a statement."""
        self.statements.append(statement)
        self.text_bytes += len(statement.text) + len(statement.shape)
        if len(self.statements) > MOST_STATEMENTS or self.text_bytes > MOST_TEXT_BYTES:
            self.everything = "a transaction has more statements than are kept apart"
            self.statements.clear()
