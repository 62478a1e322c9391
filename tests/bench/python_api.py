"""What a hit costs through the Python API, beside what people write by hand.

    python -m tests.bench.python_api

Each way returns the same ten rows as a list of dataclasses, from a warm cache, one call after
another in one task and many tasks at once. memcached and MariaDB are private ones. CPU time is this
process's own, so a busy machine disturbs it less than the time that passed.
"""

from __future__ import annotations

import asyncio
import json
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

import sqlcache
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached
from tests.bench.pace import FULL, Pace
from tests.bench.results import Row

PART = "python"
WAY = "ten rows as dataclasses"
TASKS = (1, 50)
READ = "SELECT id, name, shelf FROM product WHERE shelf = %s ORDER BY id LIMIT 10"
KEY = b"best:3"
BY_HAND = "aiomcache get + json, by hand"


@dataclass
class Product:
    id: int
    name: str
    shelf: int


Call = Callable[[], Awaitable[list[Product]]]


def measure(folder: Path, pace: Pace) -> list[Row]:
    """Passes over all ways, with one task and with many."""
    if not pace.wants(PART, ""):
        return []
    with (
        PrivateMariaDB(folder / "mariadb") as mariadb,
        PrivateMemcached(folder / "memcached") as memcached,
    ):
        return uvloop.run(_bench(mariadb, memcached, pace))


async def _bench(mariadb: PrivateMariaDB, memcached: PrivateMemcached, pace: Pace) -> list[Row]:
    _fill(mariadb)
    url = f"mysql://{mariadb.user}:{mariadb.password}@{mariadb.address}/bench"
    # A busy machine that stops this process for a while is no outage of memcached's here.
    patient = {
        "memcached.outage_s": 12,
        "memcached.timeout_s": 10,
        "memcached.connect_timeout_s": 5,
        "binlog.follow": "off",
    }
    async with sqlcache.connect(url, memcached=memcached.address, settings=patient) as cache:
        ways = _ways(cache, memcached)
        expected = await ways["sqlcache, fetch_all hit"]()
        for name, call in ways.items():
            assert await call() == expected, name
        rows = {
            (name, at_once): Row(PART, name, WAY, at_once) for at_once in TASKS for name in ways
        }
        misses = cache.metrics.misses
        for number in range(1, pace.passes + 1):
            for (name, at_once), row in rows.items():
                pace.say(PART, number, pace.passes, f"{name}, {at_once}")
                row.repeats.append(await _timed(ways[name], pace.calls, at_once))
        assert cache.metrics.misses == misses, "these are not the figures of hits"
        assert not cache.metrics.bypasses["memcached was away"]
        return list(rows.values())


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


async def _timed(call: Call, calls: int, at_once: int) -> dict[str, float]:
    """Microseconds a call: of this process's CPU time, and passed."""
    await _run(call, 200, at_once)  # past what only the first calls cost
    cpu, began = time.process_time(), time.perf_counter()
    await _run(call, calls, at_once)
    used, took = time.process_time() - cpu, time.perf_counter() - began
    return {"cpu_us": 1e6 * used / calls, "passed_us": 1e6 * took / calls}


async def _run(call: Call, calls: int, at_once: int) -> None:
    async def repeat() -> None:
        for _ in range(calls // at_once):
            await call()

    await asyncio.gather(*(repeat() for _ in range(at_once)))


def main() -> None:
    """This part alone, a line a way."""
    with tempfile.TemporaryDirectory(prefix="sqlcache-bench-") as folder:
        for row in measure(Path(folder), FULL):
            cpu, passed = (row.median[name] for name in ("cpu_us", "passed_us"))
            print(
                f"{row.name}, {row.connections} at once: {cpu:.0f} µs of CPU, {passed:.0f} passed"
            )


if __name__ == "__main__":
    main()
