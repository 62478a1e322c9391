"""Whether what the log tells is read by definitions that are later than it; no I/O, no clock.

Who reads the log is behind it, and what he knows of definitions is of now: by these a statement may
lead to less than it has led to. What it has led to in the definition's own schema is forgotten when
that is read. In others it is not, and nobody knows any more what that was.

Laws:

- What is logged behind a place is read by the definitions of its own time if these are, now, those
  that were known when the log had not come further than that place.
- What is not counts until the log has been read up to where it ended after that: the definitions
  that it was read by are logged before. `late` says of one that follows whether it may have been
  misread by that.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from sqlcache.binlog.change import Place
from sqlcache.binlog.source import order

Stamp = tuple[int, int]
"""Which definitions are known."""

_MOST_AHEAD: Final = 1_000
_MOST_SCHEMAS: Final = 10_000
_MORE_LOOKS: Final = 2  # a definition may be seen a moment before the log has it


class Hindsight:
    """That of one reading of the log, from a place on."""

    def __init__(self) -> None:
        self._looks = 0
        # Where the log ended, and what was known before that was asked.
        self._ahead: deque[tuple[int, Stamp, Place]] = deque(maxlen=_MOST_AHEAD)
        self._here: Place = ("", 0)  # all before that has been bumped
        self._known: Stamp | None = None  # when the log had not come further than it is read now
        self._misread = False
        self._schemas: set[str] = set()
        self._any_schema = False
        self._until = 0  # the look behind which nothing of that counts

    def begin_connection(self) -> None:
        """It is read on another connection, perhaps again from an earlier place."""
        self._ahead.clear()
        self._here, self._known = ("", 0), None

    def look(self, stamp: Stamp) -> tuple[int, Stamp]:
        """It is about to be asked where the log ends, while this is known: see `ended`."""
        self._looks += 1
        return self._looks, stamp

    def ended(self, look: tuple[int, Stamp], place: Place) -> None:
        """At that look the log ended there, or later."""
        self._ahead.append((*look, place))
        self.reached(self._here)

    def reached(self, place: Place) -> None:
        """All before that has been read and bumped."""
        self._here, here = place, order(place)
        while self._ahead and order(self._ahead[0][2]) <= here:
            look, self._known, _ = self._ahead.popleft()
            if look > self._until:
                self.forgotten()

    def read(self, stamp: Stamp, schemas: Iterable[str] = ()) -> None:
        """Something that changed rows was read while this was known, by definitions of these
        schemas; rows by foreign keys as well, whose schemas are not told."""
        if stamp == self._known:
            return
        self._misread = True
        self._schemas.update(schemas)
        if len(self._schemas) > _MOST_SCHEMAS:
            self._any_schema = True
            self._schemas.clear()
        self._until = self._looks + _MORE_LOOKS - 1

    def is_sure(self, stamp: Stamp) -> bool:
        """Whether what was read, and what comes if this is known then, is not misread."""
        return stamp == self._known and not self._misread

    def forgotten(self) -> None:
        """All that was read may have been misread: it does not matter any more."""
        self._misread = self._any_schema = False
        self._schemas.clear()

    def late(self, schemas: frozenset[str], *, keys_cross_schemas: bool) -> bool:
        """Whether what was read before a definition in these schemas may have led to tables in
        others, to which it leads no more. Foreign keys are defined where they lead to."""
        if not schemas or not self._misread:
            return False
        return keys_cross_schemas or self._any_schema or not schemas.isdisjoint(self._schemas)
