"""The long way of one session: a coroutine that serves one command after another.

It takes what has no plan, and makes the plans; and it goes on with what was begun on the straight
path and has turned out to be unusual.

What a command means is told by `meanings`, what becomes of its writes by `writes`, and which reads
of a transaction can be hits by `own_transaction`.
"""

import asyncio
import contextlib
import logging
import math
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import assert_never

from sqlcache.cache import entry
from sqlcache.cache.engine import Engine
from sqlcache.cache.leases import Lease
from sqlcache.cache.outcomes import Bypass, Hit, Outcome, Outdated
from sqlcache.cache.reads import Basis, Read
from sqlcache.errors import ProtocolError, WriteRefused
from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import (
    DENIALS,
    ER_EMPTY_QUERY,
    ER_MALFORMED_PACKET,
    ER_PARSE_ERROR,
    ER_UNKNOWN_COM_ERROR,
    ER_UNKNOWN_ERROR,
    ER_UNKNOWN_STMT_HANDLER,
    Capability,
    Command,
    Status,
)
from sqlcache.mysql.handshake import Login
from sqlcache.mysql.packets import HEADER_BYTES, err_packet, out_of_order, read_ok, with_flags
from sqlcache.mysql.response import NO_RESPONSE, ResponseTracker, followed
from sqlcache.mysql.rows import read_text_rows, with_last_number, with_last_row
from sqlcache.mysql.scan import number_in, with_number
from sqlcache.plan.cacheability import (
    BINLOG_LAGS,
    CATALOG_UNKNOWN,
    SEVERAL,
    SWITCHED_OFF,
    NotCacheable,
)
from sqlcache.plan.commands import (
    EXECUTES,
    NO_STATEMENT,
    STREAMS,
    UNANSWERED_BYTES,
    UNKNOWN,
    USE_PREPARED,
    WRITES_NOTHING,
    ClientCommand,
    Meaning,
)
from sqlcache.plan.contexts import Context
from sqlcache.plan.meanings import Meanings
from sqlcache.plan.planner import Planner
from sqlcache.plan.plans import UNTRACEABLE, Pass, Plan, may_end_logging
from sqlcache.plan.state import SessionState
from sqlcache.plan.writeset import NOTHING
from sqlcache.probes import Prober
from sqlcache.proxy.authentication import LoginRefused
from sqlcache.proxy.checks import SHADOW, Checks
from sqlcache.proxy.diagnostics import MOST_SEARCHED_BYTES, Diagnostics
from sqlcache.proxy.handles import CLOSE, CLOSE_BYTES, NOBODYS, Handles, Refused
from sqlcache.proxy.last_command import LastCommand
from sqlcache.proxy.login import LoginRelay
from sqlcache.proxy.own_transaction import OwnTransaction
from sqlcache.proxy.questions import Questions, digits, written_like
from sqlcache.proxy.relay import Relay, ResponseCopy, Room
from sqlcache.proxy.slow_reads import SlowReads
from sqlcache.proxy.straight.exchange import IN_UNCACHEABLE_TRANSACTION, reason_of
from sqlcache.proxy.straight.inflight import HandedOver, InFlight, Stage
from sqlcache.proxy.straight.path import StraightPath
from sqlcache.proxy.writes import Writes
from sqlcache.sql.catalog.code import may_feign_errors
from sqlcache.sql.lexer import Lexed, word_set
from sqlcache.sql.statement import Statement, Transaction, changed
from sqlcache.statements import UNCOUNTED

log = logging.getLogger(__name__)

_EXPLAINS = word_set("EXPLAIN DESCRIBE DESC")
_FOUND_ROWS = b"SELECT FOUND_ROWS()"
_COUNT_BYTES = 1_000  # an answer to it is shorter
_AFTER_ONE_IN_VAIN = 30  # transactions: what came in the last could not be sent with its BEGIN
_LONGEST_LOOK_S = 1.0  # at a memcached that does not answer, before the first command
_NO_HIT_WANTED = NotCacheable.since("the client wants no hit")
_TOO_LONG = NotCacheable("not cacheable", "too long to be read whole")
_OUT_OF_ORDER = NotCacheable("unreadable", "its packet is numbered out of order")
_UNREADABLE = NotCacheable("unreadable", "its text cannot be read")
_OF_FOUND_ROWS = NotCacheable("not cacheable", "calls FOUND_ROWS()")
_PINS_TOO_MUCH = "without the rows that it asks for"
_CATALOG_CHANGED = NotCacheable.since("catalog changed")
_REFUSALS = frozenset({ER_PARSE_ERROR, ER_EMPTY_QUERY, ER_UNKNOWN_STMT_HANDLER})
_REFUSALS_TO_EXECUTE = frozenset({ER_UNKNOWN_STMT_HANDLER, ER_MALFORMED_PACKET})


@dataclass(frozen=True, slots=True)
class Limits:
    """The session's settings; bytes and seconds. `slow` tells of reads that take long."""

    max_statement_bytes: int
    max_entry_bytes: int
    login_timeout_s: float
    keepalive_s: float
    straight: bool
    slow: SlowReads = field(default_factory=SlowReads)
    verify_share: float = 0
    """Of the hits, from 0 to 1: MySQL is asked as well."""
    shadow: bool = False
    """Nothing is served from the cache."""
    names_commits: bool = False
    """Whoever follows the binary log is to know commits of sessions again."""
    prober: Prober | None = None
    """Asks MySQL what rows are like that are written."""


