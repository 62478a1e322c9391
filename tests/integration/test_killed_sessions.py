"""Sessions that a KILL has ended, and what they are answered once its OK has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import PrivateSqlcache, PrivateSqlServer, wait_until
from sqlcache.mysql.constants import Command
from tests.coherence.sessions import Session, ask, run
from tests.conftest import ProxyFactory

READ = "SELECT v FROM t"
TIMES = 30  # MySQL's end of a connection comes a moment after its OK, or before
MARIADBS = frozenset({"KILL HARD {number}", "KILL SOFT CONNECTION {number}", "KILL USER {user}"})

LogIn = Callable[..., Session]


@pytest.fixture
def relay(upstream: PrivateSqlServer, proxy: ProxyFactory) -> PrivateSqlcache:
    return proxy(upstream, "memory")


@pytest.fixture
def user(upstream: PrivateSqlServer, schema: str) -> Iterator[str]:
    """Who may read `t`, with one row, 7, by the password `p`."""
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (7)", schema)
    name = f"{schema}_user"
    upstream.sql(f"CREATE USER {name} IDENTIFIED BY 'p'; GRANT SELECT ON {schema}.* TO {name}")
    upstream.connect(user=name, password="p").close()  # caching_sha2_password knows it now
    yield name
    upstream.sql(f"DROP USER {name}")


@pytest.fixture
def log_in(relay: PrivateSqlcache, schema: str, user: str) -> Iterator[LogIn]:
    account: dict[str, Any] = {"user": user, "password": "p", "database": schema}
    with ExitStack() as stack:
        yield lambda **other: stack.enter_context(closing(relay.connect(**{**account, **other})))


@pytest.fixture
def killer(upstream: PrivateSqlServer, log_in: LogIn) -> Session:
    return log_in(user=upstream.user, password=upstream.password)


def is_hit(relay: PrivateSqlcache, session: Session) -> bool:
    before = relay.metrics()["sqlcache_hits_total"]
    assert ask(session, READ) == 7
    return relay.metrics()["sqlcache_hits_total"] > before


def number_of(session: Session) -> int:
    wire: Any = session
    number = wire.thread_id()
    assert isinstance(number, int)
    return number


@pytest.mark.parametrize(
    "kills",
    [
        "KILL {number}",
        "kill /* so */ connection {number};",
        "SET @n = {number}; KILL @n",
        "KILL {number} + 0",
        "PREPARE k FROM 'KILL {number}'; EXECUTE k",
        *sorted(MARIADBS),
    ],
)
def test_who_was_killed_has_no_hit_once_that_is_told(
    upstream: PrivateSqlServer,
    log_in: LogIn,
    killer: Session,
    user: str,
    kills: str,
) -> None:
    if kills in MARIADBS and upstream.name != "mariadbd":
        pytest.skip("MySQL has no such KILL")
    for _ in range(TIMES):
        victim = log_in()
        for _ in range(2):
            assert ask(victim, READ) == 7
        for statement in kills.format(number=number_of(victim), user=user).split("; "):
            run(killer, statement)
        with pytest.raises(pymysql.MySQLError):
            ask(victim, READ)


def test_nor_is_it_told_how_many_rows_its_last_hit_had(log_in: LogIn, killer: Session) -> None:
    """Which is answered without MySQL as well."""
    for _ in range(TIMES):
        victim = log_in()
        for _ in range(2):
            assert ask(victim, READ) == 7
            assert ask(victim, "SELECT FOUND_ROWS()") == 1
        assert ask(victim, READ) == 7
        run(killer, f"KILL {number_of(victim)}")
        with pytest.raises(pymysql.MySQLError):
            ask(victim, "SELECT FOUND_ROWS()")


def test_so_it_is_by_the_command_of_the_protocol(
    upstream: PrivateSqlServer, log_in: LogIn, killer: Session
) -> None:
    if upstream.name != "mariadbd":
        pytest.skip("MySQL has it no more")
    for _ in range(TIMES):
        victim = log_in()
        for _ in range(2):
            assert ask(victim, READ) == 7
        wire: Any = killer
        wire._execute_command(Command.PROCESS_KILL, number_of(victim).to_bytes(4, "little"))
        wire._read_ok_packet()
        with pytest.raises(pymysql.MySQLError):
            ask(victim, READ)


def test_others_and_who_has_a_query_killed_have_hits_as_before(
    relay: PrivateSqlcache, log_in: LogIn, killer: Session
) -> None:
    victim, other = log_in(), log_in()
    for each in (victim, other):
        wait_until(lambda each=each: is_hit(relay, each), 10, "a hit")  # type: ignore[misc]
    run(killer, f"KILL QUERY {number_of(other)}")
    assert is_hit(relay, other)
    run(killer, f"KILL {number_of(victim)}")
    assert is_hit(relay, other)


@pytest.mark.parametrize(
    "kill", ["KILL 0", "KILL 0 + 0", f"KILL {'9' * 5_000}", "KILL {victim} + 0"]
)
def test_who_may_not_kill_takes_nobodys_hits(
    relay: PrivateSqlcache, log_in: LogIn, killer: Session, kill: str
) -> None:
    victim, other = log_in(), log_in()
    wait_until(lambda: is_hit(relay, other), 10, "a hit")
    with pytest.raises(pymysql.MySQLError):
        run(victim, kill.format(victim=number_of(killer)))
    assert is_hit(relay, other)
    assert ask(victim, READ) == 7


def test_who_may_have_been_killed_has_hits_again_when_mysql_has_answered(
    relay: PrivateSqlcache, log_in: LogIn, killer: Session
) -> None:
    victim, other = log_in(), log_in()
    wait_until(lambda: is_hit(relay, other), 10, "a hit")
    run(killer, f"SET @n = {number_of(victim)}")
    run(killer, "KILL @n")
    assert not is_hit(relay, other)
    wait_until(lambda: is_hit(relay, other), 10, "a hit")
