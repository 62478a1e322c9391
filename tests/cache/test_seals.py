"""Entries that somebody without the secret has put into memcached."""

import logging

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.cache.parts import parts_of
from sqlcache.cache.seals import SEAL_BYTES, Seal
from sqlcache.memcache.memory import MemoryNode
from sqlcache.memcache.protocol import meta_set
from sqlcache.metrics import Metrics
from tests.cache.engines import KEYSPACE, answer_to, engine_on, filled, limits, read_of

SECRET = "a secret of our own"


async def item_at(node: MemoryNode, key: bytes) -> bytes:
    ((_, item, _),) = await node.request(b"mg %b v\r\n" % key, 1)
    assert item is not None
    return item


async def put(node: MemoryNode, key: bytes, item: bytes) -> None:
    await node.request(meta_set(key, item, ttl_s=60), 1)


async def test_who_knows_the_secret_serves_what_others_have_stored(metrics: Metrics) -> None:
    node = MemoryNode()
    one, other = [await engine_on(node, secret=SECRET, metrics=metrics) for _ in range(2)]
    await filled(one, read_of(one, "orders"), b"answer")
    assert await answer_to(other, read_of(other, "orders")) == b"answer"
    assert metrics.seals_broken == 0
    await one.close()
    await other.close()


@pytest.mark.parametrize("forge", ["changed", "another's", "moved", "unsealed", "cut", "nothing"])
async def test_what_somebody_else_has_stored_is_fetched_anew(
    metrics: Metrics, caplog: pytest.LogCaptureFixture, forge: str
) -> None:
    node = MemoryNode()
    engine = await engine_on(node, secret=SECRET, metrics=metrics)
    read, elsewhere = read_of(engine, "orders"), read_of(engine, "orders", text=b"SELECT other")
    await filled(engine, read, b"answer")
    await filled(engine, elsewhere, b"other")
    item = await item_at(node, read.key)
    value = item[:-SEAL_BYTES]
    forged = {
        "changed": item.replace(b"answer", b"forged"),
        "another's": Seal(Metrics(), "some other secret").sealed(read.key, value),
        "moved": await item_at(node, elsewhere.key),
        "unsealed": value,
        "cut": item[:-1],
        "nothing": b"x",
    }
    await put(node, read.key, forged[forge])
    assert await answer_to(engine, read) is None
    assert metrics.seals_broken > 0
    told = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert len(told) == 1, "not one a read"
    await filled(engine, read, b"answer again")
    assert await answer_to(engine, read) == b"answer again"
    await engine.close()


async def test_a_forged_part_is_as_good_as_none(metrics: Metrics) -> None:
    node = MemoryNode(max_item_bytes=2_000)
    own = limits(max_item_bytes=1_500)
    engine = await engine_on(node, secret=SECRET, metrics=metrics, own=own)
    read = read_of(engine, "orders")
    answer = bytes(range(256)) * 20
    await filled(engine, read, answer)
    assert await answer_to(engine, read) == answer
    _, fill_id = parts_of((await item_at(node, read.key))[:-SEAL_BYTES], 8 * len(read.tags.tags))
    part = KEYSPACE.part(read.key, fill_id, 1)
    assert len(await item_at(node, part)) == 1_500, "the seal is within the limit"
    await put(node, part, (await item_at(node, part)).replace(b"ABC", b"abc"))
    assert await answer_to(engine, read) is None
    assert metrics.seals_broken == 1
    await engine.close()


async def test_those_with_another_secret_have_entries_of_their_own() -> None:
    """So none fights for a key with them, and a secret can be changed one process at a time."""
    node = MemoryNode()
    metrics = Metrics()
    engines: list[Engine] = []
    for secret in (None, SECRET, "the secret after that"):
        engines.append(await engine_on(node, secret=secret, metrics=metrics))
    for number, engine in enumerate(engines):
        await filled(engine, read_of(engine, "orders"), b"answer %d" % number)
    for number, engine in enumerate(engines):
        assert await answer_to(engine, read_of(engine, "orders")) == b"answer %d" % number
    assert metrics.seals_broken == 0
    for engine in engines:
        await engine.close()
