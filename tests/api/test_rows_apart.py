"""With `cache.row_tags` what an app reads hangs on rows, and so do its functions' values."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiomysql
import pytest

from sqlcache import MISSING
from sqlcache.api.cache import Cache
from sqlcache.cache.slots import MOST_BUCKETS
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache
from tests.api.conftest import BY_PATH, Open
from tests.conftest import ProxyFactory
from tests.servers import PATIENT

pytestmark = pytest.mark.skipif(
    not PATIENT["proxy__straight_path"], reason="what is written the long way forgets all"
)

DEADLINE_S = 0.5
"""Where a table's log was known for that long, a write forgets but a part of what is told apart."""
_SETTINGS = {
    "cache.row_tags": True,
    "cache.write_deadline_s": DEADLINE_S,
    "upstream.catalog_refresh_s": 3600,
}
ROW_TAGS = {**BY_PATH, **_SETTINGS}
_BY_PROXY = {path.replace(".", "__"): value for path, value in _SETTINGS.items()}
TABLES = (
    "CREATE TABLE t (id INT PRIMARY KEY, k TINYINT, v INT NOT NULL DEFAULT 0, note INT, KEY (k))",
    "CREATE TABLE u (id INT AUTO_INCREMENT PRIMARY KEY, t_id INT, w INT, KEY (t_id))",
)
ROWS = (
    "INSERT INTO t (id, k) VALUES (1, 1), (2, 2), (3, 1), (4, 2), (5, 1)",
    "INSERT INTO u (t_id, w) VALUES (1, 10), (1, 11), (2, 20), (3, 30)",
)
BY_ID, BY_K = "SELECT id, k, v FROM t WHERE id = {}", "SELECT id, v FROM t WHERE k = {} ORDER BY id"
BY_NUMBER, BY_T = "SELECT w FROM u WHERE id = {}", "SELECT w FROM u WHERE t_id = {} ORDER BY id"
ALL_OF_T = "UPDATE t SET v = v WHERE v > 100 OR v < 100"
ALL_OF_U = "UPDATE u SET w = w WHERE w > 100 OR w < 100"
TOLD_APART = ((BY_ID, ALL_OF_T), (BY_K, ALL_OF_T), (BY_NUMBER, ALL_OF_U), (BY_T, ALL_OF_U))


async def tell_apart(cache: Cache, read: str, write: str) -> None:
    """Has answers of a shape forgotten in vain until they are told apart."""
    taken = cache.metrics.slots_taken
    async with asyncio.timeout(60):
        while cache.metrics.slots_taken == taken:
            await cache.execute(write)
            await cache.fetch_all(read.format(1))
    for _ in range(2):  # it knows of that from now on
        await cache.fetch_all(read.format(1))
        await cache.execute(write)


@pytest.fixture
def tables(mariadb: PrivateMariaDB, schema: str) -> str:
    for statement in (*TABLES, *ROWS):
        mariadb.sql(statement, schema)
    return schema


@pytest.fixture
async def apart(open_cache: Open, tables: str, memcached: PrivateMemcached) -> Cache:
    """A cache by which answers from both tables are told apart, each by two columns."""
    cache: Cache = await open_cache(memcached=memcached.address, settings=ROW_TAGS)
    for read, write in TOLD_APART:
        await tell_apart(cache, read, write)
    await asyncio.sleep(1.1 * DEADLINE_S)
    return cache


Function = Callable[..., Awaitable[Any]]
_NAMES = itertools.count()


