"""Leases: one client fills a missing key while the others wait for it.

Inside the process they share a `_Flight`; between processes the right is a lease, an item in
memcached that only one can add. It lives on its entry's node, so that whoever takes it sees in the
same breath whether the entry has come meanwhile. A waiter joins a flight only if it read the very
tag versions the flight began with: else it could get an answer from before a write it has seen.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from sqlcache.cache.keys import Keyspace
from sqlcache.cache.lookups import UNREACHABLE, Bypass, Hit, Miss, Outcome, Read
from sqlcache.cache.store import EntryStore
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.protocol import meta_delete, meta_get, meta_set
from sqlcache.metrics import Metrics

_FIRST_POLL_S = 0.001
_LONGEST_POLL_S = 0.05
_TAKEN = b"1"
_UNSTORABLE = b"!"
_UNSTORABLE_TTL_S = 2
_UNSTORABLE_SHAPES = 10_000
_UNSTORABLE_SHAPE_S = 60
_STORED = b"HD"

LEASE_TIMEOUT = Bypass("waited too long for a lease")
NOT_STORABLE = Bypass("the answer is not storable")


class _Flight:
    """One fill under way in this process; `landed` once it ended, however it ended."""

    __slots__ = ("landed", "unstorable")

    def __init__(self) -> None:
        self.landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.unstorable = False

    def land(self) -> None:
        if not self.landed.done():
            self.landed.set_result(None)


class Lease:
    """The right to fill one missing key. Ended by `fill`, `decline` or `release`, exactly once."""

    __slots__ = ("_flight", "_leases", "_read", "_shared", "versions")

    def __init__(
        self, leases: "Leases", read: Read, versions: bytes, flight: _Flight, *, shared: bool
    ) -> None:
        self._leases = leases
        self._read = read
        self._flight = flight
        self._shared = shared
        self.versions = versions

    async def fill(self, entry: bytes) -> None:
        """Stores the entry, which was read under `versions`, and lets the waiters have it."""
        await self._leases.store.put(self._read, self.versions, entry)
        await self.release()

    async def decline(self, *, lasting: bool = True) -> None:
        """The answer cannot be stored: lets the waiters go to MySQL at once.

        `lasting`: nor will those of other statements of its shape, most likely.
        """
        if lasting:
            self._leases.remember_unstorable(self._read)
        self._flight.unstorable = True
        if self._shared:
            await self._leases.mark_unstorable(self._read, self.versions)
        self._leases.end(self._read, self.versions, self._flight)

    async def release(self) -> None:
        """Lets another client try, if there is no answer now."""
        if self._shared:
            await self._leases.drop(self._read, self.versions)
        self._leases.end(self._read, self.versions, self._flight)


class Leases:
    """All fills of this process; `look` makes a look-up."""

    def __init__(
        self,
        cluster: Cluster,
        keyspace: Keyspace,
        store: EntryStore,
        look: Callable[[Read], Awaitable[Outcome]],
        metrics: Metrics,
        *,
        lease_ttl_s: int,
    ) -> None:
        self.store = store
        self._cluster = cluster
        self._keyspace = keyspace
        self._look = look
        self._metrics = metrics
        self._lease_ttl_s = lease_ttl_s
        self._flights: dict[tuple[bytes, bytes], _Flight] = {}
        self._unstorable: OrderedDict[bytes, float] = OrderedDict()  # shape -> until
        self._loop = asyncio.get_running_loop()

    async def take(self, read: Read, miss: Miss, deadline: float) -> Hit | Lease | Bypass | None:
        """The right to fill; or waits for the fill under way, if any. None: look again.

        `deadline` is when to stop waiting, on the event loop's clock.
        """
        if miss.early:
            self._metrics.early_refreshes += 1
        if miss.early or self._loop.time() < self._unstorable.get(read.shape, 0):
            return Lease(self, read, miss.versions, _Flight(), shared=False)
        flight = self._flights.get((read.key, miss.versions))
        if flight is not None:
            return self._last_answer(read, miss) or await self._join(flight, deadline)
        return await self._begin(read, miss, deadline)

    def _last_answer(self, read: Read, miss: Miss) -> Hit | None:
        """The answer before this one, if the rule allows it and it is not too old."""
        allowed_s = read.freshness.stale_while_revalidate_s
        if miss.previous is None or not allowed_s or miss.age_s > allowed_s:
            return None
        self._metrics.stale_serves += 1
        return Hit(miss.previous, len(miss.versions))

    async def _join(self, flight: _Flight, deadline: float) -> Bypass | None:
        self._metrics.lease_waits += 1
        await asyncio.wait([flight.landed], timeout=max(deadline - self._loop.time(), 0))
        if not flight.landed.done():
            self._metrics.lease_timeouts += 1
            return LEASE_TIMEOUT
        return NOT_STORABLE if flight.unstorable else None

    async def _begin(self, read: Read, miss: Miss, deadline: float) -> Hit | Lease | Bypass | None:
        flight = self._flights[read.key, miss.versions] = _Flight()
        got: Hit | Lease | Bypass | None = None
        try:
            got = await self._lead(read, miss, flight, deadline)
            return got
        finally:
            if not isinstance(got, Lease):
                self.end(read, miss.versions, flight)

    async def _lead(
        self, read: Read, miss: Miss, flight: _Flight, deadline: float
    ) -> Hit | Lease | Bypass | None:
        """Takes the lease, or waits for the process that has it."""
        key = self._keyspace.lease(read.key, miss.versions)
        take = meta_set(key, _TAKEN, mode=b"E", ttl_s=self._lease_ttl_s)
        pause_s = _FIRST_POLL_S
        while True:
            taken, seen, stored = await self._cluster.ask(
                [(read.key, take), (read.key, meta_get(key)), (read.key, meta_get(read.key))]
            )
            if taken is None or stored is None:
                return UNREACHABLE
            if taken[0] == _STORED:
                if stored[1] is not None and stored[1].startswith(miss.versions):
                    await self.drop(read, miss.versions)  # filled since we looked
                    return None
                return Lease(self, read, miss.versions, flight, shared=True)
            if seen is not None and seen[1] == _UNSTORABLE:
                flight.unstorable = True
                return NOT_STORABLE
            if last := self._last_answer(read, miss):
                return last
            if pause_s == _FIRST_POLL_S:
                self._metrics.lease_waits += 1
            if self._loop.time() > deadline:
                self._metrics.lease_timeouts += 1
                return LEASE_TIMEOUT
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LONGEST_POLL_S)
            outcome = await self._look(read)
            if not (isinstance(outcome, Miss) and outcome.versions == miss.versions):
                return outcome if isinstance(outcome, Hit | Bypass) else None

    # What a lease does when it ends.

    async def mark_unstorable(self, read: Read, versions: bytes) -> None:
        """Tells the waiters in other processes that no entry will come."""
        lease = self._keyspace.lease(read.key, versions)
        mark = meta_set(lease, _UNSTORABLE, ttl_s=_UNSTORABLE_TTL_S)
        await self._cluster.ask([(read.key, mark)])

    async def drop(self, read: Read, versions: bytes) -> None:
        """Lets another process fill."""
        lease = self._keyspace.lease(read.key, versions)
        await self._cluster.ask([(read.key, meta_delete(lease))])

    def end(self, read: Read, versions: bytes, flight: _Flight) -> None:
        """The flight has landed: its waiters go on, and the next miss begins another."""
        flight.land()
        if self._flights.get((read.key, versions)) is flight:
            del self._flights[read.key, versions]

    def remember_unstorable(self, read: Read) -> None:
        """Misses of this shape take no lease for a while, so none waits in vain."""
        self._metrics.fill_declined += 1
        self._unstorable[read.shape] = self._loop.time() + _UNSTORABLE_SHAPE_S
        if len(self._unstorable) > _UNSTORABLE_SHAPES:
            self._unstorable.popitem(last=False)
