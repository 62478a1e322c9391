"""How many clients there are, in all processes of one `serve` together.

The numbers stand in memory that the processes share. Each writes its own part alone and reads
those of all, so there is no lock that one could hold when it is killed; its parent empties the part
of one that has gone.

Who comes adds itself first and counts then, so there are never more than may be. Of those who come
for the last seat at the very same moment, perhaps none gets it.
"""

from collections.abc import MutableSequence
from hashlib import blake2b
from multiprocessing import get_context
from typing import Final

_SETS: Final = 128
_WAYS: Final = 8
_CELL: Final = 2  # a user's digest, and how many sessions it has in this process; 0 and 0: free
_PART: Final = 1 + _CELL * _SETS * _WAYS


class Seats:
    """Those of one process, number `process` of so many; see `of` for the others'.

    Users are told apart by 64 bits of a digest. A process that has sessions of more than eight
    users whose digests end alike counts the others for itself alone.
    """

    def __init__(self, processes: int = 1) -> None:
        self._numbers: MutableSequence[int]
        if processes == 1:
            self._numbers = [0] * _PART
        else:
            self._numbers = get_context("spawn").RawArray("Q", _PART * processes)
        self._start = 0
        self._users: dict[bytes, int] = {}

    def of(self, process: int) -> "Seats":
        """The same numbers, for another process; it may be handed to that when it is started."""
        other = Seats.__new__(Seats)
        other._numbers, other._start, other._users = self._numbers, process * _PART, {}
        return other

    def clear(self) -> None:
        """The process has gone, and its clients with it."""
        self._numbers[self._start : self._start + _PART] = [0] * _PART

    def share_of(self, most: int) -> int:
        """How many of `most` are this process's, if each had as many; all together have `most`."""
        processes, process = len(self._numbers) // _PART, self._start // _PART
        return most // processes + (process < most % processes)

    @property
    def own(self) -> int:
        """How many are taken in this process."""
        return self._numbers[self._start]

    @property
    def taken(self) -> int:
        """How many are taken in all."""
        return sum(self._numbers[::_PART])

    def take(self, most: int) -> bool:
        """Takes a seat, if no more than `most` are taken then; `leave` gives it back."""
        self._numbers[self._start] += 1
        if self.taken <= most:
            return True
        self.leave()
        return False

    def leave(self) -> None:
        """Gives one back."""
        self._numbers[self._start] -= 1

    def take_as(self, user: bytes, most: int) -> bool:
        """Takes one of a user's, if no more than `most` are then; `leave_as` gives it back."""
        self._note(user, 1)
        if self._taken_as(user) <= most:
            return True
        self.leave_as(user)
        return False

    def leave_as(self, user: bytes) -> None:
        """Gives one of a user's back."""
        self._note(user, -1)

    def _note(self, user: bytes, more: int) -> None:
        count = self._users.get(user, 0) + more
        if count:
            self._users[user] = count
        else:
            del self._users[user]
        digest = _digest(user)
        cell = self._cell(self._start, digest) or self._cell(self._start, 0, near=digest)
        if cell is not None:
            self._numbers[cell] = digest if count else 0
            self._numbers[cell + 1] = count

    def _taken_as(self, user: bytes) -> int:
        digest = _digest(user)
        others = 0
        for start in range(0, len(self._numbers), _PART):
            if start != self._start and (cell := self._cell(start, digest)) is not None:
                others += self._numbers[cell + 1]
        return self._users.get(user, 0) + others

    def _cell(self, start: int, digest: int, near: int | None = None) -> int | None:
        """Where a process has this digest, in the set of `near` if that is another."""
        first = start + 1 + (digest if near is None else near) % _SETS * _WAYS * _CELL
        for cell in range(first, first + _WAYS * _CELL, _CELL):
            if self._numbers[cell] == digest:
                return cell
        return None


def _digest(user: bytes) -> int:
    """The same in every process, and never 0."""
    return int.from_bytes(blake2b(user, digest_size=8).digest(), "little") or 1
