"""What a change in the log makes outdated: its tags, and their bump.

Statements are read as if they had come through the proxy, by the definitions of now: who changed
those after the statement has bumped the schema's tag, and all that hangs on it, by that.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sqlcache.binlog.transactions import Change, Logged
from sqlcache.cache.engine import Engine
from sqlcache.cache.keys import digest
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.metrics import Metrics
from sqlcache.plan.keeper import Known
from sqlcache.plan.meanings import ON_THE_LOOP_BYTES
from sqlcache.plan.planner import Planner
from sqlcache.plan.reader import Way
from sqlcache.plan.writeset import EVERYTHING, NOTHING, WriteSet
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import OPEN_SCHEMAS, SYSTEM_SCHEMAS
from sqlcache.sql.names import TableName
from sqlcache.sql.statement import ADDS, Changes

log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 0.001
_LOOKS: Final = 5  # for the end of a commit that the log has told of
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

Rows = dict[tuple[str, str], Changes]
"""See `Change.tables`."""
_Row = tuple[tuple[str, str], Changes]
_UNKNOWN: Final = "the log has a statement of which it is not known what it changes"
_MISLED: Final = "definitions have changed since the log was followed"


@dataclass(slots=True)
class _Gathered:
    """What is to be bumped at once, and for which commits: by what they did, what they are called,
    None where that is not known."""

    rows: Rows = field(default_factory=dict)
    writes: WriteSet = NOTHING
    cause: str = ""
    commits: dict[tuple[frozenset[_Row], WriteSet], set[bytes | None]] = field(default_factory=dict)

    def add(self, rows: Rows, writes: WriteSet, commit: bytes | None) -> None:
        """What a commit did, or a part of it."""
        for name, changes in rows.items():
            self.rows[name] = changes.with_(self.rows.get(name, ADDS))
        self.writes |= writes
        self.commits.setdefault((frozenset(rows.items()), writes), set()).add(commit)


@dataclass(slots=True)
class Replay:
    """What was read of a part of the log in which definitions may have changed since."""

    statements: bool = False
    """Some that changed rows, as the definitions of now say."""


class Effects:
    """What changes do in one process's cache, and so in all."""

    def __init__(self, engine: Engine, planner: Planner, metrics: Metrics) -> None:
        self._engine = engine
        self._planner = planner
        self._metrics = metrics

    def named_for(self, reading: bytes) -> bytes:
        """What commits are to be named for that this reading of the log may come upon; empty where
        the server is not known, which others may have the same names in."""
        server = self._planner.keeper.server
        return digest((reading, server.encode())) if reading and server else b""

    async def others(self, changes: list[Change]) -> list[Change]:
        """Those that this process has not made and ended itself. The log may tell of a commit just
        before the session hears of it that made it."""
        left = self._others(changes)
        for _ in range(_LOOKS):
            if not self._engine.own_commits.come or all(each.name is None for each in left):
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
            left = self._others(left)
        self._metrics.binlog_tags_own += sum(len(each.tables) for each in changes)
        self._metrics.binlog_tags_own -= sum(len(each.tables) for each in left)
        return left

    def _others(self, changes: Iterable[Change]) -> list[Change]:
        catalog = self._planner.keeper.catalog
        return [each for each in changes if catalog is None or not self._is_own(each, catalog)]

    def _is_own(self, change: Change, catalog: Catalog) -> bool:
        if change.name is None or change.statements or change.everything:
            return False
        reached = _reached(catalog, change.tables)
        if reached is None:
            return False
        tags = {Tag(name.schema, name.name) for name in reached}
        return self._engine.own_commits.have_ended(change.name, tags)

    def name_for(self, reading: bytes) -> None:
        """From here on this process's sessions name their commits for it."""
        self._engine.commits_from = self.named_for(reading)

    async def publish(self, changes: Iterable[Change], replay: Replay | None = None) -> int:
        """Bumps what the changes made outdated, those of definitions in their turn, all others at
        once. Returns how many tags that were. `replay`: it may be long ago that they were made.

        Raises: CacheUnavailable.
        """
        gathered, bumped = _Gathered(), 0
        for change in changes:
            rows, writes = change.tables, NOTHING
            if change.everything:
                writes, gathered.cause = EVERYTHING, change.everything
            for statement in change.statements:
                does = await self._writes_of(statement)
                if does.everything and not (gathered.writes | writes).everything:
                    gathered.cause = _UNKNOWN
                if replay is not None and self._misled(replay, does):
                    does, gathered.cause = EVERYTHING, _MISLED
                writes |= does
                if does.everything or does.schemas:
                    gathered.add(rows, writes, change.name)
                    bumped += await self._bump(gathered)
                    gathered, rows, writes = _Gathered(), {}, NOTHING
            gathered.add(rows, writes, change.name)
        return bumped + await self._bump(gathered)

    def _misled(self, replay: Replay, does: WriteSet) -> bool:
        """Whether what came before may have led to tables that it leads to no more, now that these
        definitions have changed. What hangs on their schemas is forgotten by that alone."""
        catalog = self._planner.keeper.catalog
        replay.statements |= bool(does.tables) and not does.schemas
        return bool(does.schemas) and (
            replay.statements or catalog is None or catalog.writes.keys_cross_schemas
        )

    async def forget_everything(self, cause: str) -> None:
        """Bumps the root."""
        await self._engine.bump({ROOT}, door="binlog", cause=f"binary log: {cause}")

    async def _bump(self, gathered: _Gathered) -> int:
        rows, writes, cause = gathered.rows, gathered.writes, gathered.cause
        tags: set[Tag] = set()
        if rows and not writes.everything:
            tags |= await self._tags_of(rows)
        if writes:
            tags |= self._planner.tagging.tags(writes)
        if ROOT in tags:
            await self.forget_everything(cause or "it is not known what rows hang on a change")
            return 1
        if ended := await self._ended_before(tags, gathered):
            self._metrics.binlog_tags_own += len(ended)
            tags -= ended
        if tags:
            steps = await self._engine.bump(tags, door="binlog")
            if steps and not writes.unnamed:
                await self._planner.keeper.redefined(writes, steps)
        return len(tags)

    async def _ended_before(self, tags: set[Tag], gathered: _Gathered) -> set[Tag]:
        """Those of the tags whose logs say that they got new versions after all of the commits that
        concern them. By the definitions by which the tags were found, so nothing is awaited before
        it is known which commits those are."""
        catalog = self._planner.keeper.catalog
        if catalog is None:
            return set()
        by: dict[Tag, set[bytes | None]] = {}
        for (rows, writes), commits in gathered.commits.items():
            reached = _reached(catalog, dict(rows))
            if reached is None:
                return set()
            concerns = {Tag(name.schema, name.name) for name in reached}
            for tag in concerns | self._planner.tagging.tags(writes):
                by.setdefault(tag, set()).update(commits)
        asked = [tag for tag in tags if None not in by.get(tag, {None})]
        if not asked:
            return set()
        named = await self._engine.commits(asked)
        return {tag for tag in asked if by[tag] <= named[tag]}

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
    told: list[tuple[TableName, Changes]] = []
    for (schema, table), changes in rows.items():
        if schema.lower() in SYSTEM_SCHEMAS - OPEN_SCHEMAS:
            if schema.lower() == "mysql" and not _answers_nothing(table.lower()):
                return None
            continue
        name = TableName(catalog.server.fold(schema), catalog.server.fold(table))
        if changes != ADDS and catalog.definitions.keeps_history(
            name
        ):  # the log has deletions as updates
            changes = changes._replace(deletes=True)
        told.append((name, changes))
    return catalog.writes.cascades_from(told)


def _answers_nothing(table: str) -> bool:
    return table in _ANSWER_NOTHING or table.startswith(_OF_HOSTS)
