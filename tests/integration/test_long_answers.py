"""Answers that MySQL sends in parts: those that a plan passes on, or that are stored meanwhile."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from sqlcache.demo.servers import (
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
    wait_until,
)
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import NEW, OLD, RawClient

ROWS = 3_000
_CLIENTS = {"with EOF packets": OLD, "without": NEW}

# With a row's number for `{id}`, from which on it is as the statement says.
PASSED = {
    "rows": "SELECT SQL_NO_CACHE id, c FROM t WHERE id <> {id}",
    "no rows at first": "SELECT SQL_NO_CACHE id, c FROM t WHERE id > {id}",
    "an error amid them": (
        "SELECT SQL_NO_CACHE id, c, (SELECT 1 FROM two WHERE n <= IF(t.id < {id}, 1, 2)) FROM t"
    ),
    "warnings": "SELECT SQL_NO_CACHE id, c, IF(id > {id}, 1, CAST(c AS SIGNED)) FROM t",
    "one long row": "SELECT SQL_NO_CACHE REPEAT(c, 5000), {id} FROM t WHERE id = 7",
    "a long row among others": (
        "SELECT SQL_NO_CACHE id, IF(id = {id}, REPEAT(c, 3000), c) FROM t WHERE id < 3000"
    ),
    "many columns": f"SELECT SQL_NO_CACHE {', '.join(['c'] * 300)} FROM t WHERE id < 50 + {{id}}",
    "several answers": "SELECT id, c FROM t WHERE id > {id}; SELECT id, c FROM t",
}
# Not so long that a client on a busy machine is slow to take it, which goes the long way; and
# MySQL warns of SQL_NO_CACHE.
SHORTER = "SELECT id, c FROM t WHERE id <> {id} AND id < 700 AND CONNECTION_ID() > 0"
BEHIND = ("SHOW WARNINGS", "SELECT FOUND_ROWS()", "SELECT @@error_count")


@pytest.fixture
def relay(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
) -> PrivateSqlcache:
    return proxy(upstream, memcached, upstream__catalog_refresh_s=3600)


@pytest.fixture
def tables(upstream: PrivateSqlServer, schema: str) -> str:
    """The schema, with a long table."""
    upstream.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, c CHAR(119) NOT NULL) CHARACTER SET latin1;"
        " CREATE TABLE two (n INT); INSERT INTO two VALUES (1), (2); CREATE TABLE notes (n INT);"
        " INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
        " WHERE i < 1000) SELECT i, REPEAT(CHAR(97 + i % 26), 119) FROM n;"
        " INSERT INTO t SELECT id + 1000, c FROM t; INSERT INTO t SELECT id + 2000, c FROM t"
        " WHERE id <= 1000; ANALYZE TABLE t",
        schema,
    )
    return schema


@pytest.fixture(params=_CLIENTS)
def both(
    request: pytest.FixtureRequest, upstream: PrivateSqlServer, relay: PrivateSqlcache, tables: str
) -> Iterator[tuple[RawClient, RawClient]]:
    """A session with the server, and one through sqlcache."""
    upstream.connect().close()  # it remembers the password now
    account = upstream.user, upstream.password, tables, _CLIENTS[request.param]
    with ExitStack() as stack:
        direct, through = (
            stack.enter_context(RawClient.logged_in(server, *account))
            for server in (upstream, relay)
        )
        for client in (direct, through):  # who reads slowly on a busy machine is not told so
            client.sql("SET SESSION long_query_time = 3600")
        yield direct, through


def planned(relay: PrivateSqlcache) -> float:
    """How many statements MySQL has answered by plans: a client's own, and what marks the ends."""
    return relay.metrics()["sqlcache_statements_planned_total"]


def answer(client: RawClient, command: bytes) -> bytes:
    """What comes back for a command that comes alone: only such a one goes by its plan."""
    client.command(command)
    client.wait_for_bytes()
    client.send(client.sentinel())
    return client.read_to_sentinel()


def same(both: tuple[RawClient, RawClient], statement: str) -> bytes:
    """What both are answered, which is the same."""
    expected, got = (answer(client, b"\x03" + statement.encode()) for client in both)
    assert got == expected, statement
    return got


@pytest.mark.parametrize("begins", ["", "BEGIN", "SET SESSION sql_select_limit = 2500"])
def test_what_is_passed_on_is_what_the_server_says(
    both: tuple[RawClient, RawClient], begins: str
) -> None:
    for passed in PASSED.values():  # each has a plan of its own
        for number in (1500, 1501, 2900, 1):
            if begins:
                same(both, begins)
            for each in (
                passed.format(id=number),
                *BEHIND,
                "INSERT INTO notes VALUES (1)",
                *BEHIND,
            ):
                same(both, each)
            if begins == "BEGIN":
                same(both, passed.format(id=number))
                same(both, "ROLLBACK")


def test_one_that_comes_in_parts_goes_by_its_plan(
    both: tuple[RawClient, RawClient], relay: PrivateSqlcache
) -> None:
    for number in range(3):
        same(both, SHORTER.format(id=number))
    before = planned(relay)
    for number in range(10, 20):
        assert len(same(both, SHORTER.format(id=number))) > 80_000
    assert planned(relay) - before >= 20


def execute(client: RawClient, number: int, value: int) -> bytes:
    head = struct.pack("<BIBI", 0x17, number, 0, 1)
    return answer(client, head + b"\x00\x01\x08\x00" + struct.pack("<q", value))


