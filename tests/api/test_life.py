"""A cache is opened and closed by one at a time, and who is cancelled leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing

import aiomysql
import pytest
from pymysql.constants import CR

import sqlcache
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached
from sqlcache.errors import UsageError
from tests.api.conftest import BY_PATH, IN_EACH_LOOP, is_run, url_of

SLOW = "UPDATE product SET shelf = 9 WHERE id = 0"


def others() -> list[str]:
    """The tasks there are beside this one."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    return [getattr(task.get_coro(), "__qualname__", "") for task in tasks]


def new_cache(mariadb: PrivateMariaDB, shop: str, memcached: PrivateMemcached) -> sqlcache.Cache:
    return sqlcache.connect(url_of(mariadb, shop), memcached=memcached.address, settings=BY_PATH)


async def test_of_two_that_open_it_at_once_one_does(
    shop: str, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    cache = new_cache(mariadb, shop, memcached)
    first, second = await asyncio.gather(
        cache.__aenter__(), cache.__aenter__(), return_exceptions=True
    )
    assert first is cache
    assert isinstance(second, UsageError)
    assert "being opened" in str(second)
    assert await cache.fetch_value("SELECT COUNT(*) FROM product") == 10
    await cache.close()
    assert others() == []


async def test_while_it_is_closed_nobody_opens_it(
    shop: str, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    cache = await new_cache(mariadb, shop, memcached).__aenter__()
    closing = asyncio.create_task(cache.close())
    await asyncio.sleep(0)
    with pytest.raises(UsageError, match="opened or closed"):
        await cache.__aenter__()
    await closing
    async with cache:
        assert await cache.fetch_value("SELECT COUNT(*) FROM product") == 10


async def test_who_waits_no_longer_for_its_end_leaves_nothing_running(
    shop: str, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    cache = await new_cache(mariadb, shop, memcached).__aenter__()
    with closing(mariadb.connect(database=shop, autocommit=False)) as locker:
        locker.cursor().execute("SELECT * FROM product WHERE id = 0 FOR UPDATE")
        writing = asyncio.create_task(cache.execute(SLOW))
        async with asyncio.timeout(20):
            while not await asyncio.to_thread(is_run, mariadb, SLOW):
                await asyncio.sleep(0.02)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await cache.close()
        with pytest.raises(aiomysql.OperationalError, match="Lost connection"):
            await writing
    assert others() == []
    async with cache:
        assert await cache.fetch_value("SELECT COUNT(*) FROM product") == 10


async def iterating(cache: sqlcache.Cache) -> None:
    async for _ in cache.iterate("SELECT a.id FROM product a, product b, product d, product e"):
        await cache.close()


async def reading(cache: sqlcache.Cache) -> None:
    many = "SELECT a.id FROM product a, product b, product d, product e"
    read, _ = await asyncio.gather(cache.fetch_all(many), cache.close(), return_exceptions=True)
    assert isinstance(read, BaseException)
    raise read


async def in_a_transaction(cache: sqlcache.Cache) -> None:
    async with cache.transaction() as tx:
        await tx.execute(SLOW)
        await cache.close()


async def in_a_transaction_that_goes_on(cache: sqlcache.Cache) -> None:
    async with cache.transaction() as tx:
        await cache.close()
        await tx.fetch_all("SELECT name FROM product")


async def on_a_connection_of_its_own(cache: sqlcache.Cache) -> None:
    connection = await cache.connection()
    try:
        await cache.close()
        async with connection.cursor() as cursor:
            await cursor.execute("SELECT name FROM product")
    finally:
        connection.close()


@IN_EACH_LOOP
@pytest.mark.parametrize(
    "using",
    [
        *(iterating, reading, in_a_transaction, in_a_transaction_that_goes_on),
        on_a_connection_of_its_own,
    ],
)
async def test_who_uses_it_when_it_is_closed_is_told_so_as_of_a_lost_connection(
    shop: str,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    using: Callable[[sqlcache.Cache], Awaitable[None]],
) -> None:
    cache = await new_cache(mariadb, shop, memcached).__aenter__()
    with pytest.raises(aiomysql.OperationalError) as raised:
        await using(cache)
    assert raised.value.args[0] in (CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST)
    assert others() == []
