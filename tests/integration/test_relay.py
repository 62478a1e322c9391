"""What is relayed, byte for byte, and what becomes of clients that misbehave."""

from __future__ import annotations

import contextlib
import hashlib
import re
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import PrivateSqlcache, PrivateSqlServer, wait_until
from sqlcache.mysql.constants import UNFOLLOWED, Capability
from sqlcache.mysql.frames import OFFERED
from tests.certificates import self_signed
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import NEW, OLD, RawClient, packets_of
from tests.servers import PATIENT

DIALECTS = pytest.mark.parametrize("capabilities", [OLD, NEW], ids=["eof", "deprecate-eof"])
MB = 1 << 20

Login = Callable[..., RawClient]


@pytest.fixture
def relay(
    request: pytest.FixtureRequest, upstream: PrivateSqlServer, proxy: ProxyFactory
) -> PrivateSqlcache:
    """sqlcache with the embedded store; its parameter is `cache.write_deadline_s`."""
    return proxy(upstream, "memory", cache__write_deadline_s=getattr(request, "param", 1))


@pytest.fixture
def login(upstream: PrivateSqlServer, schema: str) -> Iterator[Login]:
    """`login(server, capabilities)` is a raw session in the schema; closed at the test's end."""
    upstream.connect().close()  # so that caching_sha2_password knows the password
    clients = []

    def log_in(server: Any, capabilities: int = OLD) -> RawClient:
        client = RawClient.logged_in(server, upstream.user, upstream.password, schema, capabilities)
        clients.append(client)
        return client

    yield log_in
    for client in clients:
        client.close()


Make = Callable[[str], None]


@pytest.fixture
def make(relay: PrivateSqlcache, login: Login) -> Make:
    """`make(statements)` runs them through the relay, which thus knows the tables they create."""

    def run(statements: str) -> None:
        with login(relay) as client:
            answer = client.sql(statements)
            assert b"\xff" not in (answer[4:5], answer[-80:]), answer

    return run


def sessions_of(upstream: PrivateSqlServer) -> int:
    """How many sessions clients have on the server now."""
    rows = upstream.sql(
        "SELECT COUNT(*) FROM information_schema.processlist"
        f" WHERE user = '{upstream.user}' AND command <> 'Killed'"
    )
    return int(rows[0][0])


def runs(upstream: PrivateSqlServer, query: str) -> bool:
    """Whether the server is at work at this query: a client that leaves before that has all it sent
    done first."""
    rows = upstream.sql(
        "SELECT COUNT(*) FROM information_schema.processlist"
        f" WHERE user = '{upstream.user}' AND info = '{query}'"
    )
    return rows == ((1,),)


def wait_for_sessions(upstream: PrivateSqlServer, relay: PrivateSqlcache, count: int) -> None:
    """Returns when both sides hold so many sessions."""
    try:
        wait_until(lambda: sessions_of(upstream) == count, 20, f"{count} sessions on the server")
    except TimeoutError as error:
        error.add_note(repr(upstream.sql("SHOW FULL PROCESSLIST")))
        raise
    wait_until(
        lambda: relay.metrics()["sqlcache_connections_open"] == count, 20, f"{count} clients"
    )


# --- the same bytes ---------------------------------------------------------------------------

