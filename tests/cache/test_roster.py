"""Processes with different lists of nodes: who may start, and what is forgotten."""

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.cache.node_watch import Verdict
from sqlcache.cache.outcomes import FENCED
from sqlcache.cache.roster import LAPSE_S
from sqlcache.cache.tags import ROOT
from sqlcache.errors import ConfigError
from sqlcache.memcache.protocol import meta_get, meta_set
from tests.cache.engines import (
    DEADLINE_S,
    KEYSPACE,
    OUTAGE_S,
    REACH_S,
    Node,
    Prover,
    answer_to,
    filled,
    limits,
    read_of,
)
from tests.cache.engines import engine_on as engine_alone_on


def nodes(*names: str) -> list[Node]:
    return [Node(name) for name in names]


async def engine_on(
    *at: Node,
    lease_s: float = 0,
    refuse_writes: bool = False,
    outage_s: float = OUTAGE_S,
    reach_s: float = REACH_S,
    deadline_s: float = DEADLINE_S,
) -> Engine:
    """One that has found the others to be like it; MySQL's log tells that no node has missed
    anything. Raises: ConfigError."""
    own = limits(read_lease_s=lease_s, refuse_writes=refuse_writes, write_deadline_s=deadline_s)
    prover = Prover(Verdict.PROVEN)
    engine = await engine_alone_on(*at, own=own, outage_s=outage_s, reach_s=reach_s, prover=prover)
    await engine.proven(within_s=5)
    try:
        await engine.agree()
    except ConfigError:
        await engine.close()
        raise
    return engine


async def lapse(*at: Node) -> None:
    """As if nobody had been at work for a while."""
    for node in at:
        await node.request(b"md %b\r\n" % KEYSPACE.roster(lapses=True), 1)


async def lasting_on(node: Node) -> bytes | None:
    """The list with which it was used last."""
    ((_, said, _),) = await node.request(meta_get(KEYSPACE.roster(lapses=False)), 1)
    return said


async def forget_lasting(node: Node) -> None:
    """As if it had been evicted."""
    await node.request(b"md %b\r\n" % KEYSPACE.roster(lapses=False), 1)


async def version_of_the_root(engine: Engine, name: str) -> bytes | None:
    root = ROOT.on(name)
    return (await engine._fences._reach._logs.look_at([root]))[root].version


async def test_who_has_another_list_than_those_at_work_does_not_start() -> None:
    one, two = nodes("one", "two")
    at_work = await engine_on(one, two)
    for other in ([one], [one, Node("three")]):
        with pytest.raises(ConfigError, match=f"used within the last {LAPSE_S} s, another list"):
            await engine_on(*other)
    await at_work.close()


async def test_the_order_of_the_nodes_makes_no_other_list() -> None:
    one, two = nodes("one", "two")
    engines = [await engine_on(one, two), await engine_on(two, one)]
    for engine in engines:
        await engine.close()


async def test_a_list_may_change_when_nobody_is_at_work() -> None:
    one, two = nodes("one", "two")
    await (await engine_on(one, two)).close()
    await lapse(one, two)
    await (await engine_on(one)).close()


async def test_two_lists_at_work_have_nothing_served() -> None:
    """As where the nodes were away when the second began."""
    one, two = nodes("one", "two")
    both = await engine_on(one, two)
    await lapse(one, two)
    alone = await engine_on(one)
    names = [f"t{number}" for number in range(8)]
    reads = {engine: [read_of(engine, name) for name in names] for engine in (both, alone)}
    for engine in (both, alone):
        await engine._roster._look_again()
        assert "memcached.nodes = one" in engine.at_odds
        await engine._fences._beat()
    for engine in (both, alone, both, alone):
        assert [await engine.obtain(read) for read in reads[engine]] == [FENCED] * len(names)
        await engine._roster._look_again()
    with pytest.raises(ConfigError, match=r"memcached.nodes.* another value of one of these"):
        await engine_on(one, two)
    await alone.close()
    await lapse(one, two)
    await both._roster._look_again()
    assert both.at_odds
    assert await both.obtain(reads[both][0]) == FENCED, "the other may have met nobody yet"
    both._roster._fenced_until = 0
    await both._roster._look_again()
    assert not both.at_odds
    await filled(both, reads[both][0], b"new")
    assert await answer_to(both, reads[both][0]) == b"new"
    await both.close()


