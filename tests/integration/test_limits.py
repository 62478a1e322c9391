"""How many clients there may be, and for how long one may be idle: refused as MySQL refuses."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
    wait_until,
)
from sqlcache.mysql.constants import Command
from tests.coherence.sessions import ask, run
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import COLLATION, OLD, RawClient, packets_of
from tests.process.test_workers import ALL_READY, workers
from tests.servers import MySQLMissing, PrivateMySQL

TOO_MANY = b"\xff" + (1040).to_bytes(2, "little") + b"Too many connections"
REFUSED_AS_USER = (1203).to_bytes(2, "little")
OPEN = "sqlcache_connections_open"
IDLE_S = 4.0
"""More than the pauses of a busy machine, in which who is to be served is idle."""


def failed(relay: PrivateSqlcache, code: str) -> float:
    return relay.metrics()[f'sqlcache_logins_failed_total{{code="{code}"}}']


def reached(relay: PrivateSqlcache, limit: str) -> float:
    return relay.metrics()[f'sqlcache_limits_reached_total{{limit="{limit}"}}']


# --- max_connections ----------------------------------------------------------------------------


def test_the_clients_above_the_limit_are_refused_in_mysqls_words(
    upstream: PrivateSqlServer, proxy: ProxyFactory
) -> None:
    relay = proxy(upstream, "memory", proxy__max_connections=2)
    account = {"user": upstream.user, "password": upstream.password}
    first, second = relay.connect(**account), relay.connect(**account)
    for _ in range(3):
        with RawClient(relay) as third:
            assert third.read_packet() == (0, TOO_MANY)
            assert third.read_to_end() == b""
    assert ask(first, "SELECT 1") == ask(second, "SELECT 1") == 1
    assert failed(relay, "1040") == reached(relay, "max_connections") == 3
    assert relay.metrics()["sqlcache_connections_limit"] == 2
    assert relay.metrics()['sqlcache_upstream_errors_total{cause="1040"}'] == 0
    assert relay.log_text().count('event="clients are refused, too many" connections=2') == 1
    first.close()
    wait_until(lambda: relay.metrics()[OPEN] == 1, 10, "its end")
    with closing(relay.connect(**account)) as third_session:
        assert ask(third_session, "SELECT 1") == 1
    second.close()


def test_the_limit_holds_for_all_workers_together_also_after_one_was_killed(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    most = 7
    relay = proxy(mariadb, memcached, proxy__workers=3, proxy__max_connections=most)
    account = {"user": mariadb.user, "password": mariadb.password}
    assert relay.metrics()["sqlcache_connections_limit"] == most

    def fill(stack: ExitStack) -> int:
        """How many get in, of many more."""
        before = failed(relay, "1040")
        for _ in range(4 * most):
            with suppress(pymysql.OperationalError):
                stack.enter_context(closing(relay.connect(**account)))
        let_in = int(relay.metrics()[OPEN])
        assert failed(relay, "1040") - before == 4 * most - let_in
        return let_in

    with ExitStack() as stack:
        assert fill(stack) == most
    wait_until(lambda: relay.metrics()[OPEN] == 0, 10, "their end")
    with ExitStack() as stack:
        assert fill(stack) == most
        before = workers(relay)
        for pid in sorted(before)[:2]:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(workers(relay) - before) == 2, 20, "new workers")
        wait_until(lambda: relay.readiness() == ALL_READY, 20, "all workers")
        left = int(relay.metrics()[OPEN])
        assert left < most
        for _ in range(most - left):
            stack.enter_context(closing(relay.connect(**account)))
        wait_until(lambda: relay.metrics()[OPEN] == most, 20, "all that have room")
        with pytest.raises(pymysql.OperationalError, match="Too many connections"):
            relay.connect(**account)


# --- transactions_bytes -------------------------------------------------------------------------


@contextmanager
def ended(session: Any) -> Iterator[Any]:
    """That is closed at last, if it is not before."""
    try:
        yield session
    finally:
        with suppress(pymysql.Error):
            session.close()


@pytest.mark.parametrize("straight", [True, False])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", ".reset", ".close"])
def test_what_open_transactions_have_read_has_room_together(
    upstream: PrivateSqlServer, proxy: ProxyFactory, schema: str, end: str, straight: bool
) -> None:
    relay = proxy(
        *(upstream, "memory"), proxy__transactions_bytes=800, proxy__straight_path=straight
    )
    account = {"user": upstream.user, "password": upstream.password, "database": schema}
    hits = "sqlcache_hits_total"
    with ExitStack() as stack:
        first: Any = stack.enter_context(ended(relay.connect(**account)))
        second, writer = (stack.enter_context(closing(relay.connect(**account))) for _ in range(2))
        for table in ("t", "u"):
            run(writer, f"CREATE TABLE {table} (v INT)")
            run(writer, f"INSERT INTO {table} VALUES (1)")
            assert ask(writer, f"SELECT v FROM {table}") == 1

        def remembers(session: Any) -> bool:
            """Whether a transaction is answered from what it has read before."""
            run(session, "BEGIN")
            ask(session, "SELECT v FROM u")
            run(writer, "UPDATE t SET v = v + 1")
            value = ask(session, "SELECT v FROM t")
            before = relay.metrics()[hits]
            assert ask(session, "SELECT v FROM t") == value
            return relay.metrics()[hits] == before + 1

        assert remembers(first)
        assert not remembers(second)
        run(second, "ROLLBACK")
        if end == ".reset":
            first._execute_command(Command.RESET_CONNECTION, b"")
            first._read_ok_packet()
        elif end != ".close":
            run(first, end)
        if end != ".close":
            assert remembers(second)
        first.close()
        wait_until(lambda: relay.metrics()[OPEN] == 2, 10, "its end")
        run(second, "ROLLBACK")
        assert remembers(second)


# --- max_connections_per_user -------------------------------------------------------------------

ServerOf = Callable[..., PrivateSqlServer]


@pytest.fixture(params=["mariadb", "mysql"])
def with_options(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerOf]:
    """`with_options(*options)` starts a server of its own."""
    with ExitStack() as stack:

        def start(*options: str) -> PrivateSqlServer:
            if request.param == "mariadb":
                return stack.enter_context(PrivateMariaDB(tmp_path / "own", options))
            try:
                return stack.enter_context(PrivateMySQL(tmp_path / "own", options))
            except MySQLMissing as missing:
                pytest.skip(str(missing))

        yield start


@pytest.fixture
def users(upstream: PrivateSqlServer, schema: str) -> Iterator[tuple[str, str]]:
    """Two accounts without a password."""
    names = f"{schema}_a", f"{schema}_b"
    for name in names:
        upstream.sql(f"CREATE USER {name}")
    yield names
    for name in names:
        upstream.sql(f"DROP USER {name}")


def try_login(address: Any, user: str) -> tuple[int, bytes]:
    """The packet that ends a login without a password."""
    with RawClient(address) as client:
        client.read_greeting()
        client.send(packets_of(client.response(user, "", "", OLD), 1))
        sequence, payload = client.read_packet()
        while payload[:1] not in (b"\0", b"\xff"):
            sequence, payload = client.read_packet()
        return sequence, payload


def test_a_users_sessions_above_the_limit_are_refused_as_by_the_server(
    with_options: ServerOf, proxy: ProxyFactory
) -> None:
    server = with_options("--max-user-connections=2")
    server.sql("CREATE USER one")
    relay = proxy(server, "memory", proxy__max_connections_per_user=2)

    def refusal(address: Any) -> tuple[int, bytes]:
        with ExitStack() as stack:
            for _ in range(2):
                client = stack.enter_context(RawClient.logged_in(address, "one", ""))
                assert client.sql("DO 0")
            return try_login(address, "one")

    expected = refusal(server)
    assert expected[1][:3] == b"\xff" + (1203).to_bytes(2, "little")
    there = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'one'"
    wait_until(lambda: server.sql(there) == ((0,),), 10, "their end")
    server.sql("SET GLOBAL max_user_connections = 100")
    assert refusal(relay) == expected
    assert failed(relay, "1203") == reached(relay, "max_connections_per_user") == 1
    assert 'event="login failed" client=127.0.0.1:' in relay.log_text()
    assert "user=one code=1203" in relay.log_text()


def test_a_user_is_counted_from_the_login_to_the_sessions_end(
    upstream: PrivateSqlServer, proxy: ProxyFactory, users: tuple[str, str]
) -> None:
    one, other = users
    relay = proxy(upstream, "memory", proxy__max_connections_per_user=1)
    for _ in range(3):  # who is not let in takes no place
        with pytest.raises(pymysql.OperationalError, match="Access denied"):
            relay.connect(user=one, password="wrong")
    with RawClient.logged_in(relay, one, "") as client:
        assert client.sql("DO 0")
        assert try_login(relay, one)[1][1:3] == REFUSED_AS_USER
        assert try_login(relay, other)[1][:1] == b"\0"
    wait_until(lambda: relay.metrics()[OPEN] == 0, 10, "its end")
    assert try_login(relay, one)[1][:1] == b"\0"


def test_so_is_one_that_a_session_changes_to(
    upstream: PrivateSqlServer, proxy: ProxyFactory, users: tuple[str, str]
) -> None:
    one, other = users
    relay = proxy(upstream, "memory", proxy__max_connections_per_user=1)
    with (
        RawClient.logged_in(relay, one, "") as first,
        RawClient.logged_in(relay, other, "") as second,
    ):
        assert first.change_user(one)[:1] == b"\0", "it is that user already"
        refused = second.change_user(one)
        text = f"#42000User {one} already has more than 'max_user_connections' active connections"
        assert refused == b"\xff" + (1203).to_bytes(2, "little") + text.encode()
        assert second.read_to_end() == b""
        wait_until(lambda: relay.metrics()[OPEN] == 1, 10, "its end")
        assert first.change_user(other)[:1] == b"\0", "nobody is that user any more"
        with RawClient.logged_in(relay, one, "") as third:
            assert third.sql("DO 0")
            assert try_login(relay, other)[1][1:3] == REFUSED_AS_USER


def test_other_bytes_that_may_be_a_users_name_count_for_that(
    upstream: PrivateSqlServer, proxy: ProxyFactory, users: tuple[str, str]
) -> None:
    """MySQL reads a name up to where it is no text; and either has one in many character sets."""
    is_mysql = upstream.name == "mysqld"
    spellings = {
        "josé": [("josé".encode(), COLLATION), (b"jos\xe9", 8), (b"jos\x82", 4), (b"jos\xe9", 63)],
        "bob": [(b"bob" + end, COLLATION) for end in (b"\xff", b"\xfe", b"\xc3") if is_mysql],
    }
    relay = proxy(upstream, "memory", proxy__max_connections_per_user=1)
    for name, sent in spellings.items():
        upstream.sql(f"CREATE USER '{name}'")
        try:
            for user, collation in sent:
                with RawClient.logged_in(upstream, user, "", collation=collation) as direct:
                    assert direct.sql("DO 0")
            with RawClient.logged_in(relay, name, "") as first:
                assert first.sql("DO 0")
                for user, collation in sent:
                    with pytest.raises(PermissionError, match="already has more than"):
                        RawClient.logged_in(relay, user, "", collation=collation)
                    wait_until(lambda: relay.metrics()[OPEN] == 1, 10, "its end")
                    with RawClient.logged_in(relay, users[0], "") as second:
                        assert second.change_user(user, collation)[1:3] == REFUSED_AS_USER
            wait_until(lambda: relay.metrics()[OPEN] == 0, 10, "its end")
        finally:
            upstream.sql(f"DROP USER '{name}'")


def test_a_users_sessions_are_counted_over_all_workers(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    relay = proxy(mariadb, memcached, proxy__workers=3, proxy__max_connections_per_user=4)
    account = {"user": mariadb.user, "password": mariadb.password}
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(closing(relay.connect(**account)))
        for _ in range(12):
            with pytest.raises(pymysql.OperationalError, match="already has more than") as refused:
                relay.connect(**account)
            assert refused.value.args[0] == 1203
        victim = min(workers(relay))
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: victim not in workers(relay), 10, "its end")
        wait_until(lambda: relay.readiness() == ALL_READY, 20, "all workers")
        left = int(relay.metrics()[OPEN])
        for _ in range(4 - left):
            stack.enter_context(closing(relay.connect(**account)))
        with pytest.raises(pymysql.OperationalError, match="already has more than"):
            relay.connect(**account)


# --- idle_timeout_s -----------------------------------------------------------------------------


def idle_relay(upstream: PrivateSqlServer, proxy: ProxyFactory) -> PrivateSqlcache:
    return proxy(upstream, "memory", proxy__idle_timeout_s=IDLE_S)


def test_an_idle_client_is_told_what_mysql_tells_and_its_connection_ends(
    mysql: PrivateMySQL, proxy: ProxyFactory
) -> None:
    mysql.connect().close()
    relay = idle_relay(mysql, proxy)
    with RawClient.logged_in(mysql, mysql.user, mysql.password) as direct:
        direct.sql("SET wait_timeout = 1")
        expected = direct.read_to_end()
    assert b"because of inactivity" in expected
    with RawClient.logged_in(relay, mysql.user, mysql.password) as client:
        began = time.monotonic()  # it is answered, and idle, before this process hears of it
        client.sql("SET wait_timeout = 100")
        assert client.read_to_end() == expected
        assert IDLE_S <= time.monotonic() - began < 100
    assert reached(relay, "idle_timeout_s") == 1
    assert relay.metrics()['sqlcache_upstream_errors_total{cause="lost"}'] == 0


def test_an_open_transaction_is_idle_and_rolled_back(
    upstream: PrivateSqlServer, proxy: ProxyFactory, schema: str
) -> None:
    relay = idle_relay(upstream, proxy)
    account = {"user": upstream.user, "password": upstream.password, "database": schema}
    with closing(relay.connect(**account)) as session:
        run(session, "CREATE TABLE t (v INT PRIMARY KEY)")
        run(session, "BEGIN")
        run(session, "INSERT INTO t VALUES (1)")
        wait_until(lambda: reached(relay, "idle_timeout_s") == 1, 20, "its end")
        with pytest.raises(pymysql.OperationalError) as ended:
            run(session, "COMMIT")
        assert ended.value.args[0] in (4031, 2006, 2013)
    wait_until(lambda: relay.metrics()[OPEN] == 0, 10, "its end")
    upstream.sql("INSERT INTO t VALUES (1)", schema)  # nothing locks it


SERVED = (
    "SELECT 1",  # as MySQL says it, by a plan
    "SELECT SUM(v) FROM t",  # a hit
    "SET NAMES utf8mb4",  # answered ahead of MySQL
)


def test_a_client_that_has_statements_served_is_not_idle(
    upstream: PrivateSqlServer, proxy: ProxyFactory, schema: str
) -> None:
    """Whichever way, and for how long."""
    relay = idle_relay(upstream, proxy)
    account = {"user": upstream.user, "password": upstream.password, "database": schema}
    upstream.sql("CREATE TABLE t (v INT)", schema)

    def are_served() -> bool:
        """False where nobody can tell: the host let them pause for as long as who is idle."""
        before = reached(relay, "idle_timeout_s")
        with ExitStack() as stack, ThreadPoolExecutor(1) as thread:
            connections = [relay.connect(**account) for _ in range(1 + len(SERVED))]
            long, *sessions = (stack.enter_context(ended(each)) for each in connections)
            waits = thread.submit(run, long, f"DO SLEEP({2 * IDLE_S})")  # the long way
            longest_s, last = 0.0, time.monotonic()
            while not waits.done():
                try:
                    for session, statement in zip(sessions, SERVED, strict=True):
                        run(session, statement)
                except pymysql.Error:
                    if time.monotonic() - last < IDLE_S / 2:
                        raise
                    return False
                longest_s = max(longest_s, time.monotonic() - last)
                last = time.monotonic()
                time.sleep(IDLE_S / 16)
            waits.result()
            if longest_s >= IDLE_S / 2:
                return False
            assert reached(relay, "idle_timeout_s") == before
            every = before + len(connections)
            wait_until(lambda: reached(relay, "idle_timeout_s") == every, 30, "their end")
            return True

    assert any(are_served() for _ in range(6)), "they paused each time"


def test_nor_is_one_that_takes_its_time_to_read_an_answer(
    upstream: PrivateSqlServer, proxy: ProxyFactory
) -> None:
    upstream.connect().close()
    relay = idle_relay(upstream, proxy)
    rows = " UNION ALL ".join(["SELECT REPEAT('x', 1000000)"] * 32)
    with RawClient.logged_in(relay, upstream.user, upstream.password) as slow:
        slow.query(rows)
        time.sleep(2 * IDLE_S)
        assert reached(relay, "idle_timeout_s") == 0
        assert slow.ask(b"\x0e")
