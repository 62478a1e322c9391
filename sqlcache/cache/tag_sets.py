"""On what reads hang: the tags of their tables, or of the rows that their answers pin.

What asks for tags is worked out once, for all that hangs on them.
"""

from sqlcache.cache.bounded import Bounded, weigh
from sqlcache.cache.entry import COUNTED
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.reads import Read, TagSet
from sqlcache.cache.slots import InUse
from sqlcache.cache.slots_in_use import SlotsInUse
from sqlcache.cache.tags import ID_BYTES, Pin, Pins, Tag
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.protocol import meta_get
from sqlcache.table_counts import Tables

_PINNED_BYTES = 900  # the tags of an answer that pins slots take
_BUCKET_BYTES = 300  # and each bucket of it
_AGAIN_BYTES = 200  # and each log that is asked for again behind these
_LOG_BYTES = 150  # and each log that was read for it, of more than a few
_FEW_LOGS = 3
_EACH_WITHOUT_BYTES = 300


class TagSets:
    """Those of one process, in a quarter of `max_bytes` each with pins and without."""

    def __init__(
        self,
        cluster: Cluster,
        placement: TagPlacement,
        slots: SlotsInUse,
        tables: Tables,
        *,
        max_bytes: int,
    ) -> None:
        self._cluster = cluster
        self._placement = placement
        self._slots = slots
        self._tables = tables
        self._known: Bounded[tuple[Tag, ...], TagSet] = Bounded(max_bytes // 4)
        self._pinned: Bounded[tuple[tuple[Tag, ...], Pins], TagSet] = Bounded(max_bytes // 4)
        self._without_rows: Bounded[bytes, bool] = Bounded(max_bytes // 8)

    @property
    def size_bytes(self) -> int:
        """What is remembered of them, roughly."""
        sets = self._known.size_bytes + self._pinned.size_bytes
        return sets + self._without_rows.size_bytes

    def of(self, tags: tuple[Tag, ...]) -> TagSet:
        """The object for these tags, by which reads are checked; the one, while it is in use."""
        known = self._known.get(tags)
        if known is None:
            known = self._checked_by(tags, self._placement.to_read(tags))
            self._tables.follow(known)
        return known

    def of_copies(self, placed: tuple[Tag, ...]) -> TagSet:
        """The object for tags each of which is a copy that has to be known itself."""
        return self._known.get(placed) or self._checked_by(placed, placed)

    def _checked_by(self, tags: tuple[Tag, ...], placed: tuple[Tag, ...]) -> TagSet:
        """The object for tags that are checked by these copies of them."""
        keys = [self._placement.key(tag) for tag in placed]
        names = {self._placement.node(tag) for tag in placed}
        defining = tuple(tag for tag in placed if tag.defines)
        known = TagSet(
            placed,
            tuple((key, meta_get(key)) for key in keys),
            tuple(map(self._cluster.health_of, sorted(names))),
            self._slots.of(placed),
            definitions=self.of_copies(defining) if 0 < len(defining) < len(placed) else None,
        )
        self._known.put(tags, known, weigh((tags, placed, known.requests, known.reads.tables)))
        return known

    def pinned(self, base: TagSet, pins: Pins) -> TagSet:
        """The object for these tags where an answer pins slots of their tables."""
        key = base.tags, pins
        known = self._pinned.get(key)
        if known is None or known.base is not base:
            keys = [
                self._placement.bucket(table, pin.slot, bucket)
                for table, pin in zip(base.tags, pins, strict=False)
                if pin is not None
                for bucket in pin.buckets
            ]
            known = base.pinned(pins, [(each, meta_get(each, b"v t")) for each in keys])
            logs_bytes = _LOG_BYTES * max(len(base.tags) - _FEW_LOGS, 0)
            more_bytes = _BUCKET_BYTES * len(keys) + _AGAIN_BYTES * len(known.again)
            self._pinned.put(key, known, _PINNED_BYTES + more_bytes + logs_bytes)
        return known

    def bind(self, read: Read) -> None:
        """Lets a read hang on what its answer pins, if some of the slots in use are for it."""
        if not read.pinning or (slots := read.tags.slots) is None:
            return
        if slots.in_use is read.bound or not slots.in_use:
            return
        self._bind(read, slots.in_use)

    def _bind(self, read: Read, in_use: InUse) -> None:
        base, without_rows = read.tags.base or read.tags, self._without_rows.get(read.key)
        pins: list[Pin | None] = []
        for pinning, own in zip(read.pinning, in_use, strict=False):
            pin = pinning.pin(own, read.field)
            pins.append(None if pin is not None and pin.witnessed and without_rows else pin)
        read.bound = in_use
        read.tags = self.pinned(base, tuple(pins)) if any(pins) else base

    def may_keep(self, read: Read, versions: bytes, rows: int) -> bool:
        """Whether an answer of so many rows may be stored under the versions that its look-up gave.
        One that pins what only a row keeps from others may not without one for each bucket; where
        it is from several tables, any is of each. Else the read hangs on that table from then on.
        """
        tags, rows = read.tags, rows & ~COUNTED
        buckets = len(versions) // ID_BYTES - len(tags.tags)
        if not buckets or not any(pinning.witnessed for pinning in read.pinning):
            return True
        as_seen = tags.last_seen is not None and tags.last_seen[0] == versions
        if rows >= (buckets if len(read.pinning) == 1 else 1) and read.proves_reading(rows):
            if as_seen:
                tags.has_answer()
            return True
        if as_seen and not tags.witnessed:
            return True
        self._without_rows.put(read.key, True, _EACH_WITHOUT_BYTES)
        if tags.slots is not None:
            self._bind(read, tags.slots.in_use)
        return False
