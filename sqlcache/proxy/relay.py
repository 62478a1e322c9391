"""Bytes between a client and its own connection to MySQL: whole chunks, never rows."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from sqlcache.cache import entry
from sqlcache.errors import ConnectionLost, ProtocolError
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Capability, Command, Status
from sqlcache.mysql.packets import HEADER_BYTES, End, is_continued, payload_bytes
from sqlcache.mysql.response import ResponseTracker
from sqlcache.proxy.commands import ClientCommand

log = logging.getLogger(__name__)

_ERR = 0xFF
_LEAST_KEPT_BYTES = 65_536  # of an answer that is to be stored: no client can take that from others
_UNSTORABLE_STATUS = (
    Status.SESSION_STATE_CHANGED
    | Status.CURSOR_EXISTS
    | Status.PS_OUT_PARAMS
    | Status.METADATA_CHANGED  # since this session's last execution of the statement
)


class Relay:
    """The two sides of one session. `client` may be slow and `upstream` long-winded: neither makes
    the other's bytes pile up."""

    def __init__(self, client: Channel, upstream: Channel) -> None:
        self._client = client
        self._upstream = upstream

    async def send(self, command: ClientCommand) -> None:
        """Sends a command to MySQL, with the rest of a long one that the client still has."""
        self._upstream.write(command.data)
        if not command.whole:
            await self._rest_of(command, self._upstream)
        await self._upstream.drain()

    async def throw_away(self, command: ClientCommand) -> None:
        """Reads what the client still has of a long command, and forgets it."""
        if not command.whole:
            await self._rest_of(command, None)

    async def _rest_of(self, command: ClientCommand, target: Channel | None) -> None:
        length = payload_bytes(command.data)
        await self._pass_on(HEADER_BYTES + length - len(command.data), target)
        while is_continued(length):
            length = await self._pass_on_packet(target)

    async def pass_file(self) -> None:
        """Passes on a LOCAL INFILE: packets up to an empty payload."""
        continued = False
        while True:
            length = await self._pass_on_packet(self._upstream)
            if not length and not continued:
                return
            continued = is_continued(length)

    async def _pass_on_packet(self, target: Channel | None) -> int:
        """Passes a client's packet on; returns its payload's length."""
        header = await self._client.read_exactly(HEADER_BYTES)
        if target is not None:
            target.write(header)
        await self._pass_on(payload_bytes(header), target)
        return payload_bytes(header)

    async def _pass_on(self, size: int, target: Channel | None) -> None:
        while size:
            chunk = await self._client.read(size)
            size -= len(chunk)
            if target is not None:
                target.write(chunk)
                await target.drain()

    async def read(self, tracker: ResponseTracker) -> bytes:
        """The next part of a response.

        Raises: ConnectionLost, also where it is not understood: nothing can be told to a client
        amid a response.
        """
        chunk = await self._upstream.read()
        try:
            used = tracker.feed(chunk)
        except ProtocolError as error:
            log.warning("MySQL's answer not understood error=%s", error)
            raise ConnectionLost("MySQL's answer is not understood") from error
        if used < len(chunk):
            self._upstream.unread(chunk[used:])
        return chunk[:used]

    async def ask(
        self, query: bytes, capabilities: Capability, code: int = Command.QUERY
    ) -> tuple[bytes, Sequence[End]]:
        """Sends a command of sqlcache's own; its response, and the ends in that."""
        self._upstream.write(query)
        tracker = ResponseTracker(code, capabilities)
        chunks = []
        while not tracker.done:
            chunks.append(await self.read(tracker))
        return b"".join(chunks), tracker.ends

    async def run(
        self, packet: bytes, capabilities: Capability, code: int = Command.QUERY
    ) -> Sequence[End]:
        """Sends a command for what it leaves on the server; the ends in its response, of which
        nothing is kept: it may be as long as any."""
        self._upstream.write(packet)
        tracker = ResponseTracker(code, capabilities)
        while not tracker.done:
            await self.read(tracker)
        return tracker.ends

    async def stream(self, command: ClientCommand) -> bool:
        """A binlog dump has no end: bytes go both ways until a side closes, unless the server says
        no. Then it takes commands again, and this returns True."""
        await self.send(command)
        head = await self._upstream.peek(HEADER_BYTES + 1)
        if head[HEADER_BYTES] == _ERR:
            self._client.write(await self._upstream.read_packet(MAX_PAYLOAD_BYTES))
            return True
        await self._pipe()
        return False

    async def _pipe(self) -> None:
        ways = [
            asyncio.ensure_future(_copy(self._client, self._upstream)),
            asyncio.ensure_future(_copy(self._upstream, self._client)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()


class Room:
    """How much of answers may be held: bytes, of all sessions together."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes

    def take(self, size: int) -> bool:
        """Whether there is room for so many bytes more; `give_back` ends it."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        """So many bytes were taken by their client, or thrown away."""
        self._left += size


class Kept:
    """A bounded copy of a response that goes by, for an entry. Ended by `give_back`."""

    def __init__(self, max_bytes: int, room: Room) -> None:
        self._max_bytes = max_bytes
        self._room = room
        self._taken = 0  # of the room
        self._chunks: list[bytes] = []
        self._size = 0
        self.crowded = False
        """Whether there was no room for it: another time there may be."""

    @property
    def fits(self) -> bool:
        """Whether it is not too long yet."""
        return self._size <= self._max_bytes and not self.crowded

    def add(self, chunk: bytes) -> None:
        """Keeps the next part, unless the whole is too long."""
        if not self.fits:
            return
        self._size += len(chunk)
        more = max(self._size - _LEAST_KEPT_BYTES - self._taken, 0)
        if self._room.take(more):
            self._taken += more
        else:
            self.crowded = True
        if self.fits:
            self._chunks.append(chunk)
        else:
            self.give_back()

    def give_back(self) -> None:
        """Keeps nothing any more."""
        self._chunks.clear()
        self._room.give_back(self._taken)
        self._taken = 0

    def entry(self, versions: bytes, tracker: ResponseTracker) -> bytes | None:
        """The entry to store, or None: only one result set without warnings is storable."""
        if not self.fits or not tracker.columns or len(tracker.ends) != 1:
            return None
        end = tracker.ends[0]
        if end.status is None or end.warnings or end.status & _UNSTORABLE_STATUS:
            return None
        packets = b"".join(self._chunks)
        offsets = tracker.status_offsets
        return entry.encode(versions, int(end.status), offsets, packets, tracker.rows)


async def _copy(source: Channel, target: Channel) -> None:
    """Passes on what comes until the source ends."""
    with contextlib.suppress(ConnectionLost):
        while True:
            target.write(await source.read())
            await target.drain()
