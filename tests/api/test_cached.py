"""The decorator: what is kept, under which key, and until when."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import lru_cache, partial, update_wrapper, wraps
from pathlib import Path
from types import MethodType
from typing import Any, get_type_hints

import aiomysql
import pytest
from fastapi import Depends, FastAPI
from httpx import ASGITransport, AsyncClient
from pydantic import BaseModel

import sqlcache
from sqlcache import MISSING
from sqlcache.api.cache import Cache
from sqlcache.api.cached import CachedMethod
from sqlcache.api.transaction import Transaction
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlServer
from sqlcache.errors import UsageError
from sqlcache.plan import meanings
from sqlcache.proxy.embedded_session import EmbeddedSession
from sqlcache.sql.lexer import Lexed, lex
from sqlcache.sql.pieces import Dialect
from tests.api.conftest import BY_PATH, Open, is_run, url_of

READ = "SELECT id, name FROM product WHERE shelf = %s ORDER BY id"


@dataclass
class Product:
    id: int
    name: str


class Shelf(BaseModel):
    number: int
    products: list[Product]


class Counted:
    """A function that is run a known number of times."""

    def __init__(self, cache: Cache, **options: Any) -> None:
        runs = 0

        @cache.cached(**options)
        async def products(shelf: int) -> list[Product]:
            nonlocal runs
            runs += 1
            await asyncio.sleep(0.02)
            return await cache.fetch_all(READ, (shelf,), into=Product)

        self.call = products
        self._counted: Callable[[], int] = lambda: runs

    @property
    def runs(self) -> int:
        return self._counted()

    async def is_forgotten(self) -> None:
        """Waits until there is no value for shelf 0."""
        async with asyncio.timeout(60):
            while await self.call.peek(0) is not MISSING:
                await asyncio.sleep(0.05)


async def test_it_is_run_once_until_what_it_read_changes(cache: Cache) -> None:
    counted = Counted(cache)
    assert (await counted.call(0))[0] == Product(0, "p0")
    assert await counted.call(0) == await counted.call(shelf=0)
    assert counted.runs == 1
    await cache.execute("UPDATE product SET name = 'new' WHERE id = 0")
    assert (await counted.call(0))[0] == Product(0, "new")
    assert counted.runs == 2


async def test_a_write_to_another_table_changes_nothing(cache: Cache) -> None:
    await cache.execute("CREATE TABLE other (id INT)")
    counted = Counted(cache)
    await counted.call(0)
    await cache.execute("INSERT INTO other VALUES (1)")
    await counted.call(0)
    assert counted.runs == 1


async def test_each_arguments_have_a_value_of_their_own(cache: Cache) -> None:
    counted = Counted(cache)
    assert await counted.call(0) != await counted.call(1)
    assert counted.runs == 2


async def test_a_transaction_forgets_it_at_its_commit(cache: Cache) -> None:
    counted = Counted(cache)
    await counted.call(0)
    async with cache.transaction() as tx:
        await tx.execute("UPDATE product SET name = 'new' WHERE id = 0")
        assert (await counted.call(0))[0] == Product(0, "p0")
    assert (await counted.call(0))[0] == Product(0, "new")


async def test_a_thousand_calls_at_once_run_it_once(cache: Cache) -> None:
    counted = Counted(cache)
    got = await asyncio.gather(*(counted.call(0) for _ in range(1000)))
    assert counted.runs == 1
    assert all(value == got[0] for value in got)
    got[0].clear()
    assert got[1]  # each has a value of its own


async def test_that_half_of_them_are_cancelled_changes_nothing_for_the_rest(cache: Cache) -> None:
    counted = Counted(cache)
    calls = [asyncio.ensure_future(counted.call(0)) for _ in range(1000)]
    while not counted.runs:
        await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    got = await asyncio.gather(*calls, return_exceptions=True)
    assert counted.runs == 1
    assert all(isinstance(value, asyncio.CancelledError) for value in got[::2])
    assert all(value == got[1] and isinstance(value, list) for value in got[1::2])


async def test_when_all_are_cancelled_so_is_the_run(cache: Cache) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    @cache.cached(key=lambda: None)
    async def slow() -> int:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return 1

    call = asyncio.ensure_future(slow())
    async with asyncio.timeout(20):
        await began.wait()
    call.cancel()
    await asyncio.wait([call])
    async with asyncio.timeout(20):
        await ended.wait()


async def test_processes_run_it_once_together(pair: tuple[Cache, Cache]) -> None:
    runs = 0

    def decorated(cache: Cache) -> Any:
        @cache.cached(ttl_s=60)
        async def total(shelf: int) -> int:
            nonlocal runs
            runs += 1
            await asyncio.sleep(0.1)
            value: int = await cache.fetch_value("SELECT SUM(id) + 0 FROM product")
            return int(value)

        return total

    first, second = (decorated(cache) for cache in pair)
    assert await asyncio.gather(*(f(1) for f in (first, second) for _ in range(50))) == [45] * 100
    assert runs == 1
    await pair[1].execute("UPDATE product SET id = 100 WHERE id = 9")
    both: list[int] = await asyncio.gather(first(1), second(1))
    assert both == [136, 136]
    assert runs == 2


async def test_the_tags_of_gathered_and_spawned_reads_are_collected(cache: Cache) -> None:
    await cache.execute("CREATE TABLE price (id INT, cents INT)")
    await cache.execute("INSERT INTO price VALUES (0, 5)")

    @cache.cached()
    async def both() -> tuple[int, int]:
        spawned = asyncio.create_task(cache.fetch_value("SELECT cents FROM price WHERE id = 0"))
        names, _ = await asyncio.gather(cache.fetch_all(READ, (0,)), cache.fetch_all(READ, (1,)))
        return len(names), await spawned

    assert await both() == (4, 5)
    await cache.execute("UPDATE price SET cents = 6")
    assert await both() == (4, 6)
    await cache.execute("DELETE FROM product WHERE id = 0")
    assert await both() == (3, 6)


async def test_a_value_hangs_on_what_the_functions_it_calls_read(cache: Cache) -> None:
    inner = Counted(cache)
    products = inner.call

    @cache.cached()
    async def shelf(number: int) -> Shelf:
        return Shelf(number=number, products=await products(number))

    for name in ("one", "two", "three"):
        await cache.execute("UPDATE product SET name = %s WHERE id = 0", (name,))
        assert (await shelf(0)).products[0].name == name
        assert (await shelf(0)).products[0].name == name
    await inner.call.invalidate(0)
    assert await shelf.peek(0) is MISSING


async def test_a_value_hangs_on_the_tables_named_by_the_functions_it_calls(cache: Cache) -> None:
    price = 5

    @cache.cached(tags=["elsewhere"])
    async def inner() -> int:
        return price

    @cache.cached()
    async def outer() -> list[int]:
        return [await inner(), await cache.fetch_value("SELECT id FROM product WHERE id = 1")]

    assert [await outer(), await outer()] == [[5, 1], [5, 1]]
    price = 6
    await cache.bump("elsewhere")
    assert await outer() == [6, 1]


@pytest.mark.parametrize("by", [0, 1])
@pytest.mark.parametrize("before", ["", "CREATE VIEW given AS SELECT 1 AS id"])
async def test_a_view_that_is_named_leads_to_the_tables_of_now(
    pair: tuple[Cache, Cache], before: str, by: int
) -> None:
    price = 5

    @pair[0].cached(tags=["given"], key=lambda: None)
    async def counted() -> int:
        return price

    if before:
        await pair[1].execute(before)
        assert await counted() == 5
    await pair[by].execute("CREATE OR REPLACE VIEW given AS SELECT id FROM product")
    assert [await counted(), await counted()] == [5, 5]
    price = 6
    assert await counted() == 5, "it is not kept"
    await pair[1].execute("UPDATE product SET name = 'other' WHERE id = 1")
    assert await counted() == 6


async def test_tables_may_be_named_where_the_own_schema_is_the_servers(
    open_cache: Open, mariadb: PrivateMariaDB, shop: str
) -> None:
    cache: Cache = await open_cache(url=url_of(mariadb, "information_schema"))
    runs = 0

    @cache.cached(tags=[f"{shop}.product"])
    async def counted() -> int:
        nonlocal runs
        runs += 1
        return runs

    assert [await counted() for _ in range(3)] == [1, 1, 1]


async def test_a_value_is_not_kept_that_was_made_of_another_while_nothing_can_be_cached(
    cache: Cache,
) -> None:
    prices = [1]

    @cache.cached(tags=["product"], key=lambda: None)
    async def price() -> int:
        return prices[-1]

    @cache.cached(key=lambda may: may)
    async def doubled(may: bool) -> int:
        count = await cache.fetch_value("SELECT COUNT(*) FROM other")
        cache._app.planner.hold_up(not may)
        try:
            return int(count) + 2 * await price()
        finally:
            cache._app.planner.hold_up(False)

    await cache.execute("CREATE TABLE other (id INT)")
    for may in (False, True):
        assert await doubled(may) == 2
    assert await doubled.peek(False) is MISSING
    assert await doubled.peek(True) == 2
    prices.append(2)
    await price.invalidate()
    assert [await doubled(may) for may in (False, True)] == [4, 4]


async def test_a_value_hangs_on_what_it_reads_on_a_connection_of_its_own(cache: Cache) -> None:
    connection = await cache.connection()
    await connection.autocommit(True)

    @cache.cached(key=lambda: None)
    async def names() -> list[Any]:
        await cache.fetch_value("SELECT COUNT(*) FROM other")
        async with connection.cursor() as cursor:
            await cursor.execute("SELECT name FROM product WHERE id = 0")
            return [name for (name,) in await cursor.fetchall()]

    await cache.execute("CREATE TABLE other (id INT)")
    assert [await names() for _ in range(3)] == [["p0"]] * 3
    assert await names.peek() == ["p0"]
    await cache.execute("UPDATE product SET name = 'new' WHERE id = 0")
    assert await names() == ["new"]
    connection.close()


async def test_what_only_its_callers_connection_sees_is_for_its_caller_alone(cache: Cache) -> None:
    @cache.cached(key=lambda _: None)
    async def name(connection: Any) -> str:
        async with connection.cursor() as cursor:
            await cursor.execute("SELECT name FROM product WHERE id = 0")
            ((found,),) = await cursor.fetchall()
        return str(found)

    connections = [await cache.connection() for _ in range(3)]
    writer = connections[0]
    async with writer.cursor() as cursor:
        await cursor.execute("UPDATE product SET name = 'mine' WHERE id = 0")
    told = await asyncio.gather(*map(name, connections))
    assert told == ["mine", "p0", "p0"]
    assert await name.peek(writer) in (MISSING, "p0")
    for connection in connections:
        connection.close()


async def test_those_of_whom_each_has_its_own_do_not_wait_for_each_other(cache: Cache) -> None:
    at_once, most = 0, 0

    @cache.cached(key=lambda _: None)
    async def name(connection: Any) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        async with connection.cursor() as cursor:
            await cursor.execute("SELECT name FROM product WHERE id = 0")
            ((found,),) = await cursor.fetchall()
        await asyncio.sleep(0.2)
        at_once -= 1
        return str(found)

    connections = [await cache.connection() for _ in range(4)]
    for number, connection in enumerate(connections):
        async with connection.cursor() as cursor:
            await cursor.execute(f"INSERT INTO product (id, name) VALUES ({100 + number}, 'mine')")
    assert await asyncio.gather(*map(name, connections)) == ["p0"] * 4
    assert most == 3  # all but the first, which none knew to be of its caller alone
    for connection in connections:
        connection.close()


async def test_what_a_function_reads_on_a_connection_of_its_own_is_not_its_callers(
    cache: Cache,
) -> None:
    runs = 0

    @cache.cached(key=lambda _: None)
    async def inner(connection: Any) -> str:
        async with connection.cursor() as cursor:
            await cursor.execute("SELECT name, NOW() FROM product WHERE id = 0")
            ((found, _),) = await cursor.fetchall()
        return str(found)

    @cache.cached()
    async def outer() -> str:
        nonlocal runs
        runs += 1
        connection = await cache.connection()
        try:
            return await inner(connection)
        finally:
            connection.close()

    assert await asyncio.gather(*(outer() for _ in range(3))) == ["p0"] * 3
    assert runs == 1


FAILS_LATE = (
    "SELECT p.id, REPEAT('x', 9000), (SELECT o.id FROM product o WHERE p.id > 5 OR o.id = 1)"
    " FROM product p ORDER BY p.id LIMIT 9"
)


@pytest.mark.parametrize("tags", [(), ("product",)])
@pytest.mark.parametrize("how", ["late row", "second result", "no connection"])
async def test_what_it_makes_of_a_late_error_there_is_not_kept(
    upstream: PrivateSqlServer, schema: str, open_cache: Open, how: str, tags: tuple[str, ...]
) -> None:
    cache: Cache = await open_cache(url=url_of(upstream, schema))
    await cache.execute("CREATE TABLE product (id INT PRIMARY KEY)")
    await cache.executemany("INSERT INTO product VALUES (%s)", [(each,) for each in range(9)])
    connection = await cache.connection()
    await connection.autocommit(True)

    async def late_row() -> None:
        async with connection.cursor(aiomysql.SSCursor) as cursor:
            await cursor.execute(FAILS_LATE)
            while await cursor.fetchone():
                pass

    async def second_result() -> None:
        async with connection.cursor() as cursor:
            await cursor.execute(f"SELECT 1 FROM product; {FAILS_LATE}")
            await cursor.nextset()

    async def no_connection() -> None:
        opened = [connection]
        with closing(upstream.connect()) as owner, owner.cursor() as settings:
            settings.execute("SELECT @@max_connections")
            usual = settings.fetchone()
            settings.execute("SET GLOBAL max_connections = 10")
            try:
                while True:
                    opened.append(await cache.connection())
            finally:
                settings.execute("SET GLOBAL max_connections = %s", usual)
                for each in opened:
                    each.close()

    ways = {"late row": late_row, "second result": second_result, "no connection": no_connection}

    @cache.cached(key=lambda: how, tags=tags)
    async def read() -> bool:
        await cache.fetch_value("SELECT COUNT(*) FROM product")
        try:
            await ways[how]()
        except aiomysql.MySQLError:
            return False
        return True

    assert not await read()
    assert await read.peek() is MISSING
    connection.close()


async def test_nor_may_it_write_on_one(cache: Cache) -> None:
    connection = await cache.connection()

    @cache.cached(key=lambda: None)
    async def writes() -> None:
        async with connection.cursor() as cursor:
            await cursor.execute("DELETE FROM product")

    with pytest.raises(UsageError, match="may not write"):
        await writes()
    connection.close()


async def test_what_it_reads_may_change_from_run_to_run(cache: Cache) -> None:
    await cache.execute("CREATE TABLE a (v INT); CREATE TABLE b (v INT); CREATE TABLE c (v INT)")
    await cache.execute("INSERT INTO a VALUES (0); INSERT INTO b VALUES (1)")
    await cache.execute("INSERT INTO c VALUES (2)")
    runs = 0

    @cache.cached()
    async def either() -> int:
        nonlocal runs
        runs += 1
        table = "c" if await cache.fetch_value("SELECT v FROM a") else "b"
        return int(await cache.fetch_value(f"SELECT v FROM {table}"))

    assert await either() == 1
    await cache.execute("UPDATE a SET v = 1")
    assert [await either(), await either(), runs] == [2, 2, 2]
    await cache.execute("UPDATE b SET v = 10")
    assert [await either(), runs] == [2, 2]
    await cache.execute("UPDATE c SET v = 20")
    assert [await either(), runs] == [20, 3]
    await cache.execute("UPDATE a SET v = 0")
    assert [await either(), await either(), runs] == [10, 10, 4]


async def test_a_value_that_a_write_overtook_is_never_served(cache: Cache) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @cache.cached(key=lambda: None)
    async def name() -> str:
        value = await cache.fetch_value("SELECT name FROM product WHERE id = 0")
        began.set()
        await go_on.wait()
        return str(value)

    first = asyncio.ensure_future(name())
    await began.wait()
    await cache.execute("UPDATE product SET name = 'new' WHERE id = 0")
    second = asyncio.ensure_future(name())
    await asyncio.sleep(0.05)
    go_on.set()
    assert await second == "new"
    assert await first == "p0"
    assert await name() == "new"


async def test_a_value_from_before_and_after_a_write_is_not_kept(cache: Cache) -> None:
    writes = 0
    began = asyncio.Event()

    @cache.cached(key=lambda: None)
    async def twice() -> list[Any]:
        nonlocal writes
        before = await cache.fetch_value("SELECT name FROM product WHERE id = 0")
        if not writes:
            writes += 1
            began.set()
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            await outside
        return [before, await cache.fetch_value("SELECT name FROM product WHERE id = 0 AND 1")]

    async def write() -> None:
        await began.wait()
        await cache.execute("UPDATE product SET name = 'new' WHERE id = 0")

    outside = asyncio.ensure_future(write())
    assert await twice() == ["p0", "new"]
    assert await twice.peek() is MISSING
    assert await twice() == ["new", "new"]


async def test_none_is_kept_and_exceptions_are_not(cache: Cache) -> None:
    runs = 0

    @cache.cached()
    async def name(number: int) -> str | None:
        nonlocal runs
        runs += 1
        value: str | None = await cache.fetch_value(
            "SELECT name FROM product WHERE id = %s", (number,)
        )
        if number < 0:
            raise LookupError(number)
        return value

    assert [await name(77), await name(77), runs] == [None, None, 1]
    assert await name.peek(77) is None
    for _ in range(2):
        with pytest.raises(LookupError):
            await name(-1)
    assert runs == 3


async def test_peek_invalidate_and_refresh(cache: Cache) -> None:
    counted = Counted(cache)
    assert await counted.call.peek(0) is MISSING
    for shelf in range(3):
        await counted.call(shelf)
    assert await counted.call.peek(0) == await counted.call(0)
    await counted.call.invalidate(0)
    assert await counted.call.peek(0) is MISSING
    # Calls share some thousand tags: shelf 0 may have that of one other, but hardly of both.
    assert [await counted.call.peek(shelf) for shelf in (1, 2)] != [MISSING, MISSING]
    assert counted.runs == 3
    assert await counted.call.refresh(0) == await counted.call(0)
    assert counted.runs == 4


async def test_a_value_hangs_on_those_it_peeks_at(cache: Cache) -> None:
    counted = Counted(cache)

    @cache.cached(key=lambda: None)
    async def peeked() -> int | None:
        await cache.fetch_value("SELECT 1 FROM other")
        kept = await counted.call.peek(0)
        return None if kept is MISSING else len(kept)

    await cache.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    assert await peeked() is None
    await counted.call(0)
    assert [await peeked(), await peeked()] == [4, 4]
    assert cache.metrics.function_runs == 3
    await cache.execute("DELETE FROM product WHERE id = 0")
    await counted.call(0)
    assert await peeked() == 3


@pytest.mark.parametrize("session", [{}, {"time_zone": "+01:00"}])
async def test_an_invalidation_reaches_values_under_any_settings(
    open_cache: Open, shop: str, memcached: PrivateMemcached, session: dict[str, Any]
) -> None:
    """Also while its own cache can have no hits, and so no keys."""
    options = {"memcached": memcached.address, "settings": BY_PATH}
    cache, other = await open_cache(**options), await open_cache(**options, session=session)
    counted, others = Counted(cache), Counted(other)
    await counted.call(0)
    assert await counted.call.peek(0) is not MISSING
    other._app.planner.keeper.held_up = True
    assert await others.call.peek(0) is MISSING
    await others.call.invalidate(0)
    await counted.is_forgotten()


async def test_without_a_cache_that_is_open_nothing_can_be_forgotten(
    mariadb: PrivateMariaDB, shop: str
) -> None:
    counted = Counted(sqlcache.connect(url_of(mariadb, shop), memcached="memory"))
    with pytest.raises(UsageError, match="not open"):
        await counted.call.invalidate(0)


async def test_a_value_that_cannot_be_read_any_more_is_none(cache: Cache) -> None:
    """As of another release, whose classes have the same fields and another check of them."""

    class Once(sqlcache.PickleCodec):
        """Reads what it has just written, and nothing else."""

        last = b""

        def encode(self, value: Any) -> bytes:
            self.last = super().encode(value)
            return self.last

        def decode(self, data: bytes) -> Any:
            if data != self.last:
                raise ValueError("it cannot be read")
            return super().decode(data)

    codec = Once(i_trust_everyone_who_can_reach_memcached=True)
    counted = Counted(cache, codec=codec)
    first = await counted.call(0)
    codec.last = b""
    assert await counted.call.peek(0) is MISSING
    assert [await counted.call(0), counted.runs] == [first, 2]
    assert await counted.call.peek(0) == first


async def test_an_invalidation_reaches_other_processes(pair: tuple[Cache, Cache]) -> None:
    value = "old"

    def decorated(cache: Cache) -> Any:
        @cache.cached(tags=["elsewhere"], key=lambda: None)
        async def read_by_other_means() -> str:
            return value

        return read_by_other_means

    first, second = (decorated(cache) for cache in pair)
    assert [await first(), await second()] == ["old", "old"]
    value = "new"
    assert [await first(), await second()] == ["old", "old"]
    await second.invalidate()
    assert [await first(), await second()] == ["new", "new"]
    value = "newest"
    await pair[0].bump("elsewhere")
    assert [await first(), await second()] == ["newest", "newest"]


async def test_a_value_lives_no_longer_than_its_ttl(cache: Cache) -> None:
    counted = Counted(cache, ttl_s=1)
    await counted.call(0)
    await counted.is_forgotten()


async def test_the_last_value_may_do_while_another_runs_it(cache: Cache) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    go_on.set()

    @cache.cached(stale_while_revalidate_s=60, key=lambda: None)
    async def name() -> str:
        began.set()
        await go_on.wait()
        return str(await cache.fetch_value("SELECT name FROM product WHERE id = 0"))

    assert await name() == "p0"
    await cache.execute("UPDATE product SET name = 'new' WHERE id = 0")
    began.clear()
    go_on.clear()
    first = asyncio.ensure_future(name())
    await began.wait()
    assert await name() == "p0"
    go_on.set()
    assert [await first, await name()] == ["new", "new"]


@pytest.mark.parametrize("by", ["one process", "several"])
@pytest.mark.parametrize("what", ["invalidate", "refresh"])
async def test_but_not_one_that_was_forgotten(
    pair: tuple[Cache, Cache], by: str, what: str
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    go_on.set()
    names = ["p0"]

    def named(cache: Cache) -> Any:
        @cache.cached(stale_while_revalidate_s=60, key=lambda: None)
        async def name() -> str:
            read = await cache.fetch_value("SELECT name FROM product WHERE id = 0")
            began.set()
            now = names[-1]
            await go_on.wait()
            return f"{read} {now}"

        return name

    one = named(pair[0])
    other = one if by == "one process" else named(pair[1])
    assert [await one(), await other()] == ["p0 p0", "p0 p0"]
    names.append("new")
    began.clear()
    go_on.clear()
    if what == "invalidate":
        await one.invalidate()
    first = asyncio.ensure_future(one.refresh() if what == "refresh" else one())
    await began.wait()
    second = asyncio.ensure_future(other())
    await asyncio.sleep(0.3)
    go_on.set()
    assert [await first, await second] == ["p0 new", "p0 new"]


async def test_tables_on_several_nodes_are_one_value_s(
    open_cache: Open, shop: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        nodes = [stack.enter_context(PrivateMemcached(tmp_path / str(n))) for n in range(3)]
        cache: Cache = await open_cache(
            memcached=[node.address for node in nodes], settings=BY_PATH
        )
        tables = [f"t{n}" for n in range(6)]
        for table in tables:
            await cache.execute(f"CREATE TABLE {table} (v INT)")
            await cache.execute(f"INSERT INTO {table} VALUES (1)")
        runs = 0

        @cache.cached()
        async def total() -> int:
            nonlocal runs
            runs += 1
            reads = [cache.fetch_value(f"SELECT SUM(v) + 0 FROM {table}") for table in tables]
            return int(sum(await asyncio.gather(*reads)))

        assert [await total(), await total(), runs] == [6, 6, 1]
        for number, table in enumerate(tables, 1):
            await cache.execute(f"UPDATE {table} SET v = 2")
            assert [await total(), await total(), runs] == [6 + number, 6 + number, number + 1]
        await cache.close()


async def test_a_rule_for_a_table_it_reads_bounds_its_life(open_cache: Open, shop: str) -> None:
    cache: Cache = await open_cache(rules=[{"table": f"{shop}.product", "ttl_s": 1}])
    counted = Counted(cache, ttl_s=600)
    await counted.call(0)
    await counted.is_forgotten()


@pytest.mark.parametrize("of", ["function", "table"])
async def test_a_value_lives_no_longer_than_what_it_was_made_of(
    open_cache: Open, shop: str, mariadb: PrivateMariaDB, of: str
) -> None:
    """Changes that nobody tells of are seen when that is over, and not when the next is, too."""
    ttl_s = 10
    cache: Cache = await open_cache(rules=[{"table": f"{shop}.product", "ttl_s": ttl_s}])
    read = "SELECT name FROM product WHERE id = 0"

    @cache.cached(ttl_s=ttl_s)
    async def inner() -> str:
        return str(await cache.fetch_value(read))

    parts: dict[str, Callable[[], Any]] = {
        "function": inner,
        "table": lambda: cache.fetch_value(read),
    }

    @cache.cached(key=lambda: None)
    async def outer() -> str:
        return str(await parts[of]())

    loop = asyncio.get_running_loop()
    for _ in range(2):
        await parts[of]()
    over = loop.time() + ttl_s + 1.3  # memcached counts whole seconds
    await asyncio.sleep(ttl_s / 4)  # long before that
    assert await outer() == "p0"
    assert await outer.peek() == "p0"
    mariadb.sql("UPDATE product SET name = 'new' WHERE id = 0", shop)
    await asyncio.sleep(over - loop.time())
    assert await outer() == "new"


@pytest.mark.parametrize("of", ["function", "table"])
async def test_its_life_counts_from_what_it_read_and_not_from_its_end(
    open_cache: Open, shop: str, mariadb: PrivateMariaDB, of: str
) -> None:
    cache: Cache = await open_cache(rules=[{"table": f"{shop}.product", "ttl_s": 2}])
    rest_s = 2.5

    async def read() -> str:
        return str(await cache.fetch_value("SELECT name FROM product WHERE id = 0"))

    parts: dict[str, Callable[[], Any]] = {"function": cache.cached()(read), "table": read}

    @cache.cached(key=lambda: None)
    async def slow() -> str:
        name = str(await parts[of]())
        await asyncio.sleep(rest_s)
        return name

    assert await slow() == "p0"
    assert await slow.peek() is MISSING
    mariadb.sql("UPDATE product SET name = 'new' WHERE id = 0", shop)
    await asyncio.sleep(1)  # memcached counts whole seconds
    rest_s = 0.5
    async with asyncio.timeout(20):
        while (kept := await slow.peek()) is MISSING:  # as where this took long after all
            assert await slow() == "new"
    assert kept == "new"


async def test_another_version_has_other_values(cache: Cache) -> None:
    def versioned(version: int) -> Any:
        @cache.cached(version=version)
        async def name() -> str:
            read = "SELECT name FROM product WHERE id = 0"
            return f"{version} {await cache.fetch_value(read)}"

        return name

    assert [await versioned(1)(), await versioned(2)(), await versioned(1)()] == [
        "1 p0",
        "2 p0",
        "1 p0",
    ]


async def test_methods_are_cached_by_what_they_are_called_on(cache: Cache) -> None:
    @dataclass(frozen=True)
    class Aisle:
        shelf: int

        @cache.cached()
        async def count(self, above: int) -> int:
            read = "SELECT COUNT(*) FROM product WHERE shelf = %s AND id > %s"
            return int(await cache.fetch_value(read, (self.shelf, above)))

    assert [await Aisle(0).count(5), await Aisle(1).count(5)] == [2, 1]
    assert await Aisle(0).count.peek(5) == 2
    await Aisle(0).count.invalidate(5)
    assert await Aisle(0).count.peek(5) is MISSING
    assert await Aisle(0).count.refresh(5) == 2
    with pytest.raises(AttributeError, match="peak"):
        Aisle(0).count.peak(5)  # type: ignore[attr-defined]


async def test_class_methods_are_cached_by_their_class(cache: Cache) -> None:
    class Aisle:
        shelf = 0

        @classmethod
        @cache.cached()
        async def count(cls, above: int = 0) -> int:
            read = "SELECT COUNT(*) FROM product WHERE shelf = %s AND id > %s"
            return int(await cache.fetch_value(read, (cls.shelf, above)))

    class Other(Aisle):
        shelf = 1

    aisles: list[Any] = [Aisle, Other]
    assert [await each.count(5) for each in aisles] == [2, 1]
    cached = Aisle.__dict__["count"].__func__
    assert await cached.peek(Aisle, 5) == 2
    count: Any = MethodType(cached, Aisle)  # as from Python 3.13 on
    assert await count(5) == 2
    for call in (count.invalidate, count.refresh, count.peek):
        for args in ((5,), ()):
            with pytest.raises(UsageError, match=r"Aisle\.count: give .* the class first"):
                await call(*args)
    await count.invalidate(Aisle, 5)
    assert await cached.peek(Aisle, 5) is MISSING
    assert await cached.peek(Other, 5) == 1


def test_it_is_seen_as_the_function_or_method_that_it_decorates() -> None:
    cache = sqlcache.connect("mysql://a:b@127.0.0.1/d", memcached="memory")

    async def function(self: Any, above: int = 0, *, shelf: int = 1) -> int:
        """Counts."""
        return above

    function.note = "its own"  # type: ignore[attr-defined]
    plain = type("Aisle", (), {"count": function})
    decorated = type("Aisle", (), {"count": cache.cached()(function)})
    one, other = decorated(), decorated()
    pairs: list[tuple[Any, Any]] = [
        (plain.count, decorated.count),  # type: ignore[attr-defined]
        (plain().count, one.count),
    ]
    for original, seen in pairs:
        assert inspect.signature(seen) == inspect.signature(original)
        assert get_type_hints(seen) == get_type_hints(original)
        assert inspect.iscoroutinefunction(seen)
        for name in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__"):
            assert getattr(seen, name) == getattr(original, name), name
        assert (seen.note, seen.__globals__) == ("its own", original.__globals__)
    assert (one.count.__self__, one.count.__func__) == (one, decorated.__dict__["count"])
    assert one.count == one.count != other.count
    assert one.count != one
    assert {one.count: 1}[one.count] == 1


ANY = sqlcache.connect("mysql://a:b@127.0.0.1/d", memcached="memory")


@ANY.cached()
async def anything() -> None:
    """Found by its name."""


@dataclass
class Anything:
    number: int

    @ANY.cached()
    async def method(self) -> int:
        return self.number

    @ANY.cached()
    async def __private(self) -> int:
        return self.number

    @property
    def private(self) -> Any:
        return self.__private

    @classmethod
    @ANY.cached()
    async def of_class(cls) -> None: ...

    @staticmethod
    @ANY.cached()
    async def static() -> None: ...


@pytest.mark.parametrize(
    "again",
    [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))],
    ids=["copied", "copied deeply", "pickled"],
)
def test_it_is_itself_again_where_a_function_is(again: Callable[[Any], Any]) -> None:
    for function in (anything, Anything.method, Anything.static):
        assert again(function) is function
    assert again(Anything.of_class) == Anything.of_class
    method = again(Anything(5).method)
    assert (method.__self__, method.__func__) == (Anything(5), Anything.method)


class _Heir(Anything):
    """Its private method is another one than that of its base."""

    @ANY.cached()
    async def __private(self) -> int:
        return -self.number

    @property
    def own(self) -> Any:
        return self.__private


def test_a_method_is_copied_and_pickled_as_those_are_that_are_not_cached() -> None:
    def pickled(each: Any) -> Any:
        return pickle.loads(pickle.dumps(each))

    made, heir = Anything(5), _Heir(5)
    for method in (made.method, made.private, heir.method, heir.private, heir.own):
        assert copy.copy(method) is method
        for again in (copy.deepcopy, pickled):
            owner, got = again((method.__self__, method))
            assert (owner, got.__func__) == (method.__self__, method.__func__)
            assert got.__self__ is owner
            assert owner is not method.__self__


def test_a_method_that_is_not_made_yet_has_no_function() -> None:
    unmade: Any = CachedMethod.__new__(CachedMethod)
    for name in ("__func__", "anything"):
        with pytest.raises(AttributeError, match="__func__"):
            getattr(unmade, name)


def test_one_that_is_not_where_its_name_says_is_not_pickled() -> None:
    @ANY.cached()
    async def local() -> None: ...

    for function in (local, ANY.cached()(Counted.is_forgotten)):
        assert copy.deepcopy(function) is function
        with pytest.raises((pickle.PicklingError, AttributeError)):
            pickle.dumps(function)


async def test_a_method_serves_where_a_framework_calls_it(cache: Cache) -> None:
    @dataclass(frozen=True)
    class Aisle:
        shelf: int

        @cache.cached()
        async def count(self, above: int) -> int:
            read = "SELECT COUNT(*) FROM product WHERE shelf = %s AND id > %s"
            return int(await cache.fetch_value(read, (self.shelf, above)))

    app = FastAPI()
    app.get("/{above}")(Aisle(0).count)

    @app.get("/twice/{above}")
    async def twice(count: int = Depends(Aisle(0).count)) -> int:
        return 2 * count

    async with AsyncClient(transport=ASGITransport(app), base_url="http://aisle") as client:
        assert [(await client.get(path)).json() for path in ("/5", "/twice/5")] == [2, 4]
    assert await Aisle(0).count.peek(5) == 2


async def test_a_key_function_stands_for_arguments_that_cannot_be_keyed(cache: Cache) -> None:
    class Service:
        @cache.cached(key=lambda self, shelf: shelf)
        async def count(self, shelf: int) -> int:
            read = "SELECT COUNT(*) FROM product WHERE shelf = %s"
            return int(await cache.fetch_value(read, (shelf,)))

    assert await Service().count(0) == 4
    assert await Service().count.peek(0) == 4

    @cache.cached()
    async def refused(service: Service) -> int:
        return 1

    with pytest.raises(UsageError, match="argument 'service' cannot be part of a cache key"):
        await refused(Service())


async def test_a_function_that_writes_is_told_so_before_it_does(cache: Cache) -> None:
    @cache.cached()
    async def writes(how: str) -> int:
        if how == "execute":
            await cache.execute("DELETE FROM product")
        elif how == "executemany":
            await cache.executemany("DELETE FROM product WHERE id = %s", [(1,)])
        elif how == "transaction":
            async with cache.transaction() as tx:
                await tx.execute("DELETE FROM product")
        else:
            await cache.fetch_all("DELETE FROM product")
        return 1

    for how in ("execute", "executemany", "transaction", "fetch"):
        with pytest.raises(UsageError, match="is cached and may not write"):
            await writes(how)
    assert await cache.fetch_value("SELECT COUNT(*) FROM product") == 10


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM product",
        "INSERT INTO product VALUES (99, 'x', 1) RETURNING id",
        "SELECT id FROM product FOR UPDATE",
        "BEGIN",
        "SET GLOBAL long_query_time = 7",
        "SELECT 1; SET GLOBAL long_query_time = 7",
    ],
)
async def test_iterating_is_no_way_around_that(cache: Cache, sql: str) -> None:
    @cache.cached(tags=["product"])
    async def writes() -> list[Any]:
        return [row async for row in cache.iterate(sql)]

    with pytest.raises(UsageError):
        await writes()
    assert await cache.fetch_value("SELECT COUNT(*) FROM product") == 10


async def test_a_function_may_not_set_what_holds_for_others(
    cache: Cache, mariadb: PrivateMariaDB
) -> None:
    @cache.cached(tags=["product"])
    async def sets(sql: str) -> None:
        await cache.fetch_all(sql)

    was = mariadb.sql("SELECT @@GLOBAL.long_query_time")
    for sql in ("SET GLOBAL long_query_time = 7", "SET @@global.long_query_time = 7"):
        with pytest.raises(UsageError, match="is cached and may not write"):
            await sets(sql)
    assert mariadb.sql("SELECT @@GLOBAL.long_query_time") == was


async def test_nor_is_one_that_takes_more_than_a_packet(cache: Cache) -> None:
    @cache.cached(key=lambda: None)
    async def writes() -> int:
        sql = "INSERT INTO product SELECT 99, %s, 1"
        await cache.fetch_all(sql, ("x" * (1 << 24),))
        return 1

    with pytest.raises(UsageError, match="is cached and may not write"):
        await writes()


@pytest.mark.parametrize("how", ["pool", "own"])
async def test_whether_a_long_statement_may_write_is_not_found_out_on_the_event_loop(
    cache: Cache, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_the_loop = []

    def lexed(text: bytes, dialect: Dialect) -> Lexed:
        on_the_loop.append(len(text))
        return lex(text, dialect)

    monkeypatch.setattr(meanings, "lex", lexed)
    connection = await cache.connection()
    sql = f"SELECT COUNT(*) FROM product WHERE id + 1 IN ({','.join(map(str, range(5_000)))})"

    @cache.cached(key=lambda: None)
    async def number() -> Any:
        if how == "pool":
            return await cache.fetch_value(sql)
        async with connection.cursor() as cursor:
            await cursor.execute(sql)
            return (await cursor.fetchall())[0][0]

    assert await number() == 10
    assert max(on_the_loop, default=0) < 1_000
    connection.close()


async def test_a_function_that_uses_its_callers_transaction_is_told_so(cache: Cache) -> None:
    """Its value would hang on nothing that was read there, and hold what is not committed."""

    @cache.cached(key=lambda tx, how: how)
    async def uses(tx: Transaction, how: str) -> Any:
        rows = await cache.fetch_value("SELECT COUNT(*) FROM other")
        match how:
            case "fetch":
                return rows, await tx.fetch_value("SELECT name FROM product WHERE id = 0")
            case "execute":
                await tx.execute("UPDATE product SET name = 'uncommitted'")
            case _:
                await tx.executemany("DELETE FROM product WHERE id = %s", [(1,), (2,)])
        return rows

    await cache.execute("CREATE TABLE other (v INT)")
    async with cache.transaction() as tx:
        await tx.execute("UPDATE product SET name = 'mine' WHERE id = 0")
        for how in ("fetch", "execute", "executemany"):
            with pytest.raises(UsageError, match="may not use a transaction of its caller"):
                await uses(tx, how)
        assert await tx.fetch_value("SELECT name FROM product WHERE id = 0") == "mine"
    assert await cache.fetch_value("SELECT COUNT(*) FROM product WHERE name LIKE 'p%'") == 9


async def test_what_it_leaves_running_may_write(cache: Cache) -> None:
    ended = asyncio.Event()

    @cache.cached(key=lambda: None)
    async def spawns() -> int:
        async def later() -> None:
            await ended.wait()
            await cache.execute("UPDATE product SET name = 'late' WHERE id = 0")

        tasks.append(asyncio.create_task(later()))
        return int(await cache.fetch_value("SELECT COUNT(*) FROM product"))

    tasks: list[asyncio.Task[None]] = []
    assert await spawns() == 10
    ended.set()
    await tasks[0]
    assert await cache.fetch_value("SELECT name FROM product WHERE id = 0") == "late"


def test_what_cannot_be_cached_is_refused_at_its_decoration() -> None:
    cache = sqlcache.connect("mysql://a:b@127.0.0.1/d", memcached="memory")
    decorate: Any = cache.cached()

    def plain() -> int:
        return 1

    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    async def fine() -> int:
        return 1

    for function, why in (
        (plain, "not an async function"),
        (generator, "generator"),
        (async_generator, "generator"),
        (staticmethod(fine), "above @cached"),
        (decorate(fine), "fine is cached already"),
    ):
        with pytest.raises(UsageError, match=why):
            decorate(function)
    assert decorate(fine).__name__ == "fine"


async def test_what_cannot_be_followed_is_not_kept_unless_tables_are_named(cache: Cache) -> None:
    runs = 0

    async def lucky() -> float:
        nonlocal runs
        runs += 1
        return float(await cache.fetch_value("SELECT RAND() FROM product WHERE id = 0"))

    unnamed, named = cache.cached()(lucky), cache.cached(tags=["product"])(lucky)
    assert await unnamed() != await unnamed()
    assert await named() == await named()
    assert runs == 3
    before = await named()
    await cache.execute("UPDATE product SET name = 'x' WHERE id = 0")
    assert await named() != before


SEVERAL = "SELECT (SELECT id FROM product WHERE shelf = 0)"


@pytest.mark.parametrize("by", ["fetch", "function", "impatience"])
async def test_what_it_makes_of_a_failure_is_not_kept(cache: Cache, by: str) -> None:
    @cache.cached()
    async def only(shelf: int) -> int:
        found = await cache.fetch_all("SELECT id FROM product WHERE shelf = %s", (shelf,))
        (row,) = found
        return int(row[0])

    ways: dict[str, Callable[[], Any]] = {
        "fetch": lambda: cache.fetch_value(SEVERAL),
        "function": lambda: only(0),
        "impatience": lambda: asyncio.wait_for(cache.fetch_value("SELECT SLEEP(5)"), 0.1),
    }

    @cache.cached(tags=["other"], key=lambda: None)
    async def tried() -> int:
        await cache.fetch_value("SELECT COUNT(*) FROM other")
        try:
            return int(await ways[by]())
        except (ValueError, TimeoutError, aiomysql.MySQLError):
            return -1

    await cache.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    assert [await tried(), await tried()] == [-1, -1]
    assert await tried.peek() is MISSING
    await cache.execute("DELETE FROM product WHERE id > 0")
    ways["impatience"] = ways["fetch"]
    assert [await tried(), await tried()] == [0, 0]
    assert await tried.peek() == 0


@pytest.mark.parametrize("by", ["connection", "execution", "row"])
async def test_nor_what_it_makes_of_one_of_iterating(
    open_cache: Open, shop: str, mariadb: PrivateMariaDB, by: str
) -> None:
    cache: Cache = await open_cache(pool_size=1, acquire_timeout_s=0.2)
    late = (
        "SELECT id, IF(id < 9, 0, (SELECT id FROM product WHERE id > 0)) FROM product ORDER BY id"
    )
    sql = {"connection": READ % 0, "execution": "SELECT id FROM missing", "row": late}[by]

    @cache.cached(tags=["product"])
    async def count() -> int:
        number = 0
        try:
            async for _ in cache.iterate(sql):
                number += 1
        except (TimeoutError, aiomysql.MySQLError):
            return -1
        return number

    if by == "connection":
        async with cache.transaction():
            assert await count() == -1
    else:
        assert await count() == -1
    assert await count.peek() is MISSING
    sql = "SELECT id FROM product"
    assert await count() == 10
    assert await count.peek() == 10


@pytest.mark.parametrize("by", ["fetch", "function", "connection"])
async def test_what_it_makes_of_a_read_that_it_did_not_wait_for_is_not_kept(
    cache: Cache, by: str
) -> None:
    """As behind a shield, or where it takes what comes first."""

    @cache.cached()
    async def late() -> int:
        return int(await cache.fetch_value("SELECT id + SLEEP(1) FROM product WHERE id = 5"))

    async def on_connection() -> int:
        connection = await cache.connection()
        async with connection.cursor() as cursor:
            await cursor.execute("SELECT id + SLEEP(1) FROM product WHERE id = 5")
            (told,) = await cursor.fetchone()
        connection.close()
        return int(told)

    ways: dict[str, Callable[[], Any]] = {
        "fetch": lambda: cache.fetch_value("SELECT id + SLEEP(1) FROM product WHERE id = 5"),
        "function": late,
        "connection": on_connection,
    }
    patience_s = 0.05
    left: list[asyncio.Future[Any]] = []

    @cache.cached(tags=["other"], key=lambda: None)
    async def tried() -> int:
        await cache.fetch_value("SELECT COUNT(*) FROM other")
        left.append(asyncio.ensure_future(ways[by]()))
        done, _ = await asyncio.wait(left[-1:], timeout=patience_s)
        return int(left[-1].result()) if done else -1

    await cache.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    assert await tried() == -1
    assert await tried.peek() is MISSING
    await asyncio.gather(*left)
    patience_s = 60
    assert [await tried(), await tried()] == [5, 5]
    assert await tried.peek() == 5


async def test_nor_what_it_makes_of_one_of_which_it_is_still_read_whether_it_writes(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is in a thread where it is long."""
    right = EmbeddedSession.may_write
    left: list[asyncio.Future[Any]] = []

    async def may_write(self: EmbeddedSession, text: bytes) -> bool:
        await asyncio.sleep(0.3)
        return await right(self, text)

    @cache.cached(tags=["other"], key=lambda: None)
    async def tried() -> int:
        await cache.fetch_value("SELECT COUNT(*) FROM other")
        monkeypatch.setattr(EmbeddedSession, "may_write", may_write)
        cursor = await connection.cursor()
        left.append(asyncio.ensure_future(cursor.execute("SELECT 5 FROM product")))
        done, _ = await asyncio.wait(left, timeout=0.05)
        monkeypatch.undo()
        return 5 if done else -1

    await cache.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    connection = await cache.connection()
    assert await tried() == -1
    assert await tried.peek() is MISSING
    await asyncio.gather(*left)
    connection.close()


