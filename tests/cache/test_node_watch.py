"""The watch over the nodes: who is trusted after a silence, a restart, or a proxy's start."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.cache.node_watch import Verdict
from sqlcache.cache.outcomes import DISTRUSTED, UNREACHABLE, Hit
from sqlcache.demo.servers import PrivateMemcached
from sqlcache.memcache import health
from sqlcache.memcache.connection import NodeConnection
from sqlcache.memcache.protocol import meta_set
from sqlcache.metrics import Metrics
from tests.cache.engines import (
    KEYSPACE,
    LINES,
    ORDERS,
    OUTAGE_S,
    Counting,
    Node,
    Prover,
    answer_to,
    eventually,
    eventually_not,
    filled,
    on_time,
    read_of,
    until_silent,
)
from tests.cache.engines import engine_on as engine_trusting

engine_on = partial(engine_trusting, trusting=False)
trust_on = pytest.mark.parametrize("trusting", [True])


@pytest.fixture
def trusting() -> bool:
    return False


def memento_of(engine: Engine) -> bytes:
    return KEYSPACE.memento(engine._placement.root_key("memory"))


async def forget(node: Node, key: bytes) -> None:
    await node.request(b"md %b\r\n" % key, 1)


async def test_the_first_proxy_on_a_node_begins_when_it_has_started(engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    assert await answer_to(engine, read) == b"answer"


async def test_a_proxy_that_finds_a_node_empty_gives_others_time_to_reach_it() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    engine = await engine_on(Node(), reach_s=0.5)
    assert loop.time() - began >= 0.5
    await engine.close()


async def test_a_proxy_that_gives_others_much_time_has_not_lost_sight_itself() -> None:
    async def trial() -> None:
        engine = await engine_on(Node(), reach_s=OUTAGE_S)
        read = read_of(engine, "orders")
        await filled(engine, read, b"answer")
        assert await answer_to(engine, read) == b"answer"
        await engine.close()

    await on_time(trial)


class Unreached(Node):
    """One that is reached at some time."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()

    async def wait_connected(self, timeout_s: float | None = None) -> None:
        await self.reached.wait()


async def test_a_node_is_greeted_as_soon_as_it_is_reached() -> None:
    node = Unreached()
    starting = asyncio.create_task(engine_on(node))
    await asyncio.sleep(OUTAGE_S / 4)
    assert not node.requests
    node.reached.set()
    await (await starting).close()


async def test_a_lame_node_is_told_of_and_asked_for_a_sign_of_life_alone_when_it_is_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_PATIENCE_S", 0.0)  # that for two outages and a half is left
    node, metrics = Counting(), Metrics()
    engine = await engine_on(node, metrics=metrics)
    node.away = True

    async def is_out() -> bool:
        assert node.on_up is not None
        node.on_up()
        return engine._cluster.health_of(node.name).is_out

    await eventually(is_out)
    assert await is_out()
    assert caplog.text.count(f"answers too late node={node.name}") == 1
    node.payloads.clear()
    await (await engine.fence([ORDERS])).lift()
    assert metrics.fences_unreachable == 1
    assert not node.payloads
    node.away = False

    async def owes_nothing() -> bool:
        return not metrics.pending_bumps

    await eventually(owes_nothing)
    assert node.payloads
    await engine.close()


