"""Sessions that the server ends when it is asked nothing for a while, and that have only hits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from sqlcache.demo.servers import PrivateSqlcache, PrivateSqlServer, wait_until
from sqlcache.mysql.constants import Command
from tests.coherence.sessions import Session, ask, run
from tests.conftest import ProxyFactory
from tests.servers import PATIENT

READ = "SELECT v FROM t"
TIMEOUT_S = 3
IDLE_TRANSACTIONS = (
    "idle_transaction_timeout",
    "idle_readonly_transaction_timeout",
    "idle_write_transaction_timeout",
)

LogIn = Callable[..., Session]


@pytest.fixture(params=[True, False], ids=["straight path", "long way"])
def relay(
    request: pytest.FixtureRequest, upstream: PrivateSqlServer, proxy: ProxyFactory
) -> PrivateSqlcache:
    straight = request.param and PATIENT["proxy__straight_path"]
    return proxy(upstream, "memory", proxy__straight_path=straight)


@pytest.fixture
def log_in(upstream: PrivateSqlServer, relay: PrivateSqlcache, schema: str) -> Iterator[LogIn]:
    """`log_in()` is a new session of sqlcache's; there is a table `t` with one row, 7."""
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (7)", schema)
    account: dict[str, Any] = {
        "user": upstream.user,
        "password": upstream.password,
        "database": schema,
        "autocommit": None,
    }
    with ExitStack() as stack:
        yield lambda **more: stack.enter_context(closing(relay.connect(**account, **more)))


@pytest.fixture
def set_global(upstream: PrivateSqlServer) -> Iterator[Callable[..., None]]:
    """`set_global(name, value, at)` sets one, by a session of those or by the server's own."""
    before: dict[str, str] = {}

    def set_(name: str, value: int, at: Session | None = None) -> None:
        ((before[name],),) = upstream.sql(f"SELECT @@GLOBAL.{name}")
        sql = f"SET GLOBAL {name} = {value}"
        upstream.sql(sql) if at is None else run(at, sql)

    yield set_
    for name, value in before.items():
        upstream.sql(f"SET GLOBAL {name} = {value}")


def hits(relay: PrivateSqlcache) -> float:
    return relay.metrics()["sqlcache_hits_total"]


def is_hit(relay: PrivateSqlcache, session: Session) -> bool:
    before = hits(relay)
    assert ask(session, READ) == 7
    return hits(relay) > before


def goes_on_hitting(relay: PrivateSqlcache, session: Session, pause_s: float) -> None:
    """It has hits, so often, for longer than the server waits; then it writes."""
    wait_until(lambda: is_hit(relay, session), 10, "a hit")
    before, until = hits(relay), time.monotonic() + 1.7 * TIMEOUT_S
    asked = 0
    while time.monotonic() < until:
        asked += 1
        assert ask(session, READ) == 7
        time.sleep(pause_s)
    assert hits(relay) == before + asked
    run(session, "UPDATE t SET v = 7")


@pytest.mark.parametrize("pause_s", [0.3, TIMEOUT_S - 0.4])
def test_who_is_busy_with_hits_is_kept_up_however_short_its_wait_timeout(
    relay: PrivateSqlcache, log_in: LogIn, pause_s: float
) -> None:
    session = log_in()
    wait_until(lambda: is_hit(relay, session), 10, "a hit")
    run(session, f"SET wait_timeout = {TIMEOUT_S}")
    goes_on_hitting(relay, session, pause_s)


@pytest.mark.parametrize("way", ["login", "reset"])
def test_so_it_is_by_a_global_one_that_a_session_takes_anew(
    relay: PrivateSqlcache, log_in: LogIn, set_global: Callable[..., None], way: str
) -> None:
    session = log_in()
    wait_until(lambda: is_hit(relay, session), 10, "a hit")
    set_global("wait_timeout", TIMEOUT_S, log_in())
    if way == "login":
        session = log_in()
    else:
        wire: Any = session
        wire._execute_command(Command.RESET_CONNECTION, b"")
        wire._read_ok_packet()
    goes_on_hitting(relay, session, 0.3)


def test_so_it_is_by_the_interactive_timeout_of_who_is_interactive(
    relay: PrivateSqlcache, log_in: LogIn, set_global: Callable[..., None]
) -> None:
    set_global("interactive_timeout", TIMEOUT_S, log_in())
    session = log_in(client_flag=CLIENT.INTERACTIVE)
    assert ask(session, "SELECT @@wait_timeout") == TIMEOUT_S
    goes_on_hitting(relay, session, 0.3)


@pytest.mark.parametrize("name", IDLE_TRANSACTIONS)
def test_so_it_is_in_a_transaction_with_a_time_limit_of_its_own(
    relay: PrivateSqlcache, log_in: LogIn, upstream: PrivateSqlServer, name: str
) -> None:
    if upstream.name != "mariadbd":
        pytest.skip("MySQL has none")
    session = log_in()
    wait_until(lambda: is_hit(relay, session), 10, "a hit")
    run(session, f"SET {name} = {TIMEOUT_S}")
    run(session, "BEGIN")
    goes_on_hitting(relay, session, 0.3)
    run(session, "COMMIT")


def test_one_too_short_to_be_kept_leaves_no_hits(
    relay: PrivateSqlcache, log_in: LogIn, upstream: PrivateSqlServer
) -> None:
    session = log_in()
    wait_until(lambda: is_hit(relay, session), 10, "a hit")
    run(session, "SET wait_timeout = 1")
    assert not any(is_hit(relay, session) for _ in range(3))
    run(session, "SET wait_timeout = 100")
    wait_until(lambda: is_hit(relay, session), 10, "a hit")


def test_who_is_idle_after_a_hit_is_ended_all_the_same(
    relay: PrivateSqlcache, log_in: LogIn
) -> None:
    session = log_in()
    run(session, f"SET wait_timeout = {TIMEOUT_S}")
    wait_until(lambda: is_hit(relay, session), 10, "a hit")
    time.sleep(TIMEOUT_S * 4 / 3 + 0.7)
    with pytest.raises(pymysql.MySQLError):
        ask(session, READ)
