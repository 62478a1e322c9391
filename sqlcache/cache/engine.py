"""The engine: the three verbs every door uses.

- `lookup`/`obtain`: the stored answer, or the right to fill it, or neither.
- `Lease.fill`: stores an answer under the versions its tags had before the query ran.
- `fence`/`bump`: a write, see `fences`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from sqlcache.cache.fence import Fence
from sqlcache.cache.fences import Fences
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.lapses import Lapses
from sqlcache.cache.leases import LEASE_TIMEOUT, Lease, Leases, Wait
from sqlcache.cache.lookups import Lookups, Waiter
from sqlcache.cache.marks import Logs, Marks
from sqlcache.cache.near import NearCache
from sqlcache.cache.node_watch import NodeWatch, Prover
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
from sqlcache.cache.own_commits import OwnCommits
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.reach import Reach
from sqlcache.cache.reads import Freshness, Read, TagSet, Template
from sqlcache.cache.roster import Roster
from sqlcache.cache.seals import Seal
from sqlcache.cache.shared_fences import SharedFences
from sqlcache.cache.slots_in_use import SlotsInUse
from sqlcache.cache.store import EntryStore
from sqlcache.cache.tag_checks import TagChecks
from sqlcache.cache.tag_logs import Steps, TagLogs
from sqlcache.cache.tag_sets import TagSets
from sqlcache.cache.tags import ROOT, Cover, Pins, Tag, TagState
from sqlcache.cache.windows import Windows, boot_clock
from sqlcache.cache.worth import UNHIT, Worth
from sqlcache.callbacks import told
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.protocol import meta_get, meta_set
from sqlcache.metrics import Metrics
from sqlcache.process.events import Seldom
from sqlcache.statements import UNCOUNTED, StatementCounts
from sqlcache.tables import Door, Tables

log = logging.getLogger(__name__)

_REASSURED_POLL_S = 0.02
_ROUNDS = 20  # of looking again, where tags or fills are lost time after time


@dataclass(frozen=True, slots=True)
class Limits:
    """The engine's settings; see `docs/settings.md`."""

    ttl_s: int
    lease_ttl_s: int
    lease_wait_s: float
    write_deadline_s: float
    near_bytes: int = 0
    tags_bytes: int = 8_388_608
    """What it may remember of the tags that statements name."""
    max_item_bytes: int = 1_000_000
    compress_over_bytes: int = 0
    read_lease_s: float = 0
    """The same for all processes."""
    row_tags: bool = False
    """Whether writes that touch known rows forget the answers from those alone."""
    skip_unhit_stores: bool = True
    refuse_writes: bool = False
    """Whether a write whose tags cannot be reached is refused (`consistency`)."""