def test_executions_are_told_of_other_columns_as_by_the_server(
    both: tuple[RawClient, RawClient],
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    tables: str,
) -> None:
    text = b"SELECT SQL_NO_CACHE * FROM t WHERE id <> ? AND id < 700"
    prepared = [client.ask(b"\x16" + text) for client in both]
    numbers = [struct.unpack_from("<I", each, 5)[0] for each in prepared]

    def same_executions(value: int) -> None:
        got = [execute(each, number, value) for each, number in zip(both, numbers, strict=True)]
        assert got[0] == got[1]
        assert len(got[0]) > 80_000

    for value in range(5):
        same_executions(value)
    before = planned(relay)
    for value in range(5, 10):
        same_executions(value)
    assert planned(relay) - before >= 10
    for change in ("ADD COLUMN d INT", "DROP COLUMN d"):
        upstream.sql(f"ALTER TABLE t {change}", tables)
        for value in range(3):
            same_executions(value)


def test_a_miss_that_comes_in_parts_is_stored(
    both: tuple[RawClient, RawClient], relay: PrivateSqlcache
) -> None:
    def hits() -> float:
        return relay.metrics()["sqlcache_hits_total"]

    read = "SELECT id, c FROM t WHERE id > {id} AND id < 700"
    for number in range(5):
        same(both, read.format(id=number))
    before, had = planned(relay), hits()
    for number in range(10, 20):
        same(both, read.format(id=number))
    assert planned(relay) - before >= 20
    assert hits() == had
    for number in range(10, 20):
        same(both, read.format(id=number))
    assert hits() - had == 10
    both[1].sql("UPDATE t SET c = 'new' WHERE id = 500")
    assert b"new" in same(both, read.format(id=15))


def test_one_too_long_to_be_stored_is_passed_on(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory, tables: str
) -> None:
    relay = proxy(upstream, memcached, cache__max_entry_bytes=100_000)
    upstream.connect().close()
    account = upstream.user, upstream.password, tables
    with RawClient.logged_in(relay, *account) as client:
        direct = RawClient.logged_in(upstream, *account)
        for number in range(12):
            same((direct, client), f"SELECT id, c FROM t WHERE id > {number}")
            same((direct, client), f"SELECT id, c FROM t WHERE id > {number}")
        direct.close()
        assert relay.metrics()["sqlcache_hits_total"] == 0


def test_a_client_that_does_not_read_makes_nothing_pile_up(
    both: tuple[RawClient, RawClient], relay: PrivateSqlcache
) -> None:
    """As it reads on, it has all of it."""
    read = "SELECT SQL_NO_CACHE a.id, b.c FROM t a, t b WHERE b.id <= 100 AND a.id > {id}"
    for number in range(ROWS - 3, ROWS):
        same(both, read.format(id=number))
    direct, through = both
    expected = direct.sql(read.format(id=5))
    assert len(expected) > 30_000_000
    before = relay.metrics()["process_resident_memory_bytes"]
    sentinel = through.sentinel()
    through.query(read.format(id=5))
    sent = 0.0
    while (now := relay.metrics()["sqlcache_bytes_to_clients_total"]) != sent:
        sent = now
    assert relay.metrics()["process_resident_memory_bytes"] - before < 10_000_000
    through.send(sentinel)
    assert through.read_to_sentinel() == expected


def is_running(upstream: PrivateSqlServer, words: str, state: str = "") -> bool:
    """Whether a statement with these words is, and in this state."""
    processes = upstream.sql("SHOW FULL PROCESSLIST")
    return any(words in str(row[7]) and state in str(row[6]) for row in processes)


@pytest.mark.parametrize("stores", [False, True], ids=["passed", "stored"])
def test_a_client_that_leaves_amid_one_takes_its_query_along(
    both: tuple[RawClient, RawClient],
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    stores: bool,
) -> None:
    kind = "" if stores else "SQL_NO_CACHE"
    read = f"SELECT {kind} a.id, b.c, b.id FROM t a, t b, t d WHERE a.id > {{id}} AND a.id < 9"
    _, through = both
    for number in range(9, 12):
        same(both, read.format(id=number))
    through.query(read.format(id=1))
    through.read_bytes(200_000)
    through.reset()
    wait_until(lambda: not is_running(upstream, "t a, t b, t d"), 20, "the end of its query")


@pytest.mark.parametrize("how", ["QUERY", "CONNECTION"])
def test_one_that_is_killed_amid_its_rows_ends_as_the_server_ends_it(
    both: tuple[RawClient, RawClient], upstream: PrivateSqlServer, how: str
) -> None:
    read = "SELECT SQL_NO_CACHE id, c, IF(id = {id}, SLEEP(60), 0) FROM t"
    for number in range(ROWS + 1, ROWS + 4):
        same(both, read.format(id=number))
    ends: list[bytes] = []
    for client in both:
        client.query(read.format(id=2_000))
        for _ in range(1_000):
            client.read_packet()
        wait_until(
            lambda: is_running(upstream, "SLEEP(60)", "User sleep"), 20, "the row that waits"
        )
        upstream.sql(f"KILL {how} {client.connection_id}")
        if how == "QUERY":
            client.send(client.sentinel())
            ends.append(client.read_to_sentinel())
        else:
            client.read_to_end()
        wait_until(lambda: not is_running(upstream, "SLEEP(60)"), 20, "its end")
    assert ends[1:] == ends[:1]
