"""Apps' tests without servers: canned answers, and everything else as it is."""

from __future__ import annotations

import datetime
import decimal
from dataclasses import dataclass
from typing import Any

import aiomysql
import pytest

import sqlcache
from sqlcache.errors import UsageError
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


async def test_a_column_has_room_for_all_its_values() -> None:
    hour = datetime.timedelta(hours=1)
    rows = [
        (1, True, decimal.Decimal(1), 1, 30 * hour),
        (2.5, 7, 2, "x", -hour / 7_200_000),
        (None, None, None, None, 26 * hour + hour / 8_000),
    ]
    async with without_servers(cache, tables=["every"]) as mysql:
        mysql.answer("SELECT * FROM every", rows, columns=list("abcde"))
        got = await cache.fetch_all("SELECT * FROM every")
    assert got == [(*row[:3], row[3] and str(row[3]), row[4]) for row in rows]


async def test_parameters_that_do_not_fit_are_found_where_they_are_given() -> None:
    async with without_servers(cache, tables=["product"]) as mysql:
        for params in ((), (1, 2)):
            with pytest.raises(UsageError, match="do not fit"):
                mysql.answer(READ, [], params)


@pytest.mark.parametrize("rows", [1, None, "soap", [1, 2], ["ab"], [(1, "soap"), (2,)], [(1,) * 3]])
async def test_so_are_rows_that_are_none_or_do_not_fit_the_columns(rows: Any) -> None:
    async with without_servers(cache, tables=["product"]) as mysql:
        with pytest.raises(UsageError, match="rows: expected"):
            mysql.answer(READ, rows, (3,))


async def test_a_write_did_what_it_was_told_with() -> None:
    write = "INSERT INTO product (name) VALUES (%s)"
    async with without_servers(cache) as mysql:
        for done in (sqlcache.Done(1, 17), sqlcache.Done(300, 2**40), sqlcache.Done(0, 0)):
            mysql.answer(write, done, ("soap",))
            assert await cache.execute(write, ("soap",)) == done


async def test_a_transaction_outlasts_the_end_of_one_in_it() -> None:
    read = "SELECT name FROM product"
    async with without_servers(cache, tables=["product"]) as mysql:
        mysql.answer(read, [("old",)])
        assert await cache.fetch_value(read) == "old"
        async with cache.transaction() as tx:
            await tx.execute("UPDATE product SET name = 'new'")
            await tx.execute("SAVEPOINT here")
            await tx.execute("ROLLBACK TO SAVEPOINT here")
            mysql.answer(read, [("new",)])
            assert await tx.fetch_value(read) == "new"
            told = mysql.statements.count(read)
            assert await tx.fetch_value(read) == "new"
            assert mysql.statements.count(read) == told + 1  # what nobody else sees is not stored


async def test_an_answer_may_be_as_wide_and_as_long_as_mysqls() -> None:
    async with without_servers(cache, tables=["product"]) as mysql:
        for width in (250, 251, 300):
            wide = f"SELECT {', '.join(f'c{number}' for number in range(width))} FROM product"
            mysql.answer(wide, [tuple(range(width))])
            assert await cache.fetch_one(wide) == tuple(range(width))
        for length in (250, 251, 70_000, (1 << 24) - 5, 17_000_000):
            mysql.answer("SELECT picture FROM product", [(b"x" * length,), (b"y",)])
            await cache.bump("product")
            rows = await cache.fetch_all("SELECT picture FROM product")
            assert [len(picture) for (picture,) in rows] == [length, 1]
        mysql.answer("SELECT %s", [(1,)], ("x" * 17_000_000,))
        assert await cache.fetch_value("SELECT %s", ("x" * 17_000_000,)) == 1


async def test_parameters_are_those_that_any_statement_takes() -> None:
    query = "SELECT name FROM product WHERE id = %s"
    many: list[Any] = [5, (6,), [7], "8"]
    async with without_servers(cache, tables=["product"]) as mysql:
        for params in many:
            mysql.answer(query, [(str(params),)], params)
            assert await cache.fetch_value(query, params) == str(params)
        by_name = "SELECT name FROM product WHERE id = %(id)s"
        mysql.answer(by_name, [("9",)], {"id": 9})
        assert await cache.fetch_value(by_name, {"id": 9}) == "9"
