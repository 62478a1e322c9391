"""Processes with different lists of nodes: who may start, and what is forgotten."""

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.cache.roster import LAPSE_S
from sqlcache.errors import ConfigError
from tests.cache.engines import KEYSPACE, Node, answer_to, filled, read_of
from tests.cache.engines import engine_on as engine_alone_on


def nodes(*names: str) -> list[Node]:
    return [Node(name) for name in names]


async def engine_on(*at: Node) -> Engine:
    """One that has found the others to have its list. Raises: ConfigError."""
    engine = await engine_alone_on(*at)
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


async def test_who_has_another_list_than_those_at_work_does_not_start() -> None:
    one, two = nodes("one", "two")
    at_work = await engine_on(one, two)
    for other in ([one], [one, Node("three")]):
        with pytest.raises(ConfigError, match=f"another list.*wait {LAPSE_S} s"):
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


async def test_a_node_that_was_left_out_for_a_while_is_forgotten() -> None:
    """It knows nothing of what was written since."""
    one, two = nodes("one", "two")
    first = await engine_on(one, two)
    reads = [read_of(first, f"t{number}") for number in range(8)]
    for read in reads:
        await filled(first, read, b"old")
    await first.close()
    await lapse(one, two)
    await (await engine_on(one)).close()
    await lapse(one)
    again = await engine_on(one, two)
    assert [await answer_to(again, read) for read in reads] == [None] * len(reads)
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