async def test_so_it_is_while_a_node_is_away_though_writes_are_refused_then() -> None:
    one, two = nodes("one", "two")
    first = await engine_on(one, two, refuse_writes=True)
    await lapse(one, two)
    second = await engine_on(one)
    two.away = True
    read = read_of(second, "orders")
    await filled(second, read, b"old")
    await first._roster._look_again()
    await first._fences._beat()
    assert await second.obtain(read) == FENCED
    for engine in (first, second):
        await engine.close()


async def test_who_must_not_start_leaves_those_at_work_alone() -> None:
    one, two = nodes("one", "two")
    at_work = await engine_on(one, two)
    with pytest.raises(ConfigError):
        await engine_on(one)
    await at_work._roster._look_again()
    assert not at_work.at_odds
    read = read_of(at_work, "orders")
    await filled(at_work, read, b"kept")
    assert await answer_to(at_work, read) == b"kept"
    await at_work.close()


async def test_a_node_that_was_left_out_for_a_while_is_forgotten() -> None:
    """It knows nothing of what was written since."""
    one, two = nodes("one", "two")
    first = await engine_on(one, two)
    reads = [read_of(first, f"t{number}", text=b"SELECT %d" % number) for number in range(8)]
    for read in reads:
        await filled(first, read, b"old")
    await first.close()
    await lapse(one, two)
    await (await engine_on(one)).close()
    await lapse(one)
    again = await engine_on(one, two)
    assert [await answer_to(again, read) for read in reads] == [None] * len(reads)
    await again.close()


async def test_a_node_that_has_lost_its_list_has_the_others_forgotten_by_nobody() -> None:
    one, two = nodes("one", "two")
    at_work = await engine_on(one, two)
    before = [await version_of_the_root(at_work, name) for name in ("one", "two")]
    own = await lasting_on(one)
    await forget_lasting(one)
    await at_work._roster._look()
    assert await lasting_on(one) == own
    other = await engine_on(one, two)
    after = [await version_of_the_root(other, name) for name in ("one", "two")]
    assert after[1] == before[1]
    assert after[0] != before[0]  # perhaps it was loaded from a file since
    for engine in (at_work, other):
        await engine.close()


async def test_who_was_at_work_elsewhere_is_forgotten_by_who_still_is() -> None:
    one, two = nodes("one", "two")
    at_work = await engine_on(one, two)
    before = [await version_of_the_root(at_work, name) for name in ("one", "two")]
    own = await lasting_on(one)
    await one.request(meta_set(KEYSPACE.roster(lapses=False), b"another list", ttl_s=0), 1)
    await at_work._roster._look()
    after = [await version_of_the_root(at_work, name) for name in ("one", "two")]
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert await lasting_on(one) == own
    await at_work.close()


async def test_while_a_node_is_away_what_is_on_the_others_is_forgotten_once() -> None:
    one, two, three = nodes("one", "two", "three")
    three.away = True
    engine = await engine_on(one, two, three)
    before = [await version_of_the_root(engine, name) for name in ("one", "two")]
    await engine._roster._look()
    await engine._roster._look()
    assert [await version_of_the_root(engine, name) for name in ("one", "two")] == before
    assert await lasting_on(one) is None
    await engine.close()


@pytest.mark.parametrize("away", [0, 1, 2])
async def test_a_node_that_was_left_out_is_forgotten_although_another_is_away(away: int) -> None:
    at = nodes("one", "two", "three")
    first = await engine_on(*at)
    names = [node.name for node in at if node is not at[away]]
    before = [await version_of_the_root(first, name) for name in names]
    await first.close()
    for node in at:
        await forget_lasting(node)
    at[away].away = True
    again = await engine_on(*at)
    after = [await version_of_the_root(again, name) for name in names]
    assert all(old != new for old, new in zip(before, after, strict=True))
    await again.close()


