"""The lists of the API: what is asked for each, how the processes' answers become one, and by what
it is sorted and searched.

They may be long, and clients are served by the same event loop: who sorts, searches or writes one
gives way to others.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlcache import statement_counts, table_counts
from sqlcache.admin.questions import Question
from sqlcache.process import events

MOST_SESSIONS: Final = 10_000

_AT_ONCE = 200  # items, in a turn of the event loop

Item = dict[str, Any]
Merge = Callable[[Sequence[Any]], list[Item]]


@dataclass(frozen=True, slots=True)
class Listing:
    """One list. `sorts` are the fields it can be sorted by, first the default one: texts ascending,
    all else, and those that are `newest_first`, descending. `searched` are those in which `q` is
    looked for."""

    path: str
    summary: str
    question: Question
    merge: Merge
    sorts: tuple[str, ...]
    searched: tuple[str, ...]
    newest_first: str = ""

    async def chosen(self, items: Sequence[Item], sort: str, wanted: str) -> list[Item]:
        """Those in which a text in lower case is found, sorted."""
        found: list[Item] = []
        for place, item in enumerate(items, 1):
            if not wanted or any(wanted in str(item[name]).lower() for name in self.searched):
                found.append(item)
            if place % _AT_ONCE == 0:
                await asyncio.sleep(0)
        texts = [each for each in found if isinstance(each[sort], str)]
        ascending = bool(texts) and sort != self.newest_first
        found.sort(key=lambda item: _order(item[sort], ascending=ascending), reverse=not ascending)
        return found


def _order(value: object, *, ascending: bool) -> tuple[bool, Any]:
    """What is not known comes last."""
    if isinstance(value, dict):
        value = sum(value.values())
    if value is None:
        return ascending, "" if ascending else 0
    return not ascending, value


async def listed(items: Sequence[Item], *, total: int, age_s: float) -> bytes:
    """A list as JSON."""
    parts: list[str] = []
    for start in range(0, len(items), _AT_ONCE):
        some = json.dumps(items[start : start + _AT_ONCE], separators=(",", ":"))
        parts.append(some[1:-1])
        await asyncio.sleep(0)
    return f'{{"items":[{",".join(parts)}],"total":{total},"age_s":{age_s}}}'.encode()


def _nodes(reports: Sequence[Sequence[Item]]) -> list[Item]:
    """What the processes say of each node: its own figures, and how many of them are without it."""
    together: dict[str, Item] = {}
    for row in (each for report in reports for each in report):
        node = together.setdefault(row["node"], {**row, "away": 0, "processes": 0})
        node["away"] += row["away"]
        node["processes"] += 1
    return list(together.values())


def _sessions(reports: Sequence[Sequence[Item]]) -> list[Item]:
    return [each for report in reports for each in report][:MOST_SESSIONS]


LISTS: Final = (
    Listing(
        "/api/statements",
        "What statements were answered by, a row for a shape.",
        Question.STATEMENTS,
        statement_counts.merged,
        sorts=(
            "calls",
            "hits",
            "misses",
            "bypasses",
            "fills",
            "refills_same",
            "bytes",
            "skipped",
            "hit_mean_s",
            "hit_p99_s",
            "mysql_mean_s",
            "mysql_p99_s",
            "saved_s",
            "seen_s_ago",
        ),
        searched=("statement",),
    ),
    Listing(
        "/api/tables",
        "What became of each table: reads, writes, what was forgotten.",
        Question.TABLES,
        table_counts.merged,
        sorts=(
            "hits",
            "misses",
            "writes",
            "invalidations",
            "fills",
            "last_write_s_ago",
            "read_s_ago",
            "table",
        ),
        searched=("table",),
    ),
    Listing(
        "/api/sessions",
        "The clients that are connected, and why they have no hits.",
        Question.SESSIONS,
        _sessions,
        sorts=(
            "connected_s",
            "idle_s",
            "id",
            "user",
            "address",
            "schema",
            "pid",
            "state",
            "in_transaction",
            "cacheable",
            "why_not",
            "statement",
        ),
        searched=("user", "address", "schema", "state", "why_not", "statement"),
    ),
    Listing(
        "/api/events",
        "What has happened lately, the newest first.",
        Question.EVENTS,
        events.merged,
        sorts=("at", "s_ago", "kind", "pid"),
        searched=("kind", "event"),
        newest_first="at",
    ),
    Listing(
        "/api/nodes",
        "The memcached nodes, as each process sees them.",
        Question.NODES,
        _nodes,
        sorts=("node",),
        searched=("node",),
    ),
)
