"""How far who follows the log is behind its end, which is looked for every so often."""

import asyncio
from collections import deque
from typing import Final

from sqlcache.binlog.change import Place
from sqlcache.binlog.source import order

LOOK_EVERY_S: Final = 0.5  # how far the log has got
_MOST_AHEAD: Final = 1_000


class Lag:
    """One process's. Times are on the event loop's clock."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._bumped_to: Place = ("", 0)  # all before that, on this connection
        self._up_to_date_at = self._loop.time()
        self._listens_since: float | None = float("-inf")  # None: what has come is being taken
        # Where the log ended, and when. Who is far behind needs the latest of them only.
        self._ahead: deque[tuple[float, Place]] = deque(maxlen=_MOST_AHEAD)

    def begin(self) -> None:
        """The log is followed from now on."""
        self._up_to_date_at = self._loop.time()

    def begin_connection(self) -> None:
        """It is followed on another connection."""
        self._ahead.clear()
        self._bumped_to = ("", 0)

    def came(self) -> None:
        """Something of the log has come, and is being taken."""
        self._listens_since = None

    def listens(self) -> None:
        """All of that is taken."""
        if self._listens_since is None:
            self._listens_since = self._loop.time()

    def ended(self, at: float, place: Place) -> bool:
        """The log ended there at that time, or later; see `bumped`."""
        self._ahead.append((at, place))
        return self._pass()

    def bumped(self, to: Place) -> bool:
        """All before that has been bumped. Whether it is up to date now, and was not."""
        self._bumped_to = to
        return self._pass()

    def _pass(self) -> bool:
        here, was_behind = order(self._bumped_to), bool(self._ahead)
        while self._ahead and order(self._ahead[0][1]) <= here:
            self._up_to_date_at = self._ahead.popleft()[0]
        return was_behind and not self._ahead

    @property
    def lag_s(self) -> float:
        """For how long it has been behind the log's end: what was committed before that has been
        bumped. 0 where it is not behind, as far as was seen half a second ago."""
        now = self._loop.time()
        if self._ahead:
            return now - self._up_to_date_at
        return max(now - self._up_to_date_at - 2 * LOOK_EVERY_S, 0.0)

    def in_bytes(self, here: tuple[int, int]) -> int:
        """How much is still to be read, of the file in which the log ends, from this place on."""
        if not self._ahead:
            return 0
        file, end = order(self._ahead[-1][1])
        return max(end - here[1], 0) if file == here[0] else end

    def stalled_s(self, now: float) -> float:
        """For how long the log has gone on, and nothing of it has come."""
        if self._listens_since is None or not self._ahead:
            return 0.0
        return now - max(self._ahead[0][0], self._listens_since)
