"""Entries in and out of memcached: whole, compressed, or in parts."""

import asyncio

from sqlcache.cache import parts
from sqlcache.cache.fences import fresh_id
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.lookups import Hit, Read
from sqlcache.cache.near import NearCache
from sqlcache.memcache.cluster import Cluster, Request
from sqlcache.memcache.protocol import meta_delete, meta_get, meta_set
from sqlcache.metrics import Metrics

_STORED = b"HD"
_RECORD_BYTES = 16_384
_SHAPE_BYTES = 200


class EntryStore:
    """Puts entries where look-ups find them."""

    def __init__(
        self,
        cluster: Cluster,
        keyspace: Keyspace,
        near: NearCache,
        metrics: Metrics,
        *,
        max_item_bytes: int,
        compress_over_bytes: int,
    ) -> None:
        self._cluster = cluster
        self._keyspace = keyspace
        self._near = near
        self._metrics = metrics
        self._max_item_bytes = max_item_bytes
        self._compress_over_bytes = compress_over_bytes
        self._recording: set[asyncio.Task[None]] = set()

    async def put(self, read: Read, versions: bytes, entry: bytes) -> None:
        """Stores the entry, which begins with `versions`; the parts first, so that an entry is
        found only when it is whole. That memcached does not take it is no error."""
        fill_id = fresh_id()
        item, pieces = parts.pack(
            entry,
            len(versions),
            fill_id=fill_id,
            max_item_bytes=self._max_item_bytes,
            compress_over_bytes=self._compress_over_bytes,
        )
        ttl_s = read.freshness.ttl_s
        keys = self._part_keys(read, fill_id, len(pieces))
        stored = await self._set(
            [
                (key, meta_set(key, piece, ttl_s=ttl_s))
                for key, piece in zip(keys, pieces, strict=True)
            ]
        ) and await self._set([(read.key, meta_set(read.key, item, ttl_s=ttl_s))])
        if not stored:
            self._metrics.fills_failed += 1
            return
        self._metrics.fills += 1
        self._keep_near(read, entry, ttl_s)
        task = asyncio.get_running_loop().create_task(self._record(read))
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)

    async def unpack(self, read: Read, item: bytes, versions: bytes) -> Hit | None:
        """The entry of an item that is compressed or a manifest.

        None if a part is missing; then the item is gone, too.
        """
        count, fill_id = parts.parts_of(item, len(versions))
        body: bytes | None = item[len(versions) :]
        if count:
            keys = self._part_keys(read, fill_id, count)
            replies = await self._cluster.ask([(key, meta_get(key)) for key in keys])
            body = parts.join([reply and reply[1] for reply in replies], fill_id)
        body = None if body is None else parts.unpack(body)
        if body is None:
            await self._cluster.ask([(read.key, meta_delete(read.key))])
            return None
        entry = versions + body
        # How long it still lives is not known here; a look-up a while from now will tell.
        self._keep_near(read, entry, read.freshness.early_s)
        return Hit(entry, len(versions))

    def _keep_near(self, read: Read, entry: bytes, left_s: float) -> None:
        until = asyncio.get_running_loop().time() + left_s - read.freshness.early_s
        self._near.put(read.key, entry, until)
        self._metrics.near_bytes = self._near.size_bytes

    def _part_keys(self, read: Read, fill_id: bytes, count: int) -> list[bytes]:
        return [self._keyspace.part(read.key, fill_id, number) for number in range(count)]

    async def _set(self, requests: list[Request]) -> bool:
        replies = await self._cluster.ask(requests)
        return all(reply is not None and reply[0] == _STORED for reply in replies)

    async def _record(self, read: Read) -> None:
        """Notes, for people, that this key hangs on its tables: bounded, and at best effort.

        No one waits for it.
        """
        line = read.key + b" " + read.shape[:_SHAPE_BYTES].replace(b"\n", b" ") + b"\n"
        keys = [
            self._keyspace.recorded(tag.schema, tag.table) for tag in read.tags.tags if tag.table
        ]
        requests = []
        for key in keys:
            requests.append((key, meta_set(key, b"", mode=b"E", ttl_s=read.freshness.ttl_s)))
            requests.append((key, meta_set(key, line, mode=b"A", ttl_s=0)))
            requests.append((key, meta_get(key, b"s")))
        replies = await self._cluster.ask(requests)
        full = [
            (key, meta_set(key, line, ttl_s=read.freshness.ttl_s))
            for key, reply in zip(keys, replies[2::3], strict=True)
            if reply is not None and int(reply[2][1:] or 0) > _RECORD_BYTES
        ]
        await self._cluster.ask(full)
