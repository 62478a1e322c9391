"""A process's part in the binlog door: it follows the log when that is its turn, and knows else how
far who does is behind.

While nobody follows the log, or who does is too far behind, writes made around sqlcache are not
seen: `/ready` says so, a metric too, and by setting reads go past the cache meanwhile. Not so where
it was never followed, as the account or the server does not allow it, and nobody insists: then a
warning in the log says it once.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal

from sqlcache.binlog.effects import Effects
from sqlcache.binlog.lateness import Lateness
from sqlcache.binlog.own_server import OwnServer
from sqlcache.binlog.places import Nodes, Places
from sqlcache.binlog.proofs import Proofs
from sqlcache.binlog.source import CannotFollow, Connect
from sqlcache.binlog.tailer import Tailer
from sqlcache.binlog.turns import RENEWED_EVERY_S, Turn, Turns
from sqlcache.errors import UpstreamError
from sqlcache.metrics import Metrics

log = logging.getLogger(__name__)

_SITS_OUT_S: Final = 5.0
"""How long who could not follow the log leaves the turn to others."""
_BEGINS_WITHIN_S: Final = 1.0
"""How long a start waits for what comes of that. As it begins all answers may be forgotten, and who
starts is to keep the first ones."""
_ANOTHERS: Final = (
    "the log that is followed is another server's, with the same memcached.prefix: each server"
    " needs one of its own"
)


class Follower:
    """One process's. `start` begins it, `close` ends it.

    `bypass`: see `Lateness`; `stand_in`: see `OwnServer`.
    """

    def __init__(
        self,
        connect: Connect,
        effects: Effects,
        turns: Turns,
        nodes: Nodes,
        metrics: Metrics,
        *,
        mode: Literal["auto", "on"],
        max_lag_s: float,
        catch_up_s: float,
        longest_bytes: int,
        stand_in: bool,
        bypass: Callable[[bool], None] | None,
    ) -> None:
        self._effects = effects
        self._turns = turns
        self._metrics = metrics
        self._mode = mode
        self._own_server = OwnServer(connect, turns, stand_in=stand_in)
        self._lateness = Lateness(metrics, max_lag_s, bypass)
        self._loop = asyncio.get_running_loop()
        self._tailer = Tailer(
            connect,
            effects,
            turns,
            Places(turns, nodes, metrics),
            metrics,
            longest_bytes=longest_bytes,
            on_trouble=self._note,
        )
        self.proofs = Proofs(
            connect,
            turns,
            within_s=catch_up_s,
            refused=lambda: self._refused,
            others=lambda: self._others_follow,
        )
        """That nodes have been told what the log says."""
        self._following: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()  # or it was tried in vain
        self._sits_out_until = float("-inf")
        self._trouble: UpstreamError | None = None
        self._hindered = False  # may not follow it, as far as was known when it could ask
        self._follows = False  # this process, and has something of the log
        self._others_follow = False  # and have caught up with the log

    async def start(self) -> None:
        """Takes its part from here on."""
        await self._look()
        self._watching = self._loop.create_task(self._watch())
        if self._following is not None:
            begun = self._loop.create_task(self._begun.wait())
            try:
                await asyncio.wait(
                    (begun, self._following),
                    timeout=_BEGINS_WITHIN_S,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                begun.cancel()

    async def close(self) -> None:
        """Takes part no more; another may have the turn at once."""
        tasks = [task for task in (self._watching, self._following) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._following is not None:
            await self._turns.leave()

    @property
    def warning(self) -> str:
        """What is wrong, for people; "" where nothing is."""
        if self._trouble is not None and not self._is_followed and not self._is_excused:
            return f"writes made around sqlcache are not seen: {self._trouble}"
        if self._lateness.lags:
            return f"writes made around sqlcache are seen late: {self.lag_s:.0f} s behind"
        if self._following is not None and self._tailer.filtered:
            return f"the server leaves out of its log: {self._tailer.filtered}"
        return ""

    @property
    def lag_s(self) -> float:
        """How far who follows the log is behind; how long nobody has followed it."""
        unfollowed_s = self._lateness.unfollowed_s
        if self._following is None:
            return unfollowed_s
        return self._tailer.lag_s if self._is_up else max(self._tailer.lag_s, unfollowed_s)

    @property
    def _is_up(self) -> bool:
        """Whether this process has been at the log's end since its turn began: before, it does not
        see what is written, however long ago nobody else did any more."""
        return self._follows and self._tailer.caught_up

    @property
    def _is_followed(self) -> bool:
        return self._lateness.was_followed and not self._lateness.lags

    @property
    def _refused(self) -> bool:
        """Whether the log was never followed, as that is not allowed."""
        return self._hindered and not self._lateness.was_followed

    @property
    def _is_excused(self) -> bool:
        """Whether nobody has asked for more than that it is tried."""
        return self._mode == "auto" and self._refused

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(RENEWED_EVERY_S)
            try:
                await self._look()
            except Exception:  # whatever it is, the turn is to be looked after
                log.exception("binary log: looking for the turn failed")

    async def _look(self) -> None:
        """Sees whose turn it is, and how far behind that one is."""
        now = self._loop.time()
        told = self._following is not None and self._is_up
        lag_s = self._tailer.lag_s if told else None
        turn = await self._turns.look(lag_s, wants=now >= self._sits_out_until)
        self._effects.name_for(turn.reading)
        if turn.own and self._following is None:
            self._begin()
        elif not turn.own and self._following is not None:
            await self._end()
        if self._following is not None and self._following.done():
            await self._give_up(self._following)
        if not turn.own and turn.lag_s is not None and await self._own_server.is_not_followed():
            self._hindered = False  # that is no excuse for this
            self._note(UpstreamError(_ANOTHERS))
            turn = replace(turn, lag_s=None)
        self._others_follow = turn.renewed and turn.lag_s is not None
        self._compare(turn)

    def _begin(self) -> None:
        self._metrics.binlog_turns += 1
        self._follows = False
        self._following = self._loop.create_task(self._tailer.follow())

    async def _end(self) -> None:
        assert self._following is not None
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        self._following = None
        log.info("another follows the binary log")

    async def _give_up(self, following: asyncio.Task[None]) -> None:
        """Leaves the turn to others for a while: it cannot be followed from here."""
        self._following = None
        error = following.exception()
        if not isinstance(error, UpstreamError):
            log.error("binary log not followed", exc_info=error)
            error = UpstreamError(f"it cannot be read: {error!r}")
        self._note(error)
        self._sits_out_until = self._loop.time() + _SITS_OUT_S
        await self._turns.leave()

    def _note(self, trouble: UpstreamError | None) -> None:
        self._begun.set()
        before, self._trouble = self._trouble, trouble
        self._follows |= trouble is None
        self._hindered = isinstance(trouble, CannotFollow) or (bool(trouble) and self._hindered)
        if trouble is not None and str(trouble) != str(before):
            log.warning("writes made around sqlcache are not seen reason=%s", trouble)
        elif trouble is None and before is not None:
            log.info("writes made around sqlcache are seen again")

    def _compare(self, turn: Turn) -> None:
        """Finds out how far who follows the log is behind, and tells what is known of it."""
        if self._following is not None:
            lag_s = self.lag_s
            if self._is_up and lag_s == 0:
                self._lateness.followed(lag_s)
        elif turn.lag_s is not None:
            lag_s = turn.lag_s
            self._lateness.followed(lag_s)
            self._trouble, self._hindered = None, False
        else:
            lag_s = self._lateness.unfollowed_s
        self._metrics.binlog_hindered = int(self._hindered)
        self._metrics.binlog_lag_seconds = lag_s if self._following is not None else 0.0
        self._metrics.binlog_following = int(self._following is not None)
        self._metrics.binlog_lag_bytes = self._tailer.lag_bytes if self._following else 0
        file, position = self._tailer.place if self._following else (0, 0)
        self._metrics.binlog_file, self._metrics.binlog_position_bytes = file, position
        self._lateness.judge(lag_s, excused=self._is_excused)
