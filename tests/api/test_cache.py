"""The client: what it returns, and that hits return the same."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiomysql
import pytest
from pydantic import BaseModel

import sqlcache
from sqlcache.api.cache import Cache
from sqlcache.cache.tags import Tag
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlServer
from sqlcache.errors import ConfigError, UsageError
from sqlcache.memcache.memory import MemoryNode
from sqlcache.process import cgroup
from tests.api.conftest import BY_PATH, IN_EACH_LOOP, Open, is_run, url_of

READ = "SELECT id, name FROM product WHERE shelf = %s ORDER BY id"
FIRST = [(0, "p0"), (3, "p3"), (6, "p6"), (9, "p9")]


@dataclass
class Product:
    id: int
    name: str


class ProductModel(BaseModel):
    id: int
    name: str


async def test_the_second_read_is_a_hit_and_the_same(cache: Cache) -> None:
    assert await cache.fetch_all(READ, (0,)) == FIRST
    assert await cache.fetch_all(READ, (0,)) == FIRST
    assert (cache.metrics.hits, cache.metrics.misses) == (1, 1)


async def test_rows_come_in_the_form_asked_for(cache: Cache) -> None:
    for _ in range(2):
        assert (await cache.fetch_all(READ, (0,), into=dict))[0] == {"id": 0, "name": "p0"}
        assert (await cache.fetch_all(READ, (0,), into=Product))[0] == Product(0, "p0")
        assert await cache.fetch_one(READ, (0,), into=ProductModel) == ProductModel(id=0, name="p0")
        assert await cache.fetch_one(READ, (0,)) == (0, "p0")
        assert await cache.fetch_one(READ, (7,)) is None
        assert await cache.fetch_value("SELECT COUNT(*) FROM product") == 10
        assert await cache.fetch_value(READ, (7,)) is None


async def test_parameters_are_bound_by_name_too(cache: Cache) -> None:
    read = "SELECT name FROM product WHERE id = %(id)s"
    assert await cache.fetch_value(read, {"id": 4}) == "p4"
    assert await cache.fetch_value(read, {"id": "4' OR 1=1 -- "}) is not None  # MySQL reads a 4
    assert (
        await cache.fetch_value("SELECT name FROM product WHERE name = %s", ("x' OR '1",)) is None
    )


async def test_a_column_named_twice_is_told_apart_as_dictcursor_does(cache: Cache) -> None:
    read = "SELECT a.id, b.id FROM product a JOIN product b ON b.id = a.id + 1 WHERE a.id = 1"
    assert await cache.fetch_one(read, into=dict) == {"id": 1, "b.id": 2}


VALUES = {
    "TINYINT": -5,
    "BIGINT UNSIGNED": 2**64 - 1,
    "DECIMAL(20,4)": decimal.Decimal("12345678901234.5678"),
    "DOUBLE": 0.1,
    "DATE": datetime.date(2024, 2, 29),
    "DATETIME(6)": datetime.datetime(2024, 2, 29, 12, 30, 0, 123456),
    "TIME": datetime.timedelta(hours=-30, minutes=5),
    "YEAR": 2024,
    "VARCHAR(20)": "žluťoučký 🐎",
    "BLOB": bytes(range(256)),
    "JSON": '{"a": [1, null]}',
    "BIT(5)": b"\x13",
    "CHAR(3)": None,
    "ENUM('a','b')": "b",
    "SET('a','b')": "a,b",
}


async def test_types_are_aiomysqls_from_a_hit_too(
    upstream: PrivateSqlServer, schema: str, open_cache: Open
) -> None:
    cache: Cache = await open_cache(url=url_of(upstream, schema))
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(VALUES))
    await cache.execute(f"CREATE TABLE every ({columns})")
    marks = ", ".join(["%s"] * len(VALUES))
    await cache.execute(f"INSERT INTO every VALUES ({marks})", tuple(VALUES.values()))
    plain = await aiomysql.connect(
        host=upstream.host,
        port=upstream.port,
        user=upstream.user,
        password=upstream.password,
        db=schema,
        charset="utf8mb4",
    )
    async with plain, plain.cursor() as cursor:
        await cursor.execute("SELECT * FROM every")
        expected = list(await cursor.fetchall())
    for _ in range(3):
        got = await cache.fetch_all("SELECT * FROM every")
        assert got == expected
        assert list(map(type, got[0])) == list(map(type, expected[0]))
    assert cache.metrics.hits == 2


async def test_long_and_many_rows_come_back_from_a_hit(cache: Cache) -> None:
    await cache.execute("CREATE TABLE pages (id INT PRIMARY KEY, body LONGTEXT)")
    await cache.executemany(
        "INSERT INTO pages VALUES (%s, %s)", [(n, "x" * 3000) for n in range(9)]
    )
    await cache.execute("INSERT INTO pages VALUES (9, REPEAT('y', 200000))")
    first = await cache.fetch_all("SELECT * FROM pages")
    assert await cache.fetch_all("SELECT * FROM pages") == first
    assert [len(body) for _, body in first] == [3000] * 9 + [200_000]
    assert cache.metrics.hits == 1


async def test_a_write_is_seen_by_the_next_read(cache: Cache) -> None:
    await cache.fetch_all(READ, (0,))
    done = await cache.execute("UPDATE product SET name = %s WHERE id = %s", ("new", 0))
    assert done.rowcount == 1
    assert (await cache.fetch_all(READ, (0,)))[0] == (0, "new")


async def test_many_rows_are_written_and_the_last_id_told(cache: Cache) -> None:
    await cache.execute("CREATE TABLE log (id INT AUTO_INCREMENT PRIMARY KEY, line TEXT)")
    assert (await cache.execute("INSERT INTO log (line) VALUES ('a')")).lastrowid == 1
    assert await cache.executemany("INSERT INTO log (line) VALUES (%s)", [("b",), ("c",)]) == 2
    assert await cache.fetch_value("SELECT COUNT(*) FROM log") == 3


@IN_EACH_LOOP
async def test_rows_can_be_iterated_over_and_are_not_stored(cache: Cache) -> None:
    got = [row async for row in cache.iterate(READ, (0,), into=Product)]
    assert got[0] == Product(0, "p0")
    assert [row async for row in cache.iterate(READ, (0,))] == FIRST
    assert cache.metrics.fills == 0
    await cache.fetch_all(READ, (0,))
    assert cache.metrics.fills == 1  # the connection may store again


async def test_an_iteration_that_is_left_early_leaves_no_harm(cache: Cache) -> None:
    many = ", ".join(f"product p{number}" for number in range(9))
    async with asyncio.timeout(60):  # far less than to read a billion rows takes
        rows = cache.iterate(f"SELECT p0.id FROM {many}")
        async for _ in rows:
            break
        await rows.aclose()  # type: ignore[attr-defined]
    assert await cache.fetch_value("SELECT COUNT(*) FROM product") == 10


async def test_an_iteration_that_is_cut_short_says_so(
    cache: Cache, mariadb: PrivateMariaDB
) -> None:
    slow = (
        "SELECT CONNECTION_ID(), REPEAT('a', 20000), SLEEP(3 * (id > 1)) FROM product ORDER BY id"
    )

    async def read_all(rows: AsyncIterator[Any]) -> None:
        async for _ in rows:
            pass

    rows = cache.iterate(slow)
    await anext(rows)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(read_all(rows), 0.1)
    rows = cache.iterate(slow)
    number, *_ = await anext(rows)
    mariadb.sql(f"KILL {number}")
    with pytest.raises(aiomysql.OperationalError):
        await read_all(rows)
    assert await cache.fetch_value("SELECT COUNT(*) FROM product") == 10


async def test_many_who_miss_at_once_ask_mysql_once(cache: Cache, mariadb: PrivateMariaDB) -> None:
    await cache.fetch_all(READ, (1,))
    await cache.execute("UPDATE product SET name = 'x' WHERE id = 1")
    before = mariadb.status("Com_select")
    got = await asyncio.gather(*(cache.fetch_all(READ, (1,)) for _ in range(200)))
    assert mariadb.status("Com_select") - before == 1
    assert all(rows == got[0] for rows in got)


async def test_an_error_of_mysql_is_aiomysqls_and_leaves_the_pool_whole(cache: Cache) -> None:
    for _ in range(20):
        with pytest.raises(aiomysql.ProgrammingError):
            await cache.fetch_all("SELECT * FROM nowhere")
    assert await cache.fetch_value("SELECT COUNT(*) FROM product") == 10


async def test_what_a_statement_does_to_its_session_is_not_there_for_the_next(
    open_cache: Open, shop: str
) -> None:
    cache: Cache = await open_cache(pool_size=1)
    async with cache.transaction() as tx:
        await tx.execute("SET time_zone = '+05:00'")
        assert await tx.fetch_value("SELECT @@time_zone") == "+05:00"
        await tx.execute("CREATE TEMPORARY TABLE product (id INT)")
        assert await tx.fetch_value("SELECT COUNT(*) FROM product") == 0
    assert await cache.fetch_value("SELECT @@time_zone") != "+05:00"
    assert await cache.fetch_value("SELECT COUNT(*) FROM product") == 10


async def test_session_settings_hold_on_each_connection(open_cache: Open, shop: str) -> None:
    cache: Cache = await open_cache(session={"time_zone": "+05:00", "sql_mode": "ANSI_QUOTES"})
    asked = "SELECT @@time_zone, @@sql_mode"
    got = await asyncio.gather(*(cache.fetch_one(asked) for _ in range(5)))
    assert set(got) == {("+05:00", "ANSI_QUOTES")}
    assert await cache.fetch_value('SELECT "name" FROM product WHERE "id" = 1') == "p1"


@pytest.mark.parametrize(
    ("charset", "collation"),
    [
        ("utf8mb4", "UTF8MB4_BIN"),
        ("utf8", "utf8mb4_general_ci"),
        ("utf8mb3", "utf8_bin"),
        ("utf8mb3", "utf8mb3_bin"),
        ("latin1", "latin1_bin"),
    ],
)
async def test_the_collation_of_what_is_sent_may_be_any_of_its_charset(
    charset: str, collation: str, open_cache: Open, shop: str
) -> None:
    session = {"collation_connection": collation}
    cache: Cache = await open_cache(charset=charset, session=session)
    got = await cache.fetch_value("SELECT @@collation_connection")
    assert got.replace("utf8mb3", "utf8") == collation.lower().replace("utf8mb3", "utf8")


async def test_the_escapes_of_the_session_are_those_of_its_sql_mode(
    open_cache: Open, shop: str
) -> None:
    cache: Cache = await open_cache(session={"sql_mode": "NO_BACKSLASH_ESCAPES"})
    evil = "\\' OR 1 = 1 -- "
    await cache.execute("UPDATE product SET name = %s WHERE id = 1", (evil,))
    for _ in range(3):
        read = "SELECT id FROM product WHERE name = %s"
        assert await cache.fetch_all(read, (evil,)) == [(1,)]


async def test_a_hit_needs_no_free_connection(open_cache: Open, shop: str) -> None:
    cache: Cache = await open_cache(pool_size=1, acquire_timeout_s=0.2)
    await cache.fetch_all(READ, (0,))
    async with cache.transaction():
        assert await cache.fetch_all(READ, (0,)) == FIRST
        with pytest.raises(TimeoutError, match="pool_size"):
            await cache.fetch_all(READ, (1,))


async def test_a_cancelled_read_leaves_the_others_alone(cache: Cache) -> None:
    slow = "SELECT COUNT(*) FROM product WHERE SLEEP(0.02) = 0"
    reads = [asyncio.ensure_future(cache.fetch_value(slow)) for _ in range(30)]
    await asyncio.sleep(0.1)
    for read in reads[::2]:
        read.cancel()
    got = await asyncio.gather(*reads, return_exceptions=True)
    assert got[1::2] == [10] * 15
    assert await cache.fetch_value("SELECT COUNT(*) FROM product") == 10


async def test_a_write_that_is_cancelled_still_invalidates(
    cache: Cache, mariadb: PrivateMariaDB
) -> None:
    await cache.fetch_all(READ, (0,))
    write = "UPDATE product SET name = 'late' WHERE id = 0 AND SLEEP(0.3) = 0"
    task = asyncio.ensure_future(cache.execute(write))
    while not task.done() and not is_run(mariadb, write):
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    async with asyncio.timeout(60):
        while (await cache.fetch_all(READ, (0,)))[0] != (0, "late"):
            await asyncio.sleep(0.02)


async def test_it_can_be_opened_again_and_only_once_at_a_time(
    mariadb: PrivateMariaDB, shop: str
) -> None:
    cache = sqlcache.connect(url_of(mariadb, shop), memcached="memory")
    for _ in range(2):
        async with cache:
            assert await cache.fetch_value("SELECT COUNT(*) FROM product") == 10
            with pytest.raises(UsageError, match="open already"):
                await cache.__aenter__()
    with pytest.raises(UsageError, match="not open"):
        await cache.fetch_all("SELECT 1")


async def test_in_another_event_loop_it_says_so_and_goes_on_in_its_own(cache: Cache) -> None:
    query = "SELECT name FROM product WHERE id = 7"

    @cache.cached()
    async def name() -> Any:
        return await cache.fetch_value(query)

    uses: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        *(partial(cache.fetch_value, query), name, name.invalidate, name.peek, cache.connection),
        *(partial(cache.execute, "UPDATE product SET shelf = 9"), partial(cache.bump, "product")),
        *(partial(cache.explain, query), cache.close),
    ]
    for _ in range(2):
        assert await cache.fetch_value(query) == await name() == "p7"
    for use in uses:
        with pytest.raises(UsageError, match="another event loop"):
            await asyncio.to_thread(in_a_loop_of_its_own, use)
    assert await cache.fetch_value("SELECT COUNT(*) FROM product WHERE shelf = 9") == 0


def in_a_loop_of_its_own(use: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    asyncio.run(use())


async def test_without_memcached_it_answers_from_mysql(
    open_cache: Open, shop: str, memcached: PrivateMemcached
) -> None:
    cache: Cache = await open_cache(memcached=memcached.address)
    assert await cache.fetch_all(READ, (0,)) == FIRST
    memcached.kill()
    for _ in range(3):
        assert await cache.fetch_all(READ, (0,)) == FIRST


async def test_mysql_that_restarts_is_found_again(
    open_cache: Open, shop: str, mariadb: PrivateMariaDB
) -> None:
    cache: Cache = await open_cache()
    mariadb.restart()
    async with asyncio.timeout(20):
        while True:
            try:
                assert await cache.fetch_value("SELECT COUNT(*) FROM product") == 10
                break
            except aiomysql.OperationalError:
                await asyncio.sleep(0.05)


async def test_a_wrong_password_is_mysqls_own_error(mariadb: PrivateMariaDB, schema: str) -> None:
    url = f"mysql://{mariadb.user}:wrong@{mariadb.address}/{schema}"
    with pytest.raises(aiomysql.OperationalError, match="Access denied"):
        async with sqlcache.connect(url, memcached="memory", service_url=mariadb.service_url):
            pass


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"url": "postgres://a:b@c/d"}, "^url: expected mysql://USER:PASSWORD@HOST:PORT/DATABASE$"),
        ({"url": "mysql://a:b@["}, "^url: expected mysql://USER:PASSWORD@HOST:PORT/DATABASE$"),
        ({"url": "mysql://a:b/c@d/e"}, "HOST:PORT/DATABASE; .* write @ / . # as %40"),
        ({"settings": {"admin.listen": "a:1"}}, "^admin.listen: is a proxy's alone"),
        ({"settings": {"log.level": "debug"}}, "^log.level: is a proxy's alone"),
        ({"url": None}, "^url: expected mysql://USER:PASSWORD@HOST:PORT/DATABASE$"),
        ({"memcached": "nowhere"}, "memcached.nodes"),
        ({"memcached": None}, "memcached.nodes = None .*: expected a list of HOST:PORT"),
        ({"memcached": 5}, "memcached.nodes = 5 .*: expected a list of HOST:PORT"),
        ({"rules": 5}, "rules = 5 .*: expected a list"),
        ({"settings": 5}, "^settings, of type int: expected .* such as {'cache.ttl_s': 600}$"),
        ({"settings": [("upstream.password", "p")]}, "^settings, of type list: expected values"),
        ({"settings": {5: 5}}, "^settings, of type dict: expected values by name"),
        ({"settings": {"cache.ttl": 5}}, "did you mean cache.ttl_s"),
        ({"session": {"x = 1; --": 1}}, "not the name of a variable"),
        ({"session": "time_zone"}, "^session, of type str: expected .* {'time_zone': '.00:00'}$"),
        ({"session": {5: 5}}, "^session, of type dict: expected values by name"),
        ({"session": {"time_zone": None}}, "^session: time_zone = None: expected a text or a num"),
        ({"session": {"autocommit": 0}}, "^session: autocommit cannot .* commit by it$"),
        ({"session": {"AutoCommit": 1}}, "^session: AutoCommit cannot be chosen: `exe"),
        ({"session": {"completion_type": "RELEASE"}}, "^session: completion_type cannot .* by it$"),
        ({"session": {"character_set_client": "latin1"}}, ": charset= decides it$"),
        ({"session": {"character_set_results": "latin1"}}, ": charset= decides it$"),
        ({"session": {"character_set_connection": "latin1"}}, ": charset= decides it$"),
        (
            {"session": {"Collation_Connection": "latin1_bin"}},
            "'latin1_bin': expected one of utf8mb4",
        ),
        ({"session": {"collation_connection": "utf8_bin"}}, "expected one of utf8mb4, which ch"),
        ({"session": {"collation_connection": 47}}, "47: expected one of utf8mb4"),
    ],
)
def test_what_is_wrong_is_said_at_once(options: dict[str, Any], what: str) -> None:
    options = {"url": "mysql://a:b@127.0.0.1/d", "memcached": "memory", **options}
    with pytest.raises(ConfigError, match=what):
        sqlcache.connect(**options)


def test_what_lists_anything_may_be_a_generator() -> None:
    cache = sqlcache.connect(
        "mysql://a:b@127.0.0.1/d",
        memcached=iter(["127.0.0.1:1"]),  # type: ignore[arg-type]
        rules=({"table": name, "off": True} for name in ("a.b", "a.c")),
    )
    assert cache._settings.memcached.nodes == ("127.0.0.1:1",)
    assert [rule.table for rule in cache._settings.rules] == ["a.b", "a.c"]
    cache.cached(tags=iter(["product"]))


async def test_a_bump_forgets_what_hangs_on_a_table(cache: Cache, mariadb: PrivateMariaDB) -> None:
    await cache.fetch_all(READ, (0,))
    mariadb.sql("UPDATE product SET name = 'around' WHERE id = 0", _schema_of(cache))
    assert (await cache.fetch_all(READ, (0,)))[0] == (0, "p0")
    await cache.bump("product")
    assert (await cache.fetch_all(READ, (0,)))[0] == (0, "around")


TRIGGER = "CREATE TRIGGER tr AFTER DELETE ON product FOR EACH ROW INSERT INTO led VALUES (1, NULL)"
LED = "CREATE TABLE led (id INT PRIMARY KEY, of INT"
KEY = f"{LED}, FOREIGN KEY (of) REFERENCES product (id) ON DELETE CASCADE)"


@pytest.mark.parametrize("by", [0, 1])
@pytest.mark.parametrize(
    "defined",
    [(f"{LED})", TRIGGER), (KEY, "INSERT INTO led VALUES (1, 1)")],
    ids=["trigger", "key"],
)
async def test_so_it_does_to_where_it_leads_by_what_was_defined_last(
    pair: tuple[Cache, Cache],
    open_cache: Open,
    memcached: PrivateMemcached,
    mariadb: PrivateMariaDB,
    shop: str,
    defined: tuple[str, str],
    by: int,
) -> None:
    reader = await open_cache(memcached=memcached.address, settings=BY_PATH)
    for statement in defined:
        await pair[by].execute(statement)
    before = await reader.fetch_value("SELECT COUNT(*) FROM led")
    assert await reader.fetch_value("SELECT COUNT(*) FROM led") == before
    mariadb.sql("DELETE FROM product WHERE id = 1", shop)
    await pair[0].bump("product")
    assert await reader.fetch_value("SELECT COUNT(*) FROM led") == 1 - before


async def test_what_it_forgets_for_sure_it_forgets_whatever_mysql_is_up_to(
    pair: tuple[Cache, Cache], mariadb: PrivateMariaDB, shop: str
) -> None:
    product, engine = Tag(shop, "product"), pair[0]._app.engine
    await pair[1].execute("CREATE TABLE other (id INT)")
    before = await engine.versions([product])
    mariadb.freeze()
    try:
        bumped = asyncio.ensure_future(pair[0].bump("product"))
        async with asyncio.timeout(20):
            while await engine.versions([product]) == before:
                await asyncio.sleep(0.01)
        assert not bumped.done()
    finally:
        mariadb.thaw()
    await bumped


async def test_the_end_of_a_ttl_is_no_cliff(
    open_cache: Open, shop: str, mariadb: PrivateMariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reader fetches a hot answer anew before its end, and the others never wait."""
    late_s = 0.0
    node = partial(MemoryNode, clock=lambda: time.monotonic() + late_s)
    monkeypatch.setattr("sqlcache.app.MemoryNode", node)
    cache: Cache = await open_cache(settings={"cache.ttl_s": 100, "cache.near_bytes": 0})
    await cache.fetch_all(READ, (0,))
    before = mariadb.status("Com_select")
    for _ in range(3):
        late_s += 95
        for _ in range(5):
            assert await cache.fetch_all(READ, (0,)) == FIRST
    assert mariadb.status("Com_select") - before == 3
    assert cache.metrics.early_refreshes == 3
    assert (cache.metrics.hits, cache.metrics.lease_waits) == (12, 0)


