"""`sqlcache check-config --connect`: whether MySQL and memcached can be reached and used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Final

from sqlcache.app import nodes_of
from sqlcache.binlog.source import Source, refusal
from sqlcache.cache.roster import runs_without_tokens
from sqlcache.errors import (
    CacheUnavailable,
    ConfigError,
    SqlcacheError,
    StreamRefused,
    UpstreamError,
)
from sqlcache.host_names import addresses
from sqlcache.metrics import Metrics
from sqlcache.operations import options_of
from sqlcache.plan.server_watch import lacking
from sqlcache.rules import policy_of
from sqlcache.service.connection import ServiceConnection
from sqlcache.settings import Settings
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.names import TableName
from sqlcache.upstream_errors import UpstreamErrors

_BESIDE_A_VALUE_BYTES: Final = 512
"""A key has 250 at most, what memcached notes of an item some 60."""


def run(settings: Settings) -> int:
    """Prints what answers; returns 0.

    Raises: ConfigError with a line for each that does not, and for rights that the service account
    lacks. Not for those that `binlog.follow = auto` can do without.
    """
    logging.disable(logging.WARNING)  # what goes wrong is said once, at the end
    try:
        return asyncio.run(_run(settings))
    finally:
        logging.disable(logging.NOTSET)


async def _run(settings: Settings) -> int:
    wrong = [line async for line in _unreached(settings)]
    lacks = ""
    metrics = Metrics()
    service = ServiceConnection(settings, metrics, UpstreamErrors(metrics))
    try:
        catalog, _ = await service.load()
        server = catalog.server
        print(f"upstream.url: {server.flavour} {'.'.join(map(str, server.version))} answers")
        lacks = server.lacks
        for line in _met_by_nothing(settings, catalog):
            print(f"warning: {line}")
        if settings.binlog.follow != "off":
            trouble = await _unfollowed(settings, service)
            told = f"not seen: {trouble}" if trouble else "seen"
            line = f"binlog.follow: what is written around sqlcache is {told}"
            if trouble and settings.binlog.follow == "on":
                wrong.append(line)
            else:
                print(line)
    except UpstreamError as error:
        wrong.append(f"upstream.url: {error}")
    finally:
        service.close()
    if lacks:
        wrong.append(f"upstream.url: {lacking(lacks)}")
    if wrong:
        raise ConfigError("\n".join(wrong))
    print("MySQL and memcached can be used")
    return 0


def _met_by_nothing(settings: Settings, catalog: Catalog) -> Iterator[str]:
    """A sentence for each rule about a table or schema that there is not, or not yet."""
    for rule in policy_of(settings).folded(catalog.server.fold).rules:
        name, schema, table = rule.source.name, rule.schema, rule.table
        if schema is None:
            continue
        if table is None and schema not in catalog.schemas:
            yield f"{name}.schema = {schema}: there is no table in such a schema"
        if table is not None and not catalog.knows(TableName(schema, table)):
            yield f"{name}.table = {schema}.{table}: there is no such table"


async def _unfollowed(settings: Settings, service: ServiceConnection) -> str:
    """Why the binary log cannot be followed; "" where it can be."""
    try:
        source = await Source.open(service.connect)
        try:
            await source.begin(await source.place(), settings.proxy.max_statement_bytes)
        finally:
            source.close()
    except StreamRefused as error:
        return str(refusal(error.code, str(error)))
    except SqlcacheError as error:
        return str(error)
    return ""


async def _several(host: str) -> list[str]:
    """The addresses of a name that has more than one of a kind: each may be another memcached's."""
    try:
        known = sorted(set(await addresses(host)))
    except OSError:
        return []
    kinds = [[each for each in known if (":" in each) is v6] for v6 in (False, True)]
    return max(kinds, key=len) if any(len(kind) > 1 for kind in kinds) else []


async def _unreached(settings: Settings) -> AsyncIterator[str]:
    for node in nodes_of(settings):
        try:
            await node.wait_connected(settings.memcached.connect_timeout_s)
            print(f"memcached.nodes: {node.name} answers")
        except CacheUnavailable as error:
            yield f"memcached.nodes: {error}"
        finally:
            await node.close()
    for address in settings.memcached.addresses:
        if several := await _several(address.host):
            yield (
                f"memcached.nodes: {address.host} is {' and '.join(several)}: expected one"
                " memcached behind each name, or some sqlcaches would not see what others write"
            )
    most = settings.memcached.max_item_bytes
    for address in settings.memcached.addresses:
        takes, compares = await options_of(address)
        if not compares:
            yield runs_without_tokens(str(address))
        if takes is not None and takes < most + _BESIDE_A_VALUE_BYTES:
            yield (
                f"memcached.max_item_bytes = {most}: {address} takes no item over {takes} bytes:"
                " expected less, or a higher -I there"
            )
