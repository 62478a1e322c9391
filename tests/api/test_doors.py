"""Both doors at once: what the proxy stores the library hits and the reverse, and a write through
either is seen through both. `tests/coherence/test_live.py` is about the same under faults."""

from __future__ import annotations

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