async def test_what_it_makes_of_a_peek_that_it_did_not_wait_for_is_not_kept(cache: Cache) -> None:
    left: list[asyncio.Future[Any]] = []

    @cache.cached()
    async def kept() -> int:
        return int(await cache.fetch_value("SELECT COUNT(*) FROM product"))

    @cache.cached(tags=["product"], key=lambda: None)
    async def tried() -> int:
        left.append(asyncio.ensure_future(kept.peek()))
        await asyncio.sleep(0)
        return int(left[-1].result()) if left[-1].done() else -1

    await kept()
    assert await tried() == -1
    assert await left[-1] != MISSING
    assert await tried.peek() is MISSING


async def test_what_is_read_during_a_write_is_not_kept_even_if_tables_are_named(
    cache: Cache, mariadb: PrivateMariaDB, shop: str
) -> None:
    """The write waits for a row, so that it takes as long as it is to take."""
    read = "SELECT name FROM product WHERE id = 0"

    @cache.cached(tags=["elsewhere"])
    async def name() -> str:
        return str(await cache.fetch_value(read))

    await cache.fetch_value(read)
    with closing(mariadb.connect(database=shop, autocommit=False)) as locker:
        locker.cursor().execute("SELECT name FROM product WHERE id = 0 FOR UPDATE")
        slow = "UPDATE product SET name = 'new' WHERE id = 0"
        write = asyncio.ensure_future(cache.execute(slow))
        async with asyncio.timeout(20):
            while not is_run(mariadb, slow):
                await asyncio.sleep(0.01)
        assert await name() == "p0"
        assert await name.peek() is MISSING
        locker.rollback()
    await write
    assert await name() == "new"
    assert await name.peek() == "new"


