"""The sessions of a process: what is known of them, which of them are idle, and how they end."""

import asyncio
import logging
import os
from typing import Any

from sqlcache.metrics import Metrics
from sqlcache.proxy.session import Session

log = logging.getLogger(__name__)

_MOST_TOLD = 10_000
_TOLD_AT_ONCE = 200  # sessions, in a turn of the event loop
_SWEEPS = 10  # within the time that a client may be idle


class Sessions:
    """All of them. `idle_timeout_s`: a client that is idle for longer, by a fifth at most, is sent
    away; 0: never."""

    def __init__(self, metrics: Metrics, idle_timeout_s: float) -> None:
        self._metrics = metrics
        self._idle_timeout_s = idle_timeout_s
        self._sweep: asyncio.TimerHandle | None = None
        self._all: dict[asyncio.Task[None], Session | None] = {}

    def add(self, task: "asyncio.Task[None]", session: Session | None) -> None:
        """A client is served by this task, which ends with its session; that is None as long as it
        has none yet."""
        self._all[task] = session
        self._metrics.connections_open = len(self._all)
        task.add_done_callback(self._ended)

    def begun(self, task: "asyncio.Task[None]", session: Session) -> None:
        """The client of this task has its session."""
        self._all[task] = session

    def begin_sweeping(self) -> None:
        """Sends away who is idle for too long, from now on."""
        if self._idle_timeout_s:
            self._sweep_later()

    async def drain(self, timeout_s: float) -> None:
        """Lets what is under way finish for so long, then ends all. If it is cancelled, it does
        that at once."""
        if self._sweep is not None:
            self._sweep.cancel()
        for session in self._all.values():
            if session is not None:
                session.drain()
        try:
            if self._all:
                await asyncio.wait(self._all, timeout=timeout_s)
        finally:
            self.cut()
            if self._all:
                await asyncio.wait(self._all)

    async def report(self) -> list[dict[str, Any]]:
        """What is known of each client's session, of so many at most. Lets others have their turns
        meanwhile."""
        pid = os.getpid()
        told: list[dict[str, Any]] = []
        sessions = list(self._all.values())[:_MOST_TOLD]
        for place, session in enumerate(filter(None, sessions), 1):
            told.append(session.report(asyncio.get_running_loop().time()) | {"pid": pid})
            if place % _TOLD_AT_ONCE == 0:
                await asyncio.sleep(0)
        return told

    def cut(self) -> None:
        """Ends all sessions at once, whatever they are at."""
        if self._all:
            sessions = self._all.values()
            amid = sum(session is not None and session.in_transaction for session in sessions)
            log.warning("sessions cut sessions=%d in_transaction=%d", len(sessions), amid)
        for task in self._all:
            task.cancel()

    def _sweep_later(self) -> None:
        every_s = self._idle_timeout_s / _SWEEPS
        self._sweep = asyncio.get_running_loop().call_later(every_s, self._send_idle_away)

    def _send_idle_away(self) -> None:
        """One look at all sessions every so often, and no timer for each statement."""
        now = asyncio.get_running_loop().time()
        for session in self._all.values():
            if session is not None and session.end_if_idle(now, self._idle_timeout_s):
                self._metrics.limits_reached["idle_timeout_s"] += 1
        self._sweep_later()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._all[task]
        self._metrics.connections_open = len(self._all)
        if not task.cancelled() and task.exception() is not None:
            log.error("session failed", exc_info=task.exception())
