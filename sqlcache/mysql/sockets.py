"""Sockets that listen for clients, and those that reach a server."""

import asyncio
import errno
import logging
import os
import select
import socket
from collections.abc import Callable

from sqlcache.host_names import addresses, is_address
from sqlcache.patience import Patience
from sqlcache.process.forks import leave_at_fork

log = logging.getLogger(__name__)

_BACKLOG = 1024
_AT_ONCE = 64  # connections in a turn of the event loop
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_LOOKS_AGAIN_S = 1.0


class Listener:
    """Accepts at a socket that is bound, and hands each connection to `accepted`, with its peer's
    address, until `close`.

    While the process may have no more files it accepts nothing: who connects has to wait.
    Raises: OSError where others have the address.
    """

    def __init__(
        self, sock: socket.socket, accepted: Callable[[socket.socket, object], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = sock
        self._accepted = accepted
        self._timer: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            _set_options(sock)  # which those that it accepts have from it
        sock.listen(_BACKLOG)
        self._waits = select.poll()
        self._waits.register(sock, select.POLLIN)
        self._resume()

    def close(self) -> None:
        """Accepts no more: who connects is refused."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    def _resume(self) -> None:
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _NO_ROOM:
                    log.error("no connection can be accepted error=%s", error)
                    self._loop.remove_reader(self._socket)
                    self._timer = self._loop.call_later(_LOOKS_AGAIN_S, self._resume)
                    return
                continue  # this one has gone again
            self._accepted(connection, peer)
            if not self._waits.poll(0):  # to be told so by an exception takes ten times as long
                return


async def connected(
    host: str, port: int, unix_socket: str | None, within_s: float
) -> socket.socket:
    """A new connection: to the socket of that path, if there is one, else to host and port.

    Raises: OSError; TimeoutError.
    """
    if unix_socket is not None:
        return _begun(socket.AF_UNIX, unix_socket)[0]
    if is_address(host):
        sock, stands = _begun(*_place(host, port))
        if not stands:
            with Patience(within_s):
                await _decided(sock)
        return sock
    with Patience(within_s):
        failed = OSError(f"{host} has no address")
        for address in await addresses(host):
            try:
                sock, stands = _begun(*_place(address, port))
                if not stands:
                    await _decided(sock)
                return sock
            except OSError as error:
                failed = error
        raise failed


def route(sock: socket.socket, peer: object) -> str:
    """Which way a connection to this peer goes: from which address to which, or to which socket. Of
    those that one machine makes the same way, the server sees that they come from one host."""
    return f"{sock.getsockname()[0]} {peer}" if isinstance(peer, tuple) else str(peer)


def _place(address: str, port: int) -> tuple[int, tuple[object, ...]]:
    """The family of an address, and what a socket of it connects to, its zone included."""
    if ":" not in address:
        return socket.AF_INET, (address, port)
    bare, _, zone = address.partition("%")
    number = int(zone) if zone.isdigit() else socket.if_nametoindex(zone) if zone else 0
    return socket.AF_INET6, (bare, port, 0, number)


def _begun(family: int, address: tuple[object, ...] | str) -> tuple[socket.socket, bool]:
    """A socket that connects, and whether that is done. On the same machine it is when the call
    returns, though it says otherwise: to ask once more takes less than to be told by the event
    loop. Raises: OSError."""
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        leave_at_fork(sock)
        if family == socket.AF_UNIX:  # at once, or not: one that is full says that it is busy
            sock.connect(address)
            return sock, True
        _set_options(sock)
        code = sock.connect_ex(address)
        if code == errno.EINPROGRESS:
            code = sock.connect_ex(address)
        if code != errno.EALREADY:
            _check(code)
        return sock, code != errno.EALREADY
    except BaseException:
        sock.close()
        raise


async def _decided(sock: socket.socket) -> None:
    """Returns when it has connected. Raises: OSError where it cannot; it is closed then."""
    loop = asyncio.get_running_loop()
    decided: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_writer(sock, _decide, decided)
        try:
            await decided
        finally:
            loop.remove_writer(sock)
        _check(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    except BaseException:
        sock.close()
        raise


def _check(code: int) -> None:
    if code not in (0, errno.EISCONN):
        raise OSError(code, os.strerror(code))


def _set_options(sock: socket.socket) -> None:
    """What is written goes at once, and a peer that is there no more is noticed some day."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _decide(decided: asyncio.Future[None]) -> None:
    if not decided.done():
        decided.set_result(None)
