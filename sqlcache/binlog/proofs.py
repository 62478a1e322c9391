"""Whether what a node remembers can be used: that all has been bumped there which the log tells.

The server is asked where its log ends. Whoever follows the log writes again and again to each node
up to where all has been bumped there (`places`). Once the node has a place that was written after
that was asked, and is not before that end, nothing is missing there that was committed before. What
is committed later is bumped as ever.

A place that was there before proves nothing: the log may have been begun anew, and be shorter.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlcache.binlog.change import Place
from sqlcache.binlog.source import CannotFollow, Connect, Source, order
from sqlcache.binlog.turns import Kept, Turns
from sqlcache.cache.node_watch import Proof, Verdict
from sqlcache.errors import UpstreamError

_ASK_AGAIN_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class _End:
    """Where the log of a server ended when that was asked. `tells_all`: it leaves out no schema."""

    asked_at: float
    server: str
    place: Place
    tells_all: bool


class Proofs:
    """Those of one process. `refused` says that the log is not followed and will not be, `others`
    that another process at work follows it: what that has not bumped yet, it bumps soon."""

    def __init__(
        self,
        connect: Connect,
        turns: Turns,
        *,
        within_s: float,
        refused: Callable[[], bool],
        others: Callable[[], bool],
    ) -> None:
        self._connect = connect
        self.turns = turns
        self.within_s = within_s
        self.refused = refused
        self.others = others
        self._loop = asyncio.get_running_loop()
        self._one_at_a_time = asyncio.Lock()
        self._end: _End | None = None
        self._failed_at = float("-inf")

    def about(self, node: str, *, owed: bool) -> Proof:
        """See `node_watch.Prover`."""
        return _LogProof(self, node, self._loop.time(), owed=owed)

    async def note_unlogged(self) -> None:
        """See `node_watch.Prover`."""
        await self.turns.mark_unlogged()

    async def end(self, since: float) -> _End | None:
        """Where the log ends, asked at a time or later; None where the server does not say now.
        Raises: CannotFollow."""
        async with self._one_at_a_time:
            if self._end is not None and self._end.asked_at >= since:
                return self._end
            if self._loop.time() - self._failed_at < _ASK_AGAIN_S:
                return None
            try:
                self._end = await self._ask()
            except CannotFollow:
                raise
            except UpstreamError:
                self._failed_at = self._loop.time()
                return None
            return self._end

    async def _ask(self) -> _End:
        asked_at = self._loop.time()
        source = await Source.open(self._connect)
        try:
            place = await source.place()
            return _End(asked_at, source.identity, place, source.filtered == "")
        finally:
            source.close()


class _LogProof:
    """That all is known on a node which was logged up to when this was begun."""

    def __init__(self, proofs: Proofs, node: str, now: float, *, owed: bool) -> None:
        self._proofs = proofs
        self._node = node
        self._owed = owed
        self._loop = asyncio.get_running_loop()
        self._begun_at = now
        self._end: _End | None = None
        self._found = 0  # how the place was written that was there
        self._since = now

    async def verdict(self) -> Verdict:
        """See `node_watch.Proof`."""
        if self._end is not None:
            return await self._compare(self._end)
        try:
            end = await self._proofs.end(self._begun_at)
        except CannotFollow:
            kept = await self._kept()
            return Verdict.NOT_YET if kept is None else _unread(kept)
        # Only now: what is written from here on was written when the log's end was known.
        if end is not None and (kept := await self._kept()) is not None:
            self._end, self._found, self._since = end, kept.cas, self._loop.time()
        return Verdict.NOT_YET

    async def _compare(self, end: _End) -> Verdict:
        if self._owed and (not end.tells_all or await self._proofs.turns.any_unlogged()):
            return Verdict.NEVER
        kept = await self._kept()
        if kept is not None and kept.cas != self._found and kept.place is not None:
            known = kept.place
            if known.server == end.server and order(known.place) >= order(end.place):
                return Verdict.PROVEN
        if kept is not None and self._proofs.refused():
            return _unread(kept)
        if kept is None or self._loop.time() - self._since < self._proofs.within_s:
            return Verdict.NOT_YET
        return Verdict.WITHOUT if self._proofs.others() and not self._owed else Verdict.NEVER

    async def _kept(self) -> Kept | None:
        return (await self._proofs.turns.kept()).get(self._node)


def _unread(kept: Kept) -> Verdict:
    """Of a node with this place where the log cannot be followed: what was logged since it was
    written is not known."""
    return Verdict.WITHOUT if kept.place is None else Verdict.NEVER
