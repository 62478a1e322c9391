"""What is kept of a catalog when it is read again."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.cache.server_notes import Origin
from sqlcache.cache.tag_logs import Steps
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.plan.variables import Settings
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import Incarnation
from sqlcache.sql.facts import BaseTable, Facts
from sqlcache.sql.names import TableName
from tests.proxy.fill_memory import GLOBALS, Tables, planner_and_session


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
        later = replace(known.server, began=50)

        async def load(_: Tables) -> tuple[Catalog, Settings]:
            return Catalog(replace(known.definitions, server=later), known.stored), GLOBALS

        async def has_ended(_: Tables, connection: int, server: Incarnation, since: float) -> bool:
            return server == later.incarnation

        before = keeper.witness()
        monkeypatch.setattr(Tables, "load", load)
        monkeypatch.setattr(Tables, "has_ended", has_ended)
        assert await keeper.refresh()
        assert not await before(1)
        assert await keeper.witness()(1)


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
        assert await planner.confirmations.confirms_rights()
        assert causes == ["a GRANT"]
        rights = frozenset({("by a GRANT around all of them",)})
        assert await keeper.refresh()
        assert causes == ["a GRANT", "rights were changed around sqlcache"]


async def test_there_are_no_hits_before_the_answers_of_another_server_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor does anybody begin with globals that are known."""
    ready = list[bool]()
    plainly = Engine.answers_are_of

    async with planner_and_session() as (planner, _):
        keeper, known = planner.keeper, planner.keeper.catalog
        assert known is not None
        other = replace(known.server, identity="another")
        now = Catalog(replace(known.definitions, server=other), known.stored)

        async def load(_: Tables) -> tuple[Catalog, Settings]:
            return now, (*GLOBALS, ("time_zone", "+05:00"))

        async def answers_are_of(engine: Engine, origin: Origin) -> Steps:
            ready.append(keeper.ready or keeper.is_met)
            return await plainly(engine, origin)

        monkeypatch.setattr(Tables, "load", load)
        monkeypatch.setattr(Engine, "answers_are_of", answers_are_of)
        before = await keeper._engine.versions([ROOT])
        assert keeper.ready
        assert await keeper.refresh()
        assert keeper.ready
        assert keeper.catalog is now
        after = await keeper._engine.versions([ROOT])
        assert before != after
        assert keeper.versions == {**keeper.versions, **after}  # or it would be read once more
        assert await keeper.refresh()
        assert await keeper._engine.versions([ROOT]) == after
    assert ready == [False, True]


async def test_who_is_stopped_while_everything_is_being_forgotten_forgets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, plain_bump = asyncio.Event(), Engine.bump

    async def bump(engine: Engine, tags: Iterable[Tag], *, cause: str) -> None:
        if not begun.is_set():
            begun.set()
            await asyncio.get_running_loop().create_future()  # of a node that does not answer
        await plain_bump(engine, tags, cause=cause)

    async with planner_and_session() as (planner, _):
        keeper, known = planner.keeper, planner.keeper.catalog
        assert known is not None
        granted = replace(known.server, rights=frozenset({("around it",)}))

        async def load(_: Tables) -> tuple[Catalog, Settings]:
            return Catalog(replace(known.definitions, server=granted), known.stored), GLOBALS

        before = await keeper._engine.versions([ROOT])
        monkeypatch.setattr(Tables, "load", load)
        monkeypatch.setattr(Engine, "bump", bump)
        reading = asyncio.ensure_future(keeper.refresh())
        await begun.wait()
        await keeper.close()
        reading.cancel()
        assert await keeper._engine.versions([ROOT]) != before


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
