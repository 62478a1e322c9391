"""The engine as a whole: what is stored, found and forgotten."""

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.cache.leases import Lease
from sqlcache.cache.outcomes import UNREACHABLE
from sqlcache.cache.tags import ROOT, Tag
from tests.cache.engines import (
    KEYSPACE,
    LINES,
    ORDERS,
    Node,
    answer_to,
    entry_of,
    filled,
    read_of,
)


async def test_a_filled_answer_is_a_hit_for_every_engine(engines: list[Engine]) -> None:
    await filled(engines[0], read_of(engines[0], "orders"), b"answer")
    for engine in engines:
        assert await answer_to(engine, read_of(engine, "orders")) == b"answer"


@pytest.mark.parametrize("tag", [ORDERS, Tag("shop"), ROOT])
async def test_a_bump_of_any_of_its_tags_forgets_an_answer(engines: list[Engine], tag: Tag) -> None:
    read = read_of(engines[0], "orders")
    await filled(engines[0], read, b"answer")
    await engines[1].bump([tag])
    assert await answer_to(engines[0], read) is None


@pytest.mark.parametrize("tag", [LINES, Tag("blog"), Tag("blog", "orders")])
async def test_a_bump_of_another_tag_forgets_nothing(engine: Engine, tag: Tag) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    await engine.bump([tag])
    assert await answer_to(engine, read) == b"answer"


async def test_an_answer_that_a_write_overtook_is_never_served(engine: Engine) -> None:
    read = read_of(engine, "orders")
    lease = await engine.obtain(read)
    assert isinstance(lease, Lease)
    await (await engine.fence([ORDERS])).lift()
    await lease.fill(entry_of(lease, b"from before the write"))
    assert await answer_to(engine, read) is None


async def test_a_store_that_is_away_is_bypassed(node: Node, engine: Engine) -> None:
    node.away = True
    assert await engine.obtain(read_of(engine, "orders")) == UNREACHABLE


async def test_a_tag_that_is_lost_forgets_its_answers(node: Node, engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    await node.request(b"md %b\r\n" % KEYSPACE.tag("shop", "orders"), 1)
    assert await answer_to(engine, read) is None


async def test_a_log_that_cannot_be_read_is_mended(node: Node, engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    key = KEYSPACE.tag("shop", "orders")
    await node.request(b"ms %b 3\r\n???\r\n" % key, 1)
    assert await answer_to(engine, read) is None
    await filled(engine, read, b"new")
    assert await answer_to(engine, read) == b"new"