async def test_a_function_that_reads_nothing_is_not_kept(cache: Cache) -> None:
    runs = 0

    @cache.cached()
    async def nothing() -> int:
        nonlocal runs
        runs += 1
        return runs

    assert [await nothing(), await nothing()] == [1, 2]


async def test_one_that_calls_itself_forever_is_stopped(cache: Cache) -> None:
    @cache.cached()
    async def again(number: int) -> int:
        return await again(number)

    with pytest.raises(UsageError, match="calls itself"):
        await again(1)


async def test_those_that_wait_for_each_other_are_stopped(cache: Cache) -> None:
    @cache.cached()
    async def follow(number: int) -> int:
        await asyncio.sleep(0.05)
        return await follow((number + 1) % 3)

    async with asyncio.timeout(20):
        got = await asyncio.gather(*map(follow, range(3)), return_exceptions=True)
    assert all(isinstance(each, UsageError) and "calls itself" in str(each) for each in got)
    assert not cache.flights._needs


async def test_who_waits_for_a_value_as_the_cache_is_closed_is_told_so(cache: Cache) -> None:
    began = asyncio.Event()

    @cache.cached(key=lambda: None)
    async def slow() -> int:
        began.set()
        await asyncio.sleep(60)
        return 1

    call = asyncio.ensure_future(slow())
    async with asyncio.timeout(20):
        await began.wait()
    await cache.close()
    with pytest.raises(UsageError, match="closed"):
        await call


