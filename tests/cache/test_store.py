"""Entries in and out of memcached: in parts, over nodes, and recorded for people."""

import asyncio
from itertools import count

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.cache.leases import Lease
from sqlcache.cache.outcomes import DISTRUSTED, UNREACHABLE, Hit
from sqlcache.cache.parts import parts_of
from sqlcache.cache.reads import Freshness, Read
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
    async with asyncio.timeout(1):
        await filled(engine, read, b"short")
    assert await answer_to(engine, read) == b"short"
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
