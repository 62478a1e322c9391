"""The keeper of the catalog: what is known of the upstream's definitions.

The catalog follows DDL by the schemas' tags: each proxy that changes a definition bumps them. The
engine finds out at every read whether the catalog at hand was read under their present versions,
and `confirmations` make sure of it for a write. What is read again then is what may have changed:
the schemas with another version; or, where every step from one version to the other was this
process's own, the tables that those statements named, and these not before they are needed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Protocol

from sqlcache.cache.engine import Engine
from sqlcache.cache.tag_logs import Steps
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.errors import CacheUnavailable, UpstreamError
from sqlcache.metrics import Metrics
from sqlcache.plan.new_names import NewNames
from sqlcache.plan.readings import Readings
from sqlcache.plan.server_watch import REWRITES, ServerWatch
from sqlcache.plan.state import SessionState
from sqlcache.plan.unread import Unread
from sqlcache.plan.variables import SERVER, Globals, Settings
from sqlcache.plan.writeset import WriteSet
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.code import CodeReach
from sqlcache.sql.catalog.server import SYSTEM_SCHEMAS, Incarnation
from sqlcache.sql.facts import EVERYWHERE, Scope
from sqlcache.sql.names import TableName
from sqlcache.sql.statement import Kind, Statement, in_turn_once

log = logging.getLogger(__name__)

_STEPS = 10_000
_READ_TOGETHER = 8
_MOST_UNREAD = 10_000  # and what was named with them
_LOOK_AGAIN_S = 1.0  # for a name that the catalog lacks
_SEE_AGAIN_S = 10.0  # whether a view has a body by now

ROUTINES = Scope(routines=True)

Witness = Callable[[int], Awaitable[bool]]


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

    async def has_ended(self, connection: int, server: Incarnation, since: float) -> bool:
        """Whether a server is known to have ended a connection that was there `since` then, and all
        that it did."""


class Keeper:
    """One process's knowledge of the upstream's catalog.

    `on_change` is called whenever what was decided by it may be wrong from here on; `on_unread`
    where that is so only of what hangs on tables that are still to be read again, see `unread_by`.
    """

    def __init__(
        self,
        engine: Engine,
        upstream: Upstream,
        metrics: Metrics,
        on_change: Callable[[], None],
        on_unread: Callable[[], None],
        *,
        refresh_s: float,
        enabled: bool = True,
        data_set: str | None = None,
    ) -> None:
        self._engine = engine
        self._upstream = upstream
        self._on_change = on_change
        self._on_unread = on_unread
        self.enabled = enabled
        """Whether reads may be answered from the cache at all."""
        self.held_up = False
        """Whether they are not, for a while, as they may be older than is allowed."""
        self._forgets = ""  # everything, for this reason, and has not yet
        self._asks_whose = False  # the answers are that are stored, and does not know yet
        self.readings = Readings(self._read, metrics, refresh_s=refresh_s)
        """Of the catalog: who finds out that it is none of now has it read by these."""
        self.versions: Mapping[Tag, bytes | None] = {}
        """Those of the definitions that the catalog has, at present: it is right under them."""
        self._steps: dict[tuple[Tag, bytes | None], bytes] = {}  # by this process's own definitions
        self._unread = Unread()  # but for these the catalog is right: this process redefined them
        self._new_names = NewNames(_LOOK_AGAIN_S)
        self._hidden_names = NewNames(_SEE_AGAIN_S)
        self._server = ServerWatch(engine, metrics, data_set)
        self._incarnation: Incarnation | None = None  # of the server, as everything was read last
        self.catalog: Catalog | None = None
        """As it was read last; None until it has been."""
        self.globals = Globals()
        self.generation = 0
        """Changes whenever the globals do: sessions that began before must ask for their own."""
        self.edition = 0
        """Changes whenever the catalog does: what a statement means may be something else now."""
        self.redefinitions = 0
        """Changes whenever any definition does, also where that makes no other catalog."""
        self._is_late = True  # what is known: everything was never read, or not the last time

    @property
    def ready(self) -> bool:
        """Whether reads may be answered from the cache: it is on, and the catalog known, of the
        server that is there now."""
        holds = self.held_up or self.is_rewritten or self._forgets or self._asks_whose
        return self.enabled and not holds and self.has_catalog

    @property
    def has_catalog(self) -> bool:
        """Whether the catalog is known, of the server that is there now."""
        return self.catalog is not None and not self._upstream.cut()

    @property
    def is_met(self) -> bool:
        """Whether what is known is of the server that is there now, and of its globals of now:
        everything was read, contact was not lost since, and the last such reading has not failed.
        """
        return not (self._is_late or self._upstream.cut())

    @property
    def is_rewritten(self) -> bool:
        """Whether the server may run other statements than those that it is sent, so that nobody
        knows what these read and write."""
        return self.catalog is not None and self.catalog.server.rewrites

    async def start(self) -> None:
        """Reads the catalog, and from then on again and again. MySQL may be away."""
        await self.readings.start()

    async def close(self) -> None:
        """Stops reading it. Where everything was just to be forgotten, that is done: nobody who
        begins now will know of it."""
        await self.readings.close()
        if self._forgets:
            await self._forget_everything(self._forgets)

    @property
    def trouble(self) -> str | None:
        """Why the catalog could not be read the last time; None where it could."""
        return self.readings.trouble

    @property
    def lacks(self) -> str:
        """What the service account may not, see `Server.lacks`."""
        return self._server.lacks

    async def refresh(self) -> bool:
        """Reads the catalog now. Whether that could be done."""
        return await self.readings.of(EVERYWHERE)

    def witness(self) -> Witness:
        """A session has just been connected to MySQL: who can tell later, by the number of that
        connection, whether it is known to have ended, and all that it did. By then another server
        may answer, which knows nothing of it."""
        return partial(self._has_ended, self._incarnation, asyncio.get_running_loop().time())

    async def _has_ended(self, server: Incarnation | None, since: float, connection: int) -> bool:
        with suppress(UpstreamError):
            return server is not None and await self._upstream.has_ended(connection, server, since)
        return False

    async def meet(self) -> None:
        """A session has logged in: sees to it that what is known is of the server it found, unless
        that takes its time: until it `is_met` who begins has to ask what globals that was with."""
        if self._upstream.cut():
            await self.readings.for_sessions()

    async def _read(self, scope: Scope) -> None:
        edition = self.edition
        if scope.everywhere or self.catalog is None or self._upstream.cut():
            try:
                await self._read_everything()
            except UpstreamError:
                self._is_late = True
                raise
        else:
            await self._read_part(self.catalog, scope)
        if self.edition != edition and self._engine.seldom.says("catalog"):
            log.info("the definitions are other ones than before, or read for the first time")

    async def _read_everything(self) -> None:
        unread = self._unread.by_now()
        # Read before the catalog: a change in between is then seen as unconfirmed.
        seen = await self._engine.versions([ROOT, *map(Tag, await self._schemas())])
        catalog, told = await self._upstream.load()
        server = catalog.server
        self._asks_whose |= self._incarnation != server.incarnation
        self._incarnation = server.incarnation
        inherited = self._server.inherited(server, told)
        reset = inherited != self.globals.settings
        self._is_late |= reset  # till these are taken: who logs in meanwhile begins with them
        # A GRANT or REVOKE that went through some sqlcache has given each copy of the root a new
        # version as well.
        copies = [tag for tag in seen if not tag.schema]
        around = not copies or any(self.versions.get(tag) == seen[tag] for tag in copies)
        before = server if self.catalog is None else self.catalog.server
        why_everything = self._server.why_everything(before, server, around=around)
        if why_everything is not None:
            await self._forget_everything(why_everything)
        for tag, (version, after) in (await self._server.note(server)).items():
            self._steps[tag, version] = after
        if server.rewrites and not self.is_rewritten:
            log.warning("MySQL may run other statements than it is sent reason=%s", REWRITES)
        if reset:
            self.generation += 1
            self.globals = Globals(inherited)
        self._take(catalog, seen, unread, reset=reset)
        self._forgets = ""
        self._asks_whose = self._is_late = False
        self._server.tell_of_grants(server.lacks)

    async def _forget_everything(self, why: str) -> None:
        """Before anything is a hit again. What is on a node that is away is passed by, and bumped
        when that is back."""
        self._forgets = why
        with suppress(CacheUnavailable):
            await self._engine.bump({ROOT}, cause=why)

    async def _read_part(self, catalog: Catalog, scope: Scope) -> None:
        seen: dict[Tag, bytes | None] = dict(self.versions)
        if scope.schemas:
            # A table may be led to others by what is defined in their schemas: all that are other
            # ones are read together, with those of definitions that are just ending.
            states = await self._engine.states_in_turns(map(Tag, await self._schemas()))
            now = self.versions
            other = {t.schema for t, s in states.items() if s.fences or now.get(t) != s.version}
            scope |= Scope(frozenset(other))
            seen |= {tag: s.version for tag, s in states.items() if tag.schema in scope.schemas}
        # Others with them, for they will soon be used as well.
        scope |= Scope(tables=frozenset(islice(self._unread, _READ_TOGETHER)))
        unread = {n: when for n, when in self._unread.by_now().items() if scope.covers(n)}
        catalog = await self._upstream.renew(catalog, scope)
        self._take(catalog, seen, unread)

    async def _schemas(self) -> frozenset[str]:
        """All there are, or were, or that something names."""
        schemas = await self._upstream.schemas() - SYSTEM_SCHEMAS
        if self.catalog is not None:
            schemas = frozenset(map(self.catalog.server.fold, schemas))
        return schemas.union(tag.schema for tag in self.versions if tag.schema)

    def _take(
        self,
        catalog: Catalog,
        seen: Mapping[Tag, bytes | None],
        read: Mapping[TableName, int],
        *,
        reset: bool = False,
    ) -> None:
        """Goes by this catalog from here on, in which what was `read` is as it was then."""
        changed = bool(read) or catalog != self.catalog
        redefined = any(self.versions.get(tag, now) != now for tag, now in seen.items())
        self.edition += changed
        self.redefinitions += redefined
        if changed or catalog.server.tells_commits != self.tells_commits:
            self.catalog = catalog  # else what follows from it would be worked out again
        self._unread.forget(read)
        self._see(seen, changed=changed)
        if changed or reset or redefined:
            self._on_change()

    def _see(self, seen: Mapping[Tag, bytes | None], *, changed: bool) -> None:
        """These are the versions, or those that own definitions have made of them since."""
        self.versions = now = {tag: self.led_to(tag, version) for tag, version in seen.items()}
        self._engine.plan_under(now, changed=changed)

    def led_to(self, tag: Tag, version: bytes | None) -> bytes | None:
        """What this process's own steps have made of this version of a tag since."""
        while (after := self._steps.get((tag, version))) is not None:
            version = after
        return version

    async def redefined(self, writes: WriteSet, steps: Steps) -> None:
        """Definitions were changed, and this process has told all by these steps of versions. What
        was named is read when it is needed; routines now, as any text may name them."""
        self._new_names.forget()
        self._hidden_names.forget()
        if writes.everything:  # now, or what is prepared next would soon be prepared anew
            await self.refresh()
            return
        self._unread.redefine(writes.redefined)
        for tag, (before, after) in steps.items():
            if tag.schema not in writes.unnamed:
                self._steps[tag, before] = after
        self.edition += 1
        self.redefinitions += 1
        self._see(self.versions, changed=True)
        (self._on_change if writes.unnamed else self._on_unread)()
        if len(self._steps) > _STEPS:  # whoever reads meanwhile reads what they lead to once more
            self._steps.clear()
        if self._unread.named > _MOST_UNREAD:
            await self.refresh()
        elif writes.unnamed:
            await self.readings.of(ROUTINES)

    async def learn_of(self, statements: Sequence[Statement], state: SessionState) -> bool:
        """Reads of the tables the statements name those again that are not known as they are now.

        Those that the catalog lacks, or lacks the bodies of, may be new: but seldom, for who asks
        again and again for what does not exist, or may not be seen. Returns whether it did.
        """
        catalog = self.catalog
        if catalog is None:
            return False
        wanted: set[TableName] = set()
        unknown: set[TableName] = set()
        hidden: set[TableName] = set()
        for each, default in in_turn_once(statements, state.schema):
            if each.kind is not Kind.DDL:
                refs = each.reads | each.writes
                others = [ref for ref in refs if not state.temporary.owns(ref, default)]
                named = catalog.server.named(others, default)
                unknown |= {name for name in named if not catalog.knows(name)}
                hidden |= {name for name in named if catalog.hides(name)}
            wanted |= self.unread_by(catalog.server.named(each.reads, default))
        wanted |= self._new_names.to_look_for(name for name in unknown if name not in self._unread)
        wanted |= self._hidden_names.to_look_for(hidden - wanted)
        return bool(wanted) and await self.readings.of(Scope(tables=frozenset(wanted)))

    @property
    def has_unread(self) -> bool:
        """Whether anything is still to be read again."""
        return bool(self._unread)

    def unread_by(self, names: Iterable[TableName]) -> frozenset[TableName]:
        """What a read of these tables depends on and is still to be read again."""
        if not self._unread or self.catalog is None:
            return frozenset()
        return self.unread_among(self.catalog.reads.closure(names).tables)

    def unread_among(self, tables: frozenset[TableName]) -> frozenset[TableName]:
        """Which tables, redefined and not read since, are these, or may be what they lead to."""
        if not self._unread or self.catalog is None:
            return frozenset()
        code = self.catalog.definitions.code_on(tables)
        return self._unread.led_to(tables) | self._unread.named_in(code)

    async def know(self, names: Iterable[TableName]) -> None:
        """Reads again what is not known as it is now, before an answer hangs on these tables."""
        while unread := self.unread_by(names):
            if not await self.readings.of(Scope(tables=unread)):
                return

    def unread_reach(self, writes: WriteSet) -> frozenset[TableName]:
        """What decides the reach of these writes and is still to be read again."""
        assert self.catalog is not None
        reached = self.catalog.writes.closure(writes.tables, writes.told)
        return self.unread_by(writes.reads) | self.unread_among(reached or frozenset())

    def reach_of(self, statement: Statement, schema: str | None) -> CodeReach | None:
        """What the routines that it calls may write, beyond what is declared; None for all."""
        catalog = self.catalog
        if catalog is None or not statement.by_code:
            return None
        known = {path[-1].lower() for path in statement.code}
        named = catalog.stored.functions.intersection(map(str.lower, statement.functions))
        if named - known:
            return None
        reach = catalog.code.reach(statement.called, statement.code, schema)
        unread = any(name.name.lower() in reach.named for name in self._unread) if reach else False
        return None if unread else reach

    @property
    def server(self) -> str:
        """What tells the answers of the server, or of its data set, from those of others."""
        return self.globals.named.get(SERVER, "")

    @property
    def tells_commits(self) -> bool:
        """Whether the server may tell sessions what their commits are called."""
        return self.catalog is None or self.catalog.server.tells_commits

    @property
    def has_one_snapshot(self) -> bool:
        """See `Server`."""
        return self.catalog is None or self.catalog.server.has_one_snapshot

    @property
    def is_mariadb(self) -> bool:
        """Whether the server is known to be one."""
        return self.catalog is not None and self.catalog.server.flavour == "mariadb"

    @property
    def warnings_of_counting(self) -> int:
        """How many warnings the server gives of SQL_CALC_FOUND_ROWS, and of FOUND_ROWS()."""
        if self.catalog is None:
            return 0
        server = self.catalog.server
        return int(server.flavour == "mysql" and server.version >= (8, 0, 17))
