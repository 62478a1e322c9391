"""Read leases: for a few milliseconds hits need no question, for whoever writes waits them out.

- A process that is asked often for what hangs on some tags, or was asked again and again since they
  were written, and that was a while ago, *promises*: appends a record with its id to their logs,
  once.
- Logs that show its promise, or everyone's, and no fence, open a *window* for it: until a lease
  after the question was sent, what hangs on the tags is what MySQL holds, and is served unasked.
  A read that comes after its window's end asks for all the tags that are asked for often. While
  very many come, these are asked for before, and no read waits.
- A writer whose fence goes into a log that holds a promise of another process sends its write only
  when all windows that may be open are over: a lease, and a fifth more for clocks that differ in
  their rates, after it has heard that its fence stands. The lift of that fence drops the promises:
  who wants one again gives it again, after a while without writes. So a table that is written all
  the time lets nobody wait.
- Who does not find the fence standing that it lifts, or renews, waits as long with the OK: windows
  may have opened while the log was lost.
- The own process's windows close when a fence of it stands, and no question that was sent before
  opens one: for itself nobody waits.

For which tags to promise, and which windows to keep open, is decided in `kept_open`.

Only durations on one machine's clock are compared. A process that was stopped finds its windows
over when it looks at the clock.
"""

import asyncio
import math
from collections.abc import Callable, Collection
from functools import partial

from sqlcache.boot_clock import boot_clock
from sqlcache.cache.kept_open import KeptOpen
from sqlcache.cache.log_records import found_standing, read_log
from sqlcache.cache.promises import MOMENT_S, Promises
from sqlcache.cache.reads import TagSet
from sqlcache.cache.tags import Tag
from sqlcache.callbacks import told
from sqlcache.metrics import Metrics

_MARGIN = 1.2
_SHORTEST_SLEEP_S = 0.001
_MANY_CLOSED = 1_000


class Windows:
    """Those of one process, each as long as `lease_s`; with 0 there are none, and nobody waits.
    Made inside a running event loop; `stop` ends it.

    `ask` asks for the logs of these tags, `give` appends a record to those of others.
    """

    def __init__(
        self,
        metrics: Metrics,
        ask: Callable[[Collection[TagSet]], None],
        give: Callable[[Collection[Tag], bytes], None],
        *,
        lease_s: float,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self.clock = clock
        self._metrics = metrics
        self._ask = ask
        self._lease_s = lease_s
        self._loop = asyncio.get_running_loop()
        self.promises = Promises(give)
        self._own = self.promises.own
        self.kept_open = KeptOpen(self.promises, self._wake, lease_s=lease_s, clock=clock)
        self._open: set[TagSet] = set()
        self._closed_at: dict[Tag, float] = {}  # by an own write
        self._many_closed = _MANY_CLOSED
        self._timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Keeps none open any more."""
        if self._timer is not None:
            self._timer.cancel()

    # Those who read.

    def saw(self, tag_set: TagSet, sent_at: float, unpromised: Collection[Tag]) -> None:
        """A question that was sent then has shown that what hangs on these tags is current, and for
        which of them there is no promise."""
        if self._lease_s and not unpromised and self._is_after_own_writes(tag_set, sent_at):
            self._open_until(tag_set, sent_at + self._lease_s)

    def _is_after_own_writes(self, tag_set: TagSet, sent_at: float) -> bool:
        closed_at = self._closed_at.get
        return all(sent_at > closed_at(tag, -math.inf) for tag in tag_set.tags)

    def _open_until(self, tag_set: TagSet, until: float) -> None:
        self._metrics.windows_opened += 1
        tag_set.window = max(until, tag_set.window)
        self._open.add(tag_set)
        self._wake()

    def _wake(self, after_s: float = 0) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(after_s or self._lease_s / 2, self._look_after)

    def _look_after(self) -> None:
        """Forgets windows that are over, and which to keep open; asks for these if very many reads
        come."""
        self._timer = None
        now = self.clock()
        for tag_set in [each for each in self._open if each.window <= now]:
            self.shut(tag_set)
        very_many = self.kept_open.come_very_many()
        self.kept_open.look_after()
        if very_many and (along := self.kept_open.along()):
            self._ask(along)
        if self._open or self.kept_open.tag_sets:
            self._wake(0 if very_many else max(MOMENT_S, self._lease_s / 2))

    def shut(self, tag_set: TagSet) -> None:
        """What was seen is no more what is known of it."""
        tag_set.window = 0.0
        self._open.discard(tag_set)

    def shut_all(self) -> None:
        """By other definitions what was seen may mean something else."""
        for tag_set in list(self._open):
            self.shut(tag_set)

    # Those who write.

    def close(self, tags: frozenset[Tag]) -> None:
        """A record of an own write stands in these tags' logs."""
        if not self._lease_s:
            return
        now = self.clock()
        if len(self._closed_at) > self._many_closed:
            closed_at = self._closed_at.items()
            self._closed_at = {tag: at for tag, at in closed_at if at > now - self._lease_s}
            self._many_closed = max(_MANY_CLOSED, 2 * len(self._closed_at))
        for tag in tags:
            self._closed_at[tag] = now
        for tag_set in [each for each in self._open if not each.tag_names.isdisjoint(tags)]:
            self.shut(tag_set)

    def wait_for(self, log: bytes) -> bool:
        """Whether others may serve what they have seen in this log; it may have been lost again."""
        if not self._lease_s:
            return False
        try:
            return not log or (b"P" in log and bool(read_log(log).promises - self._own))
        except ValueError:
            return True

    def may_have_opened(self, log: bytes, fence: bytes, *, stood: bool) -> bool:
        """Whether that could be under this fence, by the log in which it has just been ended. It
        `stood` all the while if it stood then: no mark of it was on the way."""
        return bool(self._lease_s) and not (stood and found_standing(log, fence))

    def all_over_at(self, since: float | None = None) -> float:
        """When the windows are over that are open now, on `clock`; or were open then, on the event
        loop's."""
        ago_s = 0.0 if since is None else self._loop.time() - since
        return self.clock() + _MARGIN * self._lease_s - ago_s

    async def over(self, until: float) -> None:
        """Returns when it is that late."""
        if until > self.clock():
            await told(partial(self.when_over, until))

    def when_over(self, until: float, done: Callable[[None], None]) -> None:
        """Calls `done` then, at once where it is that late."""
        left_s = until - self.clock()
        if left_s <= 0:
            done(None)
        else:
            self._loop.call_later(max(left_s, _SHORTEST_SLEEP_S), self.when_over, until, done)
