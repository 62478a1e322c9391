"""Sees to it that all processes of a deployment use the same list of nodes, and one protocol.

Two lists lead one tag to two nodes, and what one process writes the other would not see. Nor would
one that does not read what the other puts into logs, that waits for shorter read leases, that gives
a node up sooner than the other distrusts it (`memcache.health`), or takes the fence of a write for
a dead one's that is not. So each node holds twice what is in use: a digest of the list, the format
of tags' logs, and the read lease.

- One lapses unless somebody at work renews it; with it are the other `_TIMES`. Who starts, and
  finds another one than its own, must not: those at work are to be stopped first. Who is at work
  and finds another one, as where nodes were away when that began, puts a dispute in its place, so
  that the others find out, too; and all of them keep a fence on everything for as long as there is
  any, and a while longer: nobody serves what others may have written elsewhere.
- One stays. Who starts, and finds another one or none, gives the root a new version, on all nodes:
  any that is not among those of the other list knows nothing of the writes since. So does who finds
  the one of a node that was loaded from a file, and follows no binary log. Who is at work puts it
  back on a node that has lost it, or the next one to start would forget what all of them hold.
"""

import asyncio
import logging
from collections.abc import Iterable
from itertools import compress

from sqlcache.cache.fence import Fence
from sqlcache.cache.fences import Fences
from sqlcache.cache.keys import FORMAT, Keyspace, digest
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.tags import ROOT
from sqlcache.errors import ConfigError, NotNow
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.protocol import Reply, flag_of, meta_get, meta_set

log = logging.getLogger(__name__)

LAPSE_S = 10
_RENEW_S = 2.0
_TIMES = (
    "cache.read_lease_ms",
    "memcached.outage_s",
    "memcached.connect_timeout_s + reconnect_max_s",
    "cache.write_deadline_s",
)
_DISPUTED = b"disputed "
"""Begins what is found in place of a digest; that of who has found another one follows."""


def in_use(nodes: Iterable[str], read_lease_s: float) -> bytes:
    """By what records are read: the list of nodes, the format and the read lease."""
    names = digest(name.encode() for name in sorted(nodes)).hex().encode()
    return b"%b %d %g" % (names, FORMAT, 1000 * read_lease_s)


def loaded(own: bytes) -> bytes:
    """The digest that stays, of a node that has its memory from a file."""
    return b"loaded " + own


def runs_without_tokens(node: str) -> str:
    """What is wrong with a memcached that compares and swaps nothing: marks of the dead would stay,
    and logs of tags grow."""
    return f"memcached.nodes: {node} runs with -C (--disable-cas): expected one without it"


