"""Changes that are to be bumped again: when they came, it was not known whether who asks the server
already sees them."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from sqlcache.binlog.effects import Replay
from sqlcache.binlog.transactions import Change
from sqlcache.binlog.turns import Remembered

_AGAIN_AFTER_S: Final = 1.0
"""When everything is forgotten once more after a gap, or some tags after a change of which it was
not known whether it could be seen."""
_MOST_UNSETTLED: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Changes:
    """Those to be bumped again at a time; and again, until they can be seen, where the server
    `tells` that. `begin` is where the log went on before them."""

    begin: Remembered | None
    again_at: float
    changes: list[Change]
    tells: bool
    replay: Replay | None = None


class Unsettled:
    """Those of one process. `settle` until it is cancelled.

    `publish` bumps changes, and returns when that is done; `can_be_seen` asks whether all can.
    """

    def __init__(
        self,
        publish: Callable[[list[Change], Replay | None], Awaitable[None]],
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
        replay: Replay | None = None,
    ) -> None:
        """To be bumped again in a while, see `_Changes`."""
        again_at = self._loop.time() + _AGAIN_AFTER_S
        self._all.append(_Changes(begin, again_at, changes, tells, replay))
        self._some.set()

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
                await self._publish(first.changes, first.replay)
                if not seen:
                    await asyncio.sleep(_AGAIN_AFTER_S)
                elif self._all and self._all[0] is first:
                    self._all.popleft()
