"""`sqlcache save` and `sqlcache load`: what memcached remembers, in a file, for another host.

- All sqlcaches are stopped at both ends, so nothing changes meanwhile.
- The place in the binary log is saved as well. Where the answers are loaded the log is read from
  there before anything is served; so what was written since they were saved makes no difference.
  A deployment that does not follow the log forgets what was loaded, see `cache.roster`.
- Of what is loaded nothing takes the place of what is there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, closing
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias, TypeVar
from urllib.parse import unquote_to_bytes

from sqlcache.app import nodes_of
from sqlcache.binlog.source import Source, order
from sqlcache.binlog.turns import Remembered, Turns
from sqlcache.cache.keys import FORMAT, Keyspace
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.roster import LAPSE_S, in_use, loaded
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.commands.saved_files import COPY, HEADER, ITEM, Record, SavedFile, Writer
from sqlcache.errors import CacheUnavailable, ConfigError, UpstreamError
from sqlcache.memcache.cluster import Cluster, Request
from sqlcache.memcache.protocol import STORED, Reply, flag_of, meta_get, meta_set
from sqlcache.metrics import Metrics
from sqlcache.service.connection import ServiceConnection
from sqlcache.settings import HostPort, Settings
from sqlcache.upstream_errors import UpstreamErrors

_TOGETHER: Final = 16  # items, asked for or stored at once: each may be long
_KEYS_TOGETHER: Final = 256
_BUSY_S: Final = 10.0
_KINDS: Final = {b"e": "answers", b"p": "parts of answers", b"t": "tags", b"k": "buckets"}
_LONGEST_LINE_BYTES: Final = 65_536

T = TypeVar("T")


def save(settings: Settings, path: Path) -> int:
    """Writes what the nodes remember into a file; returns the process's exit code. Raises:
    ConfigError, before anybody is asked if the file cannot be written."""
    with Writer(path) as file:
        return _run(settings, lambda deployment: deployment.save(file))


def load(settings: Settings, path: Path) -> int:
    """Gives empty nodes what a file has; returns the process's exit code. Raises: ConfigError,
    before anything has changed if it does not fit."""
    file = SavedFile(path)
    return _run(settings, lambda deployment: deployment.load(file))


def _run(settings: Settings, work: _Work) -> int:
    if settings.memcached.in_memory:
        raise ConfigError(
            "memcached.nodes = memory: expected nodes, whose memory is not sqlcache's"
        )
    logging.disable(logging.WARNING)  # what goes wrong is said once, at the end
    try:
        for line in asyncio.run(_with_deployment(settings, work)):
            print(line)
    finally:
        logging.disable(logging.NOTSET)
    return 0


async def _with_deployment(settings: Settings, work: _Work) -> list[str]:
    async with _opened(settings) as deployment:
        try:
            return await work(deployment)
        except CacheUnavailable as error:
            raise ConfigError(f"memcached.nodes: {error}") from None
        except UpstreamError as error:
            raise ConfigError(f"upstream.url: {error}") from None


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[_Deployment]:
    cluster = Cluster(nodes_of(settings))
    metrics = Metrics()
    service = ServiceConnection(settings, metrics, UpstreamErrors(metrics))
    try:
        yield _Deployment(settings, cluster, service)
    finally:
        service.close()
        await cluster.close()


_Work: TypeAlias = "Callable[[_Deployment], Awaitable[list[str]]]"


class _Deployment:
    """The nodes and the server that the settings name."""

    def __init__(self, settings: Settings, cluster: Cluster, service: ServiceConnection) -> None:
        self._settings = settings
        self._cluster = cluster
        self._service = service
        self._keyspace = Keyspace(settings.memcached.prefix)
        self._placement = TagPlacement(cluster, self._keyspace)
        self._turns = Turns(cluster, self._keyspace)
        self._names = list(cluster.nodes)
        self._own = in_use(self._names, settings.cache.read_lease_ms / 1000)

    # Save.

    async def save(self, file: Writer) -> list[str]:
        """Says what was saved."""
        await self._check_stopped()
        place = await self._place()
        owed = await self._is_owed()
        notes = await self._ask_each([meta_get(self._note(place))] * len(self._names))
        schemas = await self._service.schemas()
        counts: Counter[str] = Counter()
        file.say(
            HEADER,
            {
                "prefix": self._settings.memcached.prefix,
                "nodes": self._names,
                "in_use": self._own.split(b" ", 1)[1].decode(),
                "place": bytes(place).decode(),
                "owed": owed,
                "servers": [reply[1] and reply[1].decode() for reply in notes],
                "saved_at": time.time(),
            },
        )
        for record in await self._copies({"", *schemas, *map(str.lower, schemas)}):
            file.write(record)
        for index, address in enumerate(self._settings.memcached.addresses):
            async for keys in _keys_on(address, self._settings.memcached.prefix.encode()):
                async for record in self._items(index, keys):
                    file.write(record)
                    counts[_KINDS[_kind(record.key)]] += 1
        file.end(counts)
        return [f"{file.path}: {count} {what}" for what, count in sorted(counts.items())]

    async def _place(self) -> Remembered:
        """From where on the log is to be read."""
        places = [had.place for had in (await self._turns.kept()).values() if had.place]
        servers = {place.server for place in places}
        if len(places) < len(self._names) or len(servers) != 1:
            raise ConfigError(
                "the nodes have no place in MySQL's binary log, by which alone it can be known what"
                " is written from here on: it was not followed (binlog.follow) in the last day"
            )
        return min(places, key=lambda each: order(each.place))

    async def _is_owed(self) -> bool:
        """Whether somebody may have died with something to be told to a node still."""
        replies = await self._ask_each([meta_get(key) for key in self._memberships()])
        owed = any(reply[1] != b"" for reply in replies)
        if owed and await self._turns.any_unlogged():
            raise ConfigError(
                "a sqlcache did not end in order, and clients have written what is not in the"
                " binary log: start it once more, and stop it"
            )
        return owed

    async def _copies(self, schemas: Iterable[str]) -> list[Record]:
        """The tags of schemas and of everything."""
        found = []
        for schema in sorted(schemas):
            for index, name in enumerate(self._names):
                (reply,) = await self._ask([self._key_of_copy(schema, name)])
                if reply[1] is not None:
                    found.append(Record(COPY, schema.encode(), reply[1], index))
        return found

    async def _items(self, node: int, keys: list[bytes]) -> AsyncIterator[Record]:
        for some in _batched(keys):
            for key, reply in zip(some, await self._ask(some, b"v t"), strict=True):
                ttl_s = int(flag_of(reply[2], b"t") or 0)
                if reply[1] is not None and ttl_s:
                    yield Record(ITEM, key, reply[1], node, max(ttl_s, 0))

    # Load.

    async def load(self, file: SavedFile) -> list[str]:
        """Says what was loaded."""
        header = file.header
        place = Remembered.read(header["place"].encode())
        if place is None:
            raise ConfigError("the file has no place in a binary log")
        self._check_fits(header)
        await self._check_log(place, owed=header["owed"])
        await self._check_stopped()
        await self._check_empty()
        elapsed_s = max(int(time.time() - header["saved_at"]) + 1, 0)
        nobody = [meta_set(key, b"", ttl_s=0) for key in self._memberships()]
        await self._ask_each(nobody)
        counts: Counter[str] = Counter()
        for some in _batched(file.records()):
            await self._add(some, elapsed_s, counts)
        mark = loaded(self._own)
        last = self._keyspace.roster(lapses=False)
        notes = zip(self._names, header.get("servers", ()), strict=False)  # older files have none
        key = self._note(place)
        await self._replies(
            [
                (self._root(name), meta_set(key, note.encode(), mode=b"E", ttl_s=0))
                for name, note in notes
                if note is not None
            ]
        )
        await self._turns.keep(place, await self._turns.kept())
        marks = await self._ask_each([meta_set(last, mark, mode=b"E", ttl_s=0)] * len(self._names))
        if any(reply[0] != STORED for reply in marks):
            raise ConfigError("a sqlcache has started meanwhile: what was loaded is forgotten")
        return [f"{count} {what}" for what, count in sorted(counts.items())]

    def _check_fits(self, header: dict[str, object]) -> None:
        if self._settings.binlog.follow == "off":
            raise ConfigError(
                "binlog.follow = off: by the binary log alone it can be known what was written"
                " since the file was saved"
            )
        if header["prefix"] != self._settings.memcached.prefix:
            raise ConfigError(f"memcached.prefix was {header['prefix']} where it was saved")
        if header["in_use"] != self._own.split(b" ", 1)[1].decode():
            raise ConfigError(
                "cache.read_lease_ms, or the version of sqlcache, was another where it was saved"
            )
        nodes = header["nodes"]
        assert isinstance(nodes, list)
        if nodes != self._names and len(nodes) + len(self._names) != 2:
            raise ConfigError(
                f"memcached.nodes were {', '.join(nodes)} where it was saved: expected the same, or"
                " one in place of one"
            )

    async def _check_log(self, place: Remembered, *, owed: bool) -> None:
        source = await Source.open(self._service.connect)
        try:
            if source.identity != place.server:
                raise ConfigError("upstream.url: is not the server whose answers were saved")
            if not await source.has(place.place):
                raise ConfigError("the server has no more of its log from when it was saved")
            if owed and source.filtered:
                raise ConfigError(
                    "a sqlcache did not end in order where it was saved, and the server leaves"
                    f" out of its log: {source.filtered}"
                )
        finally:
            source.close()

    async def _add(self, records: list[Record], elapsed_s: int, counts: Counter[str]) -> None:
        requests: list[Request] = []
        kept: list[Record] = []
        for record in records:
            ttl_s = record.ttl_s - elapsed_s if record.ttl_s else 0
            if ttl_s < 0 or (record.ttl_s and not ttl_s):
                continue
            key = record.key
            if record.kind == COPY:
                key = self._key_of_copy(key.decode(), self._names[record.node])
            kept.append(record)
            requests.append((key, meta_set(key, record.value, mode=b"E", ttl_s=ttl_s)))
        for record, reply in zip(kept, await self._replies(requests), strict=True):
            stored = reply[0] == STORED
            if not stored and record.kind == COPY:
                raise ConfigError("a sqlcache has started meanwhile: what was loaded is forgotten")
            if record.kind == ITEM:
                counts[_KINDS[_kind(record.key)]] += stored

    # Both.

    async def _check_stopped(self) -> None:
        for node in self._cluster.nodes.values():
            await node.wait_connected(self._settings.memcached.connect_timeout_s)
        at_work = self._keyspace.roster(lapses=True)
        replies = await self._ask_each([meta_get(at_work)] * len(self._names))
        if any(reply[1] is not None for reply in replies):
            raise ConfigError(f"sqlcaches are at work: stop all of them, and wait {LAPSE_S} s")

    async def _check_empty(self) -> None:
        for name in self._names:
            keys = [self._root(name), self._keyspace.roster(lapses=False)]
            route = self._root(name)
            replies = await self._replies([(route, meta_get(key)) for key in keys])
            if any(reply[1] is not None for reply in replies):
                raise ConfigError(f"memcached.nodes: {name} is not empty")

    def _note(self, place: Remembered) -> bytes:
        """The key of which server the answers of a node are from, see `cache.server_notes`."""
        return self._keyspace.server(self._settings.upstream.data_set or place.server)

    def _memberships(self) -> list[bytes]:
        """The keys of those of the nodes, where they list who is at work."""
        return [self._keyspace.membership(self._root(name)) for name in self._names]

    def _root(self, name: str) -> bytes:
        return self._placement.root_key(name)

    def _key_of_copy(self, schema: str, node: str) -> bytes:
        return self._placement.key((Tag(schema) if schema else ROOT).on(node))

    async def _ask(self, keys: list[bytes], flags: bytes = b"v") -> list[Reply]:
        return await self._replies([(key, meta_get(key, flags)) for key in keys])

    async def _ask_each(self, requests: list[bytes]) -> list[Reply]:
        """One request of each node."""
        routes = map(self._root, self._names)
        return await self._replies(list(zip(routes, requests, strict=True)))

    async def _replies(self, requests: list[Request]) -> list[Reply]:
        replies = [reply for reply in await self._cluster.ask(requests) if reply is not None]
        if len(replies) < len(requests):
            raise CacheUnavailable("a node does not answer any more")
        return replies


async def _keys_on(address: HostPort, prefix: bytes) -> AsyncIterator[list[bytes]]:
    """The keys of what is to be saved on a node, some at a time."""
    begins = tuple(b"%b:%b%d:" % (prefix, kind, FORMAT) for kind in _KINDS)
    until = time.monotonic() + _BUSY_S
    while True:
        try:
            reader, writer = await asyncio.open_connection(
                address.host, address.port, limit=_LONGEST_LINE_BYTES
            )
            with closing(writer):
                writer.write(b"lru_crawler metadump all\r\n")
                keys: list[bytes] = []
                while (line := (await reader.readline()).rstrip()).startswith(b"key="):
                    key = unquote_to_bytes(line.split(b" ", 1)[0][4:])
                    keys += [key] if key.startswith(begins) else []
                    if len(keys) >= _KEYS_TOGETHER:
                        yield keys
                        keys = []
        except (OSError, ValueError) as error:
            raise CacheUnavailable(f"{address}: {error}") from None
        if line == b"END":
            yield keys
            return
        if not line.startswith(b"BUSY") or time.monotonic() > until:
            said = line.decode("ascii", "replace") or "it closed the connection"
            raise CacheUnavailable(f"{address} does not list its items: {said}")
        await asyncio.sleep(0.1)


def _kind(key: bytes) -> bytes:
    return key.rsplit(b":", 2)[1].removesuffix(b"%d" % FORMAT)


def _batched(each: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(each)
    while some := list(islice(iterator, _TOGETHER)):
        yield some
