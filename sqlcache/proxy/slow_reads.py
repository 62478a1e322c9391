"""Reads that took longer than `log.slow_miss_ms`, each in a log line, by shape.

At most `MOST_A_SECOND` lines a second: how many more there were is in the next one.
"""

import logging
import math
from time import monotonic
from typing import Final

from sqlcache.statement_counts import StatementCounts

log = logging.getLogger(__name__)

MOST_A_SECOND: Final = 10
_LONGEST_SHOWN: Final = 500  # characters of a shape


class SlowReads:
    """Tells of the slow reads of this process, which MySQL answered.

    `over_s`: how long is too long, in seconds; infinite where nothing is to be told.
    """

    def __init__(self, slow_miss_ms: float = 0) -> None:
        self._second = 0
        self._told = self._untold = 0
        self.use(slow_miss_ms)

    def use(self, slow_miss_ms: float) -> None:
        """Goes by this setting from here on; 0 is none."""
        self.over_s = slow_miss_ms / 1000 if slow_miss_ms else math.inf

    def tell(
        self, counts: StatementCounts, seconds: float, schema: str | None, reason: str
    ) -> None:
        """One has taken so long, and was asked of MySQL for this reason."""
        second = int(monotonic())
        if second != self._second:
            self._second, self._told = second, 0
        if self._told == MOST_A_SECOND:
            self._untold += 1
            return
        self._told += 1
        untold, self._untold = self._untold, 0
        log.warning(
            "slow read took_ms=%s schema=%s reason=%s statement=%s untold=%d",
            round(1000 * seconds, 1),
            schema or "",
            reason,
            counts.text[:_LONGEST_SHOWN],
            untold,
        )
