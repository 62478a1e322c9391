"""Accepts MySQL clients, and gives each its own connection to MySQL and its own session."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from sqlcache.cache.engine import Engine
from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import CR_CONN_HOST_ERROR, ER_CON_COUNT_ERROR
from sqlcache.mysql.packets import err_packet
from sqlcache.mysql.sockets import Listener, connected, route
from sqlcache.plan.planner import Planner
from sqlcache.proxy.admission import Admission
from sqlcache.proxy.embedded_session import EmbeddedSession
from sqlcache.proxy.login import LoginRelay
from sqlcache.proxy.session import Session
from sqlcache.proxy.session_options import SessionOptions
from sqlcache.proxy.sessions import Sessions
from sqlcache.tls import ClientTls, UpstreamTls
from sqlcache.upstream_errors import UpstreamErrors

log = logging.getLogger(__name__)

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
        sock = await connected(self.host, self.port, self.unix_socket, self.connect_timeout_s)
        peer = sock.getpeername()
        channel = Channel.over(sock, buffer_bytes=buffer_bytes, peer=peer, hears_out=True)
        channel.route = route(sock, peer)
        return channel


class Server:
    """The listening socket and the sessions behind it.

    `idle_timeout_s`: see `Sessions`. `make_good` is told of each login that broke off, with the
    connection to MySQL if nobody has answered its greeting.
    """

    def __init__(
        self,
        upstream: Upstream,
        engine: Engine,
        planner: Planner,
        metrics: Metrics,
        options: SessionOptions,
        *,
        admission: Admission,
        errors: UpstreamErrors,
        idle_timeout_s: float,
        buffer_bytes: int,
        tls: ClientTls,
        make_good: Callable[[Channel | None], Awaitable[None]],
    ) -> None:
        self._upstream = upstream
        self._engine = engine
        self._planner = planner
        self._metrics = metrics
        self._options = options
        self._admission = admission
        self._errors = errors
        self._buffer_bytes = buffer_bytes
        self._tls = tls
        self._make_good = make_good
        self.sessions = Sessions(metrics, idle_timeout_s)
        """All that it serves."""
        self._listeners: list[Listener] = []
        self._draining = False

    def listen(self, sockets: Sequence[socket.socket]) -> int:
        """Begins to accept at these, which are bound; returns the port.

        Raises: OSError where others have it.
        """
        port: int = sockets[0].getsockname()[1]
        for sock in sockets:
            self._listeners.append(Listener(sock, self._accept))
        self.sessions.begin_sweeping()
        return port

    def use_tls(self, offered: ClientTls, spoken: UpstreamTls) -> None:
        """What clients that connect from here on are offered, and what is spoken with MySQL."""
        self._tls = offered
        self._upstream = replace(self._upstream, tls=spoken)

    async def join(self, sock: socket.socket) -> EmbeddedSession:
        """Serves a client of this very process, which has the other end of the socket pair.

        Raises: OSError, TimeoutError where MySQL cannot be reached, or nobody is served any more;
        the socket is closed.
        """
        try:
            upstream = await self._upstream.connect(self._buffer_bytes)
        except (OSError, TimeoutError):
            self._errors.unreachable()
            sock.close()
            raise
        if self._draining:
            upstream.close()
            sock.close()
            raise ConnectionAbortedError("no more clients are served")
        client = Channel.over(sock, buffer_bytes=self._buffer_bytes)
        self._metrics.connections_accepted += 1
        logins = self._logins(client, upstream, ClientTls(inside=True), None)
        session = self._session(client, upstream, logins, embedded=True)
        running = asyncio.get_running_loop().create_task(
            self._run(session, logins, client, upstream)
        )
        self.sessions.add(running, session)
        longest_bytes = self._options.max_statement_bytes
        return EmbeddedSession(client, upstream, self._engine, session.way, longest_bytes)

    async def drain(self, timeout_s: float) -> None:
        """Stops accepting, lets what is under way finish for so long, then ends all sessions. If it
        is cancelled, it does that at once."""
        self._draining = True
        for listener in self._listeners:
            listener.close()
        await self.sessions.drain(timeout_s)

    def _accept(self, sock: socket.socket, peer: object) -> None:
        """Begins a session. Until it has logged in it holds little of what a client sends ahead."""
        client = Channel.over(sock, buffer_bytes=self._buffer_bytes, peer=peer)
        client.buffer_bytes = min(self._buffer_bytes, _LOGIN_BYTES)
        if not self._admission.take():
            client.write(err_packet(0, ER_CON_COUNT_ERROR, "Too many connections"))
            client.close()
            return
        self._metrics.connections_accepted += 1
        task = asyncio.get_running_loop().create_task(self._serve(client))
        task.add_done_callback(lambda _: self._admission.leave())
        self.sessions.add(task, None)

    async def _serve(self, client: Channel) -> None:
        try:
            upstream = await self._upstream.connect(self._buffer_bytes)
        except OSError as error:  # TimeoutError is one
            self._errors.unreachable_for_client(error)
            self._admission.failed(str(CR_CONN_HOST_ERROR), client, None)
            client.write(err_packet(0, CR_CONN_HOST_ERROR, "sqlcache cannot reach MySQL"))
            client.close()
            return
        logins = self._logins(client, upstream, self._tls, self._admission)
        session = self._session(client, upstream, logins)
        task = asyncio.current_task()
        assert task is not None
        self.sessions.begun(task, session)
        if self._draining:  # it was accepted before
            session.drain()
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
            logins.leave()
            upstream.close()
        await client.gone(_FAREWELL_S)

    def _logins(
        self, client: Channel, upstream: Channel, tls: ClientTls, admission: Admission | None
    ) -> LoginRelay:
        to_mysql, keeper = self._upstream, self._planner.keeper
        return LoginRelay(
            client,
            upstream,
            tls,
            to_mysql.tls,
            to_mysql.barred,
            admission,
            self._errors,
            keeper.witness(),
            tracks=self._options.names_commits and keeper.tells_commits,
        )

    def _session(
        self, client: Channel, upstream: Channel, logins: LoginRelay, *, embedded: bool = False
    ) -> Session:
        return Session(
            client,
            upstream,
            self._engine,
            self._planner,
            self._metrics,
            self._options,
            logins,
            self._errors,
            embedded=embedded,
        )
