"""Where tags live, on three nodes: what a node that is away costs, and what it does not."""

from collections.abc import AsyncIterator

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.reads import Read
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.memcache.cluster import Cluster
from tests.cache.engines import KEYSPACE, Node, answer_to, engine_on, filled, read_of

TABLES = [f"table{number}" for number in range(12)]


@pytest.fixture
async def nodes() -> list[Node]:
    return [Node(f"node{number}") for number in range(3)]


@pytest.fixture
async def engine(nodes: list[Node]) -> AsyncIterator[Engine]:
    engine = await engine_on(*nodes)
    yield engine
    await engine.close()


@pytest.fixture
async def placement(nodes: list[Node]) -> TagPlacement:
    return TagPlacement(Cluster(nodes), KEYSPACE)


async def test_each_copy_lives_on_its_node(placement: TagPlacement, nodes: list[Node]) -> None:
    cluster = Cluster(nodes)
    for tag in placement.to_write([ROOT, Tag("shop")]):
        assert cluster.node_of(placement.key(tag)) == tag.node == placement.node(tag)


async def test_an_answer_hangs_on_the_copies_beside_its_tables(placement: TagPlacement) -> None:
    table = Tag("shop", "table0")
    beside = placement.node(table)
    assert placement.to_read([table, Tag("shop"), ROOT]) == (
        table,
        Tag("shop", node=beside),
        ROOT.on(beside),
    )


async def test_an_answer_from_no_table_hangs_on_a_copy_too(placement: TagPlacement) -> None:
    assert [tag.schema for tag in placement.to_read([ROOT])] == [""]


@pytest.mark.parametrize("tag", [ROOT, Tag("shop")], ids=["root", "schema"])
async def test_a_bump_of_what_has_copies_reaches_all_tables(engine: Engine, tag: Tag) -> None:
    for table in TABLES:
        await filled(engine, read_of(engine, table), b"answer")
    await engine.bump([tag])
    assert [await answer_to(engine, read_of(engine, table)) for table in TABLES] == [None] * 12


async def test_a_node_that_is_away_costs_only_what_hangs_on_it(
    engine: Engine, nodes: list[Node], placement: TagPlacement
) -> None:
    for table in TABLES:
        await filled(engine, _read(engine, table), b"answer")
    nodes[1].away = True
    elsewhere = [table for table in TABLES if placement.node(Tag("shop", table)) != "node1"]
    kept = [table for table in elsewhere if await answer_to(engine, _read(engine, table))]
    entries_lost = [table for table in elsewhere if _node_of_entry(engine, table, nodes) == "node1"]
    assert elsewhere, "no table elsewhere"
    assert sorted(kept + entries_lost) == sorted(elsewhere)


def _node_of_entry(engine: Engine, table: str, nodes: list[Node]) -> str:
    return Cluster(nodes).node_of(_read(engine, table).key)


def _read(engine: Engine, table: str) -> Read:
    """A read of this table, with a key of its own."""
    return read_of(engine, table, text=table.encode())
