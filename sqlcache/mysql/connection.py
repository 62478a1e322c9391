"""A byte channel to a MySQL client or server: back-pressure both ways, and TLS when asked for.

What arrives waits in one buffer until it is taken. A full buffer stops the reading of the socket,
and `drain` waits while the other side is slow to take what was written, so the memory of a channel
is bounded whatever streams through it. What a byte costs there does not grow with how many wait, in
however small pieces they come and are taken.

TLS is done here, over `ssl.MemoryBIO`, and not by the event loop: a peer may send the first bytes
of its TLS handshake in the same segment as the packet that asks for it. However short its records
are, others have their turns between them.
"""

import asyncio
import select
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from sqlcache.errors import ConnectionLost, ProtocolError
from sqlcache.implementation import IMPLEMENTATION
from sqlcache.mysql.foretold import OF_PREPARING, Foretold, SentAhead, ToCome, is_as_foretold
from sqlcache.mysql.packets import HEADER_BYTES, payload_bytes
from sqlcache.mysql.tls import Tls

if IMPLEMENTATION == "compiled":
    from sqlcache._kernel import SocketTransport
else:
    from sqlcache.mysql.transport import SocketTransport

if TYPE_CHECKING:
    from sqlcache.mysql.transport import Transport

_MOST_TOLD_BYTES = 65_536  # of a session, in one OK


