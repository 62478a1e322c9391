"""Shadow mode and `cache.verify_percent`: MySQL is asked about hits, and what differs is found.

What is wrong is made by writes around sqlcache, which it does not see here.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import mysql.connector
import pymysql
import pytest

from sqlcache.demo.servers import PrivateMemcached, PrivateSqlcache, PrivateSqlServer, wait_until
from tests import web
from tests.coherence.sessions import Session, ask, count, is_ready, run
from tests.conftest import ProxyFactory
from tests.process.test_workers import workers

READ = "SELECT SUM(v) FROM t WHERE v <> 12345"
ALL = "SELECT SUM(v) FROM t"
VERIFIED = "sqlcache_verified_total"


def verified(proxy: PrivateSqlcache) -> dict[str, int]:
    """How often each result was counted."""
    found: Counter[str] = Counter()
    for sample, value in proxy.metrics().items():
        name, _, label = sample.partition("{")
        if name == VERIFIED and value:
            found[label.split('"')[1]] += int(value)
    return dict(found)


def sees(proxy: PrivateSqlcache, **expected: int) -> None:
    """Waits until so much was counted, after the client has its answer."""
    wanted = {name.replace("_", " "): number for name, number in expected.items()}
    wait_until(lambda: verified(proxy) == wanted, 20, f"{wanted} to be counted")


def for_a_while(
    work: list[threading.Thread],
    ended: threading.Event,
    seconds: float,
    proxies: list[PrivateSqlcache],
) -> None:
    """Has it done for so long, and until answers of each proxy were compared and are the same."""
    for thread in work:
        thread.start()
    try:
        time.sleep(seconds)
        for each in proxies:
            wait_until(lambda: verified(each).get("same", 0) > 0, 30, "answers")  # noqa: B023
    finally:
        ended.set()
        for thread in work:
            thread.join()


def shadow_hits(proxy: PrivateSqlcache) -> int:
    return int(proxy.metrics()["sqlcache_shadow_seconds_count"])


@pytest.fixture
def proxy(proxy: ProxyFactory) -> ProxyFactory:
    """Counts are exact here: no pause may be taken for an outage of memcached."""
    return partial(proxy, memcached__outage_s=24)


@pytest.fixture(params=[True, False], ids=["straight", "the long way"])
def straight(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def table(mariadb: PrivateSqlServer, schema: str) -> str:
    mariadb.sql("CREATE TABLE t (v INT) ENGINE=InnoDB; INSERT INTO t VALUES (1), (2), (4)", schema)
    return schema


@pytest.fixture
def verifying(
    mariadb: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    *,
    straight: bool,
) -> PrivateSqlcache:
    return proxy(mariadb, memcached, cache__verify_percent=100, proxy__straight_path=straight)


@pytest.fixture
def shadow(
    mariadb: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    *,
    straight: bool,
) -> PrivateSqlcache:
    return proxy(
        *(mariadb, memcached),
        cache__mode="shadow",
        proxy__straight_path=straight,
        upstream__catalog_refresh_s=3600,  # its queries are counted, too
    )


def connected(proxy: PrivateSqlcache, server: PrivateSqlServer, schema: str) -> Session:
    account = {"user": server.user, "password": server.password}
    return proxy.connect(**account, database=schema, autocommit=True)


@pytest.fixture
def session(verifying: PrivateSqlcache, mariadb: PrivateSqlServer, table: str) -> Iterator[Session]:
    with closing(connected(verifying, mariadb, table)) as made:
        yield made


@pytest.fixture
def shadowed(shadow: PrivateSqlcache, mariadb: PrivateSqlServer, table: str) -> Iterator[Session]:
    with closing(connected(shadow, mariadb, table)) as made:
        yield made


def rows(session: Session, sql: str) -> list[int]:
    with session.cursor() as cursor:
        cursor.execute(sql)
        return [value for (value,) in cursor.fetchall()]


def test_what_differs_is_found_counted_and_forgotten(
    verifying: PrivateSqlcache, session: Session, mariadb: PrivateSqlServer, table: str
) -> None:
    for _ in range(3):
        assert ask(session, READ) == 7
    sees(verifying, same=2)
    assert count(verifying, "hits") == 0

    mariadb.sql("UPDATE t SET v = v + 1", table)
    before = verifying.metrics()['sqlcache_invalidations_total{kind="table"}']
    assert ask(session, READ) == 10
    sees(verifying, same=2, different=1)
    wait_until(
        lambda: verifying.metrics()['sqlcache_invalidations_total{kind="table"}'] > before,
        *(10, "the bump"),
    )
    (line,) = [each for each in verifying.log_text().splitlines() if "not MySQL's" in each]
    assert f"tables={table}.t" in line
    assert "v <> ?" in line
    assert "12345" not in line
    assert re.search(r" key=\S{16,} ", line)
    events = web.get(f"http://127.0.0.1:{verifying.admin_port}/api/events").json()["items"]
    assert "cache" in {each["kind"] for each in events if "not MySQL's" in str(each)}

    for _ in range(2):
        assert ask(session, READ) == 10
    sees(verifying, same=3, different=1)


def test_what_a_query_leaves_open_is_no_difference(
    verifying: PrivateSqlcache, session: Session, mariadb: PrivateSqlServer, table: str
) -> None:
    texts = ("SELECT v FROM t", "SELECT v FROM t ORDER BY v", "SELECT v FROM t LIMIT 1")
    for text in texts:
        rows(session, text)
    mariadb.sql("DELETE FROM t WHERE v = 1; INSERT INTO t VALUES (1)", table)
    assert [rows(session, text) for text in texts] == [[2, 4, 1], [1, 2, 4], [2]]
    sees(verifying, same=2, not_comparable=1)
    mariadb.sql("INSERT INTO t VALUES (0)", table)
    rows(session, texts[1])
    sees(verifying, same=2, not_comparable=1, different=1)


def test_writes_through_sqlcache_make_no_difference(
    verifying: PrivateSqlcache, mariadb: PrivateSqlServer, table: str
) -> None:
    ended = threading.Event()

    def write() -> None:
        with closing(connected(verifying, mariadb, table)) as writer:
            while not ended.is_set():
                run(writer, "UPDATE t SET v = v + 1")
                time.sleep(0.003)

    def read() -> None:
        with closing(connected(verifying, mariadb, table)) as reader:
            before = 0
            while not ended.is_set():
                now = ask(reader, READ)
                assert now >= before
                before = now

    threads = [threading.Thread(target=each) for each in (write, read, read)]
    for_a_while(threads, ended, 3, [verifying])
    found = verified(verifying)
    assert "different" not in found


def test_a_transaction_has_its_hits(
    verifying: PrivateSqlcache, session: Session, mariadb: PrivateSqlServer, table: str
) -> None:
    run(session, "SELECT 1 FROM t")
    assert ask(session, ALL) == 7
    run(session, "BEGIN")
    assert ask(session, ALL) == ask(session, ALL) == 7
    run(session, "COMMIT")
    assert count(verifying, "hits") == 2
    assert verified(verifying) == {}


def test_what_may_be_behind_is_no_difference(
    mariadb: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory, table: str
) -> None:
    rules = [{"table": f"{table}.t", "max_staleness_ms": 60_000}]
    relay = proxy(mariadb, memcached, cache__verify_percent=100, rules=rules)
    with closing(connected(relay, mariadb, table)) as session:
        assert ask(session, READ) == 7
        mariadb.sql("UPDATE t SET v = v + 1", table)
        assert ask(session, READ) == 7
    assert verified(relay) == {}
    assert count(relay, "hits") == 1


def test_a_share_is_verified(
    mariadb: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory, table: str
) -> None:
    relay = proxy(mariadb, memcached, cache__verify_percent=25)
    with closing(connected(relay, mariadb, table)) as session:
        for _ in range(401):
            assert ask(session, READ) == 7
    hits = count(relay, "hits")
    sees(relay, same=int(400 - hits))
    assert 50 < 400 - hits < 150


def test_shadow_mode_serves_nothing_and_says_what_it_would(
    shadow: PrivateSqlcache, shadowed: Session, mariadb: PrivateSqlServer, table: str
) -> None:
    for _ in range(5):
        assert ask(shadowed, READ) == 7
    assert count(shadow, "hits") == 0
    assert shadow_hits(shadow) == 4
    run(shadowed, "UPDATE t SET v = v + 1")
    assert ask(shadowed, READ) == 10  # which it stores anew
    assert ask(shadowed, READ) == 10
    assert shadow_hits(shadow) == 5
    sees(shadow, same=5)

    mariadb.sql("UPDATE t SET v = v + 1", table)
    assert ask(shadowed, READ) == 13
    sees(shadow, same=5, different=1)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "READ COMMITTED"])
def test_shadow_mode_leaves_transactions_as_they_are(
    shadow: PrivateSqlcache, shadowed: Session, mariadb: PrivateSqlServer, table: str, level: str
) -> None:
    run(shadowed, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    run(shadowed, "SET autocommit = 0")
    assert ask(shadowed, ALL) == 7
    run(shadowed, "COMMIT")
    before = sent(mariadb)
    for _ in range(3):
        assert ask(shadowed, ALL) == ask(shadowed, ALL) == 7
        run(shadowed, "COMMIT")
    assert sent(mariadb) - before == Counter(Com_select=6, Com_commit=3)
    assert shadow_hits(shadow) == 6
    assert count(shadow, "hits") == 0


def sent(server: PrivateSqlServer) -> Counter[str]:
    names = ("Com_select", "Com_commit", "Com_begin")
    return Counter({name: int(server.status(name)) for name in names})


def test_shadow_mode_lets_nobody_wait_for_others(
    mariadb: PrivateSqlServer, shadow: PrivateSqlcache, table: str
) -> None:
    slow = "SELECT SUM(v) + SLEEP(0) FROM t"  # not cacheable: only the lock below is waited for
    text = "SELECT SUM(v) FROM t WHERE v > 0"
    with (
        closing(connected(shadow, mariadb, table)) as first,
        closing(connected(shadow, mariadb, table)) as second,
        closing(mariadb.connect(database=table)) as locker,
    ):
        ask(first, slow)
        run(locker, "LOCK TABLES t WRITE")
        threads = [threading.Thread(target=ask, args=(each, text)) for each in (first, second)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: waiting(mariadb) == 2, 10, "both to be asked of MySQL")
        finally:
            run(locker, "UNLOCK TABLES")
        for thread in threads:
            thread.join()


def waiting(server: PrivateSqlServer) -> int:
    found = server.sql(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for%lock'"
    )
    return int(found[0][0])


def test_what_is_off_is_passed_on_until_it_is_switched_on(
    mariadb: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory, table: str
) -> None:
    relay = proxy(mariadb, memcached, cache__mode="off")
    with closing(connected(relay, mariadb, table)) as session:
        for _ in range(3):
            ask(session, READ)
    metrics = relay.metrics()
    assert metrics['sqlcache_bypasses_total{reason="switched off"}'] == 3
    assert count(relay, "fills") == 0


def test_errors_are_not_compared(
    verifying: PrivateSqlcache, session: Session, mariadb: PrivateSqlServer, table: str
) -> None:
    assert ask(session, READ) == 7
    mariadb.sql("RENAME TABLE t TO u", table)
    with pytest.raises(pymysql.ProgrammingError):
        ask(session, READ)
    sees(verifying, not_comparable=1)


def executing(proxy: PrivateSqlcache, server: PrivateSqlServer, schema: str) -> Any:
    """A connection that prepares what it asks, on the server."""
    account = {"user": server.user, "password": server.password}
    where = {"host": "127.0.0.1", "port": proxy.port, "database": schema}
    return mysql.connector.connect(**account, **where, autocommit=True, use_pure=True)


def test_prepared_statements_are_compared(
    verifying: PrivateSqlcache, mariadb: PrivateSqlServer, table: str
) -> None:
    with (
        closing(executing(verifying, mariadb, table)) as connection,
        closing(connection.cursor(prepared=True)) as cursor,
    ):

        def asked() -> list[int]:
            cursor.execute("SELECT v FROM t WHERE v > %s", (0,))
            return [value for (value,) in cursor.fetchall()]

        for _ in range(3):
            assert asked() == [1, 2, 4]
        assert count(verifying, "hits") == 0
        found = verified(verifying)["same"]
        assert found >= 1
        mariadb.sql("DELETE FROM t WHERE v = 1; INSERT INTO t VALUES (1)", table)
        assert asked() == [2, 4, 1]
        sees(verifying, same=found + 1)
        mariadb.sql("UPDATE t SET v = v + 1", table)
        assert asked() == [3, 5, 2]
        sees(verifying, same=found + 1, different=1)


def test_long_answers_are_compared(
    verifying: PrivateSqlcache, session: Session, mariadb: PrivateSqlServer, table: str
) -> None:
    mariadb.sql(
        "CREATE TABLE wide (v VARCHAR(999)) SELECT REPEAT(seq, 99) v FROM seq_1_to_9999", table
    )
    text = "SELECT v FROM wide"
    for _ in range(3):
        run(session, text)
    sees(verifying, same=2)
    mariadb.sql("UPDATE wide SET v = 'x' WHERE v LIKE '9999%'", table)
    run(session, text)
    sees(verifying, same=2, different=1)


def test_what_is_longer_than_an_entry_may_be_is_not_kept_to_be_compared(
    mariadb: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory, table: str
) -> None:
    mariadb.sql("CREATE TABLE texts (v TEXT); INSERT INTO texts VALUES (REPEAT('x', 500))", table)
    relay = proxy(mariadb, memcached, cache__verify_percent=100, cache__max_entry_bytes=2_000)
    with closing(connected(relay, mariadb, table)) as session:
        run(session, "SELECT v FROM texts")
        mariadb.sql("UPDATE texts SET v = REPEAT('x', 5000)", table)
        run(session, "SELECT v FROM texts")
    sees(relay, not_comparable=1)


def test_read_only_transactions_are_only_counted(
    shadow: PrivateSqlcache, shadowed: Session, mariadb: PrivateSqlServer, table: str
) -> None:
    assert ask(shadowed, ALL) == 7
    run(shadowed, "START TRANSACTION READ ONLY")
    assert ask(shadowed, ALL) == 7
    mariadb.sql("UPDATE t SET v = v + 1", table)
    assert ask(shadowed, ALL) == 7  # of its snapshot
    run(shadowed, "COMMIT")
    assert shadow_hits(shadow) == 2
    assert verified(shadow) == {}
    assert ask(shadowed, ALL) == 10
    sees(shadow, different=1)


def test_shadow_mode_sees_no_difference_while_two_proxies_write(
    mariadb: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory, table: str
) -> None:
    """Read leases, transactions and writes of another proxy included."""
    relays = [proxy(mariadb, memcached, cache__mode="shadow") for _ in range(2)]
    ended = threading.Event()
    failed: list[object] = []

    def write(relay: PrivateSqlcache, pause_s: float) -> None:
        with closing(connected(relay, mariadb, table)) as writer:
            while not ended.is_set():
                run(writer, "UPDATE t SET v = v + 1")
                run(writer, "BEGIN")
                run(writer, "UPDATE t SET v = v + 1")
                run(writer, "COMMIT")
                time.sleep(pause_s)

    def read(relay: PrivateSqlcache) -> None:
        with closing(connected(relay, mariadb, table)) as reader:
            before = 0
            while not ended.is_set():
                now = ask(reader, ALL)
                if now < before:
                    failed.append((before, now))
                before = now

    work = [(write, relays[0], 0.004), (write, relays[1], 1.3)]
    threads = [threading.Thread(target=does, args=args) for does, *args in work]
    threads += [threading.Thread(target=read, args=(relay,)) for relay in relays * 2]
    for_a_while(threads, ended, 4, relays)
    assert not failed
    for relay in relays:
        found = verified(relay)
        assert "different" not in found, relay.log_text()
        assert count(relay, "hits") == 0


def test_a_difference_is_told_once_in_a_while(
    verifying: PrivateSqlcache, session: Session, mariadb: PrivateSqlServer, table: str
) -> None:
    for number in range(1, 4):
        ask(session, READ)
        mariadb.sql("UPDATE t SET v = v + 1", table)
        ask(session, READ)
        sees(verifying, different=number)
    assert verifying.log_text().count("not MySQL's") == 1


def test_shadow_mode_can_be_switched_off_and_on(shadow: PrivateSqlcache, shadowed: Session) -> None:
    base = f"http://127.0.0.1:{shadow.admin_port}/api"

    def summary() -> Any:
        return web.get(f"{base}/summary").json()

    ask(shadowed, READ)
    ask(shadowed, READ)
    sees(shadow, same=1)
    said = summary()
    assert (said["mode"], said["cache_on"], said["hits"]) == ("shadow", True, 0)
    assert said["shadow"]["hits"] == said["shadow"]["compared"] == 1
    assert said["shadow"]["stale"] == 0
    assert said["shadow"]["hit_share"] == 1 / said["reads"]
    assert said["shadow"]["mysql_seconds"] > 0
    (row,) = web.get(f"{base}/sessions").json()["items"]
    assert (row["cacheable"], row["why_not"]) == (False, "shadow mode")

    web.post(f"{base}/cache", json={"enabled": False}).raise_for_status()
    ask(shadowed, READ)
    web.post(f"{base}/cache", json={"enabled": True}).raise_for_status()
    assert verified(shadow) == {"same": 1}
    ask(shadowed, READ)
    sees(shadow, same=2)
    assert count(shadow, "hits") == 0


def test_workers_started_anew_stay_in_shadow_mode(
    mariadb: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory, table: str
) -> None:
    relay = proxy(mariadb, memcached, cache__mode="shadow", proxy__workers=2)
    base = f"http://127.0.0.1:{relay.admin_port}/api"
    for enabled in (False, True):
        web.post(f"{base}/cache", json={"enabled": enabled}).raise_for_status()
    before = set(workers(relay))
    os.kill(min(before), signal.SIGKILL)
    wait_until(lambda: len(set(workers(relay)) - before) == 1, 20, "another worker")
    wait_until(lambda: is_ready(relay), 20, "the worker to be ready")
    for _ in range(20):
        with closing(connected(relay, mariadb, table)) as session:
            assert ask(session, READ) == 7
    assert count(relay, "hits") == 0
    wait_until(lambda: verified(relay).get("same", 0) >= 18, 10, "the comparisons")


def test_a_worker_started_anew_while_the_cache_is_off_stays_in_shadow_mode(
    mariadb: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory, table: str
) -> None:
    relay = proxy(mariadb, memcached, cache__mode="shadow", proxy__workers=2)
    base = f"http://127.0.0.1:{relay.admin_port}/api"

    def switch(*, enabled: bool) -> None:
        body = {"enabled": enabled}
        wait_until(
            lambda: web.post(f"{base}/cache", json=body).json()["processes"] == 2, 20, "both"
        )

    def read() -> None:
        for _ in range(20):  # so both serve some
            with closing(connected(relay, mariadb, table)) as session:
                assert ask(session, READ) == 7

    switch(enabled=False)
    before = workers(relay)
    os.kill(min(before), signal.SIGKILL)
    wait_until(lambda: len(workers(relay) - before) == 1, 20, "another worker")
    wait_until(lambda: is_ready(relay), 20, "the worker to be ready")
    wait_until(lambda: not web.get(f"{base}/summary").json()["cache_on"], 20, "the cache to be off")
    read()
    assert web.get(f"{base}/summary").json()["bypasses"]["switched off"] == 20
    switch(enabled=True)
    read()
    assert count(relay, "hits") == 0
    wait_until(lambda: verified(relay).get("same", 0) >= 18, 10, "the comparisons")
