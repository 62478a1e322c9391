"""Reads that come the long way: from the cache if they can, else from MySQL, to be stored."""

import asyncio
from functools import partial
from time import perf_counter
from typing import assert_never

from sqlcache.cache import entry
from sqlcache.cache.leases import Lease
from sqlcache.cache.outcomes import Bypass, Hit, Outcome, Outdated
from sqlcache.cache.reads import Basis, Read
from sqlcache.errors import ConnectionLost
from sqlcache.mysql.constants import WAS_KILLED, Capability
from sqlcache.mysql.response import ResponseTracker
from sqlcache.plan.cacheability import NotCacheable
from sqlcache.plan.commands import ClientCommand, Meaning
from sqlcache.proxy.checks import Checks
from sqlcache.proxy.longway.answers import Answers
from sqlcache.proxy.longway.counting import Counting
from sqlcache.proxy.longway.planning import Planning
from sqlcache.proxy.longway.running import Running
from sqlcache.proxy.longway.standing import Standing
from sqlcache.proxy.session_parts import SessionParts
from sqlcache.proxy.straight.hits import Hits
from sqlcache.proxy.straight.inflight import InFlight
from sqlcache.sql.lexer import Lexed

_NO_HIT_WANTED = NotCacheable.since("the client wants no hit")
_PINS_TOO_MUCH = "without the rows that it asks for"
_CROWDED = Bypass("too much that clients have not read")
_ANSWERS_PING_S = 5.0
_CATALOG_CHANGED = NotCacheable.since("catalog changed")


