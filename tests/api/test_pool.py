"""The pool: lends what is as it was opened, and forgets no one."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import aiomysql
import pytest
from pymysql.constants import COMMAND

import sqlcache
from sqlcache.api import pool
from sqlcache.api.cache import Cache
from sqlcache.api.pool import Driver
from sqlcache.api.transaction import run
from sqlcache.demo.servers import PrivateMariaDB, PrivateSqlServer, wait_until
from sqlcache.errors import UsageError
from sqlcache.proxy.embedded_session import EmbeddedSession
from tests.api.conftest import IN_EACH_LOOP, Open, url_of
from tests.servers import PrivateMySQL

pytestmark = IN_EACH_LOOP


async def test_a_connection_is_used_again(cache: Cache) -> None:
    numbers = {await cache.fetch_value("SELECT CONNECTION_ID()") for _ in range(5)}
    assert len(numbers) == 1


async def test_a_password_may_have_any_letters(
    mariadb: PrivateMariaDB, open_cache: Open, shop: str
) -> None:
    password = "Größe-пароль-€"
    mariadb.sql(f"CREATE USER p@'%' IDENTIFIED BY '{password}'; GRANT SELECT ON *.* TO p@'%'")
    try:
        cache: Cache = await open_cache(url=f"mysql://p:{quote(password)}@{mariadb.address}/{shop}")
        assert await cache.fetch_value("SELECT COUNT(*) FROM product") == 10
    finally:
        mariadb.sql("DROP USER p@'%'")


async def test_one_that_was_changed_is_not(cache: Cache) -> None:
    first = await cache.fetch_value("SELECT CONNECTION_ID()")
    async with cache.transaction() as tx:
        await tx.execute("SET SESSION sql_mode = 'ANSI_QUOTES'")
    assert await cache.fetch_value("SELECT CONNECTION_ID()") != first


@pytest.mark.parametrize("may_hit", [True, False])
@pytest.mark.parametrize("left", ["START TRANSACTION", "SET SESSION sql_mode = 'ANSI_QUOTES'"])
async def test_nor_is_one_on_which_something_was_left(
    open_cache: Open, shop: str, monkeypatch: pytest.MonkeyPatch, left: str, may_hit: bool
) -> None:
    """As by a COMMIT that was refused; also where its reads could not be hits from the start."""
    if not may_hit:
        monkeypatch.setattr(EmbeddedSession, "context", property(lambda _: None))
    cache: Cache = await open_cache()
    first, again = [await cache.fetch_value("SELECT CONNECTION_ID()") for _ in range(2)]
    assert first == again
    async with cache._pool.connection() as connection:
        await run(connection, left, None)
    assert await cache.fetch_value("SELECT CONNECTION_ID()") != first


@pytest.mark.parametrize(
    "statement",
    [
        "SET foreign_key_checks = 0",
        "SET @@timestamp = 1000000000",
        "SET insert_id = 77",
        "SET @v = 5",
        "SELECT id INTO @v FROM product WHERE id = 1",
        "UPDATE product SET shelf = @v := 3 WHERE id = 1",
        "UPDATE product SET shelf = @'v' := 3 WHERE name = 'a''b'",
        r"SELECT '\'', @v := 5, '\''",
        """SELECT 1 -- '
            , @v := 5 -- '""",
        "/*!50000 SET @v = 5 */",
        "SELECT 1; SET unique_checks = 0",
        "SELECT GET_LOCK('mine', 0)",
        "DO GET_LOCK('mine', 0)",
        "PREPARE p FROM 'SELECT 1'",
        "EXECUTE IMMEDIATE 'SET lock_wait_timeout = 3'",
        "HANDLER product OPEN",
        "CALL leaves_something()",
    ],
)
async def test_nor_is_one_that_has_what_only_its_client_knows_of(
    cache: Cache, statement: str
) -> None:
    """The next one would write under it, wait for it, or be told it."""
    await cache.execute("CREATE PROCEDURE leaves_something() SET @v = 5")
    for _ in range(2):
        first = await cache.fetch_value("SELECT CONNECTION_ID()")
        async with cache.transaction("READ COMMITTED") as tx:
            await tx.execute(statement)
            await tx.fetch_all("SELECT name FROM product")
        assert await cache.fetch_value("SELECT CONNECTION_ID()") != first


FUNCTION = "CREATE FUNCTION f() RETURNS INT DETERMINISTIC {body} RETURN 1; END"
UPDATE = "UPDATE product SET shelf = shelf + 1 WHERE id = 1"
FIRED = "CREATE TRIGGER g AFTER UPDATE ON product FOR EACH ROW "
CODE = {
    "function": ([FUNCTION], "SELECT f()"),
    "procedure": (["CREATE PROCEDURE p() {body} END"], "CALL p()"),
    "trigger": ([FIRED + "{body} END"], UPDATE),
    "function of a trigger": ([FUNCTION, FIRED + "DO f()"], UPDATE),
    "function of a view": ([FUNCTION, "CREATE VIEW v AS SELECT f()"], "SELECT * FROM v"),
}


