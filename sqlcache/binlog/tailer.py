"""Follows the log from where its transactions were bumped last, and bumps what comes.

- The place is remembered after the bump, here and on the nodes: what was read and not bumped is
  read again.
- Where it is not known what was missed, everything is forgotten, and the log followed from its end:
  no place is known, or it is of another server, or of another log of this one's, or the server has
  it no more, or what it sends cannot be read.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from sqlcache.binlog.effects import Effects, Replay
from sqlcache.binlog.events import Event, Kind
from sqlcache.binlog.names import Names
from sqlcache.binlog.places import Places
from sqlcache.binlog.source import CannotFollow, Connect, Seen, Source, order, refusal
from sqlcache.binlog.transactions import Change, Place, Transactions
from sqlcache.binlog.turns import Remembered, Turns
from sqlcache.errors import (
    BinlogGap,
    CacheUnavailable,
    ConnectionLost,
    ProtocolError,
    StreamEnded,
    StreamRefused,
    UpstreamError,
)
from sqlcache.metrics import Metrics

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOOK_EVERY_S: Final = 0.5  # how far the log has got
_REMEMBER_EVERY_S: Final = 0.1
_REMEMBER_AGAIN_S: Final = 0.5
"""The same place: a node may be back, and who has just started waits for it to be written."""
_AGAIN_AFTER_S: Final = 1.0
"""When everything is forgotten once more after a gap, or some tags after a change of which it was
not known whether it could be seen."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_HOLDS_ON_S: Final = 5.0
"""How long a server may be away before others are let try, who may reach it."""
_FATAL: Final = 1236  # ER_MASTER_FATAL_ERROR_READING_BINLOG: the server has no such place
_STALLED_S: Final = 5.0
_SAY_NOTHING: Final = (Kind.HEARTBEAT, Kind.HEARTBEAT_V2)
_MOST_UNSETTLED: Final = 1_000
_MOST_AHEAD: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Unsettled:
    """Changes to be bumped again at a time; and again, until they can be seen, where the server
    `tells` that. `begin` is where the log went on before them."""

    begin: Remembered | None
    again_at: float
    changes: list[Change]
    tells: bool
    replay: Replay | None = None


class _NodeIsBehind(Exception):
    """A node is back which is to be told again of what comes before."""


