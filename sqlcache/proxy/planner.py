"""What a client's statements mean for the cache: which read can be a hit, which tags a write bumps.

Three memories stand before the analysis: a packet's bytes to its `Read` (a dictionary per session
context), a statement's shape to what it says, and the shape with its schema to what that means
under the present catalog. All that hangs on the catalog is forgotten when the catalog changes.

The catalog follows DDL by the schemas' tags: each proxy that changes a definition bumps them, and
`confirms` tells whether the catalog at hand was read under the versions a read or write saw.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from sqlcache.cache.engine import Engine
from sqlcache.cache.lookups import Read
from sqlcache.cache.tags import ROOT, Tag, read_tags
from sqlcache.errors import UpstreamError
from sqlcache.metrics import Metrics
from sqlcache.proxy.state import SessionState, Settings
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.lexer import Dialect, Lexed
from sqlcache.sql.names import TableName
from sqlcache.sql.statement import Statement, analyse

log = logging.getLogger(__name__)

LoadUpstream = Callable[[], Awaitable[tuple[Catalog, Settings]]]

_RETRY_S = 0.5
_SHAPES = 20_000
_TEXT_DECIDES = frozenset({"SET", "USE", "PREPARE", "EXECUTE"})
"""Verbs whose literals change what the statement does; their analysis is not shared."""


@dataclass(frozen=True, slots=True)
class WriteSet:
    """What statements write, before triggers and foreign keys are thought of."""

    tables: frozenset[TableName] = frozenset()
    schemas: frozenset[str] = frozenset()
    everything: bool = False

    def __or__(self, other: "WriteSet") -> "WriteSet":
        return WriteSet(
            self.tables | other.tables,
            self.schemas | other.schemas,
            self.everything or other.everything,
        )

    def __bool__(self) -> bool:
        return self.everything or bool(self.tables) or bool(self.schemas)


EVERYTHING = WriteSet(everything=True)
NOTHING = WriteSet()


def _calls_stored(statement: Statement, catalog: Catalog) -> bool:
    """Whether a name that is built in somewhere is a stored function on this server."""
    return not catalog.stored_functions.isdisjoint(map(str.lower, statement.functions))


class Context:
    """What sessions with one fingerprint share: the reads planned for them, by packet."""

    __slots__ = ("dialect", "fingerprint", "older", "plans", "schema")

    def __init__(self, fingerprint: bytes, schema: str | None, dialect: Dialect) -> None:
        self.fingerprint = fingerprint
        self.schema = schema
        self.dialect = dialect
        self.plans: dict[bytes, Read] = {}
        self.older: dict[bytes, Read] = {}

    def planned(self, packet: bytes) -> Read | None:
        """The read remembered for this packet; one from the older half moves to the newer."""
        read = self.plans.get(packet)
        if read is None:
            read = self.older.pop(packet, None)
            if read is not None:
                self.plans[packet] = read
        return read


class Planner:
    """One process's knowledge of statements and of the upstream's catalog."""

    def __init__(
        self,
        engine: Engine,
        load_upstream: LoadUpstream,
        metrics: Metrics,
        *,
        plan_cache_entries: int,
        refresh_s: float,
        enabled: bool = True,
    ) -> None:
        self._engine = engine
        self._load_upstream = load_upstream
        self._metrics = metrics
        self._plan_cache_entries = plan_cache_entries
        self._refresh_s = refresh_s
        self._enabled = enabled
        self._catalog: Catalog | None = None
        self._seen: Mapping[Tag, bytes | None] = {}
        self._contexts: dict[bytes, Context] = {}
        self._statements: OrderedDict[tuple[object, ...], tuple[Statement, ...]] = OrderedDict()
        self._verdicts: dict[tuple[object, ...], tuple[Tag, ...] | str] = {}
        self._planned = 0
        self._refreshing: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self.globals: Settings = ()
        self.generation = 0
        """Changes whenever the globals do: sessions that began before must ask for their own."""

    # The catalog.

    @property
    def ready(self) -> bool:
        """Whether reads may be answered from the cache: it is on, and the catalog known."""
        return self._enabled and self._catalog is not None

    async def start(self) -> None:
        """Reads the catalog, and from then on again and again. MySQL may be away."""
        await self.refresh()
        self._keeping = asyncio.get_running_loop().create_task(self._keep_fresh())

    async def close(self) -> None:
        """Stops reading it."""
        tasks = [task for task in (self._keeping, self._refreshing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_s if self.ready else _RETRY_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Reads the catalog now; a caller that comes while that goes on waits for the next."""
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
        await asyncio.wait([self._refreshing])

    async def _refresh(self) -> None:
        try:
            if self._catalog is None:
                self._catalog, self.globals = await self._load_upstream()
            # Read before the catalog: a change in between is then seen as unconfirmed.
            schemas = [Tag(schema) for schema in self._catalog.schemas]
            seen = await self._engine.versions([ROOT, *schemas])
            catalog, globals_ = await self._load_upstream()
        except UpstreamError as error:
            log.warning("catalog not read error=%s", error)
            return
        self._metrics.catalog_loads += 1
        if catalog != self._catalog:
            self._forget_plans()
        if globals_ != self.globals:
            self.generation += 1
        self._catalog, self.globals, self._seen = catalog, globals_, seen

    def _forget_plans(self) -> None:
        for context in self._contexts.values():
            context.plans.clear()
            context.older.clear()
        self._verdicts.clear()
        self._planned = 0

    def confirms(self, versions: Mapping[Tag, bytes | None]) -> bool:
        """Whether no definition changed between the catalog's reading and these versions."""
        return all(
            self._seen.get(tag) == version for tag, version in versions.items() if not tag.table
        )

    # Statements.

    def context(self, state: SessionState) -> Context:
        """The shared context of sessions like this one."""
        fingerprint = state.fingerprint()
        context = self._contexts.get(fingerprint)
        if context is None:
            context = Context(fingerprint, state.schema, state.dialect)
            self._contexts[fingerprint] = context
        return context

    def statements(
        self, lexed: Lexed, text: bytes, dialect: Dialect, *, prepared: bool = False
    ) -> tuple[Statement, ...]:
        """What the text's statements do, analysed once a shape."""
        key = (lexed.shape, dialect, prepared)
        known = self._statements.get(key)
        if known is None:
            known = analyse(text, dialect, parameters_allowed=prepared)
            if all(statement.verb not in _TEXT_DECIDES for statement in known):
                self._statements[key] = known
                if len(self._statements) > _SHAPES:
                    self._statements.popitem(last=False)
        return known

    def plan_read(
        self, packet: bytes, lexed: Lexed, statement: Statement, context: Context
    ) -> Read | str:
        """The read a statement is, remembered for its packet; or why it is none."""
        verdict = self._verdict(lexed.shape, statement, context)
        if isinstance(verdict, str):
            return verdict
        read = self._engine.read(context.fingerprint, lexed.canonical, verdict, lexed.shape)
        self._remember(packet, read, context)
        return read

    def _remember(self, packet: bytes, read: Read, context: Context) -> None:
        context.plans[packet] = read
        self._planned += 1
        if self._planned * 2 > self._plan_cache_entries:
            for each in self._contexts.values():
                each.older, each.plans = each.plans, {}
            self._planned = 0
        self._metrics.plan_cache_entries = self._planned

    def _verdict(
        self, shape: bytes, statement: Statement, context: Context
    ) -> tuple[Tag, ...] | str:
        if not statement.cacheable:
            return "not cacheable"
        key = (shape, context.schema, context.dialect)
        verdict = self._verdicts.get(key)
        if verdict is None:
            if len(self._verdicts) >= _SHAPES:
                self._verdicts.clear()
            verdict = self._verdicts[key] = self._judge(statement, context.schema)
        return verdict

    def _judge(self, statement: Statement, schema: str | None) -> tuple[Tag, ...] | str:
        catalog = self._catalog
        if catalog is None:
            return "catalog unknown"
        if _calls_stored(statement, catalog):
            return "not cacheable"
        names = [catalog.resolve(ref, schema) for ref in statement.reads]
        tables = [name for name in names if name is not None]
        if len(tables) < len(names):
            return "no default schema"
        closure = catalog.read_closure(tables)
        if not closure.cacheable:
            return "not cacheable"
        return read_tags(closure.tables, closure.schemas)

    # Writes.

    def writes(self, statements: Iterable[Statement], schema: str | None) -> WriteSet:
        """What the statements write, by the names in them."""
        total = NOTHING
        for statement in statements:
            total |= self._writes(statement, schema)
        return total

    def _writes(self, statement: Statement, schema: str | None) -> WriteSet:
        catalog = self._catalog
        if catalog is None:
            writes = statement.writes_everything or statement.writes or statement.schemas
            return EVERYTHING if writes else NOTHING
        if statement.writes_everything or _calls_stored(statement, catalog):
            return EVERYTHING
        tables = frozenset(catalog.resolve(ref, schema) for ref in statement.writes)
        schemas = frozenset(catalog.fold(name or schema or "") for name in statement.schemas)
        names = [catalog.resolve(ref, schema) for ref in statement.reads]
        viewed = catalog.read_closure([name for name in names if name is not None])
        if None in tables or viewed.may_write:
            return EVERYTHING
        return WriteSet(frozenset(name for name in tables if name is not None), schemas)

    def tags(self, writes: WriteSet) -> frozenset[Tag]:
        """The tags to bump, with what triggers and foreign keys write too."""
        if writes.everything or self._catalog is None:
            return frozenset({ROOT}) if writes else frozenset()
        tables = self._catalog.write_closure(writes.tables) if writes.tables else frozenset()
        if tables is None:
            return frozenset({ROOT})
        tags = {Tag(name.schema, name.name) for name in tables}
        tags.update(Tag(schema) for schema in writes.schemas)
        return frozenset(tags)

    def definitions(self, writes: WriteSet) -> tuple[Tag, ...]:
        """The tags that tell whether the catalog `tags` went by was current."""
        return (ROOT, *(Tag(schema) for schema in sorted({t.schema for t in writes.tables})))

    def untransactional(self, writes: WriteSet) -> WriteSet:
        """The part of the writes that a ROLLBACK would not take back."""
        if writes.everything or self._catalog is None:
            return writes
        catalog = self._catalog
        tables = catalog.write_closure(writes.tables) if writes.tables else frozenset()
        if tables is None:
            return EVERYTHING
        lasting = frozenset(name for name in tables if not catalog.is_transactional(name))
        return WriteSet(lasting, writes.schemas)
