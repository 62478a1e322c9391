"""A transport of our own: what goes over a socket goes at once, and with few calls in between.

The event loop says when there is something to read, or room to write; all else is done here. To
the event loop's own transports a small packet is a buffer to allocate, a queue to stand in until
the end of the turn, and a dozen calls.
"""

import asyncio
import socket
from collections import deque
from typing import Protocol

READ_BYTES = 65_536
"""At once: so much is allocated each time, which the C library maps anew where it is twice that."""
READS = 16
"""So often at the most in a turn: others want one."""


class Receiver(Protocol):
    """What a transport calls: see `asyncio.Protocol`."""

    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def connection_lost(self, error: Exception | None) -> None: ...


class Transport(Protocol):
    """What a channel asks of what carries it: see `SocketTransport`."""

    @property
    def socket(self) -> socket.socket: ...
    def set_write_buffer_limits(self, high: int) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def is_closing(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def write(self, data: bytes | memoryview) -> None: ...
    def write_eof(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class SocketTransport:
    """What `asyncio.Transport` promises a protocol, for a connected stream socket.

    It is the owner of the socket, which must not block, and reads from `resume_reading` on. Nothing
    is called back within `write`, `close` or `abort`, but for `pause_writing`.
    """

    __slots__ = ("_closing", "_ended", "_eof", "_has_last_words", "_high", "_loop", "_paused",
                 "_pending", "_pending_bytes", "_protocol", "_reading", "_sent", "_wrote",
                 "hears_out", "socket")  # fmt: skip

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, protocol: Receiver
    ) -> None:
        self._loop = loop
        self.socket = sock
        """What `detach` gives away."""
        self.hears_out = False
        """Whether it tells, where sending fails, what the peer has said before: a server says why
        it ends a connection."""
        self._protocol = protocol
        self._pending: deque[bytes | memoryview] = deque()
        self._sent = 0  # bytes of the first of them
        self._pending_bytes = 0
        self._high = 65_536
        self._paused = False  # the protocol was told to
        self._reading = False
        self._wrote = False  # since something came last
        self._eof = False  # it is to be sent, or was
        self._closing = False
        self._ended = False
        self._has_last_words = False  # the peer may have said some, which are to be told

    def detach(self) -> socket.socket:
        """The connection, for another to own. The transport is no more."""
        self._has_last_words = False
        self._stop()
        self._ended = self._closing = True
        handed = self.socket.dup()
        self.socket.close()
        return handed

    def set_protocol(self, protocol: Receiver) -> None:
        """What comes from here on is for another."""
        self._protocol = protocol

    def set_write_buffer_limits(self, high: int) -> None:
        """The protocol is to pause when more than so many bytes wait."""
        self._high = high

    def get_write_buffer_size(self) -> int:
        """How many bytes wait to be sent."""
        return self._pending_bytes

    def is_closing(self) -> bool:
        """Whether it ends, or has ended."""
        return self._closing

    def pause_reading(self) -> None:
        """Nothing more is read, nor is it noticed that the peer goes."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self.socket)

    def resume_reading(self) -> None:
        """Begins to read, or goes on after `pause_reading`."""
        if not self._reading and not self._closing:
            self._reading = True
            self._loop.add_reader(self.socket, self._read)

    def write(self, data: bytes | memoryview) -> None:
        """Sends `data`, as much as the kernel takes now, the rest when it takes more."""
        self._wrote = True
        if self._closing or self._eof or not data:
            return
        sent = 0
        if not self._pending:
            try:
                sent = self._send(data)
            except OSError as error:
                self._fail(error)
                return
            if sent == len(data):
                return
            self._sent = sent
            self._loop.add_writer(self.socket, self._write)
        self._pending.append(data)
        self._pending_bytes += len(data) - sent
        if self._pending_bytes > self._high and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        """Nothing is sent after what was written."""
        if not self._eof and not self._closing:
            self._eof = True
            if not self._pending:
                self._shut()

    def close(self) -> None:
        """Ends the connection after what was written is sent."""
        self._has_last_words = False
        if self._closing:
            return
        self.pause_reading()
        self._closing = True
        if not self._pending:
            self._end(None)

    def abort(self) -> None:
        """Ends the connection at once."""
        self._has_last_words = False
        self._end(None)

    # What the event loop calls.

    def _read(self) -> None:
        """Reads on, where what came was not answered at once, until nothing is left: the loop does
        not tell of an error that comes with data, and only who writes would find it."""
        for _ in range(READS):
            if not self._reading:
                return
            try:
                data = self.socket.recv(READ_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._end(error)
                return
            self._wrote = False
            self._receive(data)
            if self._wrote or not data:
                return
        self._loop.call_soon(self._read)

    def _receive(self, data: bytes) -> None:
        try:
            if data:
                self._protocol.data_received(data)
            elif not self._protocol.eof_received():
                self.close()
            else:
                self.pause_reading()
        except Exception as error:
            self._end(error)
            raise

    def _write(self) -> None:
        try:
            while self._pending:
                left = memoryview(self._pending[0])[self._sent :]
                sent = self._send(left)
                self._pending_bytes -= sent
                if sent < len(left):
                    self._sent += sent
                    break
                self._pending.popleft()
                self._sent = 0
        except OSError as error:
            self._fail(error)
            return
        if self._paused and self._pending_bytes <= self._high // 4:
            self._paused = False
            self._protocol.resume_writing()
        if not self._pending:
            self._written()

    def _written(self) -> None:
        self._loop.remove_writer(self.socket)
        if self._closing:
            self._end(None)
        elif self._eof:
            self._shut()

    def _send(self, data: bytes | memoryview) -> int:
        try:
            return self.socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0

    # How it ends.

    def _shut(self) -> None:
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._end(error)

    def _fail(self, error: OSError) -> None:
        """Nothing can be sent any more."""
        self._has_last_words = self.hears_out and self._reading
        self._end(error)

    def _hear_out(self) -> None:
        """Tells what came before that, which the socket has still."""
        for _ in range(READS):
            if not self._has_last_words:  # who was told has heard enough
                return
            try:
                data = self.socket.recv(READ_BYTES)
            except OSError:
                return
            if not data:
                return
            self._protocol.data_received(data)

    def _end(self, error: Exception | None) -> None:
        """The protocol is told in a turn of its own."""
        if self._ended:
            return
        self._stop()
        self._ended = self._closing = True
        self._loop.call_soon(self._lost, error)

    def _stop(self) -> None:
        self.pause_reading()
        if self._pending:
            self._loop.remove_writer(self.socket)
            self._pending.clear()
            self._pending_bytes = 0

    def _lost(self, error: Exception | None) -> None:
        try:
            self._hear_out()
        finally:
            self._tell_of_end(error)

    def _tell_of_end(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            del self._protocol  # which has this, or only the garbage collector would free them
            self.socket.close()
