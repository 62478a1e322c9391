"""Bytes between a client and its own connection to MySQL: whole chunks, never rows."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence

from sqlcache.errors import ConnectionLost, ProtocolError
from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Command
from sqlcache.mysql.packets import HEADER_BYTES, End, is_continued, payload_bytes
from sqlcache.mysql.response import MOST_ENDS, ResponseTracker
from sqlcache.mysql.tracking import MOST_COMMITS
from sqlcache.mysql.untracked import Untracked
from sqlcache.plan.commands import ClientCommand
from sqlcache.proxy.room import Room

log = logging.getLogger(__name__)

_ERR = 0xFF
_FENCE_WAITS_S = 10.0  # for a client that takes less than this meanwhile, where there is no room
_UNSAID_S = 10.0  # in a command of which nothing more comes, after MySQL has ended
_UNREAD_S = 60.0  # the same for an answer of which nothing is taken, as by its net_write_timeout
_TURN_BYTES = 65_536  # of a file, before others have a turn
_LEAST_TAKEN_BYTES = 262_144


class Relay:
    """The two sides of one session. `client` may be slow and `upstream` long-winded: neither makes
    the other's bytes pile up.

    `ahead` is the room for what is read from MySQL before the client takes what came before. Others
    wait for the end of some answers: a write's, whose fence stands until then, and one that is to
    be stored. How fast its client reads is nothing to them. Where there is no room, `hurry_client`.
    """

    __slots__ = ("_ahead", "_commits", "_metrics", "_read_ahead", "_untracked", "awaits_client",
                 "client", "said_bytes", "upstream")  # fmt: skip

    def __init__(self, client: Channel, upstream: Channel, ahead: Room, metrics: Metrics) -> None:
        self.client = client
        self.upstream = upstream
        self._ahead = ahead
        self._metrics = metrics
        self._read_ahead = 0  # bytes
        self._untracked: Untracked | None = None
        self._commits: list[bytes] = []
        self.awaits_client = False
        """Whether the client has begun a command, or a file, and not sent all of it."""
        self.said_bytes = 0
        """Of such that were long, taken from it so far."""

    def tell(self, chunk: bytes, *, ahead: bool) -> bool:
        """Passes part of an answer on. Whether the next is to be read `ahead` of the client, which
        has not taken this one."""
        self.client.write(chunk)
        goes_ahead = ahead and self.client.congested and self._ahead.take(len(chunk))
        if goes_ahead:
            self._read_ahead += len(chunk)
        return goes_ahead

    async def let_client_catch_up(self, within_s: float | None = None) -> bool:
        """Returns when the client has taken what came before, or after so long; whether it has."""
        caught_up = await (self._caught_up() if within_s is None else self.client.drain(within_s))
        if caught_up:
            self._ahead.give_back(self._read_ahead)
            self._read_ahead = 0
        return caught_up

    async def _caught_up(self) -> bool:
        """Returns when it has: who takes nothing any more after MySQL has ended is cut off."""
        client, has_ended = self.client, False
        unsent = client.unsent_bytes
        while not await client.drain(_UNREAD_S):
            before, unsent = unsent, client.unsent_bytes
            if has_ended and unsent == before:
                client.abort()
            has_ended = self.upstream.has_lost_peer()
        return True

    async def hurry_client(self) -> None:
        """The same where others wait for the end of this answer, a write's: a client that hardly
        takes any of it is cut off, and the rest is read for them alone."""
        unsent = self.client.unsent_bytes
        while not await self.let_client_catch_up(_FENCE_WAITS_S):
            before, unsent = unsent, self.client.unsent_bytes
            if before - unsent < _LEAST_TAKEN_BYTES:
                log.warning(
                    "client cut off, it does not read while others wait for the end of its write"
                    " client=%s",
                    self.client.address(),
                )
                self._metrics.clients_cut += 1
                self.client.abort()
                await self.let_client_catch_up()

    def break_off(self) -> None:
        """The session ends: amid an answer that was read ahead, no one waits for its rest."""
        if self._read_ahead:
            self.client.abort()
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
        self.upstream.write(last)
        await self.upstream.drain()

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
            await self.until_sent(HEADER_BYTES)
            header = self.client.take(HEADER_BYTES)
            self.said_bytes += HEADER_BYTES
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
            held = self.client.head(_TURN_BYTES)
            at = min(left, len(held))
            left -= at
            while not ended and not left and len(held) - at >= HEADER_BYTES:
                length = payload_bytes(held, at)
                ended = not length and not continued
                continued = is_continued(length)
                at += HEADER_BYTES
                there = min(length, len(held) - at)
                at, left = at + there, length - there
            self.said_bytes += at
            await self.finish(self.client.take(at))
            if self.client.has_some and not ended:  # others want a turn
                await asyncio.sleep(0)

    async def _client_sends(self, size: int) -> None:
        """Returns when so many bytes of a file are there. Raises: ConnectionLost."""
        if self.upstream.closed:
            self._pass_farewell()
            raise ConnectionLost("MySQL takes no more of it")
        await self.until_sent(size, after_mysql_s=0)

    async def until_sent(self, size: int, *, after_mysql_s: float = _UNSAID_S) -> None:
        """Returns when so many bytes are there of what the client has begun to send. Raises:
        ConnectionLost, also where MySQL has ended and nothing more came for so long; what it said
        is passed on."""
        client = self.client
        self.awaits_client = True
        try:
            while client.buffered_bytes < size:
                if client.closed:
                    raise ConnectionLost("the client closed the connection amid a command")
                client.read_on()
                if not self.upstream.closed:
                    await client.wait()
                    continue
                seen = client.buffered_bytes
                async with asyncio.timeout(after_mysql_s):
                    while client.buffered_bytes == seen and not client.closed:
                        await client.wait()
        except TimeoutError:
            self._pass_farewell()
            raise ConnectionLost("the client says nothing more, and MySQL has ended") from None
        finally:
            self.awaits_client = False

    def _pass_farewell(self) -> None:
        self.client.write(self.upstream.take(self.upstream.buffered_bytes))

    async def _parts(self, size: int) -> AsyncIterator[bytes]:
        """So many bytes of the client's, as they come."""
        while size:
            await self.until_sent(1)
            part = self.client.take(min(size, self.client.buffered_bytes))
            self.said_bytes += len(part)
            size -= len(part)
            yield part

    async def read(self, tracker: ResponseTracker) -> bytes:
        """The next part of a response.

        Raises: ConnectionLost, also where it is not understood: nothing can be told to a client
        amid a response.
        """
        while True:
            if len(tracker.ends) >= MOST_ENDS:  # others want a turn
                await asyncio.sleep(0)
            chunk = await self.upstream.read()
            try:
                shown, used = self._follow(tracker, chunk)
            except ProtocolError as error:
                log.warning("MySQL's answer not understood error=%s", error)
                raise ConnectionLost("MySQL's answer is not understood") from error
            if used < len(chunk):
                self.upstream.unread(chunk[used:])
            if shown:
                return shown

    def _follow(self, tracker: ResponseTracker, chunk: bytes) -> tuple[bytes, int]:
        """What of it is for the client, and how much of it belongs to the response."""
        if not self.upstream.hides_tracking:
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
        self.upstream.write(query)
        return await self.answer(capabilities, code)

    async def answer(
        self, capabilities: int, code: int = Command.QUERY
    ) -> tuple[bytes, Sequence[End]]:
        """The response to one that was sent, and the ends in that."""
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
        self.upstream.write(packet)
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
        head = await self.upstream.peek(HEADER_BYTES + 1)
        if head[HEADER_BYTES] == _ERR:
            return await self.upstream.read_packet(MAX_PAYLOAD_BYTES)
        await self._pipe()
        return None

    async def _pipe(self) -> None:
        ways = [
            asyncio.ensure_future(_copy(self.client, self.upstream)),
            asyncio.ensure_future(_copy(self.upstream, self.client)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()


async def _copy(source: Channel, target: Channel) -> None:
    """Passes on what comes until the source ends."""
    with contextlib.suppress(ConnectionLost):
        while True:
            target.write(await source.read())
            await target.drain()