class Engine:
    """One process's door to the cache. Made inside a running event loop; `close` ends it."""

    def __init__(
        self,
        cluster: Cluster,
        keyspace: Keyspace,
        limits: Limits,
        metrics: Metrics,
        *,
        seal: Seal | None = None,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self.limits = limits
        self.time = asyncio.get_running_loop().time
        """The clock of its look-ups, in seconds."""
        self._cluster = cluster
        self._keyspace = keyspace
        self._metrics = metrics
        self.tables = Tables(limits.tags_bytes // 4)
        """What became of each."""
        self.commits_from = b""
        """What tells apart, in the names of commits in tags' logs, the readings of the binary log
        that they are for; empty while nobody is known to look for any."""
        self.seldom = Seldom()
        """For lines that would else be one for each statement."""
        self._placement = TagPlacement(cluster, keyspace, limits.tags_bytes // 4)
        self._logs = TagLogs(cluster, self._placement)
        self._windows = Windows(
            *(metrics, self._ask, self._logs.append_soon),
            lease_s=limits.read_lease_s,
            clock=clock,
        )
        lapses = Lapses(*(self._placement, self._logs, metrics), deadline_s=limits.write_deadline_s)
        self._reach = Reach(self._placement, self._logs, self._windows, lapses)
        self._fences = Fences(
            *(self._placement, self._reach, self._windows, metrics, self.tables),
            write_deadline_s=limits.write_deadline_s,
            withhold=limits.refuse_writes,
        )
        self._slots = SlotsInUse(
            *(metrics, self._logs.use_slot_soon),
            told_apart=limits.row_tags,
            max_bytes=limits.tags_bytes // 8,
        )
        self._tag_sets = TagSets(
            *(cluster, self._placement, self._slots, self.tables), max_bytes=limits.tags_bytes
        )
        self._shared_fences = SharedFences(
            *(cluster, self._logs, self._fences, lapses, self._windows, metrics, self.tables),
            given=self._slots.given,
            write_deadline_s=limits.write_deadline_s,
        )
        near, seal = NearCache(limits.near_bytes), seal or Seal(metrics)
        self._checks = TagChecks(
            *(cluster, self._windows, self._fences.owed.concern, self._shared_fences.saw_fences),
            self._slots.given,
        )
        self._lookups = Lookups(
            *(cluster, near, seal, self._windows, self._checks, self._tag_sets),
            self._logs.give_buckets_soon,
        )
        self._store = EntryStore(
            cluster,
            keyspace,
            near,
            seal,
            metrics,
            max_item_bytes=limits.max_item_bytes,
            compress_over_bytes=limits.compress_over_bytes,
        )
        self.worth = Worth(cluster, metrics, skips=limits.skip_unhit_stores, clock=clock)
        self._leases = Leases(
            cluster,
            keyspace,
            self._store,
            self.look,
            self.worth,
            metrics,
            self._slots.was_needless,
            lease_ttl_s=limits.lease_ttl_s,
            lease_wait_s=limits.lease_wait_s,
        )
        self._node_watch = NodeWatch(cluster, keyspace, self._fences, self._placement, metrics)
        self._roster = Roster(
            *(cluster, keyspace, self._placement, self._fences), read_lease_s=limits.read_lease_s
        )

    def prove_nodes_by(self, prover: Prover) -> None:
        """To be called first: what nodes remember is used when that is proven to be right."""
        self._node_watch.prove_by(prover)
        self._roster.keeps_loaded = True

    async def proven(self, within_s: float) -> None:
        """Returns when that is known of all nodes that answer, or after this time."""
        await self._node_watch.proven(within_s)

    async def note_unlogged(self) -> None:
        """To be awaited before a client may write what is not in MySQL's log."""
        await self._node_watch.note_unlogged()

    async def start(self) -> None:
        """Returns when the nodes that can be reached may be used."""
        await self._node_watch.greeted()

    async def agree(self) -> None:
        """To be awaited before anything is served. Raises: ConfigError where others at work use
        another list of nodes."""
        await self._roster.agree()

    async def close(self) -> None:
        """Makes the last bumps."""
        self._windows.stop()
        await self._leases.close()
        await self._store.close()
        await self._roster.close()
        await self._shared_fences.close()
        await self._logs.close()
        await self._node_watch.close(clean=await self._fences.close())

    # Reads.

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
        freshness = freshness or Freshness(self.limits.ttl_s)
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

    @property
    def tags_bytes(self) -> int:
        """What is remembered of tags, roughly."""
        sets = self._tag_sets.size_bytes + self._slots.size_bytes
        return sets + self._placement.size_bytes + self.tables.size_bytes

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
        self, read: Read, first: Outcome | None = None, *, stores: bool = True
    ) -> Hit | Lease | Outdated | Bypass:
        """The stored answer, or the right to fill it, or neither.

        Waits for another client's fill as long as that lives, at most `lease_wait_s`. `first` is
        the outcome of a look-up the caller has just made; if it is a miss, that is to be stored.
        `stores`: so is any other, whether or not answers like it are worth it.
        """
        wait: Wait | None = None
        outcome = first or await self.look(read)
        for _ in range(_ROUNDS):
            if outcome is DISTRUSTED and await self._reassured(read):
                outcome = await self.look(read)
            if isinstance(outcome, Packed):
                packed = outcome
                unpacked = await self._store.unpack(read, packed.value, packed.versions)
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
                    wait = wait or self._leases.wait(read)
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
        """The same, by what memcached says after this was called, and nothing else."""
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

    # Writes.

    async def fence(self, tags: Iterable[Tag], observe: Iterable[Tag] = ()) -> Fence:
        """Marks the tags of a write about to be sent; see `Fences.raise_fence`."""
        return await self._fences.raise_fence(tags, observe)

    def marks(self, tags: Iterable[Tag], observe: Iterable[Tag], edition: int = 0) -> Marks:
        """What writes that are alike mark, and observe."""
        placed = self._placement.to_write(tags)
        keys = {tag: self._placement.key(tag) for tag in placed}
        copies = tuple(sorted(self._placement.to_write(observe)))
        definitions = self._tag_sets.of_copies(copies) if copies else None
        return Marks(frozenset(placed), keys, definitions, edition, self._slots.each(placed))

    def narrowed(self, marks: Marks, touches: Mapping[Tag, Cover] | None) -> Marks:
        """The same marks for one write that touches no more than this of these tables' slots in
        use. None: its text tells nothing of it; none: nor do its values."""
        if not touches:
            self._metrics.row_writes["text" if touches is None else "values"] += 1
            return marks
        return marks.narrowed(touches, self._buckets(touches))

    def narrow_further(self, fence: Fence, marks: Marks, found: Mapping[Tag, Cover]) -> None:
        """The write with these marks, which are narrowed, touches this of slots of which its text
        tells nothing: so the database has said while the fence stood. To be called before that is
        lifted."""
        found = {
            tag: {slot: found[tag][slot] for slot in found[tag].keys() - marks.touches[tag].keys()}
            for tag in found.keys() & fence.narrow_in & marks.touches.keys()
        }
        marks.touch(found, self._buckets(found))

    def _buckets(self, touches: Mapping[Tag, Cover]) -> list[bytes]:
        return [
            self._placement.bucket(tag, slot, bucket)
            for tag, cover in touches.items()
            for slot, buckets in cover.items()
            for bucket in buckets
        ]

    def confirm_soon(self, marks: Marks, done: Callable[[bool], None]) -> None:
        """See `TagChecks.confirm`, of the definitions that are observed."""
        if marks.definitions is None:
            done(True)
        else:
            self._checks.confirm(marks.definitions, done)

    def join_fence(self, marks: Marks) -> Fence:
        """That of a write, which may be others' as well; see `SharedFences.join`."""
        return self._shared_fences.join(marks)

    def fence_soon(self, fence: Fence, marks: Marks, done: Callable[[Logs | None], None]) -> None:
        """See `SharedFences.raise_soon`."""
        self._shared_fences.raise_soon(fence, marks, done)

    def still_stands(self, fence: Fence) -> bool:
        """See `SharedFences.still_stands`."""
        return self._shared_fences.still_stands(fence)

    def lift_soon(self, fence: Fence, marks: Marks, done: Callable[[Logs | None], None]) -> None:
        """See `SharedFences.lift_soon`."""
        self._shared_fences.lift_soon(fence, marks, done)

    def owes(self, node: str) -> bool:
        """Whether a write of this process, or a bump, has not been told to a node yet."""
        return self._fences.owes(node)

    async def disown(self, node: str) -> bool:
        """Forgets all that a node remembers; whether that could be done."""
        return await self._fences.renew_version(ROOT.on(node))

    async def bump(
        self, tags: Iterable[Tag], *, door: Door | None = None, cause: str = ""
    ) -> Steps:
        """Forgets all that hangs on the tags; returns the steps of definitions' versions. `door`:
        who wants that; None where it is a part of what is counted already. `cause`, for people:
        why, where that may be everything."""
        tags = list(tags)
        if ROOT in tags:
            self.tell_of_everything(cause or "what a transaction wrote is not known")
        if door is not None:
            self.tables.wrote(filter(None, (tag.of_table for tag in tags)), door)
        return await self._fences.bump(tags)

    def tell_of_everything(self, cause: str) -> None:
        """All there is will be forgotten, for this cause."""
        if self.seldom.says(cause):
            log.info("everything is forgotten cause=%s", cause, extra={"kind": "root"})

    async def note_server(self, data_set: str, server: str) -> bool:
        """Forgets everything if it was another server that had this data last, which may have had
        more of it, or less; whether memcached could be asked."""
        key = self._keyspace.server(data_set)
        (reply,) = await self._cluster.ask([(key, meta_get(key))])
        if reply is None:
            return False
        if reply[1] != server.encode():
            await self.bump({ROOT}, cause="another server had the data set")
            await self._cluster.ask([(key, meta_set(key, server.encode(), ttl_s=0))])
        return True

    @property
    def own_commits(self) -> OwnCommits:
        """Those of this process."""
        return self._fences.own_commits

    async def commits(self, tags: Iterable[Tag]) -> dict[Tag, frozenset[bytes]]:
        """Those commits of which the tags' logs say that all that is served under the tags was read
        when they could be seen."""
        return await self._logs.commits(tags)

    async def states(self, tags: Iterable[Tag], own: Fence | None = None) -> dict[Tag, TagState]:
        """What the tags' copies are like but for one's own fence; see `Reach.states`."""
        return await self._reach.states(tags, own)

    async def versions(self, tags: Iterable[Tag]) -> dict[Tag, bytes | None]:
        """See `Reach.versions`."""
        return await self._reach.versions(tags)
