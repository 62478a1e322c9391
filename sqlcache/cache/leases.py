"""Leases: one client fills a missing key while the others wait for it.

Inside the process they share a `_Flight`; between processes the right is a lease, an item in
memcached that only one can add. It lives on its entry's node, so that whoever takes it sees in the
same breath whether the entry has come meanwhile. Laws:

- Who fills renews its lease for as long as that takes, and gives back only its own. One whose
  process died or stands still lapses, and one of those who wait takes over.
- A waiter joins a flight only at the very tag versions the flight began with: else it could get an
  answer from before a write it has seen. At these it may have what the flight brings, also if a
  write has overtaken that by then: no write had ended when the waiter came.
- But in a transaction, whose snapshot may be older than such an answer, it looks again. And there
  its waits are short: it may hold what the fill waits for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from sqlcache.cache.keys import Keyspace
from sqlcache.cache.outcomes import FENCED, UNREACHABLE, Bypass, Hit, Miss, Outcome
from sqlcache.cache.reads import Read
from sqlcache.cache.store import EntryStore
from sqlcache.cache.tag_logs import fresh_id
from sqlcache.cache.unstorable import Unstorable
from sqlcache.cache.worth import Worth
from sqlcache.memcache.cluster import Cluster, Request
from sqlcache.memcache.protocol import STORED, Reply, flag_of, meta_delete, meta_get, meta_set
from sqlcache.metrics import Metrics
from sqlcache.tasks import Tasks

_LEAST_TTL_S = 2  # memcached counts whole seconds: with 1, an item may be gone at once
_FIRST_POLL_S = 0.001
_LONGEST_POLL_S = 0.05
_TRANSACTION_WAIT_S = 5.0
_OVERTAKEN_ENOUGH = 2
_UNSTORABLE = b"!"
_UNSTORABLE_TTL_S = 2

LEASE_TIMEOUT = Bypass("waited too long for a lease")
NOT_STORABLE = Bypass("the answer is not storable")


class _Flight:
    """One fill under way in this process; `landed` when its waiters go on, `ended` with its lease,
    however that ended.

    `entry` is what it brought; it is `shared` if others have waited for it, of whom so many are
    `waiting` still.
    """

    __slots__ = ("ended", "entry", "landed", "shared", "unstorable", "waiting")

    def __init__(self, landed: "asyncio.Future[None]") -> None:
        self.landed = landed
        self.entry: bytes | None = None
        self.ended = self.shared = self.unstorable = False
        self.waiting = 0

    def land(self) -> None:
        if not self.landed.done():
            self.landed.set_result(None)


class Wait:
    """How long a reader still waits for others' fills."""

    __slots__ = ("overtaken", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        """On the event loop's clock."""
        self.overtaken = 0
        """How often a write has overtaken a fill by another process that it waited for."""


class Lease:
    """The right to fill one missing key. Ended by `fill`, `decline` or `release`, exactly once."""

    __slots__ = ("_flight", "_leases", "_previous", "cas", "id", "key", "read", "since", "tags",
                 "versions", "whole")  # fmt: skip

    def __init__(
        self,
        leases: "Leases",
        read: Read,
        miss: Miss,
        flight: _Flight,
        *,
        key: bytes = b"",
        id: bytes | None = None,
        cas: int | None = None,
    ) -> None:
        self._leases = leases
        self._flight = flight
        self._previous = miss.previous
        self.read = read
        self.versions = miss.versions
        self.tags = miss.tags
        self.whole = miss.whole
        self.since = miss.since
        """When these were there already, at the latest."""
        self.key = key
        self.id = id
        """What the item in memcached holds, under its `key`; None where there is none, and no one
        else knows."""
        self.cas = cas

    def is_wanted_without_client(self) -> bool:
        """Its client has gone: whether others of this process wait for the answer now, for whom it
        is to go on; to be asked again from time to time.

        One of these takes over as well, for this run may be one that brings nothing; and were that
        all, each who takes over could go in turn before it has an answer. What comes first is for
        all who wait. Of each read one run goes on so.
        """
        return self._leases.leave(self, self._flight)

    async def fill(self, entry: bytes) -> None:
        """Stores the entry, which was read under `versions`, and lets the waiters have it."""
        near = self._count(entry)
        self._flight.entry = entry
        ending = self._leases.ending(self)
        try:
            await self._leases.store.put(
                self.read, self.versions, entry, ending, near=near, told=self._told
            )
        except (Exception, asyncio.CancelledError):
            self.release_soon()
            raise
        self._land()

    def fill_soon(self, entry: bytes) -> None:
        """The same, for who does not wait for it."""
        near = self._count(entry)
        self._flight.entry = entry
        ending = self._leases.ending(self)
        try:
            self._leases.store.put_soon(
                self.read, self.versions, entry, ending, near=near, told=self._told
            )
        except Exception:
            self.release_soon()
            raise
        self._land()

    def _count(self, entry: bytes) -> bool:
        """Whether it is to be near."""
        at = len(self.versions)
        previous = self._previous or b""
        same = self._previous is not None and previous[at:] == entry[at:]
        self.read.counts.fills += 1
        self.read.tags.reads.fills += 1
        self.read.counts.refills_same += same
        self._leases.metrics.refills_same += same
        if same and self.read.pinning:
            self._leases.was_needless(self.read, previous[:at], self.versions)
        return not self._leases.worth.is_looked_at(self.read, shared=self._flight.shared)

    def _told(self, stored: bool) -> None:
        """Whether memcached has taken the entry."""
        if stored:
            self._leases.unstorable.discard(self.read)
        else:
            self._leases.was_refused(self)

    def _land(self) -> None:
        self._leases.end(self.read, self.versions, self._flight)

    async def decline(self, *, lasting: bool = True) -> None:
        """The answer cannot be stored: lets the waiters go to MySQL at once.

        `lasting`: nor can those be that come later, see `Unstorable`.
        """
        if lasting:
            self._leases.remember_unstorable(self.read)
        self._flight.unstorable = True
        try:
            await self._leases.give_back(self, unstorable=True)
        finally:
            self._land()

    def decline_soon(self, *, lasting: bool = True) -> None:
        """The same as `decline`, for who does not wait for it."""
        self._leases.tasks.spawn(self.decline(lasting=lasting))

    def release_soon(self) -> None:
        """The same as `release`, for who does not wait for it."""
        self._leases.tasks.spawn(self.release())

    async def release(self) -> None:
        """Lets another client try, if there is no answer now."""
        try:
            await self._leases.give_back(self)
        finally:
            self._land()


class Leases:
    """All fills of this process; `look` makes a look-up. Made inside a running event loop; `close`
    ends it."""

    def __init__(
        self,
        cluster: Cluster,
        keyspace: Keyspace,
        store: EntryStore,
        look: Callable[[Read], Awaitable[Outcome]],
        worth: Worth,
        metrics: Metrics,
        was_needless: Callable[[Read, bytes, bytes], None],
        *,
        lease_ttl_s: int,
        lease_wait_s: float,
    ) -> None:
        self.store = store
        self.worth = worth
        self.was_needless = was_needless
        self._cluster = cluster
        self._keyspace = keyspace
        self._look = look
        self.metrics = metrics
        self._lease_ttl_s = max(lease_ttl_s, _LEAST_TTL_S)
        self._lease_wait_s = lease_wait_s
        self._flights: dict[tuple[bytes, bytes], _Flight] = {}
        self._left: dict[tuple[bytes, bytes], _Flight] = {}  # whose clients have gone
        self._held: set[Lease] = set()
        self.unstorable = Unstorable()
        self.tasks = Tasks()
        """What no one waits for."""
        self._loop = asyncio.get_running_loop()
        self.tasks.spawn(self._renew())

    async def close(self) -> None:
        """Renews no lease any more."""
        await self.tasks.cancel()

    def wait(self, read: Read, within_s: float) -> Wait:
        """The wait of a reader that comes now."""
        wait_s = min(self._lease_wait_s, within_s)
        if read.in_transaction:
            wait_s = min(wait_s, _TRANSACTION_WAIT_S)
        return Wait(self._loop.time() + wait_s)

    def take_soon(self, read: Read, miss: Miss, done: Callable[[Lease | None], None]) -> bool:
        """Takes the right to fill, if no one has it: calls `done` soon with that, or with None.
        False where there is more to it; then `done` is not called."""
        key = read.key, miss.versions
        if miss.early or self.unstorable.has(read, self._loop.time()):
            return False
        if key in self._flights or self._last_answer(read, miss):
            return False
        flight = self._flights[key] = self._flight()

        def tried(got: Lease | Bypass | Miss | None) -> None:
            if not isinstance(got, Lease):
                self.end(read, miss.versions, flight)
            done(got if isinstance(got, Lease) else None)

        self._try_soon(read, miss, flight, tried)
        return True

    async def take(self, read: Read, miss: Miss, wait: Wait) -> Hit | Lease | Bypass | None:
        """The right to fill; or waits for the fill under way, if any. None: look again."""
        if miss.early:
            self.metrics.early_refreshes += 1
        if miss.early or self.unstorable.has(read, self._loop.time()):
            return Lease(self, read, miss, self._flight())
        flight = self._flights.get((read.key, miss.versions))
        if flight is not None:
            return self._serve_last(read, miss) or await self._join(flight, read, miss, wait)
        return await self._begin(read, miss, wait)

    def _flight(self) -> _Flight:
        return _Flight(self._loop.create_future())

    def _last_answer(self, read: Read, miss: Miss) -> Hit | None:
        """The answer before this one, if the rule allows it and it is not too old."""
        allowed_s = read.freshness.stale_while_revalidate_s
        if miss.previous is None or not allowed_s or miss.age_s > allowed_s:
            return None
        if not (miss.tags or read.tags).may_stand_in(miss.previous, miss.versions):
            return None
        return Hit(miss.previous, len(miss.versions), tags=miss.tags)

    def _serve_last(self, read: Read, miss: Miss) -> Hit | None:
        last = self._last_answer(read, miss)
        self.metrics.stale_serves += last is not None
        return last

    async def _join(
        self, flight: _Flight, read: Read, miss: Miss, wait: Wait
    ) -> Hit | Bypass | None:
        self.metrics.lease_waits += 1
        flight.shared = True
        flight.waiting += 1
        try:
            await asyncio.wait([flight.landed], timeout=max(wait.until - self._loop.time(), 0))
        finally:
            flight.waiting -= 1
        if not flight.landed.done():
            self.metrics.lease_timeouts += 1
            return LEASE_TIMEOUT
        if flight.entry is not None and not read.in_transaction:
            return Hit(
                flight.entry,
                len(miss.versions),
                since=miss.filled_since,
                tags=miss.tags,
                whole=miss.whole,
            )
        return NOT_STORABLE if flight.unstorable else None

    async def _begin(self, read: Read, miss: Miss, wait: Wait) -> Hit | Lease | Bypass | None:
        flight = self._flights[read.key, miss.versions] = self._flight()
        got: Hit | Lease | Bypass | None = None
        try:
            if wait.overtaken >= _OVERTAKEN_ENOUGH:
                got = Lease(self, read, miss, flight)
            else:
                got = await self._lead(read, miss, flight, wait)
            return got
        finally:
            if not isinstance(got, Lease):
                self.end(read, miss.versions, flight)

    async def _lead(
        self, read: Read, miss: Miss, flight: _Flight, wait: Wait
    ) -> Hit | Lease | Bypass | None:
        """Takes the lease, or waits for the process that has it."""
        outcome: Outcome = miss
        for pause_s in _pauses():
            fenced = outcome is FENCED
            if fenced and not await self._is_held(read, miss.versions):
                return FENCED
            if not fenced:
                taken = await self._try(read, miss, flight)
                if not isinstance(taken, Miss):
                    return taken
                if last := self._serve_last(read, miss):
                    return last
            if pause_s == _FIRST_POLL_S:
                self.metrics.lease_waits += 1
            if self._loop.time() > wait.until:
                self.metrics.lease_timeouts += 1
                return LEASE_TIMEOUT
            await asyncio.sleep(pause_s)
            outcome = await self._look(read)
            if outcome is not FENCED and not _is_missing(outcome, miss.versions):
                wait.overtaken += 1
                return outcome if isinstance(outcome, Hit | Bypass) else None
        raise AssertionError("never")

    async def _try(self, read: Read, miss: Miss, flight: _Flight) -> Lease | Bypass | Miss | None:
        """The lease, if no one has it; the miss, if another process fills."""
        tried: asyncio.Future[Lease | Bypass | Miss | None] = self._loop.create_future()

        def answer(got: Lease | Bypass | Miss | None) -> None:
            if not tried.cancelled():
                tried.set_result(got)
            elif isinstance(got, Lease):  # who wanted it has gone meanwhile
                got.release_soon()

        self._try_soon(read, miss, flight, answer)
        try:
            return await tried
        except asyncio.CancelledError:
            if not tried.cancelled() and isinstance(got := tried.result(), Lease):
                got.release_soon()
            raise

    def _try_soon(
        self,
        read: Read,
        miss: Miss,
        flight: _Flight,
        done: Callable[[Lease | Bypass | Miss | None], None],
    ) -> None:
        key = self._keyspace.lease(read.key, miss.versions)
        id = fresh_id()
        take = meta_set(key, id, mode=b"E", ttl_s=self._lease_ttl_s, flags=b"c")

        def answered(replies: list[Reply | None]) -> None:
            taken, seen, stored = replies
            if taken is None or stored is None:
                done(UNREACHABLE)
            elif taken[0] == STORED:
                cas = int(flag_of(taken[2], b"c") or 0)
                lease = Lease(self, read, miss, flight, key=key, id=id, cas=cas)
                self._held.add(lease)
                if stored[1] is not None and stored[1].startswith(miss.versions):
                    lease.release_soon()  # filled since we looked
                    done(None)
                else:
                    done(lease)
            elif seen is not None and seen[1] == _UNSTORABLE:
                flight.unstorable = True
                done(NOT_STORABLE)
            else:
                done(miss)

        requests = [(read.key, take), (read.key, meta_get(key)), (read.key, meta_get(read.key))]
        self._cluster.submit(requests, answered)

    async def _is_held(self, read: Read, versions: bytes) -> bool:
        lease = self._keyspace.lease(read.key, versions)
        (seen,) = await self._cluster.ask([(read.key, meta_get(lease))])
        return seen is not None and seen[1] is not None and seen[1] != _UNSTORABLE

    # While a lease is held, and when it ends.

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_ttl_s / 3)
            held = list(self._held)
            touch = b"v T%d" % self._lease_ttl_s
            replies = await self._cluster.ask(
                [(lease.read.key, meta_get(lease.key, touch)) for lease in held]
            )
            for lease, reply in zip(held, replies, strict=True):
                if reply is not None and reply[1] != lease.id:
                    self._held.discard(lease)  # it lapsed, and may be another's now

    async def give_back(self, lease: Lease, *, unstorable: bool = False) -> None:
        """Lets other processes fill; `unstorable`: or tells them that no entry will come."""
        await self._cluster.ask(self.ending(lease, unstorable=unstorable))

    def ending(self, lease: Lease, *, unstorable: bool = False) -> list[Request]:
        """What ends a lease in memcached; here it ends at once."""
        self._held.discard(lease)
        if lease.id is None:
            return []
        end = meta_delete(lease.key, cas=lease.cas)
        if unstorable:
            end = meta_set(lease.key, _UNSTORABLE, ttl_s=_UNSTORABLE_TTL_S, cas=lease.cas)
        return [(lease.read.key, end)]

    def end(self, read: Read, versions: bytes, flight: _Flight) -> None:
        """The flight has landed: its waiters go on, and the next miss begins another."""
        key = read.key, versions
        flight.ended = True
        if self._left.get(key) is flight:
            del self._left[key]
        self._land(key, flight)
        later = self._flights.get(key)
        if later is not None and flight.entry is not None:
            later.entry = flight.entry
            later.land()

    def _land(self, key: tuple[bytes, bytes], flight: _Flight) -> None:
        flight.land()
        if self._flights.get(key) is flight:
            del self._flights[key]

    def leave(self, lease: Lease, flight: _Flight) -> bool:
        """See `Lease.is_wanted_without_client`."""
        key = lease.read.key, lease.versions
        under_way = self._flights.get(key)
        awaited = not flight.ended and under_way is not None and under_way.waiting > 0
        if awaited and self._left.setdefault(key, flight) is flight and under_way is flight:
            self.tasks.spawn(self._let_others(lease, flight))
        return awaited and self._left[key] is flight

    async def _let_others(self, lease: Lease, flight: _Flight) -> None:
        try:
            await self.give_back(lease)
        finally:
            self._land((lease.read.key, lease.versions), flight)

    def remember_unstorable(self, read: Read) -> None:
        """Misses of this read, or its shape, take no lease for a while; see `Unstorable`."""
        self.metrics.fill_declined += 1
        self.unstorable.add(read, self._loop.time())

    def was_refused(self, lease: Lease) -> None:
        """Memcached has not taken what this brought: others are told, as of what cannot be stored.
        Else of those who wait in other processes one after another would fill in vain."""
        self.unstorable.add(lease.read, self._loop.time())
        if lease.id is not None:
            none = meta_set(lease.key, _UNSTORABLE, mode=b"E", ttl_s=_UNSTORABLE_TTL_S)
            self._cluster.submit([(lease.read.key, none)], lambda _: None)


def _is_missing(outcome: Outcome, versions: bytes) -> bool:
    """Whether an entry is missing still, at these versions."""
    return isinstance(outcome, Miss) and not outcome.early and outcome.versions == versions


def _pauses() -> Iterator[float]:
    pause_s = _FIRST_POLL_S
    while True:
        yield pause_s
        pause_s = min(pause_s * 1.5, _LONGEST_POLL_S)
