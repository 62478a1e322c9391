"""Entries in and out of memcached: in parts, over nodes, and recorded for people."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count

import pytest

from sqlcache.cache import parts
from sqlcache.cache.engine import Engine
from sqlcache.cache.leases import Lease
from sqlcache.cache.outcomes import DISTRUSTED, UNREACHABLE, Hit
from sqlcache.cache.parts import parts_of
from sqlcache.cache.reads import Freshness, Read
from sqlcache.demo.servers import PrivateMemcached
from sqlcache.memcache.connection import Done, NodeConnection
from sqlcache.memcache.memory import MemoryNode
from sqlcache.metrics import Metrics
from tests.cache.engines import (
    KEYSPACE,
    Counting,
    Node,
    answer_in,
    answer_to,
    engine_on,
    entry_of,
    eventually_not,
    filled,
    limits,
    read_of,
)


async def test_a_long_entry_is_served_whole_from_several_nodes() -> None:
    nodes = [MemoryNode(f"node {n}", max_item_bytes=2_000) for n in range(3)]
    engine = await engine_on(*nodes, own=limits(max_item_bytes=1_500))
    read = read_of(engine, "orders")
    answer = bytes(range(256)) * 100
    await filled(engine, read, answer)
    assert await answer_to(engine, read) == answer
    assert all(len(node.store) > 2 for node in nodes)
    await engine.close()


async def test_a_part_that_is_lost_is_a_miss_and_then_filled_anew() -> None:
    node = MemoryNode(max_item_bytes=2_000)
    engine = await engine_on(node, own=limits(max_item_bytes=1_500))
    read = read_of(engine, "orders")
    await filled(engine, read, bytes(5_000))
    (reply,) = await node.request(b"mg %b v\r\n" % read.key, 1)
    assert reply[1] is not None
    _, fill_id = parts_of(reply[1], 8 * len(read.tags.tags))
    await node.request(b"md %b\r\n" % KEYSPACE.part(read.key, fill_id, 1), 1)
    assert await answer_to(engine, read) is None
    await filled(engine, read, b"new")
    assert await answer_to(engine, read) == b"new"
    await engine.close()


async def test_an_entry_outlives_that_the_node_of_a_part_is_away() -> None:
    one, two = Node("one"), Node("two")
    engine = await engine_on(one, two, own=limits(max_item_bytes=1_500))

    def needs_one_alone(read: Read) -> bool:
        keys = [read.key, *(key for key, _ in read.tags.requests)]
        return all(engine._cluster.node_of(key) == "one" for key in keys)

    reads = (read_of(engine, f"t{number}", text=b"SELECT %d" % number) for number in count())
    read = next(filter(needs_one_alone, reads))
    answer = bytes(range(256)) * 100
    await filled(engine, read, answer)
    two.away = True
    assert await engine.obtain(read) is UNREACHABLE
    two.away = False
    assert await answer_to(engine, read) == answer
    await engine.close()


async def test_an_entry_may_be_longer_than_what_may_be_on_its_way_at_once(
    memcached: PrivateMemcached,
) -> None:
    node = NodeConnection(
        *("one", memcached.host, memcached.port),
        timeout_s=20,
        max_outstanding_bytes=3_000_000,
    )
    engine = await engine_on(node)
    reads = [read_of(engine, "orders", text=b"SELECT %d" % number) for number in range(3)]
    answer = bytes(range(256)) * 40_000
    await asyncio.gather(*(filled(engine, read, answer) for read in reads))
    for read in reads:
        assert await answer_to(engine, read) == answer
    await engine.close()
    await node.close()


async def test_others_have_their_turn_between_the_parts_of_an_entry() -> None:
    counts: list[int] = []

    class Watched(Node):
        def submit(self, payload: bytes, count: int, done: Done) -> None:
            counts.append(payload.count(b" test:p"))
            super().submit(payload, count, done)

    engine = await engine_on(Watched())
    read = read_of(engine, "orders")
    await filled(engine, read, bytes(15_000_000))
    assert await answer_to(engine, read) == bytes(15_000_000)
    assert sum(counts) == 2 * 16
    assert max(counts) == 2
    await engine.close()


@pytest.mark.parametrize(("max_item_bytes", "over_bytes"), [(2_000, 0), (1_000_000, 1_000)])
async def test_what_was_put_together_is_near_from_then_on(
    max_item_bytes: int, over_bytes: int
) -> None:
    node = Counting()
    own = limits(
        near_bytes=1_000_000, max_item_bytes=max_item_bytes, compress_over_bytes=over_bytes
    )
    filler, other = [await engine_on(node, own=own) for _ in range(2)]
    read = read_of(other, "orders")
    await filled(filler, read_of(filler, "orders"), bytes(10_000))
    await eventually_not(other, read, DISTRUSTED)
    node.payloads.clear()
    got = await other.obtain(read)
    assert isinstance(got, Hit)
    assert got.near
    assert answer_in(got) == bytes(10_000)
    (payload,) = node.payloads
    assert read.key not in payload
    for engine in (filler, other):
        await engine.close()


class Slow(Node):
    """Answers nothing of parts until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Callable[[], None]] | None = None
        self.holding = asyncio.Event()

    def submit(self, payload: bytes, count: int, done: Done) -> None:
        if self.held is not None and payload.startswith(b"mg test:p"):
            self.held.append(partial(super().submit, payload, count, done))
            self.holding.set()
        else:
            super().submit(payload, count, done)