async def connections_used(cache: Cache, code: str, body: str) -> set[int]:
    """After such code has run, each time."""
    made, statement = CODE[code]
    for each in made:
        await cache.execute(each.format(body=body))
    numbers = set()
    for _ in range(5):
        await cache.execute(statement)
        numbers.add(await cache.fetch_value("SELECT CONNECTION_ID()"))
    return numbers


@pytest.mark.parametrize("code", CODE)
@pytest.mark.parametrize(
    "body",
    [
        "BEGIN DECLARE x INT; SET x = GET_LOCK('mine', 0);",
        "BEGIN SET @v = 5;",
        "BEGIN SET unique_checks = 0;",
    ],
)
async def test_nor_is_one_in_which_code_may_have_left_it(
    cache: Cache, mariadb: PrivateMariaDB, code: str, body: str
) -> None:
    assert len(await connections_used(cache, code, body)) == 5
    async with asyncio.timeout(20):
        while mariadb.sql("SELECT IS_FREE_LOCK('mine')") == ((0,),):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("code", ["function", "procedure", "trigger"])
async def test_what_code_leaves_that_changes_rows_and_its_own_alone(
    cache: Cache, code: str
) -> None:
    """That is nothing, and all are served by one."""
    body = """BEGIN DECLARE x, y INT DEFAULT 0;
        DECLARE CONTINUE HANDLER FOR NOT FOUND SET x = 1, y = (SELECT MAX(id) FROM product);
        -- SET @v
        UPDATE other SET a = a + 1, b = CASE a WHEN 1 THEN 2 ELSE 3 END;
        IF x THEN SET y = 5; END IF;"""
    await cache.execute("CREATE TABLE other (a INT, b INT)")
    await cache.execute("CREATE PROCEDURE others() SET @v = 1")
    assert len(await connections_used(cache, code, body)) == 1


@pytest.mark.parametrize("ask", ["SELECT GET_LOCK('mine', 0)", "SELECT GET_LOCK('mine', %s)"])
async def test_a_lock_by_name_is_left_to_nobody_however_often_it_is_taken(
    cache: Cache, mariadb: PrivateMariaDB, ask: str
) -> None:
    for _ in range(6):
        async with cache.transaction() as tx:
            assert await tx.fetch_value(ask, (0,) if "%" in ask else None) == 1
        async with asyncio.timeout(20):
            while mariadb.sql("SELECT IS_FREE_LOCK('mine')") == ((0,),):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE product SET name = 'a@b.example' WHERE id = 1",
        "SELECT @@sql_mode",
        "SELECT name AS `a@b` FROM product",
        "SAVEPOINT s",
    ],
)
async def test_what_leaves_nothing_leaves_it_to_the_next(cache: Cache, statement: str) -> None:
    first = await cache.fetch_value("SELECT CONNECTION_ID()")
    async with cache.transaction("READ COMMITTED") as tx:
        await tx.execute(statement)
    assert await cache.fetch_value("SELECT CONNECTION_ID()") == first


