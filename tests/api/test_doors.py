"""Both doors at once: what the proxy stores the library hits and the reverse, and a write through
either is seen through both, whatever happens to memcached meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiomysql
import pytest

from sqlcache.api.cache import Cache
from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
)
from tests.api.conftest import BY_PATH, Open, url_of
from tests.conftest import ProxyFactory

READ = "SELECT name FROM product WHERE id = 0"
SETTINGS = {"memcached__timeout_s": 1, "upstream__catalog_refresh_s": 3600}


async def through(server: PrivateSqlServer, proxy: PrivateSqlcache, schema: str) -> Any:
    """A session of the proxy's such as the library has: of the same driver, with its defaults."""
    return await aiomysql.connect(
        host=proxy.host,
        port=proxy.port,
        user=server.user,
        password=server.password,
        db=schema,
        charset="utf8mb4",
        autocommit=True,
    )


async def ask(session: Any, statement: str) -> Any:
    async with session.cursor() as cursor:
        await cursor.execute(statement)
        row = await cursor.fetchone()
        return None if row is None else row[0]


@pytest.fixture
def proxied(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, proxy: ProxyFactory, shop: str
) -> PrivateSqlcache:
    return proxy(mariadb, memcached, **SETTINGS)


async def test_what_one_door_stores_the_other_hits(
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    proxied: PrivateSqlcache,
    open_cache: Open,
    shop: str,
) -> None:
    cache: Cache = await open_cache(memcached=memcached.address, settings=BY_PATH)
    session = await through(mariadb, proxied, shop)
    assert await ask(session, READ) == "p0"
    before = mariadb.status("Com_select")
    assert await cache.fetch_value(READ) == "p0"
    assert await cache.fetch_value("SELECT name FROM product WHERE id = %s", (0,)) == "p0"
    assert await cache.fetch_value("SELECT name FROM product WHERE id = %s", (1,)) == "p1"
    assert await ask(session, "SELECT name FROM product WHERE id = 1") == "p1"
    assert mariadb.status("Com_select") - before == 1
    session.close()


async def test_a_write_through_one_is_seen_through_the_other(
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    proxied: PrivateSqlcache,
    open_cache: Open,
    shop: str,
) -> None:
    cache: Cache = await open_cache(memcached=memcached.address, settings=BY_PATH)
    session = await through(mariadb, proxied, shop)

    @cache.cached()
    async def name() -> str:
        return str(await cache.fetch_value(READ))

    for number in range(10):
        write = f"UPDATE product SET name = '{number}' WHERE id = 0"
        await (ask(session, write) if number % 2 else cache.execute(write))
        assert await name() == await ask(session, READ) == await cache.fetch_value(READ)
        assert await name() == str(number)
    session.close()


@dataclass
class Checker:
    """Judges reads of one number that only ever grows: none may be behind a write that was told
    done before it began, nor behind what an earlier read has returned."""

    done: int = 0
    seen: int = 0
    reads: int = 0
    violations: list[str] = field(default_factory=list)

    async def check(self, who: str, read: Callable[[], Awaitable[Any]]) -> None:
        least = max(self.done, self.seen)
        try:
            got = int(await read())
        except (aiomysql.MySQLError, TimeoutError):
            return
        self.reads += 1
        self.seen = max(self.seen, got)
        if got < least:
            self.violations.append(f"{who} read {got} after {least}")


async def _calm(_: PrivateMemcached) -> None:
    await asyncio.sleep(4)


async def _flushes(memcached: PrivateMemcached) -> None:
    for _ in range(20):
        await asyncio.sleep(0.2)
        await asyncio.to_thread(memcached.flush)


async def _restarts(memcached: PrivateMemcached) -> None:
    for _ in range(3):
        await asyncio.sleep(1)
        await asyncio.to_thread(memcached.restart)


async def _freezes(memcached: PrivateMemcached) -> None:
    for frozen_s in (0.3, 3):
        await asyncio.sleep(1)
        memcached.freeze()
        await asyncio.sleep(frozen_s)
        memcached.thaw()
    await asyncio.sleep(1)


@pytest.mark.parametrize("fault", [_calm, _flushes, _restarts, _freezes])
async def test_no_read_through_any_door_is_stale(
    fault: Callable[[PrivateMemcached], Awaitable[None]],
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    open_cache: Open,
    shop: str,
) -> None:
    proxied = proxy(mariadb, memcached, **SETTINGS, memcached__outage_s=2)
    settings = {**BY_PATH, "memcached.outage_s": 2}
    caches: list[Cache] = [
        await open_cache(memcached=memcached.address, settings=settings) for _ in range(2)
    ]
    await caches[0].execute("CREATE TABLE number (id INT PRIMARY KEY, v INT)")
    await caches[0].execute("INSERT INTO number VALUES (0, 0)")
    read, write = "SELECT v FROM number WHERE id = 0", "UPDATE number SET v = v + 1 WHERE id = 0"
    checker = Checker()
    running = True

    async def writer() -> None:
        session = await through(mariadb, proxied, shop)
        turn = 0
        while running:
            turn += 1
            if turn % 3 == 0:
                async with caches[1].transaction() as tx:
                    await tx.execute(write)
            elif turn % 3 == 1:
                await ask(session, write)
            else:
                await caches[0].execute(write)
            checker.done += 1
            await asyncio.sleep(0.02)
        session.close()

    async def library(cache: Cache, who: str) -> None:
        @cache.cached(ttl_s=60)
        async def number() -> int:
            return int(await cache.fetch_value(read))

        while running:
            await checker.check(f"{who}'s function", number)
            await checker.check(who, lambda: cache.fetch_value(read))
            await asyncio.sleep(0)

    async def client() -> None:
        session = await through(mariadb, proxied, shop)
        while running:
            await checker.check("the proxy's client", lambda: ask(session, read))
        session.close()

    readers = [library(cache, f"library {n}") for n, cache in enumerate(caches) for _ in range(3)]
    tasks = [asyncio.ensure_future(each) for each in (writer(), *readers, client(), client())]
    await fault(memcached)
    running = False
    await asyncio.gather(*tasks)
    assert checker.violations == []
    assert checker.done > 5
    assert checker.reads > 100


async def test_what_one_door_stores_for_one_account_the_other_keeps_from_others(
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    proxied: PrivateSqlcache,
    open_cache: Open,
    shop: str,
) -> None:
    mariadb.sql("CREATE OR REPLACE USER reader@'%' IDENTIFIED BY 'pw'")
    mariadb.sql(f"GRANT SELECT (id) ON {shop}.product TO reader@'%'")
    session = await through(mariadb, proxied, shop)
    assert await ask(session, READ) == "p0"
    url = f"mysql://reader:pw@{mariadb.address}/{shop}"
    cache: Cache = await open_cache(
        url=url, memcached=memcached.address, service_url=mariadb.service_url
    )
    with pytest.raises(aiomysql.MySQLError, match="denied"):
        await cache.fetch_value(READ)
    assert url != url_of(mariadb, shop)
    session.close()
