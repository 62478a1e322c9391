"""Clients that compress what they say, and want to be answered so: each has what MySQL says."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import mysql.connector
import MySQLdb
import pytest

from sqlcache.demo.servers import PrivateMemcached, PrivateSqlcache, PrivateSqlServer, wait_until
from sqlcache.mysql.constants import Capability
from tests.certificates import self_signed
from tests.conftest import ProxyFactory
from tests.fakes.frames import CompressingClient, ZstdClient, frame
from tests.fakes.raw_client import OLD, RawClient, packets_of
from tests.servers import PrivateMySQL

CLIENTS = {"zlib": CompressingClient, "zstd": ZstdClient}
ROWS = 2_000
MAKE = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))"
FILL = "INSERT INTO t VALUES " + ", ".join(f"({n}, 'the text of row {n}')" for n in range(ROWS))
LONG_BYTES = 17 << 20


@pytest.fixture
def relay(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
) -> PrivateSqlcache:
    upstream.connect().close()  # MySQL remembers the password from here on
    return proxy(upstream, memcached)


@pytest.fixture(params=CLIENTS)
def kind(request: pytest.FixtureRequest, upstream: PrivateSqlServer) -> type[CompressingClient]:
    if request.param == "zstd" and not isinstance(upstream, PrivateMySQL):
        pytest.skip("MariaDB offers no zstd")
    return CLIENTS[request.param]


def test_what_is_offered_is_what_the_server_offers(
    upstream: PrivateSqlServer, relay: PrivateSqlcache
) -> None:
    offered = []
    for server in (upstream, relay):
        with RawClient(server) as client:
            client.read_greeting()
            offered.append(client.offered)
    both = Capability.COMPRESS | Capability.ZSTD_COMPRESSION_ALGORITHM
    assert offered[0] & both == offered[1] & both


def told(
    client: RawClient, schema: str, prepared: bytes = b"\x16SELECT v FROM t WHERE id < ?"
) -> list[bytes]:
    """What it is told of reads, long ones, writes, errors, transactions and prepared statements."""
    answers = [
        client.sql("DO 1"),
        client.ask(b"\x02" + schema.encode()),
        client.sql(f"{MAKE}; DROP TABLE t"),
        client.sql(MAKE),
        client.sql(FILL),
        *[client.sql("SELECT * FROM t") for _ in range(3)],
        client.sql("UPDATE t SET v = 'another' WHERE id = 1"),
        *[client.sql("SELECT * FROM t WHERE id < 5") for _ in range(3)],
        client.sql("SELECT * FROM nowhere"),
        client.sql("BEGIN"),
        client.sql("DELETE FROM t WHERE id = 3"),
        client.sql("SELECT * FROM t WHERE id < 5"),
        client.sql("ROLLBACK"),
        client.sql("SELECT 1; SELECT 2; SELECT REPEAT('x', 100000)"),
        client.ask(b"\x0e"),
        client.ask(b"\x1f"),
        client.ask(b"\x02" + schema.encode()),
    ]
    made = client.ask(prepared)
    execute = b"\x17" + made[5:9] + b"\0\1\0\0\0\0\1\x03\0" + (50).to_bytes(4, "little")
    executed = [client.ask(execute) for _ in range(3)]
    numberless = made[:5] + made[9:]
    return [*answers, numberless, *executed, client.sql("DROP TABLE t")]


def test_a_compressing_client_is_told_the_same(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, kind: type[CompressingClient], schema: str
) -> None:
    login = upstream.user, upstream.password
    with RawClient.logged_in(upstream, *login) as direct:
        expected = told(direct, schema)
    with kind.logged_in(relay, *login) as client:
        assert told(client, schema) == expected
        assert client.wire_bytes < sum(map(len, expected)) // 2


def test_hits_are_shared_with_clients_that_do_not(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, kind: type[CompressingClient], schema: str
) -> None:
    upstream.sql(f"{MAKE}; {FILL}", schema)
    login = upstream.user, upstream.password, schema
    with RawClient.logged_in(relay, *login) as plain, kind.logged_in(relay, *login) as client:
        first = plain.sql("SELECT * FROM t")
        asked = upstream.status("Com_select")
        assert client.sql("SELECT * FROM t") == first
        assert upstream.status("Com_select") <= asked + 1  # the sentinel


def test_frames_are_numbered_as_mysql_does(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, kind: type[CompressingClient], schema: str
) -> None:
    """From that of the command on; and commands that come at once are answered in order."""
    upstream.sql(f"{MAKE}; {FILL}", schema)
    login = upstream.user, upstream.password, schema
    with kind.logged_in(relay, *login) as client:
        for _ in range(3):
            client.numbers.clear()
            client.query("SELECT * FROM t")
            for _ in range(ROWS + 5):
                client.read_packet()
            assert client.numbers == list(range(1, len(client.numbers) + 1))
        client.numbers.clear()
        client.ask(packets_of(b"\x03SELECT * FROM t")[4:])
        ends = [place for place, number in enumerate(client.numbers) if number == 1]
        assert len(ends) == 2
        assert client.numbers[ends[1] :] == list(range(1, len(client.numbers) - ends[1] + 1))


def test_so_are_those_of_a_command_that_came_before_the_session_began(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, kind: type[CompressingClient]
) -> None:
    class Hasty(kind):  # type: ignore[misc, valid-type]
        def authenticate(self, password: str) -> bytes:
            command = packets_of(b"\x03SELECT VERSION()")
            RawClient.send(self, frame(command, 0, self.algorithm, False))
            ok: bytes = super().authenticate(password)
            return ok

    with RawClient.logged_in(relay, upstream.user, upstream.password) as client:
        for _ in range(3):
            client.sql("SELECT VERSION()")
    for _ in range(3):
        with Hasty.logged_in(relay, upstream.user, upstream.password) as client:
            client.read_packet()
            assert client.numbers == [1]


@pytest.mark.parametrize("count", [2, 30])
def test_commands_in_one_frame_are_all_answered(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    kind: type[CompressingClient],
    schema: str,
    count: int,
) -> None:
    upstream.sql(f"{MAKE}; {FILL}", schema)
    login = upstream.user, upstream.password, schema
    command = packets_of(b"\x03SELECT v FROM t WHERE id = 7")
    with kind.logged_in(relay, *login) as client, RawClient.logged_in(relay, *login) as plain:
        one = plain.ask_bytes(command)
        client.one_frame = True
        for _ in range(3):
            assert client.ask_bytes(command * count) == one * count
            assert client.ask_bytes(command) == one


@pytest.mark.parametrize("text", ["the same again and again", "no two alike"])
def test_long_statements_and_answers_pass(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    kind: type[CompressingClient],
    schema: str,
    text: str,
) -> None:
    upstream.sql("CREATE TABLE long_ones (id INT PRIMARY KEY, v LONGBLOB)", schema)
    limit = upstream.sql("SELECT @@global.max_allowed_packet")[0][0]
    upstream.sql(f"SET GLOBAL max_allowed_packet = {64 << 20}")
    try:
        same = text.startswith("the same")
        value = text.encode() * (LONG_BYTES // len(text)) if same else os.urandom(LONG_BYTES // 2)
        login = upstream.user, upstream.password, schema
        with kind.logged_in(relay, *login) as client:
            answer = client.sql(f"INSERT INTO long_ones VALUES (1, x'{value[: 1 << 20].hex()}')")
            assert answer[4] == 0
            client.sql("INSERT INTO long_ones VALUES (2, '')")
            if same:
                statement = b"\x03UPDATE long_ones SET v = '" + value + b"' WHERE id = 2"
                assert client.ask(statement)[4] == 0
            direct = RawClient.logged_in(upstream, *login)
            for number in (1, 2):
                query = f"SELECT v FROM long_ones WHERE id = {number}"
                expected = direct.sql(query)
                for _ in range(2):
                    assert client.sql(query) == expected
            direct.close()
    finally:
        upstream.sql(f"SET GLOBAL max_allowed_packet = {limit}")


def test_who_changes_to_another_user_compresses_on(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, kind: type[CompressingClient]
) -> None:
    upstream.sql("DROP USER IF EXISTS nobody@'%'; CREATE USER nobody@'%'")
    with kind.logged_in(relay, upstream.user, upstream.password) as client:
        for _ in range(2):
            assert client.change_user("nobody")[:1] == b"\0"
            assert b"nobody@" in client.sql("SELECT CURRENT_USER()")
    upstream.sql("DROP USER nobody@'%'")


def test_a_file_is_loaded_after_any_number_of_frames(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, kind: type[CompressingClient], schema: str
) -> None:
    """MySQL goes by the numbers of frames, and its clients number packets so, too."""
    upstream.sql("CREATE TABLE t (v INT)", schema)
    before = upstream.sql("SELECT @@global.local_infile")[0][0]
    upstream.sql("SET GLOBAL local_infile = 1")
    try:
        login = upstream.user, upstream.password, schema
        with kind.logged_in(relay, *login) as client:
            client.query("SELECT 1; SELECT 2; LOAD DATA LOCAL INFILE 'f' INTO TABLE t")
            while True:
                _, payload = client.read_packet()
                if payload == b"\xfbf":
                    break
            number = client.numbers[-1] + 1
            client.send(packets_of(b"1\n2\n", number) + packets_of(b"", number + 1))
            assert client.read_packet()[1][:2] == b"\0\2"
            assert b"\x012" in client.sql("SELECT COUNT(*) FROM t")
    finally:
        upstream.sql(f"SET GLOBAL local_infile = {before}")


LIES = {
    "another length": lambda: frame(packets_of(b"\x03SELECT 1" * 20), 0, "zlib", claimed=50),
    "garbage": lambda: b"\x40\0\0\0\x50\0\0" + b"garbage!" * 8,
    "out of order": lambda: frame(packets_of(b"\x0e"), 3, "zlib", False),
    "a bomb": lambda: frame(bytes(1 << 24), 0, "zlib", claimed=100),
    "no frame": lambda: packets_of(b"\x03SELECT 1, 2, 3"),
}


@pytest.mark.parametrize("lie", LIES)
def test_who_lies_is_cut_off_and_no_one_else(
    mariadb: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory, lie: str
) -> None:
    relay = proxy(mariadb, memcached)
    login = mariadb.user, mariadb.password
    with CompressingClient.logged_in(relay, *login) as other:
        with CompressingClient.logged_in(relay, *login) as liar:
            RawClient.send(liar, b"")
            liar.socket.sendall(LIES[lie]())
            liar.socket.settimeout(20)
            if lie == "no frame":
                liar.socket.shutdown(socket.SHUT_WR)
            assert liar.read_to_end() == b""
        assert other.ask(b"\x0e")[4] == 0
        assert b"\x011" in other.sql("SELECT 1")
    if lie != "no frame":
        line = "client cut off, what it sends compressed is not understood"
        wait_until(lambda: line in relay.log_text(), 10, "a line")
    assert mariadb.sql("SELECT 1")


@pytest.mark.parametrize("level", [0, 1, 22, 23, None])
def test_levels_are_mysqls(
    mysql: PrivateMySQL, memcached: PrivateMemcached, proxy: ProxyFactory, level: int | None
) -> None:
    class Client(ZstdClient):
        def response(self, *given: Any, **named: Any) -> bytes:
            made = super().response(*given, **named)
            return made[:-1] if level is None else made[:-1] + bytes((level,))

    mysql.connect().close()
    said = []
    for server in (mysql, proxy(mysql, memcached)):
        client = Client(server)
        client.read_greeting()
        try:
            client.log_in(mysql.user, mysql.password, "", OLD)
            said.append(client.sql("SELECT REPEAT('x', 1000)"))
        except PermissionError as error:
            said.append(str(error).encode())
        client.close()
    assert said[0] == said[1]


@pytest.mark.parametrize("kind", CLIENTS.values(), ids=CLIENTS)
def test_who_was_not_offered_it_is_refused(
    mysql: PrivateMySQL,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    kind: type[CompressingClient],
) -> None:
    """Its frames would be read as commands."""
    mysql.connect().close()
    relay = proxy(mysql, memcached)
    before = mysql.sql("SELECT @@global.protocol_compression_algorithms")[0][0]
    mysql.sql("SET GLOBAL protocol_compression_algorithms = 'uncompressed'")
    try:
        with pytest.raises(PermissionError, match="compresses in a way that it was not offered"):
            kind.logged_in(relay, mysql.user, mysql.password)
    finally:
        mysql.sql(f"SET GLOBAL protocol_compression_algorithms = '{before}'")


def in_use(process: int) -> int:
    """Its memory, in bytes."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_slow_reader_of_a_long_answer_holds_it_back(
    upstream: PrivateSqlServer,
    proxy: ProxyFactory,
    kind: type[CompressingClient],
    schema: str,
) -> None:
    upstream.connect().close()
    relay = proxy(upstream, "memory")
    upstream.sql("CREATE TABLE t (v LONGBLOB)", schema)
    for _ in range(16):
        upstream.sql("INSERT INTO t VALUES (RANDOM_BYTES(1000))", schema)
    login = upstream.user, upstream.password, schema
    with kind.logged_in(relay, *login) as client:
        client.sql("SELECT 1")
        before = in_use(relay.pid)
        rows = "SELECT a.v FROM t a, t b, t c, t d, t e LIMIT 200000"  # 200 MB
        client.query(rows)
        client.wait_for_bytes()
        time.sleep(2)
        assert in_use(relay.pid) < before + (24 << 20)
        with RawClient.logged_in(relay, *login) as other:
            assert b"\x011" in other.sql("SELECT 1")
        count = 0
        while count < 50_000:
            client.read_packet()
            count += 1
        assert in_use(relay.pid) < before + (24 << 20)


