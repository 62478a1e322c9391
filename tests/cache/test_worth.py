"""Answers that are never hit: of these few are stored, until some are hit."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.cache.leases import Lease
from sqlcache.cache.outcomes import Hit
from sqlcache.cache.reads import Freshness, Read
from sqlcache.cache.worth import (
    _MOST_OF_A_SHAPE,
    _MOST_SAMPLES,
    OLD_S,
    ONE_OF,
    UNHIT,
    names_moment,
)
from sqlcache.metrics import Metrics
from sqlcache.statement_counts import StatementCounts
from tests.cache.engines import Node, engine_on, entry_of, limits, read_of

MANY = 120
YOUNG = OLD_S - 1
NEAR = 1_000_000


class World:
    """Two engines on one store, and the time."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.metrics = Metrics()
        self.counts = StatementCounts("SELECT ?", "read")
        self.asked = 0
        self.counts_hits = True  # unlike where others' hits are not known here
        self.engines: list[Engine] = []

    async def begin(self, *, skips: bool = True) -> None:
        self.node = Node()
        own = limits(near_bytes=NEAR, ttl_s=3600, skip_unhit_stores=skips)
        for _ in range(2):
            made = await engine_on(self.node, metrics=self.metrics, own=own, clock=lambda: self.now)
            self.engines.append(made)

    def read(self, number: int, engine: int = 0, ttl_s: int = 3600) -> Read:
        text = b"SELECT %d" % number
        read = read_of(self.engines[engine], "orders", text=text, freshness=Freshness(ttl_s))
        read.counts = self.counts
        return read

    async def ask(self, number: int, engine: int = 0, ttl_s: int = 3600) -> str:
        read = self.read(number, engine, ttl_s)
        got = await self.engines[engine].obtain(read, stores=False)
        if isinstance(got, Lease):
            await got.fill(entry_of(got, b"answer"))
            return "filled"
        if isinstance(got, Hit):
            if self.counts_hits:
                self.counts.hit(self.metrics, 0.0, 1)
            return "hit"
        assert got is UNHIT
        return "passed"

    async def ask_new(self, times: int, engine: int = 0) -> list[str]:
        first, self.asked = self.asked, self.asked + times
        return [await self.ask(number, engine) for number in range(first, first + times)]

    async def never_hit(self) -> None:
        """Judged as such."""
        await self.ask_new(MANY)
        self.now += OLD_S
        await self.ask_new(1)
        assert self.counts.is_sampled


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    for engine in made.engines:
        await engine.close()


async def test_of_answers_that_are_never_hit_one_of_twenty_is_stored(world: World) -> None:
    await world.begin()
    await world.never_hit()
    told = await world.ask_new(10 * ONE_OF)
    assert told.count("filled") == 10
    assert told.count("passed") == world.metrics.fills_skipped == 9 * 20 + 10
    assert world.counts.report()["skipped"] == world.metrics.fills_skipped
    assert world.counts.report()["stored"] == "sample"


async def test_nothing_is_judged_before_it_is_old(world: World) -> None:
    await world.begin()
    await world.ask_new(MANY)
    world.now += YOUNG
    assert set(await world.ask_new(1_000)) == {"filled"}


async def test_fewer_than_fifty_are_too_few(world: World) -> None:
    await world.begin()
    await world.ask_new(60)  # of the first none is looked at
    world.now += OLD_S
    assert set(await world.ask_new(200)) == {"filled"}
    world.now += OLD_S
    await world.ask_new(1)
    assert world.counts.is_sampled


@pytest.mark.parametrize("engine", [0, 1], ids=["this process", "another process"])
async def test_a_shape_that_is_hit_by_anyone_is_stored(world: World, engine: int) -> None:
    await world.begin()
    await world.ask_new(MANY)
    world.counts_hits = False
    for number in range(0, MANY, 10):
        assert await world.ask(number, engine) == "hit"
    world.now += OLD_S
    assert set(await world.ask_new(200)) == {"filled"}


@pytest.mark.parametrize("engine", [0, 1], ids=["this process", "another process"])
async def test_it_comes_back_when_samples_are_hit(world: World, engine: int) -> None:
    await world.begin()
    await world.never_hit()
    told = await world.ask_new(10 * ONE_OF)
    sampled = [world.asked - len(told) + at for at, each in enumerate(told) if each == "filled"]
    for number in sampled:
        assert await world.ask(number, engine) == "hit"
    world.now += OLD_S
    await world.ask_new(2)  # of which the first only asks what became of them
    assert not world.counts.is_sampled
    assert set(await world.ask_new(100)) == {"filled"}


