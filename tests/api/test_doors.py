"""Both doors at once: what the proxy stores the library hits and the reverse, and a write through
either is seen through both. `tests/coherence/test_live.py` is about the same under faults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiomysql
import pytest

from sqlcache.api.cache import Cache
from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
)
from tests.api.conftest import BY_PATH, Open, url_of
from tests.conftest import ProxyFactory

READ = "SELECT name FROM product WHERE id = 0"
SETTINGS = {"upstream__catalog_refresh_s": 3600}


async def ask(session: Any, statement: str) -> Any:
    async with session.cursor() as cursor:
        await cursor.execute(statement)
        row = await cursor.fetchone()
        return None if row is None else row[0]


@pytest.fixture
async def session(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, proxy: ProxyFactory, shop: str
) -> AsyncIterator[Any]:
    """A session of a proxy's such as the library has: of the same driver, with its defaults."""
    proxied = proxy(mariadb, memcached, **SETTINGS)
    opened = await aiomysql.connect(
        host=proxied.host,
        port=proxied.port,
        user=mariadb.user,
        password=mariadb.password,
        db=shop,
        charset="utf8mb4",
        autocommit=True,
    )
    yield opened
    opened.close()


@pytest.fixture
async def library(memcached: PrivateMemcached, open_cache: Open) -> Cache:
    """The other door to the same memcached."""
    cache: Cache = await open_cache(memcached=memcached.address, settings=BY_PATH)
    return cache


async def test_what_one_door_stores_the_other_hits(
    mariadb: PrivateMariaDB, session: Any, library: Cache
) -> None:
    assert await ask(session, READ) == "p0"
    before = mariadb.status("Com_select")
    assert await library.fetch_value(READ) == "p0"
    assert await library.fetch_value("SELECT name FROM product WHERE id = %s", (0,)) == "p0"
    assert await library.fetch_value("SELECT name FROM product WHERE id = %s", (1,)) == "p1"
    assert await ask(session, "SELECT name FROM product WHERE id = 1") == "p1"
    assert mariadb.status("Com_select") - before == 1


async def test_a_write_through_one_is_seen_through_the_other(session: Any, library: Cache) -> None:
    @library.cached()
    async def name() -> str:
        return str(await library.fetch_value(READ))

    for number in range(10):
        write = f"UPDATE product SET name = '{number}' WHERE id = 0"
        await (ask(session, write) if number % 2 else library.execute(write))
        assert await name() == await ask(session, READ) == await library.fetch_value(READ)
        assert await name() == str(number)


async def test_what_one_door_stores_for_one_account_the_other_keeps_from_others(
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    session: Any,
    open_cache: Open,
    shop: str,
) -> None:
    mariadb.sql("CREATE OR REPLACE USER reader@'%' IDENTIFIED BY 'pw'")
    mariadb.sql(f"GRANT SELECT (id) ON {shop}.product TO reader@'%'")
    assert await ask(session, READ) == "p0"
    url = f"mysql://reader:pw@{mariadb.address}/{shop}"
    at = {"url": url, "memcached": memcached.address, "service_url": mariadb.service_url}
    cache: Cache = await open_cache(**at, settings=BY_PATH)
    with pytest.raises(aiomysql.MySQLError, match="denied"):
        await cache.fetch_value(READ)
    assert url != url_of(mariadb, shop)
