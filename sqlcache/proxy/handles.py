"""COM_STMT_PREPARE and COM_STMT_CLOSE, of which the server is told with what is sent there next, if
that comes soon.

What the server has prepared before is told at once to its client, under the number that it will
have: the server counts up, and the count is known as long as nothing was sent since the last one
that may have taken a number. An execution may: whose tables have changed is prepared anew, under a
number of its own for a moment. What was a hit and is closed before the server was told of it is
taken back.

COM_STMT_CLOSE has no answer. A statement that the server may have to execute once more stays open
there until that is over, as where FOUND_ROWS() is to be that of a hit. To its client it is closed:
see `keeps_open`.
"""

import asyncio

from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import HEADER_BYTES
from sqlcache.plan.prepared import Numbering
from sqlcache.proxy.diagnostics import Diagnostics

CLOSE_BYTES = HEADER_BYTES + 5
CLOSE = bytes((CLOSE_BYTES - HEADER_BYTES, 0, 0, 0, Command.STMT_CLOSE))
"""How its packet begins: the statement's number follows."""
_SOON_S = 0.05


class Handles:
    """The numbers of one session's prepared statements, on the server. See `Numbering`."""

    __slots__ = (
        *("_ahead", "_diagnostics", "_next", "_numbering", "_oldest", "_open"),
        *("_taken_back", "_timer", "_upstream"),
    )

    def __init__(self, upstream: Channel, diagnostics: Diagnostics, numbering: Numbering) -> None:
        self._upstream = upstream
        self._diagnostics = diagnostics
        self._numbering = numbering
        self._next: int | None = None
        self._ahead: dict[int, bytes] = {}  # what prepares those that the server may not know of
        self._taken_back: int | None = None
        self._open: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._oldest: bytes | None = None  # of what waits, when the timer was set

    # What is prepared.

    def prepared(self, number: int) -> None:
        """The server has prepared a statement under this number."""
        if self._next is not None and self._numbering.counts_up is not False:
            self._numbering.counts_up = number == self._next
        self._next = number + 1
        self._taken_back = None

    def lose_count(self) -> None:
        """Something is sent under which the server may number statements."""
        self._next = None

    @property
    def next_number(self) -> int | None:
        """That of the statement which the server prepares next; None where that is not known."""
        return self._next if self._numbering.counts_up else None

    def prepare_ahead(self, packet: bytes, answer: bytes) -> None:
        """The client was told that the statement is prepared which has the next number."""
        assert self._next is not None
        if not self._upstream.ahead:
            self._ahead.clear()
        self._ahead[self._next] = packet
        self._next += 1
        self._taken_back = None
        self._upstream.write_ahead(packet, answer)
        self._tell_soon()

    def _take_back(self, number: int) -> bool:
        """Whether the server will never hear of a statement, as it is the last and was not sent."""
        packet = self._ahead.pop(number, None)
        if packet is None or number + 1 != self._next or not self._upstream.take_back(packet):
            return False
        self._next = self._taken_back = number
        return True

    def was_taken_back(self, number: int) -> bool:
        """Whether the server never heard of the statement that was prepared last, which had this
        number: to MariaDB the last one is another."""
        return number == self._taken_back

    # What is closed.

    def close(self, number: int, *, was_hit: bool = False) -> None:
        """The client has done with the statement of this number. `was_hit`: what it has left behind
        is what a hit has."""
        owed = was_hit and number in self._diagnostics.owed_executions()
        if was_hit and not owed and self._take_back(number):
            return
        self._open.add(number)
        self.close_others()

    def close_others(self) -> None:
        """Something may be owed no more; or another is to be prepared, and there are so many."""
        if self._open:
            owed = self._diagnostics.owed_executions()
            for each in self._open - owed:
                self._tell(each)

    def keeps_open(self, number: int) -> bool:
        """Whether the server has a statement still that the client has closed: before it is named,
        nothing may be owed of it."""
        return number in self._open

    def forget(self) -> None:
        """The server has none any more."""
        self._open.clear()
        self.lose_count()

    def mistook(self) -> None:
        """The server has answered otherwise than was foretold, and not by an error."""
        if self._ahead:
            self._numbering.counts_up = False

    def end(self) -> None:
        """The session does."""
        if self._timer is not None:
            self._timer.cancel()

    def _tell(self, number: int) -> None:
        self._open.discard(number)
        packet = CLOSE + number.to_bytes(4, "little")
        # One at most waits, and not for long: the server counts what is open, in all sessions.
        if self._upstream.holds_back:
            self._upstream.write(packet)
            return
        self._upstream.write_ahead(packet)
        self._tell_soon()

    def _tell_soon(self) -> None:
        if self._timer is None:
            self._oldest = self._upstream.oldest_ahead
            self._timer = asyncio.get_running_loop().call_later(_SOON_S, self._send)

    def _send(self) -> None:
        self._timer = None
        if self._upstream.oldest_ahead is not self._oldest:  # that was sent, or is not to be
            if self._upstream.holds_back:
                self._tell_soon()
            return
        settings_wait = self._upstream.ahead and not self._ahead
        if self._upstream.holds_back and not settings_wait:
            self._upstream.write(b"")
