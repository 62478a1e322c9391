"""Writes in callbacks: marked, observed and lifted where all goes well, and handed back if not."""

import asyncio

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.cache.marks import Logs
from sqlcache.cache.outcomes import FENCED
from sqlcache.cache.tag_logs import log_state
from tests.cache.engines import (
    DEADLINE_S,
    KEYSPACE,
    LINES,
    ORDERS,
    SHOP,
    Node,
    answer_to,
    filled,
    lifted,
    observed,
    raised,
    read_of,
)


async def test_between_both_nothing_is_served_and_then_what_was_there_is_not(
    engines: list[Engine],
) -> None:
    read = read_of(engines[0], "orders", "lines")
    await filled(engines[0], read, b"answer")
    marks = engines[1].marks([ORDERS, LINES], [SHOP])
    fence, logs = await raised(engines[1], marks)
    assert logs == await observed(engines[0], [SHOP])
    assert await engines[0].obtain(read) == FENCED
    assert await lifted(engines[1], fence, marks) == logs
    assert await answer_to(engines[0], read) is None


async def test_what_is_observed_tells_of_others_fences(engines: list[Engine]) -> None:
    await filled(engines[0], read_of(engines[0], "orders"), b"answer")
    other = await engines[0].fence([SHOP])
    fence, logs = await raised(engines[1], engines[1].marks([ORDERS], [SHOP]))
    assert logs is not None
    assert log_state(logs[0]).fences.keys() == {other.id}
    await other.lift()
    await fence.lift()


async def test_a_log_that_is_not_there_is_for_the_long_way_to_mark(engine: Engine) -> None:
    marks = engine.marks([ORDERS], [SHOP])
    fence, logs = await raised(engine, marks)
    assert logs is None
    await fence.mark([SHOP])
    assert await engine.obtain(read_of(engine, "orders")) == FENCED
    assert await lifted(engine, fence, marks) is None
    await fence.lift()
    assert await engine.obtain(read_of(engine, "orders")) != FENCED


async def test_a_log_that_was_lost_under_the_fence_is_for_the_long_way_to_lift(
    node: Node, engine: Engine
) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    marks = engine.marks([ORDERS], [SHOP])
    fence, _ = await raised(engine, marks)
    await node.request(b"md %b\r\n" % KEYSPACE.tag("shop", "orders"), 1)
    assert await lifted(engine, fence, marks) is None
    await fence.lift()
    assert await answer_to(engine, read) is None


async def test_a_node_that_is_away_is_for_the_long_way(node: Node, engine: Engine) -> None:
    await filled(engine, read_of(engine, "orders"), b"answer")
    node.away = True
    fence, logs = await raised(engine, engine.marks([ORDERS], [SHOP]))
    assert logs is None
    node.away = False
    await fence.undo()


async def test_a_fence_that_may_have_lapsed_is_to_be_put_up_again(
    node: Node, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(engine, read_of(engine, "orders"), b"answer")
    then = engine._windows.clock()
    told: asyncio.Future[Logs | None] = asyncio.get_running_loop().create_future()
    marks = engine.marks([ORDERS], [SHOP])
    fence = engine.join_fence(marks)
    engine.fence_soon(fence, marks, told.set_result)
    # This process was stopped.
    monkeypatch.setattr(engine._windows, "clock", lambda: then + DEADLINE_S)
    assert await told is None
    monkeypatch.undo()
    await fence.undo()