async def test_addresses_of_mails_are_told_from_variables_at_little_cost(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be many in a text, and all clients wait while it is looked through."""
    monkeypatch.setattr(pool, "tokenize", None)
    mails = ", ".join(f"'it''s {each}@b.example'" for each in range(1_000))
    first = await cache.fetch_value("SELECT CONNECTION_ID()")
    async with cache.transaction("READ COMMITTED") as tx:
        await tx.execute(f"SELECT `name` FROM product WHERE name IN ({mails})")
    assert await cache.fetch_value("SELECT CONNECTION_ID()") == first


async def test_a_password_that_may_expire_keeps_none_from_being_used_again(
    open_cache: Open, mariadb: PrivateMariaDB, shop: str
) -> None:
    """Nor its reads from being hits."""
    user = f"{shop}_user"
    mariadb.sql(f"CREATE USER {user} IDENTIFIED BY 'p' PASSWORD EXPIRE INTERVAL 90 DAY")
    mariadb.sql(f"GRANT ALL ON {shop}.* TO {user}")
    try:
        url = f"mysql://{user}:p@{mariadb.address}/{shop}"
        cache: Cache = await open_cache(url=url, service_url=mariadb.service_url)
        numbers = {await cache.fetch_value("SELECT CONNECTION_ID()") for _ in range(3)}
        assert len(numbers) == 1
        for _ in range(2):
            await cache.fetch_value("SELECT name FROM product WHERE id = 1")
        assert cache.metrics.hits == 1
    finally:
        mariadb.sql(f"DROP USER {user}")


async def test_one_that_was_idle_too_long_is_not(open_cache: Open, shop: str) -> None:
    cache: Cache = await open_cache(recycle_s=0)
    first = await cache.fetch_value("SELECT CONNECTION_ID()")
    assert await cache.fetch_value("SELECT CONNECTION_ID()") != first


async def test_nor_is_one_that_the_server_has_ended(
    upstream: PrivateSqlServer, schema: str, open_cache: Open
) -> None:
    """Some say why before they end it, so that there still is something to read."""
    url, session = url_of(upstream, schema), {"wait_timeout": 1}
    cache: Cache = await open_cache(url=url, session=session)
    (first,) = await cache.fetch_one("SELECT CONNECTION_ID()") or ()
    listed = f"SELECT 1 FROM information_schema.processlist WHERE id = {first}"
    await asyncio.to_thread(wait_until, lambda: not upstream.sql(listed), 20, "its end")
    assert await cache.fetch_value("SELECT CONNECTION_ID()") != first


async def test_there_are_never_more_than_its_size(open_cache: Open, shop: str) -> None:
    cache: Cache = await open_cache(pool_size=3)
    read = "SELECT CONNECTION_ID(), SLEEP(0.01)"
    got = await asyncio.gather(*(cache.fetch_value(read) for _ in range(30)))
    assert len(set(got)) == 3


async def test_waiters_are_served_however_connections_end(open_cache: Open, shop: str) -> None:
    cache: Cache = await open_cache(pool_size=1)

    async def broken() -> None:
        async with cache.transaction() as tx:
            await tx.execute("KILL CONNECTION_ID()")

    async def leaves_it_changed() -> None:
        await cache.execute("SET @@session.time_zone = '+01:00'")

    async def fine() -> int:
        return int(await cache.fetch_value("SELECT COUNT(*) FROM product WHERE RAND() < 2"))

    calls = [each() for _ in range(5) for each in (broken, fine, leaves_it_changed)]
    got = await asyncio.gather(*calls, return_exceptions=True)
    assert got[1::3] == [10] * 5
    assert all(isinstance(each, aiomysql.MySQLError) for each in got[::3])


@pytest.mark.parametrize("size", [1, 5])
async def test_who_waits_as_it_is_closed_is_told_so_and_nothing_is_left(
    mariadb: PrivateMariaDB, schema: str, size: int
) -> None:
    """For one that is free, or that is just being opened."""
    before = asyncio.all_tasks()
    cache = sqlcache.connect(url_of(mariadb, schema), memcached="memory", pool_size=size)
    async with cache:
        asked = [asyncio.ensure_future(cache.fetch_value("SELECT SLEEP(30)")) for _ in range(5)]
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        ended = await asyncio.gather(*asked, return_exceptions=True)
        while asyncio.all_tasks() - before - {*asked}:
            await asyncio.sleep(0.01)
    assert all(isinstance(each, UsageError | aiomysql.OperationalError) for each in ended), ended


async def test_mysql_is_spoken_to_in_tls_when_asked(mysql: PrivateMySQL, schema: str) -> None:
    settings = {
        "upstream.tls": "verify-ca",
        "upstream.tls_ca": mysql.data / "ca.pem",
        "binlog.follow": "off",
    }
    url = url_of(mysql, schema)
    async with sqlcache.connect(url, memcached="memory", settings=settings) as cache:
        status = await cache.fetch_one("SHOW STATUS LIKE 'Ssl_cipher'")
        assert status is not None
        assert status[1]
        await cache.execute("CREATE TABLE t (v INT)")
        await cache.execute("INSERT INTO t VALUES (1)")
        assert [await cache.fetch_value("SELECT v FROM t") for _ in range(2)] == [1, 1]
        assert cache.metrics.hits == 1


async def test_a_certificate_that_does_not_check_out_is_refused(
    mysql: PrivateMySQL, schema: str
) -> None:
    url, settings = url_of(mysql, schema), {"upstream.tls": "verify-identity"}
    with pytest.raises(aiomysql.MySQLError, match="certificate"):
        async with sqlcache.connect(url, memcached="memory", settings=settings):
            pass


async def test_bytes_can_be_bound() -> None:
    driver = Driver(user="test", charset="utf8mb4")
    driver.server_status = 0
    assert driver.escape(b"\x00'") == "_binary X'0027'"
    assert driver.escape("it's") == "'it\\'s'"


async def test_one_whose_answer_could_not_be_read_to_its_end_is_not_used_again(
    open_cache: Open, shop: str
) -> None:
    """A statement after that would take the rest for its own answer."""
    cache: Cache = await open_cache(pool_size=1, charset="latin1")
    for number in range(3):
        with pytest.raises(UnicodeDecodeError):
            await cache.fetch_all("SELECT CHAR(0x81 USING latin1) FROM product WHERE id < 3")
        done = await cache.execute("UPDATE product SET shelf = 7 WHERE id = %s", (number,))
        assert done.rowcount == 1


async def test_a_long_statement_that_is_prepared_again_is_not_read_in_the_event_loop(
    cache: Cache, split_here: list[int]
) -> None:
    """Not even where the answer comes in parts, and is followed elsewhere than it was begun."""
    parameters = 1_500
    marks = ",      ".join(["?"] * parameters)
    async with cache._pool.connection() as connection:
        for _ in range(4):
            await connection._execute_command(
                COMMAND.COM_STMT_PREPARE, f"SELECT name FROM product WHERE id IN ({marks})"
            )
            for _ in range(1 + parameters + 1 + 1 + 1):
                await connection._read_packet()
    assert not split_here
