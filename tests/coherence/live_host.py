"""What the machine does to a live run: time in which it lets nobody go on is no delay of theirs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

CALM_S, CALM_P99_S = 2.0, 0.25
"""When what was written around sqlcache is seen without faults: always, and but for 1 %."""
_ENOUGH_WRITES = 400
_LOOKED_EVERY_S = 0.05


class OwnLag:
    """How late the running event loop's timers are: `seconds` altogether, while `watch` runs."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def watch(self) -> None:
        """Never returns."""
        while True:
            due = time.monotonic() + _LOOKED_EVERY_S
            await asyncio.sleep(_LOOKED_EVERY_S)
            self.seconds += time.monotonic() - due


def are_late(late_s: Sequence[float], lag_s: float) -> bool:
    """Whether writes were seen later than they are without faults. `late_s`: after how long each
    was, in order; `lag_s`: how late the timers of all who had a part in it were, altogether."""
    if not late_s:
        return False
    if late_s[-1] > CALM_S + lag_s:
        return True
    # Of few writes, 1 % are what a busy machine does to one or two of them.
    return len(late_s) >= _ENOUGH_WRITES and late_s[int(0.99 * len(late_s))] > CALM_P99_S + lag_s
