"""What statements were answered by, and how fast: a row for those that differ in literals alone.

- A statement's plan refers to its row, so that counting costs no look-up.
- The list is bounded, in rows and in bytes: where it is full, those that were sent least often
  leave it. A row that plans still refer to goes on counting, and is shown when it counts more.
- Those of several processes are merged from their reports.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from heapq import nlargest
from operator import itemgetter
from sys import getsizeof
from time import perf_counter
from typing import Any, Final
from weakref import WeakValueDictionary

from sqlcache.metric_kinds import Histogram, observe
from sqlcache.metrics import Metrics

MOST_ROWS: Final = 1_000
LONGEST_TEXT: Final = 1_000
"""Bytes of a shape that are shown."""

_ROW_BYTES = 600  # a row takes next to its text, without times
_TIMES_BYTES = 1_000  # with what became of its stored answers
_MOST_REASONS = 8
_LONGEST_REASON = 200
_OTHER_REASON = "for other reasons"
_LEAVE_AT_ONCE = 10  # a tenth of the rows
_AT_ONCE = 200  # rows, in a turn of the event loop
_SLOWEST_SHARE = 0.99

Report = dict[str, Any]


class Stores:
    """Of a row, how many of the stored answers that were looked at later had been hit by then.

    `judged` were looked at since it was last decided by them, `found` of them had been hit. A
    `sampled` row has few of its answers stored, of `seen` ones since; `skipped` were not, in all.
    `pending` are still to be looked at. `fills` and `hits` are the row's when it was last decided,
    `old_fills` when the latest of those that were looked at was stored.
    """

    __slots__ = ("fills", "found", "hits", "judged", "old_fills", "pending", "sampled", "seen",
                 "skipped")  # fmt: skip

    def __init__(self, fills: int, hits: int) -> None:
        self.sampled = False
        self.pending = self.skipped = 0
        self.begin_anew(fills, hits)

    def begin_anew(self, fills: int, hits: int) -> None:
        """Decides by what is stored from here on."""
        self.judged = self.found = self.seen = 0
        self.fills = self.old_fills = fills
        self.hits = hits


class StatementCounts:
    """One row. `kind` is what sort of statement it is, as in `sql.statement.Kind`; `schema` is the
    default schema of a session that sent it.

    `refills_same`: answers that were forgotten by a write, and came back byte for byte the same.
    """

    __slots__ = ("__weakref__", "bytes_answered", "fills", "hit_seconds", "kind", "misses",
                 "mysql_seconds", "passed", "refills_same", "schema", "seen_at", "stores",
                 "text")  # fmt: skip

    def __init__(self, text: str, kind: str) -> None:
        self.text = text
        self.kind = kind
        self.schema: str | None = None
        self.misses = self.fills = self.refills_same = self.bytes_answered = 0
        self.passed: Counter[str] = Counter()
        self.hit_seconds: Histogram | None = None
        self.mysql_seconds: Histogram | None = None
        self.seen_at = 0.0
        self.stores: Stores | None = None
        """What became of its stored answers; None where they are too few to tell."""

    @property
    def hits(self) -> int:
        """How often it was answered from the cache."""
        return 0 if self.hit_seconds is None else sum(self.hit_seconds.counts)

    @property
    def calls(self) -> int:
        """How often it was sent."""
        return self.hits + self.misses + self.passed.total()

    @property
    def is_sampled(self) -> bool:
        """Whether only few of its answers are stored, for hardly any was hit."""
        return self.stores is not None and self.stores.sampled

    @property
    def size_bytes(self) -> int:
        """About how many bytes of memory it takes, times left out."""
        return _ROW_BYTES + getsizeof(self.text) + sum(map(getsizeof, self.passed))

    def hit(self, metrics: Metrics, asked_at: float, size: int) -> None:
        """One that came then, on `perf_counter`'s clock, was answered from the cache, with so many
        bytes."""
        self.seen_at = seen_at = perf_counter()
        metrics.hits += 1
        self.bytes_answered += size
        if self.hit_seconds is None:
            self.hit_seconds = Histogram()
        observe(seen_at - asked_at, metrics.hit_seconds, self.hit_seconds)

    def missed(self, metrics: Metrics) -> None:
        """There was no answer, and this one is to be stored."""
        metrics.misses += 1
        self.misses += 1

    def went_past(self, metrics: Metrics, reason: str, why: str = "") -> None:
        """MySQL is asked without the cache; `why` is for people what `reason` is for metrics."""
        metrics.bypasses[reason] += 1
        metrics.passed[self.kind] += 1
        why = why or reason
        self.passed[why if why in self.passed else self._told(why)] += 1

    def _told(self, why: str) -> str:
        """A reason as it is listed, if there is room for one more."""
        if len(why) > _LONGEST_REASON:
            why = f"{why[:_LONGEST_REASON]}…"
        known = why in self.passed or len(self.passed) < _MOST_REASONS
        return why if known else _OTHER_REASON

    def took(self, metrics: Metrics, sent_at: float, size: int) -> None:
        """MySQL has answered one that was sent then, with so many bytes."""
        self.seen_at = seen_at = perf_counter()
        self.bytes_answered += size
        if self.mysql_seconds is None:
            self.mysql_seconds = Histogram()
        observe(seen_at - sent_at, metrics.upstream_seconds, self.mysql_seconds)

    def report(self) -> Report:
        """What it has counted, as plain data."""
        return {
            "statement": self.text,
            "kind": self.kind,
            "schema": self.schema,
            "hits": self.hits,
            "misses": self.misses,
            "passed": dict(self.passed),
            "fills": self.fills,
            "refills_same": self.refills_same,
            "stored": "sample" if self.is_sampled else "all",
            "skipped": 0 if self.stores is None else self.stores.skipped,
            "bytes": self.bytes_answered,
            "hit_seconds": self.hit_seconds and self.hit_seconds.snapshot(),
            "mysql_seconds": self.mysql_seconds and self.mysql_seconds.snapshot(),
            "seen_s_ago": max(perf_counter() - self.seen_at, 0.0) if self.seen_at else None,
        }


UNCOUNTED: Final = StatementCounts("", "unknown")
"""What counts for nothing: of commands that are no statements, and of texts that cannot be read."""


class Statements:
    """Those of one process, in a list of at most so many bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._alive: WeakValueDictionary[bytes, StatementCounts] = WeakValueDictionary()
        self._listed: dict[bytes, StatementCounts] = {}
        self.size_bytes = 0

    def of(self, shape: bytes, kind: str, schema: str | None = None) -> StatementCounts:
        """The row of statements of this shape, in which parameters are as good as literals."""
        name = _name_of(shape)
        key = _key_of(name)
        counts = self._alive.get(key)
        if counts is None:
            shown = name[:LONGEST_TEXT].decode("utf-8", "replace")
            counts = StatementCounts(shown if len(name) <= LONGEST_TEXT else shown + "…", kind)
            self._alive[key] = counts
        if counts.schema is None:
            counts.schema = schema
        if key not in self._listed:
            self._list(key, counts)
        return counts

    def find(self, shape: bytes) -> StatementCounts | None:
        """The row of this shape, if there is one."""
        return self._alive.get(_key_of(_name_of(shape)))

    def _list(self, key: bytes, counts: StatementCounts) -> None:
        self._listed[key] = counts
        self.size_bytes += counts.size_bytes + _TIMES_BYTES
        if len(self._listed) > MOST_ROWS or self.size_bytes > self._max_bytes:
            kept = len(self._listed) - max(len(self._listed) // _LEAVE_AT_ONCE, 1)
            rows = nlargest(kept, self._listed.items(), key=lambda row: row[1].calls)
            self._listed = dict(rows) | {key: counts}
            self.size_bytes = sum(each.size_bytes + _TIMES_BYTES for each in self._listed.values())

    async def report(self) -> list[Report]:
        """The rows that count most, first the one that was sent most often. Lets others have their
        turns meanwhile."""
        counted: list[tuple[int, StatementCounts]] = []
        for place, row in enumerate(list(self._alive.values()), 1):
            if calls := row.calls:
                counted.append((calls, row))
            if place % _AT_ONCE == 0:
                await asyncio.sleep(0)
        told = []
        for place, (_, row) in enumerate(nlargest(MOST_ROWS, counted, key=itemgetter(0)), 1):
            told.append(row.report())
            if place % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return told


def _name_of(shape: bytes) -> bytes:
    return shape.replace(b"??", b"?")


def _key_of(name: bytes) -> bytes:
    return blake2b(name, digest_size=16).digest()


def merged(reports: Iterable[Iterable[Report]]) -> list[Report]:
    """The rows of several processes together, as people want them: times in seconds."""
    together: dict[tuple[str, str], Report] = {}
    for row in (each for report in reports for each in report):
        named = {"statement": row["statement"], "kind": row["kind"]}
        empty = named | _EMPTY | {"passed": Counter()}
        total = together.setdefault((row["kind"], row["statement"]), empty)
        for name in _SUMMED:
            total[name] += row[name]
        total["schema"] = total["schema"] or row["schema"]
        if row["stored"] == "sample":
            total["stored"] = "sample"
        total["passed"].update(row["passed"])
        for name in ("hit_seconds", "mysql_seconds"):
            if row[name] is not None:
                total[name] = total[name] or Histogram()
                total[name].update(row[name])
        ages = [each["seen_s_ago"] for each in (total, row) if each["seen_s_ago"] is not None]
        total["seen_s_ago"] = min(ages, default=None)
    return [_for_people(row) for row in together.values()]


_SUMMED: Final = ("hits", "misses", "fills", "refills_same", "skipped", "bytes")
_EMPTY: Final = {
    **dict.fromkeys(_SUMMED, 0),
    "stored": "all",
    **dict.fromkeys(("schema", "hit_seconds", "mysql_seconds", "seen_s_ago")),
}


def _for_people(row: Report) -> Report:
    hit, mysql = row.pop("hit_seconds"), row.pop("mysql_seconds")
    hit_s, mysql_s = _mean(hit), _mean(mysql)
    passed = row["passed"]
    saved = None if hit_s is None or mysql_s is None else max(row["hits"] * (mysql_s - hit_s), 0.0)
    return {
        **row,
        "calls": row["hits"] + row["misses"] + passed.total(),
        "bypasses": passed.total(),
        "why_not": next((why for why, _ in passed.most_common(1)), None),
        "passed": dict(passed),
        "hit_mean_s": hit_s,
        "hit_p99_s": _p99(hit),
        "mysql_mean_s": mysql_s,
        "mysql_p99_s": _p99(mysql),
        "saved_s": saved,
    }


def _mean(histogram: Histogram | None) -> float | None:
    return None if histogram is None else histogram.sum_s / sum(histogram.counts)


def _p99(histogram: Histogram | None) -> float | None:
    """The bound below which 99 of 100 are; None where that is more than there is a bound for."""
    if histogram is None:
        return None
    of_all = _SLOWEST_SHARE * sum(histogram.counts)
    bound = next(bound for bound, at_most in histogram.buckets() if at_most >= of_all)
    return None if bound == "+Inf" else float(bound)
