"""What became of each table: reads that hang on it, writes by who made them, what was forgotten.

- Reads are counted with what they hang on, in one place for each set of tables. Who asks for the
  list has them added up; a set that is in use no more leaves its figures.
- The list is bounded, in rows and in bytes: where it is full, the tables that were used least leave
  it.
- Those of several processes are merged from their reports.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Any, Final, Literal, Protocol
from weakref import ref

MOST_ROWS: Final = 5_000
DOORS: Final = ("proxy", "api", "flush", "binlog")

_ROW_BYTES = 500  # a row takes next to its name
_LEAVE_AT_ONCE = 10  # a tenth of the rows
_MOST_ENDED = 100
_AT_ONCE = 200  # sets, or rows, in a turn of the event loop

Door = Literal["proxy", "api", "flush", "binlog"]
"""Who writes: a session of the proxy, the Python API, an operator, who forgets what hangs on a
table, or anybody at all, as the server's binary log tells."""
Report = dict[str, Any]


class TableReads:
    """What became of the reads that hang on these tables, and was not added to their rows yet.
    `tables` are names such as `shop.orders`."""

    __slots__ = ("fills", "hits", "misses", "tables")

    def __init__(self, tables: Sequence[str]) -> None:
        self.tables = tables
        self.hits = self.misses = self.fills = 0


class Followed(Protocol):
    """What reads hang on."""

    @property
    def reads(self) -> TableReads:
        """What became of them."""

    @property
    def last_seen(self) -> tuple[bytes, float] | None:
        """When it was asked for, last, on the event loop's clock."""


class TableCounts:
    """One row; times are those of the event loop's clock, 0 where there is none."""

    __slots__ = ("api", "binlog", "fills", "flush", "hits", "invalidations", "misses", "proxy",
                 "read_at", "wrote_at")  # fmt: skip

    def __init__(self) -> None:
        self.hits = self.misses = self.fills = 0
        self.proxy = self.api = self.flush = self.binlog = self.invalidations = 0
        self.read_at = self.wrote_at = 0.0

    @property
    def uses(self) -> int:
        """How often it was read and written."""
        writes: int = sum(getattr(self, door) for door in DOORS)
        return self.hits + self.misses + writes

    def report(self, table: str, now: float) -> Report:
        """What it has counted, as plain data."""
        return {
            "table": table,
            "hits": self.hits,
            "misses": self.misses,
            "writes": {door: getattr(self, door) for door in DOORS},
            "invalidations": self.invalidations,
            "fills": self.fills,
            "last_write_s_ago": _ago(self.wrote_at, now),
            "read_s_ago": _ago(self.read_at, now),
        }


def _ago(at: float, now: float) -> float | None:
    return max(now - at, 0.0) if at else None


class Tables:
    """Those of one process, in a list of at most so many bytes. Made inside a running event
    loop."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rows: dict[str, TableCounts] = {}
        self._alive: dict[ref[Followed], TableReads] = {}
        self._ended: deque[TableReads] = deque()
        self._loop = asyncio.get_running_loop()
        self.size_bytes = 0

    def follow(self, followed: Followed) -> None:
        """From here on its reads are counted, as long as anybody uses it."""
        self._alive[ref(followed, self._end)] = followed.reads
        if len(self._ended) > _MOST_ENDED:
            self._settle()

    def _end(self, gone: ref[Followed]) -> None:
        """Wherever that happens, perhaps in another thread."""
        if (reads := self._alive.pop(gone, None)) is not None:
            self._ended.append(reads)

    def _settle(self) -> None:
        while self._ended:
            self._add(self._ended.popleft(), 0.0)

    def _add(self, reads: TableReads, read_at: float) -> None:
        if not (reads.hits or reads.misses or reads.fills):
            return
        for table in reads.tables:
            row = self._row(table)
            row.hits += reads.hits
            row.misses += reads.misses
            row.fills += reads.fills
            row.read_at = max(row.read_at, read_at)
        reads.hits = reads.misses = reads.fills = 0

    def wrote(self, tables: Iterable[str], door: Door) -> None:
        """Somebody writes these, or has an operator's word for it."""
        for table in tables:
            row = self._row(table)
            setattr(row, door, getattr(row, door) + 1)

    def invalidated(self, table: str) -> None:
        """All that hangs on it was forgotten."""
        row = self._row(table)
        row.invalidations += 1
        row.wrote_at = self._loop.time()

    def _row(self, table: str) -> TableCounts:
        row = self._rows.get(table)
        if row is None:
            row = self._rows[table] = TableCounts()
            self.size_bytes += _ROW_BYTES + len(table)
            if len(self._rows) > MOST_ROWS or self.size_bytes > self._max_bytes:
                self._make_room(table, row)
        return row

    def _make_room(self, table: str, row: TableCounts) -> None:
        kept = len(self._rows) - max(len(self._rows) // _LEAVE_AT_ONCE, 1)
        rows = nlargest(kept, self._rows.items(), key=lambda each: each[1].uses)
        self._rows = dict(rows) | {table: row}
        self.size_bytes = sum(_ROW_BYTES + len(name) for name in self._rows)

    async def report(self) -> list[Report]:
        """All rows, also those of tables that nobody has read. Lets others have their turns
        meanwhile."""
        self._settle()
        for place, (followed, reads) in enumerate(list(self._alive.items()), 1):
            seen = getattr(followed(), "last_seen", None)
            self._add(reads, seen[1] if seen else 0.0)
            if place % _AT_ONCE == 0:
                await asyncio.sleep(0)
        told = []
        now = self._loop.time()
        for place, (table, row) in enumerate(list(self._rows.items()), 1):
            told.append(row.report(table, now))
            if place % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return told


def merged(reports: Iterable[Iterable[Report]]) -> list[Report]:
    """The rows of several processes together: those that were used most, where they are too
    many."""
    together: dict[str, Report] = {}
    for row in (each for report in reports for each in report):
        total = together.get(row["table"])
        if total is None:
            together[row["table"]] = row | {"writes": dict(row["writes"])}
            continue
        for name in ("hits", "misses", "invalidations", "fills"):
            total[name] += row[name]
        for door in DOORS:
            total["writes"][door] += row["writes"][door]
        for name in ("last_write_s_ago", "read_s_ago"):
            ages = [each[name] for each in (total, row) if each[name] is not None]
            total[name] = min(ages, default=None)
    return nlargest(MOST_ROWS, together.values(), key=_uses)


def _uses(row: Report) -> int:
    uses: int = row["hits"] + row["misses"] + sum(row["writes"].values())
    return uses
