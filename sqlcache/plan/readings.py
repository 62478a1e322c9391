"""Readings of the catalog: one at a time, now and then, and whenever somebody asks for one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import reduce
from operator import or_

from sqlcache.errors import CacheUnavailable, UpstreamError
from sqlcache.metrics import Metrics
from sqlcache.sql.facts import EVERYWHERE, Scope

log = logging.getLogger(__name__)

_HOLDS_UP_S = 1.0
_RETRY_S = 0.5
_LONGEST_RETRY_S = 8.0


class Readings:
    """Those of one process. `read` reads what is in a scope; it raises UpstreamError, and
    CacheUnavailable."""

    def __init__(
        self, read: Callable[[Scope], Awaitable[None]], metrics: Metrics, *, refresh_s: float
    ) -> None:
        self._read = read
        self._metrics = metrics
        self._refresh_s = refresh_s
        self._reading: asyncio.Task[bool] | None = None
        self._wanted: list[Scope] = []  # by those who wait for the next reading
        self._failed_at = float("-inf")
        self._keeping: asyncio.Task[None] | None = None
        self._for_sessions: asyncio.Task[bool] | None = None
        self._held_up_until = 0.0
        self.trouble: str | None = None
        """Why the last one failed; None where it did not."""

    async def start(self) -> None:
        """Reads everything, and from then on again and again. MySQL may be away."""
        await self.of(EVERYWHERE)
        self._keeping = asyncio.get_running_loop().create_task(self._keep_fresh())

    async def close(self) -> None:
        """Stops reading."""
        own = self._keeping, self._reading, self._for_sessions
        tasks = [task for task in own if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_fresh(self) -> None:
        retry_s = _RETRY_S
        while True:
            failing = self.trouble is not None
            await asyncio.sleep(min(retry_s, self._refresh_s) if failing else self._refresh_s)
            try:
                await self.of(EVERYWHERE)
            except Exception:  # a fault of sqlcache's own; the next reading may go well
                log.exception("catalog not read")
            retry_s = min(2 * retry_s, _LONGEST_RETRY_S) if failing else _RETRY_S

    async def of(self, scope: Scope, has_come: Callable[[], bool] = lambda: False) -> bool:
        """Reads what is in a scope, in a reading that begins after this call; whether it could.
        `has_come`: whether one that was under way has brought what is wanted, and none is needed.
        """
        if asyncio.get_running_loop().time() - self._failed_at < _RETRY_S:
            return False
        wanted = self._wanted
        wanted.append(scope)
        if self._reading is not None:
            await asyncio.wait([self._reading])
            if has_come():
                wanted.remove(scope)  # the next reading may have begun: then it had this list
                return True
        if self._reading is None or self._reading.done():
            all_wanted, self._wanted = reduce(or_, self._wanted, scope), []
            self._reading = asyncio.get_running_loop().create_task(self._try(all_wanted))
        reading = self._reading
        await asyncio.wait([reading])
        return not reading.cancelled() and reading.result()

    async def for_sessions(self) -> None:
        """Reads everything, or joins who does that for sessions, and waits for it no longer than
        these may be held up, from its beginning: it may hang for as long as a reading may take."""
        loop = asyncio.get_running_loop()
        if self._for_sessions is None or self._for_sessions.done():
            self._for_sessions = loop.create_task(self.of(EVERYWHERE))
            self._held_up_until = loop.time() + _HOLDS_UP_S
        left_s = self._held_up_until - loop.time()
        await asyncio.wait([self._for_sessions], timeout=max(left_s, 0))

    async def _try(self, scope: Scope) -> bool:
        try:
            await self._read(scope)
        except (UpstreamError, CacheUnavailable) as error:
            self._failed_at = asyncio.get_running_loop().time()
            self._metrics.catalog_failures += 1
            if self.trouble != str(error):
                self.trouble = str(error)
                log.warning("catalog not read, trying again error=%s", error)
            return False
        if self.trouble is not None:
            self.trouble = None
            log.info("catalog read again")
        self._metrics.catalog_loads += 1
        return True
