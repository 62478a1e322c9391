"""Fences that lapse: those that miss their beats for a deadline, for their proxies have died."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Collection
from functools import partial

from sqlcache.cache.log_records import TagState
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.tag_logs import TagLogs
from sqlcache.cache.tags import Tag
from sqlcache.metrics import Metrics

log = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 1.0  # before it is tried again: meanwhile this process's own writers go on
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
        # Those seen last come last: when, and each fence's beat, and since when it has it.
        self._watched: OrderedDict[Tag, tuple[float, dict[bytes, tuple[bytes, float]]]]
        self._watched = OrderedDict()
        self._lapsing: set[Tag] = set()  # or it was tried in vain just before
        self._loop = asyncio.get_running_loop()

    def saw(self, tag: Tag, state: TagState) -> None:
        """A reader saw these fences stand: those that miss their beats for a deadline lapse. While
        their node was silent they could not but miss them."""
        now = self._loop.time()
        _, before = self._watched.pop(tag, (now, {}))
        if not (before or self._has_room(now)):
            return
        watched = {
            fence: before[fence] if before.get(fence, (b"",))[0] == beat else (beat, now)
            for fence, beat in state.fences.items()
        }
        self._watched[tag] = now, watched
        lapsed = {
            fence: beat
            for fence, (beat, since) in watched.items()
            if now - since > self._deadline_s
        }
        if not lapsed or tag in self._lapsing:
            return
        if now - self._placement.health(tag).distrusted_at > self._deadline_s:
            self._lapsing.add(tag)
            self._logs.lapse_soon(tag, lapsed, partial(self._tried, tag, lapsed))

    def _tried(self, tag: Tag, lapsed: dict[bytes, bytes], gone: Collection[bytes] | None) -> None:
        """Some of these are gone, and the rest were before or have beats again; or, with None, who
        sees them a moment later tries again."""
        if gone is None:
            pause_s = min(self._deadline_s / 4, _LONGEST_PAUSE_S)
            self._loop.call_later(pause_s, self._lapsing.discard, tag)
            return
        self._lapsing.discard(tag)
        if gone:
            self._metrics.fences_lapsed += len(gone)
            log.warning("fence lapsed tag=%s", tag)
        if tag in self._watched:
            seen_at, watched = self._watched[tag]
            left = {fence: beat for fence, beat in watched.items() if fence not in lapsed}
            self._watched[tag] = seen_at, left
            if not left:
                del self._watched[tag]

    def _has_room(self, now: float) -> bool:
        """Whether one more may be watched: where there are many, those go that nobody sees any
        more, and none whose lapse is waited for."""
        if len(self._watched) < _MOST_WATCHED:
            return True
        while self._watched:
            seen_at, _ = self._watched[next(iter(self._watched))]
            if now - seen_at < self._deadline_s:
                break
            self._watched.popitem(last=False)
        return len(self._watched) < _MOST_WATCHED
