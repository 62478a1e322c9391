"""The statements that a client has prepared, as its server has them.

- COM_STMT_PREPARE: what the server has prepared before its client is told at once. The server is
  told with what is sent there next; or never, if it was closed before, and a hit.
- COM_STMT_CLOSE has no answer: the server is told with what is sent there next, if that comes soon.
  A statement that the server may have to execute once more stays open there until that is over, as
  where FOUND_ROWS() is to be that of a hit. To its client it is closed: see `keeps_open`.
- Numbers: a client's are given once, in order. So are the server's, and they are the same until the
  first statement of which the server was not told.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import HEADER_BYTES
from sqlcache.mysql.scan import number_in, with_number
from sqlcache.plan.commands import USE_PREPARED
from sqlcache.plan.prepared import Prepared
from sqlcache.proxy.diagnostics import Diagnostics

CLOSE_BYTES = HEADER_BYTES + 5
CLOSE = bytes((CLOSE_BYTES - HEADER_BYTES, 0, 0, 0, Command.STMT_CLOSE))
"""How its packet begins: the statement's number follows."""
NOBODYS = (1 << 31) - 2
"""A number that no server has given."""
REFUSED = bytes((5, 0, 0, 0, Command.STMT_EXECUTE)) + NOBODYS.to_bytes(4, "little")
"""An execution that is cut short: MariaDB says the same to one of the statement that was prepared
last which leaves out the types of its parameters."""
_ERR = 0xFF
_SOON_S = 0.05
_MOST_AHEAD = 16


class Refused(NamedTuple):
    """What was to prepare a statement, and the server's error."""

    packet: bytes
    error: bytes


