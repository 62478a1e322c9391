"""Apps' tests without servers: canned answers, and everything else as it is."""

from __future__ import annotations

import datetime
import decimal
from dataclasses import dataclass

import aiomysql
import pytest

import sqlcache
from sqlcache.testing import without_servers

READ = "SELECT id, name FROM product WHERE shelf = %s"

cache = sqlcache.connect("mysql://app:pw@db.example/shop", memcached="cache.example:11211")


@dataclass
class Product:
    id: int
    name: str


@cache.cached(ttl_s=60)
async def best_sellers(shelf: int) -> list[Product]:
    return await cache.fetch_all(READ, (shelf,), into=Product)


async def test_an_app_is_tested_with_canned_answers() -> None:
    async with without_servers(cache, tables=["product"]) as mysql:
        mysql.answer(READ, [(1, "soap"), (2, "salt")], (3,))
        assert (
            await best_sellers(3)
            == await best_sellers(3)
            == [Product(1, "soap"), Product(2, "salt")]
        )
        assert mysql.statements.count("SELECT id, name FROM product WHERE shelf = 3") == 1
        mysql.answer(READ, [], (3,))
        async with cache.transaction() as tx:
            await tx.execute("DELETE FROM product WHERE shelf = %s", (3,))
        assert await best_sellers(3) == []


async def test_each_test_begins_with_nothing() -> None:
    for name in ("one", "two"):
        async with without_servers(cache, tables=["product"]) as mysql:
            mysql.answer(READ, [(1, name)], (3,))
            assert await best_sellers(3) == [Product(1, name)]


async def test_values_have_the_types_they_were_told_with() -> None:
    row = (
        *(None, 5, 2**40, 0.5, decimal.Decimal("1.50"), "žluť", b"\x00\xff"),
        *(datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12, 0), "x" * 300),
    )
    columns = [f"c{number}" for number in range(len(row))]
    async with without_servers(cache, tables=["every"]) as mysql:
        mysql.answer("SELECT * FROM every", [row, row], columns=columns)
        for _ in range(2):
            assert await cache.fetch_all("SELECT * FROM every") == [row, row]
        first = await cache.fetch_one("SELECT * FROM every", into=dict)
        assert first == dict(zip(columns, row, strict=True))
        assert cache.metrics.hits == 2


async def test_what_it_was_not_told_is_an_error_that_says_so() -> None:
    async with without_servers(cache) as mysql:
        with pytest.raises(aiomysql.MySQLError, match="told no answer to: SELECT 1"):
            await cache.fetch_value("SELECT 1")
        mysql.answer("SELECT 1", OSError("disk full"))
        with pytest.raises(aiomysql.MySQLError, match="disk full"):
            await cache.fetch_value("SELECT 1")
        assert (await cache.execute("UPDATE product SET name = 'x'")).rowcount == 1