async def test_one_that_calls_itself_with_other_arguments_is_fine(cache: Cache) -> None:
    @cache.cached()
    async def up_to(number: int) -> int:
        found = await cache.fetch_value("SELECT id FROM product WHERE id = %s", (number,))
        return int(found) + (await up_to(number - 1) if number else 0)

    assert await up_to(4) == 10
    assert await up_to.peek(2) == 3


async def test_without_a_store_it_still_runs_one_at_a_time(
    open_cache: Open, shop: str, memcached: PrivateMemcached
) -> None:
    cache: Cache = await open_cache(memcached=memcached.address)
    counted = Counted(cache)
    memcached.kill()
    got = await asyncio.gather(*(counted.call(0) for _ in range(300)))
    assert all(value == got[0] for value in got)
    assert counted.runs <= 2


async def test_before_the_cache_is_open_it_is_the_plain_function(
    mariadb: PrivateMariaDB, shop: str
) -> None:
    cache = sqlcache.connect(url_of(mariadb, shop), memcached="memory")

    @cache.cached()
    async def double(number: int) -> int:
        return 2 * number

    assert await double(4) == 8
    async with cache:
        assert await double(4) == 8


async def test_a_definition_that_changes_forgets_it(cache: Cache) -> None:
    await cache.execute("CREATE VIEW seen AS SELECT name FROM product WHERE id = 0")

    @cache.cached()
    async def name() -> str:
        return str(await cache.fetch_value("SELECT name FROM seen"))

    assert [await name(), await name()] == ["p0", "p0"]
    await cache.execute("CREATE OR REPLACE VIEW seen AS SELECT name FROM product WHERE id = 1")
    assert [await name(), await name()] == ["p1", "p1"]
    await cache.execute("UPDATE product SET name = 'new' WHERE id = 1")
    assert await name() == "new"


