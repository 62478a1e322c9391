"""Batches: what is asked of memcached, and what near entries spare."""

import asyncio
import math

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.cache.entry import HEADER_BYTES
from sqlcache.cache.leases import Lease
from sqlcache.cache.outcomes import OUTDATED, Bypass, Hit, Miss, Outcome
from sqlcache.cache.reads import Freshness
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.memcache.connection import Done
from sqlcache.memcache.protocol import Reply, meta_get, meta_set
from tests.cache.engines import (
    ORDERS,
    Counting,
    Node,
    answer_to,
    engine_on,
    eventually,
    filled,
    limits,
    read_of,
)


async def test_reads_of_one_turn_are_one_write_that_asks_for_each_tag_once() -> None:
    node = Counting()
    engine = await engine_on(node)
    reads = [read_of(engine, "orders", text=b"SELECT %d" % n) for n in range(50)]
    for read in reads:
        await filled(engine, read, b"answer")
    node.payloads.clear()
    await asyncio.gather(*(answer_to(engine, read) for read in reads * 4))
    (payload,) = node.payloads
    tags = len(reads[0].tags.tags)
    assert payload.count(b"mg test:") == len(reads) + tags
    await engine.close()


async def test_of_the_reads_of_one_turn_one_fetches_an_answer_early(
    node: Node, engine: Engine
) -> None:
    read = read_of(engine, "orders", freshness=Freshness(10))
    await filled(engine, read, b"answer")
    node.submit(meta_get(read.key, b"T1"), 1, lambda _: None)  # the seconds it has left
    got = await asyncio.gather(*(engine.obtain(read) for _ in range(4)))
    assert sorted(type(each).__name__ for each in got) == ["Hit", "Hit", "Hit", "Lease"]
    for each in got:
        if isinstance(each, Lease):
            await each.release()