COMMANDS = {
    "a first read": b"\x03SELECT * FROM t",
    "a read that was stored": b"\x03SELECT * FROM t",
    "no rows stored": b"\x03SELECT * FROM t WHERE id > 5",
    "no rows from the store": b"\x03SELECT * FROM t WHERE id > 5",
    "ping": b"\x0e",
    "statistics": b"\x09",
    "field list": b"\x04t\0",
    "field list with a pattern": b"\x04t\0v%",
    "field list of no table": b"\x04nope\0",
    "process info": b"\x0a",
    "debug": b"\x0d",
    "refresh": b"\x07\x02",
    "kill of no one": b"\x0c\xff\xff\xff\x7f",
    "an unknown command": b"\x63",
    "the highest unknown command": b"\xff",
    "sleep": b"\x00",
    "an empty command": b"",
    "connect": b"\x0b",
    "time": b"\x0f",
    "daemon": b"\x1d",
    "create schema": b"\x05nope",
    "use of no schema": b"\x02nope",
    "an empty query": b"\x03",
    "a query of nothing": b"\x03 ;",
    "rows": b"\x03SELECT * FROM t",
    "no rows": b"\x03SELECT * FROM t WHERE id > 5",
    "rows again": b"\x03SELECT * FROM t",
    "no table": b"\x03SELECT 1 + 1, NULL, 'x'",
    "an error": b"\x03SELECT * FROM nope",
    "an error among rows": b"\x03SELECT id, (SELECT id FROM t WHERE id <= o.id) FROM t o",
    "a syntax error": b"\x03nonsense",
    "not utf-8": b"\x03SELECT '\xff\xfe' = _binary'\xff'",
    "a warning": b"\x03SELECT 1 + 'x' FROM t",
    "the warning": b"\x03SHOW WARNINGS",
    "a write": b"\x03UPDATE t SET v = 'written' WHERE id = 2",
    "a write that finds nothing": b"\x03UPDATE t SET v = '' WHERE id = 9",
    "an insert": b"\x03INSERT INTO t (v) VALUES ('n')",
    "the insert's id": b"\x03SELECT LAST_INSERT_ID()",
    "a write that fails": b"\x03INSERT INTO t (id) VALUES (1)",
    "several results": b"\x03SELECT * FROM t; DELETE FROM t WHERE id > 2; SELECT COUNT(*) FROM t",
    "very many results": b"\x03" + b"DO 0;" * 10_000 + b"SELECT 1",
    "several, the last an error": b"\x03SELECT 1; SELECT 2; nonsense",
    "several off": b"\x1b\x01\x00",
    "several while off": b"\x03SELECT 1; SELECT 2",
    "several on": b"\x1b\x00\x00",
    "a bad option": b"\x1b\x07\x00",
    "begin": b"\x03BEGIN",
    "rows in a transaction": b"\x03SELECT * FROM t",
    "commit": b"\x03COMMIT",
    "prepare": b"\x16SELECT id, v FROM t WHERE id = ? OR v = ?",
    "prepare without parameters": b"\x16SELECT 1",
    "prepare a write": b"\x16INSERT INTO t VALUES (?, ?)",
    "prepare nonsense": b"\x16nonsense",
    "execute": b"\x17<id>\0\1\0\0\0\0\1\x03\0\x0f\0\2\0\0\0\1x",
    "execute with a cursor": b"\x17<id>\1\1\0\0\0\0\1\x03\0\x0f\0\2\0\0\0\1x",
    "fetch": b"\x1c<id>\1\0\0\0",
    "fetch the rest": b"\x1c<id>\7\0\0\0",
    "reset the statement": b"\x1a<id>",
    "fetch after a reset": b"\x1c<id>\1\0\0\0",
    "execute what is not there": b"\x17\x63\0\0\0\0\1\0\0\0",
    "long data": b"\x18<id>\1\0written",
    "execute with long data": b"\x17<id>\0\1\0\0\0\0\1\x03\0\x0f\0\5\0\0\0",
    "close": b"\x19<id>",
    "execute after the close": b"\x17<id>\0\1\0\0\0",
    "close again": b"\x19<id>",
    "reset the session": b"\x1f",
    "register a replica": b"\x15\1",
    "schemas afterwards": b"\x03SELECT DATABASE()",
    "rows at last": b"\x03SELECT * FROM t",
}


def answers_to(commands: dict[str, bytes], client: RawClient) -> Iterator[tuple[str, bytes]]:
    """The answers, with what differs from session to session taken out."""
    number = b""
    for name, command in commands.items():
        answer = client.ask(command.replace(b"<id>", number))
        match name:
            case "prepare":
                number = answer[5:9]
                answer = answer[:5] + answer[9:]
            case "prepare without parameters" | "prepare a write":
                answer = answer[:5] + answer[9:]
            case "statistics":
                answer = re.sub(rb"[\d.]+", b"0", answer[4:])
            case "process info":
                answer = answer[:200]
        # A number that the server gives as it likes, and the packet's length with it.
        numbered = rb"(?s)\A...(.*statement )(?:handler )?\(\d+\)"
        yield name, re.sub(numbered, rb"\1", answer)


@DIALECTS
def test_every_command_is_answered_with_the_bytes_mysql_sends(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    login: Login,
    make: Make,
    capabilities: int,
) -> None:
    answers = []
    for server in (upstream, relay):
        make(
            "DROP TABLE IF EXISTS t;"
            "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20));"
            "INSERT INTO t VALUES (1, 'one'), (2, NULL)"
        )
        answers.append(dict(answers_to(COMMANDS, login(server, capabilities))))
    direct, relayed = answers
    assert relayed == direct
    # MariaDB knows COM_REFRESH, after which nothing is known any more.
    assert relay.metrics()["sqlcache_hits_total"] == (2 if upstream.name == "mariadbd" else 5)


LOOP = """DECLARE done INT DEFAULT 0; DECLARE i INT; DECLARE c CURSOR FOR SELECT id FROM t;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = 1;
    OPEN c; turns: LOOP FETCH c INTO i; IF done THEN LEAVE turns; END IF; {} END LOOP; CLOSE c;"""