async def test_what_is_stored_outlives_a_restart_with_the_same_list() -> None:
    one, two = nodes("one", "two")
    first = await engine_on(one, two)
    read = read_of(first, "orders")
    await filled(first, read, b"kept")
    await first.close()
    await lapse(one, two)
    again = await engine_on(one, two)
    assert await answer_to(again, read_of(again, "orders")) == b"kept"
    await again.close()


@pytest.mark.parametrize("other_s", [0, 0.0051, 1])
async def test_who_has_other_read_leases_than_those_at_work_does_not_start(other_s: float) -> None:
    """Who waits for shorter ones would not wait for the others' windows."""
    one, two = nodes("one", "two")
    at_work = await engine_on(one, two, lease_s=0.005)
    own = f"cache.read_lease_ms = {1000 * other_s:g}: .* another time, seen on one, two"
    with pytest.raises(ConfigError, match=own):
        await engine_on(one, two, lease_s=other_s)
    await (await engine_on(one, two, lease_s=0.005)).close()
    await at_work.close()
    await lapse(one, two)
    await (await engine_on(one, two, lease_s=other_s)).close()


@pytest.mark.parametrize(
    ("outage_s", "reach_s", "deadline_s", "told"),
    [
        (2.5, REACH_S, DEADLINE_S, "memcached.outage_s = 2.5: .* another time"),
        (OUTAGE_S, 1.5, DEADLINE_S, "connect_timeout_s [+] reconnect_max_s = 1.5: .* another time"),
        (OUTAGE_S, REACH_S, 90, "cache.write_deadline_s = 90: .* another time"),
    ],
    ids=["outage", "reach", "deadline"],
)
async def test_who_waits_otherwise_than_those_at_work_does_not_start(
    outage_s: float, reach_s: float, deadline_s: float, told: str
) -> None:
    """Who gives a node up, or owes it a bump, before the others distrust it, or after they trust it
    again, would have them serve what it has written over; and so would they who take the mark of
    its write for one of a dead process before it does."""
    one, two = nodes("one", "two")
    at_work = await engine_on(one, two)
    with pytest.raises(ConfigError, match=told):
        await engine_on(one, two, outage_s=outage_s, reach_s=reach_s, deadline_s=deadline_s)
    await at_work.close()


async def test_of_two_differences_the_list_of_nodes_is_told() -> None:
    one, two = nodes("one", "two")
    at_work = await engine_on(one, two, lease_s=0.005)
    with pytest.raises(ConfigError, match=r"memcached.nodes = one: .* another list"):
        await engine_on(one, lease_s=0.2)
    await at_work.close()


async def at_work_on(node: Node) -> bytes:
    """What a process at work leaves there."""
    ((_, said, _),) = await node.request(meta_get(KEYSPACE.roster(lapses=True)), 1)
    assert said is not None
    return said


@pytest.mark.parametrize(
    "words", ["the first alone", "another format", "more words", "a time less"]
)
async def test_who_keeps_other_records_than_those_at_work_does_not_start(words: str) -> None:
    """As in a rolling upgrade: the first format's roster was the list of nodes alone."""
    (node,) = nodes("one")
    await (await engine_on(node, lease_s=0.005)).close()
    listed, *rest = (await at_work_on(node)).split(b" ")
    times = b" ".join(rest[1:])
    said = {
        "the first alone": listed,
        "another format": b"%b 999 %b" % (listed, times),
        "more words": b"%b 999 %b and more" % (listed, times),
        "a time less": b"%b %b" % (listed, b" ".join(rest[:-1])),
    }
    await node.request(meta_set(KEYSPACE.roster(lapses=True), said[words], ttl_s=LAPSE_S), 1)
    with pytest.raises(ConfigError, match=r"version of sqlcache: .* another form, seen on one"):
        await engine_on(node, lease_s=0.005)


async def test_after_a_restart_with_other_read_leases_nothing_is_served_from_before() -> None:
    (node,) = nodes("one")
    first = await engine_on(node, lease_s=0.2)
    await filled(first, read_of(first, "orders"), b"old")
    await first.close()
    await lapse(node)
    again = await engine_on(node, lease_s=0.005)
    assert await answer_to(again, read_of(again, "orders")) is None
    await again.close()