def test_a_long_hit_is_compressed_in_turns(
    upstream: PrivateSqlServer, proxy: ProxyFactory, kind: type[CompressingClient], schema: str
) -> None:
    upstream.connect().close()
    relay = proxy(upstream, "memory", cache__max_entry_bytes=8 << 20)
    upstream.sql("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v TEXT)", schema)
    upstream.sql("INSERT INTO t (v) VALUES (REPEAT(UUID(), 800))", schema)
    for _ in range(7):
        upstream.sql("INSERT INTO t (v) SELECT REVERSE(v) FROM t", schema)
    login = upstream.user, upstream.password, schema
    with kind.logged_in(relay, *login) as client, RawClient.logged_in(relay, *login) as other:
        expected = other.sql("SELECT * FROM t")
        assert len(expected) > 3_000_000
        for _ in range(5):
            assert client.sql("SELECT * FROM t") == expected


# The drivers that people use.


def by_connector(server: Any, login: dict[str, Any]) -> Any:
    return mysql.connector.connect(
        host=server.host, port=server.port, use_pure=True, compress=True, **login
    )


def by_mysqldb(server: Any, login: dict[str, Any]) -> Any:
    return MySQLdb.connect(host=server.host, port=server.port, compress=True, **login)


def asked(cursor: Any, statement: str) -> Any:
    cursor.execute(statement)
    return [list(row) for row in cursor.fetchall()]


