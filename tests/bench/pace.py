"""How long a run takes: how often it does everything, how long each time, and what of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """The passes over all statements, pages and calls from Python, the seconds of a load, and the
    calls of a way; the passes over sysbench's tests and over what is held in memory, the seconds
    of a test, and the sessions; the seconds a page is fetched again and again; and what is
    measured at all: that with `only` in "part: name"."""

    passes: int
    load_s: float
    sysbench_passes: int
    sysbench_s: int
    sessions: int
    calls: int
    page_s: float
    only: str = ""

    def wants(self, part: str, name: str) -> bool:
        return self.only.lower() in f"{part}: {name}".lower()

    def say(self, part: str, at: int, of: int, what: str) -> None:
        """Tells on standard error what is being measured, over what it told before."""
        if sys.stderr.isatty():
            line = f"{part}, pass {at} of {of}: {what}"
            print(f"\r\x1b[K{line[:78]}", end="", file=sys.stderr, flush=True)


QUICK = Pace(3, 0.3, 1, 2, 200, 1_000, 1.0)
FULL = Pace(5, 1.5, 5, 10, 1_000, 3_000, 2.0)
