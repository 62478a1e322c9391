"""`sqlcache stats`: what the nodes hold, and what hangs on one table. It changes nothing."""

import asyncio
from collections.abc import Mapping

from sqlcache.app import nodes_of
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.tag_logs import state_of
from sqlcache.cache.tags import Tag
from sqlcache.commands.terminal import printable
from sqlcache.errors import CacheUnavailable, ConfigError
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.protocol import meta_get
from sqlcache.operations import figures_of
from sqlcache.settings import HostPort, Settings

_NODE_STATS = ("version", "uptime", "curr_items", "bytes", "limit_maxbytes", "evictions")


def run(settings: Settings, table: str | None) -> int:
    """Prints the nodes' own figures, or a table's; returns the process's exit code.

    Raises: ConfigError for a store or a table's name that cannot be asked about.
    """
    if settings.memcached.in_memory:
        raise ConfigError(
            "memcached.nodes = memory: expected memcached nodes; what a sqlcache holds in its own"
            " memory, stats --nodes asks it by its admin address"
        )
    if table is None:
        return 0 if asyncio.run(_print_nodes(settings.memcached.addresses)) else 1
    names = table.split(".")
    if len(names) != 2 or not all(names):  # which of them has a dot in it, nobody can tell
        raise ConfigError(f"--table = {table}: expected SCHEMA.TABLE, as in shop.orders")
    return asyncio.run(_print_table(settings, Tag(*names)))


async def _print_nodes(addresses: tuple[HostPort, ...]) -> bool:
    """Whether any of them answers."""
    told = []
    for address in addresses:
        told.append(await figures_of(address))
        print(f"{address}: {_said(told[-1])}")
    return not all("error" in figures for figures in told)


def _said(figures: Mapping[str, object]) -> str:
    if "error" in figures:
        return f"cannot be reached: {figures['error']}"
    told = ((name, figures[name]) for name in _NODE_STATS)
    return " ".join(f"{name}={'-' if figure is None else figure}" for name, figure in told)


async def _print_table(settings: Settings, tag: Tag) -> int:
    cluster = Cluster(nodes_of(settings))
    keyspace = Keyspace(settings.memcached.prefix)
    keys = keyspace.tag(tag.schema, tag.table), keyspace.recorded(tag.schema, tag.table)
    try:
        for node in cluster.nodes.values():
            await node.wait_connected(settings.memcached.connect_timeout_s)
        log, recorded = await cluster.ask([(key, meta_get(key)) for key in keys])
    except CacheUnavailable as error:
        raise ConfigError(f"memcached.nodes: {error}") from None
    finally:
        await cluster.close()
    if log is None or recorded is None:
        raise ConfigError("memcached.nodes: the table's node does not answer")
    state = state_of(log)
    version = state.version.hex() if state.version else "none: nothing that hangs on it is valid"
    print(f"tag {tag}: version {version}, {len(state.fences)} fence(s)")
    lines = (recorded[1] or b"").decode("utf-8", "replace").splitlines()
    print(f"{len(lines)} fill(s) recorded, the oldest first (bounded, and not complete):")
    for line in lines:
        print(f"  {printable(line)}")
    return 0