PROCEDURES = {
    "a loop, then rows": f"() BEGIN {LOOP.format('DO 1;')} SELECT 'end'; END",
    "a loop, then rows twice": f"() BEGIN {LOOP.format('DO 1;')} SELECT 'x'; SELECT 'y'; END",
    "a loop that writes": f"() BEGIN {LOOP.format('UPDATE t SET v = v WHERE id = i;')}"
    " SELECT v FROM t; SELECT 'y'; END",
    "rows in a loop": f"() BEGIN {LOOP.format('SELECT i;')} SELECT 'end'; END",
    "rows in a loop, and none behind": f"() BEGIN {LOOP.format('SELECT i;')} DO 0; END",
    "rows while it is open": "() BEGIN DECLARE c CURSOR FOR SELECT id FROM t; OPEN c;"
    " SELECT 5; SELECT 6; CLOSE c; END",
    "a parameter": "(OUT x INT) SET x = 7",
    "a parameter that goes both ways": "(INOUT x INT) BEGIN SELECT x; SET x = 7; END",
    "a parameter, and an error": "(OUT x INT) BEGIN SELECT v FROM t; SELECT v FROM nope; END",
    "a parameter, and a loop": f"(OUT x INT) BEGIN {LOOP.format('SET x = i;')} SELECT 1; END",
}


@DIALECTS
@pytest.mark.parametrize("body", PROCEDURES.values(), ids=PROCEDURES.keys())
def test_what_a_procedure_answers_is_passed_on_to_its_end(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    login: Login,
    make: Make,
    capabilities: int,
    body: str,
) -> None:
    """In a text, and prepared, without and with a cursor."""
    make("CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1), (2, 2)")
    make(f"CREATE PROCEDURE p{body}")
    takes = "x INT" in body
    answers = []
    for server in (upstream, relay):
        client = login(server, capabilities)
        told = [client.sql("SET @x = 1; CALL p({})".format("@x" * takes)), client.sql("SELECT @x")]
        number = client.ask(b"\x16CALL p(%b)" % (b"?" * takes))[5:9]
        for flags in (b"\0", b"\1", b"\0"):
            told.append(client.ask(b"\x17" + number + flags + b"\1\0\0\0" + b"\1\1\6\0" * takes))
            told.append(client.sql("SELECT v FROM t WHERE id = 1"))
        answers.append(told)
    direct, relayed = answers
    assert relayed == direct


@DIALECTS
def test_what_a_function_does_with_a_cursor_is_nothing_to_its_query(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, login: Login, make: Make, capabilities: int
) -> None:
    upstream.sql("SET GLOBAL log_bin_trust_function_creators = 1")
    make("CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1), (2, 2)")
    make(f"CREATE FUNCTION f() RETURNS INT BEGIN {LOOP.format('DO 1;')} RETURN i; END")
    answers = []
    for server in (upstream, relay):
        client = login(server, capabilities)
        told = [client.sql("SELECT f(), v FROM t; SELECT 5; SELECT f()")]
        number = client.ask(b"\x16SELECT f(), v FROM t")[5:9]
        told += [client.ask(b"\x17" + number + b"\0\1\0\0\0") for _ in range(3)]
        answers.append([*told, client.sql("SELECT v FROM t")])
    direct, relayed = answers
    assert relayed == direct


def test_an_error_may_have_the_code_of_a_report_of_progress(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, login: Login
) -> None:
    signal = "SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 65535"
    assert login(relay).sql(signal) == login(upstream).sql(signal)


def test_the_last_prepared_statement_is_known_where_the_server_knows_it(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, login: Login, make: Make
) -> None:
    """MariaDB takes the highest number for it, MySQL for a statement that was never prepared."""
    make("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)")
    execute = b"\x17\xff\xff\xff\xff\0\1\0\0\0"
    direct, relayed = login(upstream), login(relay)
    for prepare in (b"\x16SELECT v FROM t", b"\x16nonsense"):
        for client in (direct, relayed):
            client.ask(prepare)
        expected = direct.ask(execute)
        assert [relayed.ask(execute) for _ in range(3)] == [expected] * 3, prepare


@DIALECTS
def test_commands_in_one_segment_are_answered_in_their_order(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    login: Login,
    make: Make,
    capabilities: int,
) -> None:
    make("CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 0)")
    read = packets_of(b"\x03SELECT v FROM t WHERE id = 1")
    fresh = [packets_of(b"\x03SELECT v + %d FROM t" % number) for number in range(5)]
    write = packets_of(b"\x03UPDATE t SET v = v + 1")
    reset = packets_of(b"\x03UPDATE t SET v = 0")
    batch = b"".join([read, read, fresh[0], read, write, read, *fresh, write, *fresh, read, reset])
    expected = login(upstream, capabilities).ask_bytes(batch)
    relayed = login(relay, capabilities)
    for _ in range(10):
        relayed.ask_bytes(read)  # the first of the batch is known, what follows it is not
        assert relayed.ask_bytes(batch) == expected
    assert relay.metrics()["sqlcache_hits_total"] > 10


