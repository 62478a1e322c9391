"""The writers' side of the coherence protocol: fences and bumps.

A write marks its tags before it is sent and gives them new versions after MySQL answered,
before its client hears of it. In between, no one serves or stores an answer that hangs on them.

- A fence is renewed while its write runs, and once more before it is sent if this process was
  stopped after it had put the fence up. One whose proxy died lapses: whoever has watched it for
  a whole deadline without a beat lifts it, and gives the tag a fresh version.
- A tag whose node does not answer is waited for. After `outage_s` of silence, under the policy
  `availability`, the write goes on; under `consistency` it is refused, and an OK that MySQL has
  given is withheld until the bump is made.
- A bump that could not be made is kept and tried again until it is made. Until then this proxy
  sends the tag's reads to MySQL.
- A fence is put up again with every beat: a node that has lost it gets it back.
- A write whose end nobody knows keeps its fence until the deadline, or until MySQL is known to have
  ended what carried it out.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping

from sqlcache.cache.fence import ANYTHING, Fence, IsOver, SharedFence
from sqlcache.cache.log_records import marks_in, undo_record, version_record
from sqlcache.cache.owed_bumps import RETRY_S, OwedBumps
from sqlcache.cache.own_commits import OwnCommits
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.reach import Reach
from sqlcache.cache.tag_logs import Steps, fresh_id, log_state
from sqlcache.cache.tags import Cover, Tag
from sqlcache.cache.windows import Windows
from sqlcache.errors import CacheUnavailable, WriteRefused
from sqlcache.metrics import Metrics
from sqlcache.table_counts import Tables
from sqlcache.tasks import Tasks

log = logging.getLogger(__name__)

_FIRST_LOOK_S = 0.05  # for the end of a write whose connection was lost; then less and less often
_LONGEST_LOOK_S = 1.0
_LONGEST_BEAT_S = 1.0  # well below a quarantine: a node that lost a fence gets it back soon
_RENEWED_AT_ONCE = 64
_MOST_IN_A_RECORD = 1_000  # else memcached may not take it
_YOUNG = 0.1  # of that: a write that ends amid a beat has more to do, and most are over by then


class Fences:
    """All writes of this process. Made inside a running event loop; `close` ends it.

    With `withhold`, the policy is `consistency`.
    """

    def __init__(
        self,
        placement: TagPlacement,
        reach: Reach,
        windows: Windows,
        metrics: Metrics,
        tables: Tables,
        *,
        write_deadline_s: float,
        withhold: bool = False,
    ) -> None:
        self._placement = placement
        self._reach = reach
        self._windows = windows
        self._metrics = metrics
        self._tables = tables
        self._deadline_s = write_deadline_s
        self._withhold = withhold
        self._standing: set[Fence] = set()
        self._abandoned: set[Fence] = set()
        self._unmarked: dict[Fence, set[Tag]] = {}  # what went on without its mark
        self._tasks = Tasks()
        self._loop = asyncio.get_running_loop()
        self.own_commits = OwnCommits()
        self.owed = OwedBumps(reach, metrics, self.count)
        """The bumps that could not be made yet."""
        self._tasks.spawn(self._renew())
        self._tasks.spawn(self.owed.keep_trying())

    async def close(self) -> bool:
        """Ends the renewing and retrying; makes one last try of what is pending.

        Returns whether nothing was left undone.

        A fence that still stands then belongs to a write whose end nobody saw: it lapses.
        """
        await self._tasks.cancel()
        await self.owed.flush()
        if self.owed.tags:
            log.error("stopped with bumps still to be made tags=%s", _names(self.owed.tags))
        return not self.owed.tags and not self._standing and not self._abandoned

    def now(self) -> float:
        """On the clock of marks, which goes on while the machine is suspended: to others they are
        that old."""
        return self._windows.clock()

    def owes(self, node: str) -> bool:
        """Whether a write has gone on without this node, and it does not know of it yet."""
        owed = (tag for tags in (self.owed.tags, *self._unmarked.values()) for tag in tags)
        return any(self._placement.node(tag) == node for tag in owed)

    async def raise_fence(self, tags: Iterable[Tag], observe: Iterable[Tag] = ()) -> Fence:
        """Marks the tags: until the fence ends, what hangs on them is not served or stored.

        In the same round trip reads the versions of the tags to `observe`.
        Raises: WriteRefused where a tag cannot be marked and the policy is `consistency`.
        """
        fence = self.begin(frozenset(self._placement.to_write(tags)))
        self._metrics.fences += 1
        self._tables.wrote([name for tag in fence.tags if (name := tag.of_table)], "proxy")
        await self.mark(fence, observe)
        return fence

    def begin(self, tags: frozenset[Tag], touches: Mapping[Tag, Cover] = ANYTHING) -> Fence:
        """One that stands from here on, and is to be marked."""
        fence = Fence(self, tags, self.now(), touches=touches)
        self._standing.add(fence)
        return fence

    def join(self, shared: SharedFence) -> Fence:
        """One that has its part in a shared one."""
        shared.members += 1
        return Fence(self, shared.fence.tags, shared.fence.marked_at, shared)

    def leave(self, fence: Fence, *, wrote: bool) -> bool:
        """Ends its part in a shared one, if it has any. Whether it stands by itself now, or in the
        place of the shared one, of which it was the last member: to be lifted, or undone.

        Else others hold the shared one, and its write is to be told of in another way.
        """
        shared, fence.shared = fence.shared, None
        if shared is None:
            return True
        shared.members -= 1
        shared.fence.wrote |= wrote
        if shared.members:
            return False
        shared.over = True
        self._standing.discard(shared.fence)
        fence.replace(shared.fence)
        return True

    async def mark(self, fence: Fence, observe: Iterable[Tag]) -> None:
        """See `Fence.mark`."""
        if fence.shared is not None:
            self.leave(fence, wrote=False)
            fence.marked_at = self.now()
            self._standing.add(fence)
        _, fence.observed = await asyncio.gather(
            self._mark(fence, fence.tags), self._reach.states(observe, fence)
        )

    async def extend(self, fence: Fence, tags: Iterable[Tag]) -> None:
        """See `Fence.extend`."""
        more = frozenset(self._placement.to_write(tags))
        fence.tags |= more
        await self._mark(fence, more)

    async def renew(self, fence: Fence) -> None:
        """See `Fence.renew`."""
        tags = fence.tags
        while tags and (now := self.now()) - fence.marked_at > self._deadline_s / 2:
            tags = tags.difference(await self._mark(fence, tags))
            fence.marked_at = now

    async def bump(self, tags: Iterable[Tag], own: Fence | None = None) -> Steps:
        """Gives the tags new versions: all that hangs on them is forgotten, also by those who serve
        unasked, but for those who were waited for when one's `own` fence was put up. Returns the
        steps that were made so."""
        steps: Steps = {}
        tags = self._placement.to_write(tags)

        def wait_for(log: bytes) -> bool:
            if own is not None and not self.may_be_raised_anew(own) and marks_in(log)[own.id]:
                return False
            return self._windows.wait_for(log)

        told = await self._reach.until_out(
            tags, lambda _: version_record(fresh_id()), wait_for, steps
        )
        self.count(tags, told.unreached)
        for tag in told.unreached:
            self.owed.owe(tag)
        if told.over_at and own is None and not told.unreached:
            await self._end_promises(frozenset(tag for tag in tags if tag.table))
        await self._settle(told.unreached, told.over_at)
        return steps

    async def _end_promises(self, tags: frozenset[Tag]) -> None:
        """Lets all windows of these tables' tags be over, and drops the promises: else each bump of
        what is never written would wait. Those of schemas and of everything seldom get one, and a
        fence of these would keep all from hits."""
        fence = self.begin(tags)
        try:
            await self._mark(fence, tags)
        except WriteRefused:
            return
        except (Exception, asyncio.CancelledError):
            self.end_soon(fence)
            raise
        await self._lift(fence)

    async def lift(self, fence: Fence) -> None:
        """See `Fence.lift`."""
        unreached = await self._lift(fence)
        await self._settle(unreached, fence.over_at)

    async def end(self, fence: Fence) -> None:
        """The same where nobody waits for an OK."""
        try:
            await self._lift(fence)
        except Exception:  # its bumps are owed
            log.exception("a fence was not lifted")
        self._abandoned.discard(fence)

    def end_soon(self, fence: Fence) -> None:
        """The same, for who does not wait for it."""
        self._abandoned.add(fence)
        self._tasks.spawn(self.end(fence))

    async def _lift(self, fence: Fence) -> list[Tag]:
        """Gives the fence's tags new versions; returns those whose bump is owed."""
        shared = fence.shared
        if shared is not None:  # the others may lift theirs before
            shared.touches_anything()
        others = None if self.leave(fence, wrote=True) or shared is None else shared.fence
        self._standing.discard(fence)  # first: no beat of it may follow
        await self._until_over(fence)
        stood = fence.unheard == 0

        def may_have_opened(log: bytes) -> bool:
            # At each try: a beat may have put it up in a log that was lost since the one before.
            others_stood = others is not None and not self.may_be_raised_anew(others)
            if others_stood and others is not None and others.id in log_state(log).fences:
                return False
            return self._windows.may_have_opened(log, fence.id, stood=stood)

        try:
            told = await self._reach.until_out(
                fence.tags, lambda _: fence.lifting(), may_have_opened, fence.steps
            )
        except Exception:
            self._owe(fence, fence.tags)
            raise
        unreached, fence.over_at = told.unreached, told.over_at
        self.count(fence.tags, unreached)
        self._owe(fence, unreached)
        if not unreached:
            fence.ended(fence.commits)
        return unreached

    def _owe(self, fence: Fence, tags: Iterable[Tag]) -> None:
        for tag in tags:
            self.owed.owe(tag, fence.id)
        self._unmarked.pop(fence, None)

    def may_be_raised_anew(self, fence: Fence) -> bool:
        """Whether it was just before, under writes that were under way, or is being: then that it
        stands says nothing of the time before."""
        return fence.unheard > 0 or fence.over_at > self._windows.clock()

    async def _until_over(self, fence: Fence) -> None:
        """Returns when nobody serves what was seen before it stood. A beat may put that off, which
        does not find it meanwhile."""
        while fence.over_at > self._windows.clock():
            await self._windows.over(fence.over_at)

    async def keep(self, fence: Fence, tags: Iterable[Tag]) -> None:
        """See `Fence.keep`."""
        if fence.shared is not None or fence.wrote:
            return  # others may have written them
        others = fence.tags.difference(self._placement.to_write(tags))
        fence.tags -= others  # first: no beat may put them up again
        await self._undo(fence, others)
        self._marked(fence, others)

    async def undo(self, fence: Fence) -> None:
        """See `Fence.undo`."""
        if not self.leave(fence, wrote=False):
            return
        if fence.wrote:
            await self._lift(fence)
            return
        self._standing.discard(fence)
        await self._undo(fence, fence.tags)
        self._unmarked.pop(fence, None)

    async def _undo(self, fence: Fence, tags: Iterable[Tag]) -> None:
        for tag in (await self._reach.append(tags, lambda _: undo_record(fence.id))).unreached:
            self.owed.owe(tag, fence.id)

    def abandon(self, fence: Fence, is_over: IsOver | None) -> None:
        """See `Fence.abandon`."""
        log.warning("outcome of a write unknown tags=%s", _names(fence.tags))
        self._standing.discard(fence)
        self._abandoned.add(fence)
        self._tasks.spawn(self._lift_late(fence, is_over))

    async def _lift_late(self, fence: Fence, is_over: IsOver | None) -> None:
        until = self._loop.time() + self._deadline_s
        pause_s = self._deadline_s if is_over is None else _FIRST_LOOK_S
        while (left_s := until - self._loop.time()) > 0:
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _LONGEST_LOOK_S)
            if is_over is not None and await self._tells(is_over):
                break
        await self.end(fence)

    async def _tells(self, is_over: IsOver) -> bool:
        try:
            return await is_over()
        except Exception:  # it is asked again, and the deadline lifts the fence all the same
            log.exception("not known whether a write is over")
            return False

    async def renew_version(self, tag: Tag, steps: Steps | None = None) -> bool:
        """Gives a tag a new version if its node can be reached now; whether it could. The `steps`
        that are made so are added to those."""
        told = await self._reach.append([tag], lambda _: version_record(fresh_id()), steps)
        return not told.unreached

    def count(self, tags: Collection[Tag], unreached: Collection[Tag] = ()) -> None:
        """These tags have got new versions, but for those that are unreached."""
        if tags and log.isEnabledFor(logging.DEBUG):
            log.debug("invalidated tags=%s unreached=%s", _names(tags), _names(unreached))
        for tag in tags:
            if tag not in unreached:
                self._metrics.invalidations[tag.kind] += 1
                if name := tag.of_table:
                    self._tables.invalidated(name)

    def waited(self, *, since: float) -> None:
        """A write waited from then on, by the windows' clock, for the read leases of others."""
        self._metrics.writes_held_back += 1
        self._metrics.write_hold_seconds.observe(self._windows.clock() - since)

    # How it works inside.

    async def _settle(self, unreached: list[Tag], over_at: float) -> None:
        """Under `consistency`, waits until the bumps owed for these tags are made; and until nobody
        serves any more what was seen before.

        Raises: CacheUnavailable when that takes longer than the deadline.
        """
        until = self._loop.time() + self._deadline_s
        while self._withhold and not self.owed.tags.isdisjoint(unreached):
            if self._loop.time() > until:
                self._metrics.oks_withheld += 1
                raise CacheUnavailable("a write's OK is withheld: its tags cannot be reached")
            await asyncio.sleep(RETRY_S)
            over_at = self._windows.all_over_at()
        await self._windows.over(over_at)

    async def _mark(self, fence: Fence, tags: frozenset[Tag]) -> Collection[Tag]:
        """Marks these; returns those that it goes on without. Raises: WriteRefused."""
        fence.unheard += 1
        fence.cover_all()
        told = await self._reach.until_out(tags, fence.marking, self._windows.wait_for)
        fence.unheard -= told.at_once
        fence.over_at = max(fence.over_at, told.over_at)
        unreached = told.unreached
        self._metrics.fences_unreachable += len(unreached)
        if unreached:
            self._unmarked.setdefault(fence, set()).update(unreached)
        if unreached and self._withhold:
            await self.undo(fence)
            raise WriteRefused(
                "sqlcache refused the write and sent nothing: memcached cannot be reached for "
                f"{_names(unreached)}, and when_tags_unreachable is consistency"
            )
        began = self._windows.clock()
        await self._until_over(fence)
        if fence.over_at > began:
            self.waited(since=began)
        return unreached

    async def _renew(self) -> None:
        pause_s = min(self._deadline_s / 3, _LONGEST_BEAT_S)
        while True:
            await asyncio.sleep(pause_s)
            await self._beat(_YOUNG * pause_s)

    async def _beat(self, young_s: float = 0.0) -> None:
        """Renews the fences that were marked longer ago than that: those of a tag in one record, as
        each comes with the whole log, and many tags at once. One after the other they may be too
        many to be renewed in time."""
        now = self.now()
        due = [fence for fence in self._standing if now - fence.marked_at >= young_s]
        by_tag: dict[Tag, list[Fence]] = {}
        for fence in due:
            for tag in fence.tags:
                by_tag.setdefault(tag, []).append(fence)
        parts = [
            (tag, fences[at : at + _MOST_IN_A_RECORD])
            for tag, fences in by_tag.items()
            for at in range(0, len(fences), _MOST_IN_A_RECORD)
        ]
        missed: set[Fence] = set()
        for at in range(0, len(parts), _RENEWED_AT_ONCE):
            some = parts[at : at + _RENEWED_AT_ONCE]
            missed.update(*await asyncio.gather(*(self._renew_in(*part) for part in some)))
        for fence in due:
            if fence not in missed:
                fence.marked_at = now

    async def _renew_in(self, tag: Tag, due: Iterable[Fence]) -> Collection[Fence]:
        """Renews these in a tag's log; returns those of them that it may not have reached."""
        # By now: an ended fence must not be put up again.
        fences = [each for each in due if each in self._standing and tag in each.tags]
        if not fences:
            return ()
        for fence in fences:
            fence.unheard += 1
        try:
            told = await self._reach.append(
                [tag], lambda _: b"".join([each.marking(tag) for each in fences])
            )
        except Exception:  # the others are to be renewed all the same
            log.exception("a fence was not renewed")
            return fences
        if told.unreached:
            return fences
        for fence in self._raised_anew(fences, told.logs[tag]):
            fence.over_at = self._windows.all_over_at()
        for fence in fences:
            fence.unheard -= 1
            self._marked(fence, frozenset((tag,)))
        return ()

    def _raised_anew(self, fences: Iterable[Fence], log: bytes) -> Collection[Fence]:
        """Those of which the mark that was just made found none from before: the log had been
        lost."""
        if not self._windows.wait_for(log):
            return ()
        marks = marks_in(log)
        return [fence for fence in fences if marks[fence.id] < 2]

    def _marked(self, fence: Fence, tags: frozenset[Tag]) -> None:
        left = self._unmarked.pop(fence, set()) - tags
        if left:
            self._unmarked[fence] = left


def _names(tags: Iterable[Tag]) -> str:
    return ",".join(str(tag) for tag in sorted(tags))