async def test_a_rule_holds_here_too(open_cache: Open, shop: str) -> None:
    cache: Cache = await open_cache(rules=[{"table": f"{shop}.product", "off": True}])
    await cache.fetch_all(READ, (0,))
    await cache.fetch_all(READ, (0,))
    assert cache.metrics.hits == 0
    assert cache.metrics.bypasses["switched off"] == 2


@pytest.mark.parametrize("mode", ["shadow", "off"])
async def test_without_the_cache_on_each_read_and_call_is_made(
    open_cache: Open, shop: str, mariadb: PrivateMariaDB, mode: str
) -> None:
    cache: Cache = await open_cache(settings={"cache.mode": mode})
    calls = 0

    @cache.cached()
    async def first() -> Any:
        nonlocal calls
        calls += 1
        return await cache.fetch_all(READ, (0,))

    before = mariadb.status("Com_select")
    for _ in range(3):
        assert await cache.fetch_all(READ, (0,)) == await first() == FIRST
    assert (calls, mariadb.status("Com_select") - before) == (3, 6)
    assert (cache.metrics.hits, cache.metrics.function_hits) == (0, 0)
    mariadb.sql("UPDATE product SET name = 'other' WHERE id = 0", shop)
    assert await cache.fetch_one(READ, (0,)) == (0, "other")


async def test_hits_of_the_library_are_not_verified(open_cache: Open, shop: str) -> None:
    cache: Cache = await open_cache(settings={"cache.verify_percent": 100})
    for _ in range(3):
        assert await cache.fetch_all(READ, (0,)) == FIRST
    assert cache.metrics.hits == 2


def _schema_of(cache: Cache) -> str:
    assert cache.context is not None
    assert cache.context.schema is not None
    return cache.context.schema


async def test_answers_are_kept_as_far_as_the_container_has_memory(
    open_cache: Open, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "memory_limit_bytes", lambda: 6_400_000)  # a quarter is left
    cache: Cache = await open_cache()
    for length, hits in ((150_000, 1), (400_000, 1)):
        read = f"SELECT REPEAT('a', {length}) FROM product WHERE id = 0"
        for _ in range(2):
            assert len(await cache.fetch_value(read)) == length
        assert cache.metrics.hits == hits
