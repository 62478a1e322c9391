"""One client's session: its commands in order, each answered before the next is read.

The quick way, for a read that was planned before: `_intercept` takes the packet as it arrives and
`_looked_up` sends the stored answer, without a task switch. Everything else goes through `run`, a
coroutine that takes one command after another.

A write's tags are fenced before it is sent, and bumped after MySQL answered and before the client
hears of it. What a transaction writes is gathered, and its COMMIT is the write.
"""

import asyncio
import logging
import re
import ssl
from dataclasses import dataclass

from sqlcache.cache import entry
from sqlcache.cache.engine import Engine, Lease
from sqlcache.cache.fences import Fence
from sqlcache.cache.lookups import Bypass, Hit, Outcome, Read
from sqlcache.errors import ConnectionLost, ProtocolError, SqlSyntaxError
from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import (
    ER_MALFORMED_PACKET,
    Command,
    Status,
)
from sqlcache.mysql.handshake import read_change_user
from sqlcache.mysql.packets import (
    HEADER_BYTES,
    End,
    err_packet,
    is_continued,
    payload_bytes,
    query_packet,
    query_text,
    read_ok,
)
from sqlcache.mysql.response import NO_RESPONSE, ResponseTracker
from sqlcache.mysql.rows import read_text_rows
from sqlcache.proxy.login import relay_authentication, relay_login
from sqlcache.proxy.planner import EVERYTHING, NOTHING, Context, Planner, WriteSet
from sqlcache.proxy.state import SessionState
from sqlcache.sql.catalog_loader import SESSION_SETTINGS
from sqlcache.sql.lexer import Lexed, lex
from sqlcache.sql.statement import Statement, Transaction, analyse

log = logging.getLogger(__name__)

