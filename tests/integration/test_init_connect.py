"""What the server runs for each new session writes as its client's statements do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias

import pymysql
import pytest

from sqlcache.demo.servers import (
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
    wait_until,
)
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import RawClient

COUNT = "SELECT COUNT(*) FROM logins"
NOTES = "INSERT INTO logins (who) VALUES (0)"
ROOTS = 'sqlcache_invalidations_total{kind="root"}'
ER_NEW_ABORTING_CONNECTION = 1184

Session: TypeAlias = "pymysql.Connection[Any]"
Connect = Callable[..., Session]


@pytest.fixture
def servers(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory, schema: str
) -> list[PrivateSqlcache]:
    upstream.sql(f"CREATE TABLE {schema}.logins (n INT AUTO_INCREMENT PRIMARY KEY, who INT)")
    return [proxy(upstream, memcached) for _ in range(2)]


@pytest.fixture
def connect(
    upstream: PrivateSqlServer, servers: list[PrivateSqlcache], schema: str
) -> Iterator[Connect]:
    """Connects through the first, by default as one for whom the server runs it."""
    upstream.sql(f"CREATE USER {schema} IDENTIFIED BY 'p'; GRANT ALL ON {schema}.* TO {schema}")
    with ExitStack() as stack:

        def connected(server: int = 0, user: str = schema, password: str = "p") -> Session:
            login = {"user": user, "password": password, "database": schema, "autocommit": None}
            session = servers[server].connect(**login)
            stack.callback(session.close)
            return session

        yield connected
    upstream.sql(f"SET GLOBAL init_connect = ''; DROP USER {schema}")


@pytest.fixture
def readers(upstream: PrivateSqlServer, connect: Connect) -> list[Session]:
    """Administrators, for whom it does not, through each."""
    return [connect(server, upstream.user, upstream.password) for server in range(2)]


def run(session: Session, query: str) -> Any:
    with session.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchall()


def cached(session: Session) -> int:
    """How many have logged in, from the cache."""
    for _ in range(2):
        run(session, COUNT)
    ((count,),) = run(session, COUNT)
    return int(count)


def test_what_is_run_for_a_new_session_is_seen(connect: Connect, readers: list[Session]) -> None:
    run(readers[0], f"SET GLOBAL init_connect = 'SET @here = 1; {NOTES}'")
    first = cached(readers[0])
    for more in range(1, 4):
        assert [cached(reader) for reader in readers] == [first + more - 1] * 2
        session = connect(more % 2)
        assert [cached(each) for each in (session, *readers)] == [first + more] * 3


def test_what_it_leaves_open_is_seen_when_it_ends(connect: Connect, readers: list[Session]) -> None:
    run(readers[0], f"SET GLOBAL init_connect = 'SET autocommit = 0; {NOTES}'")
    first = cached(readers[0])
    session = connect()
    assert run(session, COUNT) == ((first + 1,),)
    assert [cached(reader) for reader in readers] == [first] * 2
    run(session, "COMMIT")
    assert [cached(reader) for reader in readers] == [first + 1] * 2


def test_what_is_run_for_a_client_that_leaves_at_once_is_seen(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    servers: list[PrivateSqlcache],
    connect: Connect,
    schema: str,
) -> None:
    reader = connect(0, upstream.user, upstream.password)
    run(reader, f"SET GLOBAL init_connect = 'DO SLEEP(0.2); {NOTES}'")
    connect()  # so that MySQL knows the password
    for _ in range(3):
        expected = cached(reader) + 1
        memcached.freeze()
        RawClient.logged_in(servers[0], schema, "p", schema).reset()
        time.sleep(0.1)  # it is heard of its end before memcached is asked
        memcached.thaw()
        wait_until(lambda: written(upstream, schema) == expected, 20, "a write")  # noqa: B023
        wait_until(lambda: cached(reader) == expected, 5, "its being seen")  # noqa: B023


def written(upstream: PrivateSqlServer, schema: str) -> int:
    ((count,),) = upstream.sql(COUNT, schema)
    return int(count)


def test_its_error_is_for_the_first_statement(connect: Connect, readers: list[Session]) -> None:
    run(readers[0], f"SET GLOBAL init_connect = '{NOTES}; INSERT INTO nowhere VALUES (1)'")
    first = cached(readers[0])
    with pytest.raises(pymysql.OperationalError) as failed:
        connect()  # where PyMySQL sends a statement
    assert failed.value.args[0] == ER_NEW_ABORTING_CONNECTION
    assert [cached(reader) for reader in readers] == [first + 1] * 2


FIRST = {
    "PING": b"\x0e",
    "INIT_DB": b"\x02mysql",
    "SELECT": b"\x03SELECT 1",
    "SET": b"\x03SET NAMES utf8mb4",
    "INSERT": b"\x03" + NOTES.encode(),
    "BEGIN": b"\x03BEGIN",
    "PREPARE": b"\x16" + COUNT.encode(),
    "QUIT": b"\x01",
}


@pytest.mark.parametrize("knows_globals", [True, False])
def test_the_error_of_one_that_writes_nothing_is_for_any_first_command(
    upstream: PrivateSqlServer,
    servers: list[PrivateSqlcache],
    connect: Connect,
    readers: list[Session],
    schema: str,
    *,
    knows_globals: bool,
) -> None:
    connect()  # so that MySQL knows the password
    run(readers[0], "SET GLOBAL init_connect = 'SET no_such_variable = 1'")
    if not knows_globals:  # sqlcache's own account is not let in either
        servers[0].restart()
    for name, first in FIRST.items():
        through, direct = (first_answer(at, schema, first) for at in (servers[0], upstream))
        assert through == direct, name


def first_answer(
    server: PrivateSqlServer | PrivateSqlcache, user: str, command: bytes
) -> tuple[bytes, int] | None:
    """How the answer to a session's first command begins; None where there is none."""
    with RawClient.logged_in(server, user, "p", user) as client:
        client.command(command)
        try:
            _, got = client.read_packet()
        except (EOFError, ConnectionResetError):
            return None
        return got[:1], int.from_bytes(got[1:3], "little")


