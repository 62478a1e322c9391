"""One client's session: its commands in order, each answered before the next is read.

What was planned before goes the straight path, see `straight`; everything else the long way, see
`longway`.
"""

import asyncio
import logging
from functools import partial
from typing import Any

from sqlcache.cache.engine import Engine
from sqlcache.errors import CacheUnavailable, ConnectionLost, ProtocolError
from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import (
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
    read_err,
    status_of,
)
from sqlcache.plan.commands import ClientCommand
from sqlcache.plan.planner import Planner
from sqlcache.proxy.authentication import MAX_LOGIN_PACKET_BYTES
from sqlcache.proxy.idleness import Idleness
from sqlcache.proxy.login import LoginRelay
from sqlcache.proxy.longway.way import LongWay
from sqlcache.proxy.relay import Relay
from sqlcache.proxy.session_options import SessionOptions
from sqlcache.proxy.session_parts import SessionParts
from sqlcache.proxy.signs_of_life import SignsOfLife
from sqlcache.upstream_errors import UpstreamErrors

log = logging.getLogger(__name__)

_SHOWN = 200  # characters of a statement's shape, in a list of very many
_NOT_LOGGED_IN = "it has not logged in yet"
_GRACE_S = 1.0  # for a client that was accepted right before the end
_ERR = b"\xff"
_QUIT = packet(0, bytes((Command.QUIT,)))