class Runs:
    """A function of some reads, of which it is told whether it ran."""

    def __init__(self, cache: Cache, body: Function, name: str = "", **options: Any) -> None:
        self.cache, self.runs = cache, 0
        version = name or next(_NAMES)

        @cache.cached(key=lambda *arguments: arguments, version=version, **options)
        async def function(*arguments: int) -> Any:
            self.runs += 1
            return await body(*arguments)

        self.call = function

    async def ran(self, *arguments: int) -> bool:
        """Whether it runs when it is called now."""
        before = self.runs
        await self.call(*arguments)
        return self.runs > before

    async def is_left_by(self, write: str, *arguments: int, by: Any = None) -> None:
        """Returns when the value was still there after the write, as it is where the host is not
        busy."""
        async with asyncio.timeout(60):
            while True:
                while await self.ran(*arguments):
                    pass
                await (by or self.cache).execute(write)
                if not await self.ran(*arguments):
                    return

    async def is_forgotten_by(self, write: str, *arguments: int, by: Any = None) -> None:
        """There is a value, and none when the write has ended. Of that it is known what it does."""
        await (by or self.cache).execute(write)
        async with asyncio.timeout(60):
            while await self.ran(*arguments):
                pass
        await (by or self.cache).execute(write)
        assert await self.call.peek(*arguments) is MISSING, write
        assert await self.ran(*arguments), write


def reading(cache: Cache, *reads: str) -> Function:
    """A function of all these reads, each of which has its arguments in it."""

    async def body(*arguments: int) -> Any:
        found = [await cache.fetch_all(each.format(*arguments)) for each in reads]
        return [[list(row) for row in rows] for rows in found]

    return body


async def test_a_write_to_another_row_leaves_what_was_fetched(apart: Cache) -> None:
    before = apart.metrics.row_writes["rows"]
    for number in range(20):
        await apart.fetch_all(BY_ID.format(1))
        hits = apart.metrics.hits
        await apart.execute(f"UPDATE t SET v = {number} WHERE id = 2")
        assert await apart.fetch_all(BY_ID.format(1)) == [(1, 1, 0)]
        if apart.metrics.hits > hits:
            break
    else:
        pytest.fail("it is forgotten each time")
    assert apart.metrics.row_writes["rows"] > before
    assert await apart.fetch_all(BY_ID.format(2)) == [(2, 2, number)]
    await apart.execute("UPDATE t SET v = 8 WHERE id = 1")
    assert await apart.fetch_all(BY_ID.format(1)) == [(1, 1, 8)]


async def test_so_does_a_transaction_that_writes_others(apart: Cache) -> None:
    runs = Runs(apart, reading(apart, BY_ID))

    class Transactions:
        async def execute(self, write: str) -> None:
            async with apart.transaction() as tx:
                for statement in write.split("; "):
                    await tx.execute(statement)

    both = "UPDATE t SET v = v + 1 WHERE id = 2; INSERT INTO u (t_id, w) VALUES (9, 9)"
    await runs.is_left_by(both, 1, by=Transactions())
    await runs.is_forgotten_by(both, 2, by=Transactions())


async def test_a_value_hangs_on_the_rows_that_its_function_reads(apart: Cache) -> None:
    two = Runs(apart, reading(apart, BY_ID, BY_ID.replace("{}", "3")))
    await two.is_left_by("UPDATE t SET v = v + 1 WHERE id = 2", 1)
    await two.is_left_by("INSERT IGNORE INTO t (id, k) VALUES (77, 1)", 1)
    await two.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 1", 1)
    await two.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 3", 1)
    await two.is_forgotten_by("DELETE FROM t WHERE id = 3", 1)
    await two.is_forgotten_by("INSERT IGNORE INTO t (id, k) VALUES (3, 5)", 1)


async def test_of_one_table_it_may_hang_on_several_slots(apart: Cache) -> None:
    both = Runs(apart, reading(apart, BY_ID, BY_K.replace("{}", "{1}")))
    await both.is_left_by("UPDATE t SET v = v + 1 WHERE id = 4 AND k = 2", 5, 1)
    await both.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 3 AND k = 1", 5, 1)
    await both.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 5 AND k = 1", 5, 1)
    await both.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 4 AND k = 2", 4, 1)
    await both.is_forgotten_by("UPDATE t SET v = v + 1 WHERE k = 1", 4, 1)


async def test_and_on_the_whole_of_it_besides(apart: Cache) -> None:
    both = Runs(apart, reading(apart, BY_ID, "SELECT SUM(v) + 0 FROM t WHERE v > -1"))
    await both.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 2", 1)
    await both.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 1", 1)


