"""What a change in the log makes outdated: its tags, and their bump.

Statements are read as if they had come through the proxy, by the definitions of now: who changed
those after the statement has bumped the schema's tag, and all that hangs on it, by that. What it
led to in other schemas is not known then: `hindsight` tells whether that may be.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

from sqlcache.binlog.additions import only_adds
from sqlcache.binlog.change import Change, Logged
from sqlcache.binlog.hindsight import Hindsight, Stamp
from sqlcache.binlog.temporary import LoggedTemporaryTables, concerns
from sqlcache.cache.bounded import Bounded, weigh
from sqlcache.cache.engine import Engine
from sqlcache.cache.keys import digest
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.metrics import Metrics
from sqlcache.plan.planner import Planner
from sqlcache.plan.reader import literals_decide
from sqlcache.plan.writeset import EVERYTHING, NOTHING, WriteSet
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import OPEN_SCHEMAS, SYSTEM_SCHEMAS
from sqlcache.sql.names import TableName
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.statement import ADDS, Changes, Statement

_LOOK_AGAIN_S: Final = 0.001
_LOOKS: Final = 5  # for the end of a commit that the log has told of
_ROUNDS: Final = 20  # of reading a change again, where definitions change all the time
_READ_TOGETHER: Final = 1_000  # statements that definitions are asked for at once
_MOST_DISTINCT: Final = 64  # of them, by what they write: the union of many costs their square
_READ_AT_A_STRETCH_BYTES: Final = 2_048
"""Of those that are not known, which take 1.5 µs a byte and some 0.2 ms each."""
_EACH_AS_BYTES: Final = 128
_KNOWN_BYTES: Final = 2_097_152
_ANSWER_NOTHING: Final = frozenset(
    {
        "gtid_executed",
        "gtid_slave_pos",
        "heartbeat",
        "ha_health_check",
        "innodb_index_stats",
        "innodb_table_stats",
        "table_stats",
        "column_stats",
        "index_stats",
        "slave_master_info",
        "slave_relay_log_info",
        "slave_worker_info",
        "general_log",
        "slow_log",
    }
)
"""Tables of the server's own, and of those who host it, that decide no answer."""
_OF_HOSTS: Final = "rds_"

Rows = dict[tuple[str, str], Changes]
"""See `Change.tables`."""
_Row = tuple[tuple[str, str], Changes]
_UNKNOWN: Final = "the log has a statement of which it is not known what it changes"
_MISLED: Final = "a definition has followed what may have been read by later ones"


_Shape = tuple[bytes, str | None, Dialect]
"""See `Logged.read_as`."""
_Of = tuple[Logged, bytes | None]
"""A statement, and what the commit is called that it is of, None where that is not known."""


class _Read(NamedTuple):
    """What a statement does, by some definitions: those of the `schemas` decide that. Of the tables
    that it writes these are `unknown`. `statements` are kept where temporary ones are concerned.
    `besides` is outdated where names may mean temporary ones. `only_adds`: no write leads to less
    by it."""

    does: WriteSet
    tags: frozenset[Tag]
    schemas: frozenset[str] = frozenset()
    unknown: frozenset[TableName] = frozenset()
    statements: tuple[Statement, ...] = ()
    besides: frozenset[Tag] = frozenset()
    only_adds: bool = False

    @property
    def defines(self) -> bool:
        """Whether what comes behind it may have to be read by other definitions."""
        return self.does.everything or bool(self.does.schemas)


_ANYTHING: Final = _Read(EVERYTHING, frozenset({ROOT}))


