"""Bumps that could not be made: kept, and tried again and again until they are."""

import asyncio
import logging
from collections.abc import Callable, Collection, Set

from sqlcache.cache.reach import Reach
from sqlcache.cache.reads import TagSet
from sqlcache.cache.tag_logs import Record, fresh_id
from sqlcache.cache.tags import Tag, undo_record, version_record
from sqlcache.metrics import Metrics

log = logging.getLogger(__name__)

RETRY_S = 0.25
"""Between two tries."""


class OwedBumps:
    """Those of one process. `count` is told of tags that have got their new versions."""

    def __init__(
        self, reach: Reach, metrics: Metrics, count: Callable[[Collection[Tag]], None]
    ) -> None:
        self._reach = reach
        self._metrics = metrics
        self._count = count
        self._owed: dict[Tag, set[bytes]] = {}  # tag -> fences to lift with its bump

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
        self._owed.setdefault(tag, set()).update([fence] if fence else [])
        self._metrics.pending_bumps = len(self._owed)

    async def keep_trying(self) -> None:
        """Tries again whenever some are owed; never returns."""
        while True:
            await asyncio.sleep(RETRY_S)
            if self._owed:
                await self.flush()

    async def flush(self) -> None:
        """Tries once to make each."""
        for tag in list(self._owed):
            fences = set(self._owed[tag])
            owed = b"".join(map(undo_record, fences)) + version_record(fresh_id())
            try:
                told = await self._reach.append([tag], _always(owed))
            except Exception:  # the others are to be made all the same
                log.exception("a pending bump was not made")
                continue
            if not told.unreached and self._owed.get(tag) == fences:
                del self._owed[tag]
                self._count([tag])
                self._metrics.pending_bumps = len(self._owed)
                if not self._owed:
                    log.info("all pending bumps made")


def _always(record: bytes) -> Record:
    return lambda _: record