# --- what a function captures -------------------------------------------------------------------


def said(*args: Any, **kwargs: Any) -> int:
    return len(args)


class Scaled:
    """Calls a function in a way of its own."""

    def __init__(self, function: Any, factor: int) -> None:
        update_wrapper(self, function)
        self.factor = factor
        self.me = self

    def __call__(self, value: int) -> int:
        return int(self.__wrapped__(value)) * self.factor  # type: ignore[attr-defined]


def negative(value: int, plus: int = 0) -> int:
    return plus - value


def with_name_of(function: Any, wrapper: Any) -> Any:
    return update_wrapper(wrapper, function)


def reader(cache: Cache, least: Any, *, key: Any = None) -> Any:
    @cache.cached(key=key)
    async def above() -> int:
        rows = await cache.fetch_all("SELECT id FROM product WHERE id >= %s", (int(least),))
        return len(rows)

    return above


async def test_what_a_closure_captures_is_part_of_its_key(cache: Cache) -> None:
    assert [await reader(cache, 100)(), await reader(cache, 0)()] == [0, 10]
    assert [await reader(cache, 9)(), await reader(cache, 9.0)()] == [1, 1]
    assert cache.metrics.function_runs == 4
    await reader(cache, 100)()
    assert cache.metrics.function_runs == 4


