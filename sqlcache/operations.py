"""What operators ask of one process, and have it do; answers are plain data, or `Refused`."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from typing import Any, Final, NamedTuple

import aiomcache

from sqlcache.admin.questions import Refused
from sqlcache.cache.engine import Engine
from sqlcache.cache.tags import Tag, read_tags
from sqlcache.errors import CacheUnavailable, ConfigError
from sqlcache.host_names import addresses
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.memory import MemoryNode
from sqlcache.plan.explanations import explain, new_session
from sqlcache.plan.planner import Planner
from sqlcache.settings import HostPort, Settings
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.names import TableName
from sqlcache.tasks import Tasks

log = logging.getLogger(__name__)

NODE_STATS: Final = (
    "version",
    "uptime",
    "curr_connections",
    "curr_items",
    "bytes",
    "limit_maxbytes",
    "evictions",
    "get_hits",
    "get_misses",
    "cmd_set",
    "bytes_read",
    "bytes_written",
)
_STATS_TIMEOUT_S = 1.0
_FLUSH_TIMEOUT_S = 1.5
"""Until it is told that a node is away: less than a parent waits for an answer."""
_NO_CATALOG = Refused(503, "the catalog could not be read yet")


class Operations:
    """Those of the process with this engine and planner."""

    def __init__(
        self, settings: Settings, cluster: Cluster, engine: Engine, planner: Planner
    ) -> None:
        self._memcached = settings.memcached
        self._cluster = cluster
        self._engine = engine
        self._planner = planner
        self._flushes = Tasks()

    async def nodes(self) -> list[dict[str, Any]]:
        """Each memcached node, with its own figures if it answers."""
        away = set(self._cluster.away())
        if self._memcached.in_memory:
            return [
                {"node": name, "away": 0, **node.store.figures()}
                for name, node in self._cluster.nodes.items()
                if isinstance(node, MemoryNode)
            ]
        asked = map(figures_of, self._memcached.addresses)
        return [
            {"node": str(address), "away": int(str(address) in away), **figures}
            for address, figures in zip(
                self._memcached.addresses, await asyncio.gather(*asked), strict=True
            )
        ]

    async def explain(
        self, text: str, schema: str | None, user: str
    ) -> list[dict[str, Any]] | Refused:
        """What becomes of a text's statements in a session that has just begun. Other processes may
        have changed the schema's definitions: these are read then."""
        if (catalog := self._planner.keeper.catalog) is None:
            return _NO_CATALOG
        await self._planner.confirmations.follow(
            read_tags((), [catalog.server.fold(schema)] if schema else [])
        )
        state = new_session(self._planner, schema, user)
        said = text.encode("utf-8", "surrogateescape")
        try:
            explained = await explain(self._planner, said, state)
        except ConfigError as error:
            return Refused(422, str(error))
        return [{"cached": each.cached, **asdict(each)} for each in explained]

    async def flush(self, schema: str, table: str) -> dict[str, Any] | Refused:
        """Forgets what hangs on a table; on a schema, where it has no name; or everything, where
        neither has."""
        what = "everything"
        if schema:
            keeper = self._planner.keeper
            if keeper.catalog is None:
                await keeper.refresh()
            if keeper.catalog is None:
                return _NO_CATALOG
            schema, table = keeper.catalog.server.fold(schema), keeper.catalog.server.fold(table)
            what = f"{schema}.{table}" if table else schema
            if not await self._is_there(schema, table):
                return Refused(404, f"there is no {'table' if table else 'schema'} {what}")
        log.info("an operator has answers forgotten what=%s", what)
        flush = self._flushes.spawn(self._forget(Tag(schema, table)))
        await asyncio.wait([flush], timeout=_FLUSH_TIMEOUT_S)
        away = self._cluster.away()
        if not away:
            done = await asyncio.shield(flush)
            away = self._cluster.away()
            if not (done or away):
                return Refused(503, "memcached did not answer in time: ask for it again")
        if away:
            return Refused(
                503,
                f"memcached {', '.join(away)}: away, or not trusted yet; what hangs on tables there"
                " is forgotten when it is back",
            )
        return {"flushed": what}

    async def _forget(self, tag: Tag) -> bool:
        """Forgets what hangs on it, however long that takes; False where it is still owed."""
        try:
            await self._engine.bump([tag], door="flush", cause="an operator's word")
        except CacheUnavailable:
            return False
        return True

    async def _is_there(self, schema: str, table: str) -> bool:
        keeper = self._planner.keeper
        if not _knows(keeper.catalog, schema, table):
            await keeper.refresh()  # it may have been made a moment ago
        return _knows(keeper.catalog, schema, table)

    def enable(self, enabled: bool) -> dict[str, Any]:
        """Whether reads may be answered from the cache from now on; writes are followed anyway."""
        if enabled != self._planner.keeper.enabled:
            log.info("the cache is switched %s", "on" if enabled else "off")
        self._planner.enable(enabled)
        return {"enabled": enabled}


def _knows(catalog: Catalog | None, schema: str, table: str) -> bool:
    if catalog is None:
        return False
    return catalog.knows(TableName(schema, table)) if table else schema in catalog.schemas


async def figures_of(address: HostPort) -> dict[str, Any]:
    """A memcached node's own, `NODE_STATS`, or `error`."""
    try:
        async with asyncio.timeout(_STATS_TIMEOUT_S):
            stats = await _stats(address)
    except (OSError, TimeoutError, aiomcache.ClientException) as error:
        return {"error": str(error) or "no answer"}
    return {name: _number(stats.get(name.encode())) for name in NODE_STATS}


class NodeOptions(NamedTuple):
    """What a memcached node was started with, as far as it says: its `-I`, in bytes, and whether
    `-C` is not among it."""

    longest_item_bytes: int | None = None
    compares: bool = True


async def options_of(address: HostPort) -> NodeOptions:
    """Those of a memcached node."""
    try:
        async with asyncio.timeout(_STATS_TIMEOUT_S):
            told = await _stats(address, b"settings")
    except (OSError, TimeoutError, aiomcache.ClientException):
        return NodeOptions()
    longest = _number(told.get(b"item_size_max"))
    compares = told.get(b"cas_enabled") != b"no"
    return NodeOptions(longest if isinstance(longest, int) else None, compares)


async def _stats(address: HostPort, of: bytes | None = None) -> dict[bytes, bytes | None]:
    failed = OSError(f"{address.host} has no address")
    for host in await addresses(address.host):
        client = aiomcache.Client(host, address.port, pool_size=1)
        try:
            return await client.stats(of)
        except OSError as error:
            failed = error
        finally:
            await client.close()
    raise failed


def _number(text: bytes | None) -> int | str | None:
    said = None if text is None else text.decode("utf-8", "replace")
    return int(said) if said is not None and said.isdigit() else said