class LongWay:
    """See above. `begin` is to be awaited first, when the client has logged in.

    `for_entries` is the room for copies of answers that are to be stored. `embedded`: the client is
    of this very process, and may ask and tell more than others.
    """

    state: SessionState
    """What is known of the session since it logged in."""
    questions: Questions
    own: OwnTransaction

    def __init__(
        self,
        client: Channel,
        upstream: Channel,
        relay: Relay,
        engine: Engine,
        planner: Planner,
        metrics: Metrics,
        limits: Limits,
        logins: LoginRelay,
        for_entries: Room,
        *,
        embedded: bool = False,
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._relay = relay
        self._engine = engine
        self._planner = planner
        self._metrics = metrics
        self._limits = limits
        self._logins = logins
        self._for_entries = for_entries
        self._embedded = embedded
        self._waiting: asyncio.Task[None] | None = None  # for what the cache has
        self._awaits_answer = False
        self._number: int | None = None  # the client's, of a statement that was just prepared
        self._counts = UNCOUNTED  # of the command that is served
        self._diagnostics = Diagnostics()
        self.note_globals()
        self.meanings = Meanings(planner)
        ask = partial(limits.prober.ask, peer=upstream.peer) if limits.prober else None
        self.writes = Writes(engine, planner, ask)
        self.unread = False
        """Whether a command is there of which nobody knows yet that it writes nothing."""
        self.context: Context | None = None
        """Where its plans are; None while no read may be a hit."""
        self.allowed = True
        """Whether hits are wanted."""
        self._checks: Checks | None = None
        if (limits.verify_share or limits.shadow) and not embedded:
            self._checks = Checks(engine, metrics, share=limits.verify_share, shadow=limits.shadow)
        self.handles = Handles(upstream, self._diagnostics)
        self.last = LastCommand(metrics, limits.slow)
        self.straight = StraightPath(
            *(client, upstream, engine, metrics, self.last, self._diagnostics, self.meanings),
            *(self.writes, self.handles),
            turned=self._turned,
            checks=self._checks,
            max_entry_bytes=limits.max_entry_bytes,
            embedded=embedded,
        )
        self.course = self.straight.course

    async def begin(self, login: Login, status: int) -> None:
        """The client has logged in."""
        self.state = SessionState(login, self._globals, status, secrets.token_hex())
        generation = self._globals_generation
        self.questions = Questions(
            *(self._relay, self._planner, self._diagnostics, self.state, generation)
        )
        keeps = not self._limits.shadow
        self.own = OwnTransaction(self._engine, self.state, self.questions, keeps=keeps)
        with contextlib.suppress(TimeoutError):  # else before the first statement
            async with asyncio.timeout(_LONGEST_LOOK_S):
                await self.questions.confirm_rights()
        self.refresh_context()

    def close(self) -> None:
        """The session ends, whatever is under way."""
        self.writes.abandon(self._logins.connection)
        self.straight.close()
        self.handles.end()
        self.meanings.forget()

    @property
    def in_transaction(self) -> bool:
        """Whether the server has a transaction open for it, as far as is known."""
        return bool(self.state.status & Status.IN_TRANS) or self.state.transaction_unsure

    @property
    def why_no_hits(self) -> str:
        """Why no read of it can be a hit now, for people; "" where one can."""
        if not self._planner.keeper.enabled or self.context is None:
            return self._hindrance.why
        if self._checks is not None and self._checks.shadow:
            return SHADOW.reason
        uncacheable = self.own.view is not None and self.own.view.uncacheable
        return IN_UNCACHEABLE_TRANSACTION.why if uncacheable else ""

    @property
    def _hindrance(self) -> NotCacheable:
        """Why a session without a context has no hits. Until the catalog was read, the settings
        that sessions begin with are not known either."""
        if not self._planner.keeper.enabled:
            return SWITCHED_OFF
        if self._planner.keeper.held_up:
            return BINLOG_LAGS
        reason = self.state.bypass_reason()
        if reason is None or self._planner.keeper.catalog is None:
            return CATALOG_UNKNOWN
        return NotCacheable.since(reason)

    @property
    def handed_over(self) -> ClientCommand | None:
        """The command that the straight path has handed over, for `serve` to go on with."""
        begun = self.course.handed_over
        if begun is None:
            return None
        now = begun.command
        code = now.packet[HEADER_BYTES]
        return ClientCommand(code, now.packet, whole=True, execution=now.execution)

    def client_changed(self) -> None:
        """A client that went away has its query ended, but never a write, nor before all it sent
        has been done: MySQL too would do it."""
        if not self._client.closed or self._client.buffered or self.unread:
            return
        if self.writes.under_way:
            self.end_writing()
            return
        self._upstream.abort()
        if self._waiting is not None:  # it need not have what another fills
            self._waiting.cancel()

    def end_writing(self) -> None:
        """Tells MySQL that a client has gone whose last command was sent: it ends what only waits,
        as in a SLEEP, and its answer still says how that has ended."""
        sent = self._awaits_answer or self.course.awaits_mysql
        if sent and self._client.closed and not self._client.buffered:
            self._upstream.end_writing()

    async def serve(self, command: ClientCommand) -> bool:
        """Answers one command; False when it was the last."""
        if command.code == Command.QUIT:
            self._metrics.statements_relayed += 1
            self._upstream.drop_ahead()
            self._upstream.write(command.data)
            return False
        begun, self.course.handed_over = self.course.handed_over, None
        if begun is None:
            self.last.asked_at = perf_counter()
        self.last.basis = "unreadable"
        self._counts = UNCOUNTED if begun is None else begun.command.plan.counts
        if begun is None or begun.stage is not Stage.SENT:
            self.note_globals()
        if self._upstream.ahead and (begun is None or begun.stage is Stage.UNPLANNED):
            await self._settle()
        elif self.handles.awaits_some and (begun is None or begun.stage is not Stage.SENT):
            with self._while_unread():
                await self._upstream.settle()
        try:
            if command.code in USE_PREPARED:
                self._name(command)
            if begun is None and command.code in USE_PREPARED:
                await self._end_closed(command)
            if begun is not None:
                await self._go_on(command, begun)
                goes_on = True
            else:
                goes_on = await self._dispatch(command)
        except WriteRefused as error:
            goes_on = self._refuse(command, error)
        self.meanings.answered()
        await self._relay.let_client_catch_up()
        if self.state.rights.assumed:
            self.refresh_context()  # an embedded client may ask, now that it has its answer
            await self.questions.confirm_rights()
        self.refresh_context()
        return goes_on

    async def _settle(self) -> None:
        """Has MySQL take what waits for the next command, which may write: else it could do so by
        settings that it refuses."""
        if self.own.view is not None:
            self.straight.ahead.begin_at_once(_AFTER_ONE_IN_VAIN)
        with self._while_unread():
            await self._upstream.settle()

    def _name(self, command: ClientCommand) -> None:
        """Has a command name its statement by a number: the last one that the server has prepared
        may be another."""
        if len(command.data) < CLOSE_BYTES or not self.meanings.names_the_last(command):
            return
        if self.meanings.has_last():
            command.data = with_number(command.data, self.meanings.number_of(command))
        elif self.handles.renumbers:
            command.data = with_number(command.data, NOBODYS)

    async def _end_closed(self, command: ClientCommand) -> None:
        """A statement that the client has closed is to be none when it names it again; and a part
        of a parameter that it sends ahead is not for an execution that is owed."""
        number = self.meanings.number_of(command)
        closed = self.handles.keeps_open(number)
        long_data = command.code == Command.STMT_SEND_LONG_DATA
        if closed or (long_data and number in self._diagnostics.owed_executions()):
            await self._make_up()

    async def _get_to_know(self, command: ClientCommand) -> None:
        """Finds out what is to be known of the session before a command is read."""
        with self._while_unread():
            await self.questions.confirm_rights()
            await self.questions.learn_settings(command)
            await self.meanings.read_ahead(command, self.state)

    @contextlib.contextmanager
    def _while_unread(self) -> Iterator[None]:
        """Meanwhile it is not known what the command that has come means: it may be a write."""
        self.unread = True
        try:
            yield
        finally:
            self.unread = False

    async def _dispatch(self, command: ClientCommand) -> bool:
        match command.code:
            case Command.CHANGE_USER:
                await self._change_user(command)
            case Command.QUERY:
                await self._query(command)
            case Command.STMT_EXECUTE:
                if self.meanings.prepared(command) is not None:
                    await self._get_to_know(command)
                await self._execute_prepared(command)
            case Command.STMT_PREPARE:
                await self._get_to_know(command)
                self.handles.close_others()
                prepared = self.meanings.of_prepared_text(command, self.state)
                # What it writes to may be a view that calls a function.
                named = [changed(s, reads=s.reads | s.writes) for s in prepared.statements]
                await self._planner.keeper.learn_of(named, self.state)
                writes = self._planner.tagging.written_when_prepared(prepared)
                edition = self._planner.keeper.edition
                elsewhere = prepared.goes_elsewhere
                meaning = Meaning(writes=writes, edition=edition, goes_elsewhere=elsewhere)
                if writes and prepared.opaque_session:
                    meaning = UNKNOWN
                await self._execute(command, meaning)
            case code if code in STREAMS:
                return await self._stream(command)
            case Command.TABLE_DUMP:  # its answer, where a server still has one, cannot be followed
                await self._relay.throw_away(command)
                self._client.write(err_packet(1, ER_UNKNOWN_COM_ERROR, "Unknown command", "08S01"))
            case code if code in NO_RESPONSE:
                if len(command.payload) < UNANSWERED_BYTES[Command(code)]:
                    raise ProtocolError("a command is cut short")
                self._metrics.statements_relayed += 1
                number = self.meanings.number_of(command)
                if code == Command.STMT_CLOSE and number and command.data.startswith(CLOSE):
                    self.handles.close(number)
                elif self.handles.refused(command.data) is None:
                    await self._relay.send(self._as_sent(command))
                else:
                    await self._relay.throw_away(command)
                self.meanings.sent_unanswered(command)
            case code:
                # The others need none, and some answer how many warnings there are.
                if code not in WRITES_NOTHING:
                    await self._get_to_know(command)
                elif self.context is not None and self._may_plan(command):
                    self._planner.remember_command(command.data, self.context)
                await self._execute(command, self.meanings.of(command, self.state))
        return True

    async def _stream(self, command: ClientCommand) -> bool:
        """Passes on a stream; False when it is over, True where the server refuses it."""
        await self._make_up()  # the error of a refusal is added to what is there
        self._metrics.statements_relayed += 1
        refusal = await self._relay.stream(command)
        if refusal is None:
            return False
        self._took_refusal(command, NO_STATEMENT, refusal)
        return True

    def _took_refusal(
        self, command: ClientCommand, meaning: Meaning, error: bytes
    ) -> ResponseTracker:
        """Passes on an error, which is all that came of a command."""
        tracker = followed(command.code, self.state.capabilities, error)
        self._took_effect(command, meaning, tracker)
        self._client.write(error)
        return tracker

    def _as_sent(self, command: ClientCommand) -> ClientCommand:
        """The command as the server understands it."""
        return replace(command, data=self.handles.for_server(command.data))

    async def _change_user(self, command: ClientCommand) -> None:
        self._diagnostics.begin_anew()
        self._metrics.statements_relayed += 1
        try:
            login, ok = await self._logins.change_user(command.data, self.state.login)
        except LoginRefused:
            # MySQL closes the connection; MariaDB goes on with the old user and all else anew.
            self.state.settings_unknown = True
            self.state.reset(self._globals, is_mariadb=self._planner.keeper.is_mariadb)
        else:
            self.state.log_in(login, self._globals, status_of(ok))
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.handles.forget()
        self.meanings.forget()
        self.writes.forget()
        self.own.view = None
        # Or they may be others than the server took.
        self.questions.generation = self._globals_generation

    def note_globals(self) -> None:
        """A command is about to be sent, or a login."""
        self._globals = self._planner.keeper.globals
        self._globals_generation = self._planner.keeper.generation

    def _refuse(self, command: ClientCommand, error: WriteRefused) -> bool:
        """Answers a write that is not to be made. False where that ends the session: of a long one
        MySQL has all but the last bytes, and waits for these."""
        self._metrics.writes_refused += 1
        if self._engine.seldom.says(str(error)):
            log.warning("write refused error=%s", error, extra={"kind": "write"})
        self._client.write(err_packet(1, ER_UNKNOWN_ERROR, str(error), "HY000"))
        return command.whole

    async def _go_on(self, command: ClientCommand, begun: HandedOver) -> None:
        """Serves a command that was begun on the straight path."""
        now, plan = begun.command, begun.command.plan
        match begun.stage:
            case Stage.UNPLANNED:
                await self._execute_prepared(command)
            case Stage.OPENING:
                assert isinstance(plan, Read)
                self.state.answered(await self._relay.ends(self.state.capabilities))
                if self.own.view is not None:
                    self.own.view.stop_caching()
                await self._read(command, plan, NO_STATEMENT)
            case Stage.UNDECIDED | Stage.LEASED:
                assert isinstance(plan, Read)
                await self._read(command, plan, NO_STATEMENT, now.lease or begun.outcome)
            case Stage.MARKED:
                await self._execute(command, self._meaning_under(plan, command))
            case Stage.SENT if now.lease is not None:
                await self._fill(command, NO_STATEMENT, now.lease, sent=now)
            case Stage.SENT:
                self.last.basis = reason_of(plan)
                self.writes.go_on(self.state)
                meaning = self._meaning_under(plan, command)
                await self._answer_of_mysql(command, meaning, opens=now.opens)
            case _:
                assert_never(begun.stage)

    async def _query(self, command: ClientCommand) -> None:
        await self._get_to_know(command)
        meaning = await self._meaning_of(command)
        diagnostics = self._diagnostics
        rows = None if diagnostics.left_more else diagnostics.found_rows(command.data)
        tells = self.allowed and not (self._embedded or self._limits.shadow)
        if tells and rows is not None and self.context is not None:
            await self._answer_found_rows(command, meaning, rows, self.context)
        else:
            await self._read_or_execute(command, meaning)

    async def _execute_prepared(self, command: ClientCommand) -> None:
        meaning = await self._meaning_of(command)
        prepared = self.meanings.prepared(command)
        if prepared is not None and command.execution is None:
            command.execution = prepared.read(command.payload, self.state.capabilities)
        await self._read_or_execute(command, meaning)

    async def _meaning_of(self, command: ClientCommand) -> Meaning:
        """What a command means, the tables it names being known as they are now."""
        meaning = self.meanings.of(command, self.state)
        if await self._planner.keeper.learn_of(meaning.statements, self.state):
            meaning = await self._meaning_now(command)
        self._counts = self._planner.counts_of(meaning, self.state.schema)
        if self._counts is not UNCOUNTED:
            self.last.counts = self._counts
        return meaning

    async def _meaning_now(self, command: ClientCommand) -> Meaning:
        """What a command means by the definitions of now, whatever it was read to mean before."""
        await self.meanings.read_ahead(command, self.state)
        return self.meanings.of(command, self.state)

    async def _read_or_execute(self, command: ClientCommand, meaning: Meaning) -> None:
        planned = self._plan_read(command, meaning)
        if isinstance(planned, Read) and self.allowed:
            await self._read(command, planned, meaning)
        elif isinstance(planned, Read):
            self._go_past(_NO_HIT_WANTED)
            await self._execute(command, meaning, read=planned)
        else:
            self._go_past(planned)
            self._plan_to_pass(command, meaning, planned)
            await self._execute(command, meaning)

    def _go_past(self, cause: NotCacheable | Bypass) -> None:
        """MySQL is to be asked, for this cause."""
        label, why = cause if isinstance(cause, NotCacheable) else (cause.reason, cause.reason)
        self.last.went_past(self._counts, label, why)

    def _may_plan(self, command: ClientCommand) -> bool:
        """Whether a plan can be kept for it, and none is."""
        return self.context is not None and command.whole and not self.context.planned(command.data)

    def _plan_to_pass(self, command: ClientCommand, meaning: Meaning, cause: NotCacheable) -> None:
        """From here on others like this command go the straight path, if they can."""
        plan = self._planner.plan_to_pass(meaning, cause) if self._may_plan(command) else None
        if plan is None or self.context is None:
            return
        prepared = self.meanings.prepared(command)
        if command.code == Command.QUERY:
            self._planner.remember_pass(command.data, meaning, self.context, plan)
        elif prepared is not None and (cause.label != UNTRACEABLE or not prepared.traceable):
            self._planner.plan_prepared(prepared, self.context, plan)

    def _plan_read(self, command: ClientCommand, meaning: Meaning) -> Read | NotCacheable:
        """The read a command is, or why it cannot be answered from the cache."""
        if not command.whole:
            return _TOO_LONG
        if out_of_order(command.data):
            return _OUT_OF_ORDER
        if meaning.lexed is None or len(meaning.statements) != 1:
            return _UNREADABLE if meaning.lexed is None else SEVERAL
        statement = meaning.statements[0]
        if not statement.cacheable:
            return NotCacheable("not cacheable", statement.reason)
        self.refresh_context()
        if self.context is None:
            return self._hindrance
        got: Read | NotCacheable
        if command.code == Command.STMT_EXECUTE:
            got = self._plan_execution(command, statement, self.context)
        else:
            got = self.context.read_for(command.data) or self._planner.plan_read(
                command.data, meaning.lexed, statement, self.context
            )
        uncacheable = self.own.view is not None and self.own.view.uncacheable
        in_transaction = uncacheable and isinstance(got, Read)
        return IN_UNCACHEABLE_TRANSACTION if in_transaction else got

    def _plan_execution(
        self, command: ClientCommand, statement: Statement, context: Context
    ) -> Read | NotCacheable:
        prepared = self.meanings.prepared(command)
        if prepared is None:
            return NotCacheable.since(UNTRACEABLE)
        got = self._planner.plan_executions(prepared, statement, context)
        if isinstance(got, NotCacheable):
            return got
        parameters = None if command.execution is None else command.execution.parameters
        if parameters is None or not prepared.traceable:
            return NotCacheable.since(UNTRACEABLE)
        return got.read(parameters)

    async def _read(
        self,
        command: ClientCommand,
        read: Read,
        meaning: Meaning,
        first: Outcome | Lease | None = None,
        *,
        again: bool = False,
    ) -> None:
        if self.own.view is not None:
            read = read.without_staleness(in_transaction=self.in_transaction)
            if not isinstance(first, Lease) and self.own.view.may_have_kept(read):
                first = first or await self._engine.look(read)
                if kept := self.own.view.kept(read, first):
                    self._answer(command, read, Hit(kept, 0))
                    return
        got = first if isinstance(first, Lease) else await self._obtain(read, first)
        checks = self._checks
        if checks is not None and isinstance(got, Hit) and checks.wants(read, got, self.own.view):
            await self._check(checks, command, meaning, read, got)
            return
        if self.own.view is not None:
            got = await self.own.serve(self.own.view, read, got)
        match got:
            case Hit():
                self._answer(command, read, got)
            case Bypass():
                self._go_past(got)
                await self._execute(command, meaning, read=read)
            case Lease():
                self._counts.missed(self._metrics)
                got.read.tags.reads.misses += 1
                await self._fill(command, meaning, got)
            case Outdated() if not again:
                await self._planner.keeper.follow(read.tags.tags)
                await self._plan_anew(command)
            case Outdated():
                self._go_past(_CATALOG_CHANGED)
                await self._execute(command, meaning)
            case _:
                assert_never(got)

    async def _check(
        self, checks: Checks, command: ClientCommand, meaning: Meaning, read: Read, hit: Hit
    ) -> None:
        """Has MySQL answer what this hit could, and compares the two. In a transaction it does not:
        MySQL's answer may be of another moment."""
        view = self.own.view
        self._go_past(checks.reason)
        warnings = self._planner.keeper.warnings_of_counting if read.counts_all else 0
        kept = ResponseCopy(self._limits.max_entry_bytes, self._for_entries, warnings)
        try:
            tracker = await self._execute(command, meaning, kept, read=read)
            checks.count_shadow(read, hit, view, perf_counter() - self.last.sent_at)
            if not tracker.failed:
                self.last.note_time(self._counts, self.state.schema, fills=False)
            if view is not None or self.own.view is not None:
                return
            fresh = kept.entry(b"", tracker)
            await checks.compare(
                *(read, hit, fresh and entry.packets_for(fresh, 0, 0)),
                partial(self._asked_by, command),
                deprecate_eof=bool(self.state.capabilities & Capability.DEPRECATE_EOF),
            )
        finally:
            kept.give_back()

    async def _asked_by(self, command: ClientCommand) -> tuple[Lexed, bool] | None:
        prepared = self.meanings.prepared(command)
        if prepared is not None:
            return prepared.lexed, False
        lexed = (await self._meaning_now(command)).lexed
        return None if lexed is None else (lexed, True)

    async def _obtain(self, read: Read, first: Outcome | None) -> Hit | Lease | Outdated | Bypass:
        """What the cache has. A client that goes away while its session waits for another's fill
        ends it."""
        self._waiting = asyncio.current_task()
        try:
            return await self._engine.obtain(read, first, stores=self._embedded)
        finally:
            self._waiting = None

    async def _plan_anew(self, command: ClientCommand) -> None:
        """A definition changed since the catalog was read: the plan may be wrong."""
        meaning = await self._meaning_now(command)
        planned = self._plan_read(command, meaning)
        if isinstance(planned, Read):
            await self._read(command, planned, meaning, again=True)
        else:
            self._go_past(planned)
            await self._execute(command, meaning)

    def _answer(self, command: ClientCommand, read: Read, hit: Hit) -> None:
        """Answers from an entry."""
        prepared = self.meanings.prepared(command)
        status, execution = self.state.status, command.execution
        answered = self.straight.hits.answer(command.data, read, hit, status, prepared, execution)
        assert answered

    async def _fill(
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
            self.last.basis = Basis(read, lease.tags, lease.versions, lease.whole)
        warnings = self._planner.keeper.warnings_of_counting if read.counts_all else 0
        kept = ResponseCopy(self._limits.max_entry_bytes, self._for_entries, warnings, lease)
        try:
            if sent is not None:
                self.writes.go_on(self.state)
                tracker = await self._answer_of_mysql(command, meaning, kept, sent.opens)
            else:
                tracker = await self._execute(command, meaning, kept, read=read)
            keeps = not tracker.failed and self._engine.may_keep(lease, tracker.rows)
            if not keeps:  # nor may what an embedded client makes of it, which has not read it yet
                self.last.basis = _PINS_TOO_MUCH
            if not tracker.failed:
                self.last.note_time(self._counts, self.state.schema, fills=True)
            if read.counts_all and kept.storable(tracker):
                kept.rows = await self._count_all(command)
            made = kept.entry(lease.versions, tracker)
            if made is not None and keeps and kept.take_lease():
                await lease.fill(made)
            elif kept.take_lease():
                await lease.decline(lasting=made is None and not tracker.failed)
        finally:
            kept.give_back()
            if kept.take_lease():
                await asyncio.shield(lease.release())

    async def _count_all(self, command: ClientCommand) -> int | None:
        """How many rows the query has without its LIMIT, which the server has just run, marked."""
        told = await self.questions.ask(_FOUND_ROWS)
        rows = int(digits(told[0][0])) if told else entry.COUNTED
        if rows >= entry.COUNTED:
            return None
        self._diagnostics.counted(command.data, rows | entry.COUNTED)
        return rows | entry.COUNTED

    async def _answer_found_rows(
        self, command: ClientCommand, meaning: Meaning, rows: int, context: Context
    ) -> None:
        """Answers what asks for FOUND_ROWS() only as the server once did, but with this number."""
        key = context.fingerprint, command.data
        value = b"%d" % rows
        answered = self._planner.counts.get(key)
        if answered is not None:
            self._diagnostics.answered(command)
            told = with_last_row(self._stamped(answered), value)
            self._client.write(told)
            self._counts.hit(self._metrics, self.last.asked_at, len(told))
            return
        self._go_past(_OF_FOUND_ROWS)
        kept = ResponseCopy(
            _COUNT_BYTES, self._for_entries, self._planner.keeper.warnings_of_counting
        )
        tracker = await self._execute(command, meaning, kept)
        made = kept.entry(b"", tracker)
        kept.give_back()
        # Digits may be written otherwise, in UTF-16 say.
        if made is not None and with_last_row(self._stamped(made), value) == self._stamped(made):
            self._planner.counts.put(key, made, len(made) + sum(map(len, key)))

    def _stamped(self, made: bytes) -> bytes:
        """The packets of an entry without versions, for this session."""
        packets = entry.packets_for(made, 0, self.state.status)
        assert packets is not None
        return packets

    async def _execute(
        self,
        command: ClientCommand,
        meaning: Meaning,
        kept: ResponseCopy | None = None,
        *,
        read: Read | None = None,
    ) -> ResponseTracker:
        """Runs a command upstream and relays its response, with the tags of its writes bumped
        before the client hears of it. `read`: it is this read, and opens a snapshot."""
        if (refused := self.handles.refused(command.data)) is not None:
            error = await self._prepare_again(command, refused)
            if error is not None:
                return await self._refuse_prepared(command, meaning, error)
        unprepared = self.meanings.is_unprepared(command)
        prepared = self.meanings.prepared(command)
        text = None if prepared is None else prepared.lexed.text
        if command.code == Command.QUERY:
            text = command.data
        rows = self._found_rows_of(command, text)
        missed = self._diagnostics.missed_by(command, meaning, text, unprepared=unprepared)
        if missed and rows is None:
            await self._make_up()
        if prepared is not None and command.execution is not None:
            for unseen in prepared.unseen_before(command.data, command.execution):
                await self.questions.run(self.handles.for_server(unseen))
            command.data = prepared.for_server(command.data, command.execution)
        # However slowly a client sends a long one: nobody waits before MySQL can begin with it.
        last = await self._relay.begin(self._as_sent(command))
        if text is not None and may_end_logging(text):
            await self._engine.note_unlogged()
        meaning = await self.writes.raise_fence(meaning, self.state)
        asked_at = self._engine.time()  # before MySQL can have opened a snapshot
        self.last.sent_at = perf_counter()
        await self._relay.finish(last)
        opens = None if read is None else (read, asked_at)
        return await self._answer_of_mysql(command, meaning, kept, opens, rows)

    def _found_rows_of(self, command: ClientCommand, text: bytes | None) -> int | None:
        """What the client is told of a command instead of the FOUND_ROWS() that the server has,
        where that cannot run what it misses without taking away more."""
        if not self._diagnostics.left_more or text is None or out_of_order(command.data):
            return None
        if command.code != Command.QUERY:
            bare = command.execution is not None and not command.execution.cursor
            if not bare or command.code != Command.STMT_EXECUTE:
                return None
        return self._diagnostics.found_rows(text)

    async def _prepare_again(self, command: ClientCommand, refused: Refused) -> bytes | None:
        """Has a statement prepared that was refused before, as the server does with each that it
        once had; gives its error. Not where the session is another one by now."""
        prepared = self.meanings.prepared(command)
        if prepared is None or prepared.fingerprint != self.state.fingerprint():
            return refused.error
        code, capabilities = Command.STMT_PREPARE, self.state.capabilities
        answer, ends = await self._relay.ask(refused.packet, capabilities, code)
        self.state.answered(ends)
        number = followed(code, capabilities, answer).prepared_id
        if number is None:
            return answer
        self.handles.prepared_late(number_in(command.data), number)
        return None

    async def _refuse_prepared(
        self, command: ClientCommand, meaning: Meaning, error: bytes
    ) -> ResponseTracker:
        """Answers a command by the error that the server has for what prepares its statement."""
        await self._relay.throw_away(command)
        return self._took_refusal(command, meaning, error)

    async def _make_up(self) -> None:
        """Has the server run what leaves there what the client was told."""
        if self._diagnostics.in_doubt and await self.questions.ask(_FOUND_ROWS) == [(b"0",)]:
            self._diagnostics.counted_none()
        capabilities = self.state.capabilities
        for missing in self._diagnostics.missing(capabilities):
            owed = self.handles.for_server(missing)
            if not await self.questions.run(owed):  # its error is nothing to the client
                await self.questions.run(self._diagnostics.counting(capabilities))
        self.handles.close_others()

    async def _answer_of_mysql(
        self,
        command: ClientCommand,
        meaning: Meaning,
        kept: ResponseCopy | None = None,
        opens: tuple[Read, float] | None = None,
        rows: int | None = None,
    ) -> ResponseTracker:
        """Relays the answer to a command that was sent. `opens`: the read that it is, if it may
        open a snapshot, and when it was sent, at the latest. `rows`: the FOUND_ROWS() that the
        client is told of instead of the server's."""
        self._metrics.statements_relayed += 1
        tracker = ResponseTracker(command.code, self.state.capabilities)
        in_snapshot = self.own.view is not None and self.own.view.needs_snapshot
        own = None
        if in_snapshot and opens is not None and opens[0].rolls_back:
            own = kept or ResponseCopy(self._limits.max_entry_bytes, self._for_entries)
        self._awaits_answer = True
        self._number = None
        self.end_writing()
        try:
            meaning = await self._pass_response(command, tracker, meaning, kept or own, rows)
            self._counts.took(self._metrics, self.last.sent_at, tracker.bytes_fed)
            if kept is None and not tracker.failed:
                self.last.note_time(self._counts, self.state.schema, fills=False)
            self._took_effect(command, meaning, tracker)
            if own is not None and opens is not None:
                read, asked_at = opens
                self.own.remember(read, own, tracker, asked_at)
            else:
                self.own.may_have_opened_snapshot(meaning)
        finally:
            self._awaits_answer = False
            if own is not None and own is not kept:
                own.give_back()
        return tracker

    async def _pass_response(
        self,
        command: ClientCommand,
        tracker: ResponseTracker,
        meaning: Meaning,
        kept: ResponseCopy | None = None,
        rows: int | None = None,
    ) -> Meaning:
        """Passes a response on, chunk by chunk; the chunk that ends a write waits for its bump.

        Gives what the command meant, now that it is known whether the server took it.
        """
        self._relay.take_commits()  # of what sqlcache asked itself
        prepared = self.meanings.prepared(command)
        recounts: bool | None = None
        while not tracker.done:
            chunk = await self._relay.read(tracker)
            if command.code == Command.STMT_PREPARE and self._number is None:
                chunk = await self._numbered(chunk, tracker)
            if rows is not None:
                chunk = await self._telling(rows, command, chunk, tracker)
            self.state.answered(tracker.ends)
            self.writes.committed(self._relay.take_commits())
            if tracker.ends and (left := await self._left_of(command, tracker, meaning)):
                meaning = left
                await self.writes.withdraw(meaning)
            elif tracker.ends or tracker.done:  # what tells that something is prepared has no end
                await self.writes.publish(tracker, meaning)
            if kept is not None:
                kept.add(chunk)
            if prepared is not None and prepared.columns and tracker.columns:
                if recounts is None:
                    recounts = prepared.recounts(tracker.columns)
                begins = tracker.bytes_fed - len(chunk)
                offsets = [each - begins for each in tracker.status_offsets]
                flag = Status.METADATA_CHANGED
                chunk = with_flags(chunk, offsets, flag, flag if recounts else 0)
            self._metrics.bytes_to_clients += len(chunk)
            others_wait = self.writes.under_way or (kept is not None and kept.is_waited_for)
            if not self._relay.tell(chunk, ahead=others_wait) and not tracker.done:
                if self.writes.under_way:
                    await self._relay.hurry_client()
                elif kept is not None:
                    await kept.wait_for_client(self._relay)
                await self._relay.let_client_catch_up()
            if tracker.wants_file:
                await self._relay.pass_file()
                tracker.file_sent()
        return meaning

    async def _numbered(self, chunk: bytes, tracker: ResponseTracker) -> bytes:
        """The first part of the answer to a COM_STMT_PREPARE, with the client's number."""
        while tracker.prepared_id is None and not tracker.done:
            chunk += await self._relay.read(tracker)
        if tracker.prepared_id is None:
            return chunk
        self._number = self.handles.prepared(tracker.prepared_id)
        return with_number(chunk, self._number)

    async def _telling(
        self, rows: int, command: ClientCommand, chunk: bytes, tracker: ResponseTracker
    ) -> bytes:
        """The whole answer to what asks for FOUND_ROWS(), with this number in it."""
        while not tracker.done:
            chunk += await self._relay.read(tracker)
        if not tracker.rows:
            return chunk
        if command.code == Command.STMT_EXECUTE:
            return with_last_number(chunk, rows)
        ((told,),) = read_text_rows(chunk, self.state.capabilities)
        return with_last_row(chunk, written_like(told, rows))

    async def _left_of(
        self, command: ClientCommand, tracker: ResponseTracker, meaning: Meaning
    ) -> Meaning | None:
        """What a command may have meant all the same that the server has refused: that it wrote
        nothing is proved. None where it is not."""
        if not tracker.failed or tracker.status_offsets:
            return None
        code = tracker.ends[-1].error_code
        nothing = replace(NO_STATEMENT, goes_elsewhere=meaning.goes_elsewhere)
        if await self._is_unread(command, code, meaning):
            return nothing
        if command.code not in (Command.QUERY, *EXECUTES):  # which runs no code that writes
            denied = code in DENIALS and not meaning.writes
        else:  # of several executions the first may have been one too many for a limit
            whole = command.whole and command.code != Command.STMT_BULK_EXECUTE
            denied = whole and await self.writes.changed_nothing(code, meaning)
        if not denied:
            return None
        # A transaction may have ended before anything else was looked at.
        return replace(meaning, writes=NOTHING) if self.state.in_transaction else nothing

    async def _is_unread(self, command: ClientCommand, code: int, meaning: Meaning) -> bool:
        """Whether the server could not even read a command, or does not know what it is to
        execute."""
        if self.meanings.is_unprepared(command):
            return code in _REFUSALS_TO_EXECUTE
        if code == ER_UNKNOWN_COM_ERROR:  # a statement's code may say so as well
            return command.code not in (Command.QUERY, *EXECUTES)
        if code not in _REFUSALS or any(s.called is not None for s in meaning.statements):
            return False
        # What it runs itself may say so as well: a block without a name, a full-text search.
        text = self.meanings.text_of(command)
        runs_nothing = code == ER_UNKNOWN_STMT_HANDLER and self.meanings.executes_nothing(meaning)
        if text is None or len(text) > MOST_SEARCHED_BYTES:
            return False
        if may_feign_errors(text) and not runs_nothing:
            return False
        return await self._planner.keeper.knows_refusals(self.writes.fence)

    def _took_effect(
        self, command: ClientCommand, meaning: Meaning, tracker: ResponseTracker
    ) -> None:
        """Follows what the command changed in the session."""
        several = len(tracker.status_offsets) + tracker.failed > 1
        if command.code == Command.QUERY and not command.whole and several:
            meaning = UNKNOWN  # it was more than the one statement whose head is known
        if any(each.transaction is Transaction.XA for each in meaning.statements):
            # What was prepared allows no other to begin.
            self.straight.ahead.begin_at_once(math.inf)
        next_was_set = self.state.next_transaction_set
        self.state.ran(meaning.statements, failed=tracker.failed)
        may_read = meaning.opaque_session or meaning.goes_elsewhere
        if meaning.sets_role and not tracker.failed:
            self.state.rights.set_role(self._globals)
        elif may_read or (meaning.names_schema and tracker.failed):
            self.state.rights.may_have_been_read(self._globals)
        elif meaning.names_schema:
            self.state.rights.read_on_schema(self._globals)
        if tracker.columns and command.code != Command.STMT_PREPARE:
            self.state.expired = False
        if command.code not in WRITES_NOTHING or meaning.writes or tracker.failed:
            self.own.follow(meaning, failed=tracker.failed, next_was_set=next_was_set)
        self._diagnostics.ran(command, meaning, tracker)
        self.last.had_hits = False
        self._note_mixing(meaning)
        self.writes.took_effect(meaning, tracker)
        self.meanings.ran(meaning.statements, self.state, failed=tracker.failed)
        made = self.meanings.took_effect(command, tracker, self.state, self._number)
        if made is not None and self.context is not None and self._may_plan(command):
            self._planner.remember_preparation(command.data, self.context, made)
        if tracker.ends and tracker.ends[-1].status is None:
            return
        match command.code:
            case Command.INIT_DB:
                self.state.use_named(command.payload[1:])
                self.state.rights.read_on_schema(self._globals)
            case Command.SET_OPTION:
                self.state.multi_statements = command.payload[1:3] == b"\0\0"
            case Command.RESET_CONNECTION:
                self.state.reset(self._globals, is_mariadb=self._planner.keeper.is_mariadb)
                self._begin_anew()

    def _note_mixing(self, meaning: Meaning) -> None:
        diagnostics = self._diagnostics
        if diagnostics.wrote or diagnostics.mariadb:
            return
        if any(each.verb in _EXPLAINS for each in meaning.statements):
            diagnostics.mixes = True  # as after the change that it may explain
        elif meaning.writes:
            lasting = self._planner.tagging.non_transactional(meaning.writes)
            diagnostics.mixes |= lasting.everything or bool(lasting.tables)

    def _turned(self, packet: bytes, plan: Plan | None, answer: bytes) -> bool:
        """Follows what a command that went the straight path changed, by its whole answer. Without
        a plan it is no more than that a transaction has begun. Whether the session is as it was,
        and in no transaction."""
        command = ClientCommand(packet[HEADER_BYTES], packet, whole=True)
        tracker = followed(command.code, self.state.capabilities, answer)
        before = self.state.status, self.own.view
        was = self.context, self.state.variables
        self.note_globals()  # as when it was sent: else `confirms` had not let it come here
        self.state.answered(tracker.ends)
        if plan is None:
            self.refresh_context()
            return False
        meaning = self._meaning_under(plan, command)
        self._took_effect(command, meaning, tracker)
        if isinstance(plan, Pass) and plan.uses:
            self.state.rights.confirm(self._globals)
        self.own.may_have_opened_snapshot(meaning)
        if not meaning.writes or before != (self.state.status, self.own.view):
            self.refresh_context()
        alike = was == (self.context, self.state.variables) and before[0] == self.state.status
        return alike and self.context is not None and self.own.view is None

    def _meaning_under(self, plan: Plan, command: ClientCommand) -> Meaning:
        if isinstance(plan, Pass):
            return plan.meaning
        return self.meanings.of(command, self.state)

    def refresh_context(self) -> None:
        """Finds out whether reads may be hits now, and under which fingerprint."""
        self.own.enter()
        keeper = self._planner.keeper
        self._diagnostics.mariadb = keeper.is_mariadb
        known = self.questions.generation == keeper.generation and keeper.ready
        if known and self.state.bypass_reason() is None:
            self.context = self._planner.context(self.state)
        else:
            self.context = None
        serves = self._limits.straight and self.allowed and not self.state.transaction_unsure
        self.straight.open(
            self.context if serves else None,
            self.own.view,
            self.state.status,
            self.state.capabilities,
            settled=not self.state.owes_changes,
        )


def status_of(ok: bytes) -> int:
    """The flags in an OK packet."""
    return read_ok(ok[HEADER_BYTES:]).status or 0