@trust_on
async def test_a_proxy_that_joins_others_begins_at_once(node: Node, engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    joined = await engine_trusting(node)
    assert await answer_to(joined, read_of(joined, "orders")) == b"answer"
    await joined.close()


@trust_on
async def test_a_proxy_that_joins_one_that_watches_begins_at_once_though_another_has_died(
    node: Node, engine: Engine
) -> None:
    await filled(engine, read_of(engine, "orders"), b"answer")
    key = KEYSPACE.membership(engine._placement.root_key("memory"))
    await node.request(b"ms %b 8 MA\r\nwho died\r\n" % key, 1)
    joined = await engine_trusting(node)
    assert await answer_to(joined, read_of(joined, "orders")) == b"answer"
    await joined.close()


@pytest.mark.parametrize(
    ("says", "answer"),
    [(Verdict.PROVEN, b"answer"), (Verdict.WITHOUT, None), (Verdict.NEVER, None)],
)
async def test_after_the_last_proxy_has_left_in_order_the_next_begins_when_it_is_proven(
    node: Node, engines: list[Engine], says: Verdict, answer: bytes | None
) -> None:
    await filled(engines[0], read_of(engines[0], "orders"), b"answer")
    for engine in engines:
        await engine.close()
    await forget(node, memento_of(engines[0]))
    prover = Prover(says)
    later = await engine_on(node, prover=prover)
    read = read_of(later, "orders")
    await eventually_not(later, read, DISTRUSTED)
    assert await answer_to(later, read) == answer
    assert prover.asked == [True], "another may have begun, written and ended without the node"
    await later.close()


async def test_after_the_last_proxy_has_left_in_order_the_next_forgets_where_there_is_no_log(
    node: Node, engines: list[Engine]
) -> None:
    await filled(engines[0], read_of(engines[0], "orders"), b"answer")
    for engine in engines:
        await engine.close()
    later = await engine_on(node)
    read = read_of(later, "orders")
    assert await later.obtain(read) == DISTRUSTED
    await eventually_not(later, read, DISTRUSTED)
    assert await answer_to(later, read) is None
    await later.close()


async def test_nobody_vouches_for_a_node_that_has_to_be_proven_to_have_missed_nothing(
    node: Node, engines: list[Engine]
) -> None:
    await filled(engines[0], read_of(engines[0], "orders"), b"answer")
    for engine in engines:
        await engine.close()
    doubts = await engine_on(node, prover=Prover(Verdict.NOT_YET))
    joined = await engine_on(node)
    assert await joined.obtain(read_of(joined, "orders")) == DISTRUSTED
    await asyncio.gather(doubts.close(), joined.close())


async def test_after_a_proxy_that_died_the_next_disowns_the_node(
    node: Node, engines: list[Engine]
) -> None:
    read = read_of(engines[0], "orders")
    await filled(engines[0], read, b"from before")
    await engines[0].close()
    await engines[1].fence([ORDERS])  # and dies in the middle of its write
    await engines[1].close()
    await forget(node, memento_of(engines[0]))
    later = await engine_on(node)
    again = read_of(later, "orders")
    assert await later.obtain(again) == DISTRUSTED
    await eventually_not(later, again, DISTRUSTED)
    assert await answer_to(later, again) is None
    await later.close()


async def test_that_others_watched_a_node_just_before_is_no_reason_to_trust_it(
    node: Node, engines: list[Engine]
) -> None:
    await filled(engines[0], read_of(engines[0], "orders"), b"answer")
    await engines[0].close()
    await engines[1].fence([ORDERS])  # and dies in the middle of its write
    await engines[1].close()
    later = await engine_on(node)
    assert await later.obtain(read_of(later, "orders")) == DISTRUSTED
    await later.close()


async def test_who_leaves_takes_nobody_else_out_of_the_membership(
    node: Node, engines: list[Engine]
) -> None:
    stays = await engine_on(node)
    await asyncio.gather(*(engine.close() for engine in engines))
    key = KEYSPACE.membership(stays._placement.root_key("memory"))
    assert await node.request(b"mg %b v\r\n" % key, 1) == [
        (b"VA", stays._node_watch._items.id, b"")
    ]
    await stays.close()


async def test_a_proxy_that_starts_in_a_quarantine_keeps_it(node: Node, engine: Engine) -> None:
    hold = KEYSPACE.hold(engine._placement.root_key("memory"))
    await node.request(b"ms %b 0 T9\r\n\r\n" % hold, 1)
    joined = await engine_on(node)
    assert await joined.obtain(read_of(joined, "orders")) == DISTRUSTED
    await joined.close()


async def lose_sight(node: Node, engine: Engine) -> None:
    node.away = True
    await until_silent(engine)
    node.away = False


@trust_on
async def test_a_proxy_that_lost_sight_while_another_watched_has_missed_nothing(
    node: Node, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(engine, read_of(engine, "orders"), b"answer")
    own_way = Node()
    own_way.store = node.store
    metrics = Metrics()
    joined = await engine_on(own_way, metrics=metrics, reach_s=5)
    await lose_sight(own_way, joined)
    read = read_of(joined, "orders")
    await eventually_not(joined, read, DISTRUSTED)
    assert await answer_to(joined, read) == b"answer"
    assert "lost sight of a memcached node and missed nothing" in caplog.text
    assert not metrics.node_outages
    await joined.close()


async def test_a_proxy_that_lost_sight_and_is_alone_has_missed_nothing() -> None:
    async def trial() -> None:
        node, metrics = Node(), Metrics()
        engine = await engine_on(node, metrics=metrics)
        read = read_of(engine, "orders")
        await filled(engine, read, b"answer")
        node.away = True
        await asyncio.sleep(0.65 * OUTAGE_S)
        node.away = False
        await eventually_not(engine, read, DISTRUSTED, UNREACHABLE)
        assert await answer_to(engine, read) == b"answer"
        assert not metrics.node_outages
        await engine.close()

    await on_time(trial)


async def test_after_a_long_silence_who_is_alone_may_not_be_the_only_one_who_wrote() -> None:
    node, metrics = Node(), Metrics()
    engine = await engine_on(node, metrics=metrics)
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    await lose_sight(node, engine)
    await eventually_not(engine, read, DISTRUSTED, UNREACHABLE)
    assert await answer_to(engine, read) is None
    assert metrics.node_outages == 1
    await engine.close()


async def test_a_proxy_that_lost_sight_while_another_died_disowns_the_node(
    node: Node, engines: list[Engine]
) -> None:
    read = read_of(engines[0], "orders")
    await filled(engines[0], read, b"answer")
    await engines[1].fence([ORDERS])  # and dies in the middle of its write
    await engines[1].close()
    await lose_sight(node, engines[0])
    assert await engines[0].obtain(read) == DISTRUSTED
    await eventually_not(engines[0], read, DISTRUSTED)
    assert await answer_to(engines[0], read) is None


async def test_a_node_that_lost_its_memory_is_noticed_by_the_next_read(
    node: Node, engine: Engine, metrics: Metrics
) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    fence = await engine.fence([ORDERS])
    await node.request(b"md %b\r\n" % KEYSPACE.tag("shop", "orders"), 1)
    await forget(node, engine._placement.root_key("memory"))  # as a restart forgets everything
    assert await engine.obtain(read) == DISTRUSTED
    await fence.lift()
    await eventually_not(engine, read, DISTRUSTED)
    assert metrics.node_outages >= 1


@trust_on
async def test_a_memento_that_was_evicted_is_put_back(
    node: Node, engine: Engine, metrics: Metrics
) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    await forget(node, memento_of(engine))

    async def is_there() -> bool:
        return (await node.request(b"mg %b\r\n" % memento_of(engine), 1))[0][0] == b"HD"

    await eventually(is_there)
    assert await answer_to(engine, read) == b"answer"
    assert not metrics.node_outages


@pytest.mark.parametrize("late_s", [1.0, 4.0, 10.0])
async def test_proxies_that_were_all_late_keep_their_answers(
    node: Node, engines: list[Engine], metrics: Metrics, late_s: float
) -> None:
    """A pause of the whole process is one of its event loop, as where it gets no processor."""
    read = read_of(engines[0], "orders")
    await filled(engines[0], read, b"answer")
    time.sleep(late_s)  # noqa: ASYNC251 - all of them
    await forget(node, memento_of(engines[0]))
    await eventually_not(engines[0], read, DISTRUSTED)
    assert await answer_to(engines[0], read) == b"answer"
    assert not metrics.node_outages


async def test_who_owes_a_bump_does_not_say_that_nobody_does(
    node: Node, engine: Engine, metrics: Metrics
) -> None:
    own_way = Node()
    own_way.store = node.store
    writer = await engine_on(own_way)
    read = read_of(engine, "orders")
    await filled(engine, read, b"from before the write")
    node.away = own_way.away = True
    await until_silent(engine)
    await writer.bump([ORDERS])  # is owed
    node.away = False
    await forget(node, memento_of(engine))
    assert await engine.obtain(read) == DISTRUSTED
    loop, until = asyncio.get_running_loop(), engine._cluster.health_of(node.name).trusted_from
    await asyncio.sleep(OUTAGE_S / 4)
    assert await engine.obtain(read) == DISTRUSTED or loop.time() > until
    await eventually_not(engine, read, DISTRUSTED)
    assert await answer_to(engine, read) is None
    own_way.away = False
    await writer.close()


async def test_a_lost_memory_is_noticed_by_the_watch(
    node: Node, engine: Engine, metrics: Metrics
) -> None:
    await forget(node, memento_of(engine))
    await forget(node, KEYSPACE.membership(engine._placement.root_key("memory")))

    async def disowned() -> bool:
        return metrics.node_outages >= 1

    await eventually(disowned)


async def test_a_node_that_is_away_at_the_start_holds_nobody_up() -> None:
    node = Node()
    node.away = True
    async with asyncio.timeout(10):
        engine = await engine_on(node)
    assert await engine.obtain(read_of(engine, "orders")) == UNREACHABLE
    await engine.close()


async def test_a_node_that_was_away_at_the_start_comes_back_into_quarantine() -> None:
    """Writes may have gone on without it, and be under way still."""
    node = Node()
    node.away = True
    engine = await engine_on(node)
    fence = await engine.fence([ORDERS])
    node.away = False
    read = read_of(engine, "orders")

    async def greeted() -> bool:
        return engine._cluster.health_of("memory").greeted

    await eventually(greeted)
    assert await engine.obtain(read) == DISTRUSTED
    assert (await node.request(b"mg %b\r\n" % memento_of(engine), 1))[0][0] == b"EN"
    await fence.lift()
    await eventually_not(engine, read, DISTRUSTED)
    await filled(engine, read, b"answer")
    assert await answer_to(engine, read) == b"answer"
    await engine.close()


class TestWhatMySQLsLogTells:
    @trust_on
    async def test_a_process_that_starts_waits_until_it_is_proven(
        self, node: Node, engine: Engine
    ) -> None:
        await filled(engine, read_of(engine, "orders"), b"answer")
        prover = Prover(Verdict.NOT_YET)
        joined = await engine_trusting(node, prover=prover)
        read = read_of(joined, "orders")
        assert await joined.obtain(read) == DISTRUSTED
        assert await joined.obtain(read) == DISTRUSTED
        prover.says = Verdict.PROVEN
        await eventually_not(joined, read, DISTRUSTED)
        assert await answer_to(joined, read) == b"answer"
        assert prover.asked == [False]
        await joined.close()

    @trust_on
    @pytest.mark.parametrize(
        ("says", "answer"), [(Verdict.WITHOUT, b"answer"), (Verdict.NEVER, None)]
    )
    async def test_what_cannot_be_proven_is_as_without_a_log_or_forgotten(
        self, node: Node, engine: Engine, says: Verdict, answer: bytes | None
    ) -> None:
        await filled(engine, read_of(engine, "orders"), b"answer")
        joined = await engine_trusting(node, prover=Prover(says))
        read = read_of(joined, "orders")
        await eventually_not(joined, read, DISTRUSTED)
        assert await answer_to(joined, read) == answer
        assert await answer_to(engine, read_of(engine, "orders")) == answer
        await joined.close()

    async def test_a_node_that_remembers_nothing_needs_no_proof(self) -> None:
        prover = Prover(Verdict.NOT_YET)
        engine = await engine_on(Node(), prover=prover)
        await filled(engine, read_of(engine, "orders"), b"answer")
        assert not prover.asked
        await engine.close()

    @pytest.mark.parametrize(
        ("says", "answer"),
        [(Verdict.PROVEN, b"answer"), (Verdict.WITHOUT, None), (Verdict.NEVER, None)],
    )
    async def test_after_a_proxy_that_died_a_node_is_kept_that_missed_nothing(
        self, node: Node, engines: list[Engine], says: Verdict, answer: bytes | None
    ) -> None:
        await filled(engines[0], read_of(engines[0], "lines"), b"answer")
        await engines[0].close()
        await engines[1].fence([ORDERS])  # and dies in the middle of its write
        await engines[1].close()
        await forget(node, memento_of(engines[0]))
        prover, metrics = Prover(Verdict.NOT_YET), Metrics()
        later = await engine_on(node, prover=prover, metrics=metrics)
        read = read_of(later, "lines")
        while True not in prover.asked:
            assert await later.obtain(read) == DISTRUSTED
            await asyncio.sleep(0.01)
        assert await later.obtain(read) == DISTRUSTED
        prover.says = says
        await eventually_not(later, read, DISTRUSTED)
        assert await answer_to(later, read) == answer
        assert metrics.node_outages == (answer is None)
        await later.close()


async def test_time_in_which_the_machine_was_suspended_is_silence(node: Node) -> None:
    """Others may have gone on without the node: until they have said that they have not, it is not
    used."""
    one, other = [await engine_on(node) for _ in range(2)]
    read = read_of(one, "orders")
    await filled(one, read, b"answer")
    await eventually_not(other, read, DISTRUSTED)
    one._cluster._suspended_s -= 60  # by now
    assert await one.look(read) is DISTRUSTED
    await eventually_not(one, read, DISTRUSTED)
    assert await answer_to(one, read) == b"answer"
    for engine in (one, other):
        await engine.close()


@trust_on
async def test_hits_do_not_look_each_time_how_long_the_machine_was_suspended(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look at one clock does, but after a turn that was long."""
    read, looks = read_of(engine, "orders"), 0
    await filled(engine, read, b"answer")

    def looked() -> float:
        nonlocal looks
        looks += 1
        return engine._cluster._suspended_s

    monkeypatch.setattr("sqlcache.boot_clock.suspended_s", looked)
    for _ in range(200):
        assert isinstance(await engine.look(read), Hit)
    assert looks < 50


def without_eviction(folder: Path) -> PrivateMemcached:
    return PrivateMemcached(folder, memory_mb=2, options=("-M", "-I", "512k"))


def node_of(memcached: PrivateMemcached) -> NodeConnection:
    return NodeConnection("memory", memcached.host, memcached.port, timeout_s=0.5)


@asynccontextmanager
async def connected(memcached: PrivateMemcached) -> AsyncIterator[NodeConnection]:
    node = node_of(memcached)
    await node.wait_connected()
    yield node
    await node.close()


async def test_who_began_while_a_node_was_away_wrote_and_died_leaves_no_stale_answer(
    tmp_path: Path,
) -> None:
    with PrivateMemcached(tmp_path / "node") as memcached:
        async with connected(memcached) as one, connected(memcached) as two:
            engines = [await engine_on(node) for node in (one, two)]
            reads = [read_of(engine, "orders") for engine in engines]
            await filled(engines[0], reads[0], b"from before the write")
            await eventually_not(engines[1], reads[1], DISTRUSTED, UNREACHABLE)
            assert await answer_to(engines[1], reads[1]) == b"from before the write"
            memcached.freeze()
            stranger = await engine_on(node_of(memcached))
            await stranger.bump([ORDERS])  # is owed
            await stranger.close()  # as if it had died
            memcached.thaw()
            for engine, read in zip(engines, reads, strict=True):
                await eventually_not(engine, read, DISTRUSTED, UNREACHABLE)
                assert await answer_to(engine, read) is None
            await asyncio.gather(*(engine.close() for engine in engines))


async def test_who_was_alone_and_never_met_the_node_leaves_no_stale_answer_to_the_next(
    tmp_path: Path,
) -> None:
    with PrivateMemcached(tmp_path / "node") as memcached:
        async with connected(memcached) as node:
            engine = await engine_on(node)
            await filled(engine, read_of(engine, "orders"), b"from before the write")
            await engine.close()
        memcached.freeze()
        stranger = await engine_on(node_of(memcached))
        await stranger.bump([ORDERS])  # is owed
        await stranger.close()
        memcached.thaw()
        async with connected(memcached) as node:
            later = await engine_on(node)
            read = read_of(later, "orders")
            await eventually_not(later, read, DISTRUSTED)
            assert await answer_to(later, read) is None
            await later.close()


async def test_when_the_first_memcached_is_back_at_its_address_what_it_remembers_is_forgotten(
    tmp_path: Path,
) -> None:
    first, other = PrivateMemcached(tmp_path / "first"), PrivateMemcached(tmp_path / "other")
    with first, other:
        async with connected(first) as one, connected(first) as two:
            engines = [await engine_on(node) for node in (one, two)]
            reads = [read_of(engine, "orders") for engine in engines]
            await filled(engines[0], reads[0], b"from before the write")
            await eventually_not(engines[1], reads[1], DISTRUSTED, UNREACHABLE)
            assert await answer_to(engines[1], reads[1]) == b"from before the write"
            await lead_to(other, one, two)
            for engine, read in zip(engines, reads, strict=True):
                await eventually_not(engine, read, DISTRUSTED, UNREACHABLE)
            await engines[1].bump([ORDERS])
            await lead_to(first, one, two)
            for _ in range(20):
                assert await answer_to(engines[0], reads[0]) is None
                await asyncio.sleep(OUTAGE_S / 8)
            await asyncio.gather(*(engine.close() for engine in engines))


async def lead_to(memcached: PrivateMemcached, *nodes: NodeConnection) -> None:
    """Another memcached answers at the address."""
    for node in nodes:
        node._port = memcached.port
        assert node._pipeline is not None
        node._pipeline.drop("its address leads elsewhere")
    await asyncio.gather(*(node.wait_connected() for node in nodes))


async def fill_up(node: NodeConnection) -> None:
    """Leaves no room for anything small, in no class of sizes: each has a quarter more."""
    timeout_s, node.timeout_s = node.timeout_s, 20
    for size in range(16, 400, 16):
        number, stored = 0, True
        while stored:
            keys = [b"%030d" % (size * 100_000 + at) for at in range(number, number + 1000)]
            junk = b"".join(meta_set(key, bytes(size), ttl_s=0) for key in keys)
            stored = (await node.request(junk, 1000))[-1][0] == b"HD"
            number += 1000
    node.timeout_s = timeout_s


async def test_who_finds_no_room_in_the_membership_may_have_gone_on_without_the_node(
    tmp_path: Path,
) -> None:
    with without_eviction(tmp_path / "full") as full:
        async with connected(full) as one, connected(full) as other:
            engine = await engine_on(one)
            read = read_of(engine, "orders")
            await filled(engine, read, b"from before the write")
            await fill_up(one)
            writer = await engine_on(other)
            full.freeze()
            await until_silent(engine)
            await writer.bump([ORDERS])  # is owed
            await writer.close()  # as if it had died
            full.thaw()
            for _ in range(20):
                assert await answer_to(engine, read) is None
                await asyncio.sleep(OUTAGE_S / 8)
            await engine.close()


async def test_a_membership_that_was_evicted_stands_for_who_was_in_it(
    node: Node, engines: list[Engine]
) -> None:
    read = read_of(engines[0], "orders")
    await filled(engines[0], read, b"from before the write")
    await engines[1].fence([LINES])  # and dies in the middle of its write
    await engines[1].close()
    await forget(node, KEYSPACE.membership(engines[0]._placement.root_key("memory")))
    await lose_sight(node, engines[0])
    await eventually_not(engines[0], read, DISTRUSTED, UNREACHABLE)
    assert await answer_to(engines[0], read) is None


async def test_a_node_without_room_for_anything_holds_nobody_up(tmp_path: Path) -> None:
    with without_eviction(tmp_path / "full") as full:
        async with connected(full) as one, connected(full) as other:
            await fill_up(one)
            async with asyncio.timeout(20):
                engine = await engine_on(other)
            assert await answer_to(engine, read_of(engine, "orders")) is None
            await engine.close()
