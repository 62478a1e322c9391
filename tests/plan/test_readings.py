"""When the catalog is read, and what becomes of it where that fails."""

import asyncio

import pytest

from sqlcache.errors import CacheUnavailable, UpstreamError
from sqlcache.metrics import Metrics
from sqlcache.plan import readings
from sqlcache.plan.readings import Readings
from sqlcache.sql.facts import EVERYWHERE, Scope


async def test_who_gets_what_he_wants_by_a_reading_under_way_waits_for_no_other() -> None:
    begun, going_on = list[Scope](), asyncio.Event()

    async def load(scope: Scope) -> None:
        begun.append(scope)
        await going_on.wait()

    under_test = Readings(load, Metrics(), refresh_s=3_600)
    asked = [asyncio.ensure_future(under_test.of(EVERYWHERE))]
    while not begun:
        await asyncio.sleep(0)
    one = Scope(frozenset("a"))
    asked += [
        asyncio.ensure_future(under_test.of(EVERYWHERE, going_on.is_set)),
        asyncio.ensure_future(under_test.of(one, lambda: False)),
    ]
    await asyncio.sleep(0)
    going_on.set()
    assert await asyncio.gather(*asked) == [True] * 3
    assert begun == [EVERYWHERE, one]
    await under_test.close()


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
    begun, going_on = list[Scope](), asyncio.Event()

    async def load(scope: Scope) -> None:
        begun.append(scope)
        await going_on.wait()

    under_test = Readings(load, Metrics(), refresh_s=3_600)
    scopes = [Scope(frozenset({name})) for name in "abc"]
    asked = [asyncio.ensure_future(under_test.of(scope)) for scope in scopes]
    while not begun:
        await asyncio.sleep(0)
    going_on.set()
    assert await asyncio.gather(*asked) == [True] * 3
    assert begun == [scopes[0], scopes[1] | scopes[2]]
    assert await under_test.of(EVERYWHERE)
    await under_test.close()


async def test_who_got_what_he_wanted_takes_back_no_others_wish() -> None:
    """One for the same, of somebody who asked when the next reading, for both, had begun."""
    begun, gates = list[Scope](), [asyncio.Event() for _ in range(3)]

    async def load(scope: Scope) -> None:
        begun.append(scope)
        await gates[len(begun) - 1].wait()

    async def settled() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    under_test = Readings(load, Metrics(), refresh_s=3_600)
    one, another = Scope(frozenset("a")), Scope(routines=True)
    first = asyncio.ensure_future(under_test.of(another))
    await settled()
    # They are woken in this order: the second begins a reading, the third and fourth want another.
    reading = under_test._reading
    assert reading is not None
    asked = [asyncio.ensure_future(under_test.of(another))]
    await asyncio.sleep(0)

    async def asked_when_it_is_read(scope: Scope) -> bool:
        await asyncio.wait([reading])
        return await under_test.of(scope)

    asked += [asyncio.ensure_future(asked_when_it_is_read(each)) for each in (another, one)]
    await asyncio.sleep(0)
    asked.append(asyncio.ensure_future(under_test.of(one, lambda: True)))
    await settled()
    for gate in gates:
        gate.set()
        await settled()
    assert all(await asyncio.gather(first, *asked))
    assert any(each.schemas for each in begun[2:])
    await under_test.close()
