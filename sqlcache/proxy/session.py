"""One client's session: its commands in order, each answered before the next is read.

What was planned before goes the straight path, see `straight`; everything else the long way, see
`longway`.
"""

import asyncio
import logging
from time import perf_counter
from typing import Any

from sqlcache.cache.engine import Engine
from sqlcache.cache.lookups import Waiter
from sqlcache.cache.outcomes import Outcome
from sqlcache.cache.reads import Basis, Read
from sqlcache.errors import CacheUnavailable, ConnectionLost, ProtocolError
from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import (
    ER_CLIENT_INTERACTION_TIMEOUT,
    ER_MALFORMED_PACKET,
    ER_SERVER_SHUTDOWN,
    Command,
)
from sqlcache.mysql.packets import (
    HEADER_BYTES,
    err_packet,
    is_continued,
    packet,
    payload_bytes,
    status_of,
)
from sqlcache.patience import Patience
from sqlcache.plan.commands import ClientCommand
from sqlcache.plan.contexts import Context
from sqlcache.plan.planner import Planner
from sqlcache.plan.state import SessionState
from sqlcache.proxy.authentication import MAX_LOGIN_PACKET_BYTES
from sqlcache.proxy.limits import Limits
from sqlcache.proxy.login import LoginRelay
from sqlcache.proxy.longway.way import LongWay
from sqlcache.proxy.relay import Relay
from sqlcache.proxy.room import Room
from sqlcache.upstream_errors import UpstreamErrors

log = logging.getLogger(__name__)

_LOGGED_BYTES = 200
_SHOWN = 200  # characters of a statement's shape, in a list of very many
_NOT_LOGGED_IN = "it has not logged in yet"
_GRACE_S = 1.0  # for a client that was accepted right before the end
_ERR = b"\xff"
_IDLE_TOO_LONG = (  # MySQL's words
    "The client was disconnected by the server because of inactivity. See wait_timeout and"
    " interactive_timeout for configuring this behavior."
)


