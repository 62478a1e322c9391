"""Of which tables this process tells answers apart, and what it knows of the slots of each."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from weakref import WeakValueDictionary

from sqlcache.cache.bounded import Bounded
from sqlcache.cache.reads import Read
from sqlcache.cache.slots import GivenVersions, KnownLog, Slots, TableSlots
from sqlcache.cache.tags import Tag
from sqlcache.metrics import Metrics

log = logging.getLogger(__name__)

_KNOWN_LOG_BYTES = 200


class SlotsInUse:
    """Those of one process; none unless answers are `told_apart`. `use_soon` takes a slot into use.
    Made inside a running event loop."""

    def __init__(
        self,
        metrics: Metrics,
        use_soon: Callable[[Tag, bytes], None],
        *,
        told_apart: bool,
        max_bytes: int,
    ) -> None:
        self._metrics = metrics
        self._use_soon = use_soon
        self._told_apart = told_apart
        self._time = asyncio.get_running_loop().time
        self._tables: WeakValueDictionary[Tag, TableSlots] = WeakValueDictionary()
        self._known_logs: Bounded[Tag, KnownLog] = Bounded(max_bytes // 2)
        self.given = GivenVersions(max_bytes // 2)
        """The versions that this process has given to buckets."""

    @property
    def size_bytes(self) -> int:
        """What is remembered of them, roughly."""
        return self.given.size_bytes + self._known_logs.size_bytes

    def of(self, placed: Iterable[Tag]) -> Slots | None:
        """Those of the tables among these tags, in order; None where there are none."""
        tables = list(map(self._of_table, self._among(placed)))
        return Slots(tables) if tables else None

    def each(self, placed: Iterable[Tag]) -> dict[Tag, TableSlots]:
        """The same, each table's."""
        return {table: self._of_table(table) for table in self._among(placed)}

    def _among(self, placed: Iterable[Tag]) -> list[Tag]:
        return [tag for tag in placed if tag.table] if self._told_apart else []

    def _of_table(self, table: Tag) -> TableSlots:
        known = self._tables.get(table)
        if known is None:  # what is planned anew still goes by a log that was known before
            known_log = self._known_logs.get(table) or KnownLog()
            self._known_logs.put(table, known_log, _KNOWN_LOG_BYTES)
            known = self._tables[table] = TableSlots(known_log)
        return known

    def was_needless(self, read: Read, before: bytes, versions: bytes) -> None:
        """An answer was fetched anew, for its versions were others before, and is the same: where
        slots of the tables that were written would have spared that again and again, they are taken
        into use."""
        tags, slots = read.tags, read.tags.slots
        if slots is None:
            return
        parts = zip(tags.parts(before), tags.parts(versions), strict=False)
        for tag, own, pinning, (was, is_now) in zip(
            tags.tags, slots.tables, read.pinning, parts, strict=False
        ):
            slot = None if was == is_now else own.wanted_by(pinning, read.field)
            if slot is not None and own.was_needless(slot, self._time()):
                self.use(tag, slot)

    def use(self, table: Tag, slot: bytes) -> None:
        """Takes a slot of this table into use, soon; see `slots`."""
        self._metrics.slots_taken += 1
        log.info("answers are told apart by rows table=%s", table)
        self._use_soon(table, slot)
