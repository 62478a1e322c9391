"""Which tags a write marks and bumps, and which ones tell whether that is known rightly."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sqlcache.cache.bounded import Bounded, weigh
from sqlcache.cache.engine import Engine
from sqlcache.cache.marks import Marks
from sqlcache.cache.tags import ELSEWHERE, ROOT, Tag
from sqlcache.plan.cacheability import calls_stored
from sqlcache.plan.commands import Meaning
from sqlcache.plan.confirmations import Confirmations, Known
from sqlcache.plan.keeper import Keeper
from sqlcache.plan.temporary import TemporaryTables
from sqlcache.plan.writeset import EVERYTHING, NOTHING, WriteSet, together
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import LEADING_SCHEMAS, SYSTEM_SCHEMAS
from sqlcache.sql.names import TableName
from sqlcache.sql.statement import ANYTHING, Statement, in_turn, of_each

_ROUNDS: Final = 20  # of reading what they write again, where definitions change all the time


class Tagging:
    """By the catalog of the keeper. `forget` what was worked out when that is another one."""

    def __init__(
        self, engine: Engine, keeper: Keeper, confirmations: Confirmations, *, max_bytes: int
    ) -> None:
        self._engine = engine
        self._keeper = keeper
        self._confirmations = confirmations
        self._marks: Bounded[WriteSet, Marks] = Bounded(max_bytes)

    def forget(self) -> None:
        """The definitions are other ones."""
        self._marks.clear()

    @property
    def size_bytes(self) -> int:
        """What is remembered of writes, roughly."""
        return self._marks.size_bytes

    def writes(self, statements: Sequence[Statement], schema: str | None) -> WriteSet:
        """What the statements of one text write, by the names in them."""
        written: dict[int, WriteSet] = {}
        redefined = led = wrote = False
        of_statements = of_each(self._writes, statements, schema)
        for statement, writes in zip(statements, of_statements, strict=True):
            if redefined and self._names_any(statement):
                return EVERYTHING  # the names may mean what the catalog at hand does not know
            if led and statement.schemas:
                return EVERYTHING  # nobody compares after a definition where its writes have led
            written[id(writes)] = writes
            wrote = wrote or bool(writes)
            redefined = redefined or bool(statement.schemas) or statement.merges
            led = led or (wrote and not redefined)
        total = together([*written.values()])
        return NOTHING if total == NOTHING else total

    def _names_any(self, statement: Statement) -> bool:
        """Whether it names tables, or code that may."""
        catalog = self._keeper.catalog
        runs_code = statement.writes_everything or statement.routines
        names = statement.reads or statement.writes or runs_code
        return bool(names or (catalog is not None and calls_stored(statement, catalog)))

    def by_way_of(self, temporary: TemporaryTables, writes: WriteSet) -> WriteSet:
        """With what else is written if the names in a statement mean temporary tables."""
        if not writes or not temporary.may_merge:
            return writes
        catalog = self._keeper.catalog
        merged = None if catalog is None else catalog.writes.by_unknown
        return EVERYTHING if temporary.merges or merged is None else writes | WriteSet(merged)

    def written_when_prepared(self, meaning: Meaning) -> WriteSet:
        """What the server writes when it prepares statements that mean this: MariaDB calls some
        functions then, as one that says how many digits ROUND leaves."""
        catalog = self._keeper.catalog
        if catalog is not None and not self._keeper.is_mariadb:
            return NOTHING
        for statement, schema in in_turn(meaning.statements, meaning.schema):
            if catalog is None or statement.routines or calls_stored(statement, catalog):
                return meaning.writes
            named = catalog.server.named(statement.reads | statement.writes, schema)
            # Who does not know what is called fears any that there is.
            stored = statement.writes_everything and catalog.code.may_be_called_by(None)
            if stored or catalog.reads.closure(named).may_write:
                return meaning.writes
        return NOTHING

    def _writes(self, statement: Statement, schema: str | None) -> WriteSet:
        catalog = self._keeper.catalog
        if catalog is None:
            writes = statement.writes_everything or statement.writes or statement.schemas
            return EVERYTHING if writes else NOTHING
        if statement.verb == "PREPARE" and self._keeper.is_mariadb:
            return EVERYTHING if catalog.code.may_be_called_by(statement.text) else NOTHING
        reach = self._keeper.reach_of(statement, schema)
        stored = statement.writes_everything or calls_stored(statement, catalog)
        # Likewise of code that makes the rows of a table that is defined.
        makes_rows = bool(statement.schemas) and not statement.defines_view
        if stored and (reach is None or makes_rows):
            return EVERYTHING
        tables = frozenset(catalog.server.resolve(ref, schema) for ref in statement.writes)
        schemas = frozenset(catalog.server.fold(name or schema or "") for name in statement.schemas)
        reads = catalog.server.named(statement.reads, schema)
        if None in tables or catalog.reads.closure(reads).may_write:
            return EVERYTHING
        run = WriteSet(reach.tables, defined_in=reach.schemas) if reach else NOTHING
        named = frozenset(name for name in tables if name is not None)
        if not LEADING_SCHEMAS.isdisjoint(map(str.lower, schemas.union(n.schema for n in named))):
            return EVERYTHING  # rights, time zones, functions: what all that goes by
        if not schemas:
            told = not (statement.routines or statement.changes == ANYTHING)
            parents = filter(catalog.writes.leads, named if told else ())
            return run | WriteSet(
                named, reads=reads, told=frozenset((name, statement.changes) for name in parents)
            )
        # What no longer leads to other tables by this has led there until now.
        led = frozenset(filter(catalog.definitions.is_view, named))
        if statement.trigger is not None:
            trigger = catalog.server.resolve(statement.trigger, schema)
            table = trigger and catalog.definitions.table_of_trigger(trigger)
            named = led = frozenset({table} if table else ())
        rows = named if statement.reads and not statement.defines_view else led
        return run | WriteSet(
            tables=rows,
            schemas=schemas,
            redefined=named,
            unnamed=frozenset() if named else schemas,
            leading=schemas if statement.leads else frozenset(),
            reads=reads if rows else frozenset(),
        )

    def tags(self, writes: WriteSet) -> frozenset[Tag]:
        """The tags to bump, with what triggers and foreign keys write too."""
        catalog = self._keeper.catalog
        if writes.everything or catalog is None:
            return frozenset({ROOT}) if writes else frozenset()
        tables = self._reached(writes, catalog)
        if tables is None:
            return frozenset({ROOT})
        tags = {Tag(name.schema, name.name) for name in tables | writes.redefined}
        tags.update(Tag(schema) for schema in writes.schemas)
        tags.update(Tag(schema, ELSEWHERE) for schema in writes.leading)
        return frozenset(tags)

    def _reached(self, writes: WriteSet, catalog: Catalog) -> frozenset[TableName] | None:
        """All tables whose rows they may change; None for any."""
        return catalog.writes.closure(writes.tables, writes.told) if writes.tables else frozenset()

    def definitions(self, writes: WriteSet) -> tuple[Tag, ...]:
        """The tags that tell whether the catalog `tags` and `writes` went by was current.

        Where they say so of all of them it was: each table's definition tells which ones a write to
        it leads to, and these are the schemas of all that are reached.
        """
        catalog = self._keeper.catalog
        if catalog is None or writes.everything:
            return ()
        schemas = writes.defined_in
        if writes.reads:
            schemas |= catalog.reads.closure(writes.reads).schemas
        if writes.tables:
            schemas |= catalog.writes.reach(writes.tables, writes.told).schemas
        own = {schema for schema in schemas if schema.lower() in SYSTEM_SCHEMAS}
        return (ROOT, *map(Tag, sorted(schemas - own))) if schemas else ()

    async def holds(self, writes: WriteSet, edition: int) -> bool:
        """Whether what was found out about these by the catalog of this edition is right by the
        definitions of now. If not, these have been read, or that could not be done."""
        if writes.everything or not writes.may_change:
            return True
        asked = self.definitions(writes)
        states = await self._engine.states(asked)
        known = await self._confirmations.catch_up(writes, asked, states)
        return known is not Known.UNKNOWN and self._keeper.edition == edition

    async def tags_now(self, writes: WriteSet) -> frozenset[Tag]:
        """The same as `tags`, by the definitions of now; the root's where these are not known."""
        for _ in range(_ROUNDS):
            tags, edition = self.tags(writes), self._keeper.edition
            if await self.holds(writes, edition):
                return tags
            if self._keeper.edition == edition:
                break
        return frozenset({ROOT})

    def marks(self, writes: WriteSet) -> Marks | None:
        """What to mark for these writes, and to observe: it is right while `Confirmations` say so.
        None where more than rows of known tables is written."""
        known = self._marks.get(writes)
        if known is not None:
            return known
        more = writes.everything or writes.schemas or writes.redefined or writes.defined_in
        if self._keeper.catalog is None or more or self._keeper.unread_reach(writes):
            return None
        tags = self.tags(writes)
        if not tags or not all(tag.table for tag in tags):
            return None
        marks = self._engine.marks(tags, self.definitions(writes), self._keeper.edition)
        self._marks.put(writes, marks, weigh(writes) + marks.size_bytes)
        return marks

    def non_transactional(self, writes: WriteSet) -> WriteSet:
        """The part of the writes that a ROLLBACK would not take back."""
        catalog = self._keeper.catalog
        if writes.everything or catalog is None:
            return writes
        tables = self._reached(writes, catalog)
        if tables is None:
            return EVERYTHING
        lasting = frozenset(name for name in tables if not catalog.reads.is_transactional(name))
        return replace(writes, tables=lasting, told=frozenset())
