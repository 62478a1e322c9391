"""How long reads take: in the metrics, and of slow ones in the log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    wait_until,
)
from sqlcache.proxy.slow_reads import MOST_A_SECOND
from tests.coherence.sessions import ask, run, running
from tests.conftest import ProxyFactory

SLOW_S = 0.2
SECRET = "open barley"
MISS = "SELECT COUNT(*) FROM t"


@pytest.fixture(params=[True, False], ids=["straight", "the long way"])
def start(
    request: pytest.FixtureRequest,
    proxy: ProxyFactory,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    schema: str,
) -> Callable[..., PrivateSqlcache]:
    mariadb.sql("CREATE TABLE t (v INT)", schema)
    mariadb.sql("INSERT INTO t SELECT seq FROM seq_1_to_75", schema)

    def made(**settings: Any) -> PrivateSqlcache:
        settings |= {"proxy__straight_path": request.param, "log__format": "json"}
        return proxy(mariadb, memcached, **settings)

    return made


def slow_reads(relay: PrivateSqlcache) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in relay.log_text().splitlines()]
    return [line for line in lines if line["event"] == "slow read"]


def test_a_slow_miss_and_a_slow_pass_are_told_once_each_and_a_hit_or_a_write_never(
    start: Callable[..., PrivateSqlcache], mariadb: PrivateMariaDB, schema: str
) -> None:
    relay = start(log__slow_miss_ms=1000 * SLOW_S)
    account = {"user": mariadb.user, "password": mariadb.password, "database": schema}
    with closing(relay.connect(**account, autocommit=True)) as session:
        began = time.monotonic()
        run(session, f"SELECT '{SECRET}', 1471147114")
        was_slow = time.monotonic() - began > SLOW_S
        began = time.monotonic()
        run(session, f"SELECT SLEEP({SLOW_S + 0.1}), '{SECRET}'")
        session.ping(reconnect=False)  # a line is written after the answer, before the next one
        took_s = time.monotonic() - began
        run(session, f"UPDATE t SET v = v + SLEEP({SLOW_S + 0.1}) WHERE v = 1 LIMIT 1")
        with suppress(pymysql.MySQLError):  # nobody knows what is a literal there
            run(session, f"SELECT SLEEP({SLOW_S + 0.1}) AS {SECRET} FROM")
        with suppress(pymysql.MySQLError):
            run(
                session,
                f"SELECT 1 FROM t WHERE SLEEP({SLOW_S + 0.1}) = 0 AND v = (SELECT v FROM t)",
            )
        *others, told = slow_reads(relay)
        assert len(others) <= was_slow
        assert 1000 * SLOW_S < told["took_ms"] < 1000 * took_s + 0.1  # it is rounded
        assert told["schema"] == schema
        assert "SLEEP" in told["reason"]
        assert told["statement"].startswith("SELECT SLEEP")
        before = relay.metrics()
        with closing(mariadb.connect(**account)) as other, ThreadPoolExecutor(1) as pool:
            run(other, "LOCK TABLES t WRITE")
            asking = pool.submit(ask, session, MISS)
            try:
                wait_until(lambda: running(mariadb, MISS) == 1, 20, "the query")
                time.sleep(SLOW_S + 0.1)
            finally:
                run(other, "UNLOCK TABLES")
            asking.result()
        wait_until(lambda: relay.metrics()["sqlcache_fills_total"] > 0, 10, "a fill")
        ask(session, MISS)
        after = relay.metrics()
    (told,) = slow_reads(relay)[len(others) + 1 :]
    assert told["reason"] == "miss"
    assert told["statement"].startswith("SELECT COUNT(")
    took_s = after["sqlcache_miss_seconds_sum"] - before["sqlcache_miss_seconds_sum"]
    assert took_s == pytest.approx(told["took_ms"] / 1000, abs=0.001)
    assert after["sqlcache_miss_seconds_count"] == after["sqlcache_misses_total"] >= 1
    assert after["sqlcache_hit_seconds_count"] == after["sqlcache_hits_total"] >= 1
    assert after["sqlcache_memcached_seconds_count"] > before["sqlcache_memcached_seconds_count"]
    assert SECRET not in relay.log_text()
    assert "1471147114" not in relay.log_text()


def test_no_more_lines_than_so_many_a_second_are_written_and_the_others_counted(
    start: Callable[..., PrivateSqlcache], mariadb: PrivateMariaDB, schema: str
) -> None:
    relay = start(log__slow_miss_ms=0.001)
    account = {"user": mariadb.user, "password": mariadb.password, "database": schema}
    asked = 0
    began = time.monotonic()
    with closing(relay.connect(**account, autocommit=True)) as session:
        while time.monotonic() - began < 2.5 or len(slow_reads(relay)) < 2 * MOST_A_SECOND:
            ask(session, "SELECT RAND()")
            asked += 1
            assert time.monotonic() - began < 60, "lines are written in later seconds, too"
        session.ping(reconnect=False)
    seconds = int(time.monotonic() - began)
    told = slow_reads(relay)
    assert 2 * MOST_A_SECOND <= len(told) <= (seconds + 2) * MOST_A_SECOND
    assert asked > len(told)
    assert 0 < sum(each["untold"] for each in told) < asked


def test_by_default_nothing_is_told(
    start: Callable[..., PrivateSqlcache], mariadb: PrivateMariaDB, schema: str
) -> None:
    relay = start()
    account = {"user": mariadb.user, "password": mariadb.password, "database": schema}
    with closing(relay.connect(**account, autocommit=True)) as session:
        ask(session, f"SELECT SLEEP({SLOW_S})")
    assert slow_reads(relay) == []
