"""One run for many callers, and none gets a value older than its call."""

from __future__ import annotations

import asyncio
import traceback

import aiomysql
import pytest

from sqlcache.api.flights import Flights
from sqlcache.errors import UsageError


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


class Numbered(Exception):
    """One with attributes, of which one is in no dictionary."""

    __slots__ = ("hidden",)

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.hidden: object = None


class Odd(Exception):
    """One that is not made of its arguments."""

    def __init__(self, number: int) -> None:
        super().__init__(f"number {number}")


class Hiding(Numbered):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.hidden = object()


class Strict(Exception):
    def __init__(self, *, number: int) -> None:
        super().__init__(number)


@pytest.mark.parametrize(
    ("error", "shared"),
    [
        *[(LookupError("x", 5), False), (OSError(2, "no", "file"), False), (KeyError(), False)],
        *[(aiomysql.OperationalError(2013, "lost"), False), (UsageError("not so"), False)],
        *[(Numbered(5), False), (UnicodeDecodeError("utf-8", b"a", 0, 1, "why"), False)],
        *[(Odd(5), True), (Strict(number=5), True), (Hiding(5), True)],
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_an_exception_is_each_callers_own(error: Exception, shared: bool) -> None:
    """As far as another can be made that is alike."""
    flights: Flights[int] = Flights()
    cause = ValueError("why")
    error.add_note("of the run")

    async def run() -> int:
        raise error from cause

    async def look() -> None:
        return None

    async def call() -> list[str]:
        try:
            await flights.share(b"key", run, look)
        except Exception as raised:
            raised.add_note("of its caller")
            got.append(raised)
        return [each.name for each in traceback.extract_tb(got[-1].__traceback__)]

    got: list[Exception] = []
    traces = await asyncio.gather(call(), call(), call())
    for each in got:
        assert (type(each), each.args, each.__cause__) == (type(error), error.args, cause)
        assert str(each) == str(error)
        names = {key: value for key, value in vars(each).items() if key != "__notes__"}
        assert names == {key: value for key, value in vars(error).items() if key != "__notes__"}
    assert len({id(each) for each in got}) == (1 if shared else 3)
    if not shared:
        assert [each.__notes__ for each in got] == [["of the run", "of its caller"]] * 3
        assert all(each[-1] == "run" and each.count("call") == 1 for each in traces)


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