async def test_a_variable_around_it_may_change(cache: Cache) -> None:
    least = 100

    @cache.cached()
    async def above() -> int:
        return len(await cache.fetch_all("SELECT id FROM product WHERE id >= %s", (least,)))

    assert await above() == 0
    least = 0
    assert await above() == 10
    least = 100
    assert [await above(), cache.metrics.function_runs] == [0, 2]


async def test_a_variable_around_it_may_be_no_more(cache: Cache) -> None:
    least = 100

    @cache.cached()
    async def above() -> int:
        return len(await cache.fetch_all("SELECT id FROM product WHERE id >= %s", (least,)))  # noqa: F821

    assert await above() == 0
    del least
    with pytest.raises(NameError, match="least"):
        await above()


async def test_a_variable_of_a_function_in_it_is_not_the_one_around_it(cache: Cache) -> None:
    def reading(least: int) -> Any:
        @cache.cached()
        async def above() -> int:
            def other() -> Callable[[], int]:
                least = 5
                return lambda: least

            sql = "SELECT id FROM product WHERE id >= %s AND id <> %s"
            return len(await cache.fetch_all(sql, (least, other()())))

        return above

    assert [await reading(0)(), await reading(9)()] == [9, 1]


async def test_classes_of_one_name_that_are_not_alike_have_values_of_their_own(
    cache: Cache,
) -> None:
    runs = 0

    def reading(least: int) -> Any:
        class Table:
            count = f"SELECT COUNT(*) FROM product WHERE id > {least}"

        @cache.cached()
        async def counted() -> int:
            nonlocal runs
            runs += 1
            return int(await cache.fetch_value(Table.count))

        return counted

    of_all, of_less = await reading(0)(), await reading(5)()
    assert of_all == of_less + 5
    assert [await reading(0)(), await reading(5)(), runs] == [of_all, of_less, 2]


