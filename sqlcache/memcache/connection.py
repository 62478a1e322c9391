"""One pipelined connection to a memcached node.

Laws:

- All requests submitted in one turn of the event loop leave in one write.
- Replies are matched to requests by order alone. So when an answer is late or makes no sense, the
  connection is dropped with everything outstanding on it, and an answer can never reach the wrong
  request.
- Every `done` is called exactly once, never inside `submit`, with as many replies as it has
  requests, or with None. After None a request may or may not have been carried out.
- Nothing waits for a node that is away: while there is no connection, None comes at once.
- A deadline counts the time in which this process's event loop turned: how late its timers are is
  not held against the node. Nor are, for a while, long answers on a slow network: to give up what
  has half arrived would only have it asked for again, or read from MySQL.
- A node counts as back only when it has answered a no-op on the new connection: the kernel
  accepts connections for a frozen process too.
"""

import asyncio
import logging
import math
import random
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Protocol, cast

from sqlcache.callbacks import told
from sqlcache.errors import CacheUnavailable, ProtocolError
from sqlcache.host_names import addresses
from sqlcache.memcache.protocol import META_NOOP, Reply, ReplyParser
from sqlcache.metric_kinds import Histogram
from sqlcache.patience import LOOKS, SECOND_LOOK_S, Patience
from sqlcache.process.forks import leave_at_fork, process

logger = logging.getLogger(__name__)

_CLOSED = "closed"
"""The reason of an end that we wanted, which is no news."""

_JOINED_BYTES = 65_536
"""To have more sent in several buffers costs less than to join these."""

TIMED_OF_WRITES = 4
"""Of so many one is timed: to look at the clock and count costs half a microsecond, and many a hit
is a write of its own."""

Done = Callable[[list[Reply] | None], None]


class Node(Protocol):
    """A memcached, wherever it is.

    `on_up`, when set, is called each time the node has become available.
    """

    name: str
    on_up: Callable[[], None] | None

    def submit(self, payload: bytes, count: int, done: Done) -> None:
        """Send `payload`, which holds `count` requests that give exactly one reply each.

        `done` is called later, exactly once: with the `count` replies in order, or with None when
        the node is unavailable, did not answer in time, or the connection broke. What it raises
        is logged.
        """

    async def request(self, payload: bytes, count: int) -> list[Reply]:
        """As `submit`, awaited. Raises: CacheUnavailable."""

    async def wait_connected(self, timeout_s: float | None = None) -> None:
        """Return once it is available. Raises: CacheUnavailable after `timeout_s`, if given."""

    async def close(self) -> None:
        """Answer everything outstanding with None, and be unavailable from now on."""


async def request(node: Node, payload: bytes, count: int) -> list[Reply]:
    """Submit to `node` and await the replies; a cancelled caller leaves the pipeline as it is.

    Raises: CacheUnavailable when `submit` answers None.
    """
    replies: list[Reply] | None = await told(partial(node.submit, payload, count))
    if replies is None:
        raise CacheUnavailable(f"memcached node {node.name} did not answer")
    return replies


def answer(done: Done, replies: list[Reply] | None) -> None:
    """Call `done`; what it raises is logged, so that the next callback gets its turn."""
    try:
        done(replies)
    except Exception:
        logger.exception("memcached callback failed")


