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

Only durations on one machine's clock are compared. A process that was stopped finds its windows
over when it looks at the clock.
"""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Set
from functools import partial

from sqlcache.cache.reads import TagSet
from sqlcache.cache.tag_logs import fresh_id
from sqlcache.cache.tags import EVERYONE, Tag, found_standing, promise_record, read_log
from sqlcache.callbacks import told
from sqlcache.metrics import Metrics

_MARGIN = 1.2
_QUIET_S = 1.0
_MOMENT_S = 0.1
_OFTEN = 5  # in a moment: then a promise is worth it
_QUESTIONS = 100  # since they were written: then it is, too
_ONE_OF = 30  # times that they were asked for along it has to spare one of its own
_FADES = 0.8  # what that came to, in a moment
_FORGOTTEN = 0.01
_VERY_MANY = 8  # reads in half a lease are worth a question that none of them has to ask
_MOST_KEPT_OPEN = 64
_SHORTEST_SLEEP_S = 0.001
_MANY_CLOSED = 1_000
_NONE: Set[TagSet] = frozenset()


def boot_clock() -> float:
    """Seconds since the machine was started, those in which it was suspended included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


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
        self._give = give
        self._lease_s = lease_s
        self._quiet_s, self._often, self._very_many = _QUIET_S, _OFTEN, _VERY_MANY
        self._questions = _QUESTIONS
        self._loop = asyncio.get_running_loop()
        self._id = fresh_id()
        self._own = frozenset({self._id})
        self._trusted = frozenset({self._id, EVERYONE})
        self._open: set[TagSet] = set()
        self._kept_open: set[TagSet] = set()
        self._closed_at: dict[Tag, float] = {}  # by an own write
        self._many_closed = _MANY_CLOSED
        self._promised_at: dict[Tag, float] = {}  # on the event loop's clock
        self._timer: asyncio.TimerHandle | None = None
        self._asked_at = -math.inf
        self._asked_lately = 0.0  # how often for all that is kept open
        self._looked_at = self._counted_at = 0.0  # on the event loop's clock
        self._uses = 0  # of those that are kept open, when it was looked last

    def stop(self) -> None:
        """Keeps none open any more."""
        if self._timer is not None:
            self._timer.cancel()

    # Those who read.

    def are_promised(self, promises: frozenset[bytes]) -> bool:
        """Whether a log that holds these promises holds one for this process."""
        return not self._trusted.isdisjoint(promises)

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

    def is_quiet(self, tag_set: TagSet, now: float) -> bool:
        """Whether nobody has written for a while to what has these tags, as far as is known."""
        return now - tag_set.seen_since >= self._quiet_s

    def used(self, tag_set: TagSet, unpromised: Collection[Tag]) -> None:
        """A read has asked for these tags: promises where it is worth it, and keeps the window open
        from then on."""
        if not self._lease_s:
            return
        tag_set.uses += 1
        tag_set.ask_again()
        is_kept_open = tag_set in self._kept_open
        if is_kept_open and not unpromised:
            return
        now = self._loop.time()
        moments = max((now - tag_set.counted_at) / _MOMENT_S, 1.0)
        often = tag_set.uses >= self._often * moments
        if moments > 1.0:
            tag_set.counted_at = now
            tag_set.uses = 1
        is_worth_it = often or tag_set.questions >= self._questions
        if not is_worth_it or not self.is_quiet(tag_set, now):
            return
        if is_kept_open or len(self._kept_open) < _MOST_KEPT_OPEN or (often and self._make_room()):
            if often:
                tag_set.used_lately = max(tag_set.used_lately, self._often_lately)
            self._kept_open.add(tag_set)
            self._wake()
            self._promise(unpromised, now)

    @property
    def _often_lately(self) -> float:
        """What `used_lately` comes to for what is asked for just often enough, all the time."""
        return self._often / (1 - _FADES)

    def _make_room(self) -> bool:
        """Whether what is kept open, though it is not asked for often, has made room for what is:
        else that would have no window for as long as all that is used seldom is used."""
        least = min(self._kept_open, key=lambda each: each.used_lately)
        if least.used_lately >= self._often_lately:
            return False
        self._kept_open.discard(least)
        return True

    def _promise(self, unpromised: Collection[Tag], now: float) -> None:
        """Once in a moment each, however many sets of tags have it."""
        lately = self._promised_at = {
            tag: at for tag, at in self._promised_at.items() if now - at <= _MOMENT_S
        }
        tags = [tag for tag in unpromised if tag not in lately]
        if tags:
            lately |= dict.fromkeys(tags, now)
            self._give(tags, promise_record(self._id))

    def along(self) -> Set[TagSet]:
        """What is to be asked for where a question is sent now."""
        now = self.clock()
        if not self._kept_open or now - self._asked_at < self._lease_s / 2:
            return _NONE
        self._asked_at = now
        self._asked_lately += 1
        return self._kept_open

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
        very_many = self._come_very_many()
        if self._loop.time() - self._counted_at > _MOMENT_S:
            self._counted_at = self._loop.time()
            self._asked_lately *= _FADES
            self._kept_open = {each for each in self._kept_open if self._is_worth_it(each)}
            self._uses = 0
        if very_many and (along := self.along()):
            self._ask(along)
        if self._open or self._kept_open:
            self._wake(0 if very_many else max(_MOMENT_S, self._lease_s / 2))

    def _come_very_many(self) -> bool:
        now, uses = self._loop.time(), sum(each.uses for each in self._kept_open)
        passed_s, self._looked_at = now - self._looked_at, now
        came, self._uses = uses - self._uses, uses
        return came * self._lease_s / 2 >= self._very_many * passed_s

    def _is_worth_it(self, tag_set: TagSet) -> bool:
        uses, tag_set.uses = tag_set.uses, 0
        tag_set.used_lately = uses + _FADES * tag_set.used_lately
        again_and_again = (
            tag_set.questions >= self._questions
            and _ONE_OF * tag_set.used_lately >= self._asked_lately
            and tag_set.used_lately >= _FORGOTTEN
        )
        is_used = uses >= self._often or again_and_again
        return is_used and self.is_quiet(tag_set, self._loop.time())

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