class Session:
    """A client's connection and its own connection to MySQL; they live and end together.

    See `Relay` and `LongWay` for the rooms. `embedded`: the client is of this very process, and may
    ask and tell more than others.
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
        errors: UpstreamErrors,
        ahead: Room,
        for_entries: Room,
        *,
        embedded: bool = False,
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._engine = engine
        self._planner = planner
        self._limits = limits
        self._logins = logins
        self._errors = errors
        self._relay = Relay(client, upstream, ahead, metrics)
        self._way = LongWay(
            *(self._relay, engine, planner, metrics, limits, logins),
            for_entries,
            embedded=embedded,
        )
        self._standing, self._course = self._way.standing, self._way.course
        self._last = self._way.last
        self._draining = False
        self._owes_sign = False
        self._next_look: asyncio.TimerHandle | None = None
        self._logged_in = self._has_quit = False
        self._idle_since: tuple[tuple[float, int], float] | None = None
        self._began = 0.0 if embedded else asyncio.get_running_loop().time()

    # What a client of this very process, an embedded one, may ask and tell between its commands.

    @property
    def context(self) -> Context | None:
        """Under which its reads can be hits at once; None while none can, as in a transaction."""
        standing = self._standing
        wanted = self._logged_in and standing.allowed and standing.own.view is None
        return standing.context if wanted else None

    @property
    def state(self) -> SessionState:
        """What is known of it since it logged in."""
        return self._standing.state

    @property
    def basis(self) -> Basis | str:
        """Which read the last answer is the answer to, and on what it hangs, by the versions from
        before it was computed; or why that is not known."""
        return self._last.basis

    @property
    def has_ended(self) -> bool:
        """Whether it answers nothing more, as where MySQL has ended its connection, or says unasked
        that it does."""
        return bool(self._client.closed or self._upstream.closed or self._upstream.buffered)

    def allow_hits(self, allowed: bool) -> None:
        """Whether reads from here on may be answered from the cache, and stored."""
        self._standing.allowed = allowed
        if self._logged_in:
            self._standing.refresh_context()

    def expect(self, read: Read, outcome: Outcome) -> None:
        """The client looked this read up itself, and is about to send it: an outcome that is for
        one reader alone, such as that it is to fetch the answer anew, must not get lost."""

        hits = self._way.straight.hits

        def look_up(asked: Read, waiter: Waiter) -> None:
            hits.look_up, hits.find_at_once = self._engine.lookup, self._engine.at_once
            if asked is read:
                asyncio.get_running_loop().call_soon(waiter, outcome)
            else:
                self._engine.lookup(asked, waiter)

        hits.look_up, hits.find_at_once = look_up, _nothing_at_once

    async def may_write(self, text: bytes) -> bool:
        """Whether a query could change rows or definitions, or what a lock covers. A long one is
        read in a thread: its client is to ask, and nothing else, until this is known."""
        meanings, state = self._way.meanings, self._standing.state
        if not state.readable:
            return False
        data = bytes(HEADER_BYTES) + bytes((Command.QUERY,)) + text
        command = ClientCommand(Command.QUERY, data, whole=True)
        await meanings.read_ahead(command, state)
        meaning = meanings.of(command, state)
        meanings.answered()
        return bool(meaning.writes) or any(
            each.may_commit or each.locking_read for each in meaning.statements
        )

    @property
    def in_transaction(self) -> bool:
        """Whether the server has a transaction open for it, as far as is known."""
        return self._logged_in and self._standing.in_transaction

    @property
    def waits(self) -> bool:
        """Whether its client has had all its commands answered."""
        busy = self._course.now is not None or self._client.buffered
        return self._client.intercept is not None and not busy

    def report(self, now: float) -> dict[str, Any]:
        """What is known of it, as plain data; `now` on the event loop's clock."""
        state = self._standing.state if self._logged_in else None
        why_not = self._way.why_no_hits if state else _NOT_LOGGED_IN
        connected_s = max(now - self._began, 0.0)
        idle_s = 0.0
        if self.waits:
            asked_at = self._last.asked_at
            idle_s = min(perf_counter() - asked_at, connected_s) if asked_at else connected_s
        statement = self._last.counts.text
        return {
            "id": self._logins.connection,
            "user": state.login.user.decode("utf-8", "replace") if state else "",
            "address": self._client.address(),
            "schema": state.schema if state else None,
            "state": "idle" if self.waits else "busy",
            "in_transaction": self.in_transaction,
            "cacheable": not why_not,
            "why_not": why_not,
            "statement": statement[:_SHOWN] + ("…" if len(statement) > _SHOWN else ""),
            "connected_s": connected_s,
            "idle_s": idle_s,
        }

    def drain(self) -> None:
        """Ends the session when its command or its transaction is done; an idle one at once. Who
        has just been accepted has a moment, for the login and what drivers ask after it."""
        loop = asyncio.get_running_loop()
        loop.call_at(max(self._began + _GRACE_S, loop.time()), self._drain_now)

    def _drain_now(self) -> None:
        self._draining = self._course.awaited = True
        if self._logged_in:
            self._client.wake()
        else:
            self._logins.called_off = True
            self._client.close()

    def end_if_idle(self, now: float, longest_s: float) -> bool:
        """Ends a session whose client has had no command answered or begun for so long; whether it
        did. To be called again and again: idle is who is so each time, after the same command.

        Nothing is noted for this while commands are served.
        """
        if not self.waits or self._client.closed:
            self._idle_since = None
            return False
        last = self._last.asked_at, self._upstream.ahead
        if self._idle_since is None or self._idle_since[0] != last:
            self._idle_since = last, now
        if now - self._idle_since[1] < longest_s:
            return False
        self._client.intercept = None
        self._client.write(err_packet(0, ER_CLIENT_INTERACTION_TIMEOUT, _IDLE_TOO_LONG, "HY000"))
        self._client.close()
        return True

    async def run(self) -> None:
        """From the login to the end of either connection; that to MySQL is then to be closed.

        Raises nothing but CancelledError, and what is a fault of sqlcache's own.
        """
        self._client.on_change = self._client_changed
        self._upstream.on_change = self._client.wake
        try:
            self._standing.note_globals()
            with self._logins.failing():
                async with Patience(self._limits.login_timeout_s):
                    login, ok = await self._logins.log_in()
            await self._planner.keeper.meet()
            self._logged_in = True
            self._client.buffer_bytes = self._upstream.buffer_bytes
            await self._way.begin(login, status_of(ok))
            if log.isEnabledFor(logging.DEBUG):
                self._tell_of_login()
            self._look_again()
            while await self._serve_next():
                if self._client.buffered:  # of many at once, some need no wait: others want a turn
                    await asyncio.sleep(0)
        except (ConnectionLost, TimeoutError):
            pass
        except CacheUnavailable as error:
            address = self._client.address()
            log.error("session ended client=%s error=%s", address, error, extra={"kind": "write"})
        except ProtocolError as error:
            log.warning("session ended client=%s error=%s", self._client.address(), error)
            self._client.write(err_packet(1, ER_MALFORMED_PACKET, str(error), "HY000"))
        finally:
            if self._next_look is not None:
                self._next_look.cancel()
                self._next_look = None
            if self._logged_in and self._upstream.closed and not self._upstream.odd_answer:
                self._note_lost()
            if self._upstream.odd_answer:
                log.error(
                    "session ended: MySQL answers otherwise than before client=%s answer=%r",
                    *(self._client.address(), self._upstream.odd_answer[:_LOGGED_BYTES]),
                )
            self._way.close(self._logins.connection)
            self._relay.break_off()
            self._client.intercept = self._client.on_change = None
            self._upstream.intercept = self._upstream.on_change = None
            self._client.close()
            if self._logged_in and log.isEnabledFor(logging.DEBUG):
                log.debug("session ended client=%s", self._client.address())
        odd = self._upstream.odd_answer[HEADER_BYTES : HEADER_BYTES + 1]
        if odd and odd != _ERR:  # as where a user asks more than an account may
            await self._planner.mistook()

    def _tell_of_login(self) -> None:
        user = self._standing.state.login.user.decode("utf-8", "replace")
        client, schema = self._client.address(), self._standing.state.schema or ""
        why = self._way.why_no_hits or "none"
        log.debug("session began client=%s user=%s schema=%s no_hits=%s", client, user, schema, why)

    def _note_lost(self) -> None:
        """MySQL's connection has ended; where the client's had not, that was not for the client."""
        if not (self._client.closed or self._has_quit):
            self._errors.lost()

    def _client_changed(self) -> None:
        """Where the client said nothing yet there is nothing to end."""
        if not self._logins.is_unanswered:
            self._way.client_changed()

    async def _serve_next(self) -> bool:
        """Answers the next command, of which nothing is held afterwards; False after the last."""
        command = await self._next_command()
        self._has_quit = command is not None and command.code == Command.QUIT
        return command is not None and await self._way.serve(command)

    async def _next_command(self) -> ClientCommand | None:
        """The next command; None when the session is to end."""
        straight, course = self._way.straight, self._course
        self._client.intercept = straight.received
        try:
            while course.failure is None and course.handed_over is None:
                if course.now is None:
                    drained = self._draining and not self.in_transaction
                    over = drained or self._client.closed or self._upstream.closed
                    if self._owes_sign and not (over or self._upstream.buffered):
                        await self._keep_alive()
                        continue
                    if not drained and _begins_command(self._client.buffered):
                        if straight.takes_buffered():
                            continue
                        break
                    if over or self._upstream.buffered:
                        self._say_farewell()
                        return None
                elif self._upstream.closed and course.awaits_mysql:
                    course.give_up()
                    break
                self._way.end_writing()
                await self._client.wait()
        except asyncio.CancelledError:  # the time to drain is over
            if course.now is None:
                self._say_farewell()
            raise
        finally:
            self._client.intercept = None
        if course.failure is not None:
            raise course.failure
        return self._way.handed_over or await self._read_command()

    def _look_again(self) -> None:
        """Looks every so often whether the client was busy with hits: the server ends who is idle
        for its `wait_timeout`. It hears of the client as soon as no command is in flight."""
        loop = asyncio.get_running_loop()
        self._next_look = loop.call_later(self._limits.keepalive_s, self._look_again)
        if self._last.had_hits or self._upstream.holds_back:
            self._owes_sign = self._course.awaited = True
            self._client.wake()

    async def _keep_alive(self) -> None:
        """Lets the server know of the client: by what waits to be sent, else by a ping, but that
        never behind a command that it has run, whose ROW_COUNT() it would take away."""
        last = self._last
        self._owes_sign = False
        self._course.awaited = self._draining
        had_hits, last.had_hits = last.had_hits, False
        if self._upstream.holds_back:
            self._upstream.write(b"")
        elif had_hits:
            self._client.intercept = None  # the ping's OK is not for what comes meanwhile
            await self._standing.questions.run(packet(0, bytes((Command.PING,))))
            self._client.intercept = self._way.straight.received

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
        if code == Command.CHANGE_USER:  # what comes behind it may answer the server
            data = await self._client.read_packet(MAX_LOGIN_PACKET_BYTES)
            return ClientCommand(code, data, whole=True)
        if length <= self._limits.max_statement_bytes and not is_continued(length):
            return ClientCommand(code, await self._client.read_packet(length), whole=True)
        held = HEADER_BYTES + min(length, self._limits.max_statement_bytes)
        head = await self._client.read_exactly(held)
        return ClientCommand(code, head, whole=False)


def _begins_command(data: bytes) -> bool:
    """Whether a command's code is there, or it is an empty one."""
    return len(data) > HEADER_BYTES or (len(data) == HEADER_BYTES and not payload_bytes(data))


def _nothing_at_once(read: Read) -> None:
    """See `Engine.at_once`."""
