"""Time in which the machine was suspended: in that the clock of an event loop stands still."""

import time
from functools import partial

boot_clock = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
"""Seconds since the machine was started, those in which it was suspended included. It is asked
several times a statement: so it is no function of our own."""


def suspended_s() -> float:
    """How long it was in all since it was started; less than that where this process is stopped
    between its two looks."""
    return boot_clock() - time.monotonic()