async def test_it_stays_a_sample_while_none_is_hit(world: World) -> None:
    await world.begin()
    await world.never_hit()
    for _ in range(5):
        told = await world.ask_new(10 * ONE_OF)
        assert told.count("passed") >= 9 * ONE_OF
        world.now += OLD_S


async def test_many_hits_of_few_answers_are_worth_it(world: World) -> None:
    await world.begin()
    await world.ask_new(MANY)
    for _ in range(10):
        assert await world.ask(0) == "hit"
    world.now += OLD_S
    assert set(await world.ask_new(200)) == {"filled"}


async def test_what_was_evicted_says_nothing(world: World) -> None:
    await world.begin()
    await world.ask_new(MANY)
    for number in range(MANY):
        world.node.store._drop(world.read(number).key)
    world.now += OLD_S
    assert set(await world.ask_new(200)) == {"filled"}


async def test_an_answer_with_a_shorter_life_is_not_judged(world: World) -> None:
    await world.begin()
    for number in range(MANY):
        await world.ask(number, ttl_s=OLD_S)
    assert world.counts.stores is None


async def test_what_others_wait_for_is_as_good_as_hit(world: World) -> None:
    await world.begin()
    for number in range(MANY):
        lease = await world.engines[0].obtain(world.read(number), stores=False)
        assert isinstance(lease, Lease)
        waiting = [
            asyncio.ensure_future(world.engines[0].obtain(world.read(number)))
            for _ in range(number % 10 == 0)
        ]
        waits = world.metrics.lease_waits + len(waiting)
        while world.metrics.lease_waits < waits:
            await asyncio.sleep(0)
        await lease.fill(entry_of(lease, b"answer"))
        assert all(isinstance(got, Hit) for got in await asyncio.gather(*waiting))
    world.asked = MANY
    world.now += OLD_S
    assert set(await world.ask_new(200)) == {"filled"}


async def test_it_can_be_switched_off(world: World) -> None:
    await world.begin(skips=False)
    await world.ask_new(MANY)
    world.now += OLD_S
    assert set(await world.ask_new(200)) == {"filled"}
    assert world.counts.stores is None


async def test_what_is_held_for_it_is_bounded(world: World) -> None:
    await world.begin()
    await world.ask_new(10 * _MOST_OF_A_SHAPE)
    samples = world.engines[0].worth._samples
    assert len(samples) == _MOST_OF_A_SHAPE
    for number in range(2 * _MOST_SAMPLES // _MOST_OF_A_SHAPE):
        counts = StatementCounts(f"{number}", "read")
        counts.fills = 1_000
        read = world.read(number)
        read.counts = counts
        for _ in range(_MOST_OF_A_SHAPE):
            world.engines[0].worth.is_looked_at(read, shared=False)
    assert len(samples) == _MOST_SAMPLES


NOW = datetime(2026, 11, 26, 13, 59, 58, 500_000, UTC).timestamp()


@pytest.mark.parametrize(
    ("values", "is_named"),
    [
        (b"'2026-11-26 13:59:58.123456'", True),
        (b"1,'2026-11-26T13:59:57.123','x'", True),
        (b"2026-11-26 13:59:59.123456", True),
        (b"'2020-01-01 00:00:00.000001','2026-11-26 13:59:58.123456'", True),
        (b"'2026-11-26 14:00:01.123456'", True),
        (b"'2026-11-26 19:29:58.123456'", True),  # in India
        (b"'2026-11-27 02:44:58.123456'", True),  # to the east of Australia
        (b"'2026-11-26 13:59:58'", False),
        (b"'2026-11-26 13:58:58.123456'", False),
        (b"'2026-11-26 13:49:58.123456'", False),
        (b"'2026-11-24 13:59:58.123456'", False),
        (b"'2026-02-30 13:59:58.123456'", False),
        (b"'9999-99-99 99:59:58.123456'", False),
        (b"'13:59:58.123456'", False),
        (b"", False),
    ],
)
def test_what_names_the_very_moment_is_told(values: bytes, *, is_named: bool) -> None:
    assert names_moment(values, NOW) == is_named