def test_what_changed_before_an_error_is_told_by_the_next_answer(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, login: Login, make: Make
) -> None:
    """To the client, and to no question of sqlcache's own, which does not know the settings."""
    make(
        "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1);"
        "CREATE PROCEDURE p() BEGIN SET sql_mode = ''; SIGNAL SQLSTATE '45000'; END"
    )
    batch = packets_of(b"\x03CALL p()") + packets_of(b"\x03SELECT id FROM t")
    answers = []
    for server in (upstream, relay):
        client = login(server, NEW)
        client.sql("SET session_track_state_change = 1")
        answers.append(client.ask_bytes(batch))
    direct, relayed = answers
    assert (b"\x03\x02\x011" in direct) == (upstream.name == "mysqld")
    assert relayed == direct


def test_a_set_that_was_accepted_before_is_answered_with_the_same_bytes(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, login: Login, make: Make
) -> None:
    """Also where it tells what changed before an error, and what the session is told of."""
    make("CREATE PROCEDURE p() BEGIN SET sql_mode = ''; SIGNAL SQLSTATE '45000'; END")
    said = (
        *("SET session_track_system_variables = 'time_zone,sql_mode'", "SET time_zone = '+03:00'"),
        *("SET sql_mode = 'ANSI_QUOTES'", "SELECT @@time_zone, RAND() > 2", "SELECT nothing"),
        *("SET time_zone = '+04:00'", "BEGIN", "SET NAMES latin1", "COMMIT", "SET NAMES latin1"),
        "SELECT @@sql_mode, RAND() > 2",
    )
    at_last = "CALL p()", "SET time_zone = '+03:00'", "SET sql_mode = 'ANSI_QUOTES'"

    def answer(client: RawClient, text: str) -> object:
        if not text.startswith("SET"):
            return client.ask_bytes(packets_of(b"\x03" + text.encode()))
        client.query(text)
        return client.read_packet()

    answers: list[list[object]] = []
    for server in (upstream, relay):
        clients = [login(server, capabilities) for capabilities in (NEW, OLD) for _ in range(5)]
        asked = [(client, text) for client in clients for text in said]
        asked += [(client, text) for client in clients for text in at_last]
        answers.append([answer(client, text) for client, text in asked])
    direct, relayed = answers
    assert relayed == direct
    ahead = relay.metrics()["sqlcache_statements_ahead_total"]
    assert ahead > 10 or not PATIENT["proxy__straight_path"]


def test_a_command_cut_into_single_bytes_is_understood(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, login: Login, make: Make
) -> None:
    make("CREATE TABLE t (id INT); INSERT INTO t VALUES (1)")
    direct, relayed = login(upstream), login(relay)
    read, write = packets_of(b"\x03SELECT * FROM t"), packets_of(b"\x03DELETE FROM t WHERE id = 7")
    batch = read + write + read + read
    for byte in batch + relayed.sentinel():
        relayed.send(bytes((byte,)))
    assert relayed.read_to_sentinel() == direct.ask_bytes(batch)
    assert relay.metrics()["sqlcache_hits_total"] == 1


# --- large packets ----------------------------------------------------------------------------


@pytest.fixture
def large_packets(upstream: PrivateSqlServer) -> Iterator[None]:
    """The server takes packets of 64 MB."""
    before = upstream.sql("SELECT @@GLOBAL.max_allowed_packet")[0][0]
    upstream.sql(f"SET GLOBAL max_allowed_packet = {64 * MB}")
    yield
    upstream.sql(f"SET GLOBAL max_allowed_packet = {before}")


@DIALECTS
@pytest.mark.usefixtures("large_packets")
def test_rows_of_more_than_a_packet_arrive_unchanged(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    login: Login,
    capabilities: int,
) -> None:
    direct, relayed = login(upstream, capabilities), login(relay, capabilities)
    one = 0xFFFFFF - 4  # the value that fills one packet with its length
    two = 2 * 0xFFFFFF - 9
    for size in (one - 1, one, one + 1, 1 << 24, two):
        # The last column ends the row with what looks like an EOF packet's beginning.
        statement = f"SELECT REPEAT('x', {size}) UNION ALL SELECT '\xfe'"
        answers = [hashlib.sha256(each.sql(statement)).digest() for each in (direct, relayed)]
        assert answers[0] == answers[1], size
    assert relayed.sql("SELECT 1") == direct.sql("SELECT 1")


