"""Entries in and out of memcached: whole, compressed, or in parts."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from sqlcache.cache import parts
from sqlcache.cache.key_index import KeyIndex
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.near import NearCache
from sqlcache.cache.outcomes import UNREACHABLE, Bypass, Hit
from sqlcache.cache.reads import Read
from sqlcache.cache.seals import Seal
from sqlcache.cache.tag_logs import fresh_id
from sqlcache.memcache.cluster import Cluster, Request
from sqlcache.memcache.protocol import (
    NOT_STORED,
    STORED,
    Reply,
    flag_of,
    meta_delete,
    meta_get,
    meta_set,
)
from sqlcache.metrics import Metrics
from sqlcache.tasks import Tasks

Told = Callable[[bool], None]
_TOO_LONG: Reply = (NOT_STORED, None, b"")
"""Where not all parts could be stored."""
_AT_ONCE_BYTES = 2_000_000
"""So much of parts is sent, or asked for, before others have their turn on the same connection."""


def _nobody(stored: bool) -> None:
    """Is told."""


class _Unpacking(NamedTuple):
    """An item's entry that is being put together."""

    item: bytes
    versions: bytes
    task: asyncio.Task[bytes | Bypass | None]


class EntryStore:
    """Puts entries where look-ups find them."""

    def __init__(
        self,
        cluster: Cluster,
        keyspace: Keyspace,
        near: NearCache,
        seal: Seal,
        metrics: Metrics,
        *,
        max_item_bytes: int,
        compress_over_bytes: int,
    ) -> None:
        self._cluster = cluster
        self._keyspace = keyspace
        self._near = near
        self._seal = seal
        self._metrics = metrics
        self._max_item_bytes = max_item_bytes - seal.size_bytes
        self._compress_over_bytes = compress_over_bytes
        self._parts_at_once = max(_AT_ONCE_BYTES // max_item_bytes, 1)
        self._storing_parts = asyncio.Lock()
        self._key_index = KeyIndex(cluster, keyspace)
        self._storing = Tasks()
        self._unpacking: dict[bytes, _Unpacking] = {}  # by key; each ends when its nodes do

    async def close(self) -> None:
        """Stores nothing any more."""
        self._key_index.close()
        await self._storing.cancel()

    async def put(
        self,
        read: Read,
        versions: bytes,
        entry: bytes,
        also: Sequence[Request] = (),
        *,
        near: bool = True,
        ttl_s: int | None = None,
        told: Told = _nobody,
    ) -> None:
        """Stores the entry, which begins with `versions`; the parts first, so that an entry is
        found only when it is whole. That memcached does not take it is no error, nor that it has
        too many parts: `told` is called with whether it was stored, but not where its node does not
        answer. What is to be sent `also` is sent with it. `near`: it is kept in this process, too.
        `ttl_s`: it lives no longer than that, however long others of its key do."""
        try:
            item, pieces = self._packed(read, versions, entry, ttl_s)
        except OverflowError:
            await self._cluster.ask(also)
            self._told(read, None, _TOO_LONG, told)
            return
        await self._put(read, entry if near else None, item, pieces, also, told)

    def put_soon(
        self,
        read: Read,
        versions: bytes,
        entry: bytes,
        also: Sequence[Request] = (),
        *,
        near: bool = True,
        told: Told = _nobody,
    ) -> None:
        """The same, for who does not wait for it: what is looked up from here on finds it."""
        try:
            item, pieces = self._packed(read, versions, entry)
        except OverflowError:
            if also:
                self._cluster.submit(also, lambda _: None)
            self._told(read, None, _TOO_LONG, told)
            return
        kept = entry if near else None
        if not pieces:
            self._cluster.submit(
                [item, *also], lambda replies: self._told(read, kept, replies[0], told)
            )
            return
        putting = self._put(read, kept, item, pieces, also, told)
        self._storing.spawn(putting)

    async def _put(
        self,
        read: Read,
        entry: bytes | None,
        item: Request,
        pieces: list[Request],
        also: Sequence[Request],
        told: Told,
    ) -> None:
        for begins in range(0, len(pieces), self._parts_at_once):
            async with self._storing_parts:
                replies = await self._cluster.ask(pieces[begins : begins + self._parts_at_once])
            refused = any(reply is not None and reply[0] != STORED for reply in replies)
            if refused or None in replies:
                await self._cluster.ask(also)
                self._told(read, None, _TOO_LONG if refused else None, told)
                return
        replies = await self._cluster.ask([item, *also])
        self._told(read, entry, replies[0], told)

    def _packed(
        self, read: Read, versions: bytes, entry: bytes, ttl_s: int | None = None
    ) -> tuple[Request, list[Request]]:
        """What stores an entry: the item that is found, and the parts that it is made of. Raises:
        OverflowError where these are too many."""
        fill_id = fresh_id()
        ttl_s = read.freshness.ttl_s if ttl_s is None else min(ttl_s, read.freshness.ttl_s)
        item = parts.compressed(entry, len(versions), over_bytes=self._compress_over_bytes)
        if len(item) <= self._max_item_bytes:
            return self._stores(read.key, item, ttl_s), []
        item, pieces = parts.cut(
            item, len(versions), fill_id=fill_id, max_item_bytes=self._max_item_bytes
        )
        keys = self._part_keys(read, fill_id, len(pieces))
        stored = [self._stores(key, piece, ttl_s) for key, piece in zip(keys, pieces, strict=True)]
        return self._stores(read.key, item, ttl_s), stored

    def _stores(self, key: bytes, value: bytes, ttl_s: int) -> Request:
        return key, meta_set(key, self._seal.sealed(key, value), ttl_s=ttl_s)

    def _told(self, read: Read, entry: bytes | None, reply: Reply | None, told: Told) -> None:
        """Whether memcached has taken it; then the entry is kept near, if it is given."""
        if reply is not None:
            told(reply[0] == STORED)
        if reply is None or reply[0] != STORED:
            self._metrics.fills_failed += 1
            return
        self._metrics.fills += 1
        if entry is not None:
            freshness = read.freshness
            now = asyncio.get_running_loop().time()
            self._keep_near(read, entry, now + freshness.ttl_s - freshness.early_s)
        self._key_index.note(read)

    async def unpack(
        self, read: Read, item: bytes, versions: bytes, until: float
    ) -> Hit | Bypass | None:
        """The entry of an item that is compressed or a manifest; it is kept near until then.

        None if a part is missing; then the item is gone, too. It is not where the node of a part
        does not answer. Who asks for the same item meanwhile has the same bytes, for the price of
        one; that one of them is cancelled is nothing to the others.
        """
        under_way = self._unpacking.get(read.key)
        if under_way is None or (under_way.item, under_way.versions) != (item, versions):
            unpacked = self._unpacked(read, item, versions, until)
            under_way = _Unpacking(item, versions, asyncio.create_task(unpacked))
            self._unpacking[read.key] = under_way
            under_way.task.add_done_callback(partial(self._has_unpacked, read.key))
        entry = await asyncio.shield(under_way.task)
        return Hit(entry, len(versions)) if isinstance(entry, bytes) else entry

    def _has_unpacked(self, key: bytes, task: asyncio.Task[bytes | Bypass | None]) -> None:
        under_way = self._unpacking.get(key)
        if under_way is not None and under_way.task is task:  # else it is another item's
            del self._unpacking[key]

    async def _unpacked(
        self, read: Read, item: bytes, versions: bytes, until: float
    ) -> bytes | Bypass | None:
        count, fill_id = parts.parts_of(item, len(versions))
        body: bytes | None = item[len(versions) :]
        if count:
            keys = self._part_keys(read, fill_id, count)
            replies: list[Reply | None] = []
            for begins in range(0, count, self._parts_at_once):
                some = keys[begins : begins + self._parts_at_once]
                replies += await self._cluster.ask([(key, meta_get(key)) for key in some])
                if None in replies:
                    return UNREACHABLE
            body = parts.join(map(self._opened, keys, replies), fill_id)
        body = None if body is None else parts.unpack(body)
        if body is None:
            await self._cluster.ask([(read.key, meta_delete(read.key))])
            return None
        entry = versions + body
        self._keep_near(read, entry, until)
        return entry

    async def left_s(self, read: Read) -> int:
        """How long the stored answer still lives; 0 where none is stored."""
        (reply,) = await self._cluster.ask([(read.key, meta_get(read.key, b"t"))])
        return max(int(flag_of(reply[2], b"t") or 0), 0) if reply is not None else 0

    def _opened(self, key: bytes, reply: Reply | None) -> bytes | None:
        return self._seal.opened(key, reply[1]) if reply is not None and reply[1] else None

    def _keep_near(self, read: Read, entry: bytes, until: float) -> None:
        self._near.put(read.key, entry, until)
        self._metrics.near_bytes = self._near.size_bytes

    def _part_keys(self, read: Read, fill_id: bytes, count: int) -> list[bytes]:
        return [self._keyspace.part(read.key, fill_id, number) for number in range(count)]
