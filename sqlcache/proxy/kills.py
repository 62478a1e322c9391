"""Sessions of this process that a KILL through it may have ended.

Once MySQL has said OK to a KILL, the session that it names is answered nothing more. Of that its
connection tells, which MySQL ends, but perhaps a moment later than that OK has come. So the session
is in doubt before the OK is passed on: it has no hit until MySQL has answered it.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import End
from sqlcache.plan.commands import ClientCommand, Meaning
from sqlcache.sql.statement import ANY_CONNECTION

_NUMBER = slice(1, 5)  # in the payload of a COM_PROCESS_KILL
_BITS = 0xFFFFFFFF  # of a number that a server greets with
_NONE: Collection[int] = ()

Doubts = Callable[[], None]


class Numbered(Protocol):
    """Who knows the number of a session's connection, 0 for none yet."""

    connection: int


class Kills:
    """All sessions that one may end."""

    def __init__(self) -> None:
        self._sessions: dict[Doubts, Numbered] = {}

    def begin(self, doubts: Doubts, session: Numbered) -> None:
        """There is one, whose `doubts` is to be called where it may have been ended."""
        self._sessions[doubts] = session

    def end(self, doubts: Doubts) -> None:
        """It has ended."""
        self._sessions.pop(doubts, None)

    def ran(self, connections: Collection[int]) -> None:
        """MySQL has ended these connections, or some of them."""
        any_one = ANY_CONNECTION in connections
        numbers = {number & _BITS for number in connections}
        for doubts, session in self._sessions.items():
            if any_one or session.connection & _BITS in numbers:
                doubts()


def ended_by(
    command: ClientCommand, meaning: Meaning, before: int, ends: Sequence[End]
) -> Collection[int]:
    """The numbers of the connections that a command has ended, by those `ends` of its statements'
    answers that came now, behind so many `before`: who fails to kill puts nobody in doubt. Of code
    that it calls, or that is not read, nothing is known."""
    if all(end.status is None for end in ends):
        return _NONE
    if command.code == Command.PROCESS_KILL:
        return (int.from_bytes(command.payload[_NUMBER], "little"),)
    if any(statement.calls_stored for statement in meaning.statements):  # it may have many ends
        return meaning.kills
    ran = zip(meaning.statements[before:], ends, strict=False)
    return {s.kills for s, end in ran if s.kills is not None and end.status is not None}