class Channel:
    """One connection's bytes. Used by one coroutine, apart from `intercept` and `on_change`."""

    # In one piece: each statement goes through it several times, and a room would be a hop more.

    def __init__(self, *, buffer_bytes: int) -> None:
        self.buffer_bytes = buffer_bytes
        self.closed = False
        """The peer has gone, or `close` was called: nothing more comes."""
        self.intercept: Callable[[bytes], bool] | None = None
        """Offered what arrives while the buffer is empty; True means it has taken it."""
        self.on_change: Callable[[], None] | None = None
        """Called when the buffer got more, or the connection ended."""
        self.peer: object = None
        """The other side's address as the socket has it, if it is known."""
        self.route = ""
        """Which way it goes to a server, see `sockets.route`."""
        self.odd_answer = b""
        """What the peer said where another answer was `foretold`: the connection ends with it."""
        self.congested = False
        """Whether the peer is slow to take what was written; see `drain`."""
        self.hides_tracking = False
        """Whether the peer, a server, tells in its OKs of the session what is not to be passed
        on, see `tracking`: so it is in what was `foretold`."""
        self._buffer = b""  # empty only if there is nothing behind it
        self._taken = 0  # bytes of it
        self._behind: bytearray | None = None
        self._ahead: list[SentAhead] = []  # to be sent with what comes
        # Their packets to come. Few: an empty deque takes ten times a list.
        self._foretold: list[ToCome] = []
        self._early = b""  # of them
        self._transport: Transport | None = None
        self._lost = False
        self._tls: Tls | None = None
        self._decrypts_later = False
        self._reading = True
        self._writing = True
        self._readable: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._when_sent: tuple[Callable[[], None], ...] = ()

    @classmethod
    def over(
        cls,
        sock: socket.socket,
        *,
        buffer_bytes: int,
        peer: object = None,
        hears_out: bool = False,
    ) -> Self:
        """One over a stream socket that is connected, whose owner it is from now on. `peer`: the
        other side's address as the socket has it, which only that of a socket pair need not tell.
        `hears_out`: see `SocketTransport`."""
        sock.setblocking(False)
        channel = cls(buffer_bytes=buffer_bytes)
        channel.peer = peer
        transport = SocketTransport(asyncio.get_running_loop(), sock, channel)
        transport.hears_out = hears_out
        channel.connection_made(transport)
        transport.resume_reading()
        return channel

    # What its transport calls.

    def connection_made(self, transport: "Transport") -> None:
        self._transport = transport
        transport.set_write_buffer_limits(self.buffer_bytes)

    def data_received(self, data: bytes) -> None:
        if self._tls is not None:
            self._tls_received(data)
        elif self._foretold:
            self._received(data)
        elif self._buffer or self.intercept is None or not self.intercept(data):
            self._feed(data)

    def _received(self, data: bytes) -> None:
        if self._foretold:
            data = self._without_foretold(data)
            if not data:
                return
        if self._buffer or self.intercept is None or not self.intercept(data):
            self._feed(data)

    def eof_received(self) -> bool:
        self._end_soon()
        return False  # a half-closed peer cannot be answered with confidence: the channel ends

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self._end()
        self._sent()

    def _end_soon(self) -> None:
        """The peer says nothing more. The transport goes on until it has taken what was written,
        which may be never."""
        if self.unsent_bytes:
            asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        self.closed = True
        self._wake()
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def pause_writing(self) -> None:
        self.congested = True
        if self._writable is None:
            self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        self.congested = False
        if self._writable is not None:
            if not self._writable.done():
                self._writable.set_result(None)
            self._writable = None
        self._sent()

    def _sent(self) -> None:
        waiting, self._when_sent = self._when_sent, ()
        for do in waiting:
            do()

    # What a session calls.

    @property
    def buffered(self) -> bytes:
        """What has arrived and was not taken yet, in one piece: where it comes, or is taken, in
        many, ask for less each time."""
        if self._taken or self._behind is not None:
            self._put_together()
        return self._buffer

    @property
    def buffered_bytes(self) -> int:
        """How much that is."""
        here = len(self._buffer) - self._taken
        return here if self._behind is None else here + len(self._behind)

    @property
    def has_some(self) -> bool:
        """Whether it is anything."""
        return bool(self._buffer)

    def head(self, at_most: int) -> bytes:
        """The first bytes of it, which stay where they are."""
        end = self._taken + at_most
        if end > len(self._buffer) and self._behind is not None:
            self._put_together()
            end = at_most
        return self._buffer[self._taken : end]

    def address(self) -> str:
        """The peer's address, for logs; "-" where it has none."""
        peer = self.peer
        return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "-"

    async def wait(self) -> None:
        """Returns when something changed: bytes arrived, the connection ended, or `wake` ran."""
        changed = self._readable = asyncio.get_running_loop().create_future()
        try:
            await changed
        finally:
            if self._readable is changed:  # a wait that was cancelled may end after the next began
                self._readable = None

    def wake(self) -> None:
        """Makes a `wait` under way return."""
        if self._readable is not None and not self._readable.done():
            self._readable.set_result(None)

    @property
    def lost(self) -> bool:
        """Whether the connection has ended both ways: of what was written nothing more is sent."""
        return self._lost

    @property
    def own_socket(self) -> socket.socket:
        """What it goes over; the channel is not closed."""
        assert self._transport is not None
        return self._transport.socket

    @property
    def encrypts(self) -> bool:
        """Whether what is written is sent as a copy of its own."""
        return self._tls is not None

    @property
    def is_free(self) -> bool:
        """Whether the peer, a server, takes a command: it has said nothing unasked, and takes what
        is written."""
        return not (self._buffer or self.closed or self.congested)

    def when_caught_up(self, do: Callable[[], None]) -> None:
        """Does this as soon as the peer is not slow to take what was written, or that is thrown
        away: not before, where it only says nothing more."""
        if not self.congested or self._lost:
            do()
        else:
            self._when_sent = (*self._when_sent, do)

    async def read(self, at_most: int | None = None) -> bytes:
        """The bytes at hand, at least one. Raises: ConnectionLost."""
        await self._at_least(1)
        size = self.buffered_bytes
        return self.take(size if at_most is None else min(size, at_most))

    def unread(self, data: bytes) -> None:
        """Puts back what was read too far."""
        self._buffer = data + self.buffered

    def take(self, size: int) -> bytes:
        """The next `size` bytes of the buffer, which holds as many."""
        if size == len(self._buffer) and self._behind is None and not self._taken:  # most often
            data, self._buffer = self._buffer, b""
            if not self._reading:
                self.read_on()
            return data
        data = self.head(size)
        self._taken += size
        if self._taken == len(self._buffer):
            self._buffer, self._behind = bytes(self._behind or b""), None
            self._taken = 0
        elif 2 * self._taken >= len(self._buffer):
            self._buffer = self._buffer[self._taken :]
            self._taken = 0
        if self.buffered_bytes < self.buffer_bytes:
            self.read_on()
        return data

    async def read_packet(self, max_bytes: int) -> bytes:
        """The next packet, header and payload, at most `max_bytes` of payload.

        Raises: ConnectionLost; ProtocolError for a longer one.
        """
        if self.buffered_bytes < HEADER_BYTES:
            await self._at_least(HEADER_BYTES)
        length = payload_bytes(self.head(HEADER_BYTES))
        if length > max_bytes:
            raise ProtocolError(f"a packet of {length} bytes where at most {max_bytes} may come")
        if self.buffered_bytes < HEADER_BYTES + length:
            await self._at_least(HEADER_BYTES + length)
        return self.take(HEADER_BYTES + length)

    async def peek(self, size: int) -> bytes:
        """The next `size` bytes, which stay where they are. Raises: ConnectionLost."""
        if self.buffered_bytes < size:
            await self._at_least(size)
        return self.head(size)

    def hand_over(self) -> tuple[socket.socket, bytes]:
        """The connection, for another to use, and what has come of it. The channel is no more.
        Raises: OSError where this process may open no more files; the connection has ended then."""
        transport, self._transport = self._transport, None
        assert isinstance(transport, SocketTransport)
        self.closed = True
        try:
            return transport.detach(), self.take(self.buffered_bytes)
        except OSError:
            transport.socket.close()
            raise

    def write(self, data: bytes | memoryview) -> None:
        """Sends `data`; to a closed channel, or after `end_writing`, nothing."""
        if self._transport is None or self.closed or not self._writing:
            return
        if self._ahead:
            for each in self._ahead:
                self._foretold += each.packets_to_come()
            data = b"".join([*(each.command for each in self._ahead), data])
            self.drop_ahead()
        if self._tls is not None:
            if self._tls.ended:
                return
            data = self._tls.encrypt(data)
        self._transport.write(data)

    def write_ahead(self, data: bytes, answer: bytes = b"") -> None:
        """Sends a command with whatever is written next, and before it. The peer's answer to it,
        an OK packet or rows, is foretold: it is taken here when it comes. Where the peer says
        anything else, the connection ends, see `odd_answer`. Without one there is none."""
        self._ahead.append(SentAhead(data, answer, None))

    def prepare_ahead(self, data: bytes, answer: bytes, came: Callable[[bytes], None]) -> None:
        """The same for a COM_STMT_PREPARE. The first packet of its answer `came`, which may tell of
        another number and other columns, or be an error."""
        self._ahead.append(SentAhead(data, answer, came))

    def take_back(self, data: bytes) -> bool:
        """Does not send a command at all that waits for the next to be written; whether it did."""
        waiting = [each for each in self._ahead if each.command is not data]
        taken_back = len(waiting) < len(self._ahead)
        self._ahead = waiting
        return taken_back

    @property
    def ahead(self) -> int:
        """How many commands wait for the next to be written that have one answer alone."""
        return sum(each.is_settled for each in self._ahead)

    @property
    def unsettled(self) -> int:
        """The same, and those that were written and of which that answer is still to come."""
        if not (self._ahead or self._foretold):
            return 0
        return self.ahead + sum(each.what is Foretold.LAST for each in self._foretold)

    @property
    def holds_back(self) -> bool:
        """Whether any command waits for the next to be written."""
        return bool(self._ahead)

    @property
    def oldest_ahead(self) -> bytes | None:
        """The first command that waits for the next to be written."""
        return self._ahead[0].command if self._ahead else None

    @property
    def newest_ahead(self) -> bytes | None:
        """The last command that waits for the next to be written."""
        return self._ahead[-1].command if self._ahead else None

    def drop_ahead(self) -> None:
        """They are not to be sent at all: nothing comes for which they matter."""
        self._ahead.clear()

    async def settle(self) -> None:
        """Sends them now, and returns when all has been answered as foretold.

        Raises: ConnectionLost.
        """
        self.write(b"")
        while self._foretold:
            if self.closed:
                raise ConnectionLost("the peer closed the connection")
            await self.wait()

    @property
    def unsent_bytes(self) -> int:
        """Of what was written, how much the peer has made wait."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    async def drain(self, within_s: float | None = None) -> bool:
        """Waits until less than `buffer_bytes` of what was written still wait to be sent, for so
        long at most. Whether that is so."""
        if self._writable is not None and not self.closed:
            await asyncio.wait([self._writable], timeout=within_s)
        return not self.congested or self.closed

    def has_lost_peer(self) -> bool:
        """Whether nothing more comes; also where that stands behind what was not read yet."""
        if self.closed or self._transport is None:
            return True
        if self._transport.socket.fileno() < 0:  # there is more to read all the same
            return True
        asks = select.poll()
        asks.register(self._transport.socket, select.POLLRDHUP)
        return bool(asks.poll(0))

    def end_writing(self) -> None:
        """Tells the peer that after what was written nothing more comes; it may still answer."""
        if self._transport is not None and self._writing and not self.closed:
            self._writing = False
            self._transport.write_eof()

    def close(self) -> None:
        """Ends the connection after what was written is sent."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    async def gone(self, within_s: float) -> None:
        """After `close`: returns when the connection has ended. A peer that does not take the last
        bytes within so many seconds does not get them."""
        if not self.unsent_bytes:
            return
        try:
            async with asyncio.timeout(within_s):
                while not self._lost:
                    await self.wait()
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    async def start_tls(
        self, context: ssl.SSLContext, *, server_side: bool, server_hostname: str | None = None
    ) -> None:
        """Speaks TLS from here on; returns after the handshake.

        Bytes already in the buffer are the start of the peer's side of it. `server_hostname` is
        what the server's certificate must name, where the context checks that.
        Raises: ConnectionLost; ProtocolError if the handshake fails.
        """
        early = self.take(self.buffered_bytes)
        self._tls = Tls(context, server_side, server_hostname)
        self._tls_received(early)
        while not self._tls.established:
            if self._tls.error:
                raise ProtocolError(f"the TLS handshake failed: {self._tls.error}")
            if self.closed:
                raise ConnectionLost("the peer closed the connection during the TLS handshake")
            await self.wait()

    def lay_over(self, layer: Callable[["Carrier"], "Transport"], buffer_bytes: int) -> None:
        """Has all that comes and goes from here on pass a `layer`, which is this channel's
        transport, and is made with what carries it: a channel that has the socket, and TLS."""
        assert isinstance(self._transport, SocketTransport)
        carrier = Carrier(buffer_bytes=buffer_bytes)
        carrier.peer = self.peer
        early = self.take(self.buffered_bytes)
        carrier._transport, carrier._tls, self._tls = self._transport, self._tls, None
        self._transport.set_protocol(carrier)
        if self.congested:
            carrier.pause_writing()
        self._transport = layer(carrier)
        if carrier._tls is not None and carrier._tls.waits:
            carrier._decrypt_later()
        if early:
            carrier._feed(early)

    # How it works inside.

    async def _at_least(self, size: int) -> None:
        while self.buffered_bytes < size:
            if self.closed:
                raise ConnectionLost("the peer closed the connection")
            if not self._reading:
                self.read_on()
            await self.wait()

    def read_on(self) -> None:
        """Reads, however full the buffer is: what is waited for may be longer than its limit."""
        if not self._reading and self._transport is not None and not self.closed:
            self._reading = True
            if self._tls is not None and self._tls.waits:
                self._decrypt_later()
            else:
                self._transport.resume_reading()

    def _without_foretold(self, data: bytes) -> bytes:
        """What comes after the answers that were foretold."""
        early, at = self._early + data, 0
        self._early = b""
        while self._foretold:
            left = len(early) - at
            if left < HEADER_BYTES:
                self._early = early[at:]
                return b""
            size = HEADER_BYTES + payload_bytes(early, at)
            foretold, what, came = self._foretold[0]
            told = self.hides_tracking and what is Foretold.LAST
            longest = len(foretold) + (_MOST_TOLD_BYTES if told else 0)
            likely = len(foretold) <= size <= longest or what in OF_PREPARING
            if left < size and likely:
                self._early = early[at:]
                return b""
            answer, at = early[at : at + size], at + size
            if not is_as_foretold(answer, self._foretold, self.hides_tracking):
                self.odd_answer = answer
                self.abort()
                return b""
            del self._foretold[0]
            if came is not None:
                came(answer)
        self.wake()
        return early[at:]

    def _feed(self, data: bytes) -> None:
        size = len(data)
        if not self._buffer:
            self._buffer = data
        else:
            self._behind = self._behind or bytearray()
            self._behind += data
            size = self.buffered_bytes
        if self._reading and size >= self.buffer_bytes:
            self._reading = False
            if self._transport is not None:
                self._transport.pause_reading()
        self._wake()

    def _put_together(self) -> None:
        here = memoryview(self._buffer)[self._taken :]
        self._buffer, self._taken = b"".join((here, self._behind or b"")), 0
        self._behind = None

    def _wake(self) -> None:
        self.wake()
        if self.on_change is not None:
            self.on_change()

    def _tls_received(self, data: bytes) -> None:
        assert self._tls is not None
        plain = self._tls.decrypt(data)
        answer = self._tls.pending_output()
        if answer and self._transport is not None:
            self._transport.write(answer)
        if self._tls.ended:
            self._end_soon()
            self.close()
        elif self._tls.waits:
            self._decrypt_later()
        if not plain:
            self.wake()
        else:
            self._received(plain)

    def _decrypt_later(self) -> None:
        """Others want a turn before what has come is decrypted on; no more is read until then."""
        if self._transport is not None and not self._decrypts_later:
            self._decrypts_later = True
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._decrypt_on)

    def _decrypt_on(self) -> None:
        self._decrypts_later = False
        transport, tls = self._transport, self._tls
        if transport is None or tls is None or not self._reading or transport.is_closing():
            return
        try:
            self._tls_received(b"")
        except Exception:
            transport.abort()
            raise
        if self._reading and not tls.waits:
            transport.resume_reading()


class Carrier(Channel):
    """What carries another channel, which ends it when all was sent."""

    hears_no_more = False
    """The peer has ended its side."""

    def eof_received(self) -> bool:
        self.hears_no_more = True
        self._wake()
        return True
