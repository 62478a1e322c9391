"""COM_STMT_CLOSE, which the server does not answer: it is told with what is sent there next, if
that comes soon.

A statement that the server may have to execute once more stays open there until that is over, as
where FOUND_ROWS() is to be that of a hit. To its client it is closed: see `keeps_open`.
"""

import asyncio

from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import HEADER_BYTES
from sqlcache.proxy.diagnostics import Diagnostics

CLOSE_BYTES = HEADER_BYTES + 5
CLOSE = bytes((CLOSE_BYTES - HEADER_BYTES, 0, 0, 0, Command.STMT_CLOSE))
"""How its packet begins: the statement's number follows."""
_SOON_S = 0.05


class Closing:
    """Of one session's prepared statements."""

    __slots__ = ("_diagnostics", "_open", "_timer", "_upstream")

    def __init__(self, upstream: Channel, diagnostics: Diagnostics) -> None:
        self._upstream = upstream
        self._diagnostics = diagnostics
        self._open: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None

    def close(self, number: int) -> None:
        """The client has done with the statement of this number."""
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
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SOON_S, self._send)

    def _send(self) -> None:
        self._timer = None
        if self._upstream.holds_back and not self._upstream.ahead:
            self._upstream.write(b"")
