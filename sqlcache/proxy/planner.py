"""What a client's statements mean for the cache: which read can be a hit, which tags a write bumps.

Three memories stand before the analysis: a packet's bytes to its plan (a dictionary per session
context), a statement's shape to what it says, and the shape with its schema to what that means
under the present catalog. All that hangs on the catalog is forgotten when the catalog changes.

The catalog follows DDL by the schemas' tags: each proxy that changes a definition bumps them. The
engine finds out at every read whether the catalog at hand was read under their present versions,
and `catch_up` makes sure of it for a write. What is read again then is what may have changed: the
schemas with another version; or, where every step from one version to the other was this process's
own, the tables that those statements named, and these not before they are needed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from sqlcache.cache.bounded import Bounded, Tally, weigh
from sqlcache.cache.engine import Engine
from sqlcache.cache.fences import Fence
from sqlcache.cache.keys import digest
from sqlcache.cache.lookups import Read, Template
from sqlcache.cache.tags import ELSEWHERE, ROOT, Tag, TagState, read_tags
from sqlcache.errors import UpstreamError
from sqlcache.metrics import Metrics
from sqlcache.proxy.commands import Meaning
from sqlcache.proxy.contexts import Context, Contexts
from sqlcache.proxy.effects import EVERYTHING, NOTHING, WriteSet
from sqlcache.proxy.plans import Pass, pass_of
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
from sqlcache.sql.catalog import SYSTEM_SCHEMAS, Catalog, CodeReach, Scope
from sqlcache.sql.catalog_loader import GLOBALS_THAT_SHAPE_ANSWERS
from sqlcache.sql.lexer import Dialect, Lexed, lex, literals_apart
from sqlcache.sql.names import TableName, TableRef
from sqlcache.sql.policy import NOTHING_SAID, Asked, Decision, Policy, Source, read_terms
from sqlcache.sql.routines import NONE_DECLARED, Declared
from sqlcache.sql.statement import FoundRows, Kind, Statement, unknown

log = logging.getLogger(__name__)

T = TypeVar("T")


class Upstream(Protocol):
    """What is asked of MySQL. All of it raises UpstreamError."""

    async def schemas(self) -> frozenset[str]:
        """The names of all schemas."""

    async def load(self) -> tuple[Catalog, Settings]:
        """The catalog, and the globals new sessions inherit."""

    async def renew(self, catalog: Catalog, scope: Scope) -> Catalog:
        """The same catalog with what is in the scope read anew."""

    def cut(self) -> bool:
        """Whether contact was lost since the whole catalog was read: the server may have ended, and
        another process of it may have begun, with other globals."""


_RETRY_S = 0.5
_LONGEST_RETRY_S = 8.0
_CLOCKS_DIFFER_S = 1.0  # in the time between two readings
_STEPS = 10_000
_READ_TOGETHER = 8
_MOST_UNREAD = 10_000  # each statement of others is compared with them
_MOST_NEW = 16  # at once, of unknown names
_REFRESH_GAP_S = 0.1  # between two that unknown names cause
_LOOK_AGAIN_S = 1.0  # for the same unknown name
_READERS = 4  # threads, for long texts
_LONGEST_SHAPE = 200
"""Of a shape that names plans: of a longer one the head, and a digest."""
_TEXT_DECIDES = frozenset({"SET", "USE", "PREPARE", "EXECUTE"})
"""Verbs whose literals change what the statement does; their analysis is not shared."""


EVERYWHERE = Scope(everywhere=True)
ROUTINES = Scope(routines=True)


class Way(NamedTuple):
    """How texts are read: what else than their shape decides what their statements are."""

    dialect: Dialect
    several: bool
    prepared: bool
    declared: Declared

    def analyse(self, text: bytes) -> tuple[Statement, ...]:
        """What the statements of a text do by themselves."""
        return analyse(
            text,
            self.dialect,
            multi_statements=self.several,
            parameters_allowed=self.prepared,
            declared=self.declared,
        )


class Ahead(NamedTuple):
    """A text that was read in a thread."""

    lexed: Lexed
    way: Way
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Unread:
    """A table that this process has redefined since it was read. A write to what was `named`
    with it may lead to it now."""

    named: frozenset[TableName]


class Known(Enum):
    """How much the catalog at hand can be relied on."""

    CONFIRMED = "it was current"
    READ_AGAIN = "it was not, and has been read since"
    UNKNOWN = "it was not, or nobody knows, and could not be read"


class Planner:
    """One process's knowledge of statements and of the upstream's catalog."""

    def __init__(
        self,
        engine: Engine,
        upstream: Upstream,
        metrics: Metrics,
        *,
        max_bytes: int,
        refresh_s: float,
        enabled: bool = True,
        policy: Policy | None = None,
        data_set: str | None = None,
    ) -> None:
        self._engine = engine
        self._upstream = upstream
        self._metrics = metrics
        self._refresh_s = refresh_s
        self._enabled = enabled
        self._data_set = data_set
        self._began_by = float("inf")  # the server
        self._noted: str | None = None  # the server that memcached knows to have the data set
        self._rules = policy or Policy(ttl_s=engine.limits.ttl_s)
        self._policy = self._rules  # with names as the catalog's server compares them
        self._catalog: Catalog | None = None
        self._seen: Mapping[Tag, bytes | None] = {}  # the versions the catalog is right under
        self._unread: dict[TableName, _Unread] = {}  # but for these, which this process redefined
        self._steps: dict[tuple[Tag, bytes | None], bytes] = {}  # by this process's own definitions
        # Each has a share of the bytes: the plans a half, in two generations.
        self._contexts = Contexts(max_bytes // 4)
        self._statements: Bounded[tuple[bytes, Way], tuple[Statement, ...]] = Bounded(
            max_bytes // 5
        )
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="sqlcache-reader")
        self._verdicts: Bounded[tuple[object, ...], Verdict] = Bounded(max_bytes // 12)
        self.counts: Bounded[tuple[bytes, bytes], bytes] = Bounded(max_bytes // 60)
        """Answers to what asks for FOUND_ROWS() only: by fingerprint and packet, as entries."""
        self.prepared = Tally(max_bytes // 5)
        """What clients prepared, in all sessions."""
        self._refreshing: asyncio.Task[bool] | None = None
        self._wanted: Scope | None = None  # by those who wait for the next reading
        self._failed_at = float("-inf")
        self._keeping: asyncio.Task[None] | None = None
        self._looked_at = float("-inf")
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
        """Whether reads may be answered from the cache: it is on, and the catalog known, of the
        server that is there now."""
        return self._enabled and self._catalog is not None and not self._upstream.cut()

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
        self._readers.shutdown(wait=False, cancel_futures=True)

    async def _keep_fresh(self) -> None:
        retry_s = _RETRY_S
        while True:
            failing = self.trouble is not None
            await asyncio.sleep(min(retry_s, self._refresh_s) if failing else self._refresh_s)
            await self.refresh()
            retry_s = min(2 * retry_s, _LONGEST_RETRY_S) if failing else _RETRY_S

    async def refresh(self) -> bool:
        """Reads the catalog now. Whether that could be done."""
        return await self._read_again(EVERYWHERE)

    async def meet(self) -> None:
        """A session has logged in: makes sure that what is known is of the server it found."""
        if self._upstream.cut():
            await self.refresh()

    async def _read_again(self, scope: Scope) -> bool:
        """Reads what is in a scope, in a reading that begins after this call; whether it could."""
        if asyncio.get_running_loop().time() - self._failed_at < _RETRY_S:
            return False
        self._wanted = scope if self._wanted is None else self._wanted | scope
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])
        if self._refreshing is None or self._refreshing.done():
            wanted, self._wanted = self._wanted or scope, None
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh(wanted))
        reading = self._refreshing
        await asyncio.wait([reading])
        return not reading.cancelled() and reading.result()

    async def _refresh(self, scope: Scope) -> bool:
        try:
            if scope.everywhere or self._catalog is None or self._upstream.cut():
                await self._read_everything()
            else:
                await self._read_part(self._catalog, scope)
        except UpstreamError as error:
            self._failed_at = asyncio.get_running_loop().time()
            self._metrics.catalog_failures += 1
            if self.trouble != str(error):
                self.trouble = str(error)
                log.warning("catalog not read, trying again error=%s", error)
            return False
        if self.trouble is not None:
            self.trouble = None
            log.info("catalog read again")
        self._metrics.catalog_loads += 1
        return True

    async def _read_everything(self) -> None:
        unread = dict(self._unread)
        # Read before the catalog: a change in between is then seen as unconfirmed.
        seen = await self._engine.versions([ROOT, *map(Tag, await self._schemas())])
        catalog, globals_ = await self._upstream.load()
        rights = str(sorted(catalog.rights)) if catalog.rights else UNREADABLE_RIGHTS
        answers_of = self._data_set or catalog.server
        globals_ = (*globals_, (NEW_SESSIONS_RIGHTS, rights), (SERVER, answers_of))
        reset = globals_ != self.globals
        # A GRANT or REVOKE that went through some sqlcache has changed the root's version as well.
        around = seen.get(ROOT) == self._seen.get(ROOT)
        before = self._catalog or catalog
        regranted = before.grants != catalog.grants
        switched = before.server != catalog.server or self._has_restarted(catalog)
        self.generation += reset
        self.globals = globals_
        self._take(catalog, seen, unread, reset=reset)
        self._policy = self._rules.folded(catalog.fold)
        self._tell_of_grants(catalog.lacks)
        if (around and regranted) or switched:
            await self._engine.bump({ROOT})
        await self._note_server(catalog.server)

    def _has_restarted(self, catalog: Catalog) -> bool:
        """Whether the server has begun anew since the catalog was last read: what a crash has lost
        of the last commits is not in the tables any more."""
        earliest, latest = catalog.began
        before, self._began_by = self._began_by, latest
        return earliest > before + _CLOCKS_DIFFER_S

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

    async def _read_part(self, catalog: Catalog, scope: Scope) -> None:
        seen: dict[Tag, bytes | None] = dict(self._seen)
        if scope.schemas:
            # A table may be led to others by what is defined in their schemas: all that are other
            # ones are read together, with those of definitions that are just ending.
            states = await self._engine.states(map(Tag, await self._schemas()))
            other = {t.schema for t, s in states.items() if s.fences or self._differs(t, s)}
            scope |= Scope(frozenset(other))
            seen |= {tag: s.version for tag, s in states.items() if tag.schema in scope.schemas}
        # Others with them, for they will soon be used as well.
        scope |= Scope(tables=frozenset(islice(self._unread, _READ_TOGETHER)))
        unread = {name: each for name, each in self._unread.items() if scope.covers(name)}
        catalog = await self._upstream.renew(catalog, scope)
        self._take(catalog, seen, unread)

    async def _schemas(self) -> frozenset[str]:
        """All there are, or were, or that something names."""
        schemas = await self._upstream.schemas() - SYSTEM_SCHEMAS
        if self._catalog is not None:
            schemas = frozenset(map(self._catalog.fold, schemas))
        return schemas.union(tag.schema for tag in self._seen if tag.schema)

    def _take(
        self,
        catalog: Catalog,
        seen: Mapping[Tag, bytes | None],
        read: "Mapping[TableName, _Unread]",
        *,
        reset: bool = False,
    ) -> None:
        """Goes by this catalog from here on, in which what was `read` is as it was then."""
        changed = bool(read) or catalog != self._catalog
        redefined = any(self._seen.get(tag, now) != now for tag, now in seen.items())
        if changed or reset or redefined:
            self._forget_plans()
        self.edition += changed
        self.redefinitions += redefined
        self._catalog = catalog
        self._unread = {n: each for n, each in self._unread.items() if read.get(n) is not each}
        self._see(seen, changed=changed)

    def _see(self, seen: Mapping[Tag, bytes | None], *, changed: bool) -> None:
        """These are the versions, or those that own definitions have made of them since."""
        now = dict(seen)
        for tag in now:
            while (after := self._steps.get((tag, now[tag]))) is not None:
                now[tag] = after
        self._seen = now
        self._engine.plan_under(now, changed=changed)

    async def redefined(self, writes: WriteSet, lifted: Mapping[Tag, tuple[bytes, bytes]]) -> None:
        """This process has changed definitions, and by that versions, as `lifted` says: before and
        after. What it named is read when it is needed; routines now, as any text may name them."""
        self._look_again_at.clear()
        self._looked_at = float("-inf")
        if writes.everything:  # now, or what is prepared next would soon be prepared anew
            await self.refresh()
            return
        named_with: dict[frozenset[TableName], _Unread] = {}  # one for all that were named alike
        for name in writes.redefined:
            before_it = self._unread[name].named if name in self._unread else frozenset()
            if before_it not in named_with:
                named_with[before_it] = _Unread(writes.redefined | before_it)
            self._unread[name] = named_with[before_it]
        for tag, (before, after) in lifted.items():
            if tag.schema not in writes.unnamed:
                self._steps[tag, before] = after
        self._forget_plans()
        self.edition += 1
        self.redefinitions += 1
        self._see(self._seen, changed=True)
        if len(self._steps) > _STEPS:  # whoever reads meanwhile reads what they lead to once more
            self._steps.clear()
        if len(self._unread) > _MOST_UNREAD:
            await self.refresh()
        elif writes.unnamed:
            await self._read_again(ROUTINES)

    async def learn_of(self, statements: Iterable[Statement], state: SessionState) -> bool:
        """Reads of the tables the statements name those again that are not known as they are now.

        Those that the catalog lacks may be new: but seldom, for who asks again and again for what
        does not exist. Returns whether it did.
        """
        catalog = self._catalog
        if catalog is None:
            return False
        own = {catalog.resolve(ref, None) for ref in state.temporary}
        wanted: set[TableName] = set()
        unknown: set[TableName] = set()
        for each, default in _in_turn(statements, state.schema):
            if each.kind is not Kind.DDL:
                named = {catalog.resolve(r, default) for r in each.reads | each.writes} - own
                unknown |= {n for n in named if n is not None and not catalog.knows(n)}
            wanted |= self._unread_by(self._names(each.reads, default))
        wanted |= self._may_be_new(unknown - self._unread.keys())
        return bool(wanted) and await self._read_again(Scope(tables=frozenset(wanted)))

    def _may_be_new(self, unknown: Iterable[TableName]) -> set[TableName]:
        now = asyncio.get_running_loop().time()
        ready = (name for name in unknown if now >= self._look_again_at.get(name, 0))
        fresh = set(islice(ready, _MOST_NEW))
        if not fresh or now - self._looked_at < _REFRESH_GAP_S:
            return set()
        self._looked_at = now
        self._look_again_at = {n: t for n, t in self._look_again_at.items() if t > now}
        self._look_again_at.update(dict.fromkeys(fresh, now + _LOOK_AGAIN_S))
        return fresh

    def _names(self, refs: Iterable[TableRef], schema: str | None) -> frozenset[TableName]:
        """The full names of those tables that have one."""
        assert self._catalog is not None
        names = (self._catalog.resolve(ref, schema) for ref in refs)
        return frozenset(name for name in names if name is not None)

    def _unread_by(self, names: Iterable[TableName]) -> frozenset[TableName]:
        """What a read of these tables depends on and is still to be read again."""
        if not self._unread or self._catalog is None:
            return frozenset()
        return self._unread_among(self._catalog.read_closure(names).tables)

    def _unread_among(self, tables: frozenset[TableName]) -> frozenset[TableName]:
        """Which tables, redefined and not read since, are these, or may be what they lead to."""
        if not self._unread or self._catalog is None:
            return frozenset()
        met = {name for name, each in self._unread.items() if not each.named.isdisjoint(tables)}
        return self._catalog.touched(tables, self._unread.keys()) | met

    async def know(self, names: Iterable[TableName]) -> None:
        """Reads again what is not known as it is now, before an answer hangs on these tables."""
        while unread := self._unread_by(names):
            if not await self._read_again(Scope(tables=unread)):
                return

    def _forget_plans(self) -> None:
        self._contexts.retire()
        self._verdicts.clear()

    async def confirms_rights(self) -> bool:
        """Whether the rights and globals at hand are those of now: other proxies tell by the root
        that they change them. Reads the catalog where they are not; who then asks again may get
        another answer, or not, as where memcached is away."""
        states = await self._engine.states([ROOT])
        if any(self._seen.get(tag) != state.version for tag, state in states.items()):
            await self.refresh()
        return bool(states) and all(
            self._seen.get(tag) == state.version and not state.fences
            for tag, state in states.items()
        )

    async def follow(self, tags: Iterable[Tag]) -> None:
        """Reads the definitions that these tags tell of, where they are other ones by now."""
        states = await self._engine.states(tag for tag in tags if tag.defines)
        if (outdated := self._outdated(states)) is not None:
            await self._read_again(outdated)

    def _outdated(self, states: Mapping[Tag, TagState]) -> Scope | None:
        other = {tag.schema for tag, state in states.items() if self._differs(tag, state)}
        return (EVERYWHERE if "" in other else Scope(frozenset(other))) if other else None

    def _differs(self, tag: Tag, state: TagState) -> bool:
        return self._seen.get(tag) != state.version

    async def catch_up(
        self, writes: WriteSet, asked: Iterable[Tag], states: Mapping[Tag, TagState]
    ) -> Known:
        """Makes sure that the reach of these writes, by the catalog at hand, is theirs by the
        definitions that the tags, which were `asked`, tell of."""
        if self._catalog is None or writes.everything:
            return Known.CONFIRMED
        answered = {tag.schema for tag in states}
        if any(tag.schema not in answered for tag in asked):
            return Known.UNKNOWN
        scope = self._outdated(states) or Scope()
        scope |= Scope(await self._led_elsewhere(states), self._unread_reach(writes))
        if scope == Scope():
            return Known.CONFIRMED
        return Known.READ_AGAIN if await self._read_again(scope) else Known.UNKNOWN

    async def _led_elsewhere(self, states: Mapping[Tag, TagState]) -> frozenset[str]:
        """The schemas in which somebody may just now let a write lead to tables elsewhere.

        Whatever else is defined: until his fence ends nobody is served what is in its schemas, and
        then it is forgotten. So the fence of a root is not looked for.
        """
        fenced = {tag.schema: state for tag, state in states.items() if tag.schema and state.fences}
        if not fenced:
            return frozenset()
        marks = await self._engine.states(Tag(schema, ELSEWHERE) for schema in fenced)
        clear = {
            tag.schema
            for tag, mark in marks.items()
            if mark.fences.keys().isdisjoint(fenced[tag.schema].fences)
        }
        return frozenset(fenced.keys() - clear)

    def _unread_reach(self, writes: WriteSet) -> frozenset[TableName]:
        """What decides the reach of these writes and is still to be read again."""
        assert self._catalog is not None
        reached = self._catalog.reach(writes.tables).tables if writes.tables else None
        return self._unread_by(writes.reads) | self._unread_among(reached or frozenset())

    # Statements.

    def context(self, state: SessionState) -> Context:
        """The shared context of sessions like this one."""
        return self._contexts.of(state)

    @property
    def server(self) -> str:
        """What tells the answers of the server, or of its data set, from those of others."""
        return dict(self.globals).get(SERVER, "")

    @property
    def is_mariadb(self) -> bool:
        """Whether the server is known to be one."""
        return self._catalog is not None and self._catalog.flavour == "mariadb"

    @property
    def warnings_of_counting(self) -> int:
        """How many warnings the server gives of SQL_CALC_FOUND_ROWS, and of FOUND_ROWS()."""
        catalog = self._catalog
        warns = catalog is not None and catalog.flavour == "mysql" and catalog.version >= (8, 0, 17)
        return int(warns)

    def statements(
        self, lexed: Lexed, text: bytes, state: SessionState, *, prepared: bool = False
    ) -> tuple[Statement, ...]:
        """What the statements of a text in UTF-8 do by themselves, analysed once a shape."""
        way = self._way_to_read(state, prepared=prepared)
        known = self._statements.get((lexed.shape, way))
        if known is None:
            known = way.analyse(text)
            self._keep(lexed, way, known)
        return known

    async def read_ahead(
        self, text: bytes, state: SessionState, *, prepared: bool, at_once: bool = False
    ) -> "Ahead":
        """Reads a text in UTF-8 in a thread: one that is long may take seconds. `at_once`: it is
        short enough to be split here.

        Raises: SqlSyntaxError.
        """
        way = self._way_to_read(state, prepared=prepared)
        lexed = lex(text, way.dialect) if at_once else await self.apart(lex, text, way.dialect)
        known = self._statements.get((lexed.shape, way))
        if known is None:
            known = await self.apart(way.analyse, text)
            self._keep(lexed, way, known)
        return Ahead(lexed, way, known)

    def read_so(self, ahead: "Ahead", state: SessionState, *, prepared: bool) -> bool:
        """Whether a text would still be read as it was ahead."""
        return ahead.way == self._way_to_read(state, prepared=prepared)

    def _way_to_read(self, state: SessionState, *, prepared: bool) -> "Way":
        several = state.multi_statements and not prepared
        return Way(state.dialect, several, prepared, self.declared(state.schema))

    def _keep(self, lexed: Lexed, way: "Way", known: tuple[Statement, ...]) -> None:
        if all(statement.verb not in _TEXT_DECIDES for statement in known):
            self._statements.put((lexed.shape, way), known, weigh(known) + len(lexed.shape))

    async def apart(self, work: Callable[..., T], *args: object) -> T:
        """Does in a thread what takes long: other clients need not wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work, *args)

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
        statement = self._with_what_code_asks(statement, schema)
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

    def _with_what_code_asks(self, statement: Statement, schema: str | None) -> Statement:
        """With what the code that it runs may ask of the statements before it."""
        assert self._catalog is not None
        reads, writes = (self._names(refs, schema) for refs in (statement.reads, statement.writes))
        asked = self._catalog.looks_back(reads, writes) if reads or writes else frozenset()
        if not asked:
            return statement
        found_rows = statement.found_rows or b"FOUND_ROWS" in asked
        return replace(statement, found_rows=found_rows, code_looks_back=True)

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

    def _reach(self, statement: Statement, schema: str | None) -> CodeReach | None:
        """What the routines that it calls may write, beyond what is declared; None for all."""
        catalog = self._catalog
        if catalog is None or not statement.by_code:
            return None
        known = {path[-1].lower() for path in statement.code}
        named = catalog.stored_functions.intersection(map(str.lower, statement.functions))
        if named - known:
            return None
        reach = catalog.code_reach(statement.called, statement.code, schema)
        unread = any(name.name.lower() in reach.named for name in self._unread) if reach else False
        return None if unread else reach

    async def knows_refusals(self, own: Fence | None) -> bool:
        """Whether a statement that the server says it cannot read has run nothing: no code that
        there is now says so amid its work. `own` is the statement's fence."""
        if self._catalog is None or self._catalog.may_feign_errors:
            return False
        states = await self._engine.states([ROOT, *map(Tag, self._catalog.schemas)], own)
        changing = any(state.fences for tag, state in states.items() if tag.schema)
        steady = not self._unread and not changing
        return bool(states) and steady and self._outdated(states) is None

    def plan_read(
        self, packet: bytes, lexed: Lexed, statement: Statement, context: Context
    ) -> Read | Refusal:
        """The read a statement is, remembered for its packet; or why it is none."""
        like = self._plan(lexed, statement, context, context.schema)
        if not isinstance(like, Read):
            return like
        apart = literals_apart(lexed)
        template = self._engine.template(like, context.fingerprint, (apart.canonical,))
        read = template.read(apart.literals)
        context.remember(packet, read)
        if apart.alike and not self._policy.reads_texts:
            context.remember_shape(packet, apart.literals, template)
        return read

    def plan_executions(
        self, prepared: Prepared, statement: Statement, context: Context
    ) -> Template | Refusal:
        """The reads that the executions of a prepared statement are, or why they are none.

        Its names and modes are those of the session when it prepared it.
        """
        known = prepared.planned_under(context)
        if isinstance(known, Template):
            return known
        like = self._plan(prepared.lexed, statement, context, prepared.schema)
        if not isinstance(like, Read):
            return like
        fields = (b"prepared", prepared.fingerprint, prepared.lexed.canonical)
        template = self._engine.template(like, context.fingerprint, fields)
        prepared.plan = context, template
        return template

    def dateless(self, statement: Statement, schema: str | None) -> tuple[bool, ...]:
        """For each marker that a prepared statement's shape has, whether no date can be wanted
        there."""
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
    ) -> Read | Refusal:
        """A read like the one that a statement is, or why it is none."""
        if self._unread and self._unread_by(self._names(statement.reads, schema)):
            return CATALOG_UNKNOWN
        verdict = self._verdict(lexed.shape, statement, context, schema)
        if isinstance(verdict, Refusal):
            return verdict
        allowed = freshness(self.decide(verdict, lexed, statement, context))
        if isinstance(allowed, Refusal):
            return allowed
        return self._engine.read(
            context.fingerprint,
            b"",
            verdict.tags,
            _name_of(lexed.shape),
            allowed,
            rolls_back=verdict.rolls_back,
            counts_all=statement.counts_all,
            proof_rows=verdict.proof_rows,
            planned=True,
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

    def plan_to_pass(self, meaning: Meaning, reason: str) -> Pass | None:
        """The plan to pass a command through without another thought, if nothing of what it means
        asks for one."""
        known = self._knows_all(meaning.statements, meaning.schema)
        return pass_of(meaning, reason) if known else None

    def remember_pass(self, packet: bytes, meaning: Meaning, context: Context, plan: Pass) -> None:
        """From here on the packet is passed through by this plan, and others of its shape."""
        assert meaning.lexed is not None
        context.remember(packet, plan)
        apart = literals_apart(meaning.lexed)
        if apart.alike and not self._policy.reads_texts:
            context.remember_shape(packet, apart.literals, plan)

    def _knows_all(self, statements: Iterable[Statement], schema: str | None) -> bool:
        """Whether all names in them are those of tables that are known as they are now."""
        catalog = self._catalog
        if catalog is None:
            return False
        named = [catalog.resolve(r, schema) for s in statements for r in s.reads | s.writes]
        known = [name for name in named if name is not None and catalog.knows(name)]
        return len(known) == len(named) and not self._unread_by(known)

    @property
    def size_bytes(self) -> int:
        """What is remembered of statements, roughly."""
        parts = (self._contexts, self._statements, self._verdicts, self.counts, self.prepared)
        return sum(part.size_bytes for part in parts)

    def _verdict(
        self, shape: bytes, statement: Statement, context: Context, schema: str | None
    ) -> Verdict:
        if not statement.cacheable:
            return self.judge(statement, schema)
        key = (shape, schema, context.dialect)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self.judge(statement, schema)
            self._verdicts.put(key, verdict, weigh(verdict) + len(shape))
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
        reads = self._names(statement.reads, schema)
        if None in tables or catalog.read_closure(reads).may_write:
            return EVERYTHING
        run = WriteSet(reach.tables, defined_in=reach.schemas) if reach else NOTHING
        named = frozenset(name for name in tables if name is not None)
        if any(name.schema.lower() == "mysql" for name in named):
            return EVERYTHING  # rights, time zones, functions: what all that goes by
        if not schemas:
            return run | WriteSet(named, reads=reads)
        # What no longer leads to other tables by this has led there until now.
        led = frozenset(filter(catalog.is_view, named))
        if statement.trigger is not None:
            trigger = catalog.resolve(statement.trigger, schema)
            table = trigger and catalog.table_of_trigger(trigger)
            named = led = frozenset({table} if table else ())
        return run | WriteSet(
            tables=named if statement.reads else led,
            schemas=schemas,
            redefined=named,
            unnamed=frozenset() if named else schemas,
            leading=schemas if statement.leads else frozenset(),
            reads=reads,
        )

    def tags(self, writes: WriteSet) -> frozenset[Tag]:
        """The tags to bump, with what triggers and foreign keys write too."""
        if writes.everything or self._catalog is None:
            return frozenset({ROOT}) if writes else frozenset()
        tables = self._catalog.write_closure(writes.tables) if writes.tables else frozenset()
        if tables is None:
            return frozenset({ROOT})
        tags = {Tag(name.schema, name.name) for name in tables | writes.redefined}
        tags.update(Tag(schema) for schema in writes.schemas)
        tags.update(Tag(schema, ELSEWHERE) for schema in writes.leading)
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
        """The tags that tell whether the catalog `tags` and `writes` went by was current.

        Where they say so of all of them it was: each table's definition tells which ones a write to
        it leads to, and these are the schemas of all that are reached.
        """
        if self._catalog is None or writes.everything:
            return ()
        schemas = writes.defined_in
        if writes.reads:
            schemas |= self._catalog.read_closure(writes.reads).schemas
        if writes.tables:
            schemas |= self._catalog.reach(writes.tables).schemas
        schemas |= writes.defined_in
        own = {schema for schema in schemas if schema.lower() in SYSTEM_SCHEMAS}
        return (ROOT, *map(Tag, sorted(schemas - own))) if schemas else ()

    def untransactional(self, writes: WriteSet) -> WriteSet:
        """The part of the writes that a ROLLBACK would not take back."""
        if writes.everything or self._catalog is None:
            return writes
        catalog = self._catalog
        tables = catalog.write_closure(writes.tables) if writes.tables else frozenset()
        if tables is None:
            return EVERYTHING
        lasting = frozenset(name for name in tables if not catalog.is_transactional(name))
        return replace(writes, tables=lasting)


def lacking(lacks: str) -> str:
    """What follows from rights that the service account lacks, and what to do."""
    return (
        f"the account of upstream.url lacks {lacks} ON *.*: every write invalidates everything,"
        " views are not cached, and no two sessions share an answer;"
        " GRANT SELECT, SHOW VIEW, TRIGGER ON *.* TO it"
    )


def _name_of(shape: bytes) -> bytes:
    """A shape, or as good as it, in a few bytes: plans are many."""
    if len(shape) <= _LONGEST_SHAPE:
        return shape
    mark = digest([shape]).hex().encode()
    return shape[: _LONGEST_SHAPE - len(mark) - 1] + b" " + mark


def _in_turn(
    statements: Iterable[Statement], schema: str | None
) -> Iterator[tuple[Statement, str | None]]:
    """The statements of one text, each with the default schema it runs in."""
    for statement in statements:
        yield statement, schema
        if statement.use_schema is not None:
            schema = statement.use_schema
