"""Sees to it that all processes of a deployment use the same list of nodes.

Two lists lead one tag to two nodes, and what one process writes the other would not see. So each
node holds two digests of the list in use:

- one that lapses unless somebody at work renews it. Who starts, and finds another one than that of
  its own list, must not: those at work are to be stopped first.
- one that stays. Who starts, and finds another one or none, gives the node's copy of the root a new
  version: the node may have been left out for a while, and know nothing of the writes since.
"""

import asyncio
import logging

from sqlcache.cache.fences import Fences
from sqlcache.cache.keys import Keyspace, digest
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.tags import ROOT
from sqlcache.errors import ConfigError
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.protocol import Reply, meta_get, meta_set

log = logging.getLogger(__name__)

LAPSE_S = 10
_RENEW_S = 2.0


class Roster:
    """One process's part in that. `agree` begins it, `close` ends it."""

    def __init__(
        self, cluster: Cluster, keyspace: Keyspace, placement: TagPlacement, fences: Fences
    ) -> None:
        self._cluster = cluster
        self._placement = placement
        self._fences = fences
        self._own = digest(name.encode() for name in sorted(cluster.nodes)).hex().encode()
        self._at_work, self._last = keyspace.roster(lapses=True), keyspace.roster(lapses=False)
        self._agreed: set[str] = set()
        self._others: set[str] = set()
        self._watching: asyncio.Task[None] | None = None

    async def agree(self) -> None:
        """Returns when all nodes that answer have this process's list. Raises: ConfigError."""
        await self._look()
        if self._others:
            raise ConfigError(
                f"memcached.nodes = {', '.join(sorted(self._cluster.nodes))}: other sqlcaches at"
                f" work on {', '.join(sorted(self._others))} have another list. With two lists some"
                f" would not see what others write: stop all of them, wait {LAPSE_S} s, and start"
                " them with the new list"
            )
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        """Ends it; the digests lapse."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_S)
            before = set(self._others)
            await self._look()
            for name in self._others - before:
                log.error("sqlcaches with another list of nodes are at work node=%s", name)

    async def _look(self) -> None:
        await asyncio.gather(*map(self._visit, self._cluster.nodes))

    async def _visit(self, name: str) -> None:
        renew = meta_get(self._at_work, b"v T%d" % LAPSE_S)
        claim = meta_set(self._at_work, self._own, mode=b"E", ttl_s=LAPSE_S)
        found = (await self._ask(name, claim, renew))[1]
        if found is None or found[1] is None:
            return
        if found[1] != self._own:
            self._others.add(name)
            return
        self._others.discard(name)
        if name not in self._agreed:
            await self._settle(name)

    async def _settle(self, name: str) -> None:
        (last,) = await self._ask(name, meta_get(self._last))
        if last is None:
            return
        if last[1] != self._own:
            if not await self._fences.renew_version(ROOT.on(name)):
                return
            await self._ask(name, meta_set(self._last, self._own, ttl_s=0))
        self._agreed.add(name)

    async def _ask(self, name: str, *requests: bytes) -> list[Reply | None]:
        route = self._placement.root_key(name)
        return await self._cluster.ask([(route, request) for request in requests])
