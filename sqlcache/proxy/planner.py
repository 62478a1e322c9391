"""What a client's statements mean for the cache: which read can be a hit, which tags a write bumps.

Three memories stand before the analysis: a packet's bytes to its `Read` (a dictionary per session
context), a statement's shape to what it says, and the shape with its schema to what that means
under the present catalog. All that hangs on the catalog is forgotten when the catalog changes.

The catalog follows DDL by the schemas' tags: each proxy that changes a definition bumps them. The
engine finds out at every read whether the catalog at hand was read under their present versions,
and `confirms` tells it of those a write saw.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from sqlcache.cache.engine import Engine
from sqlcache.cache.keys import digest
from sqlcache.cache.lookups import Read
from sqlcache.cache.tags import ROOT, Tag, read_tags
from sqlcache.errors import UpstreamError
from sqlcache.metrics import Metrics
from sqlcache.proxy.prepared import Prepared
from sqlcache.proxy.state import (
    NEW_SESSIONS_RIGHTS,
    SERVER,
    UNREADABLE_RIGHTS,
    SessionState,
    Settings,
)
from sqlcache.proxy.verdicts import (
    CATALOG_UNKNOWN,
    Cacheable,
    Refusal,
    Verdict,
    calls_stored,
    freshness,
    judge,
)
from sqlcache.sql.analysis import analyse
from sqlcache.sql.catalog import SYSTEM_SCHEMAS, Catalog, Reach
from sqlcache.sql.catalog_loader import GLOBALS_THAT_SHAPE_ANSWERS
from sqlcache.sql.lexer import Lexed
from sqlcache.sql.names import TableName, TableRef
from sqlcache.sql.policy import NOTHING_SAID, Asked, Decision, Policy, Source, Terms, read_terms
from sqlcache.sql.routines import NONE_DECLARED, Declared
from sqlcache.sql.statement import FoundRows, Kind, Statement, unknown

log = logging.getLogger(__name__)

LoadUpstream = Callable[[], Awaitable[tuple[Catalog, Settings]]]

_RETRY_S = 0.5
_LONGEST_RETRY_S = 8.0
_REFRESH_GAP_S = 0.1  # between two that unknown names cause
_LOOK_AGAIN_S = 1.0  # for the same unknown name
_CONTEXTS = 1_000
_SHAPES = 20_000
_TEXT_DECIDES = frozenset({"SET", "USE", "PREPARE", "EXECUTE"})
"""Verbs whose literals change what the statement does; their analysis is not shared."""


@dataclass(frozen=True, slots=True)
class WriteSet:
    """What statements write, before triggers and foreign keys are thought of."""

    tables: frozenset[TableName] = frozenset()
    schemas: frozenset[str] = frozenset()
    everything: bool = False
    defined_in: frozenset[str] = frozenset()
    """The schemas of the routines by whose bodies the rest is known: a change there is one here."""

    def __or__(self, other: "WriteSet") -> "WriteSet":
        return WriteSet(
            self.tables | other.tables,
            self.schemas | other.schemas,
            self.everything or other.everything,
            self.defined_in | other.defined_in,
        )

    def __bool__(self) -> bool:
        return self.everything or bool(self.tables or self.schemas or self.defined_in)


EVERYTHING = WriteSet(everything=True)
NOTHING = WriteSet()


class Context:
    """What sessions with one fingerprint and the same `words` share: the reads planned for them, by
    packet. The words are what they said to sqlcache, see `policy`."""

    __slots__ = ("dialect", "fingerprint", "older", "plans", "schema", "user", "words")

    def __init__(self, state: SessionState) -> None:
        self.fingerprint = state.fingerprint()
        self.schema = state.schema
        self.dialect = state.dialect
        self.user = state.login.user.decode("utf-8", "surrogateescape")
        self.words = state.words
        self.plans: dict[bytes, Read] = {}
        self.older: dict[bytes, Read] = {}

    def forget(self) -> None:
        """Forgets all plans; whoever holds this context plans anew."""
        self.plans.clear()
        self.older.clear()

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
        policy: Policy | None = None,
        data_set: str | None = None,
    ) -> None:
        self._engine = engine
        self._load_upstream = load_upstream
        self._metrics = metrics
        self._plan_cache_entries = plan_cache_entries
        self._refresh_s = refresh_s
        self._enabled = enabled
        self._data_set = data_set
        self._noted: str | None = None  # the server that memcached knows to have the data set
        self._rules = policy or Policy(ttl_s=engine.limits.ttl_s)
        self._policy = self._rules  # with names as the catalog's server compares them
        self._catalog: Catalog | None = None
        self._seen: Mapping[Tag, bytes | None] = {}
        self._contexts: dict[tuple[bytes, Terms], Context] = {}
        self._statements: OrderedDict[tuple[object, ...], tuple[Statement, ...]] = OrderedDict()
        self._verdicts: dict[tuple[object, ...], Verdict] = {}
        self._planned = 0
        self._refreshing: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._refreshed_at = float("-inf")
        self._look_again_at: dict[TableName, float] = {}
        self.trouble: str | None = None
        """Why the catalog could not be read the last time; None where it could."""
        self.lacks = ""
        """What the service account may not, see `Catalog.lacks`."""
        self.globals: Settings = ()
        self.generation = 0
        """Changes whenever the globals do: sessions that began before must ask for their own."""
        self.edition = 0
        """Changes whenever the catalog does: what a statement means may be something else now."""
        self.redefinitions = 0
        """Changes whenever any definition does, also where that makes no other catalog."""

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
        retry_s = _RETRY_S
        while True:
            failing = self.trouble is not None
            await asyncio.sleep(min(retry_s, self._refresh_s) if failing else self._refresh_s)
            await self.refresh()
            retry_s = min(2 * retry_s, _LONGEST_RETRY_S) if failing else _RETRY_S

    async def refresh(self) -> None:
        """Reads the catalog now; a caller that comes while that goes on waits for the next."""
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
        await asyncio.wait([self._refreshing])

    async def _refresh(self) -> None:
        try:
            before = self._catalog or (await self._load_upstream())[0]
            # Read before the catalog: a change in between is then seen as unconfirmed.
            schemas = [Tag(schema) for schema in before.schemas]
            seen = await self._engine.versions([ROOT, *schemas])
            catalog, globals_ = await self._load_upstream()
        except UpstreamError as error:
            self._metrics.catalog_failures += 1
            if self.trouble != str(error):
                self.trouble = str(error)
                log.warning("catalog not read, trying again error=%s", error)
            return
        if self.trouble is not None:
            self.trouble = None
            log.info("catalog read again")
        rights = str(sorted(catalog.rights)) if catalog.rights else UNREADABLE_RIGHTS
        answers_of = self._data_set or catalog.server
        globals_ = (*globals_, (NEW_SESSIONS_RIGHTS, rights), (SERVER, answers_of))
        self._metrics.catalog_loads += 1
        redefined, reset = catalog != self._catalog, globals_ != self.globals
        if redefined or reset:
            self._forget_plans()
        self.edition += redefined
        self.redefinitions += any(self._seen.get(tag, now) != now for tag, now in seen.items())
        self.generation += reset
        # A GRANT or REVOKE that went through some sqlcache has changed the root's version as well.
        around = seen.get(ROOT) == self._seen.get(ROOT)
        before = self._catalog or catalog
        regranted = before.grants != catalog.grants
        switched = before.server != catalog.server
        self._catalog, self.globals, self._seen = catalog, globals_, seen
        self._policy = self._rules.folded(catalog.fold)
        self._tell_of_grants(catalog.lacks)
        self._engine.plan_under(seen)
        self._refreshed_at = asyncio.get_running_loop().time()
        if (around and regranted) or switched:
            await self._engine.bump({ROOT})
        await self._note_server(catalog.server)

    async def _note_server(self, server: str) -> None:
        """Tells other processes, and those to come, which server has the data set."""
        if self._data_set is not None and self._noted != server:
            noted = await self._engine.note_server(self._data_set, server)
            self._noted = server if noted else None

    def _tell_of_grants(self, lacks: str) -> None:
        self._metrics.grants_missing = len(lacks.split(", ")) if lacks else 0
        if lacks != self.lacks:
            self.lacks = lacks
            log.warning("%s", lacking(lacks) if lacks else "the service account lacks no right now")

    async def learn_of(self, statements: Iterable[Statement], schema: str | None) -> bool:
        """Reads the catalog if the statements name a table it lacks, which may be new.

        Seldom, for who asks again and again for what does not exist. Returns whether it did.
        """
        in_turn = _in_turn(statements, schema)
        unknown = {name for each, default in in_turn for name in self._unknown_to(each, default)}
        now = asyncio.get_running_loop().time()
        fresh = [name for name in unknown if now >= self._look_again_at.get(name, 0)]
        if not fresh or now - self._refreshed_at < _REFRESH_GAP_S:
            return False
        self._look_again_at = {n: t for n, t in self._look_again_at.items() if t > now}
        self._look_again_at.update(dict.fromkeys(unknown, now + _LOOK_AGAIN_S))
        await self.refresh()
        return True

    def _unknown_to(self, statement: Statement, schema: str | None) -> Iterator[TableName]:
        catalog = self._catalog
        if catalog is None or statement.kind is Kind.DDL:
            return
        for ref in statement.reads | statement.writes:
            name = catalog.resolve(ref, schema)
            if name is not None and not catalog.knows(name):
                yield name

    def _forget_plans(self) -> None:
        for context in self._contexts.values():
            context.forget()
        self._verdicts.clear()
        self._planned = 0

    def confirms(self, versions: Mapping[Tag, bytes | None]) -> bool:
        """Whether no definition changed between the catalog's reading and these versions."""
        return all(
            self._seen.get(tag) == version for tag, version in versions.items() if not tag.table
        )

    async def catch_up(self, versions: Mapping[Tag, bytes | None]) -> bool:
        """Reads the catalog anew unless these versions confirm it; whether it did."""
        if self.confirms(versions):
            return False
        await self.refresh()
        return True

    # Statements.

    def context(self, state: SessionState) -> Context:
        """The shared context of sessions like this one."""
        key = state.fingerprint(), state.words
        context = self._contexts.get(key)
        if context is None:
            context = self._contexts[key] = Context(state)
            if len(self._contexts) > _CONTEXTS:
                oldest = self._contexts.pop(next(iter(self._contexts)))
                oldest.forget()  # sessions may still hold it
        return context

    @property
    def server(self) -> str:
        """What tells the answers of the server, or of its data set, from those of others."""
        return dict(self.globals).get(SERVER, "")

    @property
    def is_mariadb(self) -> bool:
        """Whether the server is known to be one."""
        return self._catalog is not None and self._catalog.flavour == "mariadb"

    def statements(
        self, lexed: Lexed, text: bytes, state: SessionState, *, prepared: bool = False
    ) -> tuple[Statement, ...]:
        """What the statements of a text in UTF-8 do by themselves, analysed once a shape."""
        several = state.multi_statements and not prepared
        declared = self.declared(state.schema)
        key = (lexed.shape, lexed.dialect, several, prepared, declared)
        known = self._statements.get(key)
        if known is None:
            known = analyse(
                text,
                lexed.dialect,
                multi_statements=several,
                parameters_allowed=prepared,
                declared=declared,
            )
            if all(statement.verb not in _TEXT_DECIDES for statement in known):
                self._statements[key] = known
                if len(self._statements) > _SHAPES:
                    self._statements.popitem(last=False)
        return known

    def head(self, text: bytes, state: SessionState) -> tuple[Statement, ...]:
        """What a text does of which only the first part is at hand, if it is one statement: an
        INSERT may write anything where another may follow it, or functions be called further on.
        """
        catalog = self._catalog
        if catalog is None:
            return (unknown("", "only its head is known"),)
        known = analyse(text, state.dialect, head=True)
        if state.multi_statements or catalog.stored_functions:
            opaque = catalog.unruly_routines
            known = tuple(
                replace(
                    s,
                    writes_everything=True,
                    by_code=False,
                    opaque_session=s.opaque_session or opaque,
                )
                for s in known
            )
        return known

    def declared(self, schema: str | None) -> Declared:
        """The declared routines, for texts with this default schema."""
        return NONE_DECLARED if self._catalog is None else self._catalog.declared(schema)

    def with_code_they_run(
        self, statements: Iterable[Statement], schema: str | None
    ) -> tuple[Statement, ...]:
        """The statements of one text, with what routines and triggers may do to their session."""
        in_turn = _in_turn(statements, schema)
        return tuple(self._with_code_it_runs(each, default) for each, default in in_turn)

    def _with_code_it_runs(self, statement: Statement, schema: str | None) -> Statement:
        catalog = self._catalog
        if catalog is None:
            return statement
        if not statement.globals_set.isdisjoint(GLOBALS_THAT_SHAPE_ANSWERS):
            return statement
        if statement.globals_set:
            return replace(statement, changes_globals=False, writes_everything=False)
        if statement.called is not None:
            name = catalog.resolve(statement.called, schema)
            unknown_code = name is None or name.schema.lower() in SYSTEM_SCHEMAS
            unruly = unknown_code or catalog.unruly_routines
            if (reach := self._reach(statement, schema)) is not None:
                unruly = catalog.fires_unruly_code(reach.tables)
            return replace(statement, opaque_session=unruly, changes_globals=unruly)
        if statement.temporary_created:
            like = [catalog.resolve(ref, schema) for ref in statement.reads]
            if any(catalog.merges(name) for name in like if name is not None):
                return replace(statement, merges=True)
        statement = self._with_what_it_counts(statement, schema)
        if self._is_unruly(statement, schema):
            return replace(statement, opaque_session=True)
        return statement

    def _with_what_it_counts(self, statement: Statement, schema: str | None) -> Statement:
        """With what FOUND_ROWS() is after a change of one table: MySQL counts what an UPDATE finds.

        Not where a view may hold a subquery, or a function another.
        """
        catalog = self._catalog
        if catalog is None or not statement.one_table or statement.calls_stored:
            return statement
        names = [catalog.resolve(ref, schema) for ref in statement.writes]
        closure = catalog.read_closure(name for name in names if name is not None)
        keeps = statement.verb == "DELETE" or self.is_mariadb
        after = FoundRows.KEPT if keeps else FoundRows.COUNTED_IF_ANY
        return replace(statement, after=FoundRows.UNSURE if closure.views else after)

    def _is_unruly(self, statement: Statement, schema: str | None) -> bool:
        catalog = self._catalog
        assert catalog is not None
        written = [catalog.resolve(ref, schema) for ref in statement.writes]
        if written and catalog.fires_unruly_code(name for name in written if name is not None):
            return True
        if (reach := self._reach(statement, schema)) is not None:
            return catalog.fires_unruly_code(reach.tables)
        if not catalog.unruly_routines:
            return False
        read = [catalog.resolve(ref, schema) for ref in statement.reads]
        views = catalog.read_closure(name for name in read if name is not None)
        return statement.calls_stored or bool(calls_stored(statement, catalog)) or views.may_write

    def _reach(self, statement: Statement, schema: str | None) -> Reach | None:
        """What the routines that it calls may write, beyond what is declared; None for all."""
        catalog = self._catalog
        if catalog is None or not statement.by_code:
            return None
        known = {path[-1].lower() for path in statement.code}
        named = catalog.stored_functions.intersection(map(str.lower, statement.functions))
        if named - known:
            return None
        return catalog.reach(statement.called, statement.code, schema)

    async def knows_refusals(self) -> bool:
        """Whether a statement that the server says it cannot read has run nothing: no code that
        there is now says so amid its work."""
        if self._catalog is None or self._catalog.may_feign_errors:
            return False
        versions = await self._engine.versions([ROOT, *map(Tag, self._catalog.schemas)])
        return bool(versions) and self.confirms(versions)

    def plan_read(
        self, packet: bytes, lexed: Lexed, statement: Statement, context: Context
    ) -> Read | Refusal:
        """The read a statement is, remembered for its packet; or why it is none."""
        read = self._plan(lexed, statement, context, context.schema, lexed.canonical)
        if isinstance(read, Read):
            self._remember(packet, read, context)
        return read

    def plan_execution(
        self, prepared: Prepared, statement: Statement, parameters: bytes, context: Context
    ) -> Read | Refusal:
        """The read that one execution of a prepared statement is, or why it is none.

        Its names and modes are those of the session when it prepared it.
        """
        fields = (b"prepared", prepared.fingerprint, prepared.lexed.canonical, parameters)
        return self._plan(prepared.lexed, statement, context, prepared.schema, digest(fields))

    def dateless(self, statement: Statement, schema: str | None) -> tuple[bool, ...]:
        """For each marker of a prepared statement, whether no date can be wanted there."""
        if self._catalog is None:
            return ()
        named = [self._catalog.resolve(ref, schema) for ref in statement.reads]
        closure = self._catalog.read_closure(name for name in named if name is not None)
        if None in named or closure.reason is not None:
            return ()
        return self._catalog.dateless(statement.markers, closure.tables)

    def _plan(
        self,
        lexed: Lexed,
        statement: Statement,
        context: Context,
        schema: str | None,
        canonical: bytes,
    ) -> Read | Refusal:
        verdict = self._verdict(lexed.shape, statement, context, schema)
        if isinstance(verdict, Refusal):
            return verdict
        allowed = freshness(self.decide(verdict, lexed, statement, context))
        if isinstance(allowed, Refusal):
            return allowed
        return self._engine.read(
            context.fingerprint,
            canonical,
            verdict.tags,
            lexed.shape,
            allowed,
            rolls_back=verdict.rolls_back,
        )

    def decide(
        self, verdict: Cacheable, lexed: Lexed, statement: Statement, context: Context
    ) -> Decision:
        """How an answer may age, by the rules and by what the app says."""
        words = [
            Source(f"/* sqlcache: {said} */", read_terms(said)) for said in statement.directives
        ]
        if context.words != NOTHING_SAID:
            words.append(Source("@sqlcache", context.words))
        return self._policy.decide(verdict.tables, Asked(context.user, lexed, tuple(words)))

    def _remember(self, packet: bytes, read: Read, context: Context) -> None:
        context.plans[packet] = read
        self._planned += 1
        if self._planned * 2 > self._plan_cache_entries:
            for each in self._contexts.values():
                each.older, each.plans = each.plans, {}
            self._planned = 0
        self._metrics.plan_cache_entries = self._planned

    def _verdict(
        self, shape: bytes, statement: Statement, context: Context, schema: str | None
    ) -> Verdict:
        if not statement.cacheable:
            return self.judge(statement, schema)
        key = (shape, schema, context.dialect)
        verdict = self._verdicts.get(key)
        if verdict is None:
            if len(self._verdicts) >= _SHAPES:
                self._verdicts.clear()
            verdict = self._verdicts[key] = self.judge(statement, schema)
        return verdict

    def judge(self, statement: Statement, schema: str | None) -> Verdict:
        """Whether a statement is a read that may be a hit, by the catalog at hand."""
        return CATALOG_UNKNOWN if self._catalog is None else judge(statement, schema, self._catalog)

    # Writes.

    def writes(self, statements: Iterable[Statement], schema: str | None) -> WriteSet:
        """What the statements of one text write, by the names in them."""
        total = NOTHING
        redefined = False
        for statement, default in _in_turn(statements, schema):
            if redefined and (statement.reads or statement.writes):
                return EVERYTHING  # the names may mean what the catalog at hand does not know
            total |= self._writes(statement, default)
            redefined = redefined or bool(statement.schemas) or statement.merges
        return total

    def _writes(self, statement: Statement, schema: str | None) -> WriteSet:
        catalog = self._catalog
        if catalog is None:
            writes = statement.writes_everything or statement.writes or statement.schemas
            return EVERYTHING if writes else NOTHING
        reach = self._reach(statement, schema)
        stored = statement.writes_everything or calls_stored(statement, catalog)
        if stored and reach is None:
            return EVERYTHING
        tables = frozenset(catalog.resolve(ref, schema) for ref in statement.writes)
        schemas = frozenset(catalog.fold(name or schema or "") for name in statement.schemas)
        names = [catalog.resolve(ref, schema) for ref in statement.reads]
        viewed = catalog.read_closure([name for name in names if name is not None])
        if None in tables or viewed.may_write:
            return EVERYTHING
        known = WriteSet(frozenset(name for name in tables if name is not None), schemas)
        return known | WriteSet(reach.tables, defined_in=reach.schemas) if reach else known

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

    def names(self, refs: Iterable[TableRef], schema: str | None) -> frozenset[TableName]:
        """The full names of tables. Raises: LookupError where one has no schema, or the catalog
        is not known."""
        if self._catalog is None:
            raise LookupError("the catalog is not known")
        names = frozenset(self._catalog.resolve(ref, schema) for ref in refs)
        if None in names:
            raise LookupError("a table is named without its schema, and there is no default one")
        return frozenset(name for name in names if name is not None)

    def tags_of(self, names: Iterable[TableName]) -> tuple[Tag, ...]:
        """The tags an answer hangs on that comes from these tables or views, the catalog known."""
        assert self._catalog is not None
        closure = self._catalog.read_closure(names)
        return read_tags(closure.tables, closure.schemas)

    def definitions(self, writes: WriteSet) -> tuple[Tag, ...]:
        """The tags that tell whether the catalog `tags` went by was current."""
        schemas = writes.defined_in.union(table.schema for table in writes.tables)
        return (ROOT, *map(Tag, sorted(schemas)))

    def untransactional(self, writes: WriteSet) -> WriteSet:
        """The part of the writes that a ROLLBACK would not take back."""
        if writes.everything or self._catalog is None:
            return writes
        catalog = self._catalog
        tables = catalog.write_closure(writes.tables) if writes.tables else frozenset()
        if tables is None:
            return EVERYTHING
        lasting = frozenset(name for name in tables if not catalog.is_transactional(name))
        return WriteSet(lasting, writes.schemas, defined_in=writes.defined_in)


def lacking(lacks: str) -> str:
    """What follows from rights that the service account lacks, and what to do."""
    return (
        f"the account of upstream.url lacks {lacks} ON *.*: every write invalidates everything,"
        " views are not cached, and no two sessions share an answer;"
        " GRANT SELECT, SHOW VIEW, TRIGGER ON *.* TO it"
    )


def _in_turn(
    statements: Iterable[Statement], schema: str | None
) -> Iterator[tuple[Statement, str | None]]:
    """The statements of one text, each with the default schema it runs in."""
    for statement in statements:
        yield statement, schema
        if statement.use_schema is not None:
            schema = statement.use_schema
