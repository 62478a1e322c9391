"""Slots: answers of a table that are told apart, so that a write to other rows, or to columns that
they do not read, leaves them.

- An answer that comes from the rows with one value of a column alone *pins* it. It hangs on the
  slot's version, in the table's log, and on that of the value's *bucket*, an item of its own beside
  the log, in place of the table's version.
- A slot may be of answers that do not read some columns: a write that sets no others touches none
  of its buckets. Such a slot may be of no column, and have no buckets at all.
- An answer from several tables may pin a slot of each. What it says of one of them is so whatever
  the others hold: so it is current while all of its slots and buckets are.
- A write that touches no other rows than those with some values covers their buckets alone while it
  is in flight, and then gives those of them that are there new versions. Whatever it does not know
  of it covers and renews, and so does every write that is not so: no two processes need to agree on
  what slots there are.
- The log is asked before the bucket, and the buckets are renewed before the fence is lifted, all on
  one node. So whoever finds no fence in the way finds a bucket that is new after all writes before.
  And again behind the bucket: nothing is stored under a version that was given amid a write.
- Who has asked for a bucket need not ask again while the log, read again and again, tells of no
  write that covers it. Where it may have missed one, as where the log was written anew meanwhile,
  it asks.
- All that counts in a log alone that was known for a while before: one in the place of another may
  lack the fences of others that are writing the same rows.
- Which bucket a row is in that a write changes its text need not say. Then the write covers all of
  that slot, and asks the database meanwhile; what it is told of, it gives new versions, and not the
  slot.
- A slot is taken into use where answers that would pin it were forgotten without need: fetched
  anew, and the same.
"""

from collections import deque
from collections.abc import Iterable, Sequence, Set
from typing import Protocol
from weakref import WeakSet

from sqlcache.cache.bounded import Bounded
from sqlcache.cache.log_records import ABSENT, MOST_SLOTS, TagState, covers_in
from sqlcache.cache.tags import Cover, Pin

MOST_BUCKETS = 64
"""Of a write; one that touches more covers all of the slots of which it touches most."""

BUCKET_TTL_S = 2_500_000
"""Of a bucket: what is left of it tells how old it is."""

_EACH_GIVEN_BYTES = 300
_NEEDLESS = 8
_SPARED = 8  # by the last writes that are told apart by what they set
_IN_S = 60.0
_MOST_TOUCHED = 128  # 150 bytes each
_FOLLOWS_AGAIN_S = 0.1
NEVER = float("-inf")
"""Before any time."""

_NONE: Set[bytes] = frozenset()
_ANY = b""

InUse = tuple[Set[bytes], ...]
"""The slots in use of some tables, in order; nothing where none of these has any."""


def bounded(touched: Cover, most: int = MOST_BUCKETS) -> Cover:
    """The same, without the slots of which most is touched, where that is too much."""
    sizes = {slot: len(buckets) for slot, buckets in touched.items()}
    total = sum(sizes.values())
    if total <= most:
        return touched
    left = dict(touched)
    for slot in sorted(sizes, key=lambda each: (sizes[each], each), reverse=True):
        if total <= most:
            break
        del left[slot]
        total -= sizes[slot]
    return left


def both(one: Cover, other: Cover) -> Cover:
    """What two writes to a table touch that have one fence."""
    return bounded({slot: one[slot] | other[slot] for slot in one.keys() & other.keys()})


class Touched:
    """Which buckets of a table writes have touched, by its log, which is read again and again.

    Each `turn` it told something new. A bucket whose version was asked for, behind the log, at some
    turn has that version still where none since then touched it, and its slot has its own.
    """

    __slots__ = ("_at", "_gap_at", "_since", "log", "state", "turn")

    def __init__(self) -> None:
        self.log = b""
        self.state = ABSENT
        """What that says."""
        self.turn = 0
        self._since = 0  # of turns before nothing is known
        self._gap_at = NEVER
        self._at: dict[tuple[bytes, bytes], tuple[int, float]] = {}  # the turn, and the time

    def saw(self, log: bytes, state: TagState, now: float) -> None:
        """It says this now. One from before, which came late, is nothing new."""
        same = state.version == self.state.version
        if log == self.log or (self.log.startswith(log) and not same):
            return
        self.turn += 1
        if state.version is None or self.state.version is None:
            self._forget()
        elif log.startswith(self.log):
            self._touch(covers_in(log, len(self.log)), state.slots, now)
        elif same:
            self._touch(state.narrow.values(), state.slots, now)  # no write has ended since
        else:
            self._forget()
            self._gap_at = now
        self.log, self.state = log, state

    def _touch(self, covers: Iterable[Cover], in_use: Iterable[bytes], now: float) -> None:
        at = self.turn, now
        for cover in covers:
            for slot in in_use:
                # Of one that is not named any bucket may be new when the write has ended.
                buckets = cover.get(slot, (_ANY,))
                self._at |= dict.fromkeys(((slot, bucket) for bucket in buckets), at)
        if len(self._at) > _MOST_TOUCHED:
            self._forget()

    def _forget(self) -> None:
        self._at.clear()
        self._since = self.turn

    def follows(self, now: float) -> bool:
        """Whether it is likely to miss nothing of what comes: it has not just now."""
        return now - self._gap_at > _FOLLOWS_AGAIN_S

    def leaves(self, pin: Pin, turn: int) -> bool:
        """Whether no write since this turn has touched a bucket of the pin."""
        if turn == self.turn:
            return True
        if turn < self._since:
            return False
        return self.touched_at(pin, turn) == NEVER

    def touched_at(self, pin: Pin, turn: int) -> float:
        """When it was seen that a write since this turn touches a bucket of the pin; never, where
        none is known of."""
        last, at = NEVER, self._at
        for bucket in (_ANY, *pin.buckets):
            touched = at.get((pin.slot, bucket))
            if touched is not None and touched[0] > turn:
                last = max(last, touched[1])
        return last