@pytest.mark.parametrize("by_call", [False, True])
def test_a_temporary_table_that_it_makes_hides_another(
    upstream: PrivateSqlServer,
    connect: Connect,
    readers: list[Session],
    schema: str,
    *,
    by_call: bool,
) -> None:
    made = f"CREATE TEMPORARY TABLE {schema}.logins AS SELECT CONNECTION_ID() AS who"
    upstream.sql(f"CREATE PROCEDURE hide() {made}", schema)
    upstream.sql("INSERT INTO logins (who) VALUES (0)", schema)
    read = "SELECT who FROM logins"
    run(readers[0], f"SET GLOBAL init_connect = '{f'CALL {schema}.hide()' if by_call else made}'")
    sessions = [connect() for _ in range(2)]
    own = [run(session, "SELECT CONNECTION_ID()") for session in sessions]
    for _ in range(3):
        assert [run(session, read) for session in sessions] == own
    run(sessions[0], "DROP TEMPORARY TABLE logins")
    for _ in range(3):
        assert run(sessions[0], read) == ((0,),)
        assert run(sessions[1], read) == own[1]


def test_what_it_sets_for_the_next_transaction_is_for_the_clients_first(
    connect: Connect, readers: list[Session]
) -> None:
    run(readers[0], "SET GLOBAL init_connect = 'SET TRANSACTION READ ONLY'")
    first = cached(connect())
    session = connect()
    assert run(session, COUNT) == ((first,),)  # which it is
    run(session, NOTES)
    assert [cached(each) for each in (session, *readers)] == [first + 1] * 3


def test_what_only_sets_forgets_nothing(
    servers: list[PrivateSqlcache], connect: Connect, readers: list[Session]
) -> None:
    run(readers[0], "SET GLOBAL init_connect = 'SET NAMES utf8mb4, time_zone = \"+01:00\"'")
    assert cached(readers[0]) == 0
    before = servers[0].metrics()
    cached(connect())
    after = servers[0].metrics()
    assert after[ROOTS] == before[ROOTS]
    assert cached(readers[0]) == 0
    assert servers[0].metrics()["sqlcache_hits_total"] >= after["sqlcache_hits_total"] + 3
