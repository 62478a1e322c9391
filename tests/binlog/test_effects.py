"""Which commits the follower need ask nobody about, those of its own process; and what it costs to
find out what statements do."""

import asyncio
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sqlcache.binlog import effects
from sqlcache.binlog.change import Change, Logged
from sqlcache.binlog.effects import Effects, Reading
from sqlcache.cache.own_commits import OwnCommits
from sqlcache.cache.tags import ELSEWHERE, ROOT, Tag
from sqlcache.metrics import Metrics
from sqlcache.plan.confirmations import Known
from sqlcache.plan.reader import Reader, Way
from sqlcache.plan.tagging import Tagging
from sqlcache.plan.writeset import WriteSet
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import Server
from sqlcache.sql.catalog.writes import Writes
from sqlcache.sql.facts import BaseTable, Cascade, Facts, View
from sqlcache.sql.lexer import lex
from sqlcache.sql.names import TableName
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.statement import ADDS, DELETES, Changes, Statement
from tests.turns import counted_turns

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


class Asked:
    """In place of the engine and the keeper: counts what is asked of them."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.edition = self.redefinitions = 1
        self.is_mariadb = False
        self.own_commits = OwnCommits()
        self.asked = 0
        self.bumped: list[set[Tag]] = []

    def reach_of(self, *_: object) -> None:
        return None

    async def states(self, _: object) -> dict[Tag, object]:
        self.asked += 1
        return {}

    async def catch_up(self, *_: object) -> Known:
        return Known.CONFIRMED

    async def commits(self, tags: list[Tag]) -> dict[Tag, set[bytes]]:
        return {tag: set() for tag in tags}

    async def bump(self, tags: set[Tag], **_: object) -> dict[Tag, object]:
        self.bumped.append(set(tags))
        return {}


def reads(asked: Asked) -> Effects:
    each = cast(Any, asked)
    reader = Reader(each, max_bytes=1_000_000)
    planner = SimpleNamespace(
        keeper=asked, reader=reader, tagging=Tagging(each, each, each, max_bytes=1_000_000)
    )
    return Effects(each, cast(Any, planner), Metrics())


def logged(text: bytes) -> Logged:
    return Logged(text, "s", Dialect(), lex(text, Dialect()).shape)


def each_by_itself(texts: list[bytes]) -> list[Change]:
    return [Change(statements=[logged(text)], name=b"%d" % at) for at, text in enumerate(texts)]


async def test_statements_of_one_shape_are_analysed_once_and_asked_for_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    analysed: list[bytes] = []
    analyse = Way.analyse

    def counting(way: Way, text: bytes) -> tuple[Statement, ...]:
        analysed.append(text)
        return analyse(way, text)

    monkeypatch.setattr(Way, "analyse", counting)
    asked = Asked(with_key(Cascade(T, CHILD)))
    effects_of = reads(asked)
    texts = [b"DELETE FROM t WHERE id = %d" % number for number in range(500)]
    await effects_of.publish(each_by_itself(texts), Reading())
    assert (len(analysed), asked.asked, asked.bumped) == (1, 1, [set(TAGS)])
    await effects_of.publish(each_by_itself(texts), Reading())
    assert len(analysed) == 1
    asked.edition += 1  # what they write may be something else now
    asked.catalog = with_key(Cascade(CHILD, T))
    await effects_of.publish(each_by_itself(texts), Reading())
    assert asked.bumped[2] == {Tag("s", "t")}


async def test_what_was_bumped_before_is_bumped_again_whatever_is_defined_by_then() -> None:
    asked = Asked(with_key(Cascade(T, CHILD)))
    effects_of, changes = reads(asked), [change(OTHER, deletes=True)]
    bumped = await effects_of.publish(changes, Reading())
    asked.edition += 1
    asked.catalog = with_key(Cascade(CHILD, T))
    await effects_of.publish(changes, Reading(), bumped)
    assert asked.bumped == [set(TAGS), set(TAGS)]


async def test_others_have_their_turns_while_many_are_read() -> None:
    texts = [b"INSERT INTO t (c%d) VALUES (1)" % number for number in range(160)]
    with counted_turns() as turns:
        await reads(Asked(with_key(Cascade(T, CHILD)))).publish(each_by_itself(texts), Reading())
    assert turns.count >= 10


async def test_others_have_their_turns_by_the_length_of_those_that_are_read() -> None:
    many = b"0 + " * 900
    texts = [b"INSERT INTO t (c%d) VALUES (%b1)" % (number, many) for number in range(16)]
    with counted_turns() as turns:
        await reads(Asked(with_key(Cascade(T, CHILD)))).publish(each_by_itself(texts), Reading())
    assert turns.count >= 8


class Redefined(Asked):
    """What a definition bumps makes it another edition; where the catalog `becomes` another, that
    is read when it is asked for."""

    becomes: Catalog | None = None

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog)
        self.told: list[frozenset[TableName]] = []  # to be defined anew

    async def redefined(self, writes: WriteSet, _: object) -> None:
        self.told.append(writes.redefined)
        self.edition += 1
        self.redefinitions += 1

    async def bump(self, tags: set[Tag], **of: object) -> dict[Tag, object]:
        await super().bump(tags, **of)
        return {tag.on("node"): None for tag in tags if tag.defines}

    async def catch_up(self, *_: object) -> Known:
        if self.becomes is None or self.edition == 1:
            return Known.CONFIRMED
        self.catalog, self.becomes = self.becomes, None
        self.edition += 1
        return Known.READ_AGAIN


def mariadb(*tables: BaseTable | View, leading: bool = False) -> Catalog:
    server = Server(
        flavour="mariadb",
        version=(10, 11, 6),
        lower_case_table_names=0,
        has_leading_engines=leading,
    )
    return Catalog.of(server, Facts(list(tables)))


async def test_what_comes_behind_a_definition_is_read_when_that_is_told() -> None:
    asked = Redefined(mariadb(BaseTable(T, "InnoDB"), BaseTable(CHILD, "InnoDB")))
    asked.becomes = with_key(Cascade(T, CHILD))
    texts = [b"INSERT INTO t VALUES (1)", b"ALTER TABLE u ADD c INT", b"DELETE FROM t"]
    effects_of, reading = reads(asked), Reading()
    reading.hindsight.ended(reading.hindsight.look(effects_of.stamp), ("", 0))
    await effects_of.publish(each_by_itself(texts), reading)
    first = {Tag("s", "t"), Tag("s", "u"), Tag("s")}
    assert asked.bumped == [first, set(TAGS) - first]


def dump(tables: Iterable[int]) -> Iterator[Change]:
    """As a dump has them: each is dropped, made and filled."""
    for number in tables:
        yield from each_by_itself([b"DROP TABLE IF EXISTS d%d" % number])
        yield from each_by_itself([b"CREATE TABLE d%d (a INT)" % number])
        yield Change(tables={("s", f"d{number}"): ADDS})


async def test_definitions_that_come_together_are_told_together() -> None:
    asked = Redefined(mariadb(BaseTable(T, "InnoDB")))
    reading = Reading()
    bumped = await reads(asked).publish(dump(range(20)), reading)
    made = {Tag("s", f"d{number}") for number in range(20)}
    assert asked.bumped == [{Tag("s")} | made]
    assert asked.told == [frozenset(TableName("s", tag.table) for tag in made)]
    assert set(bumped) == asked.bumped[0], "or it is left out when they are told again"


async def test_very_many_definitions_are_told_in_parts() -> None:
    asked = Redefined(mariadb(BaseTable(T, "InnoDB")))
    await reads(asked).publish(dump(range(100)), Reading())
    assert set().union(*asked.bumped) == {Tag("s")} | {Tag("s", f"d{n}") for n in range(100)}
    assert 2 <= len(asked.bumped) <= 8
    assert all(Tag("s") in bumped for bumped in asked.bumped)


async def test_a_routine_behind_tables_that_were_told_of_is_told_as_well() -> None:
    asked = Redefined(mariadb(BaseTable(T, "InnoDB")))
    tables = [b"CREATE TABLE d%d (a INT)" % number for number in range(effects._MOST_DISTINCT)]
    texts = [b"ALTER VIEW w AS SELECT 1", *tables, b"CREATE PROCEDURE p() SELECT 1"]
    await reads(asked).publish(each_by_itself(texts), Reading())
    assert asked.bumped[1:] == [{Tag("s"), Tag("s", ELSEWHERE)}]


async def test_one_that_does_more_than_was_told_is_told_by_itself() -> None:
    asked = Redefined(mariadb(BaseTable(T, "InnoDB")))
    view = View(TableName("s", "w"), b"select `s`.`t`.`a` AS `a` from `s`.`t`")
    asked.becomes = mariadb(BaseTable(T, "InnoDB"), view)
    texts = [b"CREATE TABLE n (a INT)", b"UPDATE t SET a = 1", b"ALTER VIEW w AS SELECT 1"]
    await reads(asked).publish(each_by_itself(texts), Reading(again=True))
    of_view = {Tag("s"), Tag("s", "w"), Tag("s", ELSEWHERE)}
    assert asked.bumped == [{Tag("s", "n")} | of_view, {Tag("s", "t")} | of_view]


async def test_nobody_goes_through_all_keys_where_nothing_is_defined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(Writes, "keys_cross_schemas")
    asked = Asked(with_key(Cascade(T, CHILD)))
    await reads(asked).publish([change(OTHER, deletes=True)], Reading())
    assert asked.bumped == [set(TAGS)]


@pytest.mark.parametrize("leading", [False, True])
async def test_a_new_table_is_asked_for_before_it_is_taken_for_a_temporary_one(
    leading: bool,
) -> None:
    new = TableName("s", "n")
    before, merged = BaseTable(T, "InnoDB"), BaseTable(TableName("s", "my"), "MyISAM")
    asked = Redefined(mariadb(before, merged, leading=leading))
    asked.becomes = mariadb(before, merged, BaseTable(new, "InnoDB"), leading=leading)
    texts = [b"CREATE TABLE n (a INT)", b"INSERT INTO n VALUES (1)"]
    await reads(asked).publish(each_by_itself(texts), Reading())
    assert asked.bumped == [{Tag("s", "n"), Tag("s")}]


async def test_what_names_of_temporary_tables_lead_to_is_worked_out_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    merged = [TableName("s", f"m{number}") for number in range(300)]
    asked = Asked(mariadb(*[BaseTable(name, "MyISAM") for name in merged]))
    effects_of = reads(asked)
    closed = 0
    close = Writes._close

    def counting(writes: Writes, *of: Any) -> Any:
        nonlocal closed
        closed += 1
        return close(writes, *of)

    monkeypatch.setattr(Writes, "_close", counting)
    texts = [b"INSERT INTO unknown VALUES (%d)" % number for number in range(300)]
    await effects_of.publish(each_by_itself(texts), Reading())
    assert asked.bumped == [{Tag("s", name.name) for name in merged} | {Tag("s", "unknown")}]
    assert closed < 10


async def test_what_is_read_again_is_never_misread_and_leads_nowhere_else() -> None:
    asked = Redefined(mariadb(BaseTable(T, "InnoDB"), BaseTable(CHILD, "MyISAM")))
    texts = [b"INSERT INTO t VALUES (1)", b"INSERT INTO temporary VALUES (1)", b"DROP TABLE u"]
    await reads(asked).publish(each_by_itself(texts), Reading(again=True))
    assert asked.bumped == [{Tag("s"), *(Tag("s", name) for name in ("t", "temporary", "u"))}]


@pytest.mark.parametrize(
    ("schema", "leading", "bumped"),
    [
        ("s", False, {Tag("s"), Tag("s", "m")}),
        ("other", False, {ROOT}),
        ("s", True, {ROOT}),
    ],
)
async def test_rows_may_have_been_those_of_tables_in_another_schema(
    schema: str, leading: bool, bumped: set[Tag]
) -> None:
    merged = BaseTable(TableName(schema, "my"), "MyISAM")
    asked = Redefined(mariadb(BaseTable(T, "InnoDB"), merged, leading=leading))
    rows, reading = Change(tables={("s", "m"): ADDS}), Reading()
    effects_of = reads(asked)
    await effects_of.publish([rows, *each_by_itself([b"DROP TABLE unseen.m"])], reading)
    assert asked.bumped == [{Tag("s", "m"), Tag("unseen", "m"), Tag("unseen")}]
    await effects_of.publish(each_by_itself([b"DROP TABLE m"]), reading)
    assert asked.bumped[1] == bumped


async def test_what_only_adds_is_never_too_late() -> None:
    asked = Redefined(mariadb(BaseTable(T, "InnoDB")))
    texts = [b"INSERT INTO t VALUES (1)", b"ALTER TABLE t ADD c INT", b"INSERT INTO t VALUES (2)"]
    reading = Reading()
    await reads(asked).publish(each_by_itself(texts), reading)
    assert {ROOT} not in asked.bumped
    await reads(asked).publish(each_by_itself([b"ALTER TABLE t RENAME u"]), reading)
    assert asked.bumped[-1] == {ROOT}


async def test_what_reads_what_may_call_code_may_be_misread() -> None:
    view = View(TableName("s", "w"), b"select `s`.`t`.`a` AS `a` from `s`.`t`")
    asked = Redefined(mariadb(BaseTable(T, "InnoDB"), view))
    texts = [b"CREATE TEMPORARY TABLE q SELECT * FROM w", b"ALTER VIEW w AS SELECT a FROM t"]
    await reads(asked).publish(each_by_itself(texts), Reading())
    assert asked.bumped == [{ROOT}]
    assert asked.asked, "whether that view is known"