class Session:
    """A client's connection and its own connection to MySQL; they live and end together.

    `embedded`: the client is of this very process, see `EmbeddedSession`.
    """

    def __init__(
        self,
        client: Channel,
        upstream: Channel,
        engine: Engine,
        planner: Planner,
        metrics: Metrics,
        options: SessionOptions,
        logins: LoginRelay,
        errors: UpstreamErrors,
        *,
        embedded: bool = False,
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._planner = planner
        self._options = options
        self._logins = logins
        self._errors = errors
        self._relay = Relay(client, upstream, options.ahead, metrics)
        shared = SessionParts.of(self._relay, engine, planner, metrics, options, embedded=embedded)
        self.way = LongWay(shared, logins)
        self._standing, self._course = self.way.standing, self.way.course
        self._signs = SignsOfLife(client, upstream, self.way, every_s=options.keepalive_s)
        self._idleness = Idleness(client, upstream, self._relay, self.way)
        self._draining = False
        self._has_quit = False
        self._began = 0.0 if embedded else asyncio.get_running_loop().time()

    @property
    def in_transaction(self) -> bool:
        """Whether the server has a transaction open for it, as far as is known."""
        return self._standing.has_begun and self._standing.in_transaction

    def report(self, now: float) -> dict[str, Any]:
        """What is known of it, as plain data; `now` on the event loop's clock."""
        state = self._standing.state if self._standing.has_begun else None
        why_not = self.way.why_no_hits if state else _NOT_LOGGED_IN
        connected_s = max(now - self._began, 0.0)
        idle = self._idleness
        statement = self.way.last.counts.text
        return {
            "id": self._logins.connection,
            "user": state.login.user.decode("utf-8", "replace") if state else "",
            "address": self._client.address(),
            "schema": state.schema if state else None,
            "state": "idle" if idle.waits else "busy",
            "in_transaction": self.in_transaction,
            "cacheable": not why_not,
            "why_not": why_not,
            "statement": statement[:_SHOWN] + ("…" if len(statement) > _SHOWN else ""),
            "connected_s": connected_s,
            "idle_s": idle.lasted_s(connected_s),
        }

    def drain(self) -> None:
        """Ends the session when its command or its transaction is done; an idle one at once. Who
        has just been accepted has a moment, for the login and what drivers ask after it."""
        loop = asyncio.get_running_loop()
        loop.call_at(max(self._began + _GRACE_S, loop.time()), self._drain_now)

    def _drain_now(self) -> None:
        self._draining = self._course.awaited = True
        if self._standing.has_begun:
            self._client.wake()
        else:
            self._logins.called_off = True
            self._client.close()

    def end_if_idle(self, now: float, longest_s: float) -> bool:
        """See `Idleness.end`."""
        return self._idleness.end(now, longest_s)

    async def run(self) -> None:
        """From the login to the end of either connection; that to MySQL is then to be closed.

        Raises nothing but CancelledError, and what is a fault of sqlcache's own.
        """
        self._client.on_change = self._client_changed
        self._options.kills.begin(self._standing.doubt, self._logins)
        try:
            self._standing.note_globals()
            login, ok = await self._logins.log_in(self._options.login_timeout_s)
            self._upstream.on_change = self._upstream_changed  # until now it is read from at once
            if not self._planner.keeper.is_met:
                await self._planner.keeper.meet()
                if not self._planner.keeper.is_met:
                    self._standing.note_globals()  # as far as they are known
            self._client.buffer_bytes = self._upstream.buffer_bytes
            await self.way.begin(login, status_of(ok))
            if log.isEnabledFor(logging.DEBUG):
                self._tell_of_login()
            self._signs.begin()
            while await self._serve_next():
                if self._client.has_some:  # of many at once, some need no wait: others want a turn
                    await asyncio.sleep(0)
        except (ConnectionLost, TimeoutError):
            pass
        except CacheUnavailable as error:
            address = self._client.address()
            log.error("session ended client=%s error=%s", address, error, extra={"kind": "write"})
        except ProtocolError as error:
            log.warning("session ended client=%s error=%s", self._client.address(), error)
            what = err_packet(self._logins.next_id, ER_MALFORMED_PACKET, str(error), "HY000")
            self._client.write(what)
        finally:
            self._signs.end()
            self._options.kills.end(self._standing.doubt)
            if self._standing.has_begun and self._upstream.closed and not self._upstream.odd_answer:
                self._note_lost()
            if self._upstream.odd_answer:
                log.error(
                    "session ended: MySQL answers otherwise than before client=%s answer=%s",
                    self._client.address(),
                    _kind_of(self._upstream.odd_answer),
                )
            self.way.close(partial(self._logins.witness, self._logins.connection))
            self._client.intercept = self._client.on_change = None
            self._upstream.intercept = self._upstream.on_change = None
            self._client.close()
            if self._standing.has_begun and log.isEnabledFor(logging.DEBUG):
                log.debug("session ended client=%s", self._client.address())
        odd = self._upstream.odd_answer[HEADER_BYTES : HEADER_BYTES + 1]
        if odd and odd != _ERR:  # as where a user asks more than an account may
            await self._planner.mistook()

    def _tell_of_login(self) -> None:
        user = self._standing.state.login.user.decode("utf-8", "replace")
        client, schema = self._client.address(), self._standing.state.schema or ""
        why = self.way.why_no_hits or "none"
        log.debug("session began client=%s user=%s schema=%s no_hits=%s", client, user, schema, why)

    def _note_lost(self) -> None:
        """MySQL's connection has ended; where the client's had not, that was not for the client."""
        if not (self._client.closed or self._has_quit):
            self._errors.lost()

    def _client_changed(self) -> None:
        """Where the client said nothing yet there is nothing to end."""
        if not self._logins.is_unanswered:
            self.way.client_changed()

    def _upstream_changed(self) -> None:
        self._client.wake()
        self.way.upstream_changed()

    async def _serve_next(self) -> bool:
        """Answers the next command, of which nothing is held afterwards; False after the last."""
        command = await self._next_command()
        self._has_quit = command is not None and command.code == Command.QUIT
        if command is None or not await self.way.serve(command):
            return False
        if self._standing.attends:
            self._signs.attended()
        return True

    async def _next_command(self) -> ClientCommand | None:
        """The next command; None when the session is to end."""
        straight, course = self.way.straight, self._course
        self._client.intercept = straight.received
        try:
            while course.failure is None and course.handed_over is None:
                if course.now is None:
                    drained = self._draining and not self.in_transaction
                    over = drained or self._client.closed or self._upstream.closed
                    if self._upstream.has_some:  # what came now would be taken for an answer
                        self._say_farewell()
                        return None
                    if self._signs.owed and not over:
                        course.awaited = self._draining
                        await self._signs.give()
                        continue
                    head = self._client.head(HEADER_BYTES + 1)
                    if not drained and _begins_command(head):
                        if head == _QUIT or not straight.takes_buffered():
                            break
                        if self._client.has_some:  # it may be much, of no answers
                            await asyncio.sleep(0)
                        continue
                    if over:
                        self._say_farewell()
                        return None
                elif self._upstream.closed and course.awaits_mysql:
                    course.give_up()
                    break
                self.way.end_writing()
                await self._client.wait()
        except asyncio.CancelledError:  # the time to drain is over
            if course.now is None:
                self._say_farewell()
            raise
        finally:
            self._client.intercept = None
        if course.failure is not None:
            raise course.failure
        return self.way.handed_over or await self._read_command()

    def _say_farewell(self) -> None:
        """What the server said unasked, as that it shuts down, is for the client to know; and when
        it is sqlcache that does, that is said as the server would."""
        if self._upstream.has_some:
            said = self._upstream.take(self._upstream.buffered_bytes)
            if said[HEADER_BYTES : HEADER_BYTES + 1] != _ERR:
                client, what = self._client.address(), _kind_of(said)
                log.error(
                    "session ended: MySQL says more than asked client=%s said=%s", client, what
                )
            self._client.write(said)
        elif self._draining:
            text = "Server shutdown in progress"
            self._client.write(err_packet(0, ER_SERVER_SHUTDOWN, text, "08S01"))

    async def _read_command(self) -> ClientCommand:
        head = self._client.head(HEADER_BYTES + 1)
        length = payload_bytes(head)
        # The server takes an empty command for a COM_SLEEP.
        code = head[HEADER_BYTES] if length else Command.SLEEP
        size = HEADER_BYTES + min(length, self._options.max_statement_bytes)
        if code == Command.CHANGE_USER:  # what comes behind it may answer the server
            if length <= MAX_LOGIN_PACKET_BYTES:
                await self._relay.until_sent(HEADER_BYTES + length)
            data = await self._client.read_packet(MAX_LOGIN_PACKET_BYTES)
            return ClientCommand(code, data, whole=True)
        await self._relay.until_sent(size)
        whole = length <= self._options.max_statement_bytes and not is_continued(length)
        return ClientCommand(code, self._client.take(size), whole=whole)


def _begins_command(data: bytes) -> bool:
    """Whether a command's code is there, or it is an empty one."""
    return len(data) > HEADER_BYTES or (len(data) == HEADER_BYTES and not payload_bytes(data))


def _kind_of(answer: bytes) -> str:
    """What a packet is, for the log: not its text, nor its values, which may be of a statement."""
    payload = answer[HEADER_BYTES:]
    if payload[:1] == _ERR and len(payload) >= 3:
        return f"error {read_err(payload).error_code}"
    return f"packet {payload[:1].hex()} of {len(payload)} bytes"
