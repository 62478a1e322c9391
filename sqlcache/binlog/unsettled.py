"""Changes that are to be bumped again: when they came, it was not known whether who asks the server
already sees them."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count
from operator import attrgetter
from typing import Final

from sqlcache.binlog.change import Change
from sqlcache.binlog.turns import Remembered
from sqlcache.cache.tags import Tag

_AGAIN_AFTER_S: Final = 1.0
"""When everything is forgotten once more after a gap, or some tags after a change of which it was
not known whether it could be seen."""
_MOST_UNSETTLED: Final = 1_000
"""That are kept apart. What comes where there are so many is bumped together with the last."""


@dataclass(frozen=True, slots=True)
class _Changes:
    """Those to be bumped again at a time; and again, until they can be seen, where the server
    `tells` that. `begin` is where the log went on before them, and `number` counts these places.
    `tags` are those that were bumped by them before: by later definitions they may lead to less."""

    number: int
    begin: Remembered | None
    again_at: float
    changes: list[Change]
    tells: bool
    tags: set[Tag]

    def with_(self, later: "_Changes") -> "_Changes":
        """Both at once, when it is time for the later ones."""
        self.changes.extend(later.changes)
        self.tags.update(later.tags)
        return replace(self, again_at=later.again_at, tells=self.tells or later.tells)


class Unsettled:
    """Those of one process. `settle` until it is cancelled.

    `publish` bumps changes, and tags with them, and returns when that is done; `not_seen` asks
    which cannot be seen yet.
    """

    def __init__(
        self,
        publish: Callable[[list[Change], Iterable[Tag]], Awaitable[object]],
        not_seen: Callable[[list[Change]], Awaitable[list[Change]]],
    ) -> None:
        self._publish = publish
        self._not_seen = not_seen
        self._loop = asyncio.get_running_loop()
        self._all: deque[_Changes] = deque()  # in the order in which it is time for them
        self._numbers = count()
        self._some = asyncio.Event()

    def add(
        self,
        changes: list[Change],
        begin: Remembered | None,
        *,
        tells: bool,
    ) -> set[Tag]:
        """To be bumped again in a while, see `_Changes`. Returns its tags, to be added to."""
        added = _Changes(next(self._numbers), begin, self._again_at, changes, tells, set())
        if len(self._all) >= _MOST_UNSETTLED:
            added = self._all.pop().with_(added)
        self._all.append(added)
        self._some.set()
        return added.tags

    @property
    def _again_at(self) -> float:
        return self._loop.time() + _AGAIN_AFTER_S

    def clear(self) -> None:
        """They are read again, or everything is forgotten."""
        self._all.clear()

    def whence(self, known: Remembered | None) -> Remembered | None:
        """Where whoever goes on is to begin, if the log was followed to a `known` place: he is to
        bump again what is still to be."""
        if not self._all:
            return known
        return min(self._all, key=attrgetter("number")).begin

    async def settle(self) -> None:
        """Bumps again what is to be, for ever. What cannot be seen yet keeps nothing else waiting:
        a session may be at that for hours."""
        while True:
            await self._some.wait()
            self._some.clear()
            while self._all:
                first = self._all[0]
                await asyncio.sleep(first.again_at - self._loop.time())
                left = await self._not_seen(first.changes) if first.tells else []
                await self._publish(first.changes, first.tags)
                if self._all and self._all[0].number == first.number:
                    first = self._all.popleft()
                    if left:
                        self._all.append(replace(first, again_at=self._again_at, changes=left))