async def test_of_several_tables_it_hangs_on_rows_of_each(apart: Cache) -> None:
    joined = "SELECT t.v, u.w FROM t JOIN u ON u.t_id = t.id WHERE t.id = {} ORDER BY u.id"
    for body in (reading(apart, BY_ID, BY_T), reading(apart, joined)):
        runs = Runs(apart, body)
        await runs.is_left_by("UPDATE t SET v = v + 1 WHERE id = 2", 1)
        await runs.is_left_by("UPDATE u SET w = w + 1 WHERE t_id = 2", 1)
        await runs.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 1", 1)
        await runs.is_forgotten_by("UPDATE u SET w = w + 1 WHERE t_id = 1", 1)
        await runs.is_forgotten_by("INSERT INTO u (t_id, w) VALUES (1, 5)", 1)


async def test_a_value_hangs_on_the_rows_of_those_that_it_is_made_of(apart: Cache) -> None:
    row = Runs(apart, reading(apart, BY_ID))
    of_two = Runs(apart, lambda a, b: asyncio.gather(row.call(a), row.call(b)))
    mixed = Runs(apart, lambda a, b: asyncio.gather(row.call(a), apart.fetch_all(BY_T.format(b))))
    for number in (1, 2):
        await row.is_left_by("UPDATE t SET v = v + 1 WHERE id = 5", number)
    for each in (of_two, mixed):  # of values that are stored, and of such that are made anew
        await each.is_left_by("UPDATE t SET v = v + 1 WHERE id = 5", 1, 2)
        await each.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 1", 1, 2)
        await each.is_left_by("UPDATE t SET v = v + 1 WHERE id = 5", 1, 2)
    await of_two.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 2", 1, 2)
    await mixed.is_forgotten_by("UPDATE u SET w = w + 1 WHERE t_id = 2", 1, 2)
    await of_two.call(1, 2)
    await row.call.invalidate(2)
    assert await of_two.call.peek(1, 2) is MISSING


async def test_a_row_that_the_server_numbers_may_come_where_there_was_none(apart: Cache) -> None:
    """It touches no bucket: so what had no row hangs on the table, in a value, too."""
    number = int(await apart.fetch_value("SELECT MAX(id) + 1 FROM u WHERE w > -1"))
    add = "INSERT INTO u (t_id, w) VALUES (7, 70)"
    runs = Runs(apart, reading(apart, BY_NUMBER))
    await runs.is_left_by(add, 1)
    for _ in range(5):
        number = int(await apart.fetch_value("SELECT MAX(id) + 1 FROM u WHERE w > -1"))
        assert await runs.call(number) == [[]]
        await apart.execute(add)
        assert await runs.call(number) == [[[70]]]
    outer = Runs(apart, runs.call)
    number += 1
    assert await outer.call(number) == [[]]
    await apart.execute(add)
    assert await outer.call(number) == [[[70]]]


class Gate:
    """Where a function waits amid its run while it is closed."""

    def __init__(self) -> None:
        self._reached, self._open = asyncio.Event(), asyncio.Event()
        self._open.set()

    async def passed(self) -> None:
        self._reached.set()
        await self._open.wait()

    async def closed_while(self, running: Awaitable[Any], meanwhile: Awaitable[Any]) -> Any:
        """What is run brings, and does not go on before the other has ended."""
        self._reached.clear()
        self._open.clear()
        task = asyncio.ensure_future(running)
        await self._reached.wait()
        await meanwhile
        self._open.set()
        return await task


