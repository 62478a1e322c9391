"""An event loop without I/O, whose clock and turns belong to the test.

Each simulated process has one. Nothing runs but in `run`, and time stands still in there: so a
process that is not run is frozen, and one that is never run again was killed.
"""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

Connect = Callable[[Callable[[], asyncio.Protocol], str], Awaitable[asyncio.Transport]]

_MANY_CALLBACKS = 100_000


class VirtualLoop(asyncio.BaseEventLoop):
    """`clock` tells the time in seconds, `connect` makes the connections."""

    def __init__(self, clock: Callable[[], float], connect: Connect) -> None:
        super().__init__()
        self._now = clock
        self._connect = connect
        self._soon: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self.problems: list[str] = []
        """What callbacks and tasks raised and nobody caught."""

    def time(self) -> float:
        return self._now()

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._soon.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> asyncio.Transport:
        return await self._connect(factory, host)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.problems.append(f"{context.get('message')}: {context.get('exception')!r}")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """As if its code ran: for making what wants a running loop."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    def run(self) -> bool:
        """Runs all that can run now; says whether there was anything.

        Timers go first, as in uvloop: a process that thaws sees its deadlines before its sockets.
        """
        if self._timers and self._timers[0][0] <= self._now():
            self._soon.extendleft(reversed(self._due()))
        if not self._soon:
            return False
        with self.entered():
            for _ in range(_MANY_CALLBACKS):
                if not self._soon:
                    return True
                handle = self._soon.popleft()
                if not handle.cancelled():
                    handle._run()
        raise AssertionError("the process never comes to rest")

    def next_timer(self) -> float | None:
        """When the next timer is due."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _due(self) -> list[asyncio.Handle]:
        due: list[asyncio.Handle] = []
        while (when := self.next_timer()) is not None and when <= self._now():
            due.append(heapq.heappop(self._timers)[2])
        return due

    def die(self) -> None:
        """Nothing runs here any more, and that tasks never end is no news."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._soon.clear()
        self._timers.clear()
        if not self.is_closed():
            self.close()