@pytest.mark.usefixtures("large_packets")
def test_a_write_of_more_than_a_packet_arrives_and_invalidates(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, login: Login, make: Make
) -> None:
    make("CREATE TABLE t (id INT, v LONGBLOB); INSERT INTO t VALUES (1, '')")
    direct, relayed = login(upstream, NEW), login(relay, NEW)
    read = "SELECT id, LENGTH(v), SHA2(v, 256) FROM t ORDER BY id"
    head, tail = b"\x03INSERT INTO t VALUES (2, '", b"')"
    full = 0xFFFFFF - len(head) - len(tail)
    for size in (full - 1, full, full + 1, 20 * MB):
        hits = relay.metrics()["sqlcache_hits_total"]
        for _ in range(2):
            assert relayed.sql(read) == direct.sql(read)
        assert relay.metrics()["sqlcache_hits_total"] > hits, "else this shows nothing"
        relayed.ask(head + b"x" * size + tail)
        assert relayed.sql(read) == direct.sql(read)
    prepared = b"\x16INSERT INTO t VALUES (3, ?)"
    number = relayed.ask(prepared)[5:9]
    relayed.ask(b"\x18" + number + b"\0\0" + b"y" * (17 * MB))
    relayed.ask(b"\x17" + number + b"\0\1\0\0\0\0\1\xfb\0")
    assert relayed.sql(read) == direct.sql(read)


