"""What is made sure of where the catalog may be another one by now."""

import asyncio
from collections.abc import Callable, Iterable
from typing import cast

import pytest

from sqlcache.boot_clock import boot_clock
from sqlcache.cache.engine import Engine
from sqlcache.cache.fence import Fence
from sqlcache.cache.log_records import ABSENT, TagState
from sqlcache.cache.reads import TagSet
from sqlcache.cache.tag_checks import TagChecks
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.errors import UpstreamError
from sqlcache.plan import readings
from sqlcache.plan.confirmations import Known
from sqlcache.plan.variables import Settings
from sqlcache.plan.writeset import WriteSet
from sqlcache.proxy.diagnostics import Diagnostics
from sqlcache.proxy.questions import Questions
from sqlcache.proxy.relay import Relay
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.stored import Stored
from sqlcache.sql.facts import BaseTable, Facts, StoredRoutine
from sqlcache.sql.names import TableName
from sqlcache.sql.routines import watched_words
from tests.proxy.fill_memory import GLOBALS, Tables, planner_and_session

States = dict[Tag, TagState]


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
        await planner.confirmations.knows_refusals(None)
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
        assert await planner.confirmations.knows_refusals(None)
        now = feigns
        assert not await planner.confirmations.knows_refusals(None)
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
                await planner.confirmations.follow([ROOT])
                return None
            asked = planner.tagging.definitions(writes)
            return await planner.confirmations.catch_up(writes, asked, await engine.states(asked))

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
            while not keeper.readings._wanted:
                await asyncio.sleep(0)
            going_on.set()
            assert await asking == (None if by == "a read" else Known.READ_AGAIN)
            assert await reading
            assert loads == needed
            states = await engine.states([ROOT])
            now = {tag: state.version for tag, state in states.items()}
            assert planner.confirmations.goes_by(now)


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
        assert not await planner.confirmations.confirms_rights()
        refuses = False
        assert await planner.confirmations.confirms_rights()
        assert planner.keeper.catalog is not None


async def test_all_who_log_in_at_once_ask_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, asked, known = TagChecks.confirm, 0, list[bool]()

    def confirm(checks: TagChecks, definitions: TagSet, done: Callable[[bool], None]) -> None:
        nonlocal asked
        asked += 1
        plain(checks, definitions, done)

    async with planner_and_session() as (planner, _):
        confirmations = planner.confirmations
        assert await confirmations.confirms_rights()
        monkeypatch.setattr(TagChecks, "confirm", confirm)
        one_who_leaves = asyncio.ensure_future(confirmations.confirms_rights())
        others = [asyncio.ensure_future(confirmations.confirms_rights()) for _ in range(9)]
        await asyncio.sleep(0)
        one_who_leaves.cancel()
        known += await asyncio.gather(*others)
        assert (known, asked) == ([True] * 9, 1)
        await planner.keeper._engine.bump({ROOT}, cause="a GRANT elsewhere")
        keeper_knew = planner.keeper.versions
        assert await confirmations.confirms_rights()  # it was read again
        assert planner.keeper.versions != keeper_knew
        assert asked == 2


async def test_those_who_wait_for_a_question_that_fails_hear_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def confirm(checks: TagChecks, definitions: TagSet, done: Callable[[bool], None]) -> None:
        raise RuntimeError("a fault of our own")

    said = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, told: said.append(told["exception"]))
    async with planner_and_session() as (planner, _):
        assert await planner.confirmations.confirms_rights()
        monkeypatch.setattr(TagChecks, "confirm", confirm)
        async with asyncio.timeout(20):
            assert await planner.confirmations.confirms_rights()  # by a look at the tags themselves
    assert [str(each) for each in said] == ["a fault of our own"]


async def test_rights_are_known_while_a_window_is_open() -> None:
    async with planner_and_session() as (planner, state):
        confirmations, keeper = planner.confirmations, planner.keeper
        questions = Questions(cast(Relay, None), planner, Diagnostics(), state, keeper.generation)
        assert state.rights.assumed
        assert not questions.knows_rights()
        definitions = confirmations.rights.definitions
        assert definitions is not None
        definitions.window = boot_clock() + 60
        assert questions.knows_rights()
        assert not state.rights.assumed
        definitions.window = 0
        assert not confirmations.knows_rights()