@pytest.mark.parametrize("connect", [by_connector, by_mysqldb])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_drivers_that_compress_have_what_mysql_says(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    tmp_path: Path,
    schema: str,
    connect: Callable[[Any, dict[str, Any]], Any],
    tls: bool,
) -> None:
    upstream.connect().close()
    made = self_signed(tmp_path, "sqlcache")
    relay = proxy(
        upstream,
        memcached,
        proxy__tls_certificate=str(made.certificate),
        proxy__tls_key=str(made.key),
        proxy__tls_required=tls,
    )
    login: dict[str, Any] = {
        "user": upstream.user,
        "password": upstream.password,
        "database": schema,
    }
    if connect is by_connector:
        login |= {"ssl_disabled": not tls}
    else:
        login |= {"ssl_mode": "REQUIRED" if tls else "DISABLED"}
    with closing(connect(relay, login)) as connection:
        cursor = connection.cursor()
        cursor.execute(MAKE)
        cursor.execute(FILL)
        connection.commit()
        for value in ("one", "two"):
            for _ in range(3):
                found = asked(cursor, "SELECT id, v FROM t ORDER BY id")
                assert len(found) == ROWS
                assert found[5] == [5, "the text of row 5" if value == "one" else "one"]
                connection.commit()
            cursor.execute(f"UPDATE t SET v = '{value}' WHERE id = 5")
            connection.commit()
        size = 3_000_000
        for repeated in ("x", "REPEATED"):
            times = size // len(repeated)
            query = f"SELECT REPEAT('{repeated}', {times}), 1"
            assert asked(cursor, query) == [[repeated * times, 1]]
        cursor.execute("CREATE TABLE long_ones (v LONGTEXT)")
        cursor.execute("INSERT INTO long_ones VALUES (%s)", ("ab" * 300_000,))
        connection.commit()
        for _ in range(3):
            assert asked(cursor, "SELECT v FROM long_ones") == [["ab" * 300_000]]
            connection.commit()