def memory_peak_bytes(server: PrivateSqlcache) -> int:
    """The most memory the process has had so far."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak is not None
    return int(peak[1]) * 1024


def test_a_large_result_for_a_slow_client_takes_no_memory(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, login: Login, schema: str
) -> None:
    upstream.sql(
        "CREATE TABLE n (id INT);"
        "INSERT INTO n VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9),(10),(11),(12),(13)",
        schema,
    )
    client = login(relay, NEW)
    before = memory_peak_bytes(relay)
    client.send(packets_of(b"\x03SELECT REPEAT('x', 1048576) FROM n a, n b") + client.sentinel())
    client.read_packet()

    def passed_on() -> float:
        return relay.metrics()["sqlcache_bytes_to_clients_total"]

    def stands_still() -> bool:
        seen = passed_on()
        return [passed_on() for _ in range(5)] == [seen] * 5

    wait_until(stands_still, 30, "the server being made to wait")
    assert passed_on() < 30 * MB, "the kernel's buffers and two of our own, no more"
    sizes = [len(payload) for _, payload in client.packets_to_sentinel()]
    assert sizes.count(MB + 4) == 14 * 14
    kept_until_too_long = 16 * MB  # cache.max_entry_bytes
    assert memory_peak_bytes(relay) - before < kept_until_too_long + 8 * MB


# --- clients that leave -----------------------------------------------------------------------


def leave_by_closing(client: RawClient) -> None:
    client.close()


def leave_by_reset(client: RawClient) -> None:
    client.reset()


def leave_by_half_closing(client: RawClient) -> None:
    client.socket.shutdown(socket.SHUT_WR)


WAYS_TO_LEAVE = [leave_by_closing, leave_by_reset, leave_by_half_closing]
LEAVE = pytest.mark.parametrize("leave", WAYS_TO_LEAVE, ids=["close", "reset", "half-close"])


@LEAVE
def test_a_client_that_leaves_takes_its_upstream_connection_along_and_no_other(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    login: Login,
    make: Make,
    leave: Callable[[RawClient], None],
) -> None:
    make("CREATE TABLE t (v INT); INSERT INTO t VALUES (1), (2), (3)")
    neighbour = login(relay)
    expected = neighbour.sql("SELECT v FROM t")
    in_transaction = packets_of(b"\x03BEGIN") + packets_of(b"\x03UPDATE t SET v = 9")
    large_result = packets_of(b"\x03SELECT REPEAT('x', 4000000) FROM t a, t b, t c")
    for sent, answered in (
        (b"", False),
        (packets_of(b"\x0e")[:3], False),
        (packets_of(b"\x03SELECT v FROM t")[:-2], False),
        (in_transaction, True),
        (large_result, True),
        (packets_of(b"\x03LOAD DATA LOCAL INFILE 'x' INTO TABLE t"), True),
    ):
        client = login(relay)
        client.send(sent)
        if answered:
            client.read_packet()
        leave(client)
        wait_for_sessions(upstream, relay, 1)
        assert neighbour.sql("SELECT v FROM t") == expected, sent


def test_a_client_that_leaves_ends_its_running_query(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, login: Login, schema: str
) -> None:
    client = login(relay)
    client.query("SELECT SLEEP(60)")
    wait_until(lambda: runs(upstream, "SELECT SLEEP(60)"), 20, "the query")
    client.close()
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 0, 20, "the session's end")
    for row in upstream.sql("SHOW PROCESSLIST"):
        if row[1] == upstream.user:
            with contextlib.suppress(pymysql.OperationalError):  # it may have noticed by itself
                upstream.sql(f"KILL {row[0]}")


@LEAVE
def test_the_last_write_of_a_client_that_leaves_at_once_is_done_and_seen(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    login: Login,
    schema: str,
    make: Make,
    leave: Callable[[RawClient], None],
) -> None:
    make("CREATE TABLE t (v INT); INSERT INTO t VALUES (0)")
    reader, direct = login(relay), login(upstream)

    def value() -> int:
        return int(upstream.sql("SELECT v FROM t", schema)[0][0])

    def arrived(number: int) -> bool:
        running = (
            "SELECT COUNT(*) FROM information_schema.processlist"
            f" WHERE user = '{upstream.user}' AND info IS NOT NULL"
        )
        return value() == number or upstream.sql(running) == ((1,),)

    writes = (
        b"UPDATE t SET v = %d",
        b"UPDATE t SET v = %d + SLEEP(0.2)",
        b"SELECT SLEEP(0.1); UPDATE t SET v = %d",
        b"BEGIN; UPDATE t SET v = %d; COMMIT",
    )
    for number, write in enumerate(writes, 1):
        for _ in range(3):
            reader.sql("SELECT v FROM t")
        client = login(relay)
        client.send(packets_of(b"\x03" + write % number))
        if leave is leave_by_reset:  # it may overtake what was sent before, so waits a little
            wait_until(lambda: arrived(number), 20, "the write's begin")  # noqa: B023
        leave(client)
        wait_until(lambda: value() == number, 20, f"write {number}")  # noqa: B023
        wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 1, 20, "its end")
        assert reader.sql("SELECT v FROM t") == direct.sql("SELECT v FROM t")


@pytest.mark.parametrize("relay", [60], indirect=True)  # far longer than a hit is waited for
@pytest.mark.parametrize("write", ["CALL p{0}()", "UPDATE t{0} SET v = v + SLEEP(10{0})"])
def test_mysql_is_told_that_the_client_of_a_write_has_gone(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, login: Login, make: Make, write: str
) -> None:
    """It looks whether the client of a SLEEP is there every 5 s: several wait for that at once, who
    leave amid the write or amid another statement before it."""
    reader, direct = login(relay), login(upstream)
    another = packets_of(b"\x03DO SLEEP(0.5)")
    clients = []
    for number, (leave, before) in enumerate(product(WAYS_TO_LEAVE, [b"", another])):
        make(f"CREATE TABLE t{number} (v INT)")
        sleep = f"DO SLEEP(10{number})"
        make(f"CREATE PROCEDURE p{number}() BEGIN {sleep}; PREPARE s FROM 'DO 0'; EXECUTE s; END")
        client = login(relay)
        for _ in range(3):  # no row has to sleep, and the plan is made
            client.sql(f"UPDATE t{number} SET v = v + SLEEP(10{number})")
        make(f"INSERT INTO t{number} VALUES (0)")
        clients.append((number, client, leave, before))

    def sleeps(number: int) -> bool:
        count = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User sleep'"
        return bool(upstream.sql(f"{count} AND info LIKE '%(10{number})%'")[0][0])

    def is_hit(read: str) -> bool:
        hits = relay.metrics()["sqlcache_hits_total"]
        reader.sql(read)
        return relay.metrics()["sqlcache_hits_total"] > hits

    for number, client, leave, before in clients:
        client.send(before + packets_of(b"\x03" + write.format(number).encode()))
        if not before or leave is leave_by_reset:  # it may overtake what was sent before
            wait_until(lambda: sleeps(number), 20, "the write's begin")  # noqa: B023
        leave(client)
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 1, 20, "their end")
    for number, *_ in clients:
        assert not sleeps(number)
        read = f"SELECT v FROM t{number}"
        wait_until(lambda: is_hit(read), 20, "a hit")  # noqa: B023
        assert reader.sql(read) == direct.sql(read)


def test_a_load_that_is_cut_short_leaves_no_stale_answer(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, login: Login, make: Make
) -> None:
    direct = login(upstream)
    for engine in ("InnoDB", "MyISAM"):
        make(f"DROP TABLE IF EXISTS t; CREATE TABLE t (v INT) ENGINE={engine}")
        reader = login(relay)
        for _ in range(3):
            reader.sql("SELECT COUNT(*) FROM t")
        client = login(relay)
        client.query("LOAD DATA LOCAL INFILE 'x' INTO TABLE t")
        sequence, asked = client.read_packet()
        assert asked == b"\xfbx"
        assert relay.metrics()["sqlcache_hits_total"] > 0, "else this shows nothing"
        client.send(packets_of(b"1\n2\n3\n" * 1000, sequence + 1))
        client.close()
        wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 1, 20, "its end")
        wait_until(lambda: sessions_of(upstream) == 2, 20, "its end on the server")
        assert reader.sql("SELECT COUNT(*) FROM t") == direct.sql("SELECT COUNT(*) FROM t")
        reader.close()

        def is_cached_again() -> bool:
            hits = relay.metrics()["sqlcache_hits_total"]
            with login(relay) as reader:
                for _ in range(3):
                    reader.sql("SELECT COUNT(*) FROM t")
            return relay.metrics()["sqlcache_hits_total"] > hits

        wait_until(is_cached_again, 20, "the fence's end")


# --- clients that send rubbish ----------------------------------------------------------------

RUBBISH = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(range(161)),
    "zeroes": bytes(100),
    "ones": b"\xff" * 100,
    "a short login": packets_of(b"\x85\xa6\xff\x01", 1),
    "a login without an end": packets_of(b"\x85\xa6\xff\x01" + b"x" * 80, 1),
    "an old protocol": packets_of(b"\x05\x00\x00\x00" + b"root\0x\0", 1),
    "an empty login": packets_of(b"", 1),
    "a huge login": b"\xff\xff\xff\x01",
    "a TLS request": packets_of(struct.pack("<IIB23x", OLD | Capability.SSL, 1 << 30, 45), 1),
}


def test_rubbish_instead_of_a_login_ends_that_session_alone(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, login: Login
) -> None:
    neighbour = login(relay)
    for name, rubbish in RUBBISH.items():
        client = RawClient(relay)
        client.read_greeting()
        client.send(rubbish)
        client.socket.shutdown(socket.SHUT_WR)
        client.read_to_end()
        client.close()
        wait_for_sessions(upstream, relay, 1)
        assert neighbour.sql("SELECT 1"), name


def test_rubbish_after_the_login_ends_that_session_alone(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, login: Login
) -> None:
    neighbour = login(relay)
    malformed = {
        "long data cut short": packets_of(b"\x18\1\0"),
        "close cut short": packets_of(b"\x19"),
        "execute cut short": packets_of(b"\x17\1"),
        "a wrong sequence id": packets_of(b"\x0e", 77),
        "change user cut short": packets_of(b"\x11"),
    }
    for name, rubbish in (RUBBISH | malformed).items():
        client = login(relay)
        client.send(rubbish)
        client.socket.shutdown(socket.SHUT_WR)
        client.read_to_end()
        client.close()
        wait_for_sessions(upstream, relay, 1)
        assert neighbour.sql("SELECT 1"), name


def test_a_malformed_command_without_an_answer_is_not_mistaken_for_the_next_ones(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, login: Login, schema: str
) -> None:
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)", schema)
    for malformed in (b"\x18\1\0", b"\x19"):
        client = login(relay)
        client.send(packets_of(malformed) + packets_of(b"\x03UPDATE t SET v = SLEEP(1)"))
        assert client.read_to_end()[4:7] == b"\xff" + (1835).to_bytes(2, "little")
    assert upstream.sql("SELECT v FROM t", schema) == ((1,),)


# --- capabilities and TLS ---------------------------------------------------------------------


def test_capabilities_that_cannot_be_followed_are_not_offered(
    upstream: PrivateSqlServer, relay: PrivateSqlcache
) -> None:
    with RawClient(upstream) as direct, RawClient(relay) as relayed:
        direct.read_greeting()
        relayed.read_greeting()
        hidden = UNFOLLOWED & ~OFFERED
        assert direct.offered & hidden, "else this shows nothing"
        assert relayed.offered == direct.offered & ~hidden & ~Capability.SSL


def test_capabilities_that_were_not_offered_are_not_passed_on(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, login: Login, schema: str
) -> None:
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)", schema)
    expected = login(upstream, OLD)
    unknown = UNFOLLOWED & ~OFFERED
    mariadb = (unknown | OLD) & ~Capability.LONG_PASSWORD
    for claimed in (OLD | unknown, OLD | Capability.SSL, mariadb):
        client = login(relay, claimed)
        assert client.sql("SELECT v FROM t") == expected.sql("SELECT v FROM t")
        prepared = client.ask(b"\x16SELECT v FROM t")
        for _ in range(3):  # with metadata cached, the second answer would come without
            execute = b"\x17" + prepared[5:9] + b"\0\1\0\0\0"
            assert client.ask(execute).count(b"\x03def") == 1


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, str]:
    """Settings with a new certificate."""
    made = self_signed(tmp_path, "sqlcache")
    return {
        "proxy__tls_certificate": str(made.certificate),
        "proxy__tls_key": str(made.key),
    }


def tls_context(version: ssl.TLSVersion, certificate: dict[str, str]) -> ssl.SSLContext:
    """A client's, for this version only, which trusts that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(certificate["proxy__tls_certificate"])
    context.minimum_version = context.maximum_version = version
    return context


