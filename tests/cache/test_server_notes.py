"""Which server the answers on each node are from: who starts forgets what another's are."""

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.cache.tags import ROOT
from sqlcache.memcache.protocol import meta_delete, meta_get
from tests.cache.engines import KEYSPACE, Node, answer_to, engine_on, filled, read_of

DATA = "shop"
ONE, ANEW = "one 100", "one 200"


async def started(*nodes: Node, server: str = ONE) -> Engine:
    """One that has just begun, and has met this server."""
    engine = await engine_on(*nodes)
    await engine.answers_are_of(DATA, server)
    return engine


async def noted_on(node: Node) -> bytes | None:
    ((_, noted, _),) = await node.request(meta_get(KEYSPACE.server(DATA)), 1)
    return noted


async def test_who_starts_leaves_the_answers_of_the_same_server(node: Node) -> None:
    first = await started(node)
    await filled(first, read_of(first, "orders"), b"stored")
    second = await started(node)
    assert await answer_to(second, read_of(second, "orders")) == b"stored"
    for engine in (first, second):
        await engine.close()


async def test_who_starts_forgets_those_from_before_it_began_anew(node: Node) -> None:
    """Though nobody who was at work has met it since."""
    first = await started(node)
    await filled(first, read_of(first, "orders"), b"stored")
    second = await started(node, server=ANEW)
    assert await noted_on(node) == ANEW.encode()
    for engine in (first, second):
        assert await answer_to(engine, read_of(engine, "orders")) is None
        await engine.close()


async def test_so_does_who_finds_no_note(node: Node) -> None:
    first = await started(node)
    await filled(first, read_of(first, "orders"), b"stored")
    await node.request(meta_delete(KEYSPACE.server(DATA)), 1)
    second = await started(node)
    assert await answer_to(second, read_of(second, "orders")) is None
    for engine in (first, second):
        await engine.close()


async def test_who_is_at_work_puts_back_a_note_that_was_lost(node: Node) -> None:
    engine = await started(node)
    await filled(engine, read_of(engine, "orders"), b"stored")
    await node.request(meta_delete(KEYSPACE.server(DATA)), 1)
    assert not await engine.answers_are_of(DATA, ONE)
    assert await noted_on(node) == ONE.encode()
    assert await answer_to(engine, read_of(engine, "orders")) == b"stored"
    await engine.close()


@pytest.mark.parametrize("data_set", [DATA, "another"])
async def test_who_is_at_work_and_meets_another_forgets_whatever_is_noted(
    node: Node, data_set: str
) -> None:
    first = await started(node)
    second = await started(node, server=ANEW)
    await filled(first, read_of(first, "orders"), b"stored")
    steps = await first.answers_are_of(data_set, ANEW)
    assert await answer_to(second, read_of(second, "orders")) is None
    ((tag, (_, version)),) = steps.items()
    assert (tag, version) == (ROOT.on(node.name), (await first.versions([ROOT]))[tag])
    for engine in (first, second):
        await engine.close()


async def test_a_node_that_is_away_is_bumped_when_it_is_back(node: Node) -> None:
    other = Node("other")
    first = await started(node, other)
    names = {"orders", "items", "stock", "users", "carts", "prices"}
    reads = [read_of(first, name, text=name.encode()) for name in names]
    for read in reads:
        await filled(first, read, b"stored")
    other.away = True
    second = await engine_on(node, other)
    await second.answers_are_of(DATA, ANEW)
    assert await noted_on(node) == ANEW.encode()
    other.away = False
    await second._fences.owed.flush()
    for read in reads:
        assert await answer_to(first, read) is None
    assert await noted_on(other) == ONE.encode()  # until its next start
    for engine in (first, second):
        await engine.close()