@dataclass(slots=True)
class _Gathered:
    """What is to be bumped at once, and for which commits: what these are called, None where that
    is not known. Which tags the rows have is still to be found. `writes` are what definitions do,
    whose tags are `defined`."""

    tags: set[Tag] = field(default_factory=set)
    writes: WriteSet = NOTHING
    defined: set[Tag] = field(default_factory=set)
    cause: str = ""
    by_rows: dict[frozenset[_Row], set[bytes | None]] = field(default_factory=dict)
    by_tag: dict[Tag, set[bytes | None]] = field(default_factory=dict)

    def add_rows(self, rows: Rows, commit: bytes | None) -> None:
        """What a commit did."""
        if rows:
            self.by_rows.setdefault(frozenset(rows.items()), set()).add(commit)

    def add(self, tags: Iterable[Tag], commits: Iterable[bytes | None]) -> None:
        """What these commits make outdated, as was found when it was read."""
        for tag in tags:
            self.tags.add(tag)
            self.by_tag.setdefault(tag, set()).update(commits)

    def add_statement(self, read: _Read, commit: bytes | None) -> None:
        """What a statement of a commit does."""
        if read.does.everything:
            self.add_everything(_UNKNOWN)
        self.add(read.tags, {commit})
        self.add(read.besides, {None})

    def define(self, read: _Read, commit: bytes | None) -> None:
        """What a definition of a commit does: its tags are bumped whatever they were before."""
        self.add_statement(read, commit)
        self.writes |= read.does
        self.defined |= read.tags

    def add_everything(self, cause: str) -> None:
        """For that cause, if it is the first."""
        if ROOT not in self.tags:
            self.tags.add(ROOT)
            self.cause = cause


@dataclass(slots=True)
class _Told:
    """What was bumped since the changes that are being told of were logged: these tags, for these
    definitions among others."""

    tags: set[Tag] = field(default_factory=set)
    writes: WriteSet = NOTHING

    def has(self, read: _Read) -> bool:
        """Whether all that a definition does was told: what it has left is then read as well."""
        return ROOT in self.tags or (
            read.tags <= self.tags and self.writes | read.does == self.writes
        )


@dataclass(slots=True)
class Reading:
    """What is known of a reading of the log, from a place on. `again`: its changes were read
    before, and what was found then is bumped with them: what they did by other definitions, or by
    way of temporary tables, is among that."""

    hindsight: Hindsight = field(default_factory=Hindsight)
    temporary: LoggedTemporaryTables = field(default_factory=LoggedTemporaryTables)
    again: bool = False


