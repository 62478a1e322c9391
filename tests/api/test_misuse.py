"""What would have no effect, or another than it says, is refused."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import aiomysql
import pytest

import sqlcache
from sqlcache.api import misuse
from sqlcache.api.cache import Cache
from sqlcache.api.transaction import Transaction
from sqlcache.demo.servers import PrivateMariaDB
from sqlcache.errors import ConfigError, UsageError
from sqlcache.sql.lexer import Lexed, lex
from sqlcache.sql.pieces import Dialect
from sqlcache.testing import without_servers
from tests.api.conftest import Open, url_of

READ = "SELECT name FROM product WHERE id = 0"
URL = "mysql://app:pw@127.0.0.1:3306/shop"


@pytest.mark.parametrize("fails", [False, True], ids=["committed", "rolled back"])
async def test_a_transaction_that_has_ended_does_nothing(cache: Cache, fails: bool) -> None:
    kept: list[Transaction] = []
    try:
        async with cache.transaction() as tx:
            kept.append(tx)
            if fails:
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    (ended,) = kept
    for use in (
        ended.execute("UPDATE product SET name = 'late'"),
        ended.executemany("DELETE FROM product WHERE id = %s", [(0,)]),
        ended.fetch_value(READ),
    ):
        with pytest.raises(UsageError, match="has ended"):
            await use
    assert await cache.fetch_value(READ) == "p0"


@pytest.mark.parametrize("sql", ["BEGIN", "/* x */ start transaction", "COMMIT", "ROLLBACK"])
async def test_a_transaction_is_begun_and_ended_by_its_block(cache: Cache, sql: str) -> None:
    for use in (cache.execute(sql), cache.fetch_all(sql)):
        with pytest.raises(UsageError, match=r"cache\.transaction\(\)"):
            await use
    async with cache.transaction() as tx:
        await tx.execute("UPDATE product SET name = 'new' WHERE id = 0")
        with pytest.raises(UsageError, match="leave the block"):
            await tx.execute(sql)
        await tx.execute("SAVEPOINT here")
        await tx.execute("ROLLBACK TO SAVEPOINT here")
    assert await cache.fetch_value(READ) == "new"


@pytest.mark.parametrize(
    "sql",
    [
        "BEGIN; UPDATE product SET name = 'lost' WHERE id = 0",
        "UPDATE product SET name = 'lost' WHERE id = 0; START TRANSACTION",
        "SET autocommit = 0; UPDATE product SET name = 'lost' WHERE id = 0",
        "/*!40000 BEGIN */; SELECT name FROM product WHERE id = 0",
        "XA BEGIN 'x'",
        "CALL begins()",
        "BEGIN; UPDATE product SET name = 'xa prepare' WHERE id = 0",
        "BEGIN /* XA PREPARE */; SELECT name FROM product WHERE id = 0",
        "XA BEGIN 'another'; SELECT 'XA PREPARE' AS `xa prepare`",
    ],
)
async def test_a_text_that_leaves_a_transaction_open_is_no_success(cache: Cache, sql: str) -> None:
    """What it wrote would be lost, and nobody told."""
    await cache.execute("CREATE PROCEDURE begins() START TRANSACTION")
    for use in (cache.execute, cache.fetch_all):
        with pytest.raises(UsageError, match="begun a transaction and not ended it"):
            await use(sql)
    with pytest.raises(UsageError, match="begun a transaction and not ended it"):
        await cache.executemany(sql, [()])
    with pytest.raises(UsageError, match="begun a transaction and not ended it"):
        _ = [row async for row in cache.iterate(sql)]
    assert await cache.fetch_value(READ) == ("lost" if sql.startswith("UPDATE") else "p0")


@pytest.mark.parametrize(
    "prepare",
    [
        *("XA PREPARE 'ours'", "xa/* */prepare 'ours'; -- done", "/*!40000 XA PREPARE 'ours' */"),
        f"/* {'long ' * 200}*/ XA PREPARE 'ours'",
    ],
    ids=["plain", "comment", "code", "long"],
)
async def test_a_branch_of_xa_may_be_prepared_in_one_text_and_ended_in_another(
    cache: Cache, prepare: str
) -> None:
    write = "UPDATE product SET name = 'new' WHERE id = 0"
    await cache.execute(f"XA BEGIN 'ours'; {write}; XA END 'ours'; {prepare}")
    async with asyncio.timeout(20):
        while True:
            try:
                await cache.execute("XA COMMIT 'ours'")
                break
            except aiomysql.MySQLError:  # until the server has ended the session of before
                await asyncio.sleep(0.02)
    assert await cache.fetch_value(READ) == "new"


@pytest.mark.parametrize(
    "sql",
    [
        "USE mysql",
        "SET sql_mode = ''",
        "SET @x = 1",
        "SET NAMES latin1",
        "LOCK TABLES product READ",
        "CREATE TEMPORARY TABLE mine (id INT)",
        "PREPARE s FROM 'SELECT 1'",
        "SELECT GET_LOCK('here', 0)",
        "DO 1, get_lock ('here', 0)",
        "(SELECT GET_LOCK('here', 0))",
        "WITH w AS (SELECT 1) SELECT GET_LOCK('here', 0) FROM w",
        "/*!40000 SELECT GET_LOCK('here', 0) */",
        "HANDLER product OPEN",
        "FLUSH TABLES product WITH READ LOCK",
    ],
)
async def test_what_concerns_one_connection_is_refused_where_there_are_many(
    cache: Cache, sql: str
) -> None:
    with pytest.raises(UsageError, match="has no effect here"):
        await cache.execute(sql)
    if not sql.startswith(("LOCK", "USE", "FLUSH")):
        async with cache.transaction() as tx:
            await tx.execute(sql)


@pytest.mark.parametrize(
    "before",
    [
        *("/* a */", "-- a\n", "# a\n", "/**/ /*/ x */\n", "/*M a*/", "--\n", " \t"),
        *("/*" + "*" * 600 + "*/", "/*" + " x" * 9_000 + "*/", "# a\n" * 3_000, " " * 5_000),
    ],
)
async def test_so_it_is_behind_a_comment(cache: Cache, before: str) -> None:
    with pytest.raises(UsageError, match="has no effect here"):
        await cache.execute(f"{before}SET @x = 1")


async def test_it_is_not_found_out_on_the_event_loop_of_what_takes_long(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_the_loop = []

    def lexed(text: bytes, dialect: Dialect) -> Lexed:
        if threading.current_thread() is threading.main_thread():
            on_the_loop.append(len(text))
        return lex(text, dialect)

    monkeypatch.setattr(misuse, "lex", lexed)
    values = ",".join(f"({number}, 'new', 1)" for number in range(100, 3_000))
    columns = ", ".join(f"IF(id > {number}, id, 0)" for number in range(300))
    for before in ("/* a */ ", "-- a\n", "# a\n", "/*" + "a" * 5_000 + "*/"):
        await cache.execute(f"{before}INSERT INTO product VALUES {values}")
        await cache.fetch_all(f"{before}SELECT {columns} FROM product WHERE id = 1")
        await cache.execute("DELETE FROM product WHERE id >= 100")
    with pytest.raises(UsageError, match="has no effect here"):
        await cache.execute(f"SET @x = '{'a' * 600}'")
    assert max(on_the_loop, default=0) <= 512


async def test_what_is_longer_than_any_statement_is_read_is_not_read_for_it(
    open_cache: Open, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def lexed(text: bytes, dialect: Dialect) -> Lexed:
        read.append(text)
        return lex(text, dialect)

    monkeypatch.setattr(misuse, "lex", lexed)
    cache: Cache = await open_cache(settings={"proxy.max_statement_bytes": 5_000})
    await cache.execute(f"CREATE TABLE more (id INT) COMMENT '{'a' * 1_000}'")
    assert len(read) == 1
    await cache.execute(f"/*{'a' * 6_000}*/ INSERT INTO product VALUES (100, 'new', 1)")
    assert len(read) == 1


async def test_what_concerns_the_server_is_not(cache: Cache) -> None:
    await cache.execute("SET GLOBAL long_query_time = 10")
    await cache.execute("FLUSH TABLES product")
    assert await cache.fetch_value("SELECT IS_FREE_LOCK('here')") == 1
    assert await cache.fetch_value("SELECT 'GET_LOCK'") == "GET_LOCK"
    await cache.execute("CREATE TABLE more (id INT)")
    await cache.execute("BEGIN; UPDATE product SET name = 'new' WHERE id = 0; COMMIT")
    assert await cache.fetch_value(READ) == "new"


async def test_parameters_that_do_not_fit_are_told_so(cache: Cache) -> None:
    read = "SELECT name FROM product WHERE id = %s AND shelf = %s"
    wrong: list[Any] = [(1,), (1, 2, 3), {"id": 1}]
    for _ in range(2):  # also where the statement is known
        for params in wrong:
            with pytest.raises(UsageError, match=r"it has 2 placeholders, and \d parameters"):
                await cache.fetch_all(read, params)
        await cache.fetch_all(read, (1, 2))
    with pytest.raises(UsageError, match="1 placeholders, and 2 parameters"):
        await cache.execute("UPDATE product SET name = %s", ("a", "b"))
    with pytest.raises(UsageError, match="2 placeholders, and 1 parameters"):
        await cache.executemany("UPDATE product SET name = %s WHERE id = %s", [("a", 1), ("b",)])
    async with cache.transaction() as tx:
        with pytest.raises(UsageError, match="2 placeholders, and 1 parameters"):
            await tx.fetch_all(read, (1,))
    assert await cache.fetch_value(READ) == "p0"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("pool_size", 0),
        ("pool_size", -1),
        ("pool_size", 1.5),
        ("pool_size", True),
        ("acquire_timeout_s", 0),
        ("connect_timeout_s", -1),
        ("recycle_s", "1"),
    ],
)
def test_a_pool_that_cannot_work_is_refused_at_once(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{option} = {value!r}: expected"):
        sqlcache.connect(URL, memcached="memory", **{option: value})


@pytest.mark.parametrize("charset", ["utf9", "binary", "dec8", None, 5])
def test_a_character_set_that_there_is_not_is_refused_at_once(charset: Any) -> None:
    with pytest.raises(ConfigError, match=f"charset = {charset!r}: expected"):
        sqlcache.connect(URL, memcached="memory", charset=charset)


async def test_an_isolation_level_that_there_is_not_is_refused(cache: Cache) -> None:
    level: Any = "SERIALISABLE"
    with pytest.raises(UsageError, match="isolation 'SERIALISABLE': expected one of READ UNCOM"):
        async with cache.transaction(level):
            pass


async def test_where_no_mysql_is_the_error_says_where() -> None:
    cache = sqlcache.connect("mysql://app:pw@127.0.0.1:1/shop", memcached="memory")
    with pytest.raises(aiomysql.OperationalError, match=r"on 127\.0\.0\.1:1: .*refused"):
        async with cache:
            pass


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ttl_s": -1}, "ttl_s=-1: expected"),
        ({"ttl_s": 0}, "ttl_s=0: expected"),
        ({"ttl_s": 1.5}, "ttl_s=1.5: expected"),
        ({"ttl_s": 40 * 86_400}, "ttl_s=3456000: expected"),
        ({"tags": "product"}, r"expected several names, such as \['product'\]"),
        ({"tags": None}, r"tags=None: expected several names, such as \['product'\]"),
        ({"tags": [1]}, r"tags=\[1\]: expected several names"),
        ({"codec": 5}, "codec=5: expected an object with encode, decode and a name"),
        ({"codec": sqlcache.PickleCodec}, "codec=<class .*PickleCodec'>: expected an object"),
        ({"key": "shelf"}, "key='shelf': expected a function"),
        ({"stale_while_revalidate_s": -1}, "stale_while_revalidate_s=-1: expected"),
    ],
)
def test_options_that_make_no_sense_are_refused_where_they_are_given(
    options: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        sqlcache.connect(URL, memcached="memory").cached(**options)


async def _name() -> str:
    return ""


def test_the_decorator_needs_its_parentheses() -> None:
    decorate: Any = sqlcache.connect(URL, memcached="memory").cached
    with pytest.raises(UsageError, match=r"write @cache\.cached\(\)"):
        decorate(_name)


def test_a_partial_is_made_of_the_decorated() -> None:
    decorate: Any = sqlcache.connect(URL, memcached="memory").cached()
    with pytest.raises(UsageError, match="_name: decorate the function"):
        decorate(partial(_name))


async def test_a_service_account_that_does_not_work_is_an_error(
    open_cache: Open, mariadb: PrivateMariaDB, shop: str
) -> None:
    wrong = f"mysql://nobody:wrong@{mariadb.address}"
    with pytest.raises(ConfigError, match=r"service_url: nobody@.* cannot read the catalog"):
        await open_cache(url=url_of(mariadb, shop), service_url=wrong)


@pytest.mark.parametrize("place", ["127.0.0.1:3307", "db:3306", "127.0.0.1:3306?unix_socket=/s"])
def test_a_service_account_of_another_server_is_an_error(place: str) -> None:
    for one, other in (
        (URL, f"mysql://s:p@{place}"),
        (f"mysql://s:p@{place}", "mysql://a:p@127.0.0.1"),
    ):
        with pytest.raises(
            ConfigError, match=r"service_url = .*: expected an account of the server"
        ):
            sqlcache.connect(one, memcached="memory", service_url=other)
    sqlcache.connect(URL, memcached="memory", service_url="mysql://s:p@127.0.0.1")


async def test_an_app_tested_without_servers_finds_only_its_own_statements() -> None:
    cache = sqlcache.connect(URL, memcached="memory", session={"sql_mode": "ANSI"})
    async with without_servers(cache, tables=["product"]) as mysql:
        assert mysql.statements == []
        await cache.execute("DELETE FROM product")
        assert mysql.statements == ["DELETE FROM product"]