class NodeConnection:
    """A `Node` reached by TCP, over one connection that comes back by itself.

    Must be made inside a running event loop; it starts to connect at once. Connecting, including
    the no-op, may take `connect_timeout_s`. A batch must be answered in full within `timeout_s` of
    being sent or, while it or those before it are being answered, of the last bytes that came, but
    then within `longest_s`. Of neither is counted what this process was late itself.
    Between attempts it waits `reconnect_min_s`, then twice as long each time up to
    `reconnect_max_s`, less up to half by chance so that processes do not come back in step.
    `max_outstanding_bytes` bounds the requests sent or to be sent and not yet answered; what
    would pass it is answered None.

    The counters only ever grow: `writes`, and `bytes_in`. `lost` counts by the node's name the
    connections that stood and ended other than by `close`. `round_trips` is given how long some of
    the writes, with all of their batches, took to be answered: one of `TIMED_OF_WRITES`.
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        *,
        timeout_s: float,
        longest_s: float = 0.0,
        connect_timeout_s: float = 1.0,
        reconnect_min_s: float = 0.05,
        reconnect_max_s: float = 0.5,
        max_outstanding_bytes: int = 32 * 1024 * 1024,
        round_trips: Histogram | None = None,
        lost: Counter[str] | None = None,
    ) -> None:
        self.name = name
        self.on_up: Callable[[], None] | None = None
        self.timeout_s = timeout_s
        self.longest_s = longest_s
        self.max_outstanding_bytes = max_outstanding_bytes
        self.round_trips = round_trips or Histogram()
        self.lost: Counter[str] = Counter() if lost is None else lost
        self.lost[name] += 0  # so that it is shown from the start
        self.writes = 0
        self.bytes_in = 0
        self._host = host
        self._port = port
        self._connect_timeout_s = connect_timeout_s
        self._reconnect_min_s = reconnect_min_s
        self._reconnect_max_s = reconnect_max_s
        self._loop = asyncio.get_running_loop()
        self._pipeline: _Pipeline | None = None
        self._was_up = False
        self._told_down = False
        self._trouble = ""  # of the last try
        self._up = asyncio.Event()
        self._keeper = self._loop.create_task(self._keep_connected(), name=f"memcache {name}")

    def submit(self, payload: bytes, count: int, done: Done) -> None:
        """See `Node.submit`."""
        if not count:
            self._loop.call_soon(answer, done, [])
            return
        pipeline = self._pipeline
        if pipeline is None or (
            pipeline.outstanding_bytes + len(payload) > self.max_outstanding_bytes
        ):
            self._loop.call_soon(answer, done, None)
            return
        pipeline.send(payload, count, done)

    async def request(self, payload: bytes, count: int) -> list[Reply]:
        """See `Node.request`."""
        return await request(self, payload, count)

    async def wait_connected(self, timeout_s: float | None = None) -> None:
        """See `Node.wait_connected`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._up.wait()
        except TimeoutError:
            why = self._trouble or "it did not answer in time"
            raise CacheUnavailable(f"memcached node {self.name} cannot be reached: {why}") from None

    async def close(self) -> None:
        """See `Node.close`."""
        self._keeper.cancel()
        await asyncio.wait({self._keeper})

    async def _keep_connected(self) -> None:
        """Connect, serve until the connection ends, wait, and again, until cancelled. In a process
        that was forked off it is not this one that would speak: there it is away for good."""
        wait_s = self._reconnect_min_s
        here = process()
        while process() is here:
            began = self._loop.time()
            pipeline = _Pipeline(self, self._loop)
            try:
                if await self._open(pipeline):
                    self._rise(pipeline)
                    await pipeline.ended.wait()
            finally:
                pipeline.drop(_CLOSED)
            # A node that breaks off each new connection is not worth trying faster.
            if self._loop.time() - began > self._reconnect_max_s:
                wait_s = self._reconnect_min_s
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(wait_s * 2, self._reconnect_max_s)

    async def _open(self, pipeline: "_Pipeline") -> bool:
        """Connect `pipeline`, and say whether the node has answered a no-op on it."""
        try:
            with Patience(self._connect_timeout_s):
                await self._connect(pipeline)
                replies = await told(partial(pipeline.send, META_NOOP, 1))
        except OSError as error:
            pipeline.drop(str(error) or "it did not answer in time")
            return False
        return replies == [(b"MN", None, b"")] and not pipeline.ended.is_set()

    async def _connect(self, pipeline: "_Pipeline") -> None:
        failed = OSError(f"{self._host} has no address")
        for address in await addresses(self._host):
            try:
                await self._loop.create_connection(lambda: pipeline, address, self._port)
            except OSError as error:
                failed = error
            else:
                return
        raise failed

    def _rise(self, pipeline: "_Pipeline") -> None:
        self._was_up = True
        self._pipeline = pipeline
        self._up.set()
        self._told_down = False
        logger.info("memcached node is reached node=%s", self.name)
        if self.on_up is not None:
            try:
                self.on_up()
            except Exception:
                logger.exception("memcached callback failed node=%s", self.name)

    def fall(self, pipeline: "_Pipeline", reason: str) -> None:
        """`pipeline` has ended: when it was the one in use, the node is unavailable from now."""
        if pipeline is self._pipeline:
            self._pipeline = None
            self._up.clear()
            self.lost[self.name] += reason != _CLOSED
        if reason != _CLOSED:
            self._trouble = reason
        if reason != _CLOSED and not self._told_down:
            self._told_down = True
            if not self._was_up:
                reason += "; it never was: is it right in memcached.nodes?"
            logger.warning("memcached node is not reached node=%s reason=%s", self.name, reason)


class _Write:
    """One turn's batches, which leave together and have the same deadline, see `_turning`.

    `sent_at` is on a finer clock than the event loop's, whose ticks are milliseconds; 0 where it
    is not timed.
    """

    __slots__ = ("deadline", "sent_at")

    def __init__(self) -> None:
        self.deadline = math.inf
        self.sent_at = 0.0


