"""A session whose client is of this very process, an embedded one: what that may ask and tell
between its commands, beside what any client may."""

import asyncio

from sqlcache.cache.engine import Engine
from sqlcache.cache.lookups import Waiter
from sqlcache.cache.outcomes import Outcome
from sqlcache.cache.reads import Basis, Read
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import HEADER_BYTES
from sqlcache.plan.commands import ClientCommand
from sqlcache.plan.contexts import Context
from sqlcache.plan.state import SessionState
from sqlcache.proxy.longway.way import LongWay

_TURNS = 20
"""Of the event loop, after which a session that is not done waits for something: for MySQL."""
_TURN_S = 0.001


class EmbeddedSession:
    """Its client's side of it. `client` and `upstream` are the session's own connections,
    `longest_bytes` is how long a statement may be that is read as a whole."""

    def __init__(
        self, client: Channel, upstream: Channel, engine: Engine, way: LongWay, longest_bytes: int
    ) -> None:
        self.longest_bytes = longest_bytes
        self._client = client
        self._upstream = upstream
        self._engine = engine
        self._standing = way.standing
        self._last = way.last
        self._hits = way.straight.hits
        self._meanings = way.meanings
        self._course = way.course

    @property
    def context(self) -> Context | None:
        """Under which its reads can be hits at once; None while none can, as in a transaction."""
        standing = self._standing
        wanted = standing.has_begun and standing.allowed and standing.own.view is None
        return standing.context if wanted else None

    @property
    def state(self) -> SessionState:
        """What is known of it since it logged in."""
        return self._standing.state

    @property
    def basis(self) -> Basis | str:
        """Which read the last answer is the answer to, and on what it hangs, by the versions from
        before it was computed; or why that is not known."""
        return self._last.basis

    @property
    def has_ended(self) -> bool:
        """Whether it answers nothing more, as where MySQL has ended its connection, or says unasked
        that it does."""
        return bool(self._client.closed or self._upstream.closed or self._upstream.has_some)

    async def settle(self) -> None:
        """Until all is known of what its last command has left: the client may have the answer
        before, and has it sooner in one kind of event loop than in another."""
        turns = 0
        while not (self.has_ended or self._awaits_a_command):
            turns += 1
            await asyncio.sleep(0 if turns < _TURNS else _TURN_S)

    @property
    def _awaits_a_command(self) -> bool:
        """Whether its client has asked nothing that it has not wholly dealt with."""
        client, course = self._client, self._course
        reads = client.intercept is not None and not client.has_some
        return reads and course.now is None and course.handed_over is None

    def allow_hits(self, allowed: bool) -> None:
        """Whether reads from here on may be answered from the cache, and stored."""
        self._standing.allowed = allowed
        if self._standing.has_begun:
            self._standing.refresh_context()

    def expect(self, read: Read, outcome: Outcome) -> None:
        """The client looked this read up itself, and is about to send it: an outcome that is for
        one reader alone, such as that it is to fetch the answer anew, must not get lost."""

        hits = self._hits

        def look_up(asked: Read, waiter: Waiter) -> None:
            hits.look_up, hits.find_at_once = self._engine.lookup, self._engine.at_once
            if asked is read:
                asyncio.get_running_loop().call_soon(waiter, outcome)
            else:
                self._engine.lookup(asked, waiter)

        hits.look_up, hits.find_at_once = look_up, _nothing_at_once

    async def may_write(self, text: bytes) -> bool:
        """Whether a query could change rows, definitions or what holds for other sessions, such as
        a global variable, or what a lock covers. A long one is read in a thread: its client is to
        ask, and nothing else, until this is known."""
        meanings, state = self._meanings, self._standing.state
        if not state.readable:
            return False
        data = bytes(HEADER_BYTES) + bytes((Command.QUERY,)) + text
        command = ClientCommand(Command.QUERY, data, whole=True)
        await meanings.read_ahead(command, state)
        meaning = meanings.of(command, state)
        meanings.answered()
        return bool(meaning.writes) or any(
            each.may_commit or each.locking_read or each.changes_globals or each.globals_set
            for each in meaning.statements
        )


def _nothing_at_once(read: Read) -> None:
    """See `Engine.at_once`."""
