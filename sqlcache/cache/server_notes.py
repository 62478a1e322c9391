"""Which server the answers on a node are from.

Each node has a note of that, by which who starts knows of a server from before that nobody at work
has met, as one that crashed and has lost its last commits. Who starts and finds another note on a
node, or none, gives the root a new version there before he puts his own; so does who was there, on
all nodes, whenever he meets another server than before.
"""

from collections.abc import Callable
from contextlib import suppress

from sqlcache.cache.fences import Fences
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.tag_logs import Steps
from sqlcache.cache.tags import ROOT
from sqlcache.errors import CacheUnavailable
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.protocol import meta_get, meta_set


class ServerNotes:
    """Those that one process finds, and puts. `tell` is told, for people, why everything is
    forgotten."""

    def __init__(
        self,
        cluster: Cluster,
        keyspace: Keyspace,
        placement: TagPlacement,
        fences: Fences,
        tell: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._keyspace = keyspace
        self._placement = placement
        self._fences = fences
        self._tell = tell
        self._met: tuple[str, str] | None = None  # the last one that was seen to

    async def see_to(self, data_set: str, server: str) -> Steps:
        """Returns when no node has answers of another server than this one, or of this one before
        it began anew, among those from this set of data; and the steps of the root's versions that
        were made for that. A node that is away is left out, and bumped when it is back. To be
        called at each reading of the catalog: a note that is asked for is not evicted, and one that
        was lost is put back."""
        met = self._met
        is_new = met != (data_set, server)
        key, note = self._keyspace.server(data_set), server.encode()
        routes = {name: self._placement.root_key(name) for name in self._cluster.nodes}
        replies = await self._cluster.ask([(route, meta_get(key)) for route in routes.values()])
        found = dict(zip(routes, replies, strict=True))
        reached = {name: reply[1] for name, reply in found.items() if reply is not None}
        lacking = [name for name, noted in reached.items() if noted is None]
        steps: Steps = {}
        if is_new:
            lacking = [name for name, noted in reached.items() if noted != note]
            others = lacking if met is None else list(reached)
            if met is not None or any(reached[name] is not None for name in others):
                self._tell("the server is another one, or has begun anew")
            for name in found.keys() - reached.keys():
                self._fences.owed.owe(ROOT.on(name))
            with suppress(CacheUnavailable):  # what was not reached is owed
                steps = await self._fences.bump(map(ROOT.on, others))
        told = [name for name in lacking if ROOT.on(name) not in self._fences.owed.tags]
        put = meta_set(key, note, ttl_s=0)
        await self._cluster.ask([(routes[name], put) for name in told])
        self._met = data_set, server
        return steps