class _Pipeline(asyncio.Protocol):
    """One TCP connection's life: the batches on it, in order, and their deadlines."""

    def __init__(self, owner: NodeConnection, loop: asyncio.AbstractEventLoop) -> None:
        self.outstanding_bytes = 0
        self.ended = asyncio.Event()
        self._owner = owner
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = ReplyParser()
        self._replies: list[Reply] = []
        self._unsent: list[bytes] = []
        # Count of requests, bytes, the write it leaves with, done.
        self._batches: deque[tuple[int, int, _Write, Done]] = deque()
        self._write = _Write()
        self._timer: asyncio.TimerHandle | None = None
        self._late_s = 0.0
        # Of `bytes_in`, when nothing was outstanding or the last look saw some come; and when.
        self._bytes_seen = owner.bytes_in
        self._heard_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio.Transport by inheritance.
        self._transport = cast(asyncio.Transport, transport)
        leave_at_fork(transport)

    def send(self, payload: bytes, count: int, done: Done) -> None:
        """Let `payload` leave with everything else of this turn."""
        if not self._unsent:
            self._write = _Write()
            self._loop.call_soon(self._flush)
        self._unsent.append(payload)
        size = len(payload)
        self.outstanding_bytes += size
        self._batches.append((count, size, self._write, done))

    def _flush(self) -> None:
        if self._transport is None or self._transport.is_closing() or self.ended.is_set():
            return
        unsent, self._unsent = self._unsent, []
        owner = self._owner
        if sum(map(len, unsent)) > _JOINED_BYTES:
            self._transport.writelines(unsent)
        else:
            self._transport.write(b"".join(unsent))
        # Not from `submit` on: a stall of this process before the write is no fault of the node.
        self._write.deadline = self._turning() + owner.timeout_s
        owner.writes += 1
        if not owner.writes % TIMED_OF_WRITES:
            self._write.sent_at = perf_counter()
        if self._timer is None:
            self._look_later()

    def _turning(self) -> float:
        """A clock that stands still while this process's timers are late."""
        return self._loop.time() - self._late_s

    def _look_later(self) -> None:
        due = self._loop.time() + self._owner.timeout_s / LOOKS
        self._timer = self._loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        self._late_s += max(self._loop.time() - due, 0)
        self._check_deadline()

    def data_received(self, data: bytes) -> None:
        owner = self._owner
        owner.bytes_in += len(data)
        replies = self._replies
        try:
            replies += self._parser.feed(data)
        except ProtocolError as error:
            self.drop(str(error))
            return
        taken = 0
        # A callback may submit or close: the queue is looked at afresh for each batch.
        while self._batches and len(replies) - taken >= self._batches[0][0]:
            count, size, write, done = self._batches.popleft()
            self.outstanding_bytes -= size
            if not self._batches:
                self._bytes_seen = owner.bytes_in
            if write.sent_at and not (self._batches and self._batches[0][2] is write):
                owner.round_trips.observe(perf_counter() - write.sent_at)
            answer(done, replies[taken : taken + count])
            taken += count
        del replies[:taken]
        if replies and not self._batches:
            self.drop("a reply came that nobody had asked for")

    def connection_lost(self, exc: Exception | None) -> None:
        self.drop(str(exc) if exc else "the node closed the connection")

    def _check_deadline(self, *, again: bool = False) -> None:
        """The one timer: looks at the oldest batch, whose deadline is the next to pass."""
        self._timer = None
        if not self._batches:
            return
        now = self._turning()
        deadline = self._batches[0][2].deadline
        if deadline == math.inf:
            return  # Not written yet: the write starts the timer.
        if self._put_off(deadline, now) > now:
            self._look_later()
        elif not again:
            # When this process has stalled, the answer may lie in the socket, and uvloop looks at
            # timers first: let it read before judging.
            second_look = partial(self._check_deadline, again=True)
            self._timer = self._loop.call_later(SECOND_LOOK_S, second_look)
        else:
            self.drop("it did not answer in time")

    def _put_off(self, deadline: float, now: float) -> float:
        """The same, or later where the node is amid an answer."""
        if self._owner.bytes_in != self._bytes_seen:
            self._bytes_seen, self._heard_at = self._owner.bytes_in, now
        timeout_s = self._owner.timeout_s
        latest = deadline - timeout_s + self._owner.longest_s
        return max(deadline, min(self._heard_at + timeout_s, latest))

    def drop(self, reason: str) -> None:
        """End the connection now, unless it has ended, and answer what is outstanding None."""
        if self.ended.is_set():
            return
        self.ended.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._owner.fall(self, reason)
        while self._batches:
            answer(self._batches.popleft()[3], None)
