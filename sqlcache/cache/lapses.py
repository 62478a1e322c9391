"""Fences that lapse: those that miss their beats for a deadline, for their proxies have died."""

import asyncio
import logging

from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.tag_logs import TagLogs
from sqlcache.cache.tags import Tag, TagState
from sqlcache.metrics import Metrics

log = logging.getLogger(__name__)

_MOST_WATCHED = 10_000  # tags; of most nobody tells that their fences have ended


class Lapses:
    """Watches the fences that this process sees. Made inside a running event loop."""

    def __init__(
        self, placement: TagPlacement, logs: TagLogs, metrics: Metrics, *, deadline_s: float
    ) -> None:
        self._placement = placement
        self._logs = logs
        self._metrics = metrics
        self._deadline_s = deadline_s
        self._watched: dict[Tag, dict[bytes, tuple[bytes, float]]] = {}  # fence -> beat, since
        self._loop = asyncio.get_running_loop()

    def saw(self, tag: Tag, state: TagState) -> None:
        """A reader saw these fences stand: those that miss their beats for a deadline lapse. While
        their node was silent they could not but miss them."""
        now = self._loop.time()
        before = self._watched.get(tag, {})
        if len(self._watched) >= _MOST_WATCHED:
            self._watched = {
                each: fences
                for each, fences in self._watched.items()
                if any(now - since < self._deadline_s for _, since in fences.values())
            }
        watched = self._watched[tag] = {
            fence: before[fence] if before.get(fence, (b"",))[0] == beat else (beat, now)
            for fence, beat in state.fences.items()
        }
        lapsed = {
            fence: beat
            for fence, (beat, since) in watched.items()
            if now - since > self._deadline_s
        }
        if lapsed and now - self._placement.health(tag).distrusted_at > self._deadline_s:
            del self._watched[tag]
            self._metrics.fences_lapsed += len(lapsed)
            log.warning("fence lapsed tag=%s", tag)
            self._logs.lapse_soon(tag, lapsed)
