"""The engine: the three verbs every door uses.

- `lookup`/`obtain`: the stored answer, or the right to fill it, or neither.
- `Lease.fill`: stores an answer under the versions its tags had before the query ran.
- `fence`/`bump`: a write, see `fences`.

One client fills a missing key while the others wait for it. Inside the process they share a
`_Flight`; between processes the right is a lease, an item in memcached that only one can add. It
lives on its entry's node, so that whoever takes it sees in the same breath whether the entry has
come meanwhile. A waiter joins a flight only if it read the very tag versions the flight began with.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from sqlcache.cache.fences import Fence, Fences
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.lookups import (
    UNREACHABLE,
    Bypass,
    Hit,
    Lookups,
    Miss,
    Outcome,
    Outdated,
    Read,
    TagSet,
    Unversioned,
    Waiter,
)
from sqlcache.cache.tags import Tag
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.protocol import meta_delete, meta_get, meta_set
from sqlcache.metrics import Metrics

_FIRST_POLL_S = 0.001
_LONGEST_POLL_S = 0.05
_TAKEN = b"1"
_UNSTORABLE = b"!"
_UNSTORABLE_TTL_S = 2
_UNSTORABLE_SHAPES = 10_000
_STORED = b"HD"

LEASE_TIMEOUT = Bypass("waited too long for a lease")
NOT_STORABLE = Bypass("the answer is not storable")


@dataclass(frozen=True, slots=True)
class Limits:
    """The engine's settings."""

    ttl_s: int
    lease_ttl_s: int
    lease_wait_s: float
    write_deadline_s: float


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

    __slots__ = ("_engine", "_flight", "_read", "_shared", "versions")

    def __init__(
        self, engine: "Engine", read: Read, versions: bytes, flight: _Flight, *, shared: bool
    ) -> None:
        self._engine = engine
        self._read = read
        self._flight = flight
        self._shared = shared
        self.versions = versions

    async def fill(self, entry: bytes) -> None:
        """Stores the entry, which was read under `versions`, and lets the waiters have it."""
        await self._engine.store(self._read, self.versions, entry)
        self._end()

    async def decline(self) -> None:
        """The answer cannot be stored: lets the waiters go to MySQL at once."""
        self._engine.remember_unstorable(self._read)
        self._flight.unstorable = True
        if self._shared:
            await self._engine.mark_unstorable(self._read, self.versions)
        self._end()

    async def release(self) -> None:
        """There was no answer: lets another client try."""
        if self._shared:
            await self._engine.drop_lease(self._read, self.versions)
        self._end()

    def _end(self) -> None:
        self._flight.land()
        self._engine.forget_flight(self._read, self.versions, self._flight)