class Tailer:
    """One process's way of following one server's log. `follow` until it is cancelled."""

    def __init__(
        self,
        connect: Connect,
        effects: Effects,
        turns: Turns,
        places: Places,
        metrics: Metrics,
        *,
        longest_bytes: int,
        on_trouble: Callable[[UpstreamError | None], None],
    ) -> None:
        self._connect = connect
        self._effects = effects
        self._turns = turns
        self._places = places
        self._metrics = metrics
        self._longest_bytes = longest_bytes
        self._on_trouble = on_trouble
        self._loop = asyncio.get_running_loop()
        self._transactions = Transactions()
        self._bumped_to: Place = ("", 0)  # all before that, on this connection
        self._names = Names(0)
        self._known: Remembered | None = None
        self._lost = ""  # why, where it has to be followed from its end
        self._told: Remembered | None = None  # the nodes
        self._told_at = float("-inf")
        self._up_to_date_at = self._loop.time()
        self._came_at = float("-inf")  # an event that is no heartbeat
        # Where the log ended, and when. Who is far behind needs the latest of them only.
        self._ahead: deque[tuple[float, Place]] = deque(maxlen=_MOST_AHEAD)
        self._unsettled: deque[_Unsettled] = deque()
        self._some_unsettled = asyncio.Event()
        self._source: Source | None = None  # while there is one
        self._replay: Replay | None = None  # until it has been up to date once
        self.filtered = ""
        """See `Source.filtered`."""

    @property
    def lag_s(self) -> float:
        """For how long it has been behind the log's end: what was committed before that has been
        bumped. 0 where it is not behind, as far as was seen half a second ago."""
        now = self._loop.time()
        if self._ahead:
            return now - self._up_to_date_at
        return max(now - self._up_to_date_at - 2 * _LOOK_EVERY_S, 0.0)

    @property
    def place(self) -> tuple[int, int]:
        """The number of the file up to which it has followed the log, and where in that."""
        return order(self._known.place) if self._known is not None else (0, 0)

    @property
    def lag_bytes(self) -> int:
        """How much is still to be read, of the file in which the log ends."""
        if not self._ahead:
            return 0
        (file, end), here = order(self._ahead[-1][1]), self.place
        return max(end - here[1], 0) if file == here[0] else end

    @property
    def caught_up(self) -> bool:
        """Whether it has been up to date since it began to follow the log."""
        return self._replay is None

    async def follow(self) -> None:
        """Follows the log for ever. Raises: CannotFollow; UpstreamError where the server has not
        been reached for a while."""
        self._begin_anew()
        settling = self._loop.create_task(self._settle())
        try:
            await self._follow()
        finally:
            settling.cancel()
            await asyncio.gather(settling, return_exceptions=True)

    def _begin_anew(self) -> None:
        """From where the nodes say: another may have followed it meanwhile."""
        self._known = None
        self._unsettled.clear()  # it is read again
        self._replay = Replay()

    async def _follow(self) -> None:
        self._up_to_date_at = self._loop.time()
        pause_s = _FIRST_PAUSE_S
        came_at = float("-inf")
        while True:
            try:
                self._source = source = await Source.open(self._connect)
                try:
                    came = await self._session(source)
                finally:
                    self._source = None
                    source.close()
                if came:
                    came_at, pause_s = self._loop.time(), _FIRST_PAUSE_S
            except CannotFollow:
                raise
            except UpstreamError as error:
                if self._loop.time() - came_at > _HOLDS_ON_S:
                    raise
                self._on_trouble(error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _session(self, source: Source) -> bool:
        """Follows the log on one connection until that ends; whether anything came. Raises:
        CannotFollow."""
        looking: asyncio.Task[None] | None = None
        came = fresh = False
        try:
            known, cause = await self._whence(source)
            fresh = bool(cause)
            await self._begin(source, known, cause)
            self._names = Names(source.number)
            self._turns.begin_reading()
            looking = self._loop.create_task(self._look(source))
            while True:
                if looking.done():
                    looking.result()
                await self._take(source)
                if not came:
                    came = True
                    self._on_trouble(None)
        except StreamRefused as error:
            if error.code != _FATAL or (fresh and not came):
                refused = refusal(error.code, str(error))
                raise CannotFollow(f"the server does not send its log: {refused}") from error
            await self._lose(f"the server has no more what comes next: {error}")
        except (BinlogGap, ProtocolError) as error:
            await self._lose(str(error))
        except _NodeIsBehind:
            self._begin_anew()
        except CannotFollow:
            raise
        except (UpstreamError, ConnectionLost) as error:
            self._metrics.binlog_connections_lost += 1
            self._on_trouble(UpstreamError(str(error)))
        finally:
            if looking is not None:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
        return came

    async def _whence(self, source: Source) -> tuple[Remembered, str]:
        """Where to go on; and where that is the log's end, why."""
        known, cause = self._known, self._lost
        if known is None and not cause:
            known = await self._places.earliest(source.identity)
        if known is not None and known.server != source.identity:
            known, cause = None, "the server is another one"
        if known is None:
            known = Remembered(source.identity, await source.place(), 0)
            cause = cause or "it was not followed until now"
        return known, cause

    async def _begin(self, source: Source, known: Remembered, cause: str) -> None:
        """Has the log sent; from its end, with everything forgotten, for that `cause`."""
        self.filtered = source.filtered
        self._ahead.clear()
        goes_on = self._known is not None
        self._transactions.resume()
        self._bumped_to = ("", 0)
        await source.begin(known.place, self._longest_bytes)
        self._metrics.binlog_bytes += source.bytes
        if cause:  # only now: who may not read the log is told so by then
            await self._gap(cause, seen=source.tells_what_is_seen)
            self._places.begin(None)
        elif not goes_on:
            self._places.begin(known)
        self._known, self._lost = known, ""
        file, at = known.place
        log.info("following the binary log file=%s position=%d", file, at)

    async def _lose(self, cause: str) -> None:
        """It is not known from where on to go on: everything is forgotten, and will be again when
        the log is followed from its end."""
        self._unsettled.clear()
        self._known, self._lost = None, cause
        await self._forget_everything(cause)

    async def _gap(self, cause: str, *, seen: bool) -> None:
        """The log is followed from its end: everything is forgotten. And again after a while,
        unless what was logged before can be `seen` for sure."""
        self._metrics.binlog_gaps += 1
        log.warning("the binary log is followed from its end cause=%s", cause)
        await self._forget_everything(cause)
        if not seen:
            self._bump_again([Change(everything=cause)], tells=False)

    def _bump_again(
        self, changes: list[Change], *, tells: bool, replay: Replay | None = None
    ) -> None:
        """In a while, see `_Unsettled`."""
        again_at = self._loop.time() + _AGAIN_AFTER_S
        self._unsettled.append(_Unsettled(self._known, again_at, changes, tells, replay))
        self._some_unsettled.set()

    async def _forget_everything(self, cause: str) -> None:
        await _insist(lambda: self._effects.forget_everything(cause))

    async def _take(self, source: Source) -> None:
        """Takes what has come, and bumps what it changed."""
        before = source.bytes
        events = await source.read()
        self._metrics.binlog_bytes += source.bytes - before
        self._metrics.binlog_events += len(events)
        made, replay = self._transactions.made, self._replay
        if any(event.kind not in _SAY_NOTHING for event in events):
            self._came_at = self._loop.time()
        changes = await taken(self._transactions, events)
        self._compare(made)
        if replay is not None:
            await self._go_over(len(changes))
        if changes:
            self._metrics.binlog_transactions += len(changes)
            self._names.give(changes, self._effects.named_for(self._turns.reading))
            changes = await self._effects.others(changes)
        if changes:
            seen = await source.can_be_seen(changes)
            if seen is not Seen.YES:
                self._bump_again(changes, tells=seen is Seen.NOT_YET, replay=replay)
            await self._publish(changes, replay)
        self._bumped_to = self._transactions.file, self._transactions.end
        self._passed()
        await self._remember()

    async def _go_over(self, count: int) -> None:
        """What comes was written while perhaps nobody followed the log."""
        self._metrics.binlog_replayed += count
        if self._transactions.began:
            self._transactions.began = False
            await self._forget_everything("the server has begun anew, what it lost is not known")

    def _compare(self, made: int) -> None:
        """Raises: BinlogGap where the file that goes on is another one of the same name."""
        known = self._known
        if known is None or made or not self._transactions.made or not known.made:
            return
        if known.place[0] == self._transactions.file and known.made != self._transactions.made:
            raise BinlogGap("the server has begun its log anew")

    async def _publish(self, changes: list[Change], replay: Replay | None) -> None:
        bumped = await _insist(lambda: self._effects.publish(changes, replay))
        self._metrics.binlog_bumps += bumped

    async def _settle(self) -> None:
        """Bumps again what is to be, for ever."""
        while True:
            await self._some_unsettled.wait()
            self._some_unsettled.clear()
            while self._unsettled:
                first = self._unsettled[0]
                if len(self._unsettled) <= _MOST_UNSETTLED:
                    await asyncio.sleep(first.again_at - self._loop.time())
                seen = not first.tells or await self._can_be_seen(first.changes)
                await self._publish(first.changes, first.replay)
                if not seen:
                    await asyncio.sleep(_AGAIN_AFTER_S)
                elif self._unsettled and self._unsettled[0] is first:
                    self._unsettled.popleft()

    async def _can_be_seen(self, changes: list[Change]) -> bool:
        try:
            return self._source is not None and (
                await self._source.can_be_seen(changes) is not Seen.NOT_YET
            )
        except UpstreamError:
            return False

    def _passed(self) -> None:
        here = order(self._bumped_to)
        while self._ahead and order(self._ahead[0][1]) <= here:
            self._up_to_date_at = self._ahead.popleft()[0]
            if not self._ahead:
                self._replay = None

    async def _remember(self) -> None:
        place, known = self._transactions.boundary, self._known
        if not place[0] or known is None or not self._transactions.made:
            return
        self._known = Remembered(known.server, place, self._transactions.made)
        await self._tell_nodes()

    async def _tell_nodes(self) -> None:
        """Where whoever goes on is to begin: he is to bump again what is still to be. Raises:
        _NodeIsBehind."""
        known, done = self._known, self._unsettled[0].begin if self._unsettled else self._known
        if known is None or done is None or not done.made:
            return
        now = self._loop.time()
        every_s = _REMEMBER_AGAIN_S if done == self._told else _REMEMBER_EVERY_S
        if now - self._told_at < every_s:
            return
        self._told, self._told_at = done, now
        if not await self._places.remember(done):
            raise _NodeIsBehind

    async def _look(self, source: Source) -> None:
        """Looks again and again where the log ends. Raises: UpstreamError; BinlogGap where it ends
        before it did; StreamEnded where nothing of it comes."""
        before = order(("", 0))
        while True:
            asked_at = self._loop.time()
            place = await source.place()
            if order(place) < before:
                raise BinlogGap("the server has begun its log anew")
            before = order(place)
            self._ahead.append((asked_at, place))
            self._passed()
            await self._tell_nodes()
            stalled_since = max(self._ahead[0][0], self._came_at) if self._ahead else asked_at
            if asked_at - stalled_since > _STALLED_S:
                raise StreamEnded("the server's log goes on, and it sends nothing of it")
            await asyncio.sleep(_LOOK_EVERY_S)


async def _insist(bump: Callable[[], Awaitable[T]]) -> T:
    """Tries until it is done: nothing may be left out, and each try has waited."""
    while True:
        with suppress(CacheUnavailable):
            return await bump()


async def taken(transactions: Transactions, events: Iterable[Event]) -> list[Change]:
    """What became visible by these events. A long text is read in a thread, and to its end: nothing
    else is taken meanwhile."""
    changes = []
    for event in events:
        if transactions.takes_long(event):
            reading = asyncio.ensure_future(asyncio.to_thread(transactions.take, event))
            try:
                change = await asyncio.shield(reading)
            except asyncio.CancelledError:
                await asyncio.wait([reading])
                raise
        else:
            change = transactions.take(event)
        if change is not None:
            changes.append(change)
    return changes
