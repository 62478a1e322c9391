"""What the process itself takes and suffers: CPU, memory, open files, and a late event loop."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

from prometheus_client import ProcessCollector

from sqlcache.metric_kinds import Histogram
from sqlcache.metrics import Metrics

LOOKED_EVERY_S: Final = 0.5

_process = ProcessCollector(registry=None)


def measure(metrics: Metrics) -> None:
    """Writes down what this process takes now. Where there is no /proc, nothing."""
    taken = {family.name: family.samples[0].value for family in _process.collect()}
    metrics.process_cpu_seconds = taken.get("process_cpu_seconds", 0.0)
    metrics.process_resident_memory_bytes = taken.get("process_resident_memory_bytes", 0.0)
    metrics.process_open_fds = taken.get("process_open_fds", 0.0)
    metrics.process_max_fds = taken.get("process_max_fds", 0.0)


class LoopLag:
    """Counts how late the running event loop's timers are, by one of its own, until `stop`."""

    def __init__(self, late: Histogram) -> None:
        self._late = late
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """To be called inside the running event loop."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LOOKED_EVERY_S, self._look, loop, self._due())

    def stop(self) -> None:
        """Counts no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._late.observe(max(perf_counter() - due, 0.0))
        self._timer = loop.call_later(LOOKED_EVERY_S, self._look, loop, self._due())

    @staticmethod
    def _due() -> float:
        return perf_counter() + LOOKED_EVERY_S
