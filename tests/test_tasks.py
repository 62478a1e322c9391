import asyncio

from sqlcache.tasks import Tasks


async def test_tasks_are_held_until_they_are_done_or_cancelled() -> None:
    tasks = Tasks()
    stopped: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            stopped.append("after a turn")

    assert await tasks.spawn(asyncio.sleep(0, "done")) == "done"
    await asyncio.sleep(0)
    assert not tasks._all
    tasks.spawn(waits())
    await asyncio.sleep(0)
    await tasks.cancel()
    assert stopped == ["after a turn"]
    assert not tasks._all
