import asyncio
from itertools import pairwise

import pytest

from sqlcache.admin.made_once import MadeOnce
from tests.turns import counted_turns


async def test_each_has_one_that_was_begun_after_it_asked() -> None:
    begun, may_end = asyncio.Semaphore(0), asyncio.Semaphore(0)
    counted = made = 0

    async def make() -> int:
        nonlocal made
        made += 1
        seen = counted
        begun.release()
        await may_end.acquire()
        return seen

    made_once = MadeOnce(make)
    first = [asyncio.create_task(made_once.ask()) for _ in range(50)]
    await begun.acquire()
    counted = 1
    second = [asyncio.create_task(made_once.ask()) for _ in range(50)]
    await asyncio.sleep(0)  # they have asked, while the first is made
    counted = 2
    may_end.release()
    may_end.release()
    assert await asyncio.gather(*first) == [0] * 50
    assert await asyncio.gather(*second) == [2] * 50
    assert made == 2


async def test_between_two_others_have_a_turn() -> None:
    with counted_turns() as turns:
        made_at: list[int] = []

        async def make() -> None:
            made_at.append(turns.count)

        made_once = MadeOnce(make)

        async def asks_anew() -> None:
            for _ in range(20):
                await made_once.ask()

        async with asyncio.TaskGroup() as asking:
            for _ in range(30):
                asking.create_task(asks_anew())
                await asyncio.sleep(0)  # so they do not ask all at once
    between = [later - earlier for earlier, later in pairwise(made_at)]
    assert len(between) < 100
    assert min(between) >= 2


async def test_what_fails_fails_for_all_who_share_it_and_the_next_is_made_anew() -> None:
    trouble: list[Exception] = [LookupError()]

    async def make() -> str:
        if trouble:
            raise trouble.pop()
        return "made"

    made_once = MadeOnce(make)
    answers = await asyncio.gather(*(made_once.ask() for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in answers] == [LookupError] * 3
    assert await made_once.ask() == "made"


async def test_who_goes_takes_it_from_nobody() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def make() -> str:
        begun.set()
        await may_end.wait()
        return "made"

    made_once = MadeOnce(make)
    goes, stays = (asyncio.create_task(made_once.ask()) for _ in range(2))
    await begun.wait()
    goes.cancel()
    with pytest.raises(asyncio.CancelledError):
        await goes
    may_end.set()
    assert await stays == "made"
