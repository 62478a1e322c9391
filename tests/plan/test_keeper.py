"""What is kept of a catalog when it is read again."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.cache.fence import Fence
from sqlcache.cache.log_records import ABSENT, TagState
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.errors import CacheUnavailable, UpstreamError
from sqlcache.plan import readings
from sqlcache.plan.keeper import Known
from sqlcache.plan.variables import Settings
from sqlcache.plan.writeset import WriteSet
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import Incarnation
from sqlcache.sql.catalog.stored import Stored
from sqlcache.sql.facts import BaseTable, Facts, StoredRoutine
from sqlcache.sql.names import TableName
from sqlcache.sql.routines import watched_words
from tests.proxy.fill_memory import GLOBALS, Tables, planner_and_session

States = dict[Tag, TagState]


async def test_a_catalog_that_is_read_again_as_it_was_keeps_what_was_worked_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with planner_and_session() as (planner, _):
        keeper, known = planner.keeper, planner.keeper.catalog
        assert known is not None
        like_it = known.definitions, known.stored
        others = replace(known.server, tells_commits=not known.server.tells_commits)
        more = Facts([BaseTable(TableName("s", "more"), "InnoDB")])
        now = Catalog(*like_it)

        async def load(_: Tables) -> tuple[Catalog, Settings]:
            return now, GLOBALS

        globals_ = keeper.globals
        monkeypatch.setattr(Tables, "load", load)
        assert await keeper.refresh()
        assert keeper.catalog is known
        assert keeper.globals is globals_
        now = Catalog(replace(known.definitions, server=others), known.stored)
        assert await keeper.refresh()
        assert keeper.catalog is now
        assert keeper.tells_commits == others.tells_commits
        now = now.renewed([TableName("s", "more")], (), more)
        assert await keeper.refresh()
        assert keeper.catalog is now


async def test_of_a_session_that_has_come_since_the_server_began_anew_it_is_known_to_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with planner_and_session() as (planner, _):
        keeper, known = planner.keeper, planner.keeper.catalog
        assert known is not None
        later = replace(known.server, began=(50.0, 51.0))

        async def load(_: Tables) -> tuple[Catalog, Settings]:
            return Catalog(replace(known.definitions, server=later), known.stored), GLOBALS

        async def has_ended(_: Tables, connection: int, server: Incarnation, since: float) -> bool:
            return server.may_be(later.incarnation)

        before = keeper.witness()
        monkeypatch.setattr(Tables, "load", load)
        monkeypatch.setattr(Tables, "has_ended", has_ended)
        assert await keeper.refresh()
        assert not await before(1)
        assert await keeper.witness()(1)


async def test_tags_of_any_number_of_schemas_are_not_asked_for_in_one_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[int]()

    async def states(engine: Engine, tags: Iterable[Tag], own: Fence | None = None) -> States:
        tags = list(tags)
        asked.append(len(tags))
        return dict.fromkeys(tags, ABSENT)

    async with planner_and_session() as (planner, _):
        keeper, known = planner.keeper, planner.keeper.catalog
        assert known is not None
        crowd = Facts([BaseTable(TableName(f"s{each}", "t"), "InnoDB") for each in range(1_000)])
        keeper.catalog = Catalog.of(known.server, crowd)
        monkeypatch.setattr(Engine, "states", states)
        await keeper.knows_refusals(None)
        monkeypatch.undo()
    assert sum(asked) == 1_001
    assert max(asked) < 300


async def test_a_catalog_that_is_read_amid_a_look_at_the_tags_says_nothing_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Code that says that a statement cannot be read may have run by then."""
    plain_states = Engine.states
    body = b"SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1064"
    routine = StoredRoutine(TableName("s", "p"), False, body, words=watched_words(body))
    async with planner_and_session() as (planner, _):
        keeper, known = planner.keeper, planner.keeper.catalog
        assert known is not None
        feigns = known.with_stored(Stored.of(known.server, (), [routine]))
        now = known

        async def load(_: Tables) -> tuple[Catalog, Settings]:
            return now, GLOBALS

        async def states(engine: Engine, tags: Iterable[Tag], own: Fence | None = None) -> States:
            found = await plain_states(engine, tags, own)
            assert await keeper.refresh()
            return found

        monkeypatch.setattr(Tables, "load", load)
        assert await keeper.refresh()
        monkeypatch.setattr(Engine, "states", states)
        assert await keeper.knows_refusals(None)
        now = feigns
        assert not await keeper.knows_refusals(None)
        monkeypatch.undo()


