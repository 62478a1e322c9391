"""COM_STMT_CLOSE, which the server does not answer: it is told with what is sent there next.

A statement that the server may have to execute once more stays open there until that is over, as
where FOUND_ROWS() is to be that of a hit. To its client it is closed: see `keeps_open`.
"""

from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import HEADER_BYTES
from sqlcache.proxy.diagnostics import Diagnostics

CLOSE_BYTES = HEADER_BYTES + 5
CLOSE = bytes((CLOSE_BYTES - HEADER_BYTES, 0, 0, 0, Command.STMT_CLOSE))
"""How its packet begins: the statement's number follows."""


class Closing:
    """Of one session's prepared statements."""

    __slots__ = ("_diagnostics", "_open", "_upstream")

    def __init__(self, upstream: Channel, diagnostics: Diagnostics) -> None:
        self._upstream = upstream
        self._diagnostics = diagnostics
        self._open: set[int] = set()

    def close(self, number: int) -> None:
        """The client has done with the statement of this number."""
        self._open.add(number)
        owed = self._diagnostics.owed_executions()
        for each in [each for each in self._open if each not in owed]:
            self._tell(each)

    def close_all(self) -> None:
        """Nothing has to be executed once more."""
        while self._open:
            self._tell(min(self._open))

    def keeps_open(self, number: int) -> bool:
        """Whether the server has a statement still that the client has closed: before it is named,
        nothing may be owed of it, and `close_all` is to be called."""
        return number in self._open

    def forget(self) -> None:
        """The server has none any more."""
        self._open.clear()

    def _tell(self, number: int) -> None:
        self._open.discard(number)
        packet = CLOSE + number.to_bytes(4, "little")
        # One at most waits for the next command: the server counts what is open, in all sessions.
        if self._upstream.holds_back:
            self._upstream.write(packet)
        else:
            self._upstream.write_ahead(packet)
