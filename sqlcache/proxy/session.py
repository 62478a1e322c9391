"""One client's session: its commands in order, each answered before the next is read.

What was planned before goes the straight path, see `straight`. Everything else goes the long way
through `run`, a coroutine that takes one command after another; it makes the plans.

What a command means is told by `meanings`, what becomes of its writes by `writes`, and which reads
of a transaction can be hits by `transaction`.
"""

import asyncio
import logging
import secrets
from dataclasses import dataclass
from time import perf_counter
from typing import assert_never

from sqlcache.cache import entry
from sqlcache.cache.engine import Engine
from sqlcache.cache.leases import Lease
from sqlcache.cache.lookups import Bypass, Hit, Outcome, Outdated, Read, Waiter
from sqlcache.errors import (
    CacheUnavailable,
    ConnectionLost,
    ProtocolError,
    WriteRefused,
)
from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import (
    DENIALS,
    ER_MALFORMED_PACKET,
    ER_PARSE_ERROR,
    ER_SERVER_SHUTDOWN,
    ER_UNKNOWN_COM_ERROR,
    ER_UNKNOWN_ERROR,
    ER_UNKNOWN_STMT_HANDLER,
    Command,
    Status,
)
from sqlcache.mysql.packets import (
    HEADER_BYTES,
    err_packet,
    is_continued,
    packet,
    payload_bytes,
    query_packet,
    read_ok,
)
from sqlcache.mysql.response import NO_RESPONSE, ResponseTracker
from sqlcache.mysql.rows import collation_of, read_text_rows, with_last_row
from sqlcache.proxy.authentication import LoginRefused
from sqlcache.proxy.commands import (
    NO_STATEMENT,
    STREAMS,
    UNANSWERED_BYTES,
    UNKNOWN,
    WRITES_NOTHING,
    ClientCommand,
    Meaning,
)
from sqlcache.proxy.contexts import Context
from sqlcache.proxy.diagnostics import Diagnostics, may_look_back, query_finding
from sqlcache.proxy.login import LoginRelay
from sqlcache.proxy.meanings import ON_THE_LOOP_BYTES, Meanings
from sqlcache.proxy.planner import Planner
from sqlcache.proxy.plans import UNTRACEABLE, Pass, Plan
from sqlcache.proxy.relay import Kept, Relay, Room
from sqlcache.proxy.state import SessionState
from sqlcache.proxy.straight import (
    IN_SPOILT_TRANSACTION,
    HandedOver,
    Sent,
    StraightPath,
    Undecided,
    Unplanned,
    reason_of,
)
from sqlcache.proxy.transaction import TransactionView
from sqlcache.proxy.verdicts import Refusal
from sqlcache.proxy.writes import Writes
from sqlcache.sql.catalog import may_feign_errors
from sqlcache.sql.catalog_loader import SESSION_SETTINGS
from sqlcache.sql.statement import Statement, Transaction

log = logging.getLogger(__name__)

