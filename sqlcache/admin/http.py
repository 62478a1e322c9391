"""A small HTTP/1.1 server for pages that are made when asked for: GET and HEAD, keep-alive.

- h11 reads and writes the protocol; what it refuses is answered 4xx and ends the connection.
- Nobody can make it hold much: a request's head is bounded, its body is never read, connections
  are bounded in number, and one that does not get on with its request or its answer is closed.
- A page that fails is a 500 and a log line, never the end of the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from inspect import isawaitable
from typing import Final

import h11

from sqlcache.errors import ConfigError
from sqlcache.settings import HostPort

_log = logging.getLogger("sqlcache.admin")

MAX_HEAD_BYTES: Final = 16_384
MAX_CONNECTIONS: Final = 100
IDLE_TIMEOUT_S: Final = 30.0

_METHODS: Final = (b"GET", b"HEAD")


@dataclass(frozen=True, slots=True)
class Response:
    """One answer: its status, body and media type."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


Route = Callable[[], Response | Awaitable[Response]]


class AdminServer:
    """Serves `routes`, a page for each path, at `listen`."""

    def __init__(self, listen: HostPort, routes: Mapping[str, Route]) -> None:
        self._listen = listen
        self._routes = routes
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Returns when it accepts. Raises: ConfigError when the address cannot be used."""
        try:
            self._server = await asyncio.start_server(
                self._accept, self._listen.host, self._listen.port
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"admin.listen = {self._listen}: cannot listen: {reason}") from None

    @property
    def address(self) -> HostPort:
        """Where it really listens: differs from `listen` where that had port 0."""
        assert self._server is not None, "start() first"
        host, port = self._server.sockets[0].getsockname()[:2]
        return HostPort(host, port)

    async def stop(self) -> None:
        """Stops accepting and ends all connections."""
        if self._server is None:
            return
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) <= MAX_CONNECTIONS:
                await _Connection(reader, writer, self._answer).serve()
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, path: str) -> Response:
        route = self._routes.get(path)
        if route is None:
            return Response(404, b"not found; there is " + " ".join(self._routes).encode() + b"\n")
        try:
            made = route()
            return await made if isawaitable(made) else made
        except Exception:
            _log.exception("page failed path=%s", path)
            return Response(500, b"internal error\n")


class _Connection:
    """One client's requests, one after another."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answer: Callable[[str], Awaitable[Response]],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._answer = answer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)

    async def serve(self) -> None:
        """Returns when the connection is to be closed, by whomever's wish."""
        try:
            while await self._serve_one():
                self._http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            await self._refuse(error)
        except (OSError, TimeoutError):
            pass  # the client has gone or has stalled: there is nobody to tell

    async def _serve_one(self) -> bool:
        """Answers one request; whether another may follow."""
        request = await self._next_request()
        if request is None:
            return False
        if request.method in _METHODS:
            response = await self._answer(request.target.partition(b"?")[0].decode("ascii"))
        else:
            response = Response(405, b"only GET and HEAD\n", headers=(("Allow", "GET, HEAD"),))
        at_end = self._reached_end()
        await self._send(response, head=request.method == b"HEAD", close=not at_end)
        return at_end and self._http.our_state is h11.DONE

    async def _next_request(self) -> h11.Request | None:
        async with asyncio.timeout(IDLE_TIMEOUT_S):
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.Request):
                    return event
                if event is not h11.NEED_DATA:
                    return None
                self._http.receive_data(await self._reader.read(65_536))

    def _reached_end(self) -> bool:
        """Whether the request had no body, so that what follows it is the next request."""
        return isinstance(self._http.next_event(), h11.EndOfMessage)

    async def _send(self, response: Response, head: bool = False, close: bool = False) -> None:
        headers = [
            ("Content-Type", response.content_type),
            ("Content-Length", str(len(response.body))),
            ("Cache-Control", "no-store"),
            *response.headers,
            *([("Connection", "close")] if close else []),
        ]
        reason = HTTPStatus(response.status).phrase
        events: list[h11.Event] = [
            h11.Response(status_code=response.status, headers=headers, reason=reason)
        ]
        if not head:
            events.append(h11.Data(data=response.body))
        events.append(h11.EndOfMessage())
        for event in events:
            self._writer.write(self._http.send(event) or b"")
        async with asyncio.timeout(IDLE_TIMEOUT_S):
            await self._writer.drain()

    async def _refuse(self, error: h11.RemoteProtocolError) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = f"{HTTPStatus(error.error_status_hint).phrase.lower()}\n".encode()
            await self._send(Response(error.error_status_hint, body), close=True)