async def test_what_it_captures_and_cannot_be_compared_is_refused(cache: Cache) -> None:
    class Least:
        def __int__(self) -> int:
            return 3

    with pytest.raises(UsageError, match=r"above: what it captures as 'least' cannot be part"):
        await reader(cache, Least())()
    assert await reader(cache, Least(), key=lambda: 3)() == 7


async def test_functions_of_one_name_have_values_of_their_own(cache: Cache) -> None:
    made = []
    for least in (0, 5):

        @cache.cached()
        async def above(least: int = least) -> int:
            return len(await cache.fetch_all("SELECT id FROM product WHERE id >= %s", (least,)))

        made.append(above)
    first = above

    @cache.cached()  # type: ignore[no-redef]
    async def above(least: int = 5) -> int:
        return -len(await cache.fetch_all("SELECT id FROM product WHERE id >= %s", (least,)))

    assert [await each() for each in (*made, first, above)] == [10, 5, 5, -5]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda n: n + 1, lambda n: n + 2),
        (lambda n, by=1: n + by, lambda n, by=2: n + by),
        (lambda n: type(n) is int, lambda *n: type(n) is int),
        (int, abs),
        (partial(max, 1), partial(max, 2)),
        (partial(said, "of", "by"), partial(said, of="by")),
        ((1).__add__, (2).__add__),
        (Scaled(negative, 2), Scaled(negative, 3)),
        (Scaled(negative, 2).__call__, Scaled(negative, 3).__call__),
        (Scaled(lambda n: n, 2), Scaled(lambda n: n + 1, 2)),
        *[[with_name_of(negative, partial(negative, plus=plus)) for plus in (1, 2)]],
    ],
    ids=[
        *("lambdas of one name", "defaults", "one or all arguments"),
        *("builtins", "partials", "named or not", "methods"),
        *(
            "wrappers",
            "methods of wrappers",
            "wrapped functions",
            "partials named as what they call",
        ),
    ],
)
async def test_functions_that_it_captures_are_told_apart(
    cache: Cache, one: Any, other: Any
) -> None:
    def reading(change: Any) -> Any:
        @cache.cached()
        async def changed() -> int:
            return int(change(-(await cache.fetch_value("SELECT COUNT(*) FROM product"))))

        return changed

    expected = [int(one(-10)), int(other(-10))]
    assert [await reading(one)(), await reading(other)()] == expected
    await reading(one)()
    assert cache.metrics.function_runs == 2


async def test_what_it_calls_by_a_wrapper_that_has_no_value_is_refused(cache: Cache) -> None:
    with pytest.raises(UsageError, match="'factor' of what it calls cannot be part of"):
        await reader(cache, Scaled(negative, object()))()  # type: ignore[arg-type]


def loading_by(cache: Cache, helper: Any, shelf: Any) -> Any:
    """A cached function that goes by the shelf of what it captures."""
    helper.shelf = shelf

    @cache.cached()
    async def load() -> list[Any]:
        return list(await cache.fetch_all(READ, (helper.shelf,)))

    return load


def by_helper(cache: Cache, shelf: Any) -> Any:
    def helper() -> None: ...

    return loading_by(cache, helper, shelf)


def by_lru_cache(cache: Cache, shelf: Any) -> Any:
    @lru_cache
    def helper() -> None: ...

    return loading_by(cache, helper, shelf)


def by_partial(cache: Cache, shelf: Any) -> Any:
    helper = partial(negative, 1)
    return loading_by(cache, helper, shelf)


def by_what_was_copied(cache: Cache, shelf: Any) -> Any:
    async def read(shelf: int) -> list[Any]:
        return list(await cache.fetch_all(READ, (shelf,)))

    read.shelf = shelf  # type: ignore[attr-defined]
    scaled: Any = Scaled(read, 1)

    @cache.cached()
    async def load() -> list[Any]:
        return list(await scaled.__wrapped__(scaled.shelf))

    return load


