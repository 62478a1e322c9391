"""Tags' logs, reached with patience: a node that does not answer is asked again until it counts as
out.

Less patience would let a write go on that other proxies cannot know of.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from sqlcache.cache.fence import Fence
from sqlcache.cache.lapses import Lapses
from sqlcache.cache.log_records import TagState, versions_around
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.tag_logs import Appended, Record, Steps, TagLogs
from sqlcache.cache.tags import Tag
from sqlcache.cache.windows import Windows
from sqlcache.process.events import Seldom

log = logging.getLogger(__name__)

_AGAIN_S = 0.02
_PATIENCE_S = 10.0  # with a node that lives and refuses, as one without memory does
_LONGEST_TRY_S = 1.0


class Reached(NamedTuple):
    """What came of an attempt to reach tags' logs."""

    unreached: list[Tag]
    over_at: float
    """When nobody serves any more what was seen before."""
    at_once: bool
    """Whether the first try was acknowledged by all."""


class Reach:
    """One process's. Made inside a running event loop."""

    def __init__(
        self, placement: TagPlacement, logs: TagLogs, windows: Windows, lapses: Lapses
    ) -> None:
        self._placement = placement
        self._logs = logs
        self._windows = windows
        self._lapses = lapses
        self._seldom = Seldom()
        self._loop = asyncio.get_running_loop()

    async def versions(self, tags: Iterable[Tag]) -> dict[Tag, bytes | None]:
        """The version of each copy of the tags, fenced or not, made fresh where it had none; but of
        those whose node is away."""
        known = await self._versions(self._placement.to_write(tags))
        absent = [tag for tag, version in known.items() if version is None]
        if absent:
            await self._logs.give_versions(absent)
            known |= await self._versions(absent)
        return known

    async def _versions(self, placed: Iterable[Tag]) -> dict[Tag, bytes | None]:
        known = await self._logs.look_at(placed)
        return {tag: state.version for tag, state in known.items()}

    async def states(self, tags: Iterable[Tag], own: Fence | None = None) -> dict[Tag, TagState]:
        """What each copy of the tags is like but for one's `own` fence: versions, made fresh where
        there were none, and the fences of others, which lapse if they are seen for long enough.

        A node that does not answer is asked until it counts as out; then its tags are left out.
        """
        missing = self._placement.to_write(tags)
        known: dict[Tag, TagState] = {}
        until = self._loop.time() + _PATIENCE_S
        while True:
            known |= await self._logs.look_at(missing)
            if absent := [tag for tag in missing if tag in known and not known[tag].version]:
                await self._logs.give_versions(absent)
                known |= await self._logs.look_at(absent)
            missing = [tag for tag in missing if tag not in known]
            if self._loop.time() > until or self._are_out(missing):
                break
            await asyncio.sleep(_AGAIN_S)
        for tag, state in known.items():
            if own is not None:
                known[tag] = state = state.but_for(own.id)
            if state.fences:
                self._lapses.saw(tag, state)
        return known

    async def until_out(
        self,
        tags: Iterable[Tag],
        record: Record,
        wait_for: Callable[[bytes], bool],
        steps: Steps | None = None,
    ) -> Reached:
        """Appends a record to each tag's log, again and again until its node counts as out.
        `wait_for` says of a log whether others may still serve what it outdated. The `steps` that
        are made so are added to those."""
        missing = list(tags)
        waited_s = over_at = 0.0
        at_once = True
        tried_at = self._loop.time()
        while True:
            told = await self.append(missing, record, steps)
            if any(map(wait_for, told.logs.values())):
                over_at = self._windows.all_over_at()
            missing = told.unreached
            if not missing:
                return Reached([], over_at, at_once)
            at_once = False
            now = self._loop.time()
            took_s, tried_at = now - tried_at, now
            waited_s += min(took_s, _LONGEST_TRY_S)
            out = self._are_out(missing)
            # Else this process was stopped, and what it knew of the node is out of date.
            if took_s <= _LONGEST_TRY_S and (out or waited_s > self._longest_wait_s(missing)):
                self._tell_of_lost_patience(missing)
                return Reached(missing, max(over_at, self._given_up(missing)), at_once)
            await asyncio.sleep(_AGAIN_S)

    def _tell_of_lost_patience(self, tags: Iterable[Tag]) -> None:
        """Of nodes that live: each write waits for them anew."""
        lame = {self._placement.node(tag) for tag in tags if not self._placement.health(tag).is_out}
        for name in sorted(filter(self._seldom.says, lame)):
            log.warning("memcached node lives, and writes wait for it in vain node=%s", name)

    def _are_out(self, tags: Iterable[Tag]) -> bool:
        return all(self._placement.health(tag).is_out for tag in tags)

    def _longest_wait_s(self, tags: Iterable[Tag]) -> float:
        return max(self._placement.health(tag).longest_wait_s for tag in tags)

    def _given_up(self, tags: Iterable[Tag]) -> float:
        """When all windows are over that anyone has opened by tags whose nodes do not answer: from
        an outage on none is opened, see `memcache.health`."""
        healths = [self._placement.health(tag) for tag in tags]
        since = [each.out_at if each.is_out else self._loop.time() for each in healths]
        return self._windows.all_over_at(max(since))

    async def append(
        self,
        tags: Iterable[Tag],
        record: Record,
        steps: Steps | None = None,
        *,
        for_life: bool = False,
    ) -> Appended:
        """Appends it once. No window of this process is open then for what hangs on the tags.
        `for_life`: see `Cluster.submit`."""
        tags = list(tags)
        told = await self._logs.append(tags, record, for_life=for_life)
        self._windows.close(frozenset(tags))
        for tag, said in told.logs.items():
            if steps is None or not tag.defines:
                continue
            if around := versions_around(said, told.records[tag]):
                steps[tag] = around
        return told
