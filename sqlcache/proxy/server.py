"""Accepts MySQL clients, and gives each its own connection to MySQL and its own session."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sqlcache.cache.engine import Engine
from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import CR_CONN_HOST_ERROR, ER_CON_COUNT_ERROR
from sqlcache.mysql.packets import err_packet
from sqlcache.plan.planner import Planner
from sqlcache.proxy.login import ClientTls, LoginRelay, UpstreamTls
from sqlcache.proxy.longway import Limits
from sqlcache.proxy.relay import Room
from sqlcache.proxy.session import Session

log = logging.getLogger(__name__)

_BACKLOG = 1024
_AHEAD_BYTES = 64 << 20  # of answers that others wait for
_KEPT_BYTES = 256 << 20  # of answers that are to be stored, while they go by
_LOGIN_BYTES = 16_384  # of a client that has not logged in: there may be very many
_FAREWELL_S = 10.0  # for a client to take what was written, after its session's end


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where MySQL is: a socket's path, or host and port; and whether to speak TLS there."""

    host: str
    port: int
    unix_socket: str | None
    connect_timeout_s: float
    tls: UpstreamTls
    barred: frozenset[bytes] = frozenset()
    """Users who may not log in, see `LoginRelay`."""

    async def connect(self, buffer_bytes: int) -> Channel:
        """A new connection. Raises: OSError, TimeoutError."""
        loop = asyncio.get_running_loop()

        def channel() -> Channel:
            return Channel(buffer_bytes=buffer_bytes)

        async with asyncio.timeout(self.connect_timeout_s):
            if self.unix_socket is not None:
                _, connected = await loop.create_unix_connection(channel, self.unix_socket)
            else:
                _, connected = await loop.create_connection(channel, self.host, self.port)
        return connected


class _Client(Channel):
    """A client's channel, which begins its session as soon as it is connected. Until it has logged
    in it holds little of what it sends ahead."""

    def __init__(self, begin: Callable[["_Client"], None], *, buffer_bytes: int) -> None:
        super().__init__(buffer_bytes=buffer_bytes)
        self._begin = begin

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.buffer_bytes = min(self.buffer_bytes, _LOGIN_BYTES)
        self._begin(self)


class Server:
    """The listening socket and the sessions behind it.

    `make_good` is told of each login that broke off, with the connection to MySQL if nobody has
    answered its greeting.
    """

    def __init__(
        self,
        upstream: Upstream,
        engine: Engine,
        planner: Planner,
        metrics: Metrics,
        limits: Limits,
        *,
        max_connections: int,
        buffer_bytes: int,
        tls: ClientTls,
        make_good: Callable[[Channel | None], Awaitable[None]],
    ) -> None:
        self._upstream = upstream
        self._engine = engine
        self._planner = planner
        self._metrics = metrics
        self._limits = limits
        self._max_connections = max_connections
        self._buffer_bytes = buffer_bytes
        self._tls = tls
        self._make_good = make_good
        self._ahead = Room(_AHEAD_BYTES)
        self._for_entries = Room(_KEPT_BYTES)
        self._sessions: dict[asyncio.Task[None], Session | None] = {}
        self._listener: asyncio.Server | None = None
        self._draining = False
        self._full = False
        """Whether clients have been refused since there was last room for more."""

    async def listen(self, host: str, port: int, *, share_port: bool) -> int:
        """Begins to accept; returns the port. `share_port` lets other processes listen there too.

        Raises: OSError where the address cannot be had.
        """
        self._listener = await asyncio.get_running_loop().create_server(
            lambda: _Client(self._accept, buffer_bytes=self._buffer_bytes),
            host,
            port,
            backlog=_BACKLOG,
            reuse_port=share_port,
        )
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def join(self, sock: socket.socket) -> Session:
        """Serves a client of this very process, which has the other end of the socket pair.

        Raises: OSError, TimeoutError where MySQL cannot be reached; the socket is closed.
        """
        try:
            upstream = await self._upstream.connect(self._buffer_bytes)
        except (OSError, TimeoutError):
            self._metrics.upstream_errors += 1
            sock.close()
            raise
        client = Channel(buffer_bytes=self._buffer_bytes)
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: client, sock=sock)
        self._metrics.connections_accepted += 1
        logins = self._logins(client, upstream, ClientTls(inside=True))
        session = self._session(client, upstream, logins, embedded=True)
        self._track(loop.create_task(self._run(session, logins, client, upstream)), session)
        return session

    async def drain(self, timeout_s: float) -> None:
        """Stops accepting, lets what is under way finish for so long, then ends all sessions."""
        self._draining = True
        if self._listener is not None:
            self._listener.close()
        for session in self._sessions.values():
            if session is not None:
                session.drain()
        if self._sessions:
            await asyncio.wait(self._sessions, timeout=timeout_s)
        self.cut()
        if self._sessions:
            await asyncio.wait(self._sessions)

    def cut(self) -> None:
        """Ends all sessions at once, whatever they are at."""
        if self._sessions:
            sessions = self._sessions.values()
            amid = sum(session is not None and session.in_transaction for session in sessions)
            log.warning("sessions cut sessions=%d in_transaction=%d", len(sessions), amid)
        for task in self._sessions:
            task.cancel()

    def _accept(self, client: _Client) -> None:
        if len(self._sessions) >= self._max_connections:
            if not self._full:
                log.warning("clients are refused, too many connections=%d", len(self._sessions))
            self._full = True
            client.write(err_packet(0, ER_CON_COUNT_ERROR, "Too many connections"))
            client.close()
            return
        self._full = False
        self._metrics.connections_accepted += 1
        self._track(asyncio.get_running_loop().create_task(self._serve(client)), None)

    def _track(self, task: "asyncio.Task[None]", session: Session | None) -> None:
        self._sessions[task] = session
        self._metrics.connections_open = len(self._sessions)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._sessions[task]
        self._metrics.connections_open = len(self._sessions)
        if not task.cancelled() and task.exception() is not None:
            log.error("session failed", exc_info=task.exception())

    async def _serve(self, client: _Client) -> None:
        try:
            upstream = await self._upstream.connect(self._buffer_bytes)
        except (OSError, TimeoutError) as error:
            self._metrics.upstream_errors += 1
            log.warning("upstream not reached error=%s", error or "timeout")
            client.write(err_packet(0, CR_CONN_HOST_ERROR, "sqlcache cannot reach MySQL"))
            client.close()
            return
        if self._draining:
            upstream.close()
            client.close()
            return
        logins = self._logins(client, upstream, self._tls)
        session = self._session(client, upstream, logins)
        task = asyncio.current_task()
        assert task is not None
        self._sessions[task] = session
        await self._run(session, logins, client, upstream)

    async def _run(
        self, session: Session, logins: LoginRelay, client: Channel, upstream: Channel
    ) -> None:
        try:
            try:
                await session.run()
            except Exception:  # of a login, too: MySQL has counted it all the same
                log.exception("session failed")
            if logins.broke_off:
                await self._make_good(logins.unanswered())
        finally:
            upstream.close()
        await client.gone(_FAREWELL_S)

    def _logins(self, client: Channel, upstream: Channel, tls: ClientTls) -> LoginRelay:
        return LoginRelay(client, upstream, tls, self._upstream.tls, self._upstream.barred)

    def _session(
        self, client: Channel, upstream: Channel, logins: LoginRelay, *, embedded: bool = False
    ) -> Session:
        return Session(
            client,
            upstream,
            self._engine,
            self._planner,
            self._metrics,
            self._limits,
            logins,
            self._ahead,
            self._for_entries,
            embedded=embedded,
        )
