"""What the machine does to a live run: time in which it lets nobody go on is no delay of theirs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence

CALM_S, CALM_P99_S = 2.0, 0.25
"""When what was written around sqlcache is seen without faults: always, and but for 1 %."""
_ENOUGH_WRITES = 400
_LOOKED_EVERY_S = 0.05
_SHORTEST_PAUSE_S = 0.05

Span = tuple[float, float]
"""Since when, and how long; by `time.monotonic`."""


class OwnLag:
    """When the running event loop's timers were late, in `pauses`, while `watch` runs. It is that
    of the clients: how long sqlcache's own are held is for these to find, and is none of it."""

    def __init__(self) -> None:
        self.pauses: list[Span] = []

    async def watch(self) -> None:
        """Never returns."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(_LOOKED_EVERY_S)
            late_s = time.monotonic() - began - _LOOKED_EVERY_S
            if late_s > _SHORTEST_PAUSE_S:
                self.pauses.append((began, _LOOKED_EVERY_S + late_s))


def are_late(late: Collection[Span], pauses: Sequence[Span]) -> bool:
    """Whether writes were seen later than they are without faults. `late`: when each was made, and
    after how long it was seen; `pauses` are those of the machine, as far as is known."""
    longest_s = max((seconds for _, seconds in pauses), default=0.0)
    if any(seconds > CALM_S + longest_s for _, seconds in late):
        return True
    # Who was under way in a pause may have waited for that alone.
    others = sorted(
        seconds
        for at, seconds in late
        if not any(at < began + lasted and began < at + seconds for began, lasted in pauses)
    )
    # Of few writes, 1 % are what a busy machine does to one or two of them.
    return len(others) >= _ENOUGH_WRITES and others[int(0.99 * len(others))] > CALM_P99_S
