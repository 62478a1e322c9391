"""Transactions: all or nothing, and invalidated at their COMMIT."""

from __future__ import annotations

import asyncio
from typing import Any

import aiomysql
import pytest

from sqlcache.api.cache import Cache
from sqlcache.api.transaction import Transaction
from sqlcache.errors import UsageError

READ = "SELECT name FROM product WHERE id = 0"


async def test_what_it_writes_is_seen_by_all_after_its_end(cache: Cache) -> None:
    assert await cache.fetch_value(READ) == "p0"
    async with cache.transaction() as tx:
        await tx.execute("UPDATE product SET name = %s WHERE id = 0", ("new",))
        assert await tx.fetch_value(READ) == "new"
        assert await cache.fetch_value(READ) == "p0"
    assert await cache.fetch_value(READ) == "new"


async def test_an_exception_rolls_it_back(cache: Cache) -> None:
    async def fail() -> None:
        async with cache.transaction() as tx:
            await tx.executemany("DELETE FROM product WHERE id = %s", [(0,), (1,)])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await cache.fetch_value(READ) == "p0"


async def test_a_cancellation_rolls_it_back(cache: Cache) -> None:
    written = asyncio.Event()

    async def write() -> None:
        async with cache.transaction() as tx:
            await tx.execute("DELETE FROM product WHERE id = 0")
            written.set()
            await asyncio.sleep(60)

    task = asyncio.ensure_future(write())
    async with asyncio.timeout(20):
        await written.wait()
    task.cancel()
    await asyncio.wait([task])
    assert await cache.fetch_value(READ) == "p0"
    await cache.execute("UPDATE product SET name = 'free' WHERE id = 0")  # no lock is left


@pytest.mark.parametrize("ended_by", ["an exception", "a time-out"])
async def test_what_ends_it_is_seen_also_where_mysql_has_gone_meanwhile(
    cache: Cache, ended_by: str
) -> None:
    async def write() -> None:
        async with asyncio.timeout(None) as limit, cache.transaction() as tx:
            await tx.execute("DELETE FROM product WHERE id = 0")
            await cache.execute(f"KILL {await tx.fetch_value('SELECT CONNECTION_ID()')}")
            if ended_by == "an exception":
                raise ZeroDivisionError
            limit.reschedule(0)
            await asyncio.sleep(10)

    with pytest.raises(ZeroDivisionError if ended_by == "an exception" else TimeoutError):
        await write()
    assert await cache.fetch_value(READ) == "p0"


async def test_its_reads_are_one_snapshot(cache: Cache) -> None:
    await cache.fetch_value(READ)
    async with cache.transaction() as tx:
        assert await tx.fetch_value(READ) == "p0"
        await cache.execute("UPDATE product SET name = 'new' WHERE id = 0")
        assert await cache.fetch_value(READ) == "new"
        assert await tx.fetch_value(READ) == "p0"
        assert await tx.fetch_one("SELECT name FROM product WHERE id = 0 AND 1") == ("p0",)


async def test_under_read_committed_its_reads_are_current(cache: Cache) -> None:
    async with cache.transaction("READ COMMITTED") as tx:
        assert await tx.fetch_value(READ) == "p0"
        await cache.execute("UPDATE product SET name = 'new' WHERE id = 0")
        assert await tx.fetch_value(READ) == "new"


async def test_a_read_only_one_cannot_write(cache: Cache) -> None:
    async with cache.transaction(read_only=True) as tx:
        assert await tx.fetch_all(READ) == [("p0",)]
        with pytest.raises(aiomysql.MySQLError):
            await tx.execute("DELETE FROM product")
    assert await cache.fetch_value("SELECT COUNT(*) FROM product") == 10


async def test_a_statement_that_cannot_be_cached_opens_the_snapshot_too(cache: Cache) -> None:
    await cache.fetch_value(READ)
    async with cache.transaction() as tx:
        first = await tx.fetch_one("SELECT name, RAND() FROM product WHERE id = 0")
        assert first is not None
        assert first[0] == "p0"
        await cache.execute("UPDATE product SET name = 'new' WHERE id = 0")
        assert await cache.fetch_value(READ) == "new"
        assert await tx.fetch_value(READ) == "p0"


async def test_statements_of_several_tasks_take_turns(cache: Cache) -> None:
    async def name_of(tx: Transaction, number: int) -> Any:
        return await tx.fetch_value("SELECT name FROM product WHERE id = %s", (number,))

    async with cache.transaction() as tx:
        got = await asyncio.gather(*(name_of(tx, number) for number in range(5)))
        await asyncio.gather(
            *(tx.execute("UPDATE product SET shelf = 9 WHERE id = %s", (n,)) for n in range(5))
        )
        late = [asyncio.ensure_future(name_of(tx, number)) for number in range(2)]
        await asyncio.sleep(0)
    assert got == [f"p{number}" for number in range(5)]
    assert await cache.fetch_value("SELECT COUNT(*) FROM product WHERE shelf = 9") == 5
    first, second = await asyncio.gather(*late, return_exceptions=True)
    assert first == "p0"
    assert isinstance(second, UsageError)
