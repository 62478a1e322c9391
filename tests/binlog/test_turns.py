import asyncio
from collections.abc import AsyncIterator

import pytest

from sqlcache.binlog.turns import Kept, Remembered, Turn, Turns
from sqlcache.cache.keys import Keyspace
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.memory import MemoryNode

pytestmark = pytest.mark.asyncio

PLACE = Remembered("server", ("binlog.000001", 500), 7)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    nodes = [MemoryNode(name, max_bytes=1_000_000) for name in ("a", "b")]
    cluster = Cluster(nodes, reach_s=0)
    yield cluster
    await cluster.close()


def turns(cluster: Cluster, prefix: str = "p") -> Turns:
    return Turns(cluster, Keyspace(prefix))


async def test_one_has_the_turn_and_keeps_it(cluster: Cluster) -> None:
    first, second = turns(cluster), turns(cluster)
    assert (await first.look(None, wants=True)).own
    assert await second.look(None, wants=True) == Turn(own=False, lag_s=None)
    assert (await first.look(1.5, wants=True)).own
    assert await second.look(None, wants=True) == Turn(own=False, lag_s=1.5, renewed=True)


async def test_others_know_what_its_holder_reads(cluster: Cluster) -> None:
    first, second = turns(cluster), turns(cluster)
    assert (await first.look(None, wants=True)).reading == b""
    readings: set[bytes] = set()
    for lag_s in (None, 0.5):
        first.begin_reading()
        assert await first.look(lag_s, wants=True) == Turn(
            own=True, lag_s=lag_s, reading=first.reading
        )
        assert await second.look(None, wants=True) == Turn(
            own=False, lag_s=lag_s, renewed=bool(readings), reading=first.reading
        )
        readings.add(first.reading)
    assert len(readings) == 2
    await first.leave()
    assert (await second.look(None, wants=True)).reading == b""
    assert (await first.look(None, wants=True)) == Turn(own=False, lag_s=None)


async def test_others_of_another_prefix_have_their_own(cluster: Cluster) -> None:
    assert (await turns(cluster).look(None, wants=True)).own
    assert (await turns(cluster, "other").look(None, wants=True)).own


async def test_who_leaves_it_lets_another_have_it_at_once(cluster: Cluster) -> None:
    first, second = turns(cluster), turns(cluster)
    await first.look(None, wants=True)
    await second.leave()
    assert not (await second.look(None, wants=True)).own
    await first.leave()
    assert (await second.look(None, wants=True)).own
    assert not (await first.look(None, wants=True)).own


async def test_who_does_not_want_it_does_not_take_it(cluster: Cluster) -> None:
    assert await turns(cluster).look(None, wants=False) == Turn(own=False, lag_s=None)
    assert (await turns(cluster).look(None, wants=True)).own


async def test_of_many_at_once_one_gets_it(cluster: Cluster) -> None:
    many = [turns(cluster) for _ in range(20)]
    got = await asyncio.gather(*(each.look(None, wants=True) for each in many))
    assert sum(turn.own for turn in got) == 1


async def test_the_place_is_on_every_node(cluster: Cluster) -> None:
    own = turns(cluster)
    none = await own.kept()
    assert none == {"a": Kept(None, 0), "b": Kept(None, 0)}
    assert await own.keep(PLACE, none) == ["a", "b"]
    assert [had.place for had in (await turns(cluster).kept()).values()] == [PLACE, PLACE]


async def test_a_place_that_another_has_written_meanwhile_is_left(cluster: Cluster) -> None:
    own, other = turns(cluster), turns(cluster)
    found = await own.kept()
    assert await other.keep(PLACE, {"a": found["a"]}) == ["a"]
    assert await own.keep(PLACE, found) == ["b"]
    found = await own.kept()
    assert await other.keep(PLACE, {"b": found["b"]}) == ["b"]
    assert await own.keep(PLACE, found) == ["a"]


async def test_it_is_told_whether_another_renews_its_turn(cluster: Cluster) -> None:
    first, second = turns(cluster), turns(cluster)
    await first.look(0.0, wants=True)
    assert await second.look(None, wants=True) == Turn(own=False, lag_s=0.0)
    assert await second.look(None, wants=True) == Turn(own=False, lag_s=0.0)
    await first.look(0.0, wants=True)
    assert await second.look(None, wants=True) == Turn(own=False, lag_s=0.0, renewed=True)


async def test_a_turn_that_nobody_renews_is_over_though_its_item_lives(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sqlcache.binlog.turns.TURN_TTL_S", 1_000)
    monkeypatch.setattr("sqlcache.binlog.turns._SURELY_OVER_S", 0.1)
    first, second = turns(cluster), turns(cluster)
    await first.look(0.0, wants=True)
    assert not (await second.look(None, wants=True)).own
    async with asyncio.timeout(20):
        while not (await second.look(None, wants=True)).own:
            await asyncio.sleep(0.01)
    assert not (await first.look(0.0, wants=True)).own


@pytest.mark.parametrize("told", [b"", b"a\tb\tc", b"a\tb\tc\td", b"\xff", b"a\tb\t1\t2\t3"])
async def test_what_is_no_place_is_none(told: bytes) -> None:
    assert Remembered.read(told) is None
    assert Remembered.read(bytes(PLACE)) == PLACE
