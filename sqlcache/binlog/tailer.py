"""Follows the log from where its transactions were bumped last, and bumps what comes.

- The place is remembered after the bump, here and on the nodes: what was read and not bumped is
  read again.
- Where it is not known what was missed, everything is forgotten, and the log followed from its end:
  no place is known, or it is of another server, or of another log of this one's, or the server has
  it no more, or what it sends cannot be read.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, TypeVar

from sqlcache.binlog.bookmark import Bookmark, NodeIsBehind
from sqlcache.binlog.change import Change
from sqlcache.binlog.effects import Effects, Reading
from sqlcache.binlog.events import Event, Kind
from sqlcache.binlog.lag import LOOK_EVERY_S, Lag
from sqlcache.binlog.names import Names
from sqlcache.binlog.places import Places
from sqlcache.binlog.source import CannotFollow, Connect, Seen, Source, order, refusal
from sqlcache.binlog.transactions import Transactions
from sqlcache.binlog.turns import Remembered, Turns
from sqlcache.binlog.unsettled import Unsettled
from sqlcache.cache.tags import Tag
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

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_HOLDS_ON_S: Final = 5.0
"""How long a server may be away before others are let try, who may reach it."""
_FATAL: Final = 1236  # ER_MASTER_FATAL_ERROR_READING_BINLOG: the server has no such place
_LOOK_WHOSE_EVERY_S: Final = 5.0
_AT_ONCE_S: Final = 0.01  # what waits behind it is to be bumped again as well; 0 is for ever
_LOOK_SOON_S: Final = 0.1
_FAR_BEHIND_S: Final = 2 * LOOK_EVERY_S  # whoever is not may yet know of what comes
_STALLED_S: Final = 5.0
_TEXT_AT_A_STRETCH_BYTES: Final = 16_384
"""Of short texts with their events' heads, which take up to 0.2 µs a byte to be split."""
_SAY_NOTHING: Final = (Kind.HEARTBEAT, Kind.HEARTBEAT_V2)


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
        self._metrics = metrics
        self._longest_bytes = longest_bytes
        self._on_trouble = on_trouble
        self._loop = asyncio.get_running_loop()
        self._transactions = Transactions()
        self._names = Names(0)
        self._bookmark = Bookmark(places)
        self._lag = Lag()
        self._unsettled = Unsettled(self._publish_again, self._not_seen)
        self._source: Source | None = None  # while there is one
        self._reading = Reading()
        self._unsure = asyncio.Event()  # see `Hindsight.is_sure`
        self._catches_up = False  # until it has been up to date once
        self.filtered = ""
        """See `Source.filtered`."""

    @property
    def lag_s(self) -> float:
        """See `Lag`."""
        return self._lag.lag_s

    @property
    def place(self) -> tuple[int, int]:
        """The number of the file up to which it has followed the log, and where in that."""
        return self._bookmark.place

    @property
    def lag_bytes(self) -> int:
        """How much is still to be read, of the file in which the log ends."""
        return self._lag.in_bytes(self.place)

    @property
    def caught_up(self) -> bool:
        """Whether it has been up to date since it began to follow the log."""
        return not self._catches_up

    async def follow(self) -> None:
        """Follows the log for ever. Raises: CannotFollow; UpstreamError where the server has not
        been reached for a while."""
        self._begin_anew()
        settling = self._loop.create_task(self._unsettled.settle())
        try:
            await self._follow(settling)
        finally:
            settling.cancel()
            await asyncio.gather(settling, return_exceptions=True)

    def _begin_anew(self) -> None:
        """From where the nodes say: another may have followed it meanwhile."""
        self._bookmark.look_up()
        self._unsettled.clear()  # it is read again
        self._reading = Reading()
        self._catches_up = True
        self._transactions = Transactions()

    async def _follow(self, settling: asyncio.Task[None]) -> None:
        self._lag.begin()
        pause_s = _FIRST_PAUSE_S
        came_at = float("-inf")
        while True:
            try:
                self._source = source = await Source.open(self._connect)
                try:
                    came = await self._session(source, settling)
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

    async def _session(self, source: Source, settling: asyncio.Task[None]) -> bool:
        """Follows the log on one connection until that ends; whether anything came. Raises:
        CannotFollow, and what has ended the settling: then the log is to be read again from where
        something is unsettled."""
        looking: list[asyncio.Task[None]] = []
        came = fresh = False
        try:
            resets = await source.resets()
            known, cause = await self._bookmark.whence(source)
            fresh = bool(cause)
            await self._begin(source, known, cause)
            self._names = Names(source.number)
            self._turns.begin_reading()
            looks = self._look(source, resets), self._watch(source)
            looking = [self._loop.create_task(each) for each in looks]
            while True:
                for task in (*looking, settling):
                    if task.done():
                        task.result()
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
        except NodeIsBehind:
            self._begin_anew()
        except CannotFollow:
            raise
        except (UpstreamError, ConnectionLost) as error:
            self._metrics.binlog_connections_lost += 1
            self._on_trouble(UpstreamError(str(error)))
        finally:
            for task in looking:
                task.cancel()
            await asyncio.gather(*looking, return_exceptions=True)
        return came

    async def _begin(self, source: Source, known: Remembered, cause: str) -> None:
        """Has the log sent; from its end, with everything forgotten, for that `cause`."""
        self._lag.begin_connection()
        self._reading.hindsight.begin_connection()
        if cause:
            self._transactions, self._reading = Transactions(), Reading()
        self._transactions.resume(known.place)
        await source.begin(known.place, self._longest_bytes)
        self.filtered = source.filtered
        self._metrics.binlog_bytes += source.bytes
        if cause:  # only now: who may not read the log is told so by then
            await self._gap(cause, source)
        self._bookmark.begin(known, forgotten=bool(cause))
        file, at = known.place
        log.info("following the binary log file=%s position=%d", file, at)

    async def _lose(self, cause: str) -> None:
        """It is not known from where on to go on: everything is forgotten, and will be again when
        the log is followed from its end."""
        self._unsettled.clear()
        self._bookmark.lose(cause)
        await self._forget_everything(cause)

    async def _gap(self, cause: str, source: Source) -> None:
        """The log is followed from its end: everything is forgotten. And again after a while, and
        until what was logged before can be seen, unless that is known for sure."""
        owned = await source.owned()
        self._metrics.binlog_gaps += 1
        log.warning("the binary log is followed from its end cause=%s", cause)
        self._unsettled.clear()  # another server has none of it, and would never tell
        await self._forget_everything(cause)
        if not source.tells_what_is_seen:
            changes = [Change(everything=cause, commit=each) for each in (None, *owned)]
            self._unsettled.add(changes, self._bookmark.known, tells=bool(owned))

    async def _forget_everything(self, cause: str) -> None:
        await _insist(lambda: self._effects.forget_everything(cause))

    async def _take(self, source: Source) -> None:
        """Takes what has come, and bumps what it changed."""
        before = source.bytes
        self._lag.listens()
        events = await source.read()
        self._metrics.binlog_bytes += source.bytes - before
        self._metrics.binlog_events += len(events)
        first = self._transactions.first
        if any(event.kind not in _SAY_NOTHING for event in events):
            self._lag.came()
        changes = await taken(self._transactions, events)
        if self._transactions.first != first:
            self._bookmark.compare(*self._transactions.first)
        if self._catches_up:  # perhaps nobody followed the log as that was written
            self._metrics.binlog_replayed += len(changes)
        if self._transactions.began:
            # Before the place goes on: who goes on from there does not come by this again.
            self._transactions.began = False
            await self._forget_everything("the server has begun anew, what it lost is not known")
        if changes:
            self._metrics.binlog_transactions += len(changes)
            self._names.give(changes, self._effects.named_for(self._turns.reading))
            changes = await self._effects.others(changes)
        if changes:
            again = []
            for seen, those in await source.can_be_seen(changes):
                if seen is not Seen.YES:
                    known, tells = self._bookmark.known, seen is Seen.NOT_YET
                    again.append(self._unsettled.add(those, known, tells=tells))
            tags = await self._publish(changes, self._reading)
            for each in again:
                each.update(tags)
        here = self._transactions.file, self._transactions.end
        hindsight = self._reading.hindsight
        hindsight.reached(here)
        if not hindsight.is_sure(self._effects.stamp):
            self._unsure.set()
        if self._lag.bumped(here):
            self._catches_up = False
        if self._bookmark.move(self._transactions.boundary, self._transactions.made):
            self._transactions.mark()
            await self._tell_nodes()

    async def _publish_again(self, changes: list[Change], also: Iterable[Tag]) -> None:
        """With these tags, which were found when they were read first."""
        await self._publish(changes, Reading(again=True), also)

    async def _publish(
        self, changes: list[Change], reading: Reading, also: Iterable[Tag] = ()
    ) -> list[Tag]:
        tags = list(also)
        bumped = await _insist(lambda: self._effects.publish(changes, reading, tags))
        self._metrics.binlog_bumps += len(bumped)
        return bumped

    async def _not_seen(self, changes: list[Change]) -> list[Change]:
        try:
            if self._source is None:
                return changes
            found = await self._source.can_be_seen(changes, _AT_ONCE_S)
        except UpstreamError:
            return changes
        return [each for seen, those in found if seen is Seen.NOT_YET for each in those]

    async def _tell_nodes(self) -> None:
        """Raises: NodeIsBehind."""
        await self._bookmark.tell_nodes(self._unsettled.whence(self._bookmark.known))

    async def _look(self, source: Source, resets: int) -> None:
        """Looks again and again where the log ends. Raises: UpstreamError; BinlogGap where it ends
        before it did, or the server was told to begin anew since it had told of so many `resets`;
        StreamEnded where nothing of it comes."""
        before = order(("", 0))
        while True:
            asked_at = self._loop.time()
            look = self._reading.hindsight.look(self._effects.stamp)
            place = await source.place()
            if order(place) < before or await source.resets() != resets:
                raise BinlogGap("the server has begun its log anew")
            before = order(place)
            self._reading.hindsight.ended(look, place)
            if self._lag.ended(asked_at, place):
                self._catches_up = False
            await self._tell_nodes()
            if self._lag.stalled_s(asked_at) > _STALLED_S:
                raise StreamEnded("the server's log goes on, and it sends nothing of it")
            await self._until_next_look()

    async def _until_next_look(self) -> None:
        """Soon, where definitions have changed: who is not behind knows so that what comes is not
        misread."""
        if self._reading.hindsight.is_sure(self._effects.stamp):
            self._unsure.clear()
        if self._lag.lag_s > _FAR_BEHIND_S:
            await asyncio.sleep(LOOK_EVERY_S)
        elif self._unsure.is_set():
            await asyncio.sleep(_LOOK_SOON_S)
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._unsure.wait()

    async def _watch(self, source: Source) -> None:
        """Looks again and again whether it is still this server's log that is to be followed, and
        what that leaves out: it may have become a replica. Raises: StreamEnded; UpstreamError."""
        while True:
            await asyncio.sleep(_LOOK_WHOSE_EVERY_S)
            if await source.is_left(self._connect):
                raise StreamEnded("new connections come to another server")
            await source.see_what_is_left_out()
            self.filtered = source.filtered


async def _insist(bump: Callable[[], Awaitable[T]]) -> T:
    """Tries until it is done: nothing may be left out, and each try has waited."""
    while True:
        with suppress(CacheUnavailable):
            return await bump()


async def taken(transactions: Transactions, events: Iterable[Event]) -> list[Change]:
    """What became visible by these events. A long text is read in a thread, and to its end: nothing
    else is taken meanwhile. Others have their turns after some short ones."""
    changes = []
    text_bytes = 0
    for event in events:
        text_bytes += transactions.text_bytes(event)
        if text_bytes > _TEXT_AT_A_STRETCH_BYTES:
            text_bytes = 0
            await asyncio.sleep(0)
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
