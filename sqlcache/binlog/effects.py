"""What a change in the log makes outdated: its tags, and their bump.

Statements are read as if they had come through the proxy, by the definitions of now: who changed
those after the statement has bumped the schema's tag, and all that hangs on it, by that.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sqlcache.binlog.transactions import Change, Logged
from sqlcache.cache.engine import Engine
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.plan.keeper import Known
from sqlcache.plan.meanings import ON_THE_LOOP_BYTES
from sqlcache.plan.planner import Planner
from sqlcache.plan.reader import Way
from sqlcache.plan.writeset import EVERYTHING, NOTHING, WriteSet
from sqlcache.sql.catalog import SYSTEM_SCHEMAS, Catalog
from sqlcache.sql.names import TableName

log = logging.getLogger(__name__)

_ROUNDS: Final = 20  # of reading a change again, where definitions change all the time
_ANSWER_NOTHING: Final = frozenset(
    {
        *("gtid_executed", "gtid_slave_pos", "heartbeat", "ha_health_check"),
        *("innodb_index_stats", "innodb_table_stats", "table_stats", "column_stats", "index_stats"),
        *("slave_master_info", "slave_relay_log_info", "slave_worker_info"),
        *("general_log", "slow_log"),
    }
)
"""Tables of the server's own, and of those who host it, that decide no answer."""
_OF_HOSTS: Final = "rds_"

Rows = dict[tuple[str, str], bool]
"""See `Change.tables`."""


@dataclass(slots=True)
class Replay:
    """What was read of a part of the log in which definitions may have changed since."""

    statements: bool = False
    """Some that changed rows, as the definitions of now say."""


class Effects:
    """What changes do in one process's cache, and so in all."""

    def __init__(self, engine: Engine, planner: Planner) -> None:
        self._engine = engine
        self._planner = planner

    async def publish(self, changes: Iterable[Change], replay: Replay | None = None) -> int:
        """Bumps what the changes made outdated, those of definitions in their turn, all others at
        once. Returns how many tags that were. `replay`: it may be long ago that they were made.

        Raises: CacheUnavailable.
        """
        rows: Rows = {}
        writes, cause, bumped = NOTHING, "", 0
        for change in changes:
            if change.everything:
                writes, cause = EVERYTHING, change.everything
            for name, changed in change.tables.items():
                rows[name] = changed or rows.get(name, False)
            for statement in change.statements:
                does = await self._writes_of(statement)
                if does.everything and not writes.everything:
                    cause = "the log has a statement of which it is not known what it changes"
                if replay is not None and self._misled(replay, does):
                    does, cause = EVERYTHING, "definitions have changed since the log was followed"
                writes |= does
                if does.everything or does.schemas:
                    bumped += await self._bump(rows, writes, cause)
                    rows, writes, cause = {}, NOTHING, ""
        return bumped + await self._bump(rows, writes, cause)

    def _misled(self, replay: Replay, does: WriteSet) -> bool:
        """Whether what came before may have led to tables that it leads to no more, now that these
        definitions have changed. What hangs on their schemas is forgotten by that alone."""
        catalog = self._planner.keeper.catalog
        replay.statements |= bool(does.tables) and not does.schemas
        return bool(does.schemas) and (
            replay.statements or catalog is None or catalog.keys_cross_schemas
        )

    async def forget_everything(self, cause: str) -> None:
        """Bumps the root."""
        await self._engine.bump({ROOT}, door="binlog", cause=f"binary log: {cause}")

    async def _bump(self, rows: Rows, writes: WriteSet, cause: str) -> int:
        tags: set[Tag] = set()
        if rows and not writes.everything:
            tags |= await self._tags_of(rows)
        if writes:
            tags |= self._planner.tagging.tags(writes)
        if ROOT in tags:
            await self.forget_everything(cause or "it is not known what rows hang on a change")
            return 1
        if tags:
            await self._engine.bump(tags, door="binlog")
        return len(tags)

    async def _writes_of(self, statement: Logged) -> WriteSet:
        """What a statement writes, and changes of definitions, by the definitions of now."""
        reader, tagging = self._planner.reader, self._planner.tagging
        for _ in range(_ROUNDS):
            edition = self._planner.keeper.edition
            declared = reader.declared(statement.schema)
            way = Way(statement.dialect, several=False, prepared=False, declared=declared)
            if len(statement.text) <= ON_THE_LOOP_BYTES:
                read = way.analyse(statement.text)
            else:
                read = await reader.apart(way.analyse, statement.text)
            writes = tagging.writes(
                reader.with_code_they_run(read, statement.schema), statement.schema
            )
            if await self._holds(writes, edition):
                return writes
        return EVERYTHING

    async def _tags_of(self, rows: Rows) -> frozenset[Tag]:
        """The tags of changed rows: those of their tables, and of those that foreign keys change
        rows in. What triggers have changed the log has as rows."""
        for _ in range(_ROUNDS):
            catalog, edition = self._planner.keeper.catalog, self._planner.keeper.edition
            if catalog is None:
                return frozenset({ROOT})
            tables = _reached(catalog, rows)
            if tables is None:
                return frozenset({ROOT})
            if await self._holds(WriteSet(tables), edition):
                return frozenset(Tag(name.schema, name.name) for name in tables)
        return frozenset({ROOT})

    async def _holds(self, writes: WriteSet, edition: int) -> bool:
        """Whether what was found out by the catalog of this edition is right by the definitions of
        now."""
        if writes.everything or not writes:
            return True
        asked = self._planner.tagging.definitions(writes)
        states = await self._engine.states(asked)
        known = await self._planner.keeper.catch_up(writes, asked, states)
        return known is not Known.UNKNOWN and self._planner.keeper.edition == edition


def _reached(catalog: Catalog, rows: Rows) -> frozenset[TableName] | None:
    """Those whose answers the rows change; None for any."""
    tables: set[TableName] = set()
    changed: set[TableName] = set()
    for (schema, table), leads_on in rows.items():
        if schema.lower() in SYSTEM_SCHEMAS:
            if schema.lower() == "mysql" and not _answers_nothing(table.lower()):
                return None
            continue
        name = TableName(catalog.fold(schema), catalog.fold(table))
        (changed if leads_on else tables).add(name)
    # Also of those that only got rows: they may have none of their own.
    reached = catalog.cascades_from(changed)
    alone = catalog.cascades_from(tables)
    return None if reached is None or alone is None else reached | tables


def _answers_nothing(table: str) -> bool:
    return table in _ANSWER_NOTHING or table.startswith(_OF_HOSTS)