async def parted(node: Node, *, over_bytes: int = 0) -> tuple[Engine, Read]:
    """An engine that keeps nothing near, and what is stored there in parts, or compressed."""
    own = limits(max_item_bytes=1_000_000 if over_bytes else 2_000, compress_over_bytes=over_bytes)
    engine = await engine_on(node, own=own)
    read = read_of(engine, "orders")
    await filled(engine, read, bytes(20_000))
    return engine, read


@pytest.mark.parametrize("over_bytes", [0, 1_000])
async def test_who_wants_the_same_meanwhile_shares_what_is_put_together(over_bytes: int) -> None:
    node = Counting()
    engine, read = await parted(node, over_bytes=over_bytes)
    before = node.requests
    await engine.obtain(read)
    one = node.requests - before
    got = await asyncio.gather(*(engine.obtain(read) for _ in range(20)))
    assert node.requests - before - one < 2 * one
    hits = [each for each in got if isinstance(each, Hit)]
    assert {answer_in(hit) for hit in hits} == {bytes(20_000)}
    assert len({id(hit) for hit in hits}) == 20
    assert len({id(hit.value) for hit in hits}) == 1
    assert not engine._store._unpacking
    await engine.close()


async def test_that_one_who_waits_for_the_parts_leaves_is_nothing_to_the_others() -> None:
    node = Slow()
    engine, read = await parted(node)
    node.held = []
    waiting = [asyncio.create_task(engine.obtain(read)) for _ in range(3)]
    async with asyncio.timeout(30):
        await node.holding.wait()
    waiting[0].cancel()
    await asyncio.wait({waiting[0]})
    (answer,) = node.held
    answer()
    for each in waiting[1:]:
        hit = await each
        assert isinstance(hit, Hit)
        assert answer_in(hit) == bytes(20_000)
    assert not engine._store._unpacking
    await engine.close()


async def test_what_fails_while_it_is_put_together_fails_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, read = await parted(Node())
    with monkeypatch.context() as patched:
        patched.setattr(parts, "join", None)
        got = await asyncio.gather(*(engine.obtain(read) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in got] == [TypeError] * 3
    assert await answer_to(engine, read) == bytes(20_000)
    await engine.close()


async def test_it_is_near_no_longer_than_it_lives() -> None:
    node = Node()
    own = limits(near_bytes=1_000_000, max_item_bytes=2_000)
    filler, other = [await engine_on(node, own=own) for _ in range(2)]
    freshness = Freshness(100)
    read = read_of(other, "orders", freshness=freshness)
    await filled(filler, read_of(filler, "orders", freshness=freshness), bytes(10_000))
    await eventually_not(other, read, DISTRUSTED)
    near = other._lookups._near
    assert near.has(read.key, other.time() + 60)
    assert not near.has(read.key, other.time() + 90)
    for engine in (filler, other):
        await engine.close()


async def test_an_entry_memcached_does_not_take_is_no_error(metrics: Metrics) -> None:
    node = MemoryNode(max_item_bytes=2_000)
    engine = await engine_on(node, metrics=metrics, own=limits(max_item_bytes=10_000))
    read = read_of(engine, "orders")
    await filled(engine, read, bytes(5_000))
    assert metrics.fills_failed == 1
    assert await answer_to(engine, read) is None
    await engine.close()


@pytest.mark.parametrize("soon", [False, True])
async def test_an_entry_of_too_many_parts_is_not_stored_and_no_error(
    metrics: Metrics, soon: bool
) -> None:
    engine = await engine_on(MemoryNode(), metrics=metrics, own=limits(max_item_bytes=100))
    read = read_of(engine, "orders")
    lease = await engine.obtain(read)
    assert isinstance(lease, Lease)
    made = entry_of(lease, bytes(100 * 65_535))
    if soon:
        lease.fill_soon(made)
    else:
        await lease.fill(made)
    assert metrics.fills_failed == 1
    async with asyncio.timeout(30):
        await filled(engine, read, b"short")
    assert await answer_to(engine, read) == b"short"
    await engine.close()


async def test_no_more_is_written_of_a_table_than_is_kept() -> None:
    written: list[bytes] = []
    key = KEYSPACE.recorded("shop", "orders")

    class Watched(Node):
        def submit(self, payload: bytes, count: int, done: Done) -> None:
            if key in payload:
                written.append(payload)
            super().submit(payload, count, done)

    engine = await engine_on(Watched())
    reads = [
        read_of(engine, "orders", f"t{number % 500}", text=b"SELECT %d" % number + b" " * 200)
        for number in range(5_000)
    ]
    for read in reads:
        engine._store._key_index.note(read)
    async with asyncio.timeout(10):
        while not written:
            await asyncio.sleep(0.01)
    assert reads[-1].key in written[0]
    assert written[0].count(b" SELECT ") < 5_000 + 100, "once for each of the others"
    await engine.close()


async def test_what_hangs_on_a_table_is_recorded_within_bounds(node: Node, engine: Engine) -> None:
    for number in range(400):
        read = read_of(engine, "orders", text=b"SELECT %d" % number + b" " * 100)
        await filled(engine, read, b"answer")
        if number % 20 == 19:
            await asyncio.sleep(0.25)  # they are written together
    (reply,) = await node.request(b"mg %b v\r\n" % KEYSPACE.recorded("shop", "orders"), 1)
    assert reply[1] is not None
    assert read.key + b" SELECT 399" in reply[1]
    assert len(reply[1]) < 17_000
