"""Signs of life for the server: it ends who is idle for its `wait_timeout`, and hears nothing of a
client that is busy with hits, or waits for another's fill.

A sign is owed only for what the client asked meanwhile, so who is idle is ended all the same. Of
the time that the server gives a session, a third passes between two looks at most: a hit between
these is told of in time at the next, but for one that comes when the time is nearly over. That one
takes the long way, and is told of at once.
"""

import asyncio
from time import perf_counter

from sqlcache.mysql.connection import Channel
from sqlcache.proxy.longway.way import LongWay

_LOOKS = 3  # in the time after which the server ends the session
_LEAST_S = 1.0  # of that: it gives nobody less


class SignsOfLife:
    """Those of one session, of which one may be owed every so many seconds, or more often where the
    server gives it less time."""

    __slots__ = ("_client", "_every_s", "_heard_at", "_longest_s", "_most_s", "_next_look",
                 "_upstream", "_way", "owed")  # fmt: skip

    def __init__(self, client: Channel, upstream: Channel, way: LongWay, *, every_s: float) -> None:
        self._client = client
        self._upstream = upstream
        self._way = way
        self._every_s = self._most_s = every_s
        self._longest_s = float("inf")
        self._heard_at = 0.0
        self._next_look: asyncio.TimerHandle | None = None
        self.owed = False
        """Whether one is to be given as soon as no command is in flight."""

    def begin(self) -> None:
        """Looks every so often, from now on, whether the server is to hear of the client."""
        self._heard_at = perf_counter()
        self._way.standing.may_be_silent_for = self._may_be_silent_for
        self._may_be_silent_for(self._way.standing.state.longest_silence_s)
        self._look_later()

    def end(self) -> None:
        """The session ends."""
        self._way.standing.forget_who_asks()
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None

    def _may_be_silent_for(self, longest_s: float) -> None:
        every_s = min(self._most_s, max(longest_s, _LEAST_S) / _LOOKS)
        sooner, self._every_s, self._longest_s = every_s < self._every_s, every_s, longest_s
        if sooner and self._next_look is not None:
            self._next_look.cancel()
            self._look_later()

    def _look_later(self) -> None:
        self._next_look = asyncio.get_running_loop().call_later(self._every_s, self._look)

    def _look(self) -> None:
        self._look_later()
        if self._way.ping():
            self._heard_at = perf_counter()
            return
        late = self._would_be_late
        if self._way.last.had_hits or self._upstream.holds_back or (late and not self._is_idle):
            self.owed = self._way.course.awaited = True
            self._client.wake()
        elif late:
            self._way.standing.attend()

    @property
    def _would_be_late(self) -> bool:
        """Whether the time may be over by the next look but one."""
        silent_s = perf_counter() - max(self._heard_at, self._way.last.sent_at)
        return silent_s + 2 * self._every_s >= self._longest_s

    @property
    def _is_idle(self) -> bool:
        straight = self._way.straight
        return straight.course.now is None and self._client.intercept == straight.received

    def attended(self) -> None:
        """A command has been served that was to be told of at once, if it was a hit."""
        self._way.standing.attend_no_more()
        self.owed |= self._way.last.had_hits

    async def give(self) -> None:
        """Lets the server know of the client: by what waits to be sent, else by a ping, but that
        never behind a command that it has run, whose ROW_COUNT() it would take away."""
        last = self._way.last
        self.owed = False
        had_hits, last.had_hits = last.had_hits, False
        if self._upstream.holds_back:
            self._heard_at = perf_counter()
            self._upstream.write(b"")
        elif had_hits:
            self._heard_at = perf_counter()
            self._client.intercept = None  # the ping's OK is not for what comes meanwhile
            await self._way.standing.questions.ping()
            self._client.intercept = self._way.straight.received
