"""Who waits for long for another's fill, and what MySQL hears of that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import PrivateSqlcache, PrivateSqlServer, wait_until
from tests.coherence.sessions import Session, ask, count, run
from tests.conftest import ProxyFactory
from tests.fakes.middleman import Fault, Middleman
from tests.fakes.raw_client import packets_of
from tests.servers import PATIENT

READ = "SELECT v FROM t"
KEEPALIVE_S = 0.5
WAIT_TIMEOUT_S = 3
PING = packets_of(b"\x0e")

LogIn = Callable[[Any], Session]


@pytest.fixture
def middleman(upstream: PrivateSqlServer) -> Iterator[Middleman]:
    upstream.connect().close()  # so that caching_sha2_password knows the password
    with Middleman(upstream) as made:
        yield made


@pytest.fixture(params=[True, False], ids=["straight path", "long way"])
def relay(
    request: pytest.FixtureRequest, middleman: Middleman, proxy: ProxyFactory
) -> PrivateSqlcache:
    straight = request.param and PATIENT["proxy__straight_path"]
    return proxy(
        middleman, "memory", upstream__keepalive_s=KEEPALIVE_S, proxy__straight_path=straight
    )


@pytest.fixture
def log_in(upstream: PrivateSqlServer, schema: str) -> Iterator[LogIn]:
    """`log_in(at)` is a new session there; there is a table `t` with one row, 7."""
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (7)", schema)
    account = {"user": upstream.user, "password": upstream.password, "database": schema}
    with ExitStack() as stack:
        yield lambda at: stack.enter_context(closing(at.connect(**account)))


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


@pytest.fixture
def locked(upstream: PrivateSqlServer, log_in: LogIn, pool: ThreadPoolExecutor) -> Iterator[Any]:
    """Who holds a lock for which all who read `t` wait, until `UNLOCK TABLES`."""
    owner = log_in(upstream)
    run(owner, "LOCK TABLES t WRITE")
    yield owner
    run(owner, "UNLOCK TABLES")  # before the pool waits for those who read


def runs(upstream: PrivateSqlServer, sql: str) -> bool:
    return any(row[7] == sql for row in upstream.sql("SHOW PROCESSLIST"))


@pytest.fixture
def waits(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, pool: ThreadPoolExecutor
) -> Callable[[Session, Session], tuple[Any, Any]]:
    """`waits(first, second)`: what the first fills, and the second waits for."""

    def begin(first: Session, second: Session) -> tuple[Any, Any]:
        filling = pool.submit(ask, first, READ)
        wait_until(lambda: runs(upstream, READ), 20, "the fill")
        waiting = pool.submit(ask, second, READ)
        wait_until(lambda: count(relay, "lease_waits") > 0, 20, "who waits for it")
        return filling, waiting

    return begin


@pytest.mark.parametrize("ends", ["stored", "killed"])
def test_who_waits_for_longer_than_wait_timeout_is_not_idle_for_mysql(
    relay: PrivateSqlcache,
    log_in: LogIn,
    locked: Session,
    waits: Callable[[Session, Session], tuple[Any, Any]],
    ends: str,
) -> None:
    first, second = log_in(relay), log_in(relay)
    number = ask(first, "SELECT CONNECTION_ID()")
    run(second, f"SET SESSION wait_timeout = {WAIT_TIMEOUT_S}")
    filling, waiting = waits(first, second)
    time.sleep(2 * WAIT_TIMEOUT_S)
    assert not waiting.done()
    if ends == "killed":
        run(locked, f"KILL QUERY {number}")
        assert isinstance(filling.exception(20), pymysql.MySQLError)
    run(locked, "UNLOCK TABLES")
    assert waiting.result(20) == 7
    with second.cursor() as cursor:
        cursor.execute("SELECT ROW_COUNT(), FOUND_ROWS(), @@wait_timeout")
        assert cursor.fetchall() == ((-1, 1, WAIT_TIMEOUT_S),)


@pytest.mark.parametrize("fault", [Fault.HOLD, Fault.GARBAGE])
def test_what_answers_a_sign_of_life_answers_no_query(
    relay: PrivateSqlcache,
    middleman: Middleman,
    log_in: LogIn,
    locked: Session,
    waits: Callable[[Session, Session], tuple[Any, Any]],
    fault: Fault,
) -> None:
    """The fill has ended by an error meanwhile."""
    first, second = log_in(relay), log_in(relay)
    number = ask(first, "SELECT CONNECTION_ID()")
    filling, waiting = waits(first, second)
    trap = middleman.set_trap(PING, fault)
    assert trap.sprung.wait(20)
    run(locked, f"KILL QUERY {number}")
    assert isinstance(filling.exception(20), pymysql.MySQLError)
    run(locked, "UNLOCK TABLES")
    if fault is Fault.HOLD:
        time.sleep(2 * KEEPALIVE_S)
        assert not waiting.done()
        trap.released.set()
        assert waiting.result(20) == 7
        assert ask(second, "SELECT 3") == 3
    else:
        assert isinstance(waiting.exception(20), pymysql.MySQLError)
    assert ask(log_in(relay), READ) == 7


def test_a_sign_of_life_that_mysql_does_not_answer_holds_nobody_up(
    relay: PrivateSqlcache,
    middleman: Middleman,
    log_in: LogIn,
    locked: Session,
    waits: Callable[[Session, Session], tuple[Any, Any]],
) -> None:
    """As where a firewall has dropped the connection without a word."""
    first, second = log_in(relay), log_in(relay)
    filling, waiting = waits(first, second)
    trap = middleman.set_trap(PING, Fault.HOLD)
    assert trap.sprung.wait(20)
    run(locked, "UNLOCK TABLES")
    assert filling.result(20) == 7
    try:
        assert isinstance(waiting.exception(20), pymysql.OperationalError)
    finally:
        trap.released.set()


@pytest.mark.parametrize("amid_ping", [False, True])
def test_who_waits_can_be_killed(
    relay: PrivateSqlcache,
    middleman: Middleman,
    log_in: LogIn,
    locked: Session,
    waits: Callable[[Session, Session], tuple[Any, Any]],
    amid_ping: bool,
) -> None:
    first, second = log_in(relay), log_in(relay)
    killed = ask(second, "SELECT CONNECTION_ID()")
    filling, waiting = waits(first, second)
    if amid_ping:
        trap = middleman.set_trap(PING, Fault.HOLD)
        assert trap.sprung.wait(20)
    run(locked, f"KILL {killed}")
    if amid_ping:
        trap.released.set()
    error = waiting.exception(20)
    assert isinstance(error, pymysql.OperationalError)
    assert error.args[0] == 2013
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 1, 20, "its session's end")
    assert not filling.done()
    run(locked, "UNLOCK TABLES")
    assert filling.result(20) == 7


def test_who_may_take_so_long_waits_no_longer(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    log_in: LogIn,
    locked: Session,
    waits: Callable[[Session, Session], tuple[Any, Any]],
) -> None:
    first, second = log_in(relay), log_in(relay)
    limit, too_long = "max_execution_time = 500", 3024
    if upstream.name == "mariadbd":
        limit, too_long = "max_statement_time = 0.5", 1969
    run(second, f"SET SESSION {limit}")
    filling, waiting = waits(first, second)
    error = waiting.exception(20)
    assert isinstance(error, pymysql.OperationalError)
    assert error.args[0] == too_long
    assert not filling.done()
    run(locked, "UNLOCK TABLES")
    assert filling.result(20) == 7