class KnownLog:
    """A table's log, of those that were there one after the other, as this process last saw."""

    __slots__ = ("_id", "since")

    def __init__(self) -> None:
        self._id = b""
        self.since = 0.0
        """When it saw this very one first, and no other between."""

    def saw(self, state: TagState, now: float) -> None:
        """The log was read, which says this."""
        if state.log != self._id:
            self._id, self.since = state.log, now

    def is_that_since(self, log: bytes, time: float) -> bool:
        """Whether it is this one, and has been since that time or before."""
        return bool(log) and self._id == log and self.since <= time


class TableSlots:
    """Those of one table in use, as this process last saw, and what would be worth one."""

    __slots__ = ("__weakref__", "_followers", "_needless", "_spared", "_versions", "in_use",
                 "known_log", "looked_at", "touched")  # fmt: skip

    def __init__(self, known_log: KnownLog) -> None:
        self.in_use = _NONE
        self.touched = Touched()
        self.known_log = known_log
        self.looked_at = NEVER
        """When a read looked at the table's log last."""
        self._followers: WeakSet[Slots] = WeakSet()
        self._spared: deque[bytes] = deque(maxlen=_SPARED)
        self._needless: dict[bytes, deque[float]] = {}
        self._versions: dict[bytes, tuple[bytes, float]] = {}

    def saw(self, log: bytes, state: TagState, now: float) -> None:
        """The table's log was read, which says this."""
        self.known_log.saw(state, now)
        self.touched.saw(log, state, now)
        if state.slots.keys() != self.in_use:
            self.in_use = frozenset(state.slots)
            for each in self._followers:
                each.look()

    def tell(self, slots: "Slots") -> None:
        """Has it look whenever others are in use."""
        self._followers.add(slots)

    def seen_since(self, slot: bytes, version: bytes, now: float) -> float:
        """When this process saw first that a slot in use has this version."""
        known = self._versions.get(slot)
        if known is None or known[0] != version:
            self._versions = {
                each: self._versions[each] for each in self._versions if each in self.in_use
            }
            known = self._versions[slot] = version, now
        return known[1]

    def was_spared(self, slot: bytes) -> None:
        """A write touched no answer of such a slot, in use or not."""
        if slot not in self._spared:
            self._spared.append(slot)

    def wanted_by(self, pinning: "Pinning", field: bytes) -> bytes | None:
        """The slot that would have kept an answer of these reads, where one is not in use."""
        return pinning.wants(self.in_use, self._spared, field)

    def was_needless(self, slot: bytes, now: float) -> bool:
        """An answer that would pin this slot was fetched anew, and is the same. Whether the slot is
        to be taken into use: where that is so often."""
        if slot in self.in_use or len(self.in_use) >= MOST_SLOTS:
            return False
        if slot not in self._needless and len(self._needless) >= MOST_SLOTS:
            self._needless.clear()
        times = self._needless.setdefault(slot, deque(maxlen=_NEEDLESS))
        times.append(now)
        if len(times) < _NEEDLESS or now - times[0] > _IN_S:
            return False
        del self._needless[slot]
        return True


class Slots:
    """Those of the tables that an answer may pin, in the order of its tags."""

    __slots__ = ("__weakref__", "in_use", "tables")

    def __init__(self, tables: Sequence[TableSlots]) -> None:
        self.tables = tuple(tables)
        self.in_use: InUse = ()
        """Another object when others are in use."""
        self.look()
        for table in self.tables:
            table.tell(self)

    def saw(
        self, logs: Sequence[bytes | None], states: Iterable[TagState], now: float
    ) -> tuple[int, ...]:
        """The tables' logs were read, which say this. Returns the turns of that, see `Touched`;
        nothing where it is from before."""
        for table, log, state in zip(self.tables, logs, states, strict=False):
            table.looked_at = now
            table.saw(log or b"", state, now)
        late = any(own.touched.log != log for own, log in zip(self.tables, logs, strict=False))
        return () if late else self.turns

    @property
    def turns(self) -> tuple[int, ...]:
        """Of each table's log, see `Touched`."""
        return tuple([table.touched.turn for table in self.tables])

    def look(self) -> None:
        """Sees which are in use."""
        in_use = tuple(table.in_use for table in self.tables)
        self.in_use = in_use if any(in_use) else ()


class GivenVersions:
    """The versions that this process has given to buckets, and since when they were there at the
    latest."""

    def __init__(self, max_bytes: int) -> None:
        self._since: Bounded[bytes, float] = Bounded(max_bytes)

    @property
    def size_bytes(self) -> int:
        """What it remembers, roughly."""
        return self._since.size_bytes

    def gave(self, versions: Iterable[bytes], now: float) -> None:
        """These are there."""
        for version in versions:
            self._since.put(version, now, _EACH_GIVEN_BYTES)

    def since(self, version: bytes) -> float | None:
        """None for one that others have given, as far as is remembered."""
        return self._since.get(version)


class Pinning(Protocol):
    """Which slots of a table the answers to some reads that are alike pin, see `plan.pins`."""

    @property
    def witnessed(self) -> bool:
        """Whether any of them is one that only answers with a row may pin."""

    def pin(self, in_use: Set[bytes], field: bytes) -> Pin | None:
        """What the one with this last field pins of the slots in use."""

    def wants(self, in_use: Set[bytes], spared: Iterable[bytes], field: bytes) -> bytes | None:
        """The slot that would be the best for the one with this last field, if that is not in use;
        `spared` are slots whose answers were not touched by some writes."""
