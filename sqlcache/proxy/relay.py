"""Bytes between a client and its own connection to MySQL: whole chunks, never rows."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence

from sqlcache.cache import entry
from sqlcache.cache.leases import Lease
from sqlcache.errors import ConnectionLost, ProtocolError
from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Command, Status
from sqlcache.mysql.packets import HEADER_BYTES, End, is_continued, payload_bytes
from sqlcache.mysql.response import ResponseTracker
from sqlcache.mysql.tracking import MOST_COMMITS
from sqlcache.mysql.untracked import Untracked
from sqlcache.plan.commands import ClientCommand

log = logging.getLogger(__name__)

_ERR = 0xFF
_LEAST_KEPT_BYTES = 65_536  # of an answer that is to be stored: no client can take that from others
_LEASE_WAITS_S = 1.0  # for a client that fills, where there is no room to read ahead of it
_FENCE_WAITS_S = 10.0  # likewise for one that takes less than this meanwhile
_TURN_BYTES = 65_536  # of a file, before others have a turn
_LEAST_TAKEN_BYTES = 262_144
UNSTORABLE_STATUS = (
    Status.SESSION_STATE_CHANGED
    | Status.CURSOR_EXISTS
    | Status.PS_OUT_PARAMS
    | Status.METADATA_CHANGED  # since this session's last execution of the statement
)
"""Flags of an answer that is not to be stored."""


class Relay:
    """The two sides of one session. `client` may be slow and `upstream` long-winded: neither makes
    the other's bytes pile up.

    `ahead` is the room for what is read from MySQL before the client takes what came before. Others
    wait for the end of some answers: a write's, whose fence stands until then, and one that is to
    be stored. How fast its client reads is nothing to them. Where there is no room, `hurry_client`.
    """

    def __init__(self, client: Channel, upstream: Channel, ahead: "Room", metrics: Metrics) -> None:
        self._client = client
        self._upstream = upstream
        self._ahead = ahead
        self._metrics = metrics
        self._read_ahead = 0  # bytes
        self._untracked: Untracked | None = None
        self._commits: list[bytes] = []

    def tell(self, chunk: bytes, *, ahead: bool) -> bool:
        """Passes part of an answer on. Whether the next is to be read `ahead` of the client, which
        has not taken this one."""
        self._client.write(chunk)
        goes_ahead = ahead and self._client.congested and self._ahead.take(len(chunk))
        if goes_ahead:
            self._read_ahead += len(chunk)
        return goes_ahead

    async def let_client_catch_up(self, within_s: float | None = None) -> bool:
        """Returns when the client has taken what came before, or after so long; whether it has."""
        caught_up = await self._client.drain(within_s)
        if caught_up:
            self._ahead.give_back(self._read_ahead)
            self._read_ahead = 0
        return caught_up

    async def hurry_client(self) -> None:
        """The same where others wait for the end of this answer, a write's: a client that hardly
        takes any of it is cut off, and the rest is read for them alone."""
        unsent = self._client.unsent_bytes
        while not await self.let_client_catch_up(_FENCE_WAITS_S):
            before, unsent = unsent, self._client.unsent_bytes
            if before - unsent < _LEAST_TAKEN_BYTES:
                log.warning(
                    "client cut off, it does not read while others wait for the end of its write"
                    " client=%s",
                    self._client.address(),
                )
                self._metrics.clients_cut += 1
                self._client.abort()
                await self.let_client_catch_up()

    def break_off(self) -> None:
        """The session ends: amid an answer that was read ahead, no one waits for its rest."""
        if self._read_ahead:
            self._client.abort()
            self._ahead.give_back(self._read_ahead)

    async def send(self, command: ClientCommand) -> None:
        """Sends a command to MySQL, with the rest of a long one that the client still has."""
        await self.finish(await self.begin(command))

    async def begin(self, command: ClientCommand) -> bytes:
        """Sends a long command as it comes from the client, but for its last bytes, which are
        returned: MySQL does nothing before it has those. Of a short one it sends none."""
        last = command.data
        if not command.whole:
            async for part in self._rest_of(command):
                await self.finish(last)
                last = part
        return last

    async def finish(self, last: bytes) -> None:
        """Sends what `begin` returned."""
        self._upstream.write(last)
        await self._upstream.drain()

    async def throw_away(self, command: ClientCommand) -> None:
        """Reads what the client still has of a long command, and forgets it."""
        if not command.whole:
            async for _ in self._rest_of(command):
                pass

    async def _rest_of(self, command: ClientCommand) -> AsyncIterator[bytes]:
        length = payload_bytes(command.data)
        async for part in self._parts(HEADER_BYTES + length - len(command.data)):
            yield part
        while is_continued(length):
            header = await self._client.read_exactly(HEADER_BYTES)
            yield header
            length = payload_bytes(header)
            async for part in self._parts(length):
                yield part

    async def pass_file(self) -> None:
        """Passes on a LOCAL INFILE: packets up to an empty payload, however small, many at once.
        Raises: ConnectionLost, also where MySQL has given up; what it said then is passed on."""
        left, continued, ended = 0, False, False
        while not ended:
            needed = 1 if left else HEADER_BYTES
            await self._client_sends(needed)
            await self._client.peek(needed)
            held = self._client.buffered[:_TURN_BYTES]
            at = min(left, len(held))
            left -= at
            while not ended and not left and len(held) - at >= HEADER_BYTES:
                length = payload_bytes(held, at)
                ended = not length and not continued
                continued = is_continued(length)
                at += HEADER_BYTES
                there = min(length, len(held) - at)
                at, left = at + there, length - there
            await self.finish(self._client.take(at))
            if self._client.buffered and not ended:  # others want a turn
                await asyncio.sleep(0)

    async def _client_sends(self, size: int) -> None:
        """Returns when so few bytes of the client's are there, or no more will come."""
        while not self._upstream.closed:
            if len(self._client.buffered) >= size or self._client.closed:
                return
            await self._client.wait()
        self._client.write(self._upstream.take(len(self._upstream.buffered)))
        raise ConnectionLost("MySQL takes no more of it")

    async def _parts(self, size: int) -> AsyncIterator[bytes]:
        """So many bytes of the client's, as they come."""
        while size:
            part = await self._client.read(size)
            size -= len(part)
            yield part

    async def read(self, tracker: ResponseTracker) -> bytes:
        """The next part of a response.

        Raises: ConnectionLost, also where it is not understood: nothing can be told to a client
        amid a response.
        """
        while True:
            chunk = await self._upstream.read()
            try:
                shown, used = self._follow(tracker, chunk)
            except ProtocolError as error:
                log.warning("MySQL's answer not understood error=%s", error)
                raise ConnectionLost("MySQL's answer is not understood") from error
            if used < len(chunk):
                self._upstream.unread(chunk[used:])
            if shown:
                return shown

    def _follow(self, tracker: ResponseTracker, chunk: bytes) -> tuple[bytes, int]:
        """What of it is for the client, and how much of it belongs to the response."""
        if not self._upstream.hides_tracking:
            used = tracker.feed(chunk)
            shown, commits = chunk[:used], tracker.commits
        else:
            if self._untracked is None or self._untracked.shown is not tracker:
                self._untracked = Untracked(tracker)
            shown, used = self._untracked.feed(chunk)
            commits = self._untracked.commits
            tracker.feed(shown)
            if tracker.done:  # most sessions are idle mostly, and keep nothing
                self._untracked = None
        if commits:
            self._commits = [*self._commits, *commits][-MOST_COMMITS:]
        return shown, used

    def take_commits(self) -> list[bytes]:
        """The GTIDs of the session's commits that MySQL has told of since, the last ones."""
        commits, self._commits = self._commits, []
        return commits

    async def ask(
        self, query: bytes, capabilities: int, code: int = Command.QUERY
    ) -> tuple[bytes, Sequence[End]]:
        """Sends a command of sqlcache's own; its response, and the ends in that."""
        self._upstream.write(query)
        tracker = ResponseTracker(code, capabilities)
        chunks = []
        while not tracker.done:
            chunks.append(await self.read(tracker))
        return b"".join(chunks), tracker.ends

    async def run(
        self, packet: bytes, capabilities: int, code: int = Command.QUERY
    ) -> Sequence[End]:
        """Sends a command for what it leaves on the server; the ends in its response, of which
        nothing is kept: it may be as long as any."""
        self._upstream.write(packet)
        return await self.ends(capabilities, code)

    async def ends(self, capabilities: int, code: int = Command.QUERY) -> Sequence[End]:
        """Those in the response to a command of sqlcache's own that was sent."""
        tracker = ResponseTracker(code, capabilities)
        while not tracker.done:
            await self.read(tracker)
        return tracker.ends

    async def stream(self, command: ClientCommand) -> bytes | None:
        """A binlog dump has no end: bytes go both ways until a side closes, unless the server says
        no. Then it takes commands again, and this returns its error."""
        await self.send(command)
        head = await self._upstream.peek(HEADER_BYTES + 1)
        if head[HEADER_BYTES] == _ERR:
            return await self._upstream.read_packet(MAX_PAYLOAD_BYTES)
        await self._pipe()
        return None

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