async def test_an_entry_that_was_cut_is_filled_anew(node: Node, engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    ((_, value, _),) = await node.request(meta_get(read.key), 1)
    assert value is not None
    for size in range(8 * len(read.tags.tags) + HEADER_BYTES):
        await node.request(meta_set(read.key, value[:size], ttl_s=60), 1)
        got = await engine.obtain(read)
        assert isinstance(got, Lease)
        await got.release()


async def test_a_near_entry_needs_only_its_tags() -> None:
    node = Counting()
    engine = await engine_on(node, own=limits(near_bytes=100_000))
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    node.payloads.clear()
    assert await answer_to(engine, read) == b"answer"
    (payload,) = node.payloads
    assert read.key not in payload
    await engine.close()


async def test_a_near_entry_is_as_strict_as_any(node: Node, engine: Engine) -> None:
    near = await engine_on(node, own=limits(near_bytes=100_000))
    read = read_of(near, "orders")
    await filled(near, read, b"old")
    assert await answer_to(near, read) == b"old"
    await engine.bump([ORDERS])
    assert await answer_to(near, read) is None
    await filled(engine, read_of(engine, "orders"), b"new")
    assert await answer_to(near, read) == b"new"
    await near.close()


async def test_who_will_need_another_than_the_near_entry_asks_at_once() -> None:
    node = Counting()
    engine = await engine_on(node, own=limits(near_bytes=100_000))
    one, other = (read_of(engine, "orders", text=text) for text in (b"SELECT 1", b"SELECT 2"))
    for read in (one, other):
        await filled(engine, read, b"answer")
        assert await answer_to(engine, read) == b"answer"
    await engine.bump([ORDERS])
    assert isinstance(await engine.look(one), Miss)
    node.payloads.clear()
    assert isinstance(await engine.look(other), Miss)
    (payload,) = node.payloads
    assert other.key in payload
    await engine.close()


async def test_by_rule_versions_seen_lately_are_taken_as_read(node: Node, engine: Engine) -> None:
    near = await engine_on(node, own=limits(near_bytes=100_000))
    read = read_of(near, "orders", freshness=Freshness(60, max_staleness_s=60))
    await filled(near, read, b"old")
    assert await answer_to(near, read) == b"old"
    await engine.bump([ORDERS])
    assert await answer_to(near, read) == b"old"
    assert read.tags.last_seen is not None
    versions, seen_at = read.tags.last_seen
    read.tags.last_seen = versions, seen_at - 60
    assert await answer_to(near, read) is None
    await near.close()


@pytest.mark.parametrize("tag", [Tag("shop"), ROOT])
async def test_no_rule_lets_definitions_and_rights_be_old(
    node: Node, engine: Engine, tag: Tag
) -> None:
    near = await engine_on(node, own=limits(near_bytes=100_000))
    read = read_of(near, "orders", freshness=Freshness(60, max_staleness_s=60))
    await filled(near, read, b"old")
    assert await answer_to(near, read) == b"old"
    await engine.bump([tag])
    assert near.at_once(read) is None
    assert await answer_to(near, read) is None
    await near.close()


async def test_what_may_be_old_asks_for_its_definitions_alone_and_not_within_a_read_lease() -> None:
    node = Counting()
    engine = await engine_on(node, own=limits(near_bytes=100_000))
    read = read_of(engine, "orders", freshness=Freshness(60, max_staleness_s=60))
    await filled(engine, read, b"old")
    definitions = read.tags.definitions
    assert definitions is not None
    assert {tag.kind for tag in definitions.tags} == {"root", "schema"}
    read.tags.window = 0.0
    node.payloads.clear()
    assert await answer_to(engine, read) == b"old"
    assert not node.payloads, "those that ask for the table"
    definitions.window = 0.0
    assert engine.at_once(read) is None
    definitions.window = math.inf
    assert isinstance(engine.at_once(read), Hit)
    await engine.bump([ORDERS])
    assert isinstance(engine.at_once(read), Hit)
    await engine.close()


async def test_a_read_planned_under_other_definitions_is_outdated(engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    engine.plan_under(await engine.versions([ROOT, Tag("shop")]))
    assert await answer_to(engine, read) == b"answer"
    await engine.bump([Tag("shop")])
    outcomes: list[Outcome] = []
    engine.lookup(read, outcomes.append)

    async def answered() -> bool:
        return bool(outcomes)

    await eventually(answered)
    assert outcomes == [OUTDATED]


async def test_a_waiter_that_raises_is_no_trouble_of_others(engine: Engine) -> None:
    reads = [read_of(engine, "orders", text=b"SELECT %d" % n) for n in range(3)]
    for read in reads:
        await filled(engine, read, b"answer")
    told: list[Outcome] = []

    def raises(outcome: Outcome) -> None:
        raise RuntimeError("a fault of the waiter")

    for read in reads:
        engine.lookup(read, raises)
        engine.lookup(read, told.append)

    async def all_told() -> bool:
        return len(told) == len(reads)

    await eventually(all_told)


class Garbling(Node):
    """Says of one entry that it lives until tomorrow."""

    garbled = b"none"

    def submit(self, payload: bytes, count: int, done: Done) -> None:
        requests = payload.split(b"\r\n")

        def garble(replies: list[Reply] | None) -> None:
            if replies is not None and self.garbled in requests:
                at = requests.index(self.garbled)
                replies[at] = (*replies[at][:2], b"ttomorrow")
            done(replies)

        super().submit(payload, count, garble)


async def test_a_reply_that_makes_no_sense_ends_no_other_look_up() -> None:
    node = Garbling()
    engine = await engine_on(node)
    reads = [read_of(engine, "orders", text=b"SELECT %d" % n) for n in range(2)]
    for read in reads:
        await filled(engine, read, b"answer")
    node.garbled = reads[0].request[1].strip()
    async with asyncio.timeout(20):
        outcomes = await asyncio.gather(*map(engine.look, reads))
    assert [type(outcome) for outcome in outcomes] == [Bypass, Hit]
    await engine.close()
