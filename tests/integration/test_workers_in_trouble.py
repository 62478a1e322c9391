"""`--workers` on a bad day: one that stands still, has much to say, or cannot be started anew."""

import os
import resource
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache, wait_until
from tests import web
from tests.conftest import ProxyFactory
from tests.process.test_workers import ALL_READY, workers


@pytest.fixture
def served(
    proxy: ProxyFactory, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> PrivateSqlcache:
    return proxy(mariadb, memcached, proxy__workers=2)


@pytest.fixture
def cursor(served: PrivateSqlcache, mariadb: PrivateMariaDB, schema: str) -> Iterator[Any]:
    """Of a session in a schema with a table t."""
    mariadb.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1)", schema)
    account = {"user": mariadb.user, "password": mariadb.password}
    with served.connect(**account, database=schema) as connection, connection.cursor() as cursor:
        yield cursor


def api(served: PrivateSqlcache, path: str, **body: Any) -> Any:
    url = f"http://127.0.0.1:{served.admin_port}/api/{path}"
    answer = web.post(url, json=body) if body else web.get(url)
    return answer.raise_for_status().json()


def is_replaced(served: PrivateSqlcache, worker: int) -> bool:
    there = workers(served)
    return len(there) == 2 and worker not in there


def test_a_list_longer_than_sockets_hold_is_told_and_ends_no_session(
    served: PrivateSqlcache, cursor: Any
) -> None:
    columns = ", ".join(f"v AS a_column_with_a_long_name_{number}" for number in range(30))
    for number in range(600):
        cursor.execute(f"SELECT v AS c{number}, {columns} FROM t")
    told = api(served, "statements?limit=1000")
    assert told["total"] >= 600
    assert sum(len(row["statement"]) for row in told["items"]) > 400_000
    cursor.execute("SELECT v FROM t")
    assert served.readiness() == ALL_READY


@pytest.mark.parametrize("sqlcache_kind", [PrivateSqlcache])  # which waits no longer than people do
def test_a_worker_that_stands_still_hears_later_what_was_said(
    served: PrivateSqlcache, cursor: Any
) -> None:
    still = min(workers(served))
    os.kill(still, signal.SIGSTOP)
    try:
        assert "does not answer" in served.readiness()["problems"].values()
        # In the time that people wait the other may stand still as well.
        wait_until(
            lambda: api(served, "cache", enabled=False)["processes"] == 1, 20, "the other worker"
        )
        assert served.fetch("/live") == "ok\n"
    finally:
        os.kill(still, signal.SIGCONT)
    wait_until(lambda: served.readiness() == ALL_READY, 20, "the worker to go on")


def test_workers_that_died_are_counted_though_nothing_else_that_is_counted_falls(
    served: PrivateSqlcache, cursor: Any
) -> None:
    before = served.metrics()
    assert before["sqlcache_workers_ended_total"] == 0
    for died in (1, 2):
        victim = min(workers(served))
        os.kill(victim, signal.SIGKILL)
        wait_until(partial(is_replaced, served, victim), 20, "a new worker")
        wait_until(lambda: served.readiness() == ALL_READY, 20, "all workers")
        assert served.metrics()["sqlcache_workers_ended_total"] == died
    after = served.metrics()
    assert after["sqlcache_workers"] == 2
    assert after["sqlcache_catalog_loads_total"] >= before["sqlcache_catalog_loads_total"]


def test_a_worker_that_is_just_starting_is_switched_off_as_well(
    served: PrivateSqlcache, mariadb: PrivateMariaDB, cursor: Any, schema: str
) -> None:
    def told() -> int:
        """How many workers heard that the cache is off, of two stopped when they were seen."""
        before, anew = workers(served), set[int]()

        def are_new() -> bool:
            for worker in workers(served) - before - anew:
                os.kill(worker, signal.SIGSTOP)
                anew.add(worker)
            return len(anew) == 2

        for worker in before:
            os.kill(worker, signal.SIGKILL)
        try:
            wait_until(are_new, 20, "new workers")
            return int(api(served, "cache", enabled=False)["processes"])
        finally:
            for worker in anew:
                os.kill(worker, signal.SIGCONT)
            wait_until(lambda: served.readiness() == ALL_READY, 30, "all workers")

    for _ in range(5):
        if told() == 0:
            break
        api(served, "cache", enabled=True)  # one had begun before it was seen
    else:
        pytest.fail("none was met as it began")
    account = {"user": mariadb.user, "password": mariadb.password}
    for _ in range(8):  # so both serve some
        with served.connect(**account, database=schema) as connection, connection.cursor() as own:
            for _ in range(3):
                own.execute("SELECT v FROM t")
    said = api(served, "summary")
    assert (said["hits"], said["bypasses"]["switched off"]) == (0, 24)


def test_a_worker_for_which_there_is_no_room_is_started_when_there_is(
    served: PrivateSqlcache,
) -> None:
    limits = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (5, limits[1]))
    try:
        os.kill(min(workers(served)), signal.SIGKILL)
        wait_until(lambda: 'event="worker not started"' in served.log_text(), 20, "the line")
    finally:
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, limits)
    wait_until(lambda: len(workers(served)) == 2, 20, "a new worker")
    wait_until(lambda: served.readiness() == ALL_READY, 20, "all workers")
