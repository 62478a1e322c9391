"""The protocol's compression on a connection: a layer between a channel and what carries it.

To the channel it is a transport. What carries it is a channel of its own, which has the socket, and
TLS where that is spoken: compression is inside TLS. Both ways hold back both ways, and what is
compressed or decompressed at once is little: others have their turns in between.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

from sqlcache.errors import ProtocolError
from sqlcache.mysql.connection import Carrier, Channel
from sqlcache.mysql.frames import PIECE_BYTES, Algorithm, FrameReader, FrameWriter

log = logging.getLogger(__name__)

_TAKEN_BYTES = 16_384  # of what came, at once: what is left of it is copied
_LEAST_COST_BYTES = 1_024  # of a step, in a turn's share
_TURN_BYTES = PIECE_BYTES // 2  # and what goes beyond in its last step


class Compression:
    """What `asyncio.Transport` promises a protocol, for a channel whose peer compresses.

    Frames are numbered by those of the command that is answered: who answers has taken it before.
    Of an answer it keeps what the channel has written, and of a packet longer than a frame what
    that has become, up to `longest_bytes`. A peer that sends no frames is cut off; a line says why.
    """

    __slots__ = ("_carrier", "_channel", "_closing", "_ended", "_eof", "_high", "_paused",
                 "_reader", "_reading", "_reads_later", "_told", "_told_eof", "_writer",
                 "_writes_later")  # fmt: skip

    def __init__(
        self, channel: Channel, carrier: Carrier, algorithm: Algorithm, longest_bytes: int
    ) -> None:
        self._channel: Channel | None = channel
        self._carrier = carrier
        self._reader = FrameReader(algorithm)
        self._writer = FrameWriter(algorithm, longest_bytes=longest_bytes)
        self._high = longest_bytes
        self._told = 0  # bytes, to the channel
        self._told_eof = self._closing = self._ended = self._eof = False
        self._paused = channel.congested
        self._reading = True
        self._reads_later = self._writes_later = False
        carrier.on_change = self._carrier_changed

    @property
    def socket(self) -> socket.socket:
        """What carries it in the end."""
        return self._carrier.own_socket

    def set_write_buffer_limits(self, high: int) -> None:
        """The channel is to pause when more than so many bytes wait."""
        self._high = high

    def get_write_buffer_size(self) -> int:
        """How many bytes wait to be compressed, or to be sent."""
        return self._writer.waiting_bytes + self._carrier.unsent_bytes

    def is_closing(self) -> bool:
        """Whether it ends, or has ended."""
        return self._closing

    def pause_reading(self) -> None:
        """Nothing more is decompressed; what comes waits, and at last is not read."""
        self._reading = False

    def resume_reading(self) -> None:
        """Goes on after `pause_reading`, in another turn."""
        if not self._reading and not self._closing:
            self._reading = True
            self._read_later()

    def write(self, data: bytes | memoryview) -> None:
        """Sends `data`, as much as is compressed at once now, the rest in turns to come."""
        if self._closing or self._eof or not data or self._channel is None:
            return
        if self._carrier.lost:  # and it was not told so far, for there is more to read
            self._closing = True
            asyncio.get_running_loop().call_soon(self._end)
            return
        number = self._reader.last_number(self._told - self._channel.buffered_bytes)
        self._writer.put(data, None if number is None else number + 1 & 0xFF)
        if not self._writes_later:
            self._compress()
        if not self._paused and self._has_too_much(self._high):
            self._paused = True
            self._channel.pause_writing()
            self._wait_for_carrier()

    def write_eof(self) -> None:
        """Nothing is sent after what was written."""
        self._eof = True
        self._finish()

    def close(self) -> None:
        """Ends the connection after what was written is sent."""
        self._closing, self._reading = True, False
        self._finish()

    def abort(self) -> None:
        """Ends the connection at once."""
        self._closing, self._reading = True, False
        self._writer.clear()
        self._carrier.abort()

    # The way in.

    def _carrier_changed(self) -> None:
        """Something came, or the connection has ended: what came before is told first."""
        if self._carrier.lost and self._closing:
            self._end()
        elif not self._reads_later:
            self._read()

    def _read_later(self) -> None:
        if not self._reads_later:
            self._reads_later = True
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        self._reads_later = False
        try:
            self._read()
        except Exception:
            self.abort()
            raise

    def _read(self) -> None:
        """Tells the channel of what came, as much as is its share in a turn."""
        carrier, left = self._carrier, _TURN_BYTES
        while self._reading and self._channel is not None:
            if left <= 0:
                self._read_later()
                return
            try:
                plain = self._reader.take()
            except ProtocolError as error:
                self._refuse(error)
                return
            left -= max(len(plain or b""), _LEAST_COST_BYTES)
            if plain:
                self._told += len(plain)
                self._channel.data_received(plain)
                if self._channel is not None:
                    self._reader.forget(self._told - self._channel.buffered_bytes)
            elif plain is not None:
                continue
            elif carrier.has_some:
                self._reader.put(carrier.take(min(carrier.buffered_bytes, _TAKEN_BYTES)))
            else:
                break
        if self._channel is None or not (self._reading or self._closing):
            return
        if carrier.lost:
            self._end()
        elif carrier.hears_no_more and not self._told_eof:
            self._told_eof = True
            if not self._channel.eof_received():
                self.close()

    def _refuse(self, error: ProtocolError) -> None:
        assert self._channel is not None
        log.warning(
            "client cut off, what it sends compressed is not understood client=%s error=%s",
            self._channel.address(),
            error,
        )
        self.abort()

    # The way out.

    def _compress(self) -> None:
        """Sends as much as is its share in a turn."""
        writer, carrier, left = self._writer, self._carrier, _TURN_BYTES
        while writer.waiting_bytes:
            if carrier.congested:
                self._wait_for_carrier()
                return
            if left <= 0:
                self._write_later(asyncio.get_running_loop().call_soon)
                return
            before = writer.waiting_bytes
            frame = writer.take()
            left -= max(before - writer.waiting_bytes, _LEAST_COST_BYTES)
            if frame:
                carrier.write(frame)
                self._reader.answered(writer.number, writer.packet_id)

    def _write_later(self, when: Callable[[Callable[[], None]], object]) -> None:
        if not self._writes_later:
            self._writes_later = True
            when(self._write_on)

    def _write_on(self) -> None:
        self._writes_later = False
        if self._ended:
            return
        if self._carrier.lost:  # nothing more is sent, and what came before is of no use
            self._end()
            return
        try:
            self._compress()
            self._catch_up()
        except Exception:
            self.abort()
            raise
        self._finish()

    def _wait_for_carrier(self) -> None:
        """Goes on when that has caught up, where it is slow, and nothing else has it go on."""
        if self._carrier.congested:
            self._write_later(self._carrier.when_caught_up)

    def _has_too_much(self, bytes_: int) -> bool:
        return self._carrier.congested or self._writer.waiting_bytes > bytes_

    def _catch_up(self) -> None:
        """Tells the channel when there is room again."""
        if not self._paused or self._channel is None:
            return
        if self._has_too_much(self._high // 4):
            self._wait_for_carrier()
        else:
            self._paused = False
            self._channel.resume_writing()

    def _finish(self) -> None:
        """Has the carrier do what is to be done when all was sent."""
        if self._writer.waiting_bytes and not self._carrier.lost:
            return
        if self._closing:
            self._carrier.close()
        elif self._eof:
            self._carrier.end_writing()

    def _end(self) -> None:
        """The connection has ended: the channel, which knows this, is told, and let go."""
        channel, self._channel = self._channel, None
        self._ended = self._closing = True
        self._writer.clear()
        self._carrier.on_change = None
        if channel is not None:
            channel.connection_lost(None)


def compress(channel: Channel, algorithm: Algorithm, buffer_bytes: int) -> None:
    """Has a channel speak frames from here on, both ways. `buffer_bytes`: what may wait on either
    way, and how long a packet may be that is compressed."""
    channel.lay_over(
        lambda carrier: Compression(channel, carrier, algorithm, buffer_bytes), buffer_bytes
    )