@pytest.mark.parametrize("first_is_hit", [True, False])
@pytest.mark.parametrize("rows", [(1, 2), (1, 1), (2, 1)])
async def test_a_value_of_which_a_row_was_written_amid_the_run_is_not_kept(
    apart: Cache, rows: tuple[int, int], first_is_hit: bool
) -> None:
    """But where that was another row it is."""
    gate = Gate()

    async def body(*numbers: int) -> list[int]:
        first = await _value(apart, numbers[0])
        await gate.passed()
        return [first, await _value(apart, numbers[1])]

    async def amid(written: int) -> Any:
        """What is kept when this row was written amid the run."""
        await apart.execute("UPDATE t SET v = v + 1 WHERE id = 1 OR id = 2")
        for _ in range(2 * first_is_hit):
            await _value(apart, rows[0])
        await gate.closed_while(runs.call(*rows), apart.execute(write.format(written)))
        return await runs.call.peek(*rows)

    runs = Runs(apart, body)
    write = "UPDATE t SET v = v + 1 WHERE id = {}"
    for number in (1, 4):  # by now it is known what that does
        await apart.execute(write.format(number))
    before = await amid(1)
    values = [await _value(apart, number) for number in rows]
    assert before in (MISSING, values)
    if rows[0] == 1:
        assert before is MISSING
    assert await runs.call(*rows) == values
    async with asyncio.timeout(60):
        while await amid(4) is MISSING:
            pass
    assert await runs.call(*rows) == [await _value(apart, number) for number in rows]