class Reading:
    """Those of one session."""

    __slots__ = ("_answers", "_checks", "_copies", "_counting", "_embedded", "_engine", "_hits",
                 "_last", "_meanings", "_metrics", "_pinging", "_planner", "_planning", "_running",
                 "_standing", "_waiting", "filling")  # fmt: skip

    def __init__(
        self,
        shared: SessionParts,
        standing: Standing,
        planning: Planning,
        running: Running,
        answers: Answers,
        counting: Counting,
        hits: Hits,
    ) -> None:
        self._engine = shared.engine
        self._planner = shared.planner
        self._metrics = shared.metrics
        self._last = shared.last
        self._meanings = shared.meanings
        self._copies = shared.copies
        self._checks = shared.checks
        self._embedded = shared.embedded
        self._standing = standing
        self._planning = planning
        self._running = running
        self._answers = answers
        self._counting = counting
        self._hits = hits
        self._waiting: asyncio.Timeout | None = None
        """For what the cache has."""
        self._pinging: asyncio.Task[bool] | None = None
        self.filling: Lease | None = None
        """Whose answer is on its way."""

    async def read_or_execute(self, command: ClientCommand, meaning: Meaning) -> None:
        planned = self._planning.plan_read(command, meaning)
        if isinstance(planned, Read) and self._standing.allowed:
            await self.read(command, planned, meaning)
        elif isinstance(planned, Read):
            self._go_past(command, _NO_HIT_WANTED)
            await self._running.execute(command, meaning, read=planned)
        else:
            self._go_past(command, planned)
            self._planning.plan_to_pass(command, meaning, planned)
            await self._running.execute(command, meaning)

    def _go_past(self, command: ClientCommand, cause: NotCacheable | Bypass) -> None:
        """MySQL is to be asked, for this cause."""
        label, why = cause if isinstance(cause, NotCacheable) else (cause.reason, cause.reason)
        self._last.went_past(command.counts, label, why)

    async def read(
        self,
        command: ClientCommand,
        read: Read,
        meaning: Meaning,
        first: Outcome | Lease | None = None,
        *,
        again: bool = False,
    ) -> None:
        own = self._standing.own
        if own.view is not None:
            read = read.without_staleness(in_transaction=self._standing.in_transaction)
            if not isinstance(first, Lease) and own.view.may_have_kept(read):
                first = first or await self._engine.look(read)
                if kept := own.view.kept(read, first):
                    await self._answer(command, meaning, read, Hit(kept, 0))
                    return
        got = first if isinstance(first, Lease) else await self._obtain(read, first)
        checks = self._checks
        if checks is not None and isinstance(got, Hit) and checks.wants(read, got, own.view):
            await self._check(checks, command, meaning, read, got)
            return
        if own.view is not None:
            got = await own.serve(own.view, read, got)
        match got:
            case Hit():
                await self._answer(command, meaning, read, got)
            case Bypass():
                self._go_past(command, got)
                await self._running.execute(command, meaning, read=read)
            case Lease():
                command.counts.missed(self._metrics)
                got.read.tags.reads.misses += 1
                await self.fill(command, meaning, got)
            case Outdated() if not again:
                await self._planner.confirmations.follow(read.tags.tags)
                await self._plan_anew(command)
            case Outdated():
                self._go_past(command, _CATALOG_CHANGED)
                await self._running.execute(command, meaning)
            case _:
                assert_never(got)

    async def _check(
        self, checks: Checks, command: ClientCommand, meaning: Meaning, read: Read, hit: Hit
    ) -> None:
        """Has MySQL answer what this hit could, and compares the two. In a transaction it does not:
        MySQL's answer may be of another moment."""
        view = self._standing.own.view
        self._go_past(command, checks.reason)
        warnings = self._planner.keeper.warnings_of_counting if read.counts_all else 0
        kept = self._copies.begin(warnings)
        try:
            tracker = await self._running.execute(command, meaning, kept, read=read)
            checks.count_shadow(read, hit, view, perf_counter() - self._last.sent_at)
            if not tracker.failed:
                self._last.note_time(command.counts, self._standing.state.schema, fills=False)
            if view is not None or self._standing.own.view is not None:
                return
            fresh = kept.entry(b"", tracker)
            await checks.compare(
                read,
                hit,
                fresh and entry.packets_for(fresh, 0, 0),
                partial(self._asked_by, command),
                deprecate_eof=bool(self._standing.state.capabilities & Capability.DEPRECATE_EOF),
            )
        finally:
            kept.give_back()

    async def _asked_by(self, command: ClientCommand) -> tuple[Lexed, bool] | None:
        prepared = self._meanings.prepared(command)
        if prepared is not None:
            return prepared.lexed, False
        lexed = (await self._planning.meaning_now(command)).lexed
        return None if lexed is None else (lexed, True)

    async def _obtain(self, read: Read, first: Outcome | None) -> Hit | Lease | Outdated | Bypass:
        """What the cache has. Raises: TimeoutError after `end_wait`."""
        got, limit_s = None, self._standing.state.variables.time_limit_s
        try:
            async with asyncio.timeout(None) as self._waiting:
                got = await self._engine.obtain(
                    read, first, stores=self._embedded, within_s=limit_s
                )
                if (pinging := self._pinging) is not None:  # its OK is not for what is sent next
                    await asyncio.wait((pinging,), timeout=_ANSWERS_PING_S)
                    if not (pinging.done() and pinging.result()):
                        raise ConnectionLost("MySQL gives no sign of life")
            return got
        except BaseException:
            if isinstance(got, Lease):
                got.release_soon()
            raise
        finally:
            self._waiting = None
            if self._pinging is not None:
                self._pinging.cancel()
                self._pinging = None

    @property
    def pings(self) -> bool:
        """Whether what MySQL says may be the answer to a `ping`."""
        return self._pinging is not None

    def ping(self) -> bool:
        """Lets MySQL know of a client that waits for another's fill; whether it does."""
        if self._waiting is not None and self._pinging is None:
            self._pinging = asyncio.get_running_loop().create_task(self._ping())
        return self._waiting is not None

    async def _ping(self) -> bool:
        try:
            await self._standing.questions.ping()
        except ConnectionLost:
            self.end_wait()
            return False
        self._pinging = None
        return True

    def end_wait(self) -> None:
        """The session need not have what another fills: it ends."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.reschedule(asyncio.get_running_loop().time())

    async def _plan_anew(self, command: ClientCommand) -> None:
        """A definition changed since the catalog was read: the plan may be wrong."""
        meaning = await self._planning.meaning_now(command)
        planned = self._planning.plan_read(command, meaning)
        if isinstance(planned, Read):
            await self.read(command, planned, meaning, again=True)
        else:
            self._go_past(command, planned)
            await self._running.execute(command, meaning)

    async def _answer(self, command: ClientCommand, meaning: Meaning, read: Read, hit: Hit) -> None:
        """Answers from an entry; or MySQL does, which waits for a client that is slow to read."""
        prepared = self._meanings.prepared(command)
        status, execution = self._standing.state.status, command.execution
        if not self._hits.answer(command.data, read, hit, status, prepared, execution):
            hit.value = b""  # it is not to be held meanwhile, by whomever
            self._go_past(command, _CROWDED)
            await self._running.execute(command, meaning, read=read)

    async def fill(
        self,
        command: ClientCommand,
        meaning: Meaning,
        lease: Lease,
        *,
        sent: InFlight | None = None,
    ) -> None:
        """Runs the read upstream, if it was not `sent` yet, passes the answer on as it comes, and
        stores it."""
        read = lease.read
        if lease.tags is not None:
            self._last.basis = Basis(read, lease.tags, lease.versions, lease.whole)
        warnings = self._planner.keeper.warnings_of_counting if read.counts_all else 0
        begun = None if sent is None else sent.copy
        kept = self._copies.begin(warnings, lease) if begun is None else begun
        self.filling = lease
        try:
            if sent is not None:
                tracker = await self._answers.relay_begun(command, meaning, kept, sent)
            else:
                tracker = await self._running.execute(command, meaning, kept, read=read)
            answered = self._answers.is_over and not tracker.failed
            keeps = answered and self._engine.may_keep(lease, tracker.rows)
            if not keeps:  # nor may what an embedded client makes of it, which has not read it yet
                self._last.basis = _PINS_TOO_MUCH
            if not tracker.failed:
                self._last.note_time(command.counts, self._standing.state.schema, fills=True)
            if read.counts_all and kept.storable(tracker):
                kept.rows = await self._counting.count_all(command)
            made = kept.entry(lease.versions, tracker)
            if made is not None and keeps and kept.take_lease():
                await lease.fill(made)
            elif not _was_killed(tracker) and kept.take_lease():
                await lease.decline(lasting=made is None and not tracker.failed)
        finally:
            self.filling = None
            kept.give_back()
            if kept.take_lease():
                await asyncio.shield(lease.release())


def _was_killed(tracker: ResponseTracker) -> bool:
    """Whether another run of the statement may well have an answer."""
    return tracker.failed and tracker.ends[-1].error_code in WAS_KILLED
