"""Accounts that may ask so many questions an hour: as many get through as directly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import PrivateSqlcache, PrivateSqlServer, wait_until
from tests.coherence.sessions import Session, ask
from tests.conftest import ProxyFactory

LIMIT = 20
ER_USER_LIMIT_REACHED = 1226
READ = "SELECT v FROM t"
Server = PrivateSqlServer | PrivateSqlcache


@pytest.fixture
def relay(upstream: PrivateSqlServer, proxy: ProxyFactory, schema: str) -> PrivateSqlcache:
    """There is a table `t` with one row, 7."""
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (7)", schema)
    return proxy(upstream, "memory", upstream__catalog_refresh_s=3600)


@pytest.fixture
def make(
    relay: PrivateSqlcache, upstream: PrivateSqlServer, schema: str
) -> Iterator[Callable[[str], str]]:
    """`make(limits)` makes an account through sqlcache, by the password `p`."""
    names: list[str] = []
    with closing(relay.connect(user=upstream.user, password=upstream.password)) as session:

        def made(limits: str) -> str:
            names.append(f"{schema}_{len(names)}")
            with session.cursor() as cursor:
                cursor.execute(f"CREATE USER {names[-1]} IDENTIFIED BY 'p' {limits}")
                cursor.execute(f"GRANT ALL ON {schema}.* TO {names[-1]}")
            return names[-1]

        yield made
        for name in names:
            upstream.sql(f"DROP USER {name}")


@pytest.fixture
def log_in(schema: str) -> Callable[[Server, str], Session]:
    def logged_in(at: Server, user: str) -> Session:
        session = at.connect(user=user, password="p", database=schema, autocommit=None)
        assert isinstance(session, pymysql.connections.Connection)
        return session

    return logged_in


def refusal(session: Session, statement: str) -> int:
    """The server's error; 0 for none."""
    try:
        with session.cursor() as cursor:
            cursor.execute(statement)
    except pymysql.MySQLError as error:
        return int(error.args[0])
    return 0


def asks_until_refused(session: Session, statements: tuple[str, ...]) -> int:
    """How many get through, one after the other and again."""
    with closing(session):
        for place in range(5 * LIMIT):
            if code := refusal(session, statements[place % len(statements)]):
                assert code == ER_USER_LIMIT_REACHED
                return place
    raise AssertionError("it is never refused")


@pytest.mark.parametrize(
    "statements",
    [
        (READ,),
        (f"{READ} LIMIT 1", "SELECT FOUND_ROWS()"),
        ("SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1", "UPDATE t SET v = 7"),
        ("SET optimizer_switch = DEFAULT", READ),
        ("SET sql_mode = CONCAT(@@sql_mode, ',ANSI')", READ, "SET sql_mode = ''"),
        ("SET sql_select_limit = DEFAULT, max_join_size = @@GLOBAL.max_join_size", READ),
        ("BEGIN", READ, "COMMIT"),
    ],
)
def test_who_may_ask_so_often_is_answered_as_often_as_directly(
    relay: PrivateSqlcache,
    upstream: PrivateSqlServer,
    make: Callable[[str], str],
    log_in: Callable[[Server, str], Session],
    statements: tuple[str, ...],
) -> None:
    before = relay.metrics()["sqlcache_hits_total"]
    asked: list[int] = []
    for server in (upstream, relay):
        user = make(f"WITH MAX_QUERIES_PER_HOUR {LIMIT}")
        log_in(upstream, user).close()  # so that caching_sha2_password knows the password
        asked.append(asks_until_refused(log_in(server, user), statements))
    assert asked[0] == asked[1]
    assert relay.metrics()["sqlcache_hits_total"] == before


def test_it_is_said_why_and_others_have_their_hits(
    relay: PrivateSqlcache,
    upstream: PrivateSqlServer,
    make: Callable[[str], str],
    log_in: Callable[[Server, str], Session],
) -> None:
    limited = make(f"WITH MAX_QUERIES_PER_HOUR {LIMIT}")
    free = make("WITH MAX_UPDATES_PER_HOUR 100")
    for user in (limited, free):
        log_in(upstream, user).close()

    def is_hit(session: Session) -> bool:
        before = relay.metrics()["sqlcache_hits_total"]
        assert ask(session, READ) == 7
        return relay.metrics()["sqlcache_hits_total"] > before

    with closing(log_in(relay, free)) as one, closing(log_in(relay, limited)) as other:
        wait_until(lambda: is_hit(one), 10, "a hit")
        assert not any(is_hit(other) for _ in range(3))
        reason = 'sqlcache_bypasses_total{reason="MAX_QUERIES_PER_HOUR"}'
        assert relay.metrics()[reason] >= 3


def test_who_is_given_a_limit_has_no_hits_from_then_on(
    relay: PrivateSqlcache,
    upstream: PrivateSqlServer,
    make: Callable[[str], str],
    log_in: Callable[[Server, str], Session],
) -> None:
    user = make("")
    log_in(upstream, user).close()

    def is_hit(session: Any) -> bool:
        before = relay.metrics()["sqlcache_hits_total"]
        assert ask(session, READ) == 7
        return relay.metrics()["sqlcache_hits_total"] > before

    with closing(log_in(relay, user)) as before:
        wait_until(lambda: is_hit(before), 10, "a hit")
        account = {"user": upstream.user, "password": upstream.password}
        with closing(relay.connect(**account)) as session, session.cursor() as cursor:
            cursor.execute(f"ALTER USER {user} WITH MAX_QUERIES_PER_HOUR 500")
        assert not any(is_hit(before) for _ in range(3))
        with closing(log_in(relay, user)) as late:
            assert not any(is_hit(late) for _ in range(3))