class Effects:
    """What changes do in one process's cache, and so in all."""

    def __init__(self, engine: Engine, planner: Planner, metrics: Metrics) -> None:
        self._engine = engine
        self._planner = planner
        self._metrics = metrics
        self._shapes: Bounded[_Shape, _Read] = Bounded(_KNOWN_BYTES)
        self._shapes_by = 0  # the edition of the catalog
        self._merged: frozenset[Tag] | None = None  # by the same: the tags of `_by_unknown`
        self._read_bytes = 0  # of what was not known, since others had their turns

    @property
    def stamp(self) -> Stamp:
        """Which definitions are known."""
        keeper = self._planner.keeper
        return keeper.edition, keeper.redefinitions

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
        return self._engine.own_commits.have_ended(change.name, set(_tags(reached)))

    def name_for(self, reading: bytes) -> None:
        """From here on this process's sessions name their commits for it."""
        self._engine.commits_from = self.named_for(reading)

    async def publish(
        self, changes: Iterable[Change], reading: Reading, also: Iterable[Tag] = ()
    ) -> list[Tag]:
        """Bumps what the changes made outdated, all of it at once; but before what comes behind a
        definition is read that, with those that follow it soon: each bump of a schema may have to
        wait, and has the catalog read again. `also` these tags. Returns those that were bumped.

        Raises: CacheUnavailable.
        """
        changes, hindsight = list(changes), reading.hindsight
        statements = [(each, change.name) for change in changes for each in change.statements]
        read: deque[_Read] = deque()
        taken = 0
        gathered, told = _Gathered(set(also)), _Told()
        for change in changes:
            rows = change.tables
            if change.everything:
                gathered.add_everything(change.everything)
            for _ in change.statements:
                if not read:
                    read += await self._read(statements[taken : taken + _READ_TOGETHER], reading)
                    taken += len(read)
                each = read.popleft()
                gathered.add_statement(each, change.name)
                if not each.defines:
                    continue
                gathered.add_rows(rows, change.name)
                rows = {}
                await self._find_tags(gathered, hindsight)
                may_mislead = not (each.only_adds or reading.again)
                if may_mislead and self._is_late(each.does, hindsight):
                    gathered.add_everything(_MISLED)
                if not told.has(each):
                    gathered.define(each, change.name)
                    soon = statements[taken : taken + _READ_TOGETHER]
                    for other, commit in await self._definitions(soon):
                        gathered.define(other, commit)
                    await self._bump(gathered, told)
                    gathered = _Gathered()
            gathered.add_rows(rows, change.name)
        await self._find_tags(gathered, hindsight)
        await self._bump(gathered, told)
        if ROOT in told.tags:
            hindsight.forgotten()
        return list(told.tags)

    async def forget_everything(self, cause: str) -> None:
        """Bumps the root."""
        await self._engine.bump({ROOT}, door="binlog", cause=f"binary log: {cause}")

    async def _bump(self, gathered: _Gathered, told: _Told) -> None:
        if ROOT in told.tags:
            return
        if ROOT in gathered.tags:
            cause = gathered.cause or "it is not known what rows hang on a change"
            await self.forget_everything(cause)
            told.tags.add(ROOT)
            return
        tags = gathered.tags - (told.tags - gathered.defined)
        if ended := await self._ended_before(tags, gathered):
            self._metrics.binlog_tags_own += len(ended)
            tags -= ended
        if tags:
            steps = await self._engine.bump(tags, door="binlog")
            writes = gathered.writes
            own = {tag: step for tag, step in steps.items() if tag.schema in writes.schemas}
            if own and not writes.unnamed:
                await self._planner.keeper.redefined(writes, own)
        told.tags |= tags
        told.writes |= gathered.writes

    def _is_late(self, writes: WriteSet, hindsight: Hindsight) -> bool:
        """Whether what came before may have led to tables that it leads to no more, now that these
        definitions have changed. What hangs on their schemas is forgotten by that alone."""
        if not writes.schemas:
            return False
        catalog = self._planner.keeper.catalog
        keys = catalog is None or catalog.writes.keys_cross_schemas
        return hindsight.late(writes.schemas, keys_cross_schemas=keys)

    async def _ended_before(self, tags: set[Tag], gathered: _Gathered) -> set[Tag]:
        """Those of the tags whose logs say that they got new versions after all of the commits that
        concern them."""
        by = gathered.by_tag
        asked = [tag for tag in tags if None not in by.get(tag, {None})]
        if not asked:
            return set()
        named = await self._engine.commits(asked)
        return {tag for tag in asked if by[tag] <= named[tag]}

    async def _read(self, statements: Sequence[_Of], reading: Reading) -> list[_Read]:
        """What some of these do by the definitions of now: one that changes definitions, or all up
        to the first that does."""
        keeper = self._planner.keeper
        for _ in range(_ROUNDS):
            edition = keeper.edition
            read: list[_Read] = []
            writes: set[WriteSet] = set()
            for statement, _ in statements:
                each = await self._find_out(statement)
                if read and (each.defines or len(writes) >= _MOST_DISTINCT):
                    break
                read.append(each)
                writes.add(each.does)
                if each.defines:
                    break
            if not await self._planner.tagging.holds(reduce(or_, writes), edition):
                continue
            read = [
                self._by_way_of(statement, each, reading)
                for (statement, _), each in zip(statements, read, strict=False)
            ]
            merges = any(each.besides for each in read)
            if not merges or await self._planner.tagging.holds(WriteSet(self._by_unknown), edition):
                for each in read:
                    if each.does.may_change and not each.defines:
                        reading.hindsight.read(self.stamp, each.schemas)
                return read
        return [_ANYTHING]

    async def _definitions(self, statements: Iterable[_Of]) -> list[tuple[_Read, bytes | None]]:
        """The definitions among these and what they do, by those of now; none where that changes
        all the time."""
        keeper = self._planner.keeper
        for _ in range(_ROUNDS):
            edition = keeper.edition
            found: list[tuple[_Read, bytes | None]] = []
            writes: set[WriteSet] = set()
            for statement, commit in statements:
                if len(writes) >= _MOST_DISTINCT:
                    break
                if not statement.may_define:
                    continue
                each = await self._find_out(statement)
                if each.defines:
                    found.append((each, commit))
                    writes.add(each.does)
            if await self._planner.tagging.holds(reduce(or_, writes, NOTHING), edition):
                return found
        return []

    @property
    def _known(self) -> Bounded[_Shape, _Read]:
        """What statements do, by their shapes and the catalog at hand."""
        if self._shapes_by != self._planner.keeper.edition:
            self._shapes.clear()
            self._merged = None
            self._shapes_by = self._planner.keeper.edition
        return self._shapes

    async def _find_out(self, statement: Logged) -> _Read:
        """What a statement writes, and changes of definitions, by the catalog at hand. Others have
        their turns while many are read."""
        known = self._known.get(statement.read_as)
        if known is not None:
            return known
        self._read_bytes += len(statement.text) + _EACH_AS_BYTES
        if self._read_bytes >= _READ_AT_A_STRETCH_BYTES:
            self._read_bytes = 0
            await asyncio.sleep(0)
        shape, schema, dialect = statement.read_as
        reader, tagging = self._planner.reader, self._planner.tagging
        told = await reader.logged(shape, statement.text, schema, dialect)
        statements = reader.with_code_they_run(told, schema)
        does = tagging.writes(statements, schema)
        catalog = self._planner.keeper.catalog
        knows = None if catalog is None else catalog.knows
        read = _Read(
            does,
            tagging.tags(does),
            frozenset(tag.schema for tag in tagging.definitions(does)),
            frozenset(name for name in does.tables if not (knows and knows(name))),
            tuple(filter(concerns, statements)),
            only_adds=bool(does.schemas) and only_adds(statement.text, dialect),
        )
        if shape and not literals_decide(told):
            self._known.put(statement.read_as, read, weigh(read) + len(shape))
        return read

    def _by_way_of(self, statement: Logged, read: _Read, reading: Reading) -> _Read:
        """With what else is written if names mean temporary tables, which no catalog knows."""
        catalog, temporary = self._planner.keeper.catalog, reading.temporary
        if catalog is None or reading.again:
            return read
        if read.statements:
            temporary.ran(statement.session, read.statements, statement.schema, catalog)
        names = read.does.tables
        if read.defines or not temporary.may_lead(statement.session, names, read.unknown):
            return read
        merged = catalog.writes.by_unknown
        if merged is None:
            return _ANYTHING
        if self._merged is None:
            self._merged = self._planner.tagging.tags(WriteSet(merged))
        return read._replace(besides=self._merged)

    @property
    def _by_unknown(self) -> frozenset[TableName]:
        """The tables whose rows a temporary one may have, as far as they are listed."""
        catalog = self._planner.keeper.catalog
        return (catalog and catalog.writes.by_unknown) or frozenset()

    async def _find_tags(self, gathered: _Gathered, hindsight: Hindsight) -> None:
        """Adds the tags of the gathered rows: those of their tables, and of those that foreign keys
        change rows in. What triggers have changed the log has as rows."""
        by_rows, gathered.by_rows = gathered.by_rows, {}
        if not by_rows or ROOT in gathered.tags:
            return
        for _ in range(_ROUNDS):
            catalog, edition = self._planner.keeper.catalog, self._planner.keeper.edition
            if catalog is None:
                break
            reached = [_reached(catalog, dict(rows)) for rows in by_rows]
            tables = [some for some in reached if some is not None]
            if len(tables) < len(reached):
                break
            if await self._planner.tagging.holds(WriteSet(frozenset().union(*tables)), edition):
                schemas = {schema for rows in by_rows for (schema, _), _ in rows}
                hindsight.read(self.stamp, _led_out_of(catalog, schemas))
                for some, commits in zip(tables, by_rows.values(), strict=True):
                    gathered.add(_tags(some), commits)
                return
        gathered.tags.add(ROOT)


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


def _tags(tables: Iterable[TableName]) -> Iterable[Tag]:
    return (Tag(name.schema, name.name) for name in tables)


def _led_out_of(catalog: Catalog, schemas: Iterable[str]) -> list[str]:
    """Those of the schemas from which rows may have led to tables of others, as those of a MERGE
    table do, which may be another by now."""
    merged = catalog.writes.schemas_by_unknown
    folded = set(map(catalog.server.fold, schemas))
    return [each for each in folded if merged is None or merged - {each}]


def _answers_nothing(table: str) -> bool:
    return table in _ANSWER_NOTHING or table.startswith(_OF_HOSTS)
