"""Of a command with several statements: whether those that have not ended yet may write, or commit.
Its fence stands until the last one of these has."""

import math

from sqlcache.plan.commands import Meaning
from sqlcache.plan.planner import Planner

_ONE_ANSWER = frozenset(
    {
        "SELECT",
        "WITH",
        "TABLE",
        "VALUES",
        "INSERT",
        "REPLACE",
        "UPDATE",
        "DELETE",
        "BEGIN",
        "START",
        "COMMIT",
        "ROLLBACK",
    }
)


class StillToCome:
    """Of the command whose answer comes, of one session. `begin` with each."""

    __slots__ = ("_ended", "_last", "_planner")

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self.begin()

    def begin(self) -> None:
        """None of its statements has ended."""
        self._ended = 0
        self._last: tuple[int, float] | None = None  # see `_last_write`, by the catalog's edition

    def ended(self, statements: int) -> None:
        """So many more have."""
        self._ended += statements

    def may_write(self, meaning: Meaning) -> bool:
        """Whether any of the others may write, or commit.

        How many have ended is known where each has one answer.
        """
        if self._ended >= len(meaning.statements):
            return True
        return self._ended < self._last_write(meaning)

    def ends_amid(self, meaning: Meaning) -> float:
        """How many of its statements end while others that may write, or commit, are to come."""
        count = len(meaning.statements)
        return max(min(self._last_write(meaning), count) - 1, 0) if count > 1 else 0

    def _last_write(self, meaning: Meaning) -> float:
        """After how many of its statements the last one has ended that may write, or commit."""
        edition = self._planner.keeper.edition
        if self._last is None or self._last[0] != edition:
            self._last = edition, self._find_last_write(meaning)
        return self._last[1]

    def _find_last_write(self, meaning: Meaning) -> float:
        statements = meaning.statements
        if any(statement.verb not in _ONE_ANSWER for statement in statements):
            return math.inf
        silent: set[int] = set()  # those alike are one and the same object
        for place in range(len(statements), 0, -1):
            last = statements[place - 1]
            if id(last) in silent:
                continue
            if last.may_commit or self._planner.tagging.writes([last], meaning.schema):
                return place
            silent.add(id(last))
        return 0
