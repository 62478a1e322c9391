"""What a hit costs through the Python API, beside what people write by hand: `python -m
tests.bench.python_api`.

Each way returns the same ten rows as a list of dataclasses, from a warm cache, one call after
another in one task and many tasks at once. memcached and MariaDB are private ones. CPU time is this
process's own, so a busy machine disturbs it less than the time that passed; rounds take turns, and
medians are shown.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiocache
import aiomcache
import uvloop
from aiocache.serializers import JsonSerializer
from rich.console import Console
from rich.table import Table

import sqlcache
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached

READ = "SELECT id, name, shelf FROM product WHERE shelf = %s ORDER BY id LIMIT 10"
KEY = b"best:3"
BY_HAND = "aiomcache get + json, by hand"


@dataclass
class Product:
    id: int
    name: str
    shelf: int


Call = Callable[[], Awaitable[list[Product]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=3_000, help="of each way in each round")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sqlcache-bench-") as folder,
        PrivateMariaDB(Path(folder) / "mariadb") as mariadb,
        PrivateMemcached(Path(folder) / "memcached") as memcached,
    ):
        uvloop.run(_bench(mariadb, memcached, options))


async def _bench(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, options: argparse.Namespace
) -> None:
    _fill(mariadb)
    url = f"mysql://{mariadb.user}:{mariadb.password}@{mariadb.address}/bench"
    print(f"{datetime.date.today()}, {_machine()}, Python {platform.python_version()}")
    # A busy machine that stops this process for a while is no outage of memcached's here.
    patient = {
        "memcached.outage_s": 12,
        "memcached.timeout_s": 10,
        "memcached.connect_timeout_s": 5,
    }
    async with sqlcache.connect(url, memcached=memcached.address, settings=patient) as cache:
        ways = _ways(cache, memcached)
        expected = await ways["sqlcache, fetch_all hit"]()
        for name, call in ways.items():
            assert await call() == expected, name
        for at_once in (1, 50):
            misses = cache.metrics.misses
            figures = await _measure(ways, at_once, options)
            assert cache.metrics.misses == misses, "these are not the figures of hits"
            assert not cache.metrics.bypasses["memcached was away"]
            _print(figures, at_once)


def _fill(mariadb: PrivateMariaDB) -> None:
    mariadb.sql("CREATE DATABASE bench")
    mariadb.sql("CREATE TABLE product (id INT PRIMARY KEY, name VARCHAR(40), shelf INT)", "bench")
    rows = ",".join(f"({n}, 'the product number {n}', {n % 7})" for n in range(200))
    mariadb.sql(f"INSERT INTO product VALUES {rows}", "bench")


def _ways(cache: sqlcache.Cache, memcached: PrivateMemcached) -> dict[str, Call]:
    async def query() -> list[Product]:
        return await cache.fetch_all(READ, (3,), into=Product)

    @cache.cached(ttl_s=600)
    async def decorated(shelf: int) -> list[Product]:
        return await cache.fetch_all(READ, (shelf,), into=Product)

    client = aiomcache.Client(memcached.host, memcached.port, pool_size=50)

    async def by_hand() -> list[Product]:
        stored = await client.get(KEY)
        if stored is None:
            products = await query()
            await client.set(KEY, json.dumps([asdict(each) for each in products]).encode())
            return products
        return [Product(**each) for each in json.loads(stored)]

    their_cache = {
        "cache": aiocache.MemcachedCache,
        "endpoint": memcached.host,
        "port": memcached.port,
        "serializer": JsonSerializer(),
    }

    async def rows() -> list[dict[str, Any]]:
        return [asdict(each) for each in await query()]

    theirs = aiocache.cached(ttl=600, key="aiocache", pool_size=50, **their_cache)(rows)

    async def by_aiocache() -> list[Product]:
        return [Product(**each) for each in await theirs()]

    return {
        BY_HAND: by_hand,
        "aiocache's decorator + json": by_aiocache,
        "sqlcache, decorated hit": lambda: decorated(3),
        "sqlcache, fetch_all hit": query,
    }


async def _measure(
    ways: dict[str, Call], at_once: int, options: argparse.Namespace
) -> dict[str, list[tuple[float, float]]]:
    """For each way its rounds' microseconds a call: of CPU, and passed."""
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, call in ways.items():
            await _run(call, 200, at_once)  # past what only the first calls cost
            cpu, began = time.process_time(), time.perf_counter()
            await _run(call, options.calls, at_once)
            used, took = time.process_time() - cpu, time.perf_counter() - began
            figures[name].append((1e6 * used / options.calls, 1e6 * took / options.calls))
    return figures


async def _run(call: Call, calls: int, at_once: int) -> None:
    async def repeat() -> None:
        for _ in range(calls // at_once):
            await call()

    await asyncio.gather(*(repeat() for _ in range(at_once)))


def _print(figures: dict[str, list[tuple[float, float]]], at_once: int) -> None:
    table = Table(title=f"a hit of ten rows, {at_once} task(s)")
    for heading in ("way", "CPU µs", "µs", "CPU, times by hand"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    medians = {
        name: tuple(statistics.median(column) for column in zip(*rounds, strict=True))
        for name, rounds in figures.items()
    }
    for name, (cpu, passed) in medians.items():
        ratio = cpu / medians[BY_HAND][0]
        table.add_row(name, f"{cpu:.0f}", f"{passed:.0f}", f"{ratio:.2f}")
    Console(width=100).print(table)


def _machine() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