@pytest.mark.parametrize("one_segment", [True, False], ids=["one segment", "two segments"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_over_tls_gets_the_same_bytes(
    upstream: PrivateSqlServer,
    proxy: ProxyFactory,
    login: Login,
    schema: str,
    certificate: dict[str, str],
    version: ssl.TLSVersion,
    one_segment: bool,
) -> None:
    relay = proxy(upstream, "memory", **certificate)
    direct = login(upstream, NEW)
    statements = (
        "CREATE TABLE t (v INT)",
        "INSERT INTO t VALUES (1)",
        "SELECT v FROM t",
        "SELECT v FROM t",
        "UPDATE t SET v = 2",
        "SELECT v FROM t",
        "SELECT REPEAT('x', 3000000)",
        "INSERT INTO t SELECT LENGTH('" + "x" * 3_000_000 + "')",
        "SELECT v FROM t",
        "DROP TABLE t",
    )
    expected = [direct.sql(statement) for statement in statements]
    with RawClient(relay) as client:
        client.read_greeting()
        assert client.offered & Capability.SSL
        context = tls_context(version, certificate)
        client.start_tls(context, NEW, one_segment=one_segment)
        secured = NEW | Capability.SSL
        client.log_in(upstream.user, upstream.password, schema, secured, sequence=2)
        assert client.tls_version == version.name.replace("_", ".")
        assert [client.sql(statement) for statement in statements] == expected
        assert relay.metrics()["sqlcache_hits_total"] == 1
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 0, 20, "the session's end")


def test_a_client_that_asks_for_tls_where_none_is_offered_is_told_so(
    relay: PrivateSqlcache,
) -> None:
    with RawClient(relay) as client:
        client.read_greeting()
        client.send(RUBBISH["a TLS request"])
        answer = client.read_to_end()
        assert answer[4] == 0xFF
        assert b"TLS" in answer


def test_tls_that_fails_ends_that_session_alone(
    upstream: PrivateSqlServer, proxy: ProxyFactory, login: Login, certificate: dict[str, str]
) -> None:
    relay = proxy(upstream, "memory", **certificate)
    neighbour = login(relay)
    for hello in (b"nonsense" * 10, b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03", b""):
        with RawClient(relay) as client:
            client.read_greeting()
            client.send(RUBBISH["a TLS request"] + hello)
            client.socket.shutdown(socket.SHUT_WR)
            client.read_to_end()
        wait_for_sessions(upstream, relay, 1)
        assert neighbour.sql("SELECT 1")


# --- the binlog -------------------------------------------------------------------------------


def test_a_binlog_dump_becomes_a_pipe(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, login: Login, schema: str
) -> None:
    show = "SHOW MASTER STATUS" if upstream.name == "mariadbd" else "SHOW BINARY LOG STATUS"
    name, position, *_ = upstream.sql(show)[0]
    upstream.sql("CREATE TABLE t_in_the_binlog (v INT)", schema)
    client = login(relay)
    client.sql("SET @master_binlog_checksum = 'NONE', @source_binlog_checksum = 'NONE'")
    client.sql("SET @mariadb_slave_capability = 4")
    client.command(b"\x12" + struct.pack("<IHI", position, 0, 4711) + name.encode())
    seen = b""
    while b"t_in_the_binlog" not in seen:
        _, event = client.read_packet()
        assert event[0] == 0, event
        seen += event
    upstream.sql("CREATE TABLE t_made_meanwhile (v INT)", schema)
    while b"t_made_meanwhile" not in seen:
        seen += client.read_packet()[1]
    client.close()
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 0, 20, "the pipe's end")


def test_a_binlog_dump_that_mysql_refuses_ends_as_mysql_ends_it(
    relay: PrivateSqlcache, login: Login
) -> None:
    client = login(relay)
    client.command(b"\x12" + struct.pack("<IHI", 4, 0, 4711) + b"no-such-log")
    _, refused = client.read_packet()
    assert refused[:3] == b"\xff" + (1236).to_bytes(2, "little")
    client.close()
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 0, 20, "the session's end")
