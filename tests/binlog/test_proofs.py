"""When it is proven that a node has missed nothing of the log."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from sqlcache.binlog import proofs
from sqlcache.binlog.proofs import Proofs
from sqlcache.binlog.source import CannotFollow
from sqlcache.binlog.turns import Remembered, Turns
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.node_watch import Proof, Verdict
from sqlcache.driver import aiomysql
from sqlcache.errors import UpstreamError
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.memory import MemoryNode

pytestmark = pytest.mark.asyncio

WITHIN_S = 60.0
SOON_S = 0.2


async def nowhere() -> aiomysql.Connection:
    raise UpstreamError("there is no server")


class World(Proofs):
    """One node, and a server whose log has an end."""

    def __init__(self) -> None:
        self.cluster = Cluster([MemoryNode("a", max_bytes=100_000)], reach_s=0)
        self.is_refused = self.others_follow = False
        self.ends = 100
        self.tells_all = True
        self.trouble: UpstreamError | None = None
        super().__init__(
            nowhere,
            Turns(self.cluster, Keyspace("p")),
            within_s=WITHIN_S,
            refused=lambda: self.is_refused,
            others=lambda: self.others_follow,
        )

    async def _ask(self) -> proofs._End:
        if self.trouble is not None:
            raise self.trouble
        now = asyncio.get_running_loop().time()
        return proofs._End(now, "server", ("log.1", self.ends), self.tells_all)

    async def put(self, position: int, server: str = "server") -> None:
        place = Remembered(server, ("log.1", position), 7)
        assert await self.turns.keep(place, await self.turns.kept()) == ["a"]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.cluster.close()


async def decided(world: World, proof: Proof) -> Verdict:
    """What is said in the end, where that is not waited for."""
    world.within_s = SOON_S
    async with asyncio.timeout(20):
        while (verdict := await proof.verdict()) is Verdict.NOT_YET:
            await asyncio.sleep(0.01)
    world.within_s = WITHIN_S
    return verdict


async def test_a_place_at_the_logs_end_that_is_written_then_proves_it(world: World) -> None:
    proof = world.about("a", owed=True)
    assert await proof.verdict() is Verdict.NOT_YET
    await world.put(99)
    assert await proof.verdict() is Verdict.NOT_YET
    await world.put(100)
    assert await proof.verdict() is Verdict.PROVEN


async def test_one_that_was_there_proves_nothing(world: World) -> None:
    await world.put(500)
    proof = world.about("a", owed=False)
    assert await proof.verdict() is Verdict.NOT_YET
    assert await proof.verdict() is Verdict.NOT_YET
    await world.put(500)
    assert await proof.verdict() is Verdict.PROVEN


async def test_nor_does_one_in_the_log_of_another_server(world: World) -> None:
    proof = world.about("a", owed=False)
    await proof.verdict()
    await world.put(500, "another")
    assert await decided(world, proof) is Verdict.NEVER


async def test_the_end_is_that_of_when_it_was_asked_or_later(world: World) -> None:
    first = world.about("a", owed=False)
    await first.verdict()
    world.ends = 200
    await asyncio.sleep(0.01)
    later = world.about("a", owed=False)
    await later.verdict()
    await world.put(100)
    assert await first.verdict() is Verdict.PROVEN
    assert await later.verdict() is Verdict.NOT_YET


async def test_what_takes_too_long_is_not_proven(world: World) -> None:
    assert await decided(world, world.about("a", owed=False)) is Verdict.NEVER


async def test_what_another_process_follows_is_as_for_that_one(world: World) -> None:
    world.others_follow = True
    assert await decided(world, world.about("a", owed=False)) is Verdict.WITHOUT
    assert await decided(world, world.about("a", owed=True)) is Verdict.NEVER


async def test_a_log_without_some_schemas_proves_nothing_of_what_is_owed(world: World) -> None:
    world.tells_all = False
    assert await decided(world, world.about("a", owed=True)) is Verdict.NEVER
    proof = world.about("a", owed=False)
    await proof.verdict()
    await world.put(100)
    assert await proof.verdict() is Verdict.PROVEN


@pytest.mark.parametrize(("placed", "verdict"), [(False, Verdict.WITHOUT), (True, Verdict.NEVER)])
async def test_a_log_that_may_not_be_read_any_more_leaves_all_unknown(
    world: World, placed: bool, verdict: Verdict
) -> None:
    if placed:
        await world.put(100)
    world.trouble = CannotFollow("the right is missing")
    assert await decided(world, world.about("a", owed=False)) is verdict
    world.trouble, world.is_refused = None, True
    assert await decided(world, world.about("a", owed=False)) is verdict


async def test_a_server_that_is_away_is_waited_for(world: World) -> None:
    world.trouble = UpstreamError("away")
    proof = world.about("a", owed=False)
    world.within_s = SOON_S
    for _ in range(3):
        await asyncio.sleep(SOON_S / 2)
        assert await proof.verdict() is Verdict.NOT_YET


async def test_where_some_writes_are_not_in_the_log_nothing_that_is_owed_is_proven(
    world: World,
) -> None:
    await world.note_unlogged()
    assert await decided(world, world.about("a", owed=True)) is Verdict.NEVER
    proof = world.about("a", owed=False)
    await proof.verdict()
    await world.put(100)
    assert await proof.verdict() is Verdict.PROVEN