def test_connector_gets_an_answer_of_more_than_a_packet(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, schema: str
) -> None:
    limit = upstream.sql("SELECT @@global.max_allowed_packet")[0][0]
    upstream.sql(f"SET GLOBAL max_allowed_packet = {64 << 20}")
    try:
        login = {"user": upstream.user, "password": upstream.password, "ssl_disabled": True}
        with closing(by_connector(relay, login)) as connection:
            cursor = connection.cursor()
            for size in ((1 << 24) - 20, (1 << 24) - 5, LONG_BYTES):
                found = asked(cursor, f"SELECT REPEAT('x', {size})")
                assert [len(row[0]) for row in found] == [size]
                sent = asked(cursor, f"SELECT LENGTH('{'y' * size}')")
                assert sent == [[size]]
            connection.cmd_reset_connection()
            assert asked(connection.cursor(), "SELECT 2") == [[2]]
    finally:
        upstream.sql(f"SET GLOBAL max_allowed_packet = {limit}")


def test_mariadbs_console_compresses(upstream: PrivateSqlServer, relay: PrivateSqlcache) -> None:
    args = ["mariadb", "--no-defaults", f"--host={relay.host}", f"--port={relay.port}"]
    done = subprocess.run(
        [*args, f"--user={upstream.user}", "--compress", "--batch", "--skip-column-names",
         "-e", "SELECT REPEAT('abc', 100000); \\s"],
        env={**os.environ, "MYSQL_PWD": upstream.password},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("abc" * 100_000 + "\n")
    assert "Protocol:\t\tCompressed" in done.stdout


def mysqlbinlog(server: PrivateMySQL) -> list[str]:
    """MySQL's own, by the loader that comes with it where it was fetched."""
    base = server.installation.base
    if base is None:
        return ["mysqlbinlog"]
    (loader,) = base.glob("lib/*/ld-linux-*.so.*")
    places = [loader.parent, base / "lib" / "mysql" / "private", loader.parent / "private"]
    path = ":".join(map(str, places))
    return [str(loader), "--library-path", path, str(base / "bin" / "mysqlbinlog")]


@pytest.mark.parametrize(
    "options",
    [
        ("--compression-algorithms=zlib",),
        ("--compression-algorithms=zstd",),
        ("--compression-algorithms=zlib,zstd",),
        ("--compression-algorithms=zstd", "--zstd-compression-level=19"),
        ("--compression-algorithms=zstd,uncompressed", "--ssl-mode=DISABLED"),
    ],
    ids=" ".join,
)
def test_mysqls_own_library_compresses(
    mysql: PrivateMySQL,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    schema: str,
    options: tuple[str, ...],
) -> None:
    """By mysqlbinlog, the one program with it that comes with the server: it reads a log."""
    mysql.connect().close()
    mysql.sql(MAKE, schema)
    mysql.sql(FILL, schema)
    (name, *_), *_ = mysql.sql("SHOW BINARY LOGS")
    read = []
    for server in (mysql, proxy(mysql, memcached)):
        done = subprocess.run(
            [*mysqlbinlog(mysql), "--no-defaults", "--read-from-remote-server",
             f"--host={server.host}", f"--port={server.port}", f"--user={mysql.user}",
             "--get-server-public-key", "--base64-output=DECODE-ROWS", *options, name],
            env={**os.environ, "MYSQL_PWD": mysql.password},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        read.append((done.returncode, done.stderr, done.stdout))
    assert read[0] == read[1]
    assert len(read[0][2]) > 1_000
