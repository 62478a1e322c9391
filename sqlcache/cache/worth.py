"""Which answers are worth storing: not those to statements that never come a second time.

A statement with the time in its text has another key each time: all its answers are stored, and
none is hit. So of each shape some stored answers are looked at when they are old:

- memcached knows of an item whether it was ever fetched. It is asked for that, once for each, so a
  hit costs nothing more; and whoever has hit it, this process or another, is seen. For this a
  process does not keep near what it will look at: its own first hit fetches it.
- Where hardly any was hit, few answers of the shape are stored from then on, as a sample. As soon
  as some of these are hit, all are stored again.
- What was evicted says nothing.

Each process judges for itself, by what it has stored.

One whose text names the very moment, to parts of a second, need not be judged, nor looked up:
nobody has asked it before.
"""

import re
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, date, datetime
from itertools import islice
from typing import NamedTuple

from sqlcache.cache.outcomes import Bypass, Miss
from sqlcache.cache.reads import Read
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.protocol import FOUND, Reply, flag_of, meta_get
from sqlcache.metrics import Metrics
from sqlcache.statement_counts import UNCOUNTED, StatementCounts, Stores

OLD_S = 300
"""A warm-up reads each key once at first: how old an answer is that is looked at, at least."""
LEAST_JUDGED = 50
"""It is decided by so many answers, or more."""
ONE_OF = 20
"""How many of a shape's answers that are hardly ever hit have one stored."""

_LEAST_SHARE = 0.01
_MOST_JUDGED = 200  # then what was long ago counts no more
_FIRST_FILLS = 16  # of a shape with fewer nothing is held
_MOST_OF_A_SHAPE = 64
_MOST_SAMPLES = 8_192  # 200 bytes each
_LOOKED_AT_TOGETHER = 256

_MOMENT = re.compile(rb"(\d{4}-\d\d-\d\d)[ T]\d\d:(\d\d):(\d\d)\.\d{3,6}")
_JUST_NOW_S = 5
_ZONES_DIFFER_S = 900  # in times of this

UNHIT = Bypass("answers not hit again")


class _Sample(NamedTuple):
    """An answer that was stored then, as this one of its row's fills."""

    stored_at: float
    key: bytes
    counts: StatementCounts
    stores: Stores
    number: int
    shared: bool


class Worth:
    """One process's judgement, by what became of the answers that it has stored; with `skips` off
    all are worth it. `clock` counts seconds."""

    def __init__(
        self, cluster: Cluster, metrics: Metrics, *, skips: bool, clock: Callable[[], float]
    ) -> None:
        self.clock = clock
        self._cluster = cluster
        self._metrics = metrics
        self._skips = skips
        self._samples: deque[_Sample] = deque()  # the oldest first
        self._looking = False

    def skips(self, read: Read, miss: Miss) -> bool:
        """Whether the answer to this, which is to be asked of MySQL, is not to be stored."""
        stores = read.counts.stores
        # One that is fetched anew before its time was hit just now.
        if stores is None or not stores.sampled or miss.early:
            return False
        self._look_at_old()
        stores.seen += 1
        if not stores.sampled or stores.seen % ONE_OF == 0:
            return False
        stores.skipped += 1
        self._metrics.fills_skipped += 1
        return True

    def is_of_this_moment(self, read: Read, values: bytes) -> bool:
        """Whether nobody can have asked this before, by the `values` in its text: it is of a shape
        of which none was hit."""
        known = not self._skips or read.counts.hit_seconds is not None
        if known or not names_moment(values, time.time()):
            return False
        self._metrics.fills_skipped += 1
        return True

    def is_looked_at(self, read: Read, *, shared: bool) -> bool:
        """An answer to this is about to be stored: whether it will be looked at, and is not to be
        near. `shared`: others have waited for it already, which is as good as a hit."""
        counts = read.counts
        told = self._skips and counts is not UNCOUNTED and read.freshness.ttl_s > OLD_S
        if not told or counts.fills <= _FIRST_FILLS:
            return False
        self._look_at_old()
        stores = counts.stores
        if stores is None:
            stores = counts.stores = Stores(counts.fills, counts.hits)
        if stores.pending >= _MOST_OF_A_SHAPE or len(self._samples) >= _MOST_SAMPLES:
            return False
        stores.pending += 1
        now = self.clock()
        self._samples.append(_Sample(now, read.key, counts, stores, counts.fills, shared))
        return True

    def _look_at_old(self) -> None:
        """Asks memcached what became of those that are old enough by now."""
        if self._looking or not self._samples:
            return
        until = self.clock() - OLD_S
        if self._samples[0].stored_at > until:
            return
        oldest = islice(self._samples, _LOOKED_AT_TOGETHER)
        old = [each for each in oldest if each.stored_at <= until]
        for _ in old:
            self._samples.popleft()
        self._looking = True

        def told(replies: list[Reply | None]) -> None:
            self._looking = False
            for sample, reply in zip(old, replies, strict=True):
                self._judge(sample, reply)

        self._cluster.submit([(each.key, meta_get(each.key, b"h")) for each in old], told)

    def _judge(self, sample: _Sample, reply: Reply | None) -> None:
        stores = sample.stores
        stores.pending -= 1
        is_there = reply is not None and reply[0] == FOUND
        if not (is_there or sample.shared):
            return
        stores.judged += 1
        stores.found += sample.shared or (reply is not None and flag_of(reply[2], b"h") == b"1")
        stores.old_fills = sample.number
        _decide(stores, sample.counts)


def _decide(stores: Stores, counts: StatementCounts) -> None:
    """Whether the answers of a row are worth storing, by those that were looked at. Where many hits
    are of few of its answers, they are."""
    hits, old = counts.hits - stores.hits, stores.old_fills - stores.fills
    rare = stores.found < _LEAST_SHARE * stores.judged
    useless = rare and hits <= _LEAST_SHARE * old and stores.judged >= LEAST_JUDGED
    if useless and not stores.sampled:
        stores.sampled = True
        stores.begin_anew(counts.fills, counts.hits)
    elif stores.sampled and not rare:
        stores.sampled = False
        stores.begin_anew(counts.fills, counts.hits)
    elif stores.judged >= _MOST_JUDGED:
        stores.begin_anew(counts.fills, counts.hits)


def names_moment(values: bytes, now: float) -> bool:
    """Whether one of them is the time of just now, in some time zone, to parts of a second."""
    if b":" not in values:  # mostly: to look for the rest takes much longer
        return False
    found = _MOMENT.finditer(values)
    return any(_is_just_now(each[1], each[2], each[3], now) for each in found)


def _is_just_now(day: bytes, minute: bytes, second: bytes, now: float) -> bool:
    ago_s = (now - 60 * int(minute) - int(second)) % _ZONES_DIFFER_S
    if min(ago_s, _ZONES_DIFFER_S - ago_s) > _JUST_NOW_S:
        return False
    try:
        named = date.fromisoformat(day.decode())
    except ValueError:
        return False
    return abs((named - datetime.fromtimestamp(now, UTC).date()).days) <= 1
