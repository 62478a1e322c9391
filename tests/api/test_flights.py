"""One run for many callers, and none gets a value older than its call."""

from __future__ import annotations

import asyncio

import pytest

from sqlcache.api.flights import Flights


class Runs:
    """Runs that end when told, each with its number."""

    def __init__(self) -> None:
        self.flights: Flights[int] = Flights()
        self.began = 0
        self.may_end = asyncio.Event()
        self.stored: int | None = None

    async def run(self) -> int:
        self.began += 1
        number = self.began
        await self.may_end.wait()
        return number

    async def look(self) -> int | None:
        return self.stored

    def call(self) -> asyncio.Task[int]:
        return asyncio.ensure_future(self.flights.share(b"key", self.run, self.look))

    async def take_off(self) -> None:
        while not self.began:
            await asyncio.sleep(0)


async def test_those_who_come_before_it_takes_off_share_it() -> None:
    runs = Runs()
    calls = [runs.call() for _ in range(5)]
    await runs.take_off()
    runs.may_end.set()
    assert await asyncio.gather(*calls) == [1] * 5


async def test_those_who_come_later_share_the_next() -> None:
    runs = Runs()
    first = runs.call()
    await runs.take_off()
    later = [runs.call() for _ in range(5)]
    await asyncio.sleep(0)
    runs.may_end.set()
    assert await first == 1
    assert await asyncio.gather(*later) == [2] * 5


async def test_those_who_come_later_take_what_was_stored_if_it_is_good() -> None:
    runs = Runs()
    first = runs.call()
    await runs.take_off()
    later = runs.call()
    await asyncio.sleep(0)
    runs.stored = 77
    runs.may_end.set()
    assert [await first, await later, runs.began] == [1, 77, 1]


async def test_one_who_is_cancelled_leaves_the_others_alone() -> None:
    runs = Runs()
    calls = [runs.call() for _ in range(4)]
    await runs.take_off()
    calls[0].cancel()
    calls[2].cancel()
    await asyncio.sleep(0)
    runs.may_end.set()
    got = await asyncio.gather(*calls, return_exceptions=True)
    assert got[1::2] == [1, 1]
    assert all(isinstance(each, asyncio.CancelledError) for each in got[::2])


async def test_when_the_last_has_gone_it_ends_and_the_next_begins_anew() -> None:
    runs = Runs()
    call = runs.call()
    await runs.take_off()
    call.cancel()
    await asyncio.wait([call])
    again = runs.call()
    runs.may_end.set()
    assert await again == 2


async def test_an_exception_is_for_all_who_share_and_for_none_after() -> None:
    flights: Flights[int] = Flights()
    fails = True

    async def run() -> int:
        if fails:
            raise LookupError
        return 1

    async def look() -> None:
        return None

    got = await asyncio.gather(
        *(flights.share(b"key", run, look) for _ in range(3)), return_exceptions=True
    )
    assert all(isinstance(each, LookupError) for each in got)
    fails = False
    assert await flights.share(b"key", run, look) == 1


async def test_closing_ends_them() -> None:
    runs = Runs()
    call = runs.call()
    await runs.take_off()
    await runs.flights.close()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_one_that_is_alone_is_shared_with_nobody_and_ends_with_its_caller() -> None:
    runs = Runs()
    calls = [asyncio.ensure_future(runs.flights.alone(runs.run)) for _ in range(3)]
    await runs.take_off()
    calls[0].cancel()
    runs.may_end.set()
    await asyncio.wait(calls)
    assert calls[0].cancelled()
    assert [await each for each in calls[1:]] == [2, 3]
    assert not runs.flights._flights
