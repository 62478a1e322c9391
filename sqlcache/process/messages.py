"""Messages between a parent and its workers: Python values, over a pair of sockets.

Neither ever waits for the other: what one does not take yet is kept for it by who has sent it, and
what has come in part waits for the rest. So one that stands still, or has much to say, holds up
nobody's clients.
"""

import asyncio
import socket
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final, cast

_LENGTH_BYTES: Final = 8
_END_S: Final = 1.0


class Messages(asyncio.Protocol):
    """One end. `heard` is given each message that comes, `ended` is called once, when no more do:
    the other end is closed, or its process has gone."""

    def __init__(self, heard: Callable[[Any], None], ended: Callable[[], None]) -> None:
        self._heard = heard
        self._on_end = ended
        self._received = bytearray()
        self._early = b""  # what was sent before it was open
        self._transport: asyncio.Transport | None = None
        self._closed = asyncio.Event()

    async def open(self, end: socket.socket) -> None:
        """Begins, at this end of a socket pair, which is its own from here on."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=end)

    @property
    def waiting_bytes(self) -> int:
        """Of what was sent, how much the other has not made room for."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def send(self, message: object) -> None:
        """Sends a value that can be pickled; to one that has gone, nothing."""
        pickled = bytes(ForkingPickler.dumps(message))
        data = len(pickled).to_bytes(_LENGTH_BYTES, "little") + pickled
        if self._transport is None:
            self._early += data
        elif not self._transport.is_closing():
            self._transport.write(data)

    async def close(self) -> None:
        """Ends it when what was sent is taken, or after a second."""
        if self._transport is None:
            return
        self._transport.close()
        try:
            async with asyncio.timeout(_END_S):
                await self._closed.wait()
        except TimeoutError:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._early)
        self._early = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _LENGTH_BYTES:
            end = _LENGTH_BYTES + int.from_bytes(self._received[:_LENGTH_BYTES], "little")
            if len(self._received) < end:
                return
            message = ForkingPickler.loads(bytes(self._received[_LENGTH_BYTES:end]))
            del self._received[:end]
            self._heard(message)

    def connection_lost(self, error: Exception | None) -> None:
        self._closed.set()
        self._on_end()
