import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from sqlcache.binlog import unsettled
from sqlcache.binlog.change import Change
from sqlcache.binlog.turns import Remembered
from sqlcache.binlog.unsettled import Unsettled
from sqlcache.cache.tags import Tag

AGAIN_AFTER_S = 0.02
PATIENCE_S = 5.0


def place(at: int) -> Remembered:
    return Remembered("server", ("binlog.000001", at), 1)


def change(name: str) -> Change:
    return Change(everything=name)


class Log:
    """Changes by what they are called, those that cannot be seen yet, and what was bumped again."""

    def __init__(self) -> None:
        self.unseen: set[str] = set()
        self.bumped: list[set[str]] = []
        self.tags: set[Tag] = set()
        self.unsettled = Unsettled(self._publish, self._not_seen)

    async def _publish(self, changes: list[Change], tags: Iterable[Tag]) -> None:
        self.bumped.append({each.everything for each in changes})
        self.tags.update(tags)

    async def _not_seen(self, changes: list[Change]) -> list[Change]:
        return [each for each in changes if each.everything in self.unseen]

    def add(self, *names: str, at: int, tells: bool = True) -> set[Tag]:
        changes = [change(each) for each in names]
        return self.unsettled.add(changes, place(at), tells=tells)

    def times(self, name: str) -> int:
        return sum(name in each for each in self.bumped)

    async def until(self, name: str, times: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.times(name) < times:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0)


@pytest.fixture
async def log(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Log]:
    monkeypatch.setattr(unsettled, "_AGAIN_AFTER_S", AGAIN_AFTER_S)
    log = Log()
    settling = asyncio.ensure_future(log.unsettled.settle())
    yield log
    settling.cancel()
    await asyncio.gather(settling, return_exceptions=True)


async def test_what_cannot_be_seen_keeps_nothing_else_waiting(log: Log) -> None:
    log.unseen = {"long"}
    log.add("long", at=4)
    for at in range(100, 110):
        log.add(f"short {at}", at=at)
    await log.until("short 109", 1)
    await log.until("long", 4)
    assert [log.times(f"short {at}") for at in range(100, 110)] == [1] * 10
    assert len(log.unsettled._all) == 1


async def test_whoever_goes_on_begins_before_all_that_cannot_be_seen(log: Log) -> None:
    log.unseen = {"long"}
    log.add("long", at=4)
    await log.until("long", 1)
    log.add("short", at=100, tells=False)
    await log.until("long", 2)
    assert log.unsettled.whence(place(200)) == place(4)
    log.unseen = set()
    await log.until("long", 3)
    await log.until("short", 1)
    assert log.unsettled.whence(place(200)) == place(200)


async def test_what_is_seen_by_now_is_not_bumped_with_what_is_not(log: Log) -> None:
    log.unseen = {"long"}
    log.add("long", "short", at=4)
    await log.until("long", 3)
    assert log.times("short") == 1


async def test_very_many_are_bumped_together_and_none_too_soon(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsettled, "_MOST_UNSETTLED", 10)
    log.unseen = {"95"}
    for at in range(100):
        log.add(str(at), at=at, tells=at == 95).add(Tag("shop", str(at)))
    assert len(log.unsettled._all) == 10
    added = asyncio.get_running_loop().time()
    await log.until("99", 1)
    assert asyncio.get_running_loop().time() >= added + AGAIN_AFTER_S * 0.9
    assert [log.times(str(at)) for at in range(95)] == [1] * 95
    assert log.tags == {Tag("shop", str(at)) for at in range(100)}
    await log.until("95", 3)
    assert log.times("96") == 1
    assert log.unsettled.whence(place(200)) == place(9), "where the first of them began"
