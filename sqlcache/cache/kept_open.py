"""Which windows are worth keeping open: those of tags that are asked for often.

For these a process promises, and a read that comes after such a window's end asks for all of them.
While very many come, they are asked for before, and no read waits. None of this decides what may be
served: that the `windows` do.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Set

from sqlcache.cache.promises import MOMENT_S, Promises
from sqlcache.cache.reads import TagSet
from sqlcache.cache.tags import Tag

_QUIET_S = 1.0
_OFTEN = 5  # in a moment: then a promise is worth it
_QUESTIONS = 100  # since they were written: then it is, too
_ONE_OF = 30  # times that they were asked for along it has to spare one of its own
_FADES = 0.8  # what that came to, in a moment
_FORGOTTEN = 0.01
_VERY_MANY = 8  # reads in half a lease are worth a question that none of them has to ask
_MOST_KEPT_OPEN = 64
_NONE: Set[TagSet] = frozenset()


class KeptOpen:
    """Those of one process; none where `lease_s` is 0. `on_more` is called when there are more to
    look after. Made inside a running event loop."""

    def __init__(
        self,
        promises: Promises,
        on_more: Callable[[], None],
        *,
        lease_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._promises = promises
        self._on_more = on_more
        self._lease_s = lease_s
        self._clock = clock
        self._quiet_s, self._often, self._very_many = _QUIET_S, _OFTEN, _VERY_MANY
        self._questions = _QUESTIONS
        self._loop = asyncio.get_running_loop()
        self.tag_sets: set[TagSet] = set()
        self._asked_at = -math.inf
        self._asked_lately = 0.0  # how often for all that is kept open
        self._looked_at = self._counted_at = 0.0  # on the event loop's clock
        self._uses = 0  # when it was looked last

    def _is_quiet(self, tag_set: TagSet, now: float) -> bool:
        """Whether nobody has written for a while to what has these tags, as far as is known."""
        return now - tag_set.seen_since >= self._quiet_s

    def used(self, tag_set: TagSet, unpromised: Collection[Tag]) -> None:
        """A read has asked for these tags: promises where it is worth it, and keeps the window open
        from then on."""
        if not self._lease_s:
            return
        tag_set.uses += 1
        tag_set.ask_again()
        is_kept_open = tag_set in self.tag_sets
        if is_kept_open and not unpromised:
            return
        now = self._loop.time()
        moments = max((now - tag_set.counted_at) / MOMENT_S, 1.0)
        often = tag_set.uses >= self._often * moments
        if moments > 1.0:
            tag_set.counted_at = now
            tag_set.uses = 1
        is_worth_it = often or tag_set.questions >= self._questions
        if not is_worth_it or not self._is_quiet(tag_set, now):
            return
        if is_kept_open or len(self.tag_sets) < _MOST_KEPT_OPEN or (often and self._make_room()):
            if often:
                tag_set.used_lately = max(tag_set.used_lately, self._often_lately)
            self.tag_sets.add(tag_set)
            self._on_more()
            self._promises.promise(unpromised, now)

    @property
    def _often_lately(self) -> float:
        """What `used_lately` comes to for what is asked for just often enough, all the time."""
        return self._often / (1 - _FADES)

    def _make_room(self) -> bool:
        """Whether what is kept open, though it is not asked for often, has made room for what is:
        else that would have no window for as long as all that is used seldom is used."""
        least = min(self.tag_sets, key=lambda each: each.used_lately)
        if least.used_lately >= self._often_lately:
            return False
        self.tag_sets.discard(least)
        return True

    def along(self) -> Set[TagSet]:
        """What is to be asked for where a question is sent now."""
        now = self._clock()
        if not self.tag_sets or now - self._asked_at < self._lease_s / 2:
            return _NONE
        self._asked_at = now
        self._asked_lately += 1
        return self.tag_sets

    def come_very_many(self) -> bool:
        """Whether so many reads come that who looks after them is to ask before these do."""
        now, uses = self._loop.time(), sum(each.uses for each in self.tag_sets)
        passed_s, self._looked_at = now - self._looked_at, now
        came, self._uses = uses - self._uses, uses
        return came * self._lease_s / 2 >= self._very_many * passed_s

    def look_after(self) -> None:
        """Forgets those that are not worth it any more, once in a moment."""
        if self._loop.time() - self._counted_at > MOMENT_S:
            self._counted_at = self._loop.time()
            self._asked_lately *= _FADES
            self.tag_sets = {each for each in self.tag_sets if self._is_worth_it(each)}
            self._uses = 0

    def _is_worth_it(self, tag_set: TagSet) -> bool:
        uses, tag_set.uses = tag_set.uses, 0
        tag_set.used_lately = uses + _FADES * tag_set.used_lately
        again_and_again = (
            tag_set.questions >= self._questions
            and _ONE_OF * tag_set.used_lately >= self._asked_lately
            and tag_set.used_lately >= _FORGOTTEN
        )
        is_used = uses >= self._often or again_and_again
        return is_used and self._is_quiet(tag_set, self._loop.time())
