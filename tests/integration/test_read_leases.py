"""Read leases, with two proxies on one memcached: what one serves unasked, and what writes through
the other wait for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import mysql.connector
import pymysql
import pytest

from sqlcache.demo.servers import (
    NotStarted,
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    wait_until,
)
from tests.conftest import ProxyFactory
from tests.forked import ForkedSqlcache
from tests.integration.test_two_proxies import (
    Session,
    counter,
    in_thread,
    learn,
    run,
    session,
    warm,
)
from tests.servers import PATIENT

LEASE_S = 0.2
WAIT_S = 1.2 * LEASE_S
SETTINGS = {
    "upstream__catalog_refresh_s": 3600,
    "cache__read_lease_ms": 1000 * LEASE_S,
}
READ = "SELECT v FROM t"
Ask = Callable[[], Any]
"""A read: its rows."""


@pytest.fixture
def pair(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, proxy: ProxyFactory
) -> tuple[PrivateSqlcache, PrivateSqlcache]:
    return proxy(mariadb, memcached, **SETTINGS), proxy(mariadb, memcached, **SETTINGS)


@pytest.fixture
def account(mariadb: PrivateMariaDB, schema: str) -> dict[str, str]:
    """What a driver needs to log in to the schema."""
    return {"user": mariadb.user, "password": mariadb.password, "database": schema}


@pytest.fixture
def sessions(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], account: dict[str, str]
) -> Iterator[tuple[Session, Session]]:
    """One through each proxy; there is a table `t`, with 0, of which nobody has promised
    anything."""
    with ExitStack() as stack:
        one, two = (stack.enter_context(session(server, account)) for server in pair)
        run(one, "CREATE TABLE t (v INT) ENGINE=InnoDB; INSERT INTO t VALUES (-1)")
        learn(pair, account)
        run(one, "UPDATE t SET v = 0")
        yield one, two


def in_window(server: PrivateSqlcache, ask: Ask) -> None:
    """Asks until it is answered within a lease, which that log must have a promise for."""

    def is_open() -> bool:
        before = counter(server, "window_hits")
        for _ in range(20):
            ask()
        return counter(server, "window_hits") > before

    wait_until(is_open, 20, "a read lease")


def commands(memcached: PrivateMemcached) -> int:
    """How often it was asked for something."""
    said = memcached.stats()
    return int(said["cmd_get"]) + int(said["cmd_set"])


@pytest.fixture(params=["text", "prepared"])
def ask(
    request: pytest.FixtureRequest,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
    sessions: tuple[Session, Session],
) -> Iterator[Ask]:
    """A read through the second proxy: of one row, its value."""
    if request.param == "text":
        yield lambda: run(sessions[1], READ)[0][0]
        return
    two = pair[1]
    address = {"host": two.host, "port": two.port, "use_pure": True, "ssl_disabled": True}
    with closing(mysql.connector.connect(**account, **address, autocommit=True)) as connection:
        cursor = connection.cursor(prepared=True)

        def execute() -> Any:
            cursor.execute("SELECT v FROM t WHERE v > ?", (-1,))
            ((value,),) = cursor.fetchall()
            return value

        yield execute


def test_hits_in_a_lease_ask_memcached_nothing(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], memcached: PrivateMemcached, ask: Ask
) -> None:
    """But for what keeps the lease, which is no more often for more hits."""
    in_window(pair[1], ask)
    before, hits = commands(memcached), counter(pair[1], "window_hits")
    for _ in range(500):
        assert ask() == 0
    assert counter(pair[1], "window_hits") > hits + 250
    assert counter(pair[1], "windows_opened") > 0
    assert commands(memcached) < before + 500  # each hit would ask for three tags


def test_a_write_through_the_other_proxy_waits_for_the_lease_and_is_seen_at_once(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    sessions: tuple[Session, Session],
    ask: Ask,
) -> None:
    one, two = pair
    in_window(two, ask)
    written_at = 0.0
    for number in range(1, 4):
        held_back, began = counter(one, "writes_held_back"), time.monotonic()
        run(sessions[0], f"UPDATE t SET v = {number}")
        took_s, quiet_s = time.monotonic() - began, time.monotonic() - written_at
        written_at = began
        assert ask() == number
        assert run(sessions[0], READ) == ((number,),)
        if number == 1:
            assert counter(one, "writes_held_back") == held_back + 1
            assert WAIT_S <= took_s < 100 * WAIT_S
        elif quiet_s < 1:
            assert counter(one, "writes_held_back") == held_back, "it is not quiet yet"
    in_window(two, ask)
    assert ask() == 3


def test_while_a_write_is_held_back_others_read_what_is_so(
    mariadb: PrivateMariaDB,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
    sessions: tuple[Session, Session],
    ask: Ask,
) -> None:
    """It is sent late, and not only its OK: what MySQL holds is never newer than an answer."""
    for number in range(1, 6):
        in_window(pair[1], ask)
        held_back = counter(pair[0], "writes_held_back")
        writing = in_thread(partial(run, sessions[0], f"UPDATE t SET v = {number}"))
        while writing.is_alive():
            ((least,),) = mariadb.sql(READ, account["database"])
            assert ask() >= int(least)
        assert counter(pair[0], "writes_held_back") == held_back + 1
        assert ask() == number


def test_a_write_through_the_same_proxy_waits_for_nobody(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], sessions: tuple[Session, Session], ask: Ask
) -> None:
    for number in range(1, 4):
        in_window(pair[1], ask)
        run(sessions[1], f"UPDATE t SET v = {number}")
        assert ask() == number
    assert counter(pair[1], "writes_held_back") == 0


@pytest.mark.parametrize("level", ["REPEATABLE READ", "READ COMMITTED"])
@pytest.mark.parametrize("begin", ["BEGIN", "SET autocommit = 0"])
def test_hits_in_a_transaction_are_those_of_its_moment(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    sessions: tuple[Session, Session],
    level: str,
    begin: str,
) -> None:
    writer, reader = sessions
    run(reader, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")

    def ask() -> Any:
        for statement in (begin, READ, "COMMIT"):
            run(reader, statement)

    for number in range(1, 4):
        in_window(pair[1], ask)
        run(reader, begin)
        assert run(reader, READ) == ((number - 1,),)
        run(writer, f"UPDATE t SET v = {number}")
        seen = number - 1 if level == "REPEATABLE READ" else number
        for _ in range(3):
            assert run(reader, READ) == ((seen,),)
        run(reader, "COMMIT")
        assert run(reader, READ) == ((number,),)


def test_the_commit_of_a_transaction_waits_and_its_rollback_forgets_nothing(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], sessions: tuple[Session, Session], ask: Ask
) -> None:
    writer = sessions[0]
    for number in range(2):
        for end, value in (("ROLLBACK", number), ("COMMIT", number + 1)):
            in_window(pair[1], ask)
            run(writer, "BEGIN")
            run(writer, "UPDATE t SET v = v + 1")
            in_window(pair[1], ask)
            held_back, began = counter(pair[0], "writes_held_back"), time.monotonic()
            run(writer, end)
            took_s = time.monotonic() - began
            assert ask() == value
            if end == "COMMIT":
                assert counter(pair[0], "writes_held_back") == held_back + 1
                assert took_s >= WAIT_S


def test_a_proxy_that_was_stopped_serves_nothing_from_a_lease_that_is_over(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], sessions: tuple[Session, Session], ask: Ask
) -> None:
    """The question is there before it goes on, and any of its timers goes off."""
    two, threads = pair[1], ThreadPoolExecutor(1)
    for number in range(1, 4):
        in_window(two, ask)
        for _ in range(20):
            ask()
        two.freeze()
        try:
            run(sessions[0], f"UPDATE t SET v = {number}")
            asking = threads.submit(ask)
            time.sleep(0.05)
        finally:
            two.thaw()
        assert asking.result(20) == number


@pytest.mark.parametrize(
    ("definition", "rows"),
    [
        ("ALTER TABLE t ADD w INT DEFAULT 4", ((0, 4),)),
        ("RENAME TABLE t TO was, u TO t", ((8,),)),
        ("TRUNCATE TABLE t", ()),
        ("DROP TABLE t; CREATE TABLE t AS SELECT 5 AS v", ((5,),)),
        ("DROP TABLE t", "doesn't exist"),
        ("REVOKE SELECT ON {schema}.t FROM {user}", "denied"),
    ],
)
def test_a_definition_through_the_other_proxy_is_seen_at_once(
    mariadb: PrivateMariaDB,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    sessions: tuple[Session, Session],
    account: dict[str, str],
    definition: str,
    rows: tuple[tuple[Any, ...], ...] | str,
) -> None:
    one, two = pair
    schema = account["database"]
    user = f"{schema}_u"
    mariadb.sql(f"CREATE USER {user} IDENTIFIED BY 'p'")
    try:
        run(sessions[0], "CREATE TABLE u (v INT); INSERT INTO u VALUES (8)")
        run(sessions[0], f"GRANT SELECT ON {schema}.t TO {user}; FLUSH PRIVILEGES")
        learn(pair, account)
        with session(two, {"user": user, "password": "p", "database": schema}) as reader:
            in_window(two, lambda: run(reader, "SELECT * FROM t"))
            held_back = counter(one, "writes_held_back")
            run(sessions[0], definition.format(schema=schema, user=user))
            assert counter(one, "writes_held_back") > held_back
            if isinstance(rows, str):
                with pytest.raises(pymysql.MySQLError, match=rows):
                    run(reader, "SELECT * FROM t")
            else:
                assert run(reader, "SELECT * FROM t") == rows
    finally:
        mariadb.sql(f"DROP USER {user}")


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
@pytest.mark.parametrize("engine", ["InnoDB", "MyISAM"])
def test_what_is_changed_in_transactions_goes_by_the_definitions_of_now(
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    sessions: tuple[Session, Session],
    account: dict[str, str],
    engine: str,
) -> None:
    """These need not be asked for each time; who changes them waits."""
    definer, writer = sessions
    run(definer, f"CREATE TABLE log (v INT) ENGINE={engine}; CREATE TABLE w (v INT)")
    run(definer, "INSERT INTO w VALUES (0)")
    learn(pair, account)

    def write() -> None:
        for statement in ("BEGIN", "UPDATE w SET v = v + 1", "ROLLBACK"):
            run(writer, statement)

    def are_known() -> bool:
        for _ in range(20):
            write()
        before = commands(memcached)
        for _ in range(20):
            write()
        return commands(memcached) < before + 40  # before and after each UPDATE, at least a tag

    wait_until(are_known, 20, "definitions that need not be asked for")
    for number in range(1, 4):
        if number > 1:
            wait_until(are_known, 20, "definitions that need not be asked for")
        held_back = counter(pair[0], "writes_held_back")
        made = f"t{number} AFTER UPDATE ON w FOR EACH ROW INSERT INTO log VALUES ({number})"
        warm(pair[0], definer, "SELECT COUNT(*) FROM log")
        run(definer, f"CREATE TRIGGER {made}")
        assert counter(pair[0], "writes_held_back") > held_back
        warm(pair[0], definer, "SELECT COUNT(*) FROM log")
        for statement in ("BEGIN", "UPDATE w SET v = v + 1"):
            run(writer, statement)
        if engine == "InnoDB":
            run(writer, "COMMIT")
        directly = mariadb.sql("SELECT COUNT(*) FROM log", account["database"])
        assert run(definer, "SELECT COUNT(*) FROM log") == ((int(directly[0][0]),),)
        run(writer, "COMMIT")
        run(definer, f"DROP TRIGGER t{number}")


def test_without_leases_nothing_is_served_unasked_and_no_write_is_held_back(
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    account: dict[str, str],
) -> None:
    settings = {**SETTINGS, "cache__read_lease_ms": 0}
    pair = proxy(mariadb, memcached, **settings), proxy(mariadb, memcached, **settings)
    with session(pair[0], account) as one, session(pair[1], account) as two:
        run(one, "CREATE TABLE t (v INT); INSERT INTO t VALUES (0)")
        learn(pair, account)
        for number in range(3):
            run(one, f"UPDATE t SET v = {number}")
            for _ in range(50):
                assert run(two, READ) == ((number,),)
    for server in pair:
        for name in ("window_hits", "windows_opened", "writes_held_back"):
            assert counter(server, name) == 0


def test_an_idle_proxy_lets_its_leases_end(
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    account: dict[str, str],
) -> None:
    """Those of the default, too, for which it asks as often as clients do who are worth it."""
    settings = {key: value for key, value in SETTINGS.items() if key != "cache__read_lease_ms"}
    server = proxy(mariadb, memcached, **settings)
    with session(server, account) as own:
        run(own, "CREATE TABLE t (v INT); INSERT INTO t VALUES (0)")
        in_window(server, lambda: run(own, READ))

        def opens_no_more() -> bool:
            before = counter(server, "windows_opened")
            time.sleep(0.2)
            return counter(server, "windows_opened") == before

        wait_until(opens_no_more, 10, "the end of its read leases")


def test_a_proxy_with_another_lease_does_not_start_beside_the_others(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, proxy: ProxyFactory, tmp_path: Path
) -> None:
    proxy(mariadb, memcached, **SETTINGS)
    settings = {**PATIENT, "cache__read_lease_ms": 5}
    nodes = (memcached.address,)
    other = ForkedSqlcache(tmp_path / "other", mariadb.service_url, nodes, **settings)
    with pytest.raises(NotStarted, match=r"read_lease_ms = 5: .* another time"):
        other.start()
