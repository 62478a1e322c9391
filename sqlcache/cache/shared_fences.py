"""Fences that writes share: many at once on the same tables cost the nodes little more than one.

All writes of this process that mark and observe the same, and go the straight path, have one fence
while any of them is under way:

- The first raises it, and who comes meanwhile waits for that. Who comes when it stands is sent at
  once; but not if it was marked more than half a deadline ago, for it may have lapsed, nor if a
  node is silent now, nor if definitions have not been looked at just before.
- The last that ends lifts it, and its client hears of it when that is acknowledged. But where many
  have come one just after the other, it stays for a moment for the next, until somebody reads.
- Who ends while it stays asks: where each tag's log shows this very fence, after the write was
  answered, the fence goes only with a new version, or with the whole log. So nothing that was
  stored before is served any more. All that end in one turn of the event loop ask together, after
  the last of their answers came, and hear at the same time whether definitions are the same still.

A write that touches but some of the rows that are told apart has a fence of its own, which covers
no more than these: what one that is joined covers could not grow in time. But where many come one
just after the other and nobody reads, they share one that covers all rows, as others do. Either way
the buckets that its writes have touched are renewed in the batch that lifts it, and no others.

Whoever meets anything else goes on by itself, see `Fences`: marks the tags anew before its write is
sent, gives them new versions after it.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial

from sqlcache.cache.fence import Fence, SharedFence, Told
from sqlcache.cache.fences import Fences
from sqlcache.cache.lapses import Lapses
from sqlcache.cache.log_records import TagState
from sqlcache.cache.marks import Logs, Marks
from sqlcache.cache.slots import GivenVersions
from sqlcache.cache.tag_logs import TagLogs
from sqlcache.cache.tags import Tag
from sqlcache.cache.windows import Windows
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.protocol import Reply
from sqlcache.metrics import Metrics
from sqlcache.table_counts import Tables

log = logging.getLogger(__name__)

_JUST_BEFORE_S = 0.05
_SOON_S = 0.005
_MANY = 8
_MOMENT_S = 0.002
_UNREAD_S = 0.05


class SharedFences:
    """Those of this process. Made inside a running event loop."""

    def __init__(
        self,
        cluster: Cluster,
        logs: TagLogs,
        fences: Fences,
        lapses: Lapses,
        windows: Windows,
        metrics: Metrics,
        tables: Tables,
        *,
        given: GivenVersions,
        write_deadline_s: float,
    ) -> None:
        self._cluster = cluster
        self._logs = logs
        self._fences = fences
        self._lapses = lapses
        self._windows = windows
        self._metrics = metrics
        self._tables = tables
        self._given = given
        self._deadline_s = write_deadline_s
        self._longest_s = write_deadline_s / 2  # that a mark may be relied on
        self._loop = asyncio.get_running_loop()
        self._many = _MANY
        # This process's own parts in some.
        self._lingering: dict[Fence, tuple[Marks, asyncio.TimerHandle]] = {}

    async def close(self) -> None:
        """Lifts what stays for writes to come."""
        while self._lingering:
            fence, (_, timer) = self._lingering.popitem()
            timer.cancel()
            if self._fences.leave(fence, wrote=False):
                await self._fences.end(fence)

    def join(self, marks: Marks) -> Fence:
        """The fence of a write that is about to be sent; `raise_soon` comes next."""
        like = marks.like or marks
        alone = bool(marks.touches) and not self._come_one_after_the_other(like)
        shared = None if alone else like.shared
        self._metrics.fences += 1
        self._tables.wrote(marks.tables, "proxy")
        if shared is None or not self._may_be_joined(shared):
            soon = self._loop.time() - like.ended_at < _SOON_S
            like.in_a_row = like.in_a_row + 1 if soon else 0
            nodes = {self._cluster.node_of(key) for key in marks.keys}
            healths = tuple(map(self._cluster.health_of, nodes))
            touches = marks.touches if alone else marks.any_rows
            shared = SharedFence(self._fences.begin(marks.tags, touches), healths)
            if not alone:
                like.shared = shared
        else:
            self._metrics.fences_shared += 1
        return self._fences.join(shared)

    def _come_one_after_the_other(self, marks: Marks) -> bool:
        """Whether many writes alike have, and no read of this process with them: then a fence that
        covers all rows is in nobody's way."""
        since = self._loop.time() - _UNREAD_S
        unread = all(slots.looked_at < since for slots in marks.slots.values())
        return unread and marks.in_a_row >= self._many

    def _may_be_joined(self, shared: SharedFence) -> bool:
        if shared.over or shared.waiting:
            return not shared.over
        now, loop_now = self._fences.now(), self._loop.time()
        looked = now - shared.looked_at < _JUST_BEFORE_S
        heard = all(node.trusts(loop_now) for node in shared.nodes)
        return looked and heard and self._still_stands(shared, now)

    def still_stands(self, fence: Fence) -> bool:
        """Whether one that was told to stand does a moment later, as far as is known: else
        `Fence.mark` is to be awaited before its write is sent."""
        return fence.shared is not None and self._still_stands(fence.shared, self._fences.now())

    def _still_stands(self, shared: SharedFence, now: float) -> bool:
        raised_anew = self._fences.may_be_raised_anew(shared.fence)
        return not (raised_anew or self._may_have_lapsed(shared, now))

    def _may_have_lapsed(self, shared: SharedFence, now: float) -> bool:
        return now - shared.fence.marked_at > self._longest_s

    def raise_soon(self, fence: Fence, marks: Marks, done: Told) -> None:
        """Calls `done`, at once or soon, with the logs that are observed, as they were seen last
        since the fence was raised; with None where `Fence.mark` is still to be awaited before the
        write is sent."""
        shared = fence.shared
        assert shared is not None
        if shared.logs is not None:
            done(shared.logs)
            return
        shared.waiting.append(done)
        if len(shared.waiting) > 1:
            return

        def tell(logs: Logs | None) -> None:
            waiting, shared.waiting = shared.waiting, []
            lapsed = self._may_have_lapsed(shared, self._fences.now())
            shared.logs = None if lapsed else logs
            shared.over |= shared.logs is None
            _tell(waiting, shared.logs)

        def answered(replies: list[Reply | None]) -> None:
            self._windows.close(marks.tags)
            logs = marks.read(replies)
            if logs is None:
                tell(None)
                return
            shared.fence.unheard -= 1
            marked = marks.marked(replies, self._loop.time())
            if shared.fence.touches:
                # With a log before fences may have been lost, of writes to the same rows. By then
                # those were put up again, or their writes are over.
                since = raised_at - self._deadline_s
                shared.fence.narrow(marks.known(marked, shared.fence.id, since))
            if any(map(self._windows.wait_for, marked)):
                shared.fence.over_at = self._windows.all_over_at()
            tell_when_over(logs, self._windows.clock())

        def tell_when_over(logs: Logs, since: float, *, held: bool = False) -> None:
            over_at = shared.fence.over_at
            if over_at > self._windows.clock():  # a beat may put it off meanwhile
                again = partial(tell_when_over, logs, since, held=True)
                self._windows.when_over(over_at, lambda _: again())
                return
            if held:
                self._fences.waited(since=since)
            tell(logs)

        raised_at = self._loop.time()

        def send() -> None:
            if not shared.over:  # else all have left meanwhile, and none would lift it
                shared.fence.unheard += 1
                self._cluster.submit(marks.raising(shared.fence.raising), answered)

        self._logs.when_free(marks.tags, send)

    def lift_soon(self, fence: Fence, marks: Marks, done: Told) -> None:
        """The write is done. Calls `done` soon with the logs that are observed, as they are now;
        with None where `Fence.lift` is still to be awaited, or in vain."""
        shared = fence.shared
        if shared is None:
            done(None)
            return
        shared.touches(marks)
        if marks.touches:
            is_narrow = fence.narrow_in >= marks.touches.keys()
            self._metrics.row_writes[marks.covered if is_narrow else "log"] += 1
        shared.ending.append((fence, done))
        if shared.members == 1:
            self._end(shared, marks)
        elif len(shared.ending) == 1:
            self._loop.call_soon(self._end, shared, marks)

    def _end(self, shared: SharedFence, marks: Marks) -> None:
        """Lifts it if all that hold it have ended, and it does not stay; else asks whether it
        stands."""
        ending, shared.ending = shared.ending, []
        ended = [done for _, done in ending]
        if self._fences.may_be_raised_anew(shared.fence):
            _tell(ended, None)
            return
        like = marks.like or marks
        if len(ending) == shared.members:
            like.ended_at = self._loop.time()
            if like.in_a_row >= self._many and like.shared is shared and not shared.over:
                self._linger(shared, like)
        last: Fence | None = None
        for fence, _ in ending:
            if self._fences.leave(fence, wrote=True):
                last = fence
        if last is not None:
            self._lift(shared, marks, last, ended)
            return

        def asked(replies: list[Reply | None]) -> None:
            logs = marks.standing(replies, shared.fence.id)
            if logs is not None:
                shared.logs, shared.looked_at = logs, asked_at
                shared.fence.ended(commits)
            _tell(ended, logs)

        asked_at, commits = self._fences.now(), shared.fence.commits
        self._cluster.submit(marks.asking, asked)

    def _lift(self, shared: SharedFence, marks: Marks, last: Fence, ended: Sequence[Told]) -> None:
        """Lifts the fence that all have left but this one, and tells those that have ended."""
        last.touches = shared.touched or {}
        forgetting = shared.forgetting if last.narrow_in else ()

        def lifted(replies: list[Reply | None]) -> None:
            now, buckets = self._loop.time(), replies[: len(forgetting)]
            replies = replies[len(forgetting) :]
            forgot = marks.forgot(buckets)
            logs = marks.read(replies) if forgot else None
            if forgot and forgetting:
                self._given.gave(shared.given, now)
            marked = marks.marked(replies, now)
            if logs is not None:
                self._fences.count(marks.tags)
                self._logs.compact_soon(marks.tags, marked)
            if any(
                self._windows.may_have_opened(log, shared.fence.id, stood=True) for log in marked
            ):
                logs = None
            if logs is not None:
                last.ended(last.commits)
            _tell(ended, logs)

        # The buckets first: who finds no fence any more is to find none that is old.
        lifting = [*forgetting, *marks.raising(last.lifting_narrowly)]
        self._logs.when_free(marks.tags, lambda: self._cluster.submit(lifting, lifted))

    def _linger(self, shared: SharedFence, marks: Marks) -> None:
        fence = self._fences.join(shared)
        timer = self._loop.call_later(_MOMENT_S, self._end_lingering, fence)
        self._lingering[fence] = marks, timer

    def saw_fences(self, tag: Tag, state: TagState) -> None:
        """See `Lapses.saw`: a reader saw these. One that only stays is in its way."""
        self._lapses.saw(tag, state)
        for fence, (marks, timer) in list(self._lingering.items()):
            if fence.shared is not None and fence.shared.fence.id in state.fences:
                marks.in_a_row = 0
                timer.cancel()
                self._end_lingering(fence)

    def _end_lingering(self, fence: Fence) -> None:
        marks, _ = self._lingering.pop(fence)
        shared = fence.shared
        if not self._fences.leave(fence, wrote=False):
            return
        if shared is None or not fence.narrow_in or self._fences.may_be_raised_anew(fence):
            self._fences.end_soon(fence)
            return

        def lifted(logs: Logs | None) -> None:
            if logs is None:
                self._fences.end_soon(fence)

        self._lift(shared, marks, fence, [lifted])


def _tell(waiting: Iterable[Told], logs: Logs | None) -> None:
    for done in waiting:
        try:
            done(logs)
        except Exception:  # the others wait still
            log.exception("a writer failed")
