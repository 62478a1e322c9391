"""What the server runs for each new session writes as its client's statements do."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any, TypeAlias

import pymysql
import pytest

from sqlcache.demo.servers import (
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
    wait_until,
)
from sqlcache.mysql.constants import Capability
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import OLD, RawClient

COUNT = "SELECT COUNT(*) FROM logins"
NOTES = "INSERT INTO logins (who) VALUES (0)"
ROOTS = 'sqlcache_invalidations_total{kind="root"}'
ER_NEW_ABORTING_CONNECTION = 1184
ER_MUST_CHANGE_PASSWORD = 1820
AWARE = OLD | Capability.CAN_HANDLE_EXPIRED_PASSWORDS

WITHOUT_GLOBALS = ["as it reads them first", "as it never could", "as it has lost contact"]

Session: TypeAlias = "pymysql.Connection[Any]"
Connect = Callable[..., Session]
WithoutGlobals = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def servers(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory, schema: str
) -> list[PrivateSqlcache]:
    upstream.sql(f"CREATE TABLE {schema}.logins (n INT AUTO_INCREMENT PRIMARY KEY, who INT)")
    return [proxy(upstream, memcached, proxy__drain_timeout_s=0.5) for _ in range(2)]


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


@pytest.fixture(params=WITHOUT_GLOBALS)
def without_globals(
    request: pytest.FixtureRequest, upstream: PrivateSqlServer, servers: list[PrivateSqlcache]
) -> WithoutGlobals:
    """The first knows no globals meanwhile, while the server runs this for new sessions."""
    account = f"'{upstream.service_user}'@'%'"

    def cut_off() -> None:
        all_there_are = "SELECT id FROM information_schema.processlist WHERE user = "
        for (number,) in upstream.sql(f"{all_there_are}'{upstream.service_user}'"):
            with suppress(pymysql.OperationalError):  # it has ended by itself
                upstream.sql(f"KILL {number}")

    @contextmanager
    def knows_none(runs: str) -> Iterator[None]:
        beginning = threading.Thread(target=servers[0].restart)
        first_waits = f'DO IF(USER() LIKE "{upstream.service_user}@%", SLEEP(60), 0)'
        if request.param == "as it reads them first":
            upstream.sql(f"SET GLOBAL init_connect = '{first_waits}; {runs}'")
            servers[0].stop()
            beginning.start()
            wait_until(lambda: is_open(servers[0]), 20, "a port that is open")
        else:
            upstream.sql(f"SET GLOBAL init_connect = '{runs}'; ALTER USER {account} ACCOUNT LOCK")
            if request.param == "as it never could":
                servers[0].restart()
            cut_off()
        try:
            yield
        finally:
            upstream.sql(f"SET GLOBAL init_connect = ''; ALTER USER {account} ACCOUNT UNLOCK")
            if beginning.ident is not None:
                cut_off()
                beginning.join()

    return knows_none


def is_open(server: PrivateSqlcache) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((server.host, server.port)) == 0


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


def test_what_is_run_before_its_globals_are_known_is_seen(
    connect: Connect,
    readers: list[Session],
    servers: list[PrivateSqlcache],
    without_globals: WithoutGlobals,
) -> None:
    first = cached(readers[1])
    with without_globals(NOTES):
        for more in range(1, 4):
            session = connect()
            assert [cached(each) for each in (session, readers[1])] == [first + more] * 2
        connect()
    for server in range(2):
        assert cached(served_hits(servers, connect, server)) == first + 4


def served_hits(servers: list[PrivateSqlcache], connect: Connect, server: int = 0) -> Session:
    """A session that has had one, when one that begins can have some again."""
    sessions = []

    def is_hit() -> bool:
        sessions.append(connect(server))
        before = servers[server].metrics()["sqlcache_hits_total"]
        for _ in range(3):
            run(sessions[-1], "SELECT COUNT(who) FROM logins")
        return servers[server].metrics()["sqlcache_hits_total"] > before

    wait_until(is_hit, 20, "a hit")
    return sessions[-1]


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
        wait_until_seen(upstream, schema, reader, expected)


@pytest.mark.parametrize("without_globals", ["as it never could"], indirect=True)
def test_what_is_run_for_one_that_leaves_before_its_globals_are_known_is_seen(
    upstream: PrivateSqlServer,
    servers: list[PrivateSqlcache],
    connect: Connect,
    readers: list[Session],
    without_globals: WithoutGlobals,
    schema: str,
) -> None:
    connect()  # so that MySQL knows the password
    expected = cached(readers[1]) + 1
    with without_globals(f"DO SLEEP(0.2); {NOTES}"):
        RawClient.logged_in(servers[0], schema, "p", schema).reset()
        wait_until_seen(upstream, schema, readers[1], expected)


@pytest.mark.parametrize("without_globals", ["as it never could"], indirect=True)
def test_what_is_run_for_one_that_is_cut_before_its_globals_are_known_is_seen(
    upstream: PrivateSqlServer,
    servers: list[PrivateSqlcache],
    connect: Connect,
    readers: list[Session],
    without_globals: WithoutGlobals,
    schema: str,
) -> None:
    connect()  # so that MySQL knows the password
    expected = cached(readers[1]) + 1
    with without_globals(f"DO SLEEP(5); {NOTES}"):
        with RawClient.logged_in(servers[0], schema, "p", schema):
            # Which takes less than that sleep, but where the machine is very busy.
            servers[0].stop()
        wait_until_seen(upstream, schema, readers[1], expected)


@pytest.mark.parametrize("without_globals", ["as it never could"], indirect=True)
def test_what_is_run_for_who_has_to_set_another_password_is_seen(
    upstream: PrivateSqlServer,
    servers: list[PrivateSqlcache],
    connect: Connect,
    readers: list[Session],
    without_globals: WithoutGlobals,
    schema: str,
) -> None:
    """MySQL runs nothing for him, MariaDB what it does not refuse."""
    body = f"MODIFIES SQL DATA BEGIN {NOTES}; RETURN 1; END"
    upstream.sql(f"CREATE FUNCTION f() RETURNS INT DETERMINISTIC {body}", schema)
    connect()  # so that MySQL knows the password
    expected = cached(readers[1]) + (upstream.name == "mariadbd")
    upstream.sql(f"ALTER USER {schema} PASSWORD EXPIRE")
    with without_globals(f"SET @x = {schema}.f()"):
        with RawClient.logged_in(servers[0], schema, "p", schema, AWARE) as client:
            client.query("SELECT 1")
            refusal = client.read_packet()[1]
        assert refusal[:3] == b"\xff" + ER_MUST_CHANGE_PASSWORD.to_bytes(2, "little")
        assert written(upstream, schema) == expected
        assert cached(readers[1]) == expected


@pytest.mark.parametrize("without_globals", ["as it never could"], indirect=True)
def test_a_sequence_that_it_goes_on_with_counts_as_written(
    mariadb: PrivateSqlServer,
    upstream: PrivateSqlServer,
    servers: list[PrivateSqlcache],
    connect: Connect,
    without_globals: WithoutGlobals,
    schema: str,
) -> None:
    if upstream is not mariadb:
        pytest.skip("MySQL has none")
    upstream.sql("CREATE SEQUENCE s", schema)
    with without_globals(f"SET @x = NEXT VALUE FOR {schema}.s"):
        before = servers[0].metrics()[ROOTS]
        connect()
        assert servers[0].metrics()[ROOTS] > before


def written(upstream: PrivateSqlServer, schema: str) -> int:
    ((count,),) = upstream.sql(COUNT, schema)
    return int(count)


def wait_until_seen(
    upstream: PrivateSqlServer, schema: str, reader: Session, expected: int
) -> None:
    """Returns when so many have been written, and the reader has that from its sqlcache."""
    wait_until(lambda: written(upstream, schema) == expected, 20, "a write")
    wait_until(lambda: cached(reader) == expected, 5, "its being seen")


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


@pytest.mark.parametrize("by_call", [False, True])
def test_one_that_it_makes_before_its_globals_are_known_hides_another(
    upstream: PrivateSqlServer,
    servers: list[PrivateSqlcache],
    connect: Connect,
    without_globals: WithoutGlobals,
    schema: str,
    *,
    by_call: bool,
) -> None:
    made = f"CREATE TEMPORARY TABLE {schema}.logins AS SELECT CONNECTION_ID() AS who"
    upstream.sql(f"CREATE PROCEDURE hide() {made}", schema)
    upstream.sql("INSERT INTO logins (who) VALUES (0)", schema)
    connect()  # so that MySQL knows the password
    read = "SELECT who FROM logins"
    with without_globals(f"CALL {schema}.hide()" if by_call else made):
        sessions = [connect() for _ in range(2)]
    without = served_hits(servers, connect)
    own = [run(session, "SELECT CONNECTION_ID()") for session in sessions]
    for _ in range(3):
        assert run(without, read) == ((0,),)
        assert [run(session, read) for session in sessions] == own
    run(sessions[0], "DROP TEMPORARY TABLE logins")
    for _ in range(3):
        assert run(sessions[0], read) == ((0,),)
        assert run(sessions[1], read) == own[1]


LEAVES = (
    "",
    "SET last_insert_id = 77",
    "SET @none = 1 / 0",
    "INSERT INTO logins (n) VALUES (7) ON DUPLICATE KEY UPDATE who = who",
    "SET TRANSACTION READ ONLY",
    "SELECT 1 UNION SELECT 2 UNION SELECT 3",
    "SELECT 1",
)
ASKED = (
    "SELECT ROW_COUNT()",
    "SELECT FOUND_ROWS()",
    "SELECT LAST_INSERT_ID()",
    "SHOW WARNINGS",
    "DELETE FROM logins WHERE n < 0",
)


@pytest.mark.parametrize("without_globals", ["as it never could"], indirect=True)
def test_who_begins_without_the_globals_is_told_what_he_would_be(
    upstream: PrivateSqlServer,
    servers: list[PrivateSqlcache],
    connect: Connect,
    without_globals: WithoutGlobals,
    schema: str,
) -> None:
    connect()  # so that MySQL knows the password
    upstream.sql("INSERT INTO logins (n) VALUES (7)", schema)
    mysql = upstream.name == "mysqld"
    for runs in LEAVES:
        with without_globals(runs):
            for asked in ASKED:
                if "WARNINGS" in asked and "none" in runs and mysql:
                    continue  # any question takes them away
                if "FOUND" in asked and "SELECT" not in runs and not mysql:
                    continue  # MariaDB begins with any number
                through, direct = (told(at, schema, asked) for at in (servers[0], upstream))
                assert through == direct, (runs, asked)


def told(server: PrivateSqlServer | PrivateSqlcache, user: str, query: str) -> bytes:
    """What answers a session's first command, as it comes."""
    with RawClient.logged_in(server, user, "p", user) as client:
        return client.sql(query)


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
