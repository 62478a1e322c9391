"""Time in which the machine was suspended: in that the clock of an event loop stands still."""

import time


def suspended_s() -> float:
    """How long it was in all since it was started, in tenths of a second."""
    # Two clocks cannot be read at once: the difference without that is not the same each time.
    return round(time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic(), 1)
