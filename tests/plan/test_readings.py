"""When the catalog is read, and what becomes of it where that fails."""

import asyncio
from collections.abc import Callable

import pytest

from sqlcache.errors import CacheUnavailable, UpstreamError
from sqlcache.metrics import Metrics
from sqlcache.plan import readings
from sqlcache.plan.readings import Readings
from sqlcache.sql.facts import EVERYWHERE, Scope


class Held:
    """Readings that begin one after the other, and end when they may."""

    def __init__(self) -> None:
        self.begun: list[Scope] = []
        self.may_end = asyncio.Event()
        self.readings = Readings(self._load, Metrics(), refresh_s=3_600)

    async def _load(self, scope: Scope) -> None:
        self.begun.append(scope)
        await self.may_end.wait()

    def ask(
        self, scope: Scope, has_come: Callable[[], bool] = lambda: False
    ) -> asyncio.Future[bool]:
        """What becomes of a wish."""
        return asyncio.ensure_future(self.readings.of(scope, has_come))

    async def begin(self) -> None:
        """Returns when the first has begun."""
        while not self.begun:
            await asyncio.sleep(0)

    async def end_one(self) -> None:
        """Returns when another one has begun, or none is wanted."""
        self.may_end.set()
        await asyncio.sleep(0)
        self.may_end.clear()
        await settled()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_who_gets_what_he_wants_by_a_reading_under_way_waits_for_no_other() -> None:
    held = Held()
    asked = [held.ask(EVERYWHERE)]
    await held.begin()
    one = Scope(frozenset("a"))
    asked += [held.ask(EVERYWHERE, held.may_end.is_set), held.ask(one)]
    await asyncio.sleep(0)
    held.may_end.set()
    assert await asyncio.gather(*asked) == [True] * 3
    assert held.begun == [EVERYWHERE, one]
    await held.readings.close()


@pytest.mark.parametrize(
    "error", [UpstreamError("away"), CacheUnavailable("away"), ZeroDivisionError("a fault")]
)
async def test_it_is_read_again_and_again_whatever_became_of_it(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "_RETRY_S", 0)
    read = 0
    enough = asyncio.Event()

    async def load(scope: Scope) -> None:
        nonlocal read
        read += 1
        if read == 2:
            raise error
        if read == 4:
            enough.set()

    under_test = Readings(load, Metrics(), refresh_s=0.001)
    await under_test.start()
    async with asyncio.timeout(20):
        await enough.wait()
    await under_test.close()


async def test_who_asks_amid_a_reading_waits_for_one_that_begins_after_that() -> None:
    held = Held()
    scopes = [Scope(frozenset({name})) for name in "abc"]
    asked = [held.ask(scope) for scope in scopes]
    await held.begin()
    held.may_end.set()
    assert await asyncio.gather(*asked) == [True] * 3
    assert held.begun == [scopes[0], scopes[1] | scopes[2]]
    assert await held.readings.of(EVERYWHERE)
    await held.readings.close()


async def test_who_got_what_he_wanted_takes_back_no_others_wish() -> None:
    """One for the same, of somebody who asked when the next reading, for both, had begun."""
    held = Held()
    one, another = Scope(frozenset("a")), Scope(routines=True)
    asked = [held.ask(another)]
    await settled()
    reading = held.readings._reading
    assert reading is not None

    async def asked_when_it_is_read(scope: Scope) -> bool:
        await asyncio.wait([reading])
        return await held.readings.of(scope)

    # They are woken in this order: the second begins a reading, the third and fourth want another.
    asked.append(held.ask(another))
    await asyncio.sleep(0)
    asked += [asyncio.ensure_future(asked_when_it_is_read(each)) for each in (another, one)]
    await asyncio.sleep(0)
    asked.append(held.ask(one, lambda: True))
    await settled()
    for _ in range(3):
        await held.end_one()
    assert all(await asyncio.gather(*asked))
    assert any(each.schemas for each in held.begun[2:])
    await held.readings.close()