class Engine:
    """One process's door to the cache."""

    def __init__(
        self, cluster: Cluster, keyspace: Keyspace, limits: Limits, metrics: Metrics
    ) -> None:
        self.limits = limits
        self._cluster = cluster
        self._keyspace = keyspace
        self._metrics = metrics
        self._fences = Fences(cluster, keyspace, metrics, write_deadline_s=limits.write_deadline_s)
        self._lookups = Lookups(cluster, self._fences.distrusts, self._fences.saw_fences)
        self._tag_sets: dict[tuple[Tag, ...], TagSet] = {}
        self._flights: dict[tuple[bytes, bytes], _Flight] = {}
        self._unstorable: OrderedDict[bytes, None] = OrderedDict()

    async def close(self) -> None:
        """Makes the last bumps."""
        await self._fences.close()

    # Reads.

    def read(
        self, fingerprint: bytes, canonical: bytes, tags: tuple[Tag, ...], shape: bytes
    ) -> Read:
        """What `lookup` takes: the statement and all else that decides its answer."""
        key = self._keyspace.entry(fingerprint, canonical)
        return Read(key, meta_get(key), self.tag_set(tags), shape, self.limits.ttl_s)

    def tag_set(self, tags: tuple[Tag, ...]) -> TagSet:
        """The one object for these tags."""
        known = self._tag_sets.get(tags)
        if known is None:
            keys = [self._keyspace.tag(tag.schema, tag.table) for tag in tags]
            requests = tuple((key, meta_get(key)) for key in keys)
            known = self._tag_sets[tags] = TagSet(tags, requests)
        return known

    def lookup(self, read: Read, waiter: Waiter) -> None:
        """Calls `waiter` soon with the outcome; see `Lookups`."""
        self._lookups.add(read, waiter)

    def plan_under(self, definitions: Mapping[Tag, bytes | None]) -> None:
        """Reads from here on are planned by the definitions these tags' versions stand for.

        The tags are the root's and the schemas'. Where a look-up finds another version of one, its
        outcome is `Outdated`.
        """
        self._lookups.definitions = definitions

    async def obtain(
        self, read: Read, first: Outcome | None = None
    ) -> Hit | Lease | Outdated | Bypass:
        """The stored answer, or the right to fill it, or neither.

        Waits at most `lease_wait_s` for another client's fill. `first` is the outcome of a
        look-up the caller has just made.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limits.lease_wait_s
        outcome = first or await self._look(read)
        while True:
            match outcome:
                case Hit() | Bypass() | Outdated():
                    return outcome
                case Unversioned(tags):
                    await self._fences.give_versions(tags)
                case Miss(versions):
                    got = await self._join_or_lead(read, versions, deadline)
                    if got is not None:
                        return got
                case _:
                    assert_never(outcome)
            if loop.time() > deadline:
                return LEASE_TIMEOUT
            outcome = await self._look(read)

    async def _look(self, read: Read) -> Outcome:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def answer(outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        self._lookups.add(read, answer)
        return await future

    async def _join_or_lead(
        self, read: Read, versions: bytes, deadline: float
    ) -> Hit | Lease | Bypass | None:
        """Waits for the fill under way, or begins one. None: look again."""
        if read.shape in self._unstorable:
            return Lease(self, read, versions, _Flight(), shared=False)
        flight = self._flights.get((read.key, versions))
        if flight is not None:
            return await self._join(flight, deadline)
        flight = self._flights[read.key, versions] = _Flight()
        got: Hit | Lease | Bypass | None = None
        try:
            got = await self._lead(read, versions, flight, deadline)
            return got
        finally:
            if not isinstance(got, Lease):
                flight.land()
                self.forget_flight(read, versions, flight)

    async def _join(self, flight: _Flight, deadline: float) -> Bypass | None:
        self._metrics.lease_waits += 1
        left = deadline - asyncio.get_running_loop().time()
        await asyncio.wait([flight.landed], timeout=max(left, 0))
        if not flight.landed.done():
            self._metrics.lease_timeouts += 1
            return LEASE_TIMEOUT
        return NOT_STORABLE if flight.unstorable else None

    async def _lead(
        self, read: Read, versions: bytes, flight: _Flight, deadline: float
    ) -> Hit | Lease | Bypass | None:
        """Takes the lease, or waits for the process that has it."""
        loop = asyncio.get_running_loop()
        key = self._keyspace.lease(read.key, versions)
        take = meta_set(key, _TAKEN, mode=b"E", ttl_s=self.limits.lease_ttl_s)
        pause = _FIRST_POLL_S
        while True:
            taken, seen, stored = await self._cluster.ask(
                [(read.key, take), (read.key, meta_get(key)), read.request]
            )
            if taken is None or stored is None:
                return UNREACHABLE
            if taken[0] == _STORED:
                if stored[1] is not None and stored[1].startswith(versions):
                    await self.drop_lease(read, versions)  # filled since we looked
                    return None
                return Lease(self, read, versions, flight, shared=True)
            if seen is not None and seen[1] == _UNSTORABLE:
                flight.unstorable = True
                return NOT_STORABLE
            if pause == _FIRST_POLL_S:
                self._metrics.lease_waits += 1
            if loop.time() > deadline:
                self._metrics.lease_timeouts += 1
                return LEASE_TIMEOUT
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_POLL_S)
            outcome = await self._look(read)
            if not (isinstance(outcome, Miss) and outcome.versions == versions):
                return outcome if isinstance(outcome, Hit | Bypass) else None

    # What a lease does when it ends.

    async def store(self, read: Read, versions: bytes, entry: bytes) -> None:
        """Stores the entry and drops the lease."""
        lease = self._keyspace.lease(read.key, versions)
        replies = await self._cluster.ask(
            [
                (read.key, meta_set(read.key, entry, ttl_s=read.ttl_s)),
                (read.key, meta_delete(lease)),
            ]
        )
        if replies[0] is not None and replies[0][0] == _STORED:
            self._metrics.fills += 1
        else:
            self._metrics.fills_failed += 1

    async def mark_unstorable(self, read: Read, versions: bytes) -> None:
        """Tells the waiters in other processes that no entry will come."""
        lease = self._keyspace.lease(read.key, versions)
        mark = meta_set(lease, _UNSTORABLE, ttl_s=_UNSTORABLE_TTL_S)
        await self._cluster.ask([(read.key, mark)])

    async def drop_lease(self, read: Read, versions: bytes) -> None:
        """Lets another process fill."""
        lease = self._keyspace.lease(read.key, versions)
        await self._cluster.ask([(read.key, meta_delete(lease))])

    def forget_flight(self, read: Read, versions: bytes, flight: _Flight) -> None:
        """The flight has landed: the next miss begins another."""
        if self._flights.get((read.key, versions)) is flight:
            del self._flights[read.key, versions]

    def remember_unstorable(self, read: Read) -> None:
        """Misses of this shape take no lease from now on, so none waits in vain."""
        self._metrics.fill_declined += 1
        self._unstorable[read.shape] = None
        if len(self._unstorable) > _UNSTORABLE_SHAPES:
            self._unstorable.popitem(last=False)

    # Writes.

    async def fence(self, tags: Iterable[Tag], observe: Sequence[Tag] = ()) -> Fence:
        """Marks the tags of a write about to be sent; see `Fences.raise_fence`."""
        return await self._fences.raise_fence(tags, observe)

    async def bump(self, tags: Iterable[Tag]) -> None:
        """Forgets all that hangs on the tags."""
        await self._fences.bump(tags)

    async def versions(self, tags: Sequence[Tag]) -> dict[Tag, bytes | None]:
        """The tags' versions, made fresh where they had none; without those out of reach."""
        known = await self._fences.versions(tags)
        absent = [tag for tag, version in known.items() if version is None]
        if absent:
            await self._fences.give_versions(absent)
            known |= await self._fences.versions(absent)
        return known