class Handles:
    """Those of one session, by the numbers that its client has for them."""

    __slots__ = ("_ahead", "_diagnostics", "_given", "_numbers", "_oldest", "_open", "_refused",
                 "_timer", "_unseen", "_upstream", "_waiting", "renumbers")  # fmt: skip

    def __init__(self, upstream: Channel, diagnostics: Diagnostics) -> None:
        self._upstream = upstream
        self._diagnostics = diagnostics
        self.renumbers = False
        """Whether the server may have other numbers for them than the client."""
        self._given = 0
        self._numbers: dict[int, int] = {}  # the server's
        self._ahead: dict[int, bytes] = {}  # what prepares those that the server has not answered
        self._refused: dict[int, Refused] = {}
        self._waiting: Callable[[], None] | None = None
        self._open: set[int] = set()
        self._unseen: dict[int, Prepared] = {}
        self._oldest: bytes | None = None  # of what waits, when the timer was set
        self._timer: asyncio.TimerHandle | None = None

    # What is prepared.

    def prepared(self, number: int) -> int:
        """The server has prepared a statement under this number; gives the client's."""
        own = self._given + 1 if self.renumbers else number
        self._given = max(self._given, own)
        self._numbers[own] = number
        return own

    @property
    def may_foretell(self) -> bool:
        """Whether there is room for another that the server is not told of yet; or never was, as
        where it has no room for more."""
        return len(self._ahead) + len(self._refused) < _MOST_AHEAD

    def prepare_ahead(self, packet: bytes, answer: bytes) -> bytes:
        """What to tell the client of a statement that the server surely prepares, by an answer that
        it has given before."""
        self._given += 1
        self._ahead[self._given] = packet
        told = with_number(answer, self._given)
        self._upstream.prepare_ahead(packet, told, partial(self._came, self._given))
        return told

    def _came(self, number: int, answer: bytes) -> None:
        packet = self._ahead.pop(number, b"")
        if answer[HEADER_BYTES] == _ERR:
            self._refused[number] = Refused(packet, answer)
            self.renumbers = True
        else:
            self.prepared_late(number, number_in(answer))
        waiting = self._waiting
        if waiting is not None and not self._ahead:
            self._waiting = None
            waiting()
        self.close_others()

    def prepared_late(self, number: int, own: int) -> None:
        """The server has prepared a statement of which the client was told before, under a number
        of its own."""
        self._refused.pop(number, None)
        self._numbers[number] = own
        self.renumbers |= own != number

    @property
    def awaits_some(self) -> bool:
        """Whether there are some that the server has not prepared yet."""
        return bool(self._ahead)

    @property
    def all_prepared(self) -> bool:
        """Whether the server has prepared all that the client was told of."""
        return not (self._ahead or self._refused)

    def awaits(self, number: int) -> bool:
        """Whether this is one of those."""
        return number in self._ahead

    def when_prepared(self, then: Callable[[], None]) -> None:
        """Has the server prepare them now, and calls `then`."""
        self._waiting = then
        self._upstream.write(b"")

    def refused(self, command: bytes) -> "Refused | None":
        """Why the server has not prepared the statement that a command names, if it would not."""
        return self._refused.get(number_in(command)) if _names_one(command) else None

    def for_server(self, command: bytes) -> bytes:
        """A command with the server's number for the statement that it names, if it names one."""
        if not self.renumbers or not _names_one(command):
            return command
        return with_number(command, self._numbers.get(number_in(command), NOBODYS))

    # What is executed.

    def was_hit_anew(self, number: int, prepared: Prepared) -> None:
        """A statement was executed in a way that the server may have to see, see `Prepared`."""
        self._unseen[number] = prepared

    @property
    def some_unseen(self) -> bool:
        """Whether there may be some that it has not seen."""
        return bool(self._unseen)

    def take_unseen(self, number: int | None = None) -> list[bytes]:
        """What the server is to run, so that it has seen those of this statement, or of all."""
        numbers = list(self._unseen) if number is None else [number]
        taken = (self._unseen.pop(each, None) for each in numbers)
        return [packet for each in taken if each is not None for packet in each.take_unseen()]

    # What is closed.

    def close(self, number: int, *, was_hit: bool = False) -> None:
        """The client has done with the statement of this number. `was_hit`: what it has left behind
        is what a hit has."""
        self._unseen.pop(number, None)
        if self._refused.pop(number, None) is not None:
            return
        packet = self._ahead.get(number)
        if packet is None:
            self._open.add(number)
            self.close_others()
        elif was_hit and not self._is_owed(number) and self._upstream.take_back(packet):
            del self._ahead[number]
            self.renumbers = True
        else:
            self._open.add(number)
            self._tell_soon()

    def _is_owed(self, number: int) -> bool:
        return number in self._diagnostics.owed_executions()

    def close_others(self) -> None:
        """Something may be owed no more; or another is to be prepared, and there are so many."""
        if self._open:
            owed = self._diagnostics.owed_executions()
            for each in self._open - owed - self._ahead.keys():
                self._tell(each)

    def keeps_open(self, number: int) -> bool:
        """Whether the server has a statement still that the client has closed: before it is named,
        nothing may be owed of it."""
        return number in self._open

    def forget(self) -> None:
        """The server has none any more."""
        for each in (self._open, self._numbers, self._ahead, self._refused, self._unseen):
            each.clear()

    def end(self) -> None:
        """The session does."""
        if self._timer is not None:
            self._timer.cancel()

    def _tell(self, number: int) -> None:
        self._open.discard(number)
        packet = self.for_server(CLOSE + number.to_bytes(4, "little"))
        self._numbers.pop(number, None)
        if self._refused.pop(number, None) is not None:
            return
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
        if self._upstream.holds_back and not self._upstream.ahead:
            self._upstream.write(b"")


_NAME_ONE = USE_PREPARED | {Command.STMT_CLOSE}


def _names_one(command: bytes) -> bool:
    """Whether a command names a prepared statement: one that is cut short does not."""
    return len(command) >= CLOSE_BYTES and command[HEADER_BYTES] in _NAME_ONE
