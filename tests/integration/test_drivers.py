"""Drivers people use, unchanged, through sqlcache: each gets what MySQL itself would give it."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import io
import os
import re
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import aiomysql
import mysql.connector
import MySQLdb
import pymysql
import pytest
from pymysql.constants import CLIENT

from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateServer,
    PrivateSqlcache,
    PrivateSqlServer,
    find_program,
    wait_until,
)
from tests.conftest import ProxyFactory
from tests.servers import PrivateMySQL

Connect = Callable[..., Any]


def with_pymysql(server: PrivateServer, **login: Any) -> Any:
    """Protocol without DEPRECATE_EOF, text statements only."""
    options = {"autocommit": True, "client_flag": CLIENT.MULTI_STATEMENTS, "local_infile": True}
    return pymysql.connect(host=server.host, port=server.port, **{**options, **login})


def with_connector(server: PrivateServer, **login: Any) -> Any:
    """Python without C, with real prepared statements."""
    options: dict[str, Any] = {
        "use_pure": True,
        "autocommit": True,
        "allow_local_infile": True,
        "charset": "utf8mb4",
        "collation": "utf8mb4_general_ci",
        "ssl_disabled": True,
    }
    return mysql.connector.connect(host=server.host, port=server.port, **{**options, **login})


def with_mysqlclient(server: PrivateServer, **login: Any) -> Any:
    """The C library."""
    options = {"autocommit": True, "charset": "utf8mb4", "local_infile": 1}
    return MySQLdb.connect(host=server.host, port=server.port, **{**options, **login})


DRIVERS: dict[str, Connect] = {
    "pymysql": with_pymysql,
    "connector": with_connector,
    "mysqlclient": with_mysqlclient,
}
EVERY_DRIVER = pytest.mark.parametrize("connect", DRIVERS.values(), ids=DRIVERS)
ERRORS = (pymysql.MySQLError, mysql.connector.Error, MySQLdb.Error)


@pytest.fixture
def relay(upstream: PrivateSqlServer, proxy: ProxyFactory) -> PrivateSqlcache:
    """sqlcache with the embedded store."""
    return proxy(upstream, "memory")


@pytest.fixture
def account(upstream: PrivateSqlServer, schema: str) -> dict[str, str]:
    """What a driver needs to log in to the schema."""
    return {"user": upstream.user, "password": upstream.password, "database": schema}


@pytest.fixture
def make(relay: PrivateSqlcache, account: dict[str, str]) -> Callable[[str], None]:
    """`make(statements)` runs them through the relay, which so knows the tables they create."""

    def run(statements: str) -> None:
        with closing(with_pymysql(relay, **account)) as connection, connection.cursor() as cursor:
            cursor.execute(statements)
            while cursor.nextset():
                pass

    return run


def hits(relay: PrivateSqlcache) -> float:
    """Reads answered from the cache so far."""
    return relay.metrics()["sqlcache_hits_total"]


def error_of(call: Callable[[], Any]) -> tuple[Any, ...]:
    """What the call raises, as the driver tells it."""
    with pytest.raises(ERRORS) as raised:
        call()
    error = raised.value
    sqlstate = getattr(error, "sqlstate", None)
    return (type(error).__name__, error.args[0], str(error), sqlstate)


# --- login ------------------------------------------------------------------------------------


@EVERY_DRIVER
def test_a_login_succeeds_or_fails_in_mysqls_own_words(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    account: dict[str, str],
    connect: Connect,
) -> None:
    for wrong in (
        {"password": "wrong"},
        {"password": ""},
        {"user": "no_such_user"},
        {"database": "no_such_schema"},
    ):
        direct, relayed = (
            error_of(lambda: connect(server, **{**account, **wrong}))  # noqa: B023
            for server in (upstream, relay)
        )
        assert re.sub(r":\d+", "", str(relayed)) == re.sub(r":\d+", "", str(direct))
    with closing(connect(relay, **account)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT CURRENT_USER(), DATABASE()")
        assert cursor.fetchone() == (f"{upstream.user}@%", account["database"])


PLUGINS = {
    "mariadbd": {
        "without a password": "IDENTIFIED BY ''",
        "mysql_native_password": "IDENTIFIED BY 'secret'",
    },
    "mysqld": {
        "without a password": "IDENTIFIED BY ''",
        "caching_sha2_password": "IDENTIFIED BY 'secret'",
    },
}


@EVERY_DRIVER
def test_every_way_to_authenticate_works_again_and_again(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, schema: str, connect: Connect
) -> None:
    for number, (name, clause) in enumerate(PLUGINS[upstream.name].items()):
        user = f"u{number}_{schema}"
        upstream.sql(f"CREATE USER {user} {clause}; GRANT SELECT ON {schema}.* TO {user}")
        password = "secret" if "secret" in clause else ""
        for _ in range(3):  # caching_sha2_password: the password itself once, then a digest
            if connect is with_connector:  # sends a password itself over TLS only
                with_pymysql(relay, user=user, password=password).close()
            with closing(connect(relay, user=user, password=password, database=schema)) as opened:
                cursor = opened.cursor()
                cursor.execute("SELECT CURRENT_USER()")
                assert cursor.fetchone() == (f"{user}@%",), name
        assert error_of(lambda: connect(relay, user=user, password="wrong"))[1] == 1045  # noqa: B023
        upstream.sql(f"DROP USER {user}")


def command_line(
    program: str,
    server: PrivateServer,
    account: dict[str, str],
    *arguments: str,
    given: str | bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    """Runs a program of the mariadb-client package."""
    package = "mariadb-client"
    return subprocess.run(
        [
            find_program(program, package),
            "--no-defaults",
            "--skip-ssl",  # newer ones want TLS of every server
            *(f"--host={server.host}", f"--port={server.port}", "--protocol=tcp"),
            f"--user={account['user']}",
            *arguments,
        ],
        input=given.encode() if isinstance(given, str) else given,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "MYSQL_PWD": account["password"]},
    )


def test_ed25519_works(mariadb: PrivateMariaDB, proxy: ProxyFactory, schema: str) -> None:
    mariadb.sql("INSTALL PLUGIN IF NOT EXISTS ed25519 SONAME 'auth_ed25519'")
    mariadb.sql(
        f"CREATE USER ed_{schema} IDENTIFIED VIA ed25519 USING PASSWORD('secret');"
        f"GRANT SELECT ON {schema}.* TO ed_{schema}"
    )
    relay = proxy(mariadb, "memory")
    account = {"user": f"ed_{schema}", "password": "secret"}
    said = command_line("mariadb", relay, account, "-Ne", "SELECT CURRENT_USER()")
    assert said.stdout.decode().strip() == f"ed_{schema}@%", said.stderr
    said = command_line("mariadb", relay, {**account, "password": "x"}, "-Ne", "SELECT 1")
    assert b"ERROR 1045 (28000): Access denied" in said.stderr
    mariadb.sql(f"DROP USER ed_{schema}")


def test_a_password_goes_encrypted_over_tls(
    mysql: PrivateMySQL, proxy: ProxyFactory, schema: str, tmp_path: Path
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subject = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*request, *subject, *files], check=True, capture_output=True)
    relay = proxy(mysql, "memory", proxy__tls_certificate=str(certificate), proxy__tls_key=str(key))
    user = f"tls_{schema}"
    mysql.sql(f"CREATE USER {user} IDENTIFIED BY 'secret' REQUIRE SSL")
    login: dict[str, Any] = {"user": user, "password": "secret"}
    for options in (
        (with_pymysql, {"ssl": {"ca": str(certificate)}}),
        (with_connector, {"ssl_ca": str(certificate), "ssl_disabled": False}),
    ):
        connect, secured = options
        mysql.sql("FLUSH PRIVILEGES")  # so that the password itself is asked for
        for _ in range(2):
            with closing(connect(relay, **login, **secured)) as connection:
                cursor = connection.cursor()
                cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
                assert cursor.fetchone()[1]
        wrong = {**login, "password": "wrong"}
        assert error_of(lambda: connect(relay, **wrong, **secured))[1] == 1045  # noqa: B023
    without = error_of(lambda: with_pymysql(relay, **login, ssl_disabled=True))
    assert without[1] == 1045, "the account asks for TLS"
    mysql.sql(f"DROP USER {user}")


# --- what comes back --------------------------------------------------------------------------

COLUMNS = {
    "tiny": ("TINYINT", "-128", "127"),
    "big": ("BIGINT UNSIGNED", "0", "18446744073709551615"),
    "exact": ("DECIMAL(30,10)", "-12345678901234567890.0123456789", "0.1"),
    "single": ("FLOAT", "1.5", "-3.25e10"),
    "precise": ("DOUBLE", "0.1", "-1.7976931348623157e308"),
    "day": ("DATE", "'2024-02-29'", "'1000-01-01'"),
    "moment": ("DATETIME(6)", "'2024-02-29 23:59:59.999999'", "'9999-12-31 00:00:00'"),
    "stamp": ("TIMESTAMP NULL", "'2024-02-29 23:59:59'", "'1970-01-02 00:00:01'"),
    "duration": ("TIME(3)", "'-838:59:59.000'", "'00:00:00.001'"),
    "years": ("YEAR", "1901", "2155"),
    "flags": ("BIT(13)", "b'1010101010101'", "b'0'"),
    "fixed": ("CHAR(5)", "''", "'ab   '"),
    "words": ("VARCHAR(300)", "'häßlich \U0001f600'", "REPEAT('€', 300)"),
    "bytes": ("VARBINARY(300)", "X'00FF0A0D27'", "REPEAT(X'FB', 251)"),
    "large": ("LONGTEXT", "REPEAT('x', 70000)", "'\\0\\n\\\\'"),
    "blob": ("LONGBLOB", "REPEAT(X'FE', 66000)", "X''"),
    "choice": ("ENUM('a','b','')", "'b'", "''"),
    "several": ("SET('a','b','c')", "'a,c'", "''"),
    "document": ("JSON", """'{"a": [1, null, "ü"]}'""", "'[]'"),
    "place": ("POINT", "ST_GeomFromText('POINT(1 2)')", "NULL"),
}

TYPES = "CREATE TABLE types (id INT PRIMARY KEY, {}) CHARACTER SET utf8mb4".format(
    ", ".join(f"`{name}` {type_}" for name, (type_, _, _) in COLUMNS.items())
)
FILL = "INSERT INTO types VALUES " + ", ".join(
    f"({number}, {', '.join(values)})"
    for number, values in enumerate(
        (
            [low for _, low, _ in COLUMNS.values()],
            [high for _, _, high in COLUMNS.values()],
            ["NULL" for _ in COLUMNS],
        )
    )
)


@EVERY_DRIVER
def test_values_and_columns_are_those_of_mysql_from_a_miss_and_from_a_hit(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    account: dict[str, str],
    make: Callable[[str], None],
    connect: Connect,
) -> None:
    make(f"{TYPES}; {FILL}")
    with (
        closing(connect(upstream, **account)) as direct,
        closing(connect(relay, **account)) as relayed,
    ):
        for statement in (
            "SELECT * FROM types ORDER BY id",
            "SELECT * FROM types WHERE id = 1",
            "SELECT * FROM types WHERE id < 0",
            "SELECT id `ID`, `words` AS 'ä', COUNT( id ), MAX(exact) FROM types t GROUP BY id",
            "(SELECT id FROM types) UNION ALL SELECT 'x' FROM types ORDER BY 1",
            "WITH c AS (SELECT id FROM types) SELECT * FROM c a JOIN c b USING (id) ORDER BY 1",
            *(f"SELECT `{name}`, `{name}` IS NULL FROM types ORDER BY id" for name in COLUMNS),
        ):
            expected = _everything(direct, statement)
            before = hits(relay)
            for time in ("miss", "hit", "hit"):
                assert _everything(relayed, statement) == expected, f"{time}: {statement}"
            assert hits(relay) == before + 2, statement


def _everything(connection: Any, statement: str) -> tuple[Any, ...]:
    cursor = connection.cursor()
    cursor.execute(statement)
    answer = (cursor.fetchall(), cursor.description, cursor.rowcount, cursor.lastrowid)
    cursor.close()
    return answer


@EVERY_DRIVER
def test_errors_and_warnings_are_mysqls_own(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    account: dict[str, str],
    make: Callable[[str], None],
    connect: Connect,
) -> None:
    make("CREATE TABLE t (id INT PRIMARY KEY, v INT CHECK (v > 0)); INSERT INTO t VALUES (1, 1)")
    statements = (
        "SELECT nope FROM t",
        "SELECT * FROM nope",
        "SELEC 1",
        "INSERT INTO t VALUES (1, 2)",
        "INSERT INTO t VALUES (2, 0)",
        "UPDATE t SET v = 'x'",
        "SELECT (SELECT id FROM t UNION SELECT 9) FROM t",
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'häßlich', MYSQL_ERRNO = 5555",
        "USE no_such_schema",
        "KILL 2147483647",
    )
    with (
        closing(connect(upstream, **account)) as direct,
        closing(connect(relay, **account)) as relayed,
    ):
        for statement in statements:
            errors = [
                error_of(lambda: _everything(each, statement))  # noqa: B023
                for each in (direct, relayed)
            ]
            assert errors[0] == errors[1]
        for each in (direct, relayed):
            _everything(each, "SELECT 1 / 0, CAST('x' AS SIGNED) FROM t")
        told = [_everything(each, "SHOW WARNINGS") for each in (direct, relayed)]
        assert told[0] == told[1]
        assert told[0][0]


@EVERY_DRIVER
def test_autocommit_off_sees_its_own_writes_and_hides_them_until_commit(
    relay: PrivateSqlcache,
    account: dict[str, str],
    make: Callable[[str], None],
    connect: Connect,
) -> None:
    make("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)")

    def value(connection: Any) -> Any:
        return _everything(connection, "SELECT v FROM t")[0][0][0]

    with (
        closing(connect(relay, **account)) as other,
        closing(connect(relay, **{**account, "autocommit": False})) as own,
    ):
        for number in range(2, 5):
            for _ in range(3):
                assert value(other) == number - 1
            own.cursor().execute("UPDATE t SET v = v + 1")
            assert (value(own), value(other)) == (number, number - 1)
            own.rollback()
            own.cursor().execute("UPDATE t SET v = v + 1")
            assert (value(own), value(other)) == (number, number - 1)
            own.commit()
            assert (value(own), value(other)) == (number, number)
            own.rollback()


# --- what drivers can do ----------------------------------------------------------------------


@EVERY_DRIVER
def test_executemany_several_results_and_procedures_work(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    account: dict[str, str],
    make: Callable[[str], None],
    connect: Connect,
) -> None:
    make(
        "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20));"
        "CREATE PROCEDURE p(IN low INT) BEGIN SELECT id FROM t WHERE id > low ORDER BY id;"
        " UPDATE t SET v = 'called' WHERE id = 1; SELECT v FROM t WHERE id = 1; END"
    )
    answers: list[Any] = []
    for server in (upstream, relay):
        with closing(connect(server, **account)) as connection:
            seen: list[Any] = []
            cursor = connection.cursor()
            for _ in range(3):
                seen.append(_everything(connection, "SELECT COUNT(*), MAX(v) FROM t")[0])
            rows = [("a",), (None,), ("ü",), ("x" * 20,)]
            cursor.executemany("INSERT INTO t (v) VALUES (%s)", rows)
            seen.append(_everything(connection, "SELECT COUNT(*), MAX(v) FROM t")[0])
            cursor.executemany("UPDATE t SET v = %s WHERE id = %s", [("b", 2), ("c", 3)])
            seen.append(_everything(connection, "SELECT id, v FROM t ORDER BY id")[0])
            seen += _results_of_call(cursor, "p", (2,))
            seen.append(_everything(connection, "SELECT id, v FROM t ORDER BY id")[0])
            several = "SELECT 1; UPDATE t SET v = 'm' WHERE id = 2; SELECT v FROM t WHERE id = 2"
            seen.append(_results_of(connection, several))
            seen.append(_everything(connection, "SELECT id, v FROM t ORDER BY id")[0])
            answers.append(seen)
        make("TRUNCATE t")
    assert answers[0] == answers[1]


def _results_of_call(cursor: Any, procedure: str, arguments: tuple[Any, ...]) -> list[Any]:
    cursor.callproc(procedure, arguments)
    if hasattr(cursor, "stored_results"):
        with warnings.catch_warnings(action="ignore"):  # it is to become a property
            return [result.fetchall() for result in cursor.stored_results()]
    results = [cursor.fetchall()]
    while cursor.nextset():
        results.append(cursor.fetchall())
    return results


def _results_of(connection: Any, statements: str) -> list[Any]:
    results = []
    cursor = connection.cursor()
    cursor.execute(statements)
    while True:
        results.append(cursor.fetchall() if cursor.description else cursor.rowcount)
        if not cursor.nextset():
            return results


@EVERY_DRIVER
def test_load_data_local_writes_and_is_seen(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    account: dict[str, str],
    make: Callable[[str], None],
    connect: Connect,
    tmp_path: Path,
) -> None:
    make("CREATE TABLE t (id INT, v VARCHAR(200))")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "small").write_bytes(b"1\tone\n2\ttwo\n")
    (tmp_path / "large").write_bytes(b"".join(b"%d\t%s\n" % (n, b"x" * 150) for n in range(60_000)))

    def load(server: PrivateServer, name: str) -> Any:
        with closing(connect(server, **account)) as connection:
            try:
                cursor = connection.cursor()
                cursor.execute(f"LOAD DATA LOCAL INFILE '{tmp_path / name}' INTO TABLE t")
                outcome: Any = cursor.rowcount
            except (*ERRORS, FileNotFoundError) as error:
                outcome = (type(error).__name__, str(error))
        with closing(connect(server, **account)) as connection:
            return outcome, _everything(connection, "SELECT COUNT(*), MAX(id) FROM t")[0]

    names = ("empty", "small", "large", "no such file")
    answers = []
    for server in (upstream, relay):
        make("TRUNCATE t")
        for _ in range(3):
            with closing(connect(relay, **account)) as reader:
                _everything(reader, "SELECT COUNT(*), MAX(id) FROM t")
        answers.append([load(server, name) for name in names])
    assert answers[0] == answers[1]


def test_load_data_local_that_the_client_does_not_allow_is_refused_alike(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, account: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"1\n")
    statement = f"LOAD DATA LOCAL INFILE '{tmp_path / 'file'}' INTO TABLE t"
    upstream.sql("CREATE TABLE t (v INT)", account["database"])
    for connect, refusing in (
        (with_pymysql, {"local_infile": False}),
        (with_mysqlclient, {"local_infile": 0}),
        (with_connector, {"allow_local_infile": False}),
    ):
        errors = []
        for server in (upstream, relay):
            with closing(connect(server, **account, **refusing)) as connection:
                errors.append(error_of(lambda: connection.cursor().execute(statement)))
        assert errors[0] == errors[1]


def test_prepared_statements_of_the_connector_are_answered_alike(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    account: dict[str, str],
    make: Callable[[str], None],
) -> None:
    make(f"{TYPES}; {FILL}; CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)")
    columns = ", ".join(f"`{name}`" for name in COLUMNS if name != "years")  # it cannot read those
    now = datetime.datetime(2024, 2, 29, 12, 30, 1, 500)
    parameters: tuple[Any, ...] = (1, 1.5, "ü", b"\0\xff", now, now.date(), -(1 << 40))
    answers = []
    for server in (upstream, relay):
        seen: list[Any] = []
        with closing(with_connector(server, **account)) as connection:
            cursor = connection.cursor(prepared=True)
            for _ in range(3):
                cursor.execute("SELECT ?, ?, ?, ?, ?, ?, ?", parameters)
                seen.append((cursor.fetchall(), cursor.description))
                for values in ((0, 1), (2, -1)):
                    cursor.execute(f"SELECT {columns} FROM types WHERE id = ? OR exact < ?", values)
                    seen.append((cursor.fetchall(), cursor.description))
            insert = "INSERT INTO t VALUES (?, ?)"
            cursor.executemany(insert, [(n, b"x" * n) for n in range(20)])
            cursor.execute(insert, (21, None))
            cursor.execute(insert, (20, io.BytesIO(b"long data " * 300_000)))
            read = "SELECT id, LENGTH(v), HEX(LEFT(v, 9)) FROM t ORDER BY id"
            for write in ("UPDATE t SET v = ? WHERE id = ?", "UPDATE t SET v = ? WHERE id < ?"):
                for _ in range(2):
                    seen.append(_everything(connection, read)[0])
                cursor.execute(write, (b"written", 7))
                seen.append(_everything(connection, read)[0])
            with pytest.raises(mysql.connector.Error) as refused:
                cursor.execute(insert, (1, b""))
            seen.append((refused.value.errno, str(refused.value)))
            cursor.execute("DELETE FROM t WHERE id >= ?", (0,))
        answers.append(seen)
    assert answers[0] == answers[1]


def test_the_session_can_be_changed_and_reset(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    account: dict[str, str],
    make: Callable[[str], None],
) -> None:
    schema = account["database"]
    other = {"user": f"other_{schema}", "password": "secret", "database": schema}
    make("CREATE TABLE shown (v INT); CREATE TABLE hidden (v INT); INSERT INTO shown VALUES (1)")
    make("INSERT INTO hidden VALUES (2)")
    upstream.sql(f"CREATE USER {other['user']} IDENTIFIED BY 'secret'")
    with_pymysql(upstream, user=other["user"], password=other["password"]).close()
    upstream.sql(f"GRANT SELECT ON {schema}.shown TO {other['user']}")
    who = "SELECT CURRENT_USER(), DATABASE(), @@sql_select_limit > 5, @x"
    try:
        for connect, reset in (
            (with_connector, lambda c: c.cmd_reset_connection()),
            (with_mysqlclient, None),
        ):
            with closing(connect(relay, **account)) as connection:
                for _ in range(3):
                    assert _everything(connection, "SELECT v FROM hidden")[0][0] == (2,)
                connection.cursor().execute("SET @x = 1, sql_select_limit = 5")
                if reset is not None:
                    reset(connection)  # type: ignore[no-untyped-call]
                    assert _everything(connection, who)[0][0][1:] == (schema, 1, None)
                    connection.cursor().execute("SET sql_select_limit = 0")
                    assert not _everything(connection, "SELECT v FROM hidden")[0]
                if connect is with_connector:
                    connection.cmd_change_user(other["user"], other["password"], schema, charset=45)
                else:
                    connection.change_user(other["user"], other["password"], schema)
                assert _everything(connection, who)[0][0] == (f"{other['user']}@%", schema, 1, None)
                assert _everything(connection, "SELECT v FROM shown")[0][0] == (1,)
                denied = error_of(lambda: _everything(connection, "SELECT v FROM hidden"))
                assert denied[1] == 1142, "another user's answers are not for this one"
    finally:
        upstream.sql(f"DROP USER {other['user']}")


def test_a_change_to_a_wrong_user_is_refused_alike(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, account: dict[str, str]
) -> None:
    outcomes = []
    for server in (upstream, relay):
        connection = with_connector(server, **account)
        outcome: list[Any] = []
        for call in (
            lambda: connection.cmd_change_user("nobody", "wrong", ""),  # noqa: B023
            lambda: _everything(connection, "SELECT CURRENT_USER()"),  # noqa: B023
        ):
            try:
                outcome.append(call())
            except mysql.connector.Error as error:
                outcome.append(error.errno)
        outcomes.append(outcome)
        with suppress(mysql.connector.Error):
            connection.close()
    assert outcomes[0] == outcomes[1]


@EVERY_DRIVER
def test_ping_and_the_default_schema_work(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    account: dict[str, str],
    make: Callable[[str], None],
    connect: Connect,
) -> None:
    schema = account["database"]
    second = f"{schema}_2"
    make(f"CREATE DATABASE {second}; CREATE TABLE t (v INT); INSERT INTO t VALUES (1)")
    make(f"CREATE TABLE {second}.t (v INT); INSERT INTO {second}.t VALUES (2)")
    try:
        with closing(connect(relay, **account)) as connection:
            select = getattr(connection, "select_db", None)
            for _ in range(3):
                for name, value in ((schema, 1), (second, 2)):
                    if select is not None:
                        select(name)
                    else:
                        connection.cmd_init_db(name)
                    connection.ping()
                    for _ in range(2):
                        assert _everything(connection, "SELECT v FROM t")[0][0] == (value,)
                connection.cursor().execute(f"USE {schema}")
                assert _everything(connection, "SELECT v FROM t")[0][0] == (1,)
    finally:
        upstream.sql(f"DROP DATABASE {second}")


def test_a_query_can_be_killed(relay: PrivateSqlcache, account: dict[str, str]) -> None:
    with (
        closing(with_pymysql(relay, **account)) as victim,
        closing(with_pymysql(relay, **account)) as killer,
    ):
        number = _everything(victim, "SELECT CONNECTION_ID()")[0][0][0]
        outcome: list[Any] = []

        def sleep() -> None:
            try:
                outcome.append(_everything(victim, "SELECT SLEEP(60)")[0])
            except pymysql.MySQLError as error:
                outcome.append(error.args[0])

        thread = threading.Thread(target=sleep)
        thread.start()
        running = f"SELECT state FROM information_schema.processlist WHERE id = {number}"
        wait_until(lambda: _everything(killer, running)[0][0] == ("User sleep",), 20, "the query")
        killer.cursor().execute(f"KILL QUERY {number}")
        thread.join(30)
        assert outcome in ([1317], [((1,),)])
        assert _everything(victim, "SELECT 7")[0] == ((7,),)
        killer.kill(number)
        with pytest.raises(pymysql.MySQLError):
            _everything(victim, "SELECT 7")


async def test_aiomysql_works_in_a_pool(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    account: dict[str, str],
    make: Callable[[str], None],
) -> None:
    make("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    make("INSERT INTO t VALUES " + ",".join(f"({n}, 0)" for n in range(10)))
    login = {"user": account["user"], "password": account["password"], "db": account["database"]}
    pool = await aiomysql.create_pool(
        host=relay.host, port=relay.port, autocommit=True, minsize=5, maxsize=5, **login
    )

    async def work(number: int) -> None:
        for _ in range(20):
            async with pool.acquire() as connection, connection.cursor() as cursor:
                await cursor.execute("SELECT v FROM t WHERE id = %s", (number,))
                (before,) = await cursor.fetchone()
                await cursor.execute("UPDATE t SET v = v + 1 WHERE id = %s", (number,))
                for _ in range(3):
                    await cursor.execute("SELECT v FROM t WHERE id = %s", (number,))
                    assert await cursor.fetchone() == (before + 1,)

    await asyncio.gather(*(work(number) for number in range(10)))
    async with pool.acquire() as connection, connection.cursor(aiomysql.SSCursor) as cursor:
        await cursor.execute("SELECT id, v FROM t ORDER BY id")
        assert [row async for row in cursor] == [(number, 20) for number in range(10)]
    pool.close()
    await pool.wait_closed()


# --- the command line -------------------------------------------------------------------------


def test_the_mariadb_command_line_prints_the_same(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    account: dict[str, str],
    make: Callable[[str], None],
) -> None:
    make(f"{TYPES}; {FILL}; CREATE TABLE t (id INT, v VARCHAR(20)); INSERT INTO t VALUES (1, 'a')")
    script = """
        SELECT * FROM types ORDER BY id\\G
        SELECT id, words FROM types ORDER BY id;
        SELECT id, words FROM types ORDER BY id;
        DELIMITER //
        CREATE PROCEDURE q() BEGIN SELECT * FROM t; SELECT COUNT(*) FROM types; END//
        DELIMITER ;
        CALL q();
        SHOW TABLES; DESCRIBE t; SHOW CREATE TABLE t;
        SET NAMES latin1; SELECT 'x' FROM t; STATUS
        SELECT nope FROM t;
        UPDATE t SET v = 'b'; SELECT * FROM t; UPDATE t SET v = 'a'; SELECT * FROM t;
        DROP PROCEDURE q;
        HELP 'no such thing';
        SHOW WARNINGS;
    """
    arguments = [account["database"], "--table", "--force", "--column-type-info"]
    answers = []
    for server in (upstream, relay):
        said = command_line("mariadb", server, account, *arguments, given=script)
        printed = re.sub(rb"(Connection id|TCP port|Uptime|Threads):.*\n", b"", said.stdout)
        answers.append((said.returncode, printed, said.stderr))
    assert answers[0] == answers[1]
    assert hits(relay) > 0


def test_a_dump_through_it_equals_one_made_directly_and_can_be_restored_through_it(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    account: dict[str, str],
    make: Callable[[str], None],
) -> None:
    schema = account["database"]
    make(f"{TYPES}; {FILL}; CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(99))")
    make("INSERT INTO t (v) VALUES " + ",".join(f"('row {n} \\' \\\\ ü')" for n in range(5000)))
    make("CREATE VIEW w AS SELECT id FROM t WHERE id < 9")
    make("CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET NEW.v = TRIM(NEW.v)")
    arguments = ["--skip-dump-date", "--routines", "--triggers", "--single-transaction", schema]
    dumps = [
        command_line("mariadb-dump", server, account, *arguments) for server in (upstream, relay)
    ]
    header = re.compile(rb"-- Host: .*\n")
    texts = [header.sub(b"", dump.stdout) for dump in dumps]
    assert [dump.returncode for dump in dumps] == [0, 0], dumps[0].stderr + dumps[1].stderr
    assert len(texts[0]) > 100_000
    assert texts[0] == texts[1]

    count = "SELECT COUNT(*), MIN(v), (SELECT COUNT(*) FROM w), (SELECT COUNT(*) FROM types) FROM t"
    with closing(with_pymysql(relay, **account)) as connection:
        full = _everything(connection, count)
        make("DELETE FROM t WHERE id > 10; DELETE FROM types")
        assert _everything(connection, count) != full
        restored = command_line("mariadb", relay, account, schema, given=dumps[1].stdout)
        assert restored.returncode == 0, restored.stderr
        assert _everything(connection, count) == full
    again = command_line("mariadb-dump", relay, account, *arguments)
    assert header.sub(b"", again.stdout) == texts[0]


# --- sysbench ---------------------------------------------------------------------------------


class Sysbench:
    """sysbench with two small tables, prepared through the relay."""

    def __init__(self, relay: PrivateSqlcache, account: dict[str, str]) -> None:
        self._command = [
            find_program("sysbench", "sysbench"),
            "--db-driver=mysql",
            *(f"--mysql-host={relay.host}", f"--mysql-port={relay.port}"),
            *(f"--mysql-user={account['user']}", f"--mysql-password={account['password']}"),
            f"--mysql-db={account['database']}",
            *("--tables=2", "--table-size=500", "--threads=16", "--mysql-ignore-errors=none"),
        ]
        self.run("oltp_read_write", "prepare")

    def start(self, workload: str, action: str, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._command, *options, workload, action],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, workload: str, action: str, *options: str) -> str:
        return self.finish(self.start(workload, action, *options))

    def finish(self, process: subprocess.Popen[str]) -> str:
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 0, said
        assert "FATAL" not in said, said
        return said


@pytest.fixture
def sysbench_account(upstream: PrivateSqlServer, schema: str) -> Iterator[dict[str, str]]:
    """An account of a kind the C library in sysbench can log in with."""
    user = f"sb_{schema}"
    upstream.sql(f"CREATE USER {user} IDENTIFIED BY 'secret'; GRANT ALL ON {schema}.* TO {user}")
    yield {"user": user, "password": "secret", "database": schema}
    upstream.sql(f"DROP USER {user}")


@pytest.mark.parametrize("prepared", ["disable", "auto"])
def test_sysbench_runs_without_an_error(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    sysbench_account: dict[str, str],
    prepared: str,
) -> None:
    relay = proxy(upstream, memcached)
    sysbench = Sysbench(relay, sysbench_account)
    # Two transactions may wait for each other, and MariaDB 11.8 ends one whose snapshot is too old,
    # without sqlcache too: sysbench then tries again.
    deadlocks = "--mysql-ignore-errors=1213,1020"
    for workload, count in (("oltp_point_select", 2000), ("oltp_read_write", 50)):
        so_many = f"--events={count}", "--time=0"
        said = sysbench.run(workload, "run", f"--db-ps-mode={prepared}", *so_many, deadlocks)
        assert re.search(rf"transactions: +{count} ", said), said
    if prepared == "disable":
        assert hits(relay) > 0


def test_killing_memcached_under_load_causes_no_error_and_caching_resumes(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    sysbench_account: dict[str, str],
) -> None:
    relay = proxy(upstream, memcached, memcached__outage_s=6)
    sysbench = Sysbench(relay, sysbench_account)
    ended = threading.Event()

    def load() -> list[str]:
        said = []
        while not ended.is_set():
            said.append(
                sysbench.run("oltp_point_select", "run", "--db-ps-mode=disable", "--time=3")
            )
        return said

    def grows(name: str) -> Callable[[], bool]:
        before = relay.metrics()[name]
        return lambda: relay.metrics()[name] > before + 100

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(load)
        try:
            wait_until(grows("sqlcache_hits_total"), 120, "hits")
            memcached.kill()
            wait_until(grows("sqlcache_statements_relayed_total"), 60, "reads without memcached")
            memcached.restart()
            wait_until(grows("sqlcache_hits_total"), 120, "hits again")
        finally:
            ended.set()
        assert all(re.search(r"ignored errors: +0 ", said) for said in running.result())


def test_a_client_that_is_busy_with_hits_is_not_idle_for_mysql(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    account: dict[str, str],
    make: Callable[[str], None],
) -> None:
    make("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)")
    relay = proxy(upstream, memcached, upstream__keepalive_s=0.5)

    def is_busy() -> bool:
        """False where nobody can tell: the host let it pause for as long as who is idle."""
        busy, idle = (with_pymysql(relay, **account) for _ in range(2))
        with closing(busy), closing(idle):
            for each in (busy, idle):
                _everything(each, "SELECT v FROM t")
                _everything(each, "SET wait_timeout = 4")
            before = hits(relay)
            last = time.monotonic()
            until = last + 6
            while time.monotonic() < until:
                if time.monotonic() - last >= 2:
                    return False
                last = time.monotonic()
                assert _everything(busy, "SELECT v FROM t")[0] == ((1,),)
                time.sleep(0.2)
            assert hits(relay) > before + 2
            after = "SELECT ROW_COUNT(), FOUND_ROWS(), @@wait_timeout"
            assert _everything(busy, after)[0] == ((-1, 1, 4),)
            with pytest.raises(pymysql.OperationalError):
                _everything(idle, "SELECT v FROM t")
            return True

    assert any(is_busy() for _ in range(3)), "it paused each time"


def test_decimals_and_times_have_their_python_types_from_a_hit(
    relay: PrivateSqlcache, account: dict[str, str], make: Callable[[str], None]
) -> None:
    make(f"{TYPES}; {FILL}")
    with closing(with_pymysql(relay, **account)) as connection:
        for _ in range(2):
            row = _everything(connection, "SELECT exact, day, moment FROM types WHERE id = 0")[0][0]
            assert [type(value) for value in row] == [
                decimal.Decimal,
                datetime.date,
                datetime.datetime,
            ]
    assert hits(relay) == 1