class ResponseCopy:
    """A bounded copy of a response that goes by, for an entry. Ended by `give_back`.

    `warnings`: how many its statement gives every time. `lease`: the right to fill the entry, which
    ends when it turns out that there will be none: others who want it wait no longer.
    """

    def __init__(
        self, max_bytes: int, room: Room, warnings: int = 0, lease: Lease | None = None
    ) -> None:
        self._max_bytes = max_bytes
        self._room = room
        self._taken = 0  # of the room
        self._warnings = warnings
        self._lease = lease
        self._wait_until: float | None = None
        self.rows: int | None = 0
        """What FOUND_ROWS() tells, if it is not the number of rows; None where it is not known."""
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
            return
        self.give_back()
        if lease := self.take_lease():
            lease.decline_soon(lasting=not self.crowded)

    @property
    def is_waited_for(self) -> bool:
        """Whether others wait for what becomes of it."""
        return self._lease is not None

    def take_lease(self) -> Lease | None:
        """The lease, if it has not ended yet, for who ends it."""
        lease, self._lease = self._lease, None
        return lease

    async def wait_for_client(self, relay: Relay) -> None:
        """There is no room to read ahead of the client: gives up soon if it is slow. One of those
        who wait takes over."""
        now = asyncio.get_running_loop().time()
        self._wait_until = self._wait_until or now + _LEASE_WAITS_S
        if self.fits and not await relay.let_client_catch_up(max(self._wait_until - now, 0)):
            self.crowded = True
            self.give_back()
            if lease := self.take_lease():
                lease.release_soon()

    def give_back(self) -> None:
        """Keeps nothing any more."""
        self._chunks.clear()
        self._room.give_back(self._taken)
        self._taken = 0

    def storable(self, tracker: ResponseTracker) -> bool:
        """Whether it is one result set, with no other warnings than its statement always gives."""
        if not self.fits or not tracker.columns or tracker.results != 1 or not tracker.ends:
            return False
        end = tracker.ends[0]
        told = end.status is not None and end.warnings == self._warnings
        return told and not (end.status or 0) & UNSTORABLE_STATUS

    def entry(self, versions: bytes, tracker: ResponseTracker) -> bytes | None:
        """The entry to store, or None where it is not storable."""
        if self.rows is None or not self.storable(tracker):
            return None
        status = tracker.ends[0].status or 0
        packets = b"".join(self._chunks)
        rows = self.rows or tracker.rows
        return entry.encode(versions, status, tracker.status_offsets, packets, rows)


async def _copy(source: Channel, target: Channel) -> None:
    """Passes on what comes until the source ends."""
    with contextlib.suppress(ConnectionLost):
        while True:
            target.write(await source.read())
            await target.drain()
