"""Which keys hang on which tables, noted in memcached for people; see `sqlcache stats`.

At best effort, and bounded: gathered, and written a few times a second, the latest of each table.
"""

import asyncio
from collections import deque

from sqlcache.cache.keys import Keyspace
from sqlcache.cache.reads import Read, TagSet
from sqlcache.memcache.cluster import Cluster, Request
from sqlcache.memcache.protocol import Reply, meta_append, meta_get, meta_set

_GATHERED_S = 0.2
_MOST_TAG_SETS = 1_000
_MOST_READS = 20  # of a set of tags, each time
_LIST_BYTES = 16_384
_SHAPE_BYTES = 200


class KeyIndex:
    """What one process notes. Made inside a running event loop; `close` ends it."""

    def __init__(self, cluster: Cluster, keyspace: Keyspace) -> None:
        self._cluster = cluster
        self._keyspace = keyspace
        self._loop = asyncio.get_running_loop()
        self._gathered: dict[TagSet, deque[Read]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Writes nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def note(self, read: Read) -> None:
        """An answer to this was stored."""
        reads = self._gathered.get(read.tags)
        if reads is None:
            if len(self._gathered) >= _MOST_TAG_SETS:
                return
            reads = self._gathered[read.tags] = deque(maxlen=_MOST_READS)
        reads.append(read)
        if self._timer is None:
            self._timer = self._loop.call_later(_GATHERED_S, self._write)

    def _write(self) -> None:
        self._timer = None
        gathered, self._gathered = self._gathered, {}
        lines: dict[bytes, bytes] = {}
        ttl_s = 0
        for tag_set, reads in reversed(gathered.items()):
            told = b"".join(map(_line, reads))
            ttl_s = max(ttl_s, *(read.freshness.ttl_s for read in reads))
            for tag in tag_set.tag_names:
                if tag.table:
                    key = self._keyspace.recorded(tag.schema, tag.table)
                    later = lines.get(key, b"")
                    if len(later) < _LIST_BYTES:
                        lines[key] = told + later
        requests: list[Request] = []
        for key, told in lines.items():
            requests += [(key, each) for each in meta_append(key, told, ttl_s=ttl_s)]
            requests.append((key, meta_get(key, b"s")))

        def written(replies: list[Reply | None]) -> None:
            self._begin_anew(lines, replies[2::3], ttl_s)

        self._cluster.submit(requests, written)

    def _begin_anew(self, lines: dict[bytes, bytes], sizes: list[Reply | None], ttl_s: int) -> None:
        """Lists that have become too long."""
        full = [
            (key, meta_set(key, told[-_LIST_BYTES:], ttl_s=ttl_s))
            for (key, told), size in zip(lines.items(), sizes, strict=True)
            if size is not None and int(size[2][1:] or 0) > _LIST_BYTES
        ]
        if full:
            self._cluster.submit(full, lambda _: None)


def _line(read: Read) -> bytes:
    return read.key + b" " + read.shape[:_SHAPE_BYTES].replace(b"\n", b" ") + b"\n"