class Roster:
    """One process's part in that. `agree` begins it, `close` ends it."""

    def __init__(
        self,
        cluster: Cluster,
        keyspace: Keyspace,
        placement: TagPlacement,
        fences: Fences,
        *,
        read_lease_s: float,
        write_deadline_s: float,
    ) -> None:
        self._cluster = cluster
        self._placement = placement
        self._fences = fences
        self._lasting = in_use(cluster.nodes, read_lease_s)
        times = cluster.outage_s, cluster.reach_s, write_deadline_s
        self._own = b"%b %g %g %g" % (self._lasting, *times)
        self.keeps_loaded = False
        """Whether what was loaded from a file is used: what was written since is known."""
        self._at_work, self._last = keyspace.roster(lapses=True), keyspace.roster(lapses=False)
        self._agreed: set[str] = set()
        # By nodes with another digest: where the root has a new version for that.
        self._renewed: dict[str, set[str]] = {}
        self._others: dict[str, bytes] = {}  # node -> what others have there
        self._without_tokens: set[str] = set()  # nodes whose items have none to compare and swap by
        self._fence: Fence | None = None  # on everything, while there are others
        self._fenced_until = 0.0
        self._difference_from_others = ""  # as it was last
        self._watching: asyncio.Task[None] | None = None

    async def agree(self) -> None:
        """Returns when all nodes that answer have this process's list. Raises: ConfigError."""
        await self._look()
        if self._without_tokens:
            raise ConfigError(runs_without_tokens(", ".join(sorted(self._without_tokens))))
        if self._others:
            at = ", ".join(sorted(self._others))
            raise NotNow(
                f"{self._difference()}, seen on {at}. Each would miss what the other writes: stop"
                f" all of them, wait {LAPSE_S} s, and start them alike"
            )
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    def _difference(self) -> str:
        """What is not as others have it, as a sentence."""
        subject, other = self._differing()
        return f"{subject}: another sqlcache uses, or used within the last {LAPSE_S} s, {other}"

    def _differing(self) -> tuple[str, str]:
        """The same: what this one has, and what others have."""
        theirs = next(iter(self._others.values()))
        nodes, *rest = theirs.split(b" ")
        own_nodes, written, *times = self._own.split(b" ")
        if theirs == self._own:
            return f"memcached.nodes, {', '.join(_TIMES)}", "another value of one of these"
        if nodes != own_nodes:
            return f"memcached.nodes = {', '.join(sorted(self._cluster.nodes))}", "another list"
        if rest[:1] != [written] or len(rest) != 1 + len(times):
            return "this version of sqlcache", "records of another form"
        pairs = zip(_TIMES, times, rest[1:], strict=True)
        name, own = next((name, own) for name, own, other in pairs if own != other)
        return f"{name} = {own.decode()}", "another time"

    @property
    def trouble(self) -> str:
        """Why nothing is served, for people; "" where that is not for others at work, nor for such
        as were just now."""
        if self._fence is None:
            return ""
        return f"nothing is served: {self._difference_from_others}"

    async def close(self) -> None:
        """Ends it; the digests lapse."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._fence is not None:
            await self._fences.end(self._fence)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_S)
            await self._look_again()

    async def _look_again(self) -> None:
        before, now = set(self._others), asyncio.get_running_loop().time()
        without_before = set(self._without_tokens)
        await self._look()
        for name in self._without_tokens - without_before:
            log.error("memcached node runs with -C node=%s", name)
        for name in self._others.keys() - before:
            log.error("other sqlcaches are at work: %s node=%s", self._difference(), name)
        if self._others:
            self._difference_from_others = self._difference()
            # They may be there still where a dispute has lapsed: the first one finds its own then.
            self._fenced_until = now + LAPSE_S
            if self._fence is None:  # it goes up with the next beat, also where a node is away
                everything = frozenset(self._placement.to_write([ROOT]))
                self._fence = self._fences.begin(everything)
        elif self._fence is not None and now > self._fenced_until:
            fence, self._fence = self._fence, None
            await self._fences.end(fence)

    async def _look(self) -> None:
        await asyncio.gather(*map(self._visit, self._cluster.nodes))

    async def _visit(self, name: str) -> None:
        claim = meta_set(self._at_work, self._own, mode=b"E", ttl_s=LAPSE_S)
        # The other one is asked for each time as well, or it would be evicted first.
        asked = claim, meta_get(self._at_work, b"v c"), meta_get(self._last)
        _, found, last = await self._ask(name, *asked)
        if found is None or found[1] is None or last is None:
            self._renewed.pop(name, None)  # others may use it meanwhile
            return
        if flag_of(found[2], b"c") == b"0":
            self._without_tokens.add(name)
        else:
            self._without_tokens.discard(name)
        if found[1] != self._own:
            await self._meet(name, found[1])
            self._renewed.pop(name, None)
            return
        await self._ask(name, meta_get(self._at_work, b"v T%d" % LAPSE_S))
        self._others.pop(name, None)
        if name not in self._agreed or last[1] != self._lasting:
            await self._settle(name, last[1])

    async def _meet(self, name: str, found: bytes) -> None:
        """Others are at work on this node."""
        if found.startswith(_DISPUTED):
            self._others.setdefault(name, found.removeprefix(_DISPUTED))
            return
        self._others[name] = found
        if self._watching is not None:  # else it does not begin, and they are to go on
            disputed = meta_set(self._at_work, _DISPUTED + self._own, ttl_s=LAPSE_S)
            await self._ask(name, disputed)

    async def _settle(self, name: str, last: bytes | None) -> None:
        if last != self._lasting:
            kept = self.keeps_loaded and last == loaded(self._lasting)
            # One that has lost it has lost what else it had; no other list was in use meanwhile.
            lost = last is None and name in self._agreed
            if not (kept or await self._renew_root(name, [name] if lost else self._cluster.nodes)):
                return
            await self._ask(name, meta_set(self._last, self._lasting, ttl_s=0))
        self._renewed.pop(name, None)
        self._agreed.add(name)

    async def _renew_root(self, found_on: str, nodes: Iterable[str]) -> bool:
        """Gives the root a new version on each of the nodes that has got none yet since this one
        was found to have another digest; whether none is left."""
        renewed = self._renewed.setdefault(found_on, set())
        left = [name for name in nodes if name not in renewed]
        done = await asyncio.gather(*(self._fences.renew_version(ROOT.on(name)) for name in left))
        renewed.update(compress(left, done))
        return all(done)

    async def _ask(self, name: str, *requests: bytes) -> list[Reply | None]:
        route = self._placement.root_key(name)
        return await self._cluster.ask([(route, request) for request in requests])
