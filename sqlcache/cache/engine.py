"""The engine: the three verbs every door uses, and the one place where the cache is put together.

- `lookup`/`obtain`: the stored answer, or the right to fill it, or neither; see `readers`.
- `Lease.fill`: stores an answer under the versions its tags had before the query ran.
- `fence`/`bump`: a write, see `writers`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sqlcache.boot_clock import boot_clock
from sqlcache.cache.fences import Fences
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.lapses import Lapses
from sqlcache.cache.leases import Leases
from sqlcache.cache.lookups import Lookups
from sqlcache.cache.near import NearCache
from sqlcache.cache.node_watch import NodeWatch, Prover
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.reach import Reach
from sqlcache.cache.readers import Readers
from sqlcache.cache.roster import Roster
from sqlcache.cache.seals import Seal
from sqlcache.cache.server_notes import Origin, ServerNotes
from sqlcache.cache.shared_fences import SharedFences
from sqlcache.cache.slots_in_use import SlotsInUse
from sqlcache.cache.store import EntryStore
from sqlcache.cache.tag_checks import TagChecks
from sqlcache.cache.tag_logs import Steps, TagLogs
from sqlcache.cache.tag_sets import TagSets
from sqlcache.cache.windows import Windows
from sqlcache.cache.worth import Worth
from sqlcache.cache.writers import Writers
from sqlcache.memcache.cluster import Cluster
from sqlcache.metrics import Metrics
from sqlcache.table_counts import Tables


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


class Engine(Readers, Writers):
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
        self._cluster = cluster
        deadline_s, tags_bytes = limits.write_deadline_s, limits.tags_bytes
        tables = Tables(tags_bytes // 4)
        placement = TagPlacement(cluster, keyspace, tags_bytes // 4)
        logs = TagLogs(cluster, placement)
        windows = Windows(
            metrics, self._ask, logs.append_soon, lease_s=limits.read_lease_s, clock=clock
        )
        lapses = Lapses(placement, logs, metrics, deadline_s=deadline_s)
        reach = Reach(placement, logs, windows, lapses)
        fences = Fences(
            placement,
            reach,
            windows,
            metrics,
            tables,
            write_deadline_s=deadline_s,
            withhold=limits.refuse_writes,
        )
        slots = SlotsInUse(
            metrics, logs.use_slot_soon, told_apart=limits.row_tags, max_bytes=tags_bytes // 8
        )
        tag_sets = TagSets(cluster, placement, slots, tables, max_bytes=tags_bytes)
        shared_fences = SharedFences(
            cluster,
            logs,
            fences,
            lapses,
            windows,
            metrics,
            tables,
            given=slots.given,
            write_deadline_s=deadline_s,
        )
        checks = TagChecks(
            cluster, windows, fences.owed.concern, shared_fences.saw_fences, slots.given
        )
        near, seal = NearCache(limits.near_bytes), seal or Seal(metrics)
        lookups = Lookups(cluster, near, seal, windows, checks, tag_sets, logs.give_buckets_soon)
        store = EntryStore(
            cluster,
            keyspace,
            near,
            seal,
            metrics,
            max_item_bytes=limits.max_item_bytes,
            compress_over_bytes=limits.compress_over_bytes,
        )
        worth = Worth(cluster, metrics, skips=limits.skip_unhit_stores, clock=clock)
        leases = Leases(
            cluster,
            keyspace,
            store,
            self.look,
            worth,
            metrics,
            slots.was_needless,
            lease_ttl_s=limits.lease_ttl_s,
            lease_wait_s=limits.lease_wait_s,
        )
        Readers.__init__(
            self,
            keyspace,
            tag_sets,
            slots,
            windows,
            checks,
            lookups,
            logs,
            store,
            leases,
            worth,
            ttl_s=limits.ttl_s,
        )
        Writers.__init__(
            self,
            placement,
            tag_sets,
            slots,
            checks,
            logs,
            reach,
            fences,
            shared_fences,
            metrics,
            tables,
        )
        self._server_notes = ServerNotes(
            cluster, keyspace, placement, fences, self.tell_of_everything
        )
        self._node_watch = NodeWatch(
            cluster, keyspace, fences, placement, metrics, self._server_notes.agrees
        )
        self._roster = Roster(
            cluster,
            keyspace,
            placement,
            fences,
            read_lease_s=limits.read_lease_s,
            write_deadline_s=deadline_s,
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

    @property
    def at_odds(self) -> str:
        """See `Roster.trouble`."""
        return self._roster.trouble

    async def close(self) -> None:
        """Makes the last bumps."""
        self._windows.stop()
        await self._leases.close()
        await self._store.close()
        await self._roster.close()
        await self._shared_fences.close()
        await self._logs.close()
        await self._node_watch.close(clean=await self._fences.close())

    @property
    def tags_bytes(self) -> int:
        """What is remembered of tags, roughly."""
        sets = self._tag_sets.size_bytes + self._slots.size_bytes
        return sets + self._placement.size_bytes + self.tables.size_bytes

    async def answers_are_of(self, origin: Origin) -> Steps:
        """See `ServerNotes.see_to`."""
        return await self._server_notes.see_to(origin)
