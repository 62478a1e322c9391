"""Checks: reads that the cache could answer, and that MySQL answers all the same, to compare.

`cache.verify_percent` picks some of the hits; in shadow mode it is all of them, and nothing is
served. The client gets MySQL's answer. Where that is another one, it counts as a difference only if
nothing else explains it:

- The answer's tags still have, after MySQL's answer has come, the versions of the entry, and no
  fence: so no write that went through any sqlcache can have come between the two.
- No rule allows the answer to be behind.
- The query decides what differs: see `comparison`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import BoundedSemaphore

from sqlcache.cache import entry
from sqlcache.cache.engine import Engine
from sqlcache.cache.lookups import Waiter
from sqlcache.cache.outcomes import Bypass, Hit, Miss, Outcome, Packed
from sqlcache.cache.reads import Read
from sqlcache.cache.tags import Tag
from sqlcache.errors import CacheUnavailable, ProtocolError
from sqlcache.metrics import Metrics
from sqlcache.proxy.comparison import Result, compared
from sqlcache.proxy.transaction import TransactionView
from sqlcache.sql.lexer import Lexed
from sqlcache.sql.order import order_of

log = logging.getLogger(__name__)

SHADOW = Bypass("shadow mode")
VERIFIED = Bypass("verified")

Asked = Callable[[], Awaitable[tuple[Lexed, bool] | None]]
"""Gives what was asked, if it can be read, and whether as a text."""

_ON_THE_LOOP_BYTES = 8_192
# One at a time, for each takes the CPU from all others; and few in a row, for whose sessions wait.
_thread = ThreadPoolExecutor(1, thread_name_prefix="sqlcache-checks")
_turns = BoundedSemaphore(4)


class Unserved(Hit):
    """A hit about which MySQL is asked; who serves hits at once knows it for none of these."""


class Checks:
    """Those of one session. `share`: of the hits, from 0 to 1. `shadow`: of all, and nothing is
    served. `chance` gives a number from 0 to 1."""

    def __init__(
        self,
        engine: Engine,
        metrics: Metrics,
        *,
        share: float,
        shadow: bool,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.shadow = shadow
        self.reason = SHADOW if shadow else VERIFIED
        self._engine = engine
        self._metrics = metrics
        self._share = share
        self._chance = chance

    def lookup(self, read: Read, waiter: Waiter) -> None:
        """See `Engine.lookup`; of the hits, those that are to be checked are `Unserved`."""

        def found(outcome: Outcome) -> None:
            if type(outcome) is Hit and self._picks(read):
                outcome = Unserved(outcome.value, outcome.versions_bytes, since=outcome.since)
            waiter(outcome)

        self._engine.lookup(read, found)

    def at_once(self, read: Read) -> None:
        """See `Engine.at_once`: which hits are to be checked is found by `lookup`."""

    def _picks(self, read: Read) -> bool:
        return self.shadow or (not may_be_behind(read) and self._chance() < self._share)

    def wants(self, read: Read, hit: Hit, view: TransactionView | None) -> bool:
        """Whether MySQL is to be asked about this hit, for a session in this transaction."""
        if self.shadow:
            return True
        return view is None and (type(hit) is Unserved or self._picks(read))

    def count_shadow(
        self, read: Read, hit: Hit, view: TransactionView | None, took_s: float
    ) -> None:
        """MySQL took so long to answer what would have been this hit, if its transaction allowed
        it."""
        if self.shadow and (view is None or view.allows(read, hit)):
            self._metrics.shadow_seconds.observe(took_s)

    async def compare(
        self, read: Read, hit: Hit, fresh: bytes | None, asked: Asked, *, deprecate_eof: bool
    ) -> None:
        """Compares a hit with the packets that MySQL has answered; None where it has given no
        answer that could be stored."""
        stored = entry.packets_for(hit.value, hit.versions_bytes, 0)
        if fresh is None or stored is None or may_be_behind(read):
            result = Result.NOT_COMPARABLE
        elif fresh == stored:
            result = Result.SAME
        else:
            result = await _compared(stored, fresh, await asked(), deprecate_eof=deprecate_eof)
        if result is Result.DIFFERENT and not await self._is_current_still(read, hit):
            result = Result.OVERTAKEN
        self._metrics.verified[result] += 1
        if result is Result.DIFFERENT:
            await self._forget(read)

    async def _is_current_still(self, read: Read, hit: Hit) -> bool:
        """Whether no write that sqlcache knows of has begun since the hit was found."""
        versions = hit.value[: hit.versions_bytes]
        match await self._engine.ask_about(read):
            case Hit() as now:
                return now.value[: now.versions_bytes] == versions
            case Packed() | Miss() as now:
                return now.versions == versions
            case _:
                return False

    async def _forget(self, read: Read) -> None:
        """A stored answer was wrong: nobody knows what else is that hangs on its tables."""
        tags = {Tag(tag.schema, tag.table) for tag in read.tags.tags if tag.table}
        tables = ",".join(sorted(map(str, tags)))
        if self._engine.seldom.says(f"different {tables}"):
            log.error(
                "a stored answer is not MySQL's, its tables are forgotten"
                " key=%s tables=%s statement=%s",
                read.key.decode("ascii", "backslashreplace"),
                tables,
                read.counts.text,
                extra={"kind": "cache"},
            )
        with suppress(CacheUnavailable):  # then it is made later
            await self._engine.bump(tags)


def may_be_behind(read: Read) -> bool:
    """Whether a rule allows its answer to be."""
    return read.may_be_stale or read.freshness.stale_while_revalidate_s > 0


async def _compared(
    stored: bytes, fresh: bytes, asked: tuple[Lexed, bool] | None, *, deprecate_eof: bool
) -> Result:
    if asked is None:
        return Result.NOT_COMPARABLE
    lexed, is_text = asked

    def compare() -> Result:
        order = order_of(lexed.tokens)
        try:
            return compared(stored, fresh, order, is_text=is_text, deprecate_eof=deprecate_eof)
        except ProtocolError:  # of what is stored: its client has MySQL's answer already
            return Result.NOT_COMPARABLE

    def compare_in_turn() -> Result:
        try:
            return compare()
        finally:
            _turns.release()

    if len(stored) + len(fresh) + len(lexed.text) <= _ON_THE_LOOP_BYTES:
        return compare()
    if not _turns.acquire(blocking=False):
        return Result.NOT_COMPARABLE
    return await asyncio.get_running_loop().run_in_executor(_thread, compare_in_turn)