def by_its_own(cache: Cache, shelf: Any) -> Any:
    async def load() -> list[Any]:
        return list(await cache.fetch_all(READ, (load.shelf,)))  # type: ignore[attr-defined]

    load.shelf = shelf  # type: ignore[attr-defined]
    return cache.cached()(load)


def by_its_own_from_above(cache: Cache, shelf: Any) -> Any:
    @cache.cached()
    async def load() -> list[Any]:
        return list(await cache.fetch_all(READ, (load.shelf,)))  # type: ignore[attr-defined]

    load.shelf = shelf  # type: ignore[attr-defined]
    return load


def by_what_it_wraps(cache: Cache, shelf: Any) -> Any:
    async def read() -> list[Any]:
        return list(await cache.fetch_all(READ, (shelf,)))

    async def load() -> list[Any]:
        return list(await load.__wrapped__())  # type: ignore[attr-defined]

    return cache.cached()(update_wrapper(load, read))


def by_class(cache: Cache, shelf: Any) -> Any:
    class Repo:
        @staticmethod
        def first() -> int:
            return 1

        first.__func__.shelf = shelf  # type: ignore[attr-defined]

    @cache.cached()
    async def load() -> list[Any]:
        return list(await cache.fetch_all(READ, (Repo.first.shelf,)))  # type: ignore[attr-defined]

    return load


class Basket:
    shelf = 0


def by_what_others_have_too(cache: Cache, shelf: Any) -> Any:
    """It sets an attribute of this name, and not its own."""

    async def load() -> list[Any]:
        basket = Basket()
        basket.shelf = 5
        basket.shelf += 1
        return list(await cache.fetch_all(READ, (load.shelf,)))  # type: ignore[attr-defined]

    load.shelf = shelf  # type: ignore[attr-defined]
    return cache.cached()(load)


def by_helper_that_sets(cache: Cache, shelf: Any) -> Any:
    def helper(basket: Any) -> Any:
        def inside(helper: Any) -> None:
            helper.shelf = 5

        inside(basket)
        basket.helper = basket
        basket.helper.shelf = 6
        return helper.shelf  # type: ignore[attr-defined]

    helper.shelf = shelf  # type: ignore[attr-defined]

    @cache.cached()
    async def load() -> list[Any]:
        return list(await cache.fetch_all(READ, (helper(Basket()),)))

    return load


@pytest.mark.parametrize(
    "make",
    [
        *(by_helper, by_lru_cache, by_partial, by_what_was_copied, by_its_own),
        *(by_its_own_from_above, by_what_it_wraps, by_class),
        *(by_what_others_have_too, by_helper_that_sets),
    ],
)
async def test_the_attributes_of_functions_count(cache: Cache, make: Callable[..., Any]) -> None:
    made = [make(cache, shelf) for shelf in (0, 1, 0)]
    assert [len(await load()) for load in made] == [4, 3, 4]
    assert cache.metrics.function_runs == 2
    if make is not by_what_it_wraps:
        with pytest.raises(UsageError, match=r"cannot be part of a cache key: .*a object has no"):
            await make(cache, object())()


async def test_an_attribute_may_be_given_at_any_time(cache: Cache) -> None:
    load = by_its_own_from_above(cache, 0)
    assert len(await load()) == 4
    load.shelf = 1
    assert [len(await load()), cache.metrics.function_runs] == [3, 2]


async def test_an_attribute_that_a_function_sets_itself_is_what_it_brings_about(
    cache: Cache,
) -> None:
    """As that of a decorator that counts."""

    def counted(function: Any) -> Any:
        @wraps(function)
        async def counting() -> Any:
            counting.calls += 1  # type: ignore[attr-defined]
            return await function()

        counting.calls = 0  # type: ignore[attr-defined]
        return counting

    @counted
    async def load() -> int:
        return int(await cache.fetch_value("SELECT COUNT(*) FROM product"))

    cached = cache.cached()(load)
    assert [await cached(), await cached(), load.calls] == [10, 10, 1]


class Counting:
    runs = 0

    @staticmethod
    async def names() -> list[Any]:
        Counting.names.runs += 1  # type: ignore[attr-defined]
        Counting.names.last = 5  # type: ignore[attr-defined]
        return []


async def counts_inside() -> list[Any]:
    def count(n: int) -> None:
        counts_inside.runs, counts_inside.last = (  # type: ignore[attr-defined]
            counts_inside.runs + (n if n else 0),  # type: ignore[attr-defined]
            n,
        )

    count(1)
    return []


@pytest.mark.parametrize("counts", [Counting.names, counts_inside])
async def test_it_may_set_it_by_its_class_and_in_a_function_of_its_own(
    cache: Cache, counts: Any
) -> None:
    counts.runs = 0
    load = cache.cached(tags=["counts"])(counts)
    assert [await load(), await load(), counts.runs] == [[], [], 1]


async def test_marks_by_which_others_see_what_a_function_is_are_no_part_of_its_key(
    cache: Cache,
) -> None:
    async def load() -> int:
        return int(await cache.fetch_value("SELECT COUNT(*) FROM product"))

    marked: Any = load
    marked._is_coroutine, marked._is_coroutine_marker = object(), object()
    marked.__signature__ = inspect.signature(load)
    assert await cache.cached()(load)() == 10


class Proxy:
    """Says that it is the function it calls, as a wrapper of wrapt's does."""

    def __init__(self, function: Any, wrapper: Any) -> None:
        self.__wrapped__ = function
        self._self_wrapper = wrapper
        self._self_instance = None
        self._self_enabled = None

    def __call__(self, *args: Any) -> Any:
        return self._self_wrapper(self.__wrapped__, None, args, {})

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.__wrapped__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)


async def test_what_calls_itself_a_function_counts_as_what_it_is(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reading(plus: int) -> Any:
        async def changed(function: Any, instance: Any, args: Any, kwargs: Any) -> int:
            return int(await function(*args)) + plus

        async def load() -> int:
            return int(await cache.fetch_value("SELECT COUNT(*) FROM product"))

        return cache.cached()(Proxy(load, changed))

    with pytest.raises(UsageError, match="a Proxy has no value"):
        await reading(1)()
    monkeypatch.setattr(Proxy, "__module__", "wrapt")
    assert [await reading(1)(), await reading(2)(), await reading(1)()] == [11, 12, 11]
    assert cache.metrics.function_runs == 2


async def test_a_bound_method_is_its_objects(cache: Cache) -> None:
    @dataclass
    class Shop:
        shelf: int

        async def count(self) -> int:
            return len(await cache.fetch_all(READ, (self.shelf,)))

    assert [await cache.cached()(Shop(shelf).count)() for shelf in (0, 7, 0)] == [4, 0, 4]
    assert cache.metrics.function_runs == 2


async def test_methods_of_classes_of_one_name_have_values_of_their_own(cache: Cache) -> None:
    def products(operator: str) -> Any:
        @dataclass
        class Products:
            number: int

            @property
            def where(self) -> str:
                return f"id {operator} {self.number}"

            @cache.cached()
            async def count(self) -> int:
                return int(
                    await cache.fetch_value("SELECT COUNT(*) FROM product WHERE " + self.where)
                )

        return Products(5)

    assert [await products(operator).count() for operator in ("<", ">", "<")] == [5, 4, 5]
    assert cache.metrics.function_runs == 2


async def test_functions_that_capture_each_other_and_themselves_have_keys(cache: Cache) -> None:
    async def names(shelf: int) -> list[str]:
        return [name async for name in walk(shelf)]

    async def walk(shelf: int) -> Any:
        for row in await cache.fetch_all(READ, (shelf,)):
            yield row[1]
        if shelf:
            for name in await names(shelf - 1):
                yield name

    @cache.cached()
    async def all_names(shelf: int) -> list[str]:
        return await names(shelf)

    assert len(await all_names(2)) == 10
    await all_names(2)
    assert cache.metrics.function_runs == 1


async def test_another_cache_that_it_captures_is_refused(pair: tuple[Cache, Cache]) -> None:
    """It may be another database's."""
    one, other = pair

    @one.cached()
    async def total() -> Any:
        return await other.fetch_value("SELECT COUNT(*) FROM product")

    with pytest.raises(UsageError, match="'other'"):
        await total()
