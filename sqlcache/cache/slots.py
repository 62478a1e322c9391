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
- A slot is taken into use where answers that would pin it were forgotten without need: fetched
  anew, and the same.
"""

from collections import deque
from collections.abc import Iterable, Sequence, Set
from typing import Protocol
from weakref import WeakSet

from sqlcache.cache.bounded import Bounded
from sqlcache.cache.tags import MOST_SLOTS, Cover, Pin, TagState

MOST_BUCKETS = 64
"""Of a write; one that touches more covers everything."""

BUCKET_TTL_S = 2_500_000
"""Of a bucket: what is left of it tells how old it is."""

_EACH_GIVEN_BYTES = 300
_NEEDLESS = 8
_SPARED = 8  # by the last writes that are told apart by what they set
_IN_S = 60.0
_NONE: Set[bytes] = frozenset()

InUse = tuple[Set[bytes], ...]
"""The slots in use of some tables, in order; nothing where none of these has any."""


def both(one: Cover, other: Cover) -> Cover:
    """What two writes to a table touch that have one fence."""
    touched = {slot: one[slot] | other[slot] for slot in one.keys() & other.keys()}
    return touched if sum(map(len, touched.values())) <= MOST_BUCKETS else {}


class TableSlots:
    """Those of one table in use, as this process last saw, and what would be worth one."""

    __slots__ = ("__weakref__", "_followers", "_needless", "_spared", "_versions", "in_use")

    def __init__(self) -> None:
        self.in_use = _NONE
        self._followers: WeakSet[Slots] = WeakSet()
        self._spared: deque[bytes] = deque(maxlen=_SPARED)
        self._needless: dict[bytes, deque[float]] = {}
        self._versions: dict[bytes, tuple[bytes, float]] = {}

    def saw(self, state: TagState) -> None:
        """The table's log was read."""
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

    def saw(self, states: Iterable[TagState]) -> None:
        """The tables' logs were read."""
        for table, state in zip(self.tables, states, strict=False):
            table.saw(state)

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
