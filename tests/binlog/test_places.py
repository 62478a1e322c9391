"""Which nodes are given a place, which are disowned first, and for which the log is read again."""

from collections.abc import AsyncIterator

import pytest

from sqlcache.binlog.places import Places
from sqlcache.binlog.turns import Kept, Remembered, Turns
from sqlcache.cache.keys import Keyspace
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.memory import MemoryNode
from sqlcache.metrics import Metrics

pytestmark = pytest.mark.asyncio


def at(position: int, server: str = "server", made: int = 7, file: int = 1) -> Remembered:
    return Remembered(server, (f"binlog.{file:06}", position), made)


class Nodes:
    """What places do to the nodes."""

    def __init__(self) -> None:
        self.owed: set[str] = set()
        self.disowned: list[str] = []
        self.reachable = True

    def owes(self, node: str) -> bool:
        return node in self.owed

    async def disown(self, node: str) -> bool:
        if self.reachable:
            self.disowned.append(node)
        return self.reachable


class World:
    """Two nodes, and a process that follows the log."""

    def __init__(self) -> None:
        self.cluster = Cluster([MemoryNode(n, max_bytes=100_000) for n in ("a", "b")], reach_s=0)
        self.nodes = Nodes()
        self.metrics = Metrics()
        self.turns = Turns(self.cluster, Keyspace("p"))
        self.places = self.another()

    def another(self) -> Places:
        return Places(self.turns, self.nodes, self.metrics)

    async def put(self, place: Remembered | None, *names: str) -> None:
        """These have this place from here on, or none."""
        kept = await self.turns.kept()
        if place is not None:
            await self.turns.keep(place, {name: kept[name] for name in names})
            return
        for name in names:
            key = self.turns._place
            await self.cluster.nodes[name].request(b"md %b\r\n" % key, 1)

    async def have(self) -> list[Remembered | None]:
        kept: dict[str, Kept] = await self.turns.kept()
        return [had.place for had in kept.values()]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.cluster.close()


async def test_it_goes_on_from_the_earliest_place(world: World) -> None:
    await world.put(at(300), "a")
    await world.put(at(200), "b")
    assert await world.places.earliest("server") == at(200)
    assert await world.places.earliest("another") is None


async def test_places_of_another_server_are_none(world: World) -> None:
    await world.put(at(100, "another"), "a")
    await world.put(at(200), "b")
    assert await world.places.earliest("server") == at(200)


async def test_all_nodes_get_the_place_where_everything_was_forgotten(world: World) -> None:
    await world.put(at(900, "another"), "a")
    world.places.begin(None)
    assert await world.places.remember(at(100))
    assert await world.have() == [at(100), at(100)]
    assert not world.nodes.disowned


async def test_a_node_that_is_owed_a_bump_gets_none(world: World) -> None:
    world.places.begin(None)
    await world.places.remember(at(100))
    world.nodes.owed = {"b"}
    assert await world.places.remember(at(200))
    assert await world.have() == [at(200), at(100)]
    world.nodes.owed = set()
    assert await world.places.remember(at(300))
    assert await world.have() == [at(300), at(300)]


async def test_a_node_that_was_away_while_others_followed_is_told_again(world: World) -> None:
    await world.put(at(100), "b")
    await world.put(at(300), "a")
    world.places.begin(at(300))  # `b` did not answer then
    assert not await world.places.remember(at(400))
    assert await world.have() == [at(300), at(100)]
    world.places.begin(at(100))
    assert await world.places.remember(at(400))
    assert await world.have() == [at(400), at(400)]
    assert not world.nodes.disowned


async def test_a_node_with_the_memory_of_an_earlier_time_is_told_again(world: World) -> None:
    world.places.begin(None)
    await world.places.remember(at(100))
    await world.places.remember(at(200))
    await world.put(at(100), "b")
    assert not await world.places.remember(at(300))
    assert await world.have() == [at(200), at(100)]


async def is_disowned_when_reached(world: World, had: Remembered | None) -> None:
    """A node that has this place is behind until it can be disowned."""
    await world.put(at(300), "a")
    await world.put(had, "b")
    world.places.begin(at(300))
    world.nodes.reachable = False
    assert await world.places.remember(at(400))
    assert await world.have() == [at(400), had]
    world.nodes.reachable = True
    assert await world.places.remember(at(500))
    assert await world.have() == [at(500), at(500)]
    assert world.nodes.disowned == ["b"]


@pytest.mark.parametrize("had", [None, at(900, "another")])
async def test_a_node_of_which_it_is_not_known_is_disowned_first(
    world: World, had: Remembered | None
) -> None:
    await is_disowned_when_reached(world, had)
    assert world.metrics.binlog_nodes_disowned == 1


@pytest.mark.parametrize(
    "had",
    [
        at(900, made=6),
        at(900, made=6, file=2),
        Remembered("server", ("other.000001", 900), 6),
        at(200, made=8),
    ],
)
async def test_a_later_place_of_another_log_does_not_do(world: World, had: Remembered) -> None:
    await is_disowned_when_reached(world, had)


async def test_who_follows_on_in_later_files_of_the_same_log_disowns_nothing(world: World) -> None:
    await world.put(at(300), "a")
    await world.put(at(100, made=9, file=2), "b")
    world.places.begin(at(300))
    assert await world.places.remember(at(400))
    assert not world.nodes.disowned
