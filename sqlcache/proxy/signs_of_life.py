"""Signs of life for the server: it ends who is idle for its `wait_timeout`, and hears nothing of a
client that is busy with hits, or waits for another's fill."""

import asyncio

from sqlcache.mysql.connection import Channel
from sqlcache.proxy.longway.way import LongWay


class SignsOfLife:
    """Those of one session, of which one may be owed every so many seconds."""

    __slots__ = ("_client", "_every_s", "_next_look", "_upstream", "_way", "owed")

    def __init__(self, client: Channel, upstream: Channel, way: LongWay, *, every_s: float) -> None:
        self._client = client
        self._upstream = upstream
        self._way = way
        self._every_s = every_s
        self._next_look: asyncio.TimerHandle | None = None
        self.owed = False
        """Whether one is to be given as soon as no command is in flight."""

    def begin(self) -> None:
        """Looks every so often, from now on, whether the server is to hear of the client."""
        self._next_look = asyncio.get_running_loop().call_later(self._every_s, self._look)

    def end(self) -> None:
        """The session ends."""
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None

    def _look(self) -> None:
        self.begin()
        if self._way.ping():
            return
        if self._way.last.had_hits or self._upstream.holds_back:
            self.owed = self._way.course.awaited = True
            self._client.wake()

    async def give(self) -> None:
        """Lets the server know of the client: by what waits to be sent, else by a ping, but that
        never behind a command that it has run, whose ROW_COUNT() it would take away."""
        last = self._way.last
        self.owed = False
        had_hits, last.had_hits = last.had_hits, False
        if self._upstream.holds_back:
            self._upstream.write(b"")
        elif had_hits:
            self._client.intercept = None  # the ping's OK is not for what comes meanwhile
            await self._way.standing.questions.ping()
            self._client.intercept = self._way.straight.received
