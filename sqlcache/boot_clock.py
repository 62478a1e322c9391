"""Time in which the machine was suspended: in that the clock of an event loop stands still."""

import time


def boot_clock() -> float:
    """Seconds since the machine was started, those in which it was suspended included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def suspended_s() -> float:
    """How long it was in all since it was started; less than that where this process is stopped
    between its two looks."""
    return boot_clock() - time.monotonic()