@pytest.mark.parametrize("by", ["a read", "a write"])
async def test_definitions_that_are_being_read_are_not_read_once_more(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But where they have changed since."""
    async with planner_and_session() as (planner, _):
        keeper, engine = planner.keeper, planner.keeper._engine
        plain_load, loads, going_on = Tables.load, 0, asyncio.Event()
        writes = WriteSet(frozenset({TableName("s", "t")}))

        async def load(tables: Tables) -> tuple[Catalog, Settings]:
            nonlocal loads
            loads += 1
            await going_on.wait()
            return await plain_load(tables)

        async def ask() -> object:
            if by == "a read":
                await keeper.follow([ROOT])
                return None
            asked = planner.tagging.definitions(writes)
            return await keeper.catch_up(writes, asked, await engine.states(asked))

        monkeypatch.setattr(Tables, "load", load)
        for changed_since, needed in ((False, 1), (True, 2)):
            loads = 0
            going_on.clear()
            await engine.bump({ROOT}, cause="a GRANT")
            reading = asyncio.ensure_future(keeper.refresh())
            while not loads:
                await asyncio.sleep(0)
            if changed_since:
                await engine.bump({ROOT}, cause="another")
            asking = asyncio.ensure_future(ask())
            while not keeper._readings._wanted:
                await asyncio.sleep(0)
            going_on.set()
            assert await asking == (None if by == "a read" else Known.READ_AGAIN)
            assert await reading
            assert loads == needed
            states = await engine.states([ROOT])
            assert keeper.goes_by({tag: state.version for tag, state in states.items()})


async def test_no_rights_are_those_at_hand_before_any_were_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else who logs in then would be taken to have what others have whose rights are not known."""
    plain_load = Tables.load
    refuses = True

    async def load(tables: Tables) -> tuple[Catalog, Settings]:
        if refuses:
            raise UpstreamError("the service account is locked")
        return await plain_load(tables)

    monkeypatch.setattr(Tables, "load", load)
    monkeypatch.setattr(readings, "_RETRY_S", 0)
    async with planner_and_session() as (planner, _):
        await planner.keeper._engine.versions([ROOT])  # as other processes have given it one
        assert planner.keeper.catalog is None
        assert not await planner.keeper.confirms_rights()
        refuses = False
        assert await planner.keeper.confirms_rights()
        assert planner.keeper.catalog is not None


async def test_rights_that_were_changed_through_any_sqlcache_are_forgotten_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    causes = list[str]()
    plain_bump = Engine.bump

    async def bump(engine: Engine, tags: Iterable[Tag], *, cause: str) -> None:
        causes.append(cause)
        await plain_bump(engine, tags, cause=cause)

    async with planner_and_session() as (planner, _):
        keeper, known = planner.keeper, planner.keeper.catalog
        assert known is not None
        rights = frozenset({("before",)})

        async def load(_: Tables) -> tuple[Catalog, Settings]:
            server = replace(known.server, rights=rights)
            return Catalog(replace(known.definitions, server=server), known.stored), GLOBALS

        monkeypatch.setattr(Tables, "load", load)
        await planner.keeper._engine.bump({ROOT}, cause="")
        assert await keeper.refresh()
        monkeypatch.setattr(Engine, "bump", bump)
        rights = frozenset({("by a GRANT through another one",)})
        await planner.keeper._engine.bump({ROOT}, cause="a GRANT")
        assert await keeper.confirms_rights()
        assert causes == ["a GRANT"]
        rights = frozenset({("by a GRANT around all of them",)})
        assert await keeper.refresh()
        assert causes == ["a GRANT", "rights were changed around sqlcache"]


async def test_another_server_is_taken_although_not_all_of_it_can_be_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What cannot be reached is passed by. Until all else is forgotten there are no hits."""
    ready = list[bool]()

    async with planner_and_session() as (planner, _):
        keeper, known = planner.keeper, planner.keeper.catalog
        assert known is not None
        other = replace(known.server, identity="another")
        now = Catalog(replace(known.definitions, server=other), known.stored)

        async def load(_: Tables) -> tuple[Catalog, Settings]:
            return now, GLOBALS

        async def bump(engine: Engine, tags: Iterable[Tag], *, cause: str) -> None:
            assert "another one" in cause
            ready.append(keeper.ready)
            raise CacheUnavailable("a node is away")

        monkeypatch.setattr(Tables, "load", load)
        monkeypatch.setattr(Engine, "bump", bump)
        assert keeper.ready
        assert await keeper.refresh()
        assert keeper.ready
        assert keeper.catalog is now
        assert await keeper.refresh()
        monkeypatch.undo()
    assert ready == [False]


async def test_what_ran_otherwise_than_it_was_sent_is_forgotten_before_and_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    causes = list[str]()

    async with planner_and_session() as (planner, _):
        keeper, known = planner.keeper, planner.keeper.catalog
        assert known is not None
        rewrites = False

        async def load(_: Tables) -> tuple[Catalog, Settings]:
            server = replace(known.server, rewrites=rewrites)
            return Catalog(replace(known.definitions, server=server), known.stored), GLOBALS

        async def bump(engine: Engine, tags: Iterable[Tag], *, cause: str) -> None:
            causes.append(cause)

        monkeypatch.setattr(Tables, "load", load)
        monkeypatch.setattr(Engine, "bump", bump)
        for rewrites, said in ((False, 0), (True, 1), (True, 1), (False, 2), (False, 2)):
            assert await keeper.refresh()
            assert len(causes) == said
            assert keeper.ready is not rewrites
        monkeypatch.undo()
