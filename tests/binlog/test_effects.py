"""Which commits the follower need ask nobody about: those of its own process."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sqlcache.binlog import effects
from sqlcache.binlog.effects import Effects
from sqlcache.binlog.transactions import Change, Logged
from sqlcache.cache.own_commits import OwnCommits
from sqlcache.cache.tags import Tag
from sqlcache.metrics import Metrics
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import Server
from sqlcache.sql.facts import BaseTable, Cascade, Facts
from sqlcache.sql.names import TableName
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.statement import ADDS, DELETES, Changes

T, CHILD = TableName("s", "t"), TableName("s", "child")
OWN, OTHER = b"own commit", b"of another"
TAGS = frozenset({Tag("s", "t"), Tag("s", "child")})


@pytest.fixture
def own() -> OwnCommits:
    return OwnCommits()


def with_key(key: Cascade, *, versioned: bool = False) -> Catalog:
    server = Server(flavour="mysql", version=(9, 7, 0), lower_case_table_names=0)
    tables = [BaseTable(T, "InnoDB", versioned=versioned), BaseTable(CHILD, "InnoDB")]
    return Catalog.of(server, Facts(tables, cascades=[key]))


@pytest.fixture
def followed(own: OwnCommits) -> Effects:
    catalog = with_key(Cascade(T, CHILD))
    engine = SimpleNamespace(own_commits=own)
    planner = SimpleNamespace(keeper=SimpleNamespace(catalog=catalog))
    return Effects(cast(Any, engine), cast(Any, planner), Metrics())


def change(name: bytes | None = OWN, *, deletes: bool = False) -> Change:
    return Change(tables={("s", "t"): DELETES if deletes else ADDS}, name=name)


async def test_what_it_has_made_and_ended_is_left_out(own: OwnCommits, followed: Effects) -> None:
    own.end([OWN], TAGS)
    left = [change(OTHER), change(None)]
    assert await followed.others([change(), *left]) == left


async def test_it_may_hear_of_its_end_a_moment_later(own: OwnCommits, followed: Effects) -> None:
    own.end([OTHER], TAGS)
    asyncio.get_running_loop().call_later(0.001, own.end, [OWN], TAGS)
    assert await followed.others([change()]) == []


async def test_nobody_waits_where_it_makes_none(
    followed: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "_LOOK_AGAIN_S", 3_600)
    assert await followed.others([change()]) == [change()]


async def test_all_that_foreign_keys_lead_to_has_to_have_ended(
    own: OwnCommits, followed: Effects
) -> None:
    own.end([OWN], frozenset({Tag("s", "t")}))
    deleted = change(deletes=True)
    assert await followed.others([deleted]) == [deleted]
    own.end([OWN], TAGS)
    assert await followed.others([deleted]) == []


@pytest.mark.parametrize(
    ("changes", "reached"),
    [
        (ADDS, {T}),
        (DELETES, {T, CHILD}),
        (Changes(None), {T}),
    ],
)
def test_the_rules_of_foreign_keys_decide_what_rows_lead_to(
    changes: Changes, reached: set[TableName]
) -> None:
    catalog = with_key(Cascade(T, CHILD, on_update="RESTRICT"))
    assert effects._reached(catalog, {("s", "t"): changes}) == frozenset(reached)


@pytest.mark.parametrize(("changes", "reached"), [(ADDS, {T}), (Changes(None), {T, CHILD})])
def test_what_updates_rows_that_are_kept_as_they_were_may_have_deleted_them(
    changes: Changes, reached: set[TableName]
) -> None:
    catalog = with_key(Cascade(T, CHILD, on_update="RESTRICT"), versioned=True)
    assert effects._reached(catalog, {("s", "t"): changes}) == frozenset(reached)


async def test_of_statements_and_what_is_not_known_it_is_not_enough(
    own: OwnCommits, followed: Effects
) -> None:
    own.end([OWN], TAGS)
    told = [
        Change(statements=[Logged(b"DELETE FROM t", "s", Dialect())], name=OWN),
        Change(everything="why", name=OWN),
        Change(tables={("mysql", "user"): ADDS}, name=OWN),
    ]
    assert await followed.others(told) == told
