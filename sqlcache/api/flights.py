"""One run for all who ask for the same value at the same time.

A flight is a task of its own, so that no caller's cancellation ends it for the others; it is
cancelled when the last of them has gone. Who comes after it took off does not take what it brings,
which may be from before a write that this caller knows of: it waits for the flight's end, looks
for what was stored, and failing that shares the next flight.

What a run waits for is known: of runs that wait for each other none would ever end.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from sqlcache.api.own_errors import own

T = TypeVar("T")
Run = Callable[[], Awaitable[T]]


class _Flight(Generic[T]):
    def __init__(self, run: Run[T]) -> None:
        self._run = run
        self.took_off = False
        self.boarded = self.waiting = 0
        self.task = asyncio.get_running_loop().create_task(self._fly())

    async def _fly(self) -> T:
        self.took_off = True
        return await self._run()

    def result(self) -> T:
        """What it brought, now that it has landed. Raises: what it raised, to each who waited an
        exception of its own."""
        error = None if self.task.cancelled() else self.task.exception()
        if self.boarded > 1 and isinstance(error, Exception):
            raise own(error)
        return self.task.result()


class Flights(Generic[T]):
    """The flights of one process, by key."""

    def __init__(self) -> None:
        self._flights: dict[bytes, _Flight[T]] = {}
        self._numbers = itertools.count()
        self._cancelled: set[asyncio.Task[T]] = set()
        self._needs: dict[bytes, Counter[bytes]] = {}  # by the key of a run, those it waits for

    def is_under_way(self, key: bytes) -> bool:
        """Whether a run for this key has begun."""
        flight = self._flights.get(key)
        return flight is not None and flight.took_off

    def waits_for(self, key: bytes, other: bytes) -> bool:
        """Whether the run for a key waits for that of another, be it by way of others."""
        seen, ahead = {key}, [key]
        while ahead:
            needs = self._needs.get(ahead.pop(), {}).keys() - seen
            if other in needs:
                return True
            seen |= needs
            ahead += needs
        return False

    @contextmanager
    def needing(self, run: bytes, key: bytes) -> Iterator[None]:
        """While this lasts the run for one key waits for that of another."""
        needs = self._needs.setdefault(run, Counter())
        needs[key] += 1
        try:
            yield
        finally:
            needs[key] -= 1
            if not needs[key]:
                del needs[key]
            if not needs and self._needs.get(run) is needs:
                del self._needs[run]

    async def share(self, key: bytes, run: Run[T], look: Callable[[], Awaitable[T | None]]) -> T:
        """What a run brings that began after this call, or what `look` finds that is as good."""
        flight = self._flights.get(key)
        if flight is not None and flight.took_off:
            await asyncio.wait([flight.task])
            if (found := await look()) is not None:
                return found
            # Whichever is there now began after that one, which was there when we came.
            flight = self._flights.get(key)
        return await self._board(key, flight or self._begin(key, run))

    async def alone(self, run: Run[T]) -> T:
        """What a run brings that is shared with nobody."""
        key = b"alone %d" % next(self._numbers)
        return await self._board(key, self._begin(key, run))

    def _begin(self, key: bytes, run: Run[T]) -> _Flight[T]:
        flight = self._flights[key] = _Flight(run)
        flight.task.add_done_callback(lambda task: self._landed(key, flight, task))
        return flight

    async def _board(self, key: bytes, flight: _Flight[T]) -> T:
        flight.boarded += 1
        flight.waiting += 1
        try:
            await asyncio.wait([flight.task])
            return flight.result()
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                self._forget(key, flight)
                self._cancelled.add(flight.task)
                flight.task.cancel()

    def _landed(self, key: bytes, flight: _Flight[T], task: "asyncio.Task[T]") -> None:
        self._forget(key, flight)
        self._cancelled.discard(task)
        if not task.cancelled():
            task.exception()  # seen: all who waited may have gone

    def _forget(self, key: bytes, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    async def close(self) -> None:
        """Ends all flights."""
        tasks = [flight.task for flight in self._flights.values()] + list(self._cancelled)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
