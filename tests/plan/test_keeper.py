"""What is kept of a catalog when it is read again."""

from dataclasses import replace

import pytest

from sqlcache.plan.variables import Settings
from sqlcache.sql.catalog import Catalog
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

        monkeypatch.setattr(Tables, "load", load)
        assert await keeper.refresh()
        assert keeper.catalog is known
        now = Catalog(replace(known.definitions, server=others), known.stored)
        assert await keeper.refresh()
        assert keeper.catalog is now
        assert keeper.tells_commits == others.tells_commits
        now = now.renewed([TableName("s", "more")], (), more)
        assert await keeper.refresh()
        assert keeper.catalog is now
