"""What writers ask of the engine: fences before, new versions after."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from sqlcache.cache.fence import Fence
from sqlcache.cache.fences import Fences
from sqlcache.cache.log_records import TagState
from sqlcache.cache.marks import Logs, Marks
from sqlcache.cache.own_commits import OwnCommits
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.reach import Reach
from sqlcache.cache.shared_fences import SharedFences
from sqlcache.cache.slots_in_use import SlotsInUse
from sqlcache.cache.tag_checks import TagChecks
from sqlcache.cache.tag_logs import Steps, TagLogs
from sqlcache.cache.tag_sets import TagSets
from sqlcache.cache.tags import ROOT, Cover, Tag
from sqlcache.metrics import Metrics
from sqlcache.process.events import Seldom
from sqlcache.table_counts import Door, Tables

log = logging.getLogger(__name__)

_ASKED_AT_ONCE = 256  # tags, in a few milliseconds


class Writers:
    """The writers' side of an `Engine`."""

    def __init__(
        self,
        placement: TagPlacement,
        tag_sets: TagSets,
        slots: SlotsInUse,
        checks: TagChecks,
        logs: TagLogs,
        reach: Reach,
        fences: Fences,
        shared_fences: SharedFences,
        metrics: Metrics,
        tables: Tables,
    ) -> None:
        self.tables = tables
        """What became of each."""
        self.commits_from = b""
        """What tells apart, in the names of commits in tags' logs, the readings of the binary log
        that they are for; empty while nobody is known to look for any."""
        self.seldom = Seldom()
        """For lines that would else be one for each statement."""
        self._placement = placement
        self._tag_sets = tag_sets
        self._slots = slots
        self._checks = checks
        self._logs = logs
        self._reach = reach
        self._fences = fences
        self._shared_fences = shared_fences
        self._metrics = metrics

    async def fence(self, tags: Iterable[Tag], observe: Iterable[Tag] = ()) -> Fence:
        """Marks the tags of a write about to be sent; see `Fences.raise_fence`."""
        return await self._fences.raise_fence(tags, observe)

    def marks(self, tags: Iterable[Tag], observe: Iterable[Tag], edition: int = 0) -> Marks:
        """What writes that are alike mark, and observe."""
        placed = self._placement.to_write(tags)
        keys = {tag: self._placement.key(tag) for tag in placed}
        copies = tuple(sorted(self._placement.to_write(observe)))
        definitions = self._tag_sets.of_copies(copies) if copies else None
        return Marks(frozenset(placed), keys, definitions, edition, self._slots.each(placed))

    def narrowed(self, marks: Marks, touches: Mapping[Tag, Cover] | None) -> Marks:
        """The same marks for one write that touches no more than this of these tables' slots in
        use. None: its text tells nothing of it; none: nor do its values."""
        if not touches:
            self._metrics.row_writes["text" if touches is None else "values"] += 1
            return marks
        return marks.narrowed(touches, self._buckets(touches))

    def narrow_further(self, fence: Fence, marks: Marks, found: Mapping[Tag, Cover]) -> None:
        """The write with these marks, which are narrowed, touches this of slots of which its text
        tells nothing: so the database has said while the fence stood. To be called before that is
        lifted."""
        found = {
            tag: {slot: found[tag][slot] for slot in found[tag].keys() - marks.touches[tag].keys()}
            for tag in found.keys() & fence.narrow_in & marks.touches.keys()
        }
        marks.touch(found, self._buckets(found))

    def _buckets(self, touches: Mapping[Tag, Cover]) -> list[bytes]:
        return [
            self._placement.bucket(tag, slot, bucket)
            for tag, cover in touches.items()
            for slot, buckets in cover.items()
            for bucket in buckets
        ]

    def confirm_soon(self, marks: Marks, done: Callable[[bool], None]) -> None:
        """See `TagChecks.confirm`, of the definitions that are observed."""
        if marks.definitions is None:
            done(True)
        else:
            self._checks.confirm(marks.definitions, done)

    def knows(self, marks: Marks) -> bool:
        """Whether `confirm_soon` would say at once that they are."""
        return marks.definitions is None or self._checks.knows(marks.definitions)

    def join_fence(self, marks: Marks) -> Fence:
        """That of a write, which may be others' as well; see `SharedFences.join`."""
        return self._shared_fences.join(marks)

    def fence_soon(self, fence: Fence, marks: Marks, done: Callable[[Logs | None], None]) -> None:
        """See `SharedFences.raise_soon`."""
        self._shared_fences.raise_soon(fence, marks, done)

    def still_stands(self, fence: Fence) -> bool:
        """See `SharedFences.still_stands`."""
        return self._shared_fences.still_stands(fence)

    def lift_soon(self, fence: Fence, marks: Marks, done: Callable[[Logs | None], None]) -> None:
        """See `SharedFences.lift_soon`."""
        self._shared_fences.lift_soon(fence, marks, done)

    def owes(self, node: str) -> bool:
        """Whether a write of this process, or a bump, has not been told to a node yet."""
        return self._fences.owes(node)

    async def disown(self, node: str) -> bool:
        """Forgets all that a node remembers; whether that could be done."""
        return await self._fences.renew_version(ROOT.on(node))

    async def bump(
        self, tags: Iterable[Tag], *, door: Door | None = None, cause: str = ""
    ) -> Steps:
        """Forgets all that hangs on the tags; returns the steps of definitions' versions. `door`:
        who wants that; None where it is a part of what is counted already. `cause`, for people:
        why, where that may be everything."""
        tags = list(tags)
        if ROOT in tags:
            self.tell_of_everything(cause or "what a transaction wrote is not known")
        if door is not None:
            self.tables.wrote(filter(None, (tag.of_table for tag in tags)), door)
        return await self._fences.bump(tags)

    def tell_of_everything(self, cause: str) -> None:
        """All there is will be forgotten, for this cause."""
        if self.seldom.says(cause):
            log.info("everything is forgotten cause=%s", cause, extra={"kind": "root"})

    @property
    def own_commits(self) -> OwnCommits:
        """Those of this process."""
        return self._fences.own_commits

    async def commits(self, tags: Iterable[Tag]) -> dict[Tag, frozenset[bytes]]:
        """Those commits of which the tags' logs say that all that is served under the tags was read
        when they could be seen."""
        return await self._logs.commits(tags)

    async def states(self, tags: Iterable[Tag], own: Fence | None = None) -> dict[Tag, TagState]:
        """What the tags' copies are like but for one's own fence; see `Reach.states`."""
        return await self._reach.states(tags, own)

    async def states_in_turns(
        self, tags: Iterable[Tag], own: Fence | None = None
    ) -> dict[Tag, TagState]:
        """The same of any number of tags, while others have their turns."""
        states: dict[Tag, TagState] = {}
        left = iter(tags)
        while some := list(islice(left, _ASKED_AT_ONCE)):
            states |= await self.states(some, own)
            await asyncio.sleep(0)
        return states

    async def versions(self, tags: Iterable[Tag]) -> dict[Tag, bytes | None]:
        """See `Reach.versions`."""
        return await self._reach.versions(tags)
