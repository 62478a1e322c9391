"""How long other processes are waited for, by one that may get no core itself for a while.

As in `sqlcache.patience`: time that passes while this process stands still says nothing of the
others, which most often stand still as well.
"""

import time
from typing import Final

_ASKED_S: Final = 1.0
"""What a question counts for at the most."""
_MOST: Final = 4.0
"""By which the clock may be ahead of what is counted."""


class Waited:
    """Counts the seconds that were waited since it was made: what was slept, twice what was asked
    for at the most, and what questions took in between."""

    def __init__(self) -> None:
        self._began = self._at = time.monotonic()
        self._counted_s = 0.0

    def seconds(self) -> float:
        """Until now, a question having been asked since the last sleep; not less than a quarter of
        what has passed."""
        self._count(_ASKED_S)
        return max(self._counted_s, (self._at - self._began) / _MOST)

    def sleep(self, seconds: float) -> None:
        """Sleeps for so long."""
        time.sleep(seconds)
        self._count(2 * seconds)

    def _count(self, most_s: float) -> None:
        now = time.monotonic()
        self._counted_s += min(now - self._at, most_s)
        self._at = now
