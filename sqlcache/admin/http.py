"""The HTTP server of the admin door: uvicorn, in the event loop of the process that serves.

Nobody can make it hold much: a request's head is bounded, connections are bounded in number, and
one that does not get on with its request or its answer is closed. Nor can anybody keep the loop
from MySQL's clients by what he sends: of each connection little is read in a turn, and of a request
no more than a page could want. Nor can those who ask nothing, ask for much at once, or do not read
what they asked for, keep a probe from asking: where there is no room, who has kept the door waiting
for longest has to go.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from sqlcache.errors import cannot_listen
from sqlcache.settings import HostPort

MAX_HEAD_BYTES: Final = 16_384
MAX_HEAD_LINES: Final = 100  # as in Apache; what comes whole in one turn may have more
MAX_REQUEST_BYTES: Final = 2_000_000  # on the wire: who sends a little too much is still told so
MAX_CONNECTIONS: Final = 100
IDLE_TIMEOUT_S: Final = 30.0

_BACKLOG: Final = 128
_LACKING: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})  # no address of this machine
_TURN_BYTES: Final = 1_024  # in chunks of a byte they take h11 a millisecond
_END_S: Final = 1  # for what is under way when it is stopped


class _Server(uvicorn.Server):
    """One that leaves signals to the program it is a part of."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepts = asyncio.Event()
        self.ends = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepts.set()

    async def main_loop(self) -> None:
        """Waits for its end, where uvicorn's own looks for it ten times a second."""
        await self.on_tick(0)
        await self.ends.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Gives time only to what is connected, and cuts off what is left of that."""
        if self.server_state.connections:
            await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # or Python would wait for it, from 3.12 on
        for server in self.servers:
            server.close()
            await server.wait_closed()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Connection(H11Protocol):
    """One that is closed where nothing is whole in time: a request's head, or its answer."""

    _deadline: asyncio.TimerHandle | None = None
    _answered: object = None
    _came_bytes = 0  # of the body of that request, and of the next one's head

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_protocol(_Portions(self))
        self._begin_anew()
        if len(self.connections) > MAX_CONNECTIONS:
            goes = min(self._awaited(), key=_Connection._ends_at)
            self.connections.discard(goes)  # else it would be who goes for another, too
            goes.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._came_bytes += len(data)
        if self.cycle is not self._answered:  # another request has come whole
            self._answered = self.cycle
            self._came_bytes = 0
            self._begin_anew()
        if self._unread_lines() > MAX_HEAD_LINES:
            self.send_400_response(f"expected at most {MAX_HEAD_LINES} lines\n")
        if self._came_bytes > MAX_REQUEST_BYTES:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """What came last is no HTTP. Its page, if there is one, finds that it has gone, as it does
        where the client has; who has been told a part of an answer hears no more."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def on_response_complete(self) -> None:
        self._begin_anew()
        super().on_response_complete()

    def _unread_lines(self) -> int:
        """How many there are of a head, or of a body's trailer, that has not come whole. Each costs
        microseconds when it has, however short it is, and all are parsed in one turn."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            return 0
        return self.conn.trailing_data[0].count(b"\n")

    def _awaited(self) -> Iterator[_Connection]:
        """Those that wait for their client: to ask, to send the rest of its request, or to read.
        This one is among them at first. And those that have asked for more before they had their
        answer: else who does so all the while would never wait."""
        for each in self.connections:
            assert isinstance(each, _Connection)
            cycle = each.cycle
            if (
                cycle is None
                or cycle.response_complete
                or cycle.more_body
                or each.flow.write_paused
                or each.flow.read_paused
            ):
                yield each

    def _ends_at(self) -> float:
        return 0.0 if self._deadline is None else self._deadline.when()

    def _begin_anew(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(IDLE_TIMEOUT_S, self.transport.abort)


class _Portions(asyncio.BufferedProtocol):
    """Gives a connection what its client sends, at most `_TURN_BYTES` in a turn of the loop; the
    rest stays in the kernel. Else h11 would parse in one go all that has come, which uvloop reads
    by the megabyte."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._room = bytearray(_TURN_BYTES)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.transport.pause_reading()
        self._connection.loop.call_soon(self._read_on)
        self._connection.data_received(bytes(self._room[:nbytes]))

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def _read_on(self) -> None:
        """Unless the connection has had enough: it says itself when it wants more."""
        connection = self._connection
        if not connection.flow.read_paused and not connection.transport.is_closing():
            connection.transport.resume_reading()


class AdminServer:
    """Serves an ASGI application at `listen`."""

    def __init__(self, listen: HostPort, application: ASGIApp) -> None:
        self._listen = listen
        self._sockets: list[socket.socket] = []
        self._serving: asyncio.Task[None] | None = None
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        self._server = _Server(
            uvicorn.Config(
                application,
                http=_Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                backlog=_BACKLOG,
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                timeout_keep_alive=int(IDLE_TIMEOUT_S),
                timeout_graceful_shutdown=_END_S,
            )
        )

    async def bind(self) -> None:
        """Has the address from then on: who connects waits for the start. Raises: ConfigError when
        it cannot be used."""
        try:
            self._sockets = await _bound(self._listen)
        except OSError as error:
            raise cannot_listen("admin.listen", self._listen, error) from None

    async def start(self) -> None:
        """Returns when it answers. Raises: ConfigError as `bind`, where that was not called."""
        if not self._sockets:
            await self.bind()
        self._serving = asyncio.create_task(self._server.serve(self._sockets))
        await self._server.accepts.wait()

    @property
    def address(self) -> HostPort:
        """Where it really listens, first of all: differs from `listen` where that had port 0."""
        assert self._sockets, "bind() first"
        host, port = self._sockets[0].getsockname()[:2]
        return HostPort(host, port)

    async def stop(self) -> None:
        """Stops accepting and ends all connections."""
        if self._serving is not None:
            self._server.ends.set()
            await self._serving
            self._serving = None
        _close(self._sockets)


async def _bound(listen: HostPort) -> list[socket.socket]:
    """Sockets at all addresses of the host that the machine has: `localhost` means one of IPv6 also
    where that is switched off. Raises: ConfigError where it has none, or one cannot be had; OSError
    where the name means nothing."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)
    made: list[socket.socket] = []
    number = listen.port
    for family, kind, protocol, _, (host, _, *rest) in dict.fromkeys(found):
        try:
            made.append(_listening(family, kind, protocol, (host, number, *rest)))
            number = made[0].getsockname()[1]
        except OSError as error:
            problem = cannot_listen("admin.listen", listen, error, host)
            if error.errno not in _LACKING:
                _close(made)
                raise problem from None
    if not made:
        raise problem
    return made


def _listening(family: int, kind: int, protocol: int, address: tuple[Any, ...]) -> socket.socket:
    """Raises: OSError."""
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()