_OUT_OF_SNAPSHOT = Bypass("not provably in the transaction's snapshot")
_FOUND_ROWS = b"SELECT FOUND_ROWS()"
_COUNT_BYTES = 1_000  # an answer to it is shorter
_NO_HIT_WANTED = "the client wants no hit"
_ENDS = frozenset({Transaction.COMMIT, Transaction.ROLLBACK})
_SHOWS = frozenset({"SHOW", "HELP"})
_REFUSALS = frozenset({ER_PARSE_ERROR, ER_UNKNOWN_STMT_HANDLER})
# Leaves a ROW_COUNT() of 0, and FOUND_ROWS() as it is.
_WRITES_NONE = b"SET SESSION net_retry_count = @@SESSION.net_retry_count"
# As digits, for answers come in the session's character set. The first question, for the next one
# finds rows of its own.
_COUNTS_SCHEMA_ROLE_AND_USER = (
    b"SELECT ROW_COUNT(), FOUND_ROWS(), HEX(CONVERT(DATABASE() USING utf8mb4)),"
    b" HEX(CONVERT(CURRENT_ROLE() USING utf8mb4)), HEX(CONVERT(USER() USING utf8mb4))"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The session's settings; bytes and seconds."""

    max_statement_bytes: int
    max_entry_bytes: int
    login_timeout_s: float
    keepalive_s: float
    straight: bool


class Session:
    """A client's connection and its own connection to MySQL; they live and end together.

    `ahead` is the room for what is read from MySQL before the client takes what came before. Others
    wait for the end of some answers: a write's, whose fence stands until then, and one that is to
    be stored. How fast its client reads is nothing to them. `for_entries` is the room for copies of
    the latter.

    `embedded`: the client is of this very process, and may ask and tell more than others.
    """

    def __init__(
        self,
        client: Channel,
        upstream: Channel,
        engine: Engine,
        planner: Planner,
        metrics: Metrics,
        limits: Limits,
        logins: LoginRelay,
        ahead: Room,
        for_entries: Room,
        *,
        embedded: bool = False,
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._relay = Relay(client, upstream)
        self._engine = engine
        self._planner = planner
        self._metrics = metrics
        self._limits = limits
        self._logins = logins
        self._ahead = ahead
        self._for_entries = for_entries
        self._read_ahead = 0  # bytes
        self._embedded = embedded
        self._state: SessionState
        self._meanings = Meanings(planner)
        self._writes = Writes(engine, planner)
        self._unread = False  # a command is there of which nobody knows yet that it writes nothing
        self._generation = planner.generation
        # From before the command in flight.
        self._globals = planner.globals
        self._globals_generation = planner.generation
        self._draining = False
        self._logged_in = False
        self._context: Context | None = None  # None while no read may be a hit
        self._view: TransactionView | None = None  # None outside a transaction
        self._waiting: asyncio.Task[None] | None = None  # for what the cache has
        self._diagnostics = Diagnostics()
        self._straight = StraightPath(
            *(client, upstream, engine, metrics, self._diagnostics, self._meanings, self._writes),
            turned=self._turned,
            embedded=embedded,
        )
        self._handed_over: HandedOver | None = None  # by the straight path
        self._allowed = True

    # What a client of this very process, an embedded one, may ask and tell between its commands.

    @property
    def context(self) -> Context | None:
        """Under which its reads can be hits at once; None while none can, as in a transaction."""
        return self._context if self._allowed and self._view is None else None

    @property
    def state(self) -> SessionState:
        """What is known of it since it logged in."""
        return self._state

    @property
    def basis(self) -> tuple[Read, bytes] | str:
        """Which read the last answer is the answer to, and the versions its tags had before it was
        computed; or why that is not known."""
        basis = self._straight.basis
        if isinstance(basis, str):
            return basis
        read, value, versions_bytes = basis
        return read, value[:versions_bytes]

    def allow_hits(self, allowed: bool) -> None:
        """Whether reads from here on may be answered from the cache, and stored."""
        self._allowed = allowed
        self._refresh_context()

    def expect(self, read: Read, outcome: Outcome) -> None:
        """The client looked this read up itself, and is about to send it: an outcome that is for
        one reader alone, such as that it is to fetch the answer anew, must not get lost."""

        def look_up(asked: Read, waiter: Waiter) -> None:
            self._straight.look_up = self._engine.lookup
            if asked is read:
                asyncio.get_running_loop().call_soon(waiter, outcome)
            else:
                self._engine.lookup(asked, waiter)

        self._straight.look_up = look_up

    def may_write(self, data: bytes) -> bool:
        """Whether this COM_QUERY could change rows or definitions, or what a lock covers."""
        command = ClientCommand(Command.QUERY, data, whole=True)
        meaning = self._meanings.of(command, self._state)
        return self._state.readable and (
            bool(meaning.writes) or any(s.may_commit or s.locking_read for s in meaning.statements)
        )

    @property
    def in_transaction(self) -> bool:
        """Whether the server has a transaction open for it, as far as is known."""
        if not self._logged_in:
            return False
        return bool(self._state.status & Status.IN_TRANS) or self._state.transaction_unsure

    def drain(self) -> None:
        """Ends the session when its command or its transaction is done; an idle one, or a login, at
        once."""
        self._draining = self._straight.draining = True
        if self._logged_in:
            self._client.wake()
        else:
            self._client.close()

    async def run(self) -> None:
        """From the login to the end of either connection; that to MySQL is then to be closed.

        Raises nothing but CancelledError.
        """
        self._client.on_change = self._client_changed
        self._upstream.on_change = self._client.wake
        try:
            self._note_globals()
            async with asyncio.timeout(self._limits.login_timeout_s):
                login, ok = await self._logins.log_in()
            await self._planner.meet()
            self._state = SessionState(login, self._globals, _status(ok), secrets.token_hex())
            self._logged_in = True
            self._client.buffer_bytes = self._upstream.buffer_bytes
            self._refresh_context()
            while (command := await self._next_command()) and await self._serve(command):
                pass
        except (ConnectionLost, TimeoutError):
            pass
        except CacheUnavailable as error:
            log.error("session ended client=%s error=%s", self._client.address(), error)
        except ProtocolError as error:
            log.warning("session ended client=%s error=%s", self._client.address(), error)
            self._client.write(err_packet(1, ER_MALFORMED_PACKET, str(error), "HY000"))
        finally:
            self._writes.abandon()
            self._meanings.forget()
            if self._read_ahead:  # amid an answer that breaks off here: no one waits for its rest
                self._client.abort()
                self._ahead.give_back(self._read_ahead)
            self._client.intercept = self._client.on_change = None
            self._upstream.intercept = self._upstream.on_change = None
            self._client.close()

    def _client_changed(self) -> None:
        """A client that went away has its query ended, but never a write, nor before all it sent
        has been done: MySQL too would do it. Where it said nothing yet there is nothing to end."""
        under_way = self._writes.under_way or self._unread or self._logins.is_unanswered
        matters = under_way or self._client.buffered
        if self._client.closed and not matters:
            self._upstream.abort()
            if self._waiting is not None:
                self._waiting.cancel()

    # One command after another.

    async def _next_command(self) -> ClientCommand | None:
        """The next command; None when the session is to end."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._limits.keepalive_s
        timer = loop.call_at(due, self._client.wake)
        straight = self._straight
        self._client.intercept = straight.received
        try:
            while straight.handed_over is None:
                if not straight.busy:
                    drained = self._draining and not self.in_transaction
                    if not drained and _begins_command(self._client.buffered):
                        if straight.takes_buffered():
                            continue
                        break
                    over = drained or self._client.closed or self._upstream.closed
                    if over or self._upstream.buffered:
                        self._say_farewell()
                        return None
                    if loop.time() >= due:
                        await self._keep_alive()
                        due = loop.time() + self._limits.keepalive_s
                        timer = loop.call_at(due, self._client.wake)
                        continue
                elif self._upstream.closed and straight.awaits_mysql:
                    straight.give_up()
                    break
                await self._client.wait()
        except asyncio.CancelledError:  # the time to drain is over
            if not straight.busy:
                self._say_farewell()
            raise
        finally:
            timer.cancel()
            self._client.intercept = None
        if straight.handed_over is not None:
            self._handed_over, straight.handed_over = straight.handed_over, None
            packet, execution = self._handed_over.packet, self._handed_over.execution
            return ClientCommand(packet[HEADER_BYTES], packet, whole=True, execution=execution)
        return await self._read_command()

    async def _keep_alive(self) -> None:
        """Lets the server know of a client that was busy with hits: it ends who is idle for its
        `wait_timeout`."""
        if self._straight.had_hits:
            self._straight.had_hits = False
            self._client.intercept = None  # the ping's OK is not for what comes meanwhile
            await self._run(packet(0, bytes((Command.PING,))))
            self._client.intercept = self._straight.received

    def _say_farewell(self) -> None:
        """What the server said unasked, as that it shuts down, is for the client to know; and when
        it is sqlcache that does, that is said as the server would."""
        if self._upstream.buffered:
            self._client.write(self._upstream.take(len(self._upstream.buffered)))
        elif self._draining:
            text = "Server shutdown in progress"
            self._client.write(err_packet(0, ER_SERVER_SHUTDOWN, text, "08S01"))

    async def _read_command(self) -> ClientCommand:
        length = payload_bytes(self._client.buffered)
        # The server takes an empty command for a COM_SLEEP.
        code = self._client.buffered[HEADER_BYTES] if length else Command.SLEEP
        if length <= self._limits.max_statement_bytes and not is_continued(length):
            return ClientCommand(code, await self._client.read_packet(length), whole=True)
        held = HEADER_BYTES + min(length, self._limits.max_statement_bytes)
        head = await self._client.read_exactly(held)
        return ClientCommand(code, head, whole=False)

    async def _serve(self, command: ClientCommand) -> bool:
        """Answers one command; False when it was the last."""
        self._metrics.statements_relayed += 1
        if self._handed_over is None:
            self._straight.asked_at = perf_counter()
        self._straight.basis = "unreadable"
        self._note_globals()
        try:
            begun, self._handed_over = self._handed_over, None
            if begun is not None:
                await self._go_on(command, begun)
                goes_on = True
            else:
                goes_on = await self._dispatch(command)
        except WriteRefused as error:
            goes_on = self._refuse(command, error)
        await self._let_client_catch_up()
        self._refresh_context()
        return goes_on

    async def _dispatch(self, command: ClientCommand) -> bool:
        match command.code:
            case Command.QUIT:
                self._upstream.write(command.data)
                return False
            case Command.CHANGE_USER:
                await self._change_user(command)
            case Command.QUERY:
                await self._query(command)
            case Command.STMT_EXECUTE:
                if self._meanings.prepared(command) is not None:
                    await self._get_to_know(command)
                await self._execute_prepared(command)
            case Command.STMT_PREPARE:
                await self._get_to_know(command)
                prepared = self._meanings.of_prepared_text(command, self._state)
                await self._planner.learn_of(prepared.statements, self._state)
                await self._execute(command, NO_STATEMENT)
            case code if code in STREAMS:
                return await self._relay.stream(command)
            case Command.TABLE_DUMP:  # its answer, where a server still has one, cannot be followed
                await self._relay.throw_away(command)
                self._client.write(err_packet(1, ER_UNKNOWN_COM_ERROR, "Unknown command", "08S01"))
            case code if code in NO_RESPONSE:
                if len(command.payload) < UNANSWERED_BYTES[Command(code)]:
                    raise ProtocolError("a command is cut short")
                await self._relay.send(command)
                self._meanings.sent_unanswered(command)
            case code:
                # The others need none, and some answer how many warnings there are.
                if code not in WRITES_NOTHING:
                    await self._get_to_know(command)
                await self._execute(command, self._meanings.of(command, self._state))
        return True

    def _note_globals(self) -> None:
        self._globals = self._planner.globals
        self._globals_generation = self._planner.generation

    def _refuse(self, command: ClientCommand, error: WriteRefused) -> bool:
        """Answers a write that is not to be made. False where that ends the session: of a long one
        MySQL has all but the last bytes, and waits for these."""
        self._metrics.writes_refused += 1
        self._client.write(err_packet(1, ER_UNKNOWN_ERROR, str(error), "HY000"))
        return command.whole

    # Reads.

    async def _go_on(self, command: ClientCommand, begun: HandedOver) -> None:
        """Serves a command that was begun on the straight path."""
        match begun:
            case Undecided():
                await self._read(command, begun.read, NO_STATEMENT, begun.outcome)
            case Unplanned():
                await self._execute_prepared(command)
            case Sent(_, plan):
                self._straight.basis = reason_of(plan)
                meaning = self._meaning_under(plan, command)
                meaning = await self._writes.raise_fence(meaning, self._state)  # it needs none
                await self._answer_of_mysql(command, meaning)
            case _:
                assert_never(begun)

    async def _query(self, command: ClientCommand) -> None:
        await self._get_to_know(command)
        meaning = await self._meaning_of(command)
        rows = self._diagnostics.found_rows(command, mariadb=self._planner.is_mariadb)
        tells = self._allowed and not self._embedded
        if tells and rows is not None and self._context is not None:
            await self._answer_found_rows(command, meaning, rows, self._context)
        else:
            await self._read_or_execute(command, meaning)

    async def _execute_prepared(self, command: ClientCommand) -> None:
        meaning = await self._meaning_of(command)
        prepared = self._meanings.prepared(command)
        if prepared is not None and command.execution is None:
            command.execution = prepared.read(command.payload, self._state.capabilities)
        await self._read_or_execute(command, meaning)

    async def _meaning_of(self, command: ClientCommand) -> Meaning:
        """What a command means, the tables it names being known as they are now."""
        meaning = self._meanings.of(command, self._state)
        if await self._planner.learn_of(meaning.statements, self._state):
            meaning = self._meanings.of(command, self._state)
        return meaning

    async def _read_or_execute(self, command: ClientCommand, meaning: Meaning) -> None:
        planned = self._plan_read(command, meaning)
        if isinstance(planned, Read) and self._allowed:
            await self._read(command, planned, meaning)
        elif isinstance(planned, Read):
            self._straight.basis = _NO_HIT_WANTED
            self._metrics.bypasses[_NO_HIT_WANTED] += 1
            await self._execute(command, meaning, read=planned)
        else:
            if meaning.lexed is not None:
                self._straight.basis = planned
            self._metrics.bypasses[planned] += 1
            self._plan_to_pass(command, meaning, planned)
            await self._execute(command, meaning)

    def _plan_to_pass(self, command: ClientCommand, meaning: Meaning, reason: str) -> None:
        """From here on others like this command go the straight path, if they can."""
        plan = self._planner.plan_to_pass(meaning, reason)
        if self._context is None or plan is None or not command.whole:
            return
        prepared = self._meanings.prepared(command)
        if command.code == Command.QUERY:
            self._planner.remember_pass(command.data, meaning, self._context, plan)
        elif prepared is not None and (reason != UNTRACEABLE or not prepared.traceable):
            prepared.plan = self._context, plan

    def _plan_read(self, command: ClientCommand, meaning: Meaning) -> Read | str:
        """The read a command is, or why it cannot be answered from the cache."""
        if meaning.lexed is None or len(meaning.statements) != 1 or not command.whole:
            return "not cacheable"
        self._refresh_context()
        if self._context is None:
            return self._state.bypass_reason() or "catalog unknown"
        if self._view is not None and self._view.spoilt:
            return IN_SPOILT_TRANSACTION
        statement = meaning.statements[0]
        if command.code == Command.STMT_EXECUTE:
            return self._plan_execution(command, statement, self._context)
        known = self._context.read_for(command.data)
        if known is not None:
            return known
        got = self._planner.plan_read(command.data, meaning.lexed, statement, self._context)
        return got if isinstance(got, Read) else got.label

    def _plan_execution(
        self, command: ClientCommand, statement: Statement, context: Context
    ) -> Read | str:
        prepared = self._meanings.prepared(command)
        if prepared is None:
            return UNTRACEABLE
        got = self._planner.plan_executions(prepared, statement, context)
        if isinstance(got, Refusal):
            return got.label
        parameters = None if command.execution is None else command.execution.parameters
        known = parameters is not None and prepared.traceable
        return got.read(parameters) if known and parameters is not None else UNTRACEABLE

    async def _read(
        self,
        command: ClientCommand,
        read: Read,
        meaning: Meaning,
        first: Outcome | None = None,
        *,
        again: bool = False,
    ) -> None:
        if self._view is not None:
            if kept := self._view.kept(read.key):
                await self._answer(command, Hit(kept, 0))
                return
            read = read.exact(in_transaction=self.in_transaction)
        got = await self._obtain(read, first)
        if self._view is not None:
            got = await self._in_transaction(self._view, read, got)
        match got:
            case Hit():
                self._straight.basis = read, got.value, got.versions_bytes
                await self._answer(command, got)
            case Bypass(reason):
                self._straight.basis = reason
                self._metrics.bypasses[reason] += 1
                await self._execute(command, meaning, read=read)
            case Lease():
                self._metrics.misses += 1
                await self._fill(command, meaning, read, got)
            case Outdated() if not again:
                await self._planner.follow(read.tags.tags)
                await self._plan_anew(command)
            case Outdated():
                self._metrics.bypasses["catalog changed"] += 1
                await self._execute(command, meaning)
            case _:
                assert_never(got)

    async def _obtain(self, read: Read, first: Outcome | None) -> Hit | Lease | Outdated | Bypass:
        """What the cache has. A client that goes away while its session waits for another's fill
        ends it."""
        self._waiting = asyncio.current_task()
        try:
            return await self._engine.obtain(read, first)
        finally:
            self._waiting = None

    async def _plan_anew(self, command: ClientCommand) -> None:
        """A definition changed since the catalog was read: the plan may be wrong."""
        meaning = self._meanings.of(command, self._state)
        planned = self._plan_read(command, meaning)
        if isinstance(planned, Read):
            await self._read(command, planned, meaning, again=True)
        else:
            self._metrics.bypasses[planned] += 1
            await self._execute(command, meaning)

    async def _answer(self, command: ClientCommand, answer: Hit) -> None:
        """Answers from an entry."""
        status = int(self._state.status)
        packets = entry.packets_for(answer.value, answer.versions_bytes, status)
        assert packets is not None
        self._metrics.hits += 1
        self._straight.had_hits = True
        again = text = command.data
        prepared = self._meanings.prepared(command)
        if prepared is not None and command.execution is not None:
            again = prepared.was_hit(command.data, command.execution)
            self._meanings.weigh(prepared)
            text = prepared.lexed.canonical
        self._diagnostics.hit(again, text, entry.rows_of(answer.value, answer.versions_bytes))
        self._client.write(packets)
        self._metrics.hit_seconds.observe(perf_counter() - self._straight.asked_at)

    async def _fill(
        self, command: ClientCommand, meaning: Meaning, read: Read, lease: Lease
    ) -> None:
        """Runs the read upstream, passes the answer on as it comes, and stores it."""
        ended = False
        self._straight.basis = read, lease.versions, len(lease.versions)
        warnings = self._planner.warnings_of_counting if read.counts_all else 0
        kept = Kept(self._limits.max_entry_bytes, self._for_entries, warnings)
        try:
            tracker = await self._execute(command, meaning, kept, read=read)
            if read.counts_all and kept.storable(tracker):
                kept.rows = await self._count_all(command)
            made = kept.entry(lease.versions, tracker)
            ended = True
            if made is not None:
                await lease.fill(made)
            else:
                await lease.decline(lasting=not tracker.failed and not kept.crowded)
        finally:
            kept.give_back()
            if not ended:
                await asyncio.shield(lease.release())

    async def _count_all(self, command: ClientCommand) -> int | None:
        """How many rows the query has without its LIMIT, which the server has just run, marked."""
        told = await self._ask(_FOUND_ROWS)
        rows = int(_text(told[0][0])) if told else entry.COUNTED
        if rows >= entry.COUNTED:
            return None
        self._diagnostics.counted(command.data, rows | entry.COUNTED)
        return rows | entry.COUNTED

    async def _answer_found_rows(
        self, command: ClientCommand, meaning: Meaning, rows: int, context: Context
    ) -> None:
        """Answers what asks for FOUND_ROWS() only: as the server once did, but with this number."""
        key = context.fingerprint, command.data
        value = b"%d" % rows
        answered = self._planner.counts.get(key)
        if answered is not None:
            self._diagnostics.answered(command)
            self._metrics.hits += 1
            self._client.write(with_last_row(self._stamped(answered), value))
            return
        self._metrics.bypasses["not cacheable"] += 1
        kept = Kept(_COUNT_BYTES, self._for_entries, self._planner.warnings_of_counting)
        tracker = await self._execute(command, meaning, kept)
        made = kept.entry(b"", tracker)
        kept.give_back()
        # Digits may be written otherwise, in UTF-16 say.
        if made is not None and with_last_row(self._stamped(made), value) == self._stamped(made):
            self._planner.counts.put(key, made, len(made) + sum(map(len, key)))

    def _stamped(self, made: bytes) -> bytes:
        """The packets of an entry without versions, for this session."""
        packets = entry.packets_for(made, 0, int(self._state.status))
        assert packets is not None
        return packets

    # Reads in a transaction.

    async def _in_transaction(
        self, view: TransactionView, read: Read, got: Hit | Lease | Outdated | Bypass
    ) -> Hit | Lease | Outdated | Bypass:
        """What the transaction may have of what the cache has for it."""
        if read.rolls_back and isinstance(got, Hit) and await self._puts_server_in(view):
            seen = got.value[: got.versions_bytes]
            got = await self._engine.obtain(read)  # was it still current when the snapshot opened?
            if isinstance(got, Hit) and got.value[: got.versions_bytes] != seen:
                return _OUT_OF_SNAPSHOT
        # A table that does not roll back is part of no snapshot, nor does reading it open one; and
        # a transaction that has read one of some engines can set no savepoint.
        holds = read.rolls_back and not view.spoilt and view.holds(read.tags.seen_since)
        if isinstance(got, Hit | Lease) and not holds:
            if isinstance(got, Lease):
                await got.release()
            return _OUT_OF_SNAPSHOT
        return got

    async def _puts_server_in(self, view: TransactionView) -> bool:
        """Puts the server where a hit puts its client: in the transaction, its snapshot open.

        Whether that was still to be done.
        """
        in_transaction = bool(self._state.status & Status.IN_TRANS)
        if view.opened_at is not None or (in_transaction and not view.needs_snapshot):
            return False
        asked_at = asyncio.get_running_loop().time()
        await self._run(query_packet(view.opening(), self._state.capabilities))
        if self._state.status & Status.IN_TRANS:
            view.opened(asked_at)
        else:  # the server did not do as it was told
            view.spoilt = True
        return True

    def _follow_transaction(
        self, meaning: Meaning, text: bytes, *, failed: bool, next_was_set: bool
    ) -> None:
        """Keeps `_view` in step with a command that was answered."""
        may_end = meaning.may_commit or meaning.rolls_back
        in_transaction = bool(self._state.status & Status.IN_TRANS)
        ends = meaning.commits or meaning.rolls_back or not in_transaction
        ended = may_end and ends and not failed
        if ended:
            self._view = None
        self._enter_transaction()
        if self._view is None:
            return
        if ended and not in_transaction and all(s.transaction in _ENDS for s in meaning.statements):
            return  # with autocommit off the next one begins with the next statement
        # It may be the transaction of before, with all that happened in it, or another.
        self._view.spoilt |= may_end and not ended
        # One with settings of its own has another isolation level than the session.
        self._view.spoilt |= next_was_set and not self._state.next_transaction_set
        for statement in meaning.statements:
            self._view.ran(statement, text)

    def _enter_transaction(self) -> None:
        if not self._state.in_transaction:
            self._view = None
            return
        isolation = self._state.setting("transaction_isolation").lower().replace(" ", "-")
        # With autocommit off one is awaited, which takes the level the session has by then.
        awaited = not self._state.status & Status.IN_TRANS and not self._state.transaction_unsure
        if self._view is None or (awaited and self._view.isolation != isolation):
            self._view = TransactionView(isolation)

    # Anything else.

    async def _execute(
        self,
        command: ClientCommand,
        meaning: Meaning,
        kept: Kept | None = None,
        *,
        read: Read | None = None,
    ) -> ResponseTracker:
        """Runs a command upstream and relays its response, with the tags of its writes bumped
        before the client hears of it. `read`: it is this read, and opens a snapshot."""
        unprepared = self._meanings.is_unprepared(command)
        if self._diagnostics.missed_by(command, meaning, unprepared=unprepared):
            if self._diagnostics.in_doubt and await self._ask(_FOUND_ROWS) == [(b"0",)]:
                self._diagnostics.counted_none()
            mariadb = self._planner.is_mariadb
            for missing in self._diagnostics.missing(self._state.capabilities, mariadb=mariadb):
                await self._run(missing)
        prepared = self._meanings.prepared(command)
        if prepared is not None and command.execution is not None:
            for unseen in prepared.unseen_before(command.execution):
                await self._run(unseen)
            command.data = prepared.for_server(command.data, command.execution)
        # However slowly a client sends a long one: nobody waits before MySQL can begin with it.
        last = await self._relay.begin(command)
        meaning = await self._writes.raise_fence(meaning, self._state)
        sent_at = perf_counter()
        await self._relay.finish(last)
        tracker = await self._answer_of_mysql(command, meaning, kept, read=read)
        self._metrics.upstream_seconds.observe(perf_counter() - sent_at)
        return tracker

    async def _answer_of_mysql(
        self,
        command: ClientCommand,
        meaning: Meaning,
        kept: Kept | None = None,
        *,
        read: Read | None = None,
    ) -> ResponseTracker:
        """Relays the answer to a command that has just been sent; see `_execute`."""
        asked_at = asyncio.get_running_loop().time()
        tracker = ResponseTracker(command.code, self._state.capabilities)
        in_snapshot = self._view is not None and self._view.needs_snapshot
        own = None
        if in_snapshot and read is not None and read.rolls_back:
            own = kept or Kept(self._limits.max_entry_bytes, self._for_entries)
        try:
            meaning = await self._pass_response(command, tracker, meaning, kept or own)
            self._took_effect(command, meaning, tracker)
            if own is not None and read is not None:
                self._remember_in_snapshot(read, own, tracker, asked_at)
            else:
                self._may_have_opened_snapshot(meaning)
        finally:
            if own is not None and own is not kept:
                own.give_back()
        return tracker

    def _may_have_opened_snapshot(self, meaning: Meaning) -> None:
        if self._view is not None and any(map(_may_open_snapshot, meaning.statements)):
            self._view.read_unseen()

    def _remember_in_snapshot(
        self, read: Read, kept: Kept, tracker: ResponseTracker, asked_at: float
    ) -> None:
        """What the transaction has read from its snapshot it will read again the same."""
        made = kept.entry(b"", tracker)
        if self._view is not None and not tracker.failed:
            if read.proof_rows is not None and tracker.rows >= read.proof_rows:
                self._view.opened(asked_at)
            else:  # a condition that is never met, a LIMIT of 0: no table need be looked at
                self._view.read_unseen()
            if made is not None and not read.counts_all:
                self._view.keep(read.key, made)

    async def _pass_response(
        self,
        command: ClientCommand,
        tracker: ResponseTracker,
        meaning: Meaning,
        kept: Kept | None = None,
    ) -> Meaning:
        """Passes a response on, chunk by chunk; the chunk that ends a write waits for its bump.

        Gives what the command meant, now that it is known whether the server took it.
        """
        while not tracker.done:
            chunk = await self._relay.read(tracker)
            self._state.answered(tracker.ends)
            if tracker.ends and await self._is_refused(command, tracker, meaning):
                await self._writes.withdraw()
                meaning = NO_STATEMENT
            elif tracker.ends:
                await self._writes.publish(tracker, meaning)
            if kept is not None:
                kept.add(chunk)
            self._metrics.bytes_to_clients += len(chunk)
            self._client.write(chunk)
            others_wait = self._writes.under_way or (kept is not None and kept.fits)
            if others_wait and self._client.congested and self._ahead.take(len(chunk)):
                self._read_ahead += len(chunk)
            elif not tracker.done:
                await self._let_client_catch_up()
            if tracker.wants_file:
                await self._relay.pass_file()
                tracker.file_sent()
        return meaning

    async def _is_refused(
        self, command: ClientCommand, tracker: ResponseTracker, meaning: Meaning
    ) -> bool:
        """Whether the server could not even read a command, does not know what it is to execute, or
        does not let its user: then it wrote nothing."""
        if not tracker.failed or tracker.status_offsets:
            return False
        code = tracker.ends[-1].error_code
        if self._meanings.is_unprepared(command):
            return code == ER_UNKNOWN_STMT_HANDLER
        if code in DENIALS:  # which such a statement gets after it has ended the transaction
            return meaning.only_administers and not self._state.in_transaction
        if code not in _REFUSALS or any(s.called is not None for s in meaning.statements):
            return False
        # What it runs itself may say so as well: a block without a name, a full-text search.
        text = self._meanings.text_of(command)
        runs_nothing = code == ER_UNKNOWN_STMT_HANDLER and self._meanings.executes_nothing(meaning)
        if text is None or (may_feign_errors(text) and not runs_nothing):
            return False
        return await self._planner.knows_refusals(self._writes.fence)

    async def _let_client_catch_up(self) -> None:
        await self._client.drain()
        self._ahead.give_back(self._read_ahead)
        self._read_ahead = 0

    def _took_effect(
        self, command: ClientCommand, meaning: Meaning, tracker: ResponseTracker
    ) -> None:
        """Follows what the command changed in the session."""
        several = len(tracker.status_offsets) + tracker.failed > 1
        if command.code == Command.QUERY and not command.whole and several:
            meaning = UNKNOWN  # it was more than the one statement whose head is known
        next_was_set = self._state.next_transaction_set
        self._state.ran(meaning.statements, failed=tracker.failed)
        if any(statement.use_schema is not None for statement in meaning.statements):
            self._state.read_rights(self._globals)
        if any(statement.sets_role for statement in meaning.statements) and not tracker.failed:
            self._state.set_role(self._globals)
        elif any(statement.opaque_session for statement in meaning.statements):
            self._state.may_have_set_role(self._globals)
        if tracker.columns and command.code != Command.STMT_PREPARE:
            self._state.expired = False
        if command.code not in WRITES_NOTHING:
            self._follow_transaction(
                meaning, command.payload, failed=tracker.failed, next_was_set=next_was_set
            )
        self._diagnostics.ran(command, meaning, tracker)
        self._writes.took_effect(meaning, tracker)
        self._meanings.ran(meaning.statements, self._state, failed=tracker.failed)
        self._meanings.took_effect(command, tracker, self._state)
        if tracker.ends and tracker.ends[-1].status is None:
            return
        match command.code:
            case Command.INIT_DB:
                self._state.use_named(command.payload[1:])
                self._state.read_rights(self._globals)
            case Command.SET_OPTION:
                self._state.multi_statements = command.payload[1:3] == b"\0\0"
            case Command.RESET_CONNECTION:
                self._state.reset(self._globals, is_mariadb=self._planner.is_mariadb)
                self._begin_anew()

    def _turned(self, packet: bytes, plan: Plan, answer: bytes) -> None:
        """Follows what a command that went the straight path changed, by its whole answer."""
        command = ClientCommand(packet[HEADER_BYTES], packet, whole=True)
        tracker = ResponseTracker(command.code, self._state.capabilities)
        tracker.feed(answer)
        meaning = self._meaning_under(plan, command)
        self._state.answered(tracker.ends)
        self._took_effect(command, meaning, tracker)
        self._may_have_opened_snapshot(meaning)
        self._refresh_context()

    def _meaning_under(self, plan: Plan, command: ClientCommand) -> Meaning:
        if isinstance(plan, Pass):
            return plan.meaning
        return self._meanings.of(command, self._state)

    def _begin_anew(self) -> None:
        self._meanings.forget()
        self._meanings = self._straight.meanings = Meanings(self._planner)
        self._writes.forget()
        self._view = None
        self._generation = self._globals_generation  # or they may be others than the server took

    # Statements of sqlcache's own on the client's connection.

    async def _get_to_know(self, command: ClientCommand) -> None:
        """Finds out what is to be known of the session before a command is read."""
        self._unread = True
        try:
            if self._state.rights_assumed:
                await self._confirm_rights()
            await self._learn_settings(command)
            await self._meanings.read_ahead(command, self._state)
        finally:
            self._unread = False

    async def _learn_settings(self, command: ClientCommand) -> None:
        """Asks the server for the session's settings where they are not known.

        Not before a statement that looks back at the one before it: that must stay the client's.
        Nor where there are warnings: those that read no table keep them for the next.
        One that comes later could tell by FOUND_ROWS(), which is put back; and by ROW_COUNT(), if
        the command leaves that as it is.
        """
        if self._generation != self._planner.generation:
            self._generation = self._planner.generation
            self._state.settings_unknown = True
        if not self._state.settings_unknown or await self._may_look_back(command):
            return
        if self._diagnostics.may_be_kept(command.data) or self._state.tells_of_transactions:
            return
        if self._state.next_transaction_set:  # which a query of our own would use up
            return
        keeps_counts = command.code in WRITES_NOTHING
        if keeps_counts and self._diagnostics.wrote:
            return
        place = await self._ask(_COUNTS_SCHEMA_ROLE_AND_USER)
        capabilities = self._state.capabilities
        told = await self._ask_raw(query_packet(SESSION_SETTINGS.encode(), capabilities))
        settings = read_text_rows(told, capabilities)
        if not place:
            return
        row_count, found_rows, schema, role, user = place[0]
        if finding := query_finding(int(_text(found_rows))):
            await self._run(query_packet(finding, capabilities))
        if keeps_counts and _text(row_count) == "0":
            await self._run(query_packet(_WRITES_NONE, capabilities))
        if settings:
            self._state.know_settings(
                tuple(sorted((_text(name), _text(value)) for name, value in settings)),
                None if schema is None else bytes.fromhex(_text(schema)).decode(),
                _text(role),
                bytes.fromhex(_text(user)).decode("utf-8", "surrogateescape"),
                server=self._planner.server,
                collation=collation_of(told),
            )

    async def _may_look_back(self, command: ClientCommand) -> bool:
        text = command.payload[1:]
        if len(text) <= ON_THE_LOOP_BYTES:
            return may_look_back(text)
        return await self._planner.apart(may_look_back, text)

    async def _confirm_rights(self) -> None:
        """Finds out whether rights changed since the catalog was read, which other proxies tell by
        the root's version. Where memcached is away, they can wait: so do hits."""
        if await self._planner.confirms_rights():
            self._state.confirm_rights(self._planner.globals)

    async def _ask(self, query: bytes) -> list[tuple[bytes | None, ...]]:
        """The rows of a query of sqlcache's own; none if the server refuses it."""
        answer = await self._ask_raw(query_packet(query, self._state.capabilities))
        rows = read_text_rows(answer, self._state.capabilities)
        self._state.expired &= not rows
        return rows

    async def _run(self, command: bytes) -> None:
        """Sends a command of sqlcache's own whose answer is not needed."""
        ends = await self._relay.run(command, self._state.capabilities, command[HEADER_BYTES])
        self._state.answered(ends)

    async def _ask_raw(self, command: bytes) -> bytes:
        """The response to a command of sqlcache's own; the session follows what it changed."""
        code = command[HEADER_BYTES]
        answer, ends = await self._relay.ask(command, self._state.capabilities, code)
        self._state.answered(ends)
        return answer

    # Commands that are more than one question and one answer.

    async def _change_user(self, command: ClientCommand) -> None:
        self._diagnostics.begin_anew()
        try:
            login, ok = await self._logins.change_user(command.data, self._state.login)
        except LoginRefused:
            # MySQL closes the connection; MariaDB goes on with the old user and all else anew.
            self._state.settings_unknown = True
            self._state.reset(self._globals, is_mariadb=self._planner.is_mariadb)
        else:
            self._state.log_in(login, self._globals, _status(ok))
        self._begin_anew()

    def _refresh_context(self) -> None:
        """Finds out whether reads may be hits now, and under which fingerprint."""
        self._enter_transaction()
        known = self._generation == self._planner.generation and self._planner.ready
        if known and self._state.bypass_reason() is None:
            self._context = self._planner.context(self._state)
        else:
            self._context = None
        serves = self._limits.straight and self._allowed and not self._state.transaction_unsure
        self._straight.open(
            self._context if serves else None,
            self._view,
            int(self._state.status),
            self._state.capabilities,
        )


def _begins_command(data: bytes) -> bool:
    """Whether a command's code is there, or it is an empty one."""
    return len(data) > HEADER_BYTES or (len(data) == HEADER_BYTES and not payload_bytes(data))


def _may_open_snapshot(statement: Statement) -> bool:
    """Whether it may be a consistent read. MySQL's SHOW reads tables of its dictionary."""
    return bool(statement.reads) or (statement.verb in _SHOWS and not statement.diagnostic)


def _status(ok: bytes) -> Status:
    return read_ok(ok[HEADER_BYTES:]).status or Status(0)


def _text(value: bytes | None) -> str:
    """ASCII as it comes in any character set: with zeros in UTF-16 and its like."""
    return "" if value is None else value.replace(b"\0", b"").decode("utf-8", "surrogateescape")