async def test_where_it_pins_too_many_rows_it_hangs_on_the_table(apart: Cache) -> None:
    many = ", ".join(f"({number}, 3)" for number in range(100, 100 + 2 * MOST_BUCKETS))
    await apart.execute(f"INSERT INTO t (id, k) VALUES {many}")

    async def total(first: int, rows: int) -> int:
        numbers = range(first, first + rows)
        return sum([len(await apart.fetch_all(BY_ID.format(each))) for each in numbers])

    runs = Runs(apart, total)
    await runs.is_left_by("UPDATE t SET v = v + 1 WHERE id = 1", 100, MOST_BUCKETS // 2)
    await runs.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 1", 100, 2 * MOST_BUCKETS)
    await runs.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 101", 100, 2 * MOST_BUCKETS)
    assert await runs.call(100, 2 * MOST_BUCKETS) == 2 * MOST_BUCKETS


async def test_one_that_pins_too_many_rows_is_not_kept_where_one_was_written_amid_the_run(
    apart: Cache,
) -> None:
    many = ", ".join(f"({number}, 3)" for number in range(100, 100 + 2 * MOST_BUCKETS))
    await apart.execute(f"INSERT INTO t (id, k) VALUES {many}")
    write = "UPDATE t SET v = v + 1 WHERE id = {}"
    for number in (100, 100):  # by now it is known what that does
        await apart.execute(write.format(number))
    gate = Gate()

    async def total() -> int:
        numbers = range(100, 100 + 2 * MOST_BUCKETS)
        found = sum([await _value(apart, each) for each in numbers])
        await gate.passed()
        return found + await _value(apart, 5)

    runs = Runs(apart, total)
    for _ in range(2):  # when nobody knows on what it hangs, and when that is known
        before = await gate.closed_while(runs.call(), apart.execute(write.format(100)))
        assert await runs.call.peek() is MISSING
        assert await runs.call() == before + 1
        await apart.execute(write.format(100))


async def test_one_from_before_a_slot_hangs_on_the_table_and_the_next_on_rows(
    open_cache: Open, tables: str
) -> None:
    cache: Cache = await open_cache(settings=ROW_TAGS)
    runs = Runs(cache, reading(cache, BY_ID))
    await runs.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 2", 1)
    await tell_apart(cache, BY_ID, ALL_OF_T)
    await runs.call(1)
    await runs.is_left_by("UPDATE t SET v = v + 1 WHERE id = 2", 1)
    await runs.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 1", 1)


async def test_writes_again_and_again_have_a_functions_rows_told_apart(
    open_cache: Open, tables: str
) -> None:
    cache: Cache = await open_cache(settings=ROW_TAGS)
    runs = Runs(cache, reading(cache, BY_ID))
    async with asyncio.timeout(60):
        while not cache.metrics.slots_taken:
            await cache.execute("UPDATE t SET v = v + 1 WHERE id = 2")
            await runs.call(1)
    await runs.is_left_by("UPDATE t SET v = v + 1 WHERE id = 2", 1)


async def test_what_memcached_forgets_is_forgotten(
    apart: Cache, memcached: PrivateMemcached, mariadb: PrivateMariaDB, tables: str
) -> None:
    runs = Runs(apart, reading(apart, BY_ID, BY_K.replace("{}", "1")))
    await runs.is_left_by("UPDATE t SET v = v + 1 WHERE id = 4 AND k = 2", 5)
    mariadb.sql("UPDATE t SET v = 99 WHERE id = 5", tables)
    memcached.flush()
    async with asyncio.timeout(60):
        while (await runs.call(5))[0] != [[5, 1, 99]]:
            await asyncio.sleep(0.05)


async def test_the_last_value_is_given_while_it_is_run_again(apart: Cache) -> None:
    """And what is made of that is not kept."""
    gate = Gate()

    async def body(number: int) -> int:
        value = await _value(apart, number)
        await gate.passed()
        return value

    runs = Runs(apart, body, stale_while_revalidate_s=60)
    outer = Runs(apart, runs.call)

    async def are_given_the_last() -> None:
        assert await runs.call(1) == await outer.call(1) == 0

    await runs.is_left_by("UPDATE t SET v = v + 1 WHERE id = 2", 1)
    await apart.execute("UPDATE t SET v = v + 1 WHERE id = 1")
    assert await gate.closed_while(runs.call(1), are_given_the_last()) == 1
    assert await runs.call(1) == await outer.call(1) == 1


async def test_refresh_and_invalidate_are_of_values_by_rows_as_well(apart: Cache) -> None:
    runs = Runs(apart, reading(apart, BY_ID))
    await runs.is_left_by("UPDATE t SET v = v + 1 WHERE id = 2", 1)
    assert await runs.call.peek(1) == [[[1, 1, 0]]]
    await runs.call.invalidate(1)
    assert await runs.call.peek(1) is MISSING
    before = runs.runs
    assert await runs.call.refresh(1) == [[[1, 1, 0]]]
    assert runs.runs == before + 1
    await apart.bump("t")
    assert await runs.call.peek(1) is MISSING


async def test_tables_that_the_app_names_count_as_a_whole(apart: Cache) -> None:
    runs = Runs(apart, reading(apart, BY_ID), tags=["t"])
    await runs.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 2", 1)


async def test_of_what_it_streams_it_is_not_known_in_time_on_which_rows_it_hangs(
    apart: Cache,
) -> None:
    async def streamed(number: int) -> Any:
        connection = await apart.connection()
        try:
            async with connection.cursor(aiomysql.SSCursor) as cursor:
                await cursor.execute(BY_ID.format(number))
                return await cursor.fetchall()
        finally:
            connection.close()

    runs = Runs(apart, streamed)
    for _ in range(3):
        assert await runs.ran(1)
    whole = Runs(apart, streamed, tags=["t"])
    await whole.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 2", 1)


async def test_another_process_finds_what_hangs_on_rows(
    apart: Cache, open_cache: Open, memcached: PrivateMemcached
) -> None:
    other: Cache = await open_cache(memcached=memcached.address, settings=ROW_TAGS)
    reads = BY_ID, BY_K.replace("{}", "2")
    own, others = (Runs(each, reading(each, *reads), "shared") for each in (apart, other))
    await own.is_left_by("UPDATE t SET v = v + 1 WHERE id = 3 AND k = 1", 1)
    value = await own.call(1)
    assert await others.call.peek(1) == value
    assert not await others.ran(1)
    await others.is_left_by("UPDATE t SET v = v + 1 WHERE id = 3 AND k = 1", 1)
    await own.is_left_by("UPDATE t SET v = v + 1 WHERE id = 3 AND k = 1", 1, by=other)
    await own.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 1", 1, by=other)


async def test_a_rule_has_a_tables_values_forgotten_by_every_write(
    open_cache: Open, tables: str
) -> None:
    rules = [{"table": f"{tables}.t", "row_tags": False}]
    cache: Cache = await open_cache(settings=ROW_TAGS, rules=rules)
    await tell_apart(cache, BY_T, ALL_OF_U)
    runs = Runs(cache, reading(cache, BY_ID, BY_T))
    await runs.is_left_by("UPDATE u SET w = w + 1 WHERE t_id = 2", 1)
    await runs.is_forgotten_by("UPDATE t SET v = v + 1 WHERE id = 2", 1)


async def test_explain_says_what_is_pinned(apart: Cache) -> None:
    read = await apart.explain("SELECT v FROM t WHERE id = %s", (1,))
    assert read.pins == ("id",)
    written = await apart.explain("UPDATE t SET v = 1 WHERE id = %s", (1,))
    assert written.pins == ("id",)


# By chance.


READS = (
    BY_ID,
    BY_K,
    BY_NUMBER,
    BY_T,
    "SELECT COUNT(*), SUM(v) FROM t WHERE k = {}",
    "SELECT v FROM t WHERE id IN ({}, 3) ORDER BY id",
    "SELECT v FROM t WHERE id = {} AND k = 1",
    "SELECT id FROM t WHERE v > {} ORDER BY id",
    "SELECT t.v, u.w FROM t JOIN u ON u.t_id = t.id WHERE t.id = {} ORDER BY u.id",
    "SELECT t.v, u.w FROM u LEFT JOIN t ON u.t_id = t.id WHERE u.t_id = {} ORDER BY u.id",
    "SELECT u.id, t.v FROM u JOIN t ON t.id = u.t_id WHERE u.id = {}",
)
WRITES = (
    "UPDATE t SET v = v + 1 WHERE id = {a}",
    "UPDATE t SET v = v + 1 WHERE id = {a} AND k = {b}",
    "UPDATE t SET v = v + 1 WHERE k = {b}",
    "UPDATE t SET note = {b} WHERE id = {a}",
    "UPDATE t SET k = {b} WHERE id = {a}",
    "UPDATE IGNORE t SET id = {b} WHERE id = {a}",
    "UPDATE t SET v = v + 1 WHERE v BETWEEN 1 AND {a}",
    "DELETE FROM t WHERE id = {a}",
    "INSERT IGNORE INTO t (id, k) VALUES ({a}, {b})",
    "REPLACE INTO t (id, k, v) VALUES ({a}, {b}, 9)",
    "UPDATE u SET w = w + 1 WHERE id = {a}",
    "UPDATE u SET w = w + 1 WHERE t_id = {a}",
    "UPDATE u SET t_id = {b} WHERE id = {a}",
    "INSERT INTO u (t_id, w) VALUES ({a}, 40)",
    "INSERT IGNORE INTO u (id, t_id, w) VALUES ({a}, {b}, 70)",
    "DELETE FROM u WHERE id = {a}",
    "DELETE FROM u WHERE t_id = {a} LIMIT 1",
    "UPDATE t SET v = v + 1 WHERE id = {a}; INSERT INTO u (t_id, w) VALUES ({b}, 1)",
    "DELETE FROM u WHERE id = {a}; UPDATE t SET k = {b} WHERE id = {a}",
)


class Functions:
    """Functions of several reads by one cache, chosen by chance, some of them made of others."""

    def __init__(self, cache: Cache, chance: random.Random, number: int) -> None:
        self.cache = cache
        self.kinds = [tuple(chance.choices(READS, k=chance.randint(1, 3))) for _ in range(number)]
        self.runs = [
            Runs(cache, self._nested(at) if at % 3 == 2 else reading(cache, *self._apart(at)))
            for at in range(number)
        ]

    def _apart(self, at: int) -> tuple[str, ...]:
        return tuple(each.replace("{}", f"{{{n % 2}}}") for n, each in enumerate(self.kinds[at]))

    def _nested(self, at: int) -> Function:
        own = reading(self.cache, *self._apart(at))

        async def body(*arguments: int) -> Any:
            return [await self.runs[at - 1].call(*arguments), await own(*arguments)]

        return body

    def expected(self, at: int, arguments: tuple[int, int], ask: Callable[[str], Any]) -> Any:
        """What the database says."""
        own = [ask(each.format(*arguments)) for each in self._apart(at)]
        return [self.expected(at - 1, arguments, ask), own] if at % 3 == 2 else own


async def _write(cache: Cache, session: aiomysql.Connection, write: str, door: int) -> None:
    """By the library, by the proxy, or in a transaction by either."""
    statements = write.split("; ")
    with suppress(aiomysql.MySQLError):
        if door == 0 and len(statements) == 1:
            await cache.execute(write)
        elif door < 2:
            async with cache.transaction() as tx:
                for each in statements:
                    await tx.execute(each)
        else:
            async with session.cursor() as cursor:
                for each in ("BEGIN", *statements, "COMMIT") if door == 2 else statements:
                    await cursor.execute(each)


async def test_whatever_is_written_no_value_is_out_of_date(
    apart: Cache,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    tables: str,
    seed: int,
) -> None:
    proxied: PrivateSqlcache = proxy(mariadb, memcached, **_BY_PROXY)
    account = {"user": mariadb.user, "password": mariadb.password, "db": tables}
    session = await aiomysql.connect(
        host=proxied.host, port=proxied.port, charset="utf8mb4", autocommit=True, **account
    )
    chance = random.Random(seed)
    functions = Functions(apart, chance, 9)
    calls = [(at, (a, b)) for at in range(9) for a, b in ((1, 2), (2, 3), (4, 4), (6, 1))]
    direct = mariadb.connect(database=tables, autocommit=True)

    def ask(statement: str) -> Any:
        with direct.cursor() as cursor:
            cursor.execute(statement)
            return [list(row) for row in cursor.fetchall()]

    for _ in range(35):
        write = chance.choice(WRITES).format(a=chance.randint(1, 8), b=chance.randint(1, 3))
        await _write(apart, session, write, chance.randrange(4))
        for at, arguments in chance.sample(calls, 18):
            got = await functions.runs[at].call(*arguments)
            assert got == functions.expected(at, arguments, ask), (write, at, arguments)
    direct.close()
    session.close()
    assert apart.metrics.function_hits > 100


async def test_amid_writes_no_value_is_older_than_those_that_had_ended(
    apart: Cache,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    tables: str,
    seed: int,
) -> None:
    """Rows only grow: no value is of less than there was when it was asked for."""
    proxied: PrivateSqlcache = proxy(mariadb, memcached, **_BY_PROXY)
    account = {"user": mariadb.user, "password": mariadb.password, "db": tables}
    session = await aiomysql.connect(
        host=proxied.host, port=proxied.port, charset="utf8mb4", autocommit=True, **account
    )
    chance = random.Random(seed)
    told = dict.fromkeys(range(1, 6), 0)
    one = Runs(apart, lambda a: apart.fetch_value(f"SELECT v FROM t WHERE id = {a}"))
    two = Runs(apart, lambda a, b: asyncio.gather(one.call(a), _value(apart, b)))
    ended = asyncio.Event()

    async def write(by_proxy: bool) -> None:
        writes = 0
        while writes < 120 or apart.metrics.function_hits <= 100:
            writes += 1
            number = chance.randint(1, 5)
            statement = f"UPDATE t SET v = v + 1 WHERE id = {number}"
            if by_proxy:
                async with session.cursor() as cursor:
                    await cursor.execute(statement)
            else:
                await apart.execute(statement)
            told[number] += 1
            await asyncio.sleep(chance.random() / 50)

    async def read() -> None:
        while not ended.is_set():
            a, b = chance.randint(1, 5), chance.randint(1, 5)
            least = told[a], told[b]
            got = await two.call(a, b)
            assert all(value >= each for value, each in zip(got, least, strict=True))
            await asyncio.sleep(0.001)

    readers = [asyncio.create_task(read()) for _ in range(4)]
    try:
        async with asyncio.timeout(60):
            await asyncio.gather(write(True), write(False))
    finally:
        ended.set()
        await asyncio.gather(*readers)
        session.close()


async def _value(cache: Cache, number: int) -> int:
    return int(await cache.fetch_value(f"SELECT v FROM t WHERE id = {number}"))
