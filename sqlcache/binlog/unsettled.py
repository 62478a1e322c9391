"""Changes that are to be bumped again: when they came, it was not known whether who asks the server
already sees them."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from sqlcache.binlog.transactions import Change
from sqlcache.binlog.turns import Remembered
from sqlcache.cache.tags import Tag

_AGAIN_AFTER_S: Final = 1.0
"""When everything is forgotten once more after a gap, or some tags after a change of which it was
not known whether it could be seen."""
_MOST_UNSETTLED: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Changes:
    """Those to be bumped again at a time; and again, until they can be seen, where the server
    `tells` that. `begin` is where the log went on before them. `tags` are those that were bumped by
    them before: by later definitions they may lead to less."""

    begin: Remembered | None
    again_at: float
    changes: list[Change]
    tells: bool
    tags: set[Tag] = field(default_factory=set)


class Unsettled:
    """Those of one process. `settle` until it is cancelled.

    `publish` bumps changes, and tags with them, and returns when that is done; `can_be_seen` asks
    whether all can.
    """

    def __init__(
        self,
        publish: Callable[[list[Change], Iterable[Tag]], Awaitable[object]],
        can_be_seen: Callable[[list[Change]], Awaitable[bool]],
    ) -> None:
        self._publish = publish
        self._can_be_seen = can_be_seen
        self._loop = asyncio.get_running_loop()
        self._all: deque[_Changes] = deque()
        self._some = asyncio.Event()

    def add(
        self,
        changes: list[Change],
        begin: Remembered | None,
        *,
        tells: bool,
    ) -> set[Tag]:
        """To be bumped again in a while, see `_Changes`. Returns its tags, to be added to."""
        again_at = self._loop.time() + _AGAIN_AFTER_S
        self._all.append(added := _Changes(begin, again_at, changes, tells))
        self._some.set()
        return added.tags

    def clear(self) -> None:
        """They are read again, or everything is forgotten."""
        self._all.clear()

    def whence(self, known: Remembered | None) -> Remembered | None:
        """Where whoever goes on is to begin, if the log was followed to a `known` place: he is to
        bump again what is still to be."""
        return self._all[0].begin if self._all else known

    async def settle(self) -> None:
        """Bumps again what is to be, for ever."""
        while True:
            await self._some.wait()
            self._some.clear()
            while self._all:
                first = self._all[0]
                if len(self._all) <= _MOST_UNSETTLED:
                    await asyncio.sleep(first.again_at - self._loop.time())
                seen = not first.tells or await self._can_be_seen(first.changes)
                await self._publish(first.changes, first.tags)
                if not seen:
                    await asyncio.sleep(_AGAIN_AFTER_S)
                elif self._all and self._all[0] is first:
                    self._all.popleft()
