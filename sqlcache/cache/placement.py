"""Where tags live: a table's on one node, a schema's and the root's as a copy on every node.

So a node that is away costs only the answers from the tables whose tags it holds: what an answer
hangs on are the copies on those very nodes.
"""

import itertools
from collections.abc import Iterable

from sqlcache.cache.bounded import Bounded
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.health import Health

MAX_PLACES_BYTES = 4_194_304
_PLACE_BYTES = 350  # each takes, next to its names


class TagPlacement:
    """The nodes and keys of tags."""

    def __init__(
        self, cluster: Cluster, keyspace: Keyspace, max_bytes: int = MAX_PLACES_BYTES
    ) -> None:
        self._cluster = cluster
        self._keyspace = keyspace
        self._keys: Bounded[Tag, bytes] = Bounded(max_bytes)

    def key(self, tag: Tag) -> bytes:
        """The tag's key; that of a copy lives on the copy's node."""
        key = self._keys.get(tag)
        if key is None:
            key = self._new_key(tag)
            self._keys.put(tag, key, _PLACE_BYTES + len(tag.schema) + len(tag.table))
        return key

    @property
    def size_bytes(self) -> int:
        """What it remembers, roughly."""
        return self._keys.size_bytes

    def _new_key(self, tag: Tag) -> bytes:
        if not tag.node:
            return self._keyspace.tag(tag.schema, tag.table)
        salted = (self._keyspace.copy(tag.schema, tag.node, salt) for salt in itertools.count())
        return next(key for key in salted if self._cluster.node_of(key) == tag.node)

    def bucket(self, tag: Tag, slot: bytes, bucket: bytes) -> bytes:
        """The key of a bucket of the table's slot; it lives where the tag does."""
        node = self.node(tag)
        names = tag.schema, tag.table, slot, bucket
        if len(self._cluster.nodes) == 1:
            return self._keyspace.bucket(*names, 0)
        salted = (self._keyspace.bucket(*names, salt) for salt in itertools.count())
        return next(key for key in salted if self._cluster.node_of(key) == node)

    def root_key(self, node: str) -> bytes:
        """The key of the root's copy on a node."""
        return self.key(ROOT.on(node))

    def node(self, tag: Tag) -> str:
        """The node a table's tag or a copy lives on."""
        return tag.node or self._cluster.node_of(self.key(tag))

    def health(self, tag: Tag) -> Health:
        """What is known of that node's silence."""
        return self._cluster.health_of(self.node(tag))

    def to_write(self, tags: Iterable[Tag]) -> list[Tag]:
        """What a write to the tags is to be told to: all copies of those that have copies."""
        all_places: list[Tag] = []
        for tag in tags:
            if tag.table or tag.node:
                all_places.append(tag)
            else:
                all_places += map(tag.on, self._cluster.nodes)
        return all_places

    def to_read(self, tags: Iterable[Tag]) -> tuple[Tag, ...]:
        """What an answer that hangs on the tags is to be checked by."""
        tags = list(tags)
        tables = [tag for tag in tags if tag.table]
        # An answer from no table has to be checked by some copy all the same.
        nodes = sorted({self.node(tag) for tag in tables}) or list(self._cluster.nodes)[:1]
        return (*tables, *(tag.on(name) for tag in tags if not tag.table for name in nodes))