_EXECUTES = frozenset({Command.STMT_EXECUTE, Command.STMT_BULK_EXECUTE})
_PIPES = frozenset({Command.BINLOG_DUMP, Command.BINLOG_DUMP_GTID, Command.TABLE_DUMP})
_LAST_PREPARED = 0xFFFFFFFF  # MariaDB: the statement of the last COM_STMT_PREPARE
_SCHEMA_AND_ROLE = b"SELECT DATABASE(), CURRENT_ROLE()"
_LOOKS_BACK = re.compile(rb"SHOW|_COUNT|FOUND_ROWS|DIAGNOSTICS", re.IGNORECASE)
_UNSTORABLE_STATUS = (
    Status.IN_TRANS | Status.SESSION_STATE_CHANGED | Status.CURSOR_EXISTS | Status.PS_OUT_PARAMS
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The session's settings; bytes and seconds."""

    max_statement_bytes: int
    max_entry_bytes: int
    login_timeout_s: float


@dataclass(slots=True)
class _Command:
    """One command: its code, and all its packets, or the first part if it is very long."""

    code: int
    data: bytes
    whole: bool

    @property
    def payload(self) -> bytes:
        return self.data[HEADER_BYTES:]


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What a command's statements are; `lexed` where its text was read whole."""

    statements: tuple[Statement, ...] = ()
    lexed: Lexed | None = None
    writes: WriteSet = NOTHING

    @property
    def may_commit(self) -> bool:
        return self.writes.everything or any(s.may_commit for s in self.statements)

    @property
    def rolls_back(self) -> bool:
        return any(s.transaction is Transaction.ROLLBACK for s in self.statements)

    @property
    def redefines(self) -> bool:
        """Whether the catalog or the globals are other ones afterwards."""
        return any(s.changes_globals or s.schemas for s in self.statements)

    @property
    def looks_back(self) -> bool:
        """Whether it may ask what the statement before it left behind."""
        return self.writes.everything or any(s.diagnostic for s in self.statements)


_NO_STATEMENT = _Meaning()
_UNKNOWN = _Meaning(writes=EVERYTHING)
_WRITE_NOTHING = frozenset(
    {
        Command.INIT_DB,
        Command.FIELD_LIST,
        Command.STATISTICS,
        Command.PROCESS_INFO,
        Command.PROCESS_KILL,
        Command.DEBUG,
        Command.PING,
        Command.REGISTER_SLAVE,
        Command.STMT_PREPARE,
        Command.STMT_RESET,
        Command.STMT_FETCH,
        Command.SET_OPTION,
        Command.RESET_CONNECTION,
    }
)


class Session:
    """A client's connection and its own connection to MySQL; they live and end together."""

    def __init__(
        self,
        client: Channel,
        upstream: Channel,
        engine: Engine,
        planner: Planner,
        metrics: Metrics,
        limits: Limits,
        client_tls: ssl.SSLContext | None,
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._engine = engine
        self._planner = planner
        self._metrics = metrics
        self._limits = limits
        self._client_tls = client_tls
        self._state: SessionState
        self._prepared: dict[int, _Meaning] = {}
        self._last_prepared = 0
        self._written = NOTHING  # by the open transaction
        self._fence: Fence | None = None
        self._generation = planner.generation
        self._draining = False
        # The quick way.
        self._context: Context | None = None  # None while no read may be a hit
        self._status = 0
        self._asked: tuple[bytes, Read] | None = None  # being looked up
        self._undecided: tuple[bytes, Read, Outcome] | None = None  # looked up, and no hit
        self._last_hit: bytes | None = None  # MySQL has not seen it
        self._on_outcome = self._looked_up

    def drain(self) -> None:
        """Ends the session when the command in flight, if any, is answered."""
        self._draining = True
        self._client.wake()

    async def run(self) -> None:
        """From the login to the end of either connection. Raises nothing but CancelledError."""
        self._client.on_change = self._client_changed
        self._upstream.on_change = self._client.wake
        try:
            async with asyncio.timeout(self._limits.login_timeout_s):
                login, ok = await relay_login(self._client, self._upstream, self._client_tls)
            self._state = SessionState(login, self._planner.globals, _status(ok))
            self._refresh_context()
            while not self._draining:
                command = await self._next_command()
                if command is None or not await self._serve(command):
                    break
        except (ConnectionLost, TimeoutError):
            pass
        except ProtocolError as error:
            log.warning("session ended client=%s error=%s", self._client.address(), error)
            self._client.write(err_packet(1, ER_MALFORMED_PACKET, str(error), "HY000"))
        finally:
            if self._fence is not None:
                self._fence.abandon()
            self._client.intercept = self._client.on_change = self._upstream.on_change = None
            self._upstream.close()
            self._client.close()

    def _client_changed(self) -> None:
        """A client that went away has its query ended, but never a write that may have happened."""
        if self._client.closed and self._fence is None:
            self._upstream.abort()

    # The quick way.

    def _intercept(self, data: bytes) -> bool:
        context = self._context
        if context is None or self._asked is not None or self._client.congested:
            return False
        read = context.plans.get(data)
        if read is None:
            return False
        self._asked = data, read
        self._engine.lookup(read, self._on_outcome)
        return True

    def _looked_up(self, outcome: Outcome) -> None:
        assert self._asked is not None
        data, read = self._asked
        self._asked = None
        if type(outcome) is Hit:
            packets = entry.packets_for(outcome.value, outcome.versions_bytes, self._status)
            if packets is not None:
                self._metrics.hits += 1
                self._last_hit = data
                self._client.write(packets)
                if self._client.buffered or self._draining:
                    self._client.wake()
                return
        self._undecided = data, read, outcome
        self._client.wake()

    # One command after another.

    async def _next_command(self) -> _Command | None:
        """The next command; None when the session is to end."""
        self._client.intercept = self._intercept
        while True:
            if self._undecided is not None:
                break
            if self._asked is None:
                if len(self._client.buffered) > HEADER_BYTES:
                    break
                over = self._client.closed or self._upstream.closed or self._draining
                if over or self._upstream.buffered:
                    self._say_farewell()
                    return None
            await self._client.wait()
        self._client.intercept = None
        if self._undecided is not None:
            return _Command(Command.QUERY, self._undecided[0], whole=True)
        return await self._read_command()

    def _say_farewell(self) -> None:
        """What the server said unasked, as that it shuts down, is for the client to know."""
        if self._upstream.buffered:
            self._client.write(self._upstream.take(len(self._upstream.buffered)))

    async def _read_command(self) -> _Command:
        length = payload_bytes(self._client.buffered)
        if not length:
            raise ProtocolError("the client sent an empty command")
        code = self._client.buffered[HEADER_BYTES]
        if length <= self._limits.max_statement_bytes and not is_continued(length):
            return _Command(code, await self._client.read_packet(length), whole=True)
        held = HEADER_BYTES + min(length, self._limits.max_statement_bytes)
        head = await self._client.read_exactly(held)
        return _Command(code, head, whole=False)

    async def _serve(self, command: _Command) -> bool:
        """Answers one command; False when it was the last."""
        self._metrics.statements_relayed += 1
        match command.code:
            case Command.QUIT:
                self._upstream.write(command.data)
                return False
            case Command.CHANGE_USER:
                await self._change_user(command)
            case Command.QUERY:
                await self._query(command)
            case code if code in _PIPES:
                await self._pipe(command)
                return False
            case code if code in NO_RESPONSE:
                await self._send(command)
                self._forget_prepared(command)
            case _:
                await self._learn_settings(command)
                await self._execute(command, self._meaning_of(command))
        self._refresh_context()
        return not self._client.closed

    # Reads.

    async def _query(self, command: _Command) -> None:
        undecided, self._undecided = self._undecided, None
        if undecided is not None:
            await self._read(command, undecided[1], undecided[2])
            return
        await self._learn_settings(command)
        meaning = self._query_meaning(command)
        planned = self._plan_read(command, meaning)
        if isinstance(planned, Read):
            await self._read(command, planned, None)
        else:
            self._metrics.bypasses[planned] += 1
            await self._execute(command, meaning)

    def _plan_read(self, command: _Command, meaning: _Meaning) -> Read | str:
        """The read a command is, or why it cannot be answered from the cache."""
        if meaning.lexed is None or len(meaning.statements) != 1 or not command.whole:
            return "not cacheable"
        self._refresh_context()
        if self._context is None:
            return self._state.bypass_reason() or "catalog unknown"
        known = self._context.planned(command.data)
        if known is not None:
            return known
        return self._planner.plan_read(
            command.data, meaning.lexed, meaning.statements[0], self._context
        )

    async def _read(
        self, command: _Command, read: Read, first: Outcome | None, *, again: bool = False
    ) -> None:
        got = await self._engine.obtain(read, first)
        match got:
            case Hit():
                packets = entry.packets_for(got.value, got.versions_bytes, self._status)
                if packets is None:
                    await self._execute(command, _NO_STATEMENT)
                    return
                self._metrics.hits += 1
                self._last_hit = command.data
                self._client.write(packets)
                await self._client.drain()
            case Bypass(reason):
                self._metrics.bypasses[reason] += 1
                await self._execute(command, _NO_STATEMENT)
            case Lease() if self._planner.confirms(read.tags.by_tag(got.versions)):
                self._metrics.misses += 1
                await self._fill(command, got)
            case Lease():
                await got.release()
                await self._plan_anew(command, again=again)

    async def _plan_anew(self, command: _Command, *, again: bool) -> None:
        """A definition changed since the catalog was read: the plan may be wrong."""
        if not again:
            await self._planner.refresh()
            planned = self._plan_read(command, self._query_meaning(command))
            if isinstance(planned, Read):
                await self._read(command, planned, None, again=True)
                return
        self._metrics.bypasses["catalog changed"] += 1
        await self._execute(command, _NO_STATEMENT)

    async def _fill(self, command: _Command, lease: Lease) -> None:
        """Runs the read upstream, passes the answer on as it comes, and stores it."""
        ended = False
        try:
            kept = _Kept(self._limits.max_entry_bytes)
            tracker = await self._execute(command, _NO_STATEMENT, kept)
            made = kept.entry(lease.versions, tracker)
            ended = True
            await (lease.decline() if made is None else lease.fill(made))
        finally:
            if not ended:
                await asyncio.shield(lease.release())

    # Anything else.

    async def _execute(
        self, command: _Command, meaning: _Meaning, kept: "_Kept | None" = None
    ) -> ResponseTracker:
        """Runs a command upstream and relays its response, with the tags of its writes bumped
        before the client hears of it."""
        if meaning.looks_back:
            await self._replay_last_hit()
        await self._raise_fence(meaning)
        await self._send(command)
        tracker = ResponseTracker(command.code, self._state.capabilities)
        await self._relay(tracker, meaning, kept)
        self._took_effect(command, meaning, tracker)
        return tracker

    async def _raise_fence(self, meaning: _Meaning) -> None:
        """Fences what this command may make visible: all of its own writes unless a transaction
        holds them back, and the transaction's when it may end it."""
        visible = meaning.writes
        if meaning.may_commit:
            visible |= self._written
        elif self._state.in_transaction:
            visible = self._planner.untransactional(meaning.writes)
        if not visible:
            return
        tags = self._planner.tags(visible)
        self._fence = await self._engine.fence(tags, self._planner.definitions(visible))
        if not self._planner.confirms(self._fence.observed):
            await self._planner.refresh()
            missed = self._planner.tags(visible) - tags
            if missed:
                await self._fence.extend(missed)

    async def _send(self, command: _Command) -> None:
        self._last_hit = None
        self._upstream.write(command.data)
        if not command.whole:
            await self._stream_command(command)
        await self._upstream.drain()

    async def _stream_command(self, command: _Command) -> None:
        """Passes on the rest of a command too long to be held."""
        length = payload_bytes(command.data)
        await self._pass_on(HEADER_BYTES + length - len(command.data))
        while is_continued(length):
            length = await self._pass_on_packet()

    async def _relay_file(self) -> None:
        """Passes on a LOCAL INFILE: packets up to an empty one."""
        while await self._pass_on_packet():
            pass

    async def _pass_on_packet(self) -> int:
        """Passes a client's packet on to the server; returns its payload's length."""
        header = await self._client.read_exactly(HEADER_BYTES)
        self._upstream.write(header)
        await self._pass_on(payload_bytes(header))
        return payload_bytes(header)

    async def _pass_on(self, size: int) -> None:
        while size:
            chunk = await self._client.read(size)
            size -= len(chunk)
            self._upstream.write(chunk)
            await self._upstream.drain()

    async def _relay(
        self, tracker: ResponseTracker, meaning: _Meaning, kept: "_Kept | None" = None
    ) -> None:
        """Passes a response on, chunk by chunk; the chunk that ends a write waits for its bump."""
        while not tracker.done:
            ended = len(tracker.ends)
            chunk = await self._read_response(tracker)
            if len(tracker.ends) > ended:
                await self._publish(tracker, meaning)
            if kept is not None:
                kept.add(chunk)
            self._metrics.bytes_to_clients += len(chunk)
            self._client.write(chunk)
            await self._client.drain()
            if tracker.wants_file:
                await self._relay_file()
                tracker.file_sent()

    async def _read_response(self, tracker: ResponseTracker) -> bytes:
        chunk = await self._upstream.read()
        used = tracker.feed(chunk)
        if used < len(chunk):
            self._upstream.unread(chunk[used:])
        return chunk[:used]

    async def _publish(self, tracker: ResponseTracker, meaning: _Meaning) -> None:
        """Bumps what the statements that have ended wrote."""
        if self._fence is not None:
            if not tracker.done:
                await self._fence.publish()
                return
            await self._fence.lift()
            self._fence = None
        elif tracker.done and not meaning.rolls_back and _ended_transaction(tracker.ends[-1]):
            # No statement we know of ended it, and yet it is over: late is better than never.
            await self._engine.bump(self._planner.tags(self._written))
        if meaning.redefines:
            await self._planner.refresh()

    def _took_effect(self, command: _Command, meaning: _Meaning, tracker: ResponseTracker) -> None:
        """Follows what the command changed in the session."""
        self._state.ran(meaning.statements, tracker.ends)
        last = tracker.ends[-1] if tracker.ends else None
        if last is not None and _ended_transaction(last):
            self._written = NOTHING
        elif meaning.may_commit:
            self._written = meaning.writes
        else:
            self._written |= meaning.writes
        if last is not None and last.status is None:
            return
        match command.code:
            case Command.INIT_DB:
                self._state.use(command.payload[1:].decode("utf-8", "replace"))
            case Command.SET_OPTION:
                self._state.multi_statements = command.payload[1:3] == b"\0\0"
            case Command.RESET_CONNECTION:
                self._state.reset(self._planner.globals)
                self._begin_anew()
            case Command.STMT_PREPARE if tracker.prepared_id is not None:
                self._prepared[tracker.prepared_id] = self._prepared_meaning(command)
                self._last_prepared = tracker.prepared_id

    def _begin_anew(self) -> None:
        self._prepared.clear()
        self._written = NOTHING
        self._generation = self._planner.generation

    # What a command means.

    def _meaning_of(self, command: _Command) -> _Meaning:
        if command.code in _EXECUTES:
            number = int.from_bytes(command.payload[1:5], "little")
            if number == _LAST_PREPARED:
                number = self._last_prepared
            return self._prepared.get(number, _UNKNOWN)
        return _NO_STATEMENT if command.code in _WRITE_NOTHING else _UNKNOWN

    def _query_meaning(self, command: _Command) -> _Meaning:
        text = query_text(command.payload, self._state.capabilities)
        return _UNKNOWN if text is None else self._read_text(command, text, prepared=False)

    def _prepared_meaning(self, command: _Command) -> _Meaning:
        return self._read_text(command, command.payload[1:], prepared=True)

    def _read_text(self, command: _Command, text: bytes, *, prepared: bool) -> _Meaning:
        state = self._state
        if not state.readable:
            return _UNKNOWN
        if not command.whole:
            statements: tuple[Statement, ...] = analyse(
                text, state.dialect, head=True, multi_statements=state.multi_statements
            )
            lexed = None
        else:
            try:
                lexed = lex(text, state.dialect)
            except SqlSyntaxError:
                return _UNKNOWN
            statements = self._planner.statements(lexed, text, state.dialect, prepared=prepared)
        return _Meaning(statements, lexed, self._planner.writes(statements, state.schema))

    # Statements of sqlcache's own on the client's connection.

    async def _learn_settings(self, command: _Command) -> None:
        """Asks the server for the session's settings where they are not known.

        Not before a statement that looks back at the one before it: that must stay the client's.
        """
        if self._generation != self._planner.generation:
            self._generation = self._planner.generation
            self._state.settings_unknown = True
        if not self._state.settings_unknown or _LOOKS_BACK.search(command.data):
            return
        settings = await self._ask(SESSION_SETTINGS.encode())
        place = await self._ask(_SCHEMA_AND_ROLE)
        if settings and place:
            schema, role = place[0]
            self._state.know_settings(
                tuple(sorted((_text(name), _text(value)) for name, value in settings)),
                None if schema is None else _text(schema),
                _text(role),
            )

    async def _ask(self, query: bytes) -> list[tuple[bytes | None, ...]]:
        """The rows of a query of sqlcache's own; none if the server refuses it."""
        answer = await self._ask_raw(query_packet(query, self._state.capabilities))
        return read_text_rows(answer, self._state.capabilities)

    async def _ask_raw(self, data: bytes) -> bytes:
        self._upstream.write(data)
        tracker = ResponseTracker(Command.QUERY, self._state.capabilities)
        chunks = []
        while not tracker.done:
            chunks.append(await self._read_response(tracker))
        return b"".join(chunks)

    async def _replay_last_hit(self) -> None:
        """Runs the last read that was a hit, so that what it leaves behind (FOUND_ROWS, warnings)
        is there for the statement that asks for it."""
        if self._last_hit is not None:
            data, self._last_hit = self._last_hit, None
            await self._ask_raw(data)

    # Commands that are more than one question and one answer.

    async def _change_user(self, command: _Command) -> None:
        login = read_change_user(command.payload, self._state.login)
        self._last_hit = None
        self._upstream.write(command.data)
        ok = await relay_authentication(self._client, self._upstream)
        self._state.log_in(login, self._planner.globals, _status(ok))
        self._begin_anew()

    async def _pipe(self, command: _Command) -> None:
        """A binlog dump has no end: bytes go both ways until a side closes."""
        self._upstream.write(command.data)
        upwards = asyncio.ensure_future(_copy(self._client, self._upstream))
        try:
            await _copy(self._upstream, self._client)
        finally:
            upwards.cancel()

    def _forget_prepared(self, command: _Command) -> None:
        if command.code == Command.STMT_CLOSE:
            self._prepared.pop(int.from_bytes(command.payload[1:5], "little"), None)

    def _refresh_context(self) -> None:
        """Finds out whether reads may be hits now, and under which fingerprint."""
        known = self._generation == self._planner.generation and self._planner.ready
        if known and self._state.bypass_reason() is None:
            self._context = self._planner.context(self._state)
            self._status = int(self._state.status)
        else:
            self._context = None


class _Kept:
    """A bounded copy of a response that goes by, for an entry."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._chunks: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size <= self._max_bytes:
            self._chunks.append(chunk)
        else:
            self._chunks.clear()

    def entry(self, versions: bytes, tracker: ResponseTracker) -> bytes | None:
        """The entry to store, or None: only one result set without warnings is storable."""
        if self._size > self._max_bytes or not tracker.columns or len(tracker.ends) != 1:
            return None
        end = tracker.ends[0]
        if end.status is None or end.warnings or end.status & _UNSTORABLE_STATUS:
            return None
        packets = b"".join(self._chunks)
        return entry.encode(versions, end.status, tracker.status_offsets, packets)


async def _copy(source: Channel, target: Channel) -> None:
    while True:
        target.write(await source.read())
        await target.drain()


def _ended_transaction(end: End) -> bool:
    return end.status is not None and not end.status & Status.IN_TRANS


def _status(ok: bytes) -> Status:
    return read_ok(ok[HEADER_BYTES:]).status or Status(0)


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")
