"""`--workers N`: real processes behind one port."""

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, closing

import pymysql
import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache, wait_until
from tests.conftest import ProxyFactory
from tests.processes import command_line, workers_of

WORKERS = 3
ALL_READY = {"ready": True, "problems": {}, "warnings": {}}


@pytest.fixture
def many(
    proxy: ProxyFactory, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> PrivateSqlcache:
    return proxy(mariadb, memcached, proxy__workers=WORKERS)


@pytest.fixture
def connect(
    many: PrivateSqlcache, mariadb: PrivateMariaDB, schema: str
) -> Callable[[], "pymysql.Connection[pymysql.cursors.Cursor]"]:
    mariadb.sql("CREATE TABLE t (id int PRIMARY KEY, v int)", schema)
    mariadb.sql("INSERT INTO t VALUES (1, 1)", schema)
    return lambda: many.connect(user=mariadb.user, password=mariadb.password, database=schema)


def workers(server: PrivateSqlcache) -> set[int]:
    return workers_of(server.pid)


def value(connection: "pymysql.Connection[pymysql.cursors.Cursor]") -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT v FROM t WHERE id = 1")
        (row,) = cursor.fetchall()
        return int(row[0])


def test_all_workers_keep_every_promise_together(
    many: PrivateSqlcache, connect: Callable[[], "pymysql.Connection[pymysql.cursors.Cursor]"]
) -> None:
    connections = [connect() for _ in range(4 * WORKERS)]
    for number, writer in enumerate(connections):
        with writer.cursor() as cursor:
            cursor.execute("UPDATE t SET v = %s", (number,))
        assert [value(reader) for reader in connections] == [number] * len(connections)
    metrics = many.metrics()
    assert metrics["sqlcache_connections_open"] == len(connections)
    assert metrics["sqlcache_misses_total"] == len(connections)
    for connection in connections:
        connection.close()


def test_a_worker_that_dies_is_replaced(
    many: PrivateSqlcache, connect: Callable[[], "pymysql.Connection[pymysql.cursors.Cursor]"]
) -> None:
    before = workers(many)
    assert len(before) == WORKERS
    with connect() as connection:
        value(connection)
    accepted = many.metrics()["sqlcache_connections_accepted_total"]
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: len(workers(many) - before) == 1, 60, "a new worker")
    wait_until(lambda: many.readiness() == ALL_READY, 60, "all workers")
    with connect() as connection:
        assert value(connection) == 1
    assert many.metrics()["sqlcache_connections_accepted_total"] == accepted + 1, (
        "none is forgotten"
    )
    assert many.metrics()["sqlcache_workers"] == WORKERS


def test_a_worker_that_drains_alone_is_given_no_more_clients(
    proxy: ProxyFactory, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    server = proxy(mariadb, memcached, proxy__workers=2, proxy__drain_timeout_s=60)
    account = {"user": mariadb.user, "password": mariadb.password}
    with ExitStack() as held:
        for _ in range(16):  # so both have some
            transaction = held.enter_context(closing(server.connect(**account)))
            transaction.begin()
            transaction.cursor().execute("DO 0")
        os.kill(min(workers(server)), signal.SIGTERM)
        wait_until(lambda: "is draining" in str(server.readiness()), 20, "its end")
        for _ in range(16):
            with closing(server.connect(**account, connect_timeout=10)) as other:
                other.ping(reconnect=False)
        assert "is draining" in str(server.readiness())


def test_workers_end_with_their_parent(many: PrivateSqlcache) -> None:
    before = workers(many)
    many.kill()
    wait_until(lambda: not any(map(command_line, before)), 20, "the workers' end")
    many.start()
