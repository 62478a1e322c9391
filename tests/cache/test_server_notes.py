"""Which server the answers on each node are from: who starts forgets what another's are."""

import asyncio

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.cache.fences import Fences
from sqlcache.cache.server_notes import Origin
from sqlcache.cache.tag_logs import Steps
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.memcache.health import Health
from sqlcache.memcache.protocol import meta_delete, meta_get
from tests.cache.engines import (
    KEYSPACE,
    Node,
    answer_to,
    engine_on,
    eventually,
    filled,
    read_of,
)

ONE = Origin("shop", "one", 100)
ANEW = ONE._replace(began=200)
OTHER = ONE._replace(server="other")
NAMES = ("orders", "items", "stock", "users", "carts", "prices")


async def started(*nodes: Node, origin: Origin = ONE) -> Engine:
    """One that has just begun, and has met this server."""
    engine = await engine_on(*nodes)
    await engine.answers_are_of(origin)
    return engine


async def noted_on(node: Node) -> bytes | None:
    ((_, noted, _),) = await node.request(meta_get(KEYSPACE.server("shop")), 1)
    return noted


async def owes_nothing(engine: Engine) -> bool:
    return not engine._fences.owed.tags


async def is_greeted(health: Health) -> bool:
    return health.greeted


async def close(*engines: Engine) -> None:
    for engine in engines:
        await engine.close()


async def test_who_starts_leaves_the_answers_of_the_same_server(node: Node) -> None:
    first = await started(node)
    await filled(first, read_of(first, "orders"), b"stored")
    second = await started(node)
    assert await answer_to(second, read_of(second, "orders")) == b"stored"
    await close(first, second)


@pytest.mark.parametrize("origin", [ANEW, OTHER])
async def test_who_starts_forgets_those_of_another_or_from_before_it_began_anew(
    node: Node, origin: Origin
) -> None:
    """Though nobody who was at work has met it since."""
    first = await started(node)
    await filled(first, read_of(first, "orders"), b"stored")
    second = await started(node, origin=origin)
    assert await noted_on(node) == origin.note
    for engine in (first, second):
        assert await answer_to(engine, read_of(engine, "orders")) is None
    await close(first, second)


async def test_so_does_who_finds_no_note(node: Node) -> None:
    first = await started(node)
    await filled(first, read_of(first, "orders"), b"stored")
    await node.request(meta_delete(KEYSPACE.server("shop")), 1)
    second = await started(node)
    assert await answer_to(second, read_of(second, "orders")) is None
    await close(first, second)


async def test_who_is_at_work_puts_back_a_note_that_was_lost(node: Node) -> None:
    engine = await started(node)
    await filled(engine, read_of(engine, "orders"), b"stored")
    await node.request(meta_delete(KEYSPACE.server("shop")), 1)
    assert not await engine.answers_are_of(ONE)
    assert await noted_on(node) == ONE.note
    assert await answer_to(engine, read_of(engine, "orders")) == b"stored"
    await engine.close()


async def test_who_is_at_work_and_meets_it_after_others_forgets_nothing_more(node: Node) -> None:
    first = await started(node)
    second = await started(node, origin=ANEW)
    await filled(second, read_of(second, "orders"), b"stored")
    assert not await first.answers_are_of(ANEW)
    assert await answer_to(first, read_of(first, "orders")) == b"stored"
    await close(first, second)


@pytest.mark.parametrize("origin", [OTHER, ONE._replace(data_set="another")])
async def test_who_is_at_work_and_meets_another_forgets_whatever_is_noted(
    node: Node, origin: Origin
) -> None:
    first = await started(node)
    second = await started(node, origin=origin)
    await filled(second, read_of(second, "orders"), b"stored")
    steps = await first.answers_are_of(origin)
    assert await answer_to(second, read_of(second, "orders")) is None
    ((tag, (_, version)),) = steps.items()
    assert (tag, version) == (ROOT.on(node.name), (await first.versions([ROOT]))[tag])
    await close(first, second)


async def test_a_node_that_is_away_is_bumped_when_it_is_back_and_noted_with_that(
    node: Node,
) -> None:
    """Or who met the one from before again would take its answers for that one's."""
    other = Node("other")
    first = await started(node, other)
    reads = [read_of(first, name, text=name.encode()) for name in NAMES]
    for read in reads:
        await filled(first, read, b"stored")
    second = await started(node, other)
    other.away = True
    await second.answers_are_of(OTHER)
    assert await noted_on(node) == OTHER.note
    other.away = False
    await eventually(lambda: owes_nothing(second))
    await asyncio.sleep(0)
    assert await noted_on(other) == OTHER.note
    for read in reads:
        assert await answer_to(first, read) is None
    await close(first, second)


@pytest.mark.parametrize("origin", [ONE, ANEW])
async def test_one_that_is_away_as_somebody_starts_is_asked_before_it_is_used(
    node: Node, origin: Origin
) -> None:
    """Nothing is owed to it, for its answers may be right."""
    other = Node("other")
    first = await started(node, other)
    reads = [read_of(first, name, text=name.encode()) for name in NAMES]
    for read in reads:
        await filled(first, read, b"stored")
    other.away = True
    second = await started(node, other, origin=origin)
    health = second._cluster.health_of("other")
    assert not second._fences.owed.tags
    assert not health.greeted
    other.away = False
    await eventually(lambda: is_greeted(health))
    assert await noted_on(other) == origin.note
    for read in reads:
        assert await answer_to(first, read) == (b"stored" if origin == ONE else None)
    await close(first, second)


async def test_a_note_is_put_only_where_the_bump_was_made(node: Node) -> None:
    """Who meets the server then, or starts, has no hits from before, though the note is read
    again meanwhile."""
    other = Node("other")
    first, second = await started(node, other), await started(node, other)
    reads = [read_of(first, name, text=name.encode()) for name in NAMES]
    for read in reads:
        await filled(first, read, b"stored")
    other.away = True
    await second.answers_are_of(ANEW)
    other.away = False
    await second.answers_are_of(ANEW)
    assert second._fences.owed.tags
    assert await noted_on(other) == ONE.note
    await first.answers_are_of(ANEW)
    third = await started(node, other, origin=ANEW)
    for read in reads:
        assert await answer_to(first, read) is None
        assert await answer_to(third, read) is None
    await close(first, second, third)


async def test_a_bump_that_is_made_before_it_is_met_puts_no_note(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = list[bytes | None]()
    plainly = Fences.renew_version

    async def renew_version(fences: Fences, tag: Tag, steps: Steps | None = None) -> bool:
        fences.owed.on_made(tag)
        noted.append(await noted_on(node))
        return await plainly(fences, tag, steps)

    monkeypatch.setattr(Fences, "renew_version", renew_version)
    engine = await started(node)
    assert set(noted) == {None}
    assert await noted_on(node) == ONE.note
    await engine.close()
