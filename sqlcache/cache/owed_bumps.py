"""Bumps that could not be made: kept, and tried again and again until they are."""

import asyncio
import logging
from collections.abc import Callable, Collection, Set

from sqlcache.cache.log_records import undo_record, version_record
from sqlcache.cache.reach import Reach
from sqlcache.cache.reads import TagSet
from sqlcache.cache.tag_logs import Record, fresh_id
from sqlcache.cache.tags import Tag
from sqlcache.metrics import Metrics

log = logging.getLogger(__name__)

RETRY_S = 0.25
"""Between two tries."""

_MOST_FENCES = 1_000  # that one bump lifts, or memcached may not take it


class _Owed:
    """The bump of one tag."""

    __slots__ = ("fences", "times")

    def __init__(self) -> None:
        self.fences: set[bytes] = set()
        """Those to lift with it: the first ones. Of what came later most never stood, for the node
        was away by then; the rest lapses."""
        self.times = 0
        """How often it came to be owed: once more amid a try, and that may have come too early."""


class OwedBumps:
    """Those of one process. `count` is told of tags that have got their new versions."""

    def __init__(
        self, reach: Reach, metrics: Metrics, count: Callable[[Collection[Tag]], None]
    ) -> None:
        self._reach = reach
        self._metrics = metrics
        self._count = count
        self._owed: dict[Tag, _Owed] = {}
        self.on_made: Callable[[Tag], None] = lambda _: None
        """Is told of each that was made."""

    @property
    def tags(self) -> Set[Tag]:
        """Whose bumps are still to be made."""
        return self._owed.keys()

    def concern(self, tag_set: TagSet) -> bool:
        """Whether a bump of one of these tags is still to be made."""
        return bool(self._owed) and not self._owed.keys().isdisjoint(tag_set.tags)

    def owe(self, tag: Tag, fence: bytes | None = None) -> None:
        """Keeps a bump that could not be made."""
        if not self._owed:
            log.error("memcached unreachable for a bump tag=%s", tag)
        owed = self._owed.setdefault(tag, _Owed())
        owed.times += 1
        if fence is not None and len(owed.fences) < _MOST_FENCES:
            owed.fences.add(fence)
        self._metrics.pending_bumps = len(self._owed)

    async def keep_trying(self) -> None:
        """Tries again whenever some are owed; never returns."""
        while True:
            await asyncio.sleep(RETRY_S)
            if self._owed:
                await self.flush()

    async def flush(self) -> None:
        """Tries once to make each."""
        for tag, owed in list(self._owed.items()):
            times = owed.times
            bump = b"".join(map(undo_record, owed.fences)) + version_record(fresh_id())
            try:
                # Also of a node that has answered nothing for long: it may do what it is asked, and
                # answer others.
                told = await self._reach.append([tag], _always(bump), for_life=True)
            except Exception:  # the others are to be made all the same
                log.exception("a pending bump was not made")
                continue
            if not told.unreached and owed.times == times:
                del self._owed[tag]
                self._count([tag])
                self.on_made(tag)
                self._metrics.pending_bumps = len(self._owed)
                if not self._owed:
                    log.info("all pending bumps made")


def _always(record: bytes) -> Record:
    return lambda _: record
