"""What readers ask of the engine: a stored answer, or the right to fill it."""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import assert_never

from sqlcache.cache.keys import Keyspace
from sqlcache.cache.leases import LEASE_TIMEOUT, Lease, Leases, Wait
from sqlcache.cache.lookups import Lookups, Waiter
from sqlcache.cache.outcomes import (
    DISTRUSTED,
    Bypass,
    Hit,
    Miss,
    Outcome,
    Outdated,
    Packed,
    Unversioned,
)
from sqlcache.cache.reads import Freshness, Read, TagSet, Template
from sqlcache.cache.slots_in_use import SlotsInUse
from sqlcache.cache.store import EntryStore
from sqlcache.cache.tag_checks import TagChecks
from sqlcache.cache.tag_logs import TagLogs
from sqlcache.cache.tag_sets import TagSets
from sqlcache.cache.tags import Pins, Tag
from sqlcache.cache.windows import Windows
from sqlcache.cache.worth import UNHIT, Worth
from sqlcache.callbacks import told
from sqlcache.statement_counts import UNCOUNTED, StatementCounts

_REASSURED_POLL_S = 0.02
_ROUNDS = 20  # of looking again, where tags or fills are lost time after time


class Readers:
    """The readers' side of an `Engine`. Answers live `ttl_s`, unless a read says otherwise."""

    def __init__(
        self,
        keyspace: Keyspace,
        tag_sets: TagSets,
        slots: SlotsInUse,
        windows: Windows,
        checks: TagChecks,
        lookups: Lookups,
        logs: TagLogs,
        store: EntryStore,
        leases: Leases,
        worth: Worth,
        *,
        ttl_s: int,
    ) -> None:
        self.time = asyncio.get_running_loop().time
        """The clock of its look-ups, in seconds."""
        self.worth = worth
        self._keyspace = keyspace
        self._tag_sets = tag_sets
        self._slots = slots
        self._windows = windows
        self._checks = checks
        self._lookups = lookups
        self._logs = logs
        self._store = store
        self._leases = leases
        self._ttl_s = ttl_s

    def read(
        self,
        fingerprint: bytes,
        canonical: bytes,
        tags: tuple[Tag, ...],
        shape: bytes,
        freshness: Freshness | None = None,
        *,
        rolls_back: bool = False,
        some_roll_back: bool = False,
        counts_all: bool = False,
        proof_rows: int | None = None,
        planned: bool = False,
        counts: StatementCounts = UNCOUNTED,
        pins: Pins = (),
    ) -> Read:
        """What `lookup` takes: the statement and all else that decides its answer. `planned`: its
        tags are right by the definitions of now, see `plan_under`. `pins`: of the first of the
        tags, each a table's, it hangs on these whatever comes into use.

        Reads that allow different lives share no entry: else who wants a young one could get what
        another has stored long ago.
        """
        freshness = freshness or Freshness(self._ttl_s)
        tag_set = self.tag_set(tags)
        return Read(
            self._keyspace.entry(fingerprint, canonical, freshness.ttl_s),
            self._tag_sets.pinned(tag_set, pins) if pins else tag_set,
            shape,
            freshness,
            rolls_back=rolls_back,
            some_roll_back=some_roll_back,
            counts_all=counts_all,
            proof_rows=proof_rows,
            edition=self.edition if planned else None,
            counts=counts,
        )

    def template(self, like: Read, fingerprint: bytes, fields: Iterable[bytes]) -> Template:
        """Reads like this one, whose answers are decided by these fields and one more, which comes
        last."""
        keys = self._keyspace.entries(fingerprint, fields, like.freshness.ttl_s)
        return Template(like, keys)

    def tag_set(self, tags: tuple[Tag, ...]) -> TagSet:
        """See `TagSets.of`."""
        return self._tag_sets.of(tags)

    def use_slot_soon(self, tag: Tag, slot: bytes) -> None:
        """See `SlotsInUse.use`."""
        self._slots.use(tag, slot)

    def plan_under(self, definitions: Mapping[Tag, bytes | None], *, changed: bool = False) -> None:
        """Reads from here on are planned by the definitions these tags' versions stand for.

        The tags are the root's and the schemas'. Where a look-up finds another version of one, its
        outcome is `Outdated`; so is that of a read planned before definitions `changed`.
        """
        self._windows.shut_all()
        self._checks.definitions = definitions
        self._lookups.edition += changed

    @property
    def edition(self) -> int:
        """That of the definitions by which reads are planned now."""
        return self._lookups.edition

    def lookup(self, read: Read, waiter: Waiter) -> None:
        """Calls `waiter` soon with the outcome; see `Lookups`."""
        self._lookups.add(read, waiter)

    def bind(self, read: Read) -> None:
        """See `TagSets.bind`."""
        self._tag_sets.bind(read)

    def at_once(self, read: Read) -> Hit | None:
        """The hit that `lookup` would call its waiter with at once; None where there is none."""
        return self._lookups.at_once(read)

    def is_as_defined(self, like: Read) -> bool:
        """See `Lookups.is_as_defined`."""
        return self._lookups.is_as_defined(like)

    async def obtain(
        self,
        read: Read,
        first: Outcome | None = None,
        *,
        stores: bool = True,
        within_s: float = math.inf,
    ) -> Hit | Lease | Outdated | Bypass:
        """The stored answer, or the right to fill it, or neither.

        Waits for another client's fill as long as that lives, at most `lease_wait_s`, nor longer
        than `within_s`. `first` is the outcome of a look-up the caller has just made; if it is a
        miss, that is to be stored. `stores`: so is any other, whether or not answers like it are
        worth it.
        """
        wait: Wait | None = None
        outcome = first or await self.look(read)
        for _ in range(_ROUNDS):
            if outcome is DISTRUSTED and await self._reassured(read):
                outcome = await self.look(read)
            if isinstance(outcome, Packed):
                packed = outcome
                unpacked = await self._store.unpack(
                    read, packed.value, packed.versions, packed.until
                )
                if isinstance(unpacked, Bypass):
                    return unpacked
                outcome = unpacked or Miss(packed.versions)
                outcome.since = packed.since
                outcome.tags, outcome.whole = packed.tags, packed.whole
            match outcome:
                case Hit() | Bypass() | Outdated():
                    return outcome
                case Unversioned(tags):
                    await self._logs.give_versions(tags)
                case Miss():
                    asked = stores or wait is not None or outcome is first
                    if not asked and self.worth.skips(read, outcome):
                        return UNHIT
                    wait = wait or self._leases.wait(read, within_s)
                    got = await self._leases.take(read, outcome, wait)
                    if got is not None:
                        return got
                case _:
                    assert_never(outcome)
            outcome = await self.look(read)
        return LEASE_TIMEOUT

    def take_soon(self, read: Read, miss: Miss, done: Callable[[Lease | None], None]) -> bool:
        """The right to fill, for who does not wait for others; see `Leases.take_soon`. Whether the
        answer is worth it is for the caller to ask, see `worth`."""
        return self._leases.take_soon(read, miss, done)

    async def _reassured(self, read: Read) -> bool:
        """Whether the nodes are trusted again, for which this waits where that may soon be so: who
        was late itself, on a busy host, asks the others, and does not burden MySQL meanwhile."""
        while True:
            now = self.time()
            doubted = [node for node in read.tags.nodes if not node.trusts(now)]
            if not doubted:
                return True
            if not all(node.may_soon_be_trusted(now) for node in doubted):
                return False
            await asyncio.sleep(_REASSURED_POLL_S)

    async def look(self, read: Read) -> Outcome:
        """What one look-up finds, now; takes no lease and waits for no one."""
        return await told(partial(self._lookups.add, read))

    def may_keep(self, lease: Lease, rows: int) -> bool:
        """Whether an answer of so many rows may be stored, see `TagSets.may_keep`."""
        return self._tag_sets.may_keep(lease.read, lease.versions, rows)

    async def ask_about(self, read: Read) -> Outcome:
        """What a `look` finds, by what memcached says after this was called, and nothing else."""
        return await told(partial(self._lookups.ask_about, read))

    def _ask(self, tag_sets: Iterable[TagSet]) -> None:
        self._checks.ask(tag_sets)

    async def put(
        self, read: Read, versions: bytes, entry: bytes, *, ttl_s: int | None = None
    ) -> None:
        """Stores an entry without a lease, also in place of another.

        `versions` are those the tags of `read` had before the answer was computed. `ttl_s`: it
        lives no longer than that.
        """
        await self._store.put(read, versions, entry, near=ttl_s is None, ttl_s=ttl_s)

    async def left_s(self, read: Read) -> int:
        """See `EntryStore.left_s`."""
        return await self._store.left_s(read)
