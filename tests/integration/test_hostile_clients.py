"""Clients that send what no driver sends: nothing reaches MySQL unread because of it."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
    wait_until,
)
from sqlcache.mysql.constants import ER_UNKNOWN_COM_ERROR, Capability, Command
from sqlcache.mysql.packets import HEADER_BYTES
from tests.coherence.sessions import ask, run
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import COLLATION, OLD, RawClient, packets_of

READ = "SELECT SUM(v) FROM t"
UPDATE_T = "UPDATE t SET v = v + 1"
UPDATE = packets_of(b"\x03" + UPDATE_T.encode())
MEGABYTE = 1 << 20
MYSQLS_COLLATION = 255  # utf8mb4_0900_ai_ci


@pytest.fixture
def relay(upstream: PrivateSqlServer, proxy: ProxyFactory) -> PrivateSqlcache:
    """sqlcache that reads the catalog only where it must."""
    upstream.connect().close()  # so that caching_sha2_password knows the password
    seldom = {"upstream__catalog_refresh_s": 3600}
    return proxy(upstream, "memory", cache__write_deadline_s=5, **seldom)


@pytest.fixture
def reader(upstream: PrivateSqlServer, relay: PrivateSqlcache, schema: str) -> Iterator[Any]:
    """A session; there is a table `t` with one row, 0, which it reads from the cache."""
    account = {"user": upstream.user, "password": upstream.password, "database": schema}
    with closing(relay.connect(**account)) as session:
        run(session, "CREATE TABLE t (v INT)")
        run(session, "INSERT INTO t VALUES (0)")
        wait_until(lambda: is_hit(relay, session), 10, "a hit")
        yield session


@pytest.fixture
def nobody(upstream: PrivateSqlServer, schema: str) -> Iterator[str]:
    """An account that needs no password."""
    name = f"{schema}_nobody"
    upstream.sql(f"CREATE USER {name}; GRANT ALL ON {schema}.* TO {name}")
    yield name
    upstream.sql(f"DROP USER {name}")


def is_hit(relay: PrivateSqlcache, session: Any, read: str = READ) -> bool:
    """Whether the read is answered from the cache."""
    before = relay.metrics()["sqlcache_hits_total"]
    ask(session, read)
    return relay.metrics()["sqlcache_hits_total"] > before


def change_user(client: RawClient, user: str, schema: str, collation: int = COLLATION) -> bytes:
    """A COM_CHANGE_USER to an account without a password."""
    plugin = collation.to_bytes(2, "little") + client.plugin.encode() + b"\0"
    payload = user.encode() + b"\0\0" + schema.encode() + b"\0" + plugin
    return packets_of(bytes((Command.CHANGE_USER,)) + payload)


def read_ok(client: RawClient) -> None:
    """Takes packets up to an OK."""
    while (payload := client.read_packet()[1])[:1] != b"\0":
        assert payload[:1] != b"\xff", payload


# --- commands that come before their time -------------------------------------------------------


def test_a_command_that_comes_with_the_login_is_read(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str
) -> None:
    with RawClient(relay) as early:
        early.read_greeting()
        answer = early.response(upstream.user, upstream.password, schema, OLD)
        early.send(packets_of(answer, 1) + UPDATE)
        read_ok(early)
        read_ok(early)
        assert ask(reader, READ) == 1


def test_a_command_that_comes_with_a_change_of_user_is_read(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str, nobody: str
) -> None:
    account = upstream.user, upstream.password, schema
    with RawClient.logged_in(relay, *account) as early:
        early.send(change_user(early, nobody, schema))
        sequence, asked = early.read_packet()
        assert asked[:1] == b"\xfe", asked
        early.send(packets_of(b"", sequence + 1) + UPDATE)
        read_ok(early)
        read_ok(early)
        assert ask(reader, READ) == 1


def test_a_command_in_place_of_an_answer_to_the_server_ends_the_connection(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str, nobody: str
) -> None:
    account = upstream.user, upstream.password, schema
    with RawClient.logged_in(relay, *account) as early:
        early.send(change_user(early, nobody, schema) + UPDATE)
        _, asked = early.read_packet()
        assert asked[:1] == b"\xfe", asked
        early.read_to_end()
        assert upstream.sql(READ, schema) == ((0,),)


def test_a_change_of_user_is_as_long_as_it_says(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, nobody: str, schema: str
) -> None:
    """Its last bytes are no packet of their own, in which a command could stand."""
    with RawClient.logged_in(relay, nobody, "", schema) as client:
        change = change_user(client, nobody, schema)[HEADER_BYTES:].ljust(MEGABYTE, b"\0")
        answer = b"\0\0\0\2"
        behind = bytes(12) + answer + UPDATE
        client.send((len(change) + 16).to_bytes(3, "little") + b"\0" + change)
        with suppress(ConnectionError):
            client.send(len(behind).to_bytes(3, "little") + b"\5" + behind)
            client.read_to_end()
    assert ask(reader, READ) == upstream.sql(READ, schema)[0][0]


def test_a_change_of_user_may_be_longer_than_a_statement(
    upstream: PrivateSqlServer, proxy: ProxyFactory, nobody: str, schema: str
) -> None:
    relay = proxy(upstream, "memory", proxy__max_statement_bytes=1024)
    with RawClient.logged_in(relay, nobody, "", schema) as client:
        change = change_user(client, nobody, schema)[HEADER_BYTES:]
        client.send(packets_of(change + bytes(5_000)))
        client.authenticate("")
        assert schema.encode() in client.sql("SELECT DATABASE()")


def test_a_transaction_does_not_outlive_a_change_of_user_that_sqlcache_refuses(
    upstream: PrivateSqlServer, proxy: ProxyFactory, schema: str, nobody: str
) -> None:
    """For the server it would go on: it knows nothing of the change."""
    service = f"{schema}_service"
    upstream.sql(f"CREATE USER {service}; GRANT ALL ON *.* TO {service}")
    url = f"mysql://{service}@localhost?unix_socket={upstream.socket}"
    relay = proxy(SimpleNamespace(service_url=url), "memory")
    with RawClient(relay) as client, RawClient(relay) as other:
        for each in (client, other):
            each.read_greeting()
            each.log_in(nobody, "", schema, OLD)
        other.sql("CREATE TABLE t (v INT)")
        for statement in ("BEGIN", "INSERT INTO t VALUES (1)", "CREATE TEMPORARY TABLE o (v INT)"):
            client.sql(statement)
        client.send(change_user(client, service, schema))
        sequence, refusal = client.read_packet()
        assert (sequence, refusal[:1]) == (1, b"\xff"), refusal
        assert client.read_to_end() == b""
        wait_until(lambda: upstream.sql("SELECT COUNT(*) FROM t", schema) == ((0,),), 20, "its end")
        running = f"SELECT COUNT(*) FROM information_schema.processlist WHERE user = '{nobody}'"
        wait_until(lambda: upstream.sql(running) == ((1,),), 20, "the server's session's end")


def test_a_command_that_is_numbered_out_of_order_is_refused_as_the_server_does(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str
) -> None:
    account = upstream.user, upstream.password, schema
    assert is_hit(relay, reader)
    for text in (READ, READ.replace("v", "2 * v"), "SELECT FOUND_ROWS()", "DO 0"):
        refusals = []
        for server in (upstream, relay):
            with RawClient.logged_in(server, *account) as client:
                client.sql(READ)
                client.sql(text.replace("2", "1"))
                client.send(packets_of(b"\x03" + text.encode(), 1))
                refusals.append(client.read_to_end())
        assert refusals[0] == refusals[1] != b"", text


def test_a_command_that_comes_byte_by_byte_is_answered(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, schema: str
) -> None:
    account = upstream.user, upstream.password, schema
    with RawClient.logged_in(relay, *account) as client:
        for _ in range(3):
            for byte in packets_of(b"\x03DO 0"):
                client.send(bytes((byte,)))
                time.sleep(0.002)
            assert client.read_packet()[1][0] == 0


def test_an_execution_that_is_numbered_out_of_order_is_refused_as_the_server_does(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str
) -> None:
    account = upstream.user, upstream.password, schema
    refusals = []
    for server in (upstream, relay):
        with RawClient.logged_in(server, *account) as client:
            client.command(bytes((Command.STMT_PREPARE,)) + READ.encode())
            number = client.read_packet()[1][1:5]
            for _ in range(2):  # a definition, and the end of these
                client.read_packet()
            execution = bytes((Command.STMT_EXECUTE,)) + number + b"\0\1\0\0\0"
            for _ in range(3):
                client.ask(execution)
            client.send(packets_of(execution, 1))
            refusals.append(client.read_to_end())
    assert refusals[0] == refusals[1] != b""


def test_an_execution_without_a_cursor_after_one_with_is_answered_as_the_server_does(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str
) -> None:
    """MySQL sends definitions, and an OK in place of the rows."""
    account = upstream.user, upstream.password, schema
    answers = []
    for server in (upstream, relay):
        with RawClient.logged_in(server, *account) as client:
            prepared = client.ask(bytes((Command.STMT_PREPARE,)) + b"SELECT v FROM t WHERE v < 9")
            execution = bytes((Command.STMT_EXECUTE,)) + prepared[5:9]
            ways = (b"\1\1\0\0\0", b"\0\1\0\0\0", b"\0\1\0\0\0")
            answers.append([client.ask(execution + way) for way in ways])
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "sent",
    [
        packets_of(b"GET / HTTP/1.1", 1),
        packets_of(b"GET / HTTP/1.1", 7),
        packets_of(bytes(1 << 20), 1)[:1_000],
        packets_of(struct.pack("<IIB23x", Capability.SSL, 1 << 30, COLLATION), 1),
    ],
    ids=["no login", "another's turn", "too long", "TLS that was not offered"],
)
def test_what_is_wrong_with_a_login_is_told_in_its_turn(
    relay: PrivateSqlcache, sent: bytes
) -> None:
    with RawClient(relay) as client:
        client.read_greeting()
        client.send(sent)
        sequence, refusal = client.read_packet()
    assert (sequence, refusal[0]) == (sent[3] + 1, 0xFF)


def test_so_is_a_command_that_came_in_place_of_an_answer(
    upstream: PrivateSqlServer, relay: PrivateSqlcache
) -> None:
    with RawClient(relay) as client:
        client.read_greeting()
        answer = client.response(upstream.user, "", "", OLD)
        answer = answer.replace(client.plugin.encode(), b"another_one")
        client.send(packets_of(answer, 1) + UPDATE)
        asked = client.read_packet()
        assert (asked[0], asked[1][0]) == (2, 0xFE)
        sequence, refusal = client.read_packet()
    assert (sequence, refusal[0]) == (3, 0xFF)


# --- capabilities that are claimed --------------------------------------------------------------


@pytest.mark.parametrize("option", [b"", b"\0", b"\1", b"\0\0\0", b"\1\0\0", b"\2\0", b"\1\1"])
def test_an_option_that_is_cut_short_is_taken_as_the_server_takes_it(
    relay: PrivateSqlcache, upstream: PrivateSqlServer, reader: Any, schema: str, option: bytes
) -> None:
    """Whether several statements may be sent at once, where that is not seen in the text's head."""
    run(reader, "CREATE TABLE long_texts (s LONGTEXT)")
    several = f"INSERT INTO long_texts VALUES ('{'x' * MEGABYTE}'); {UPDATE_T}"
    told: list[Any] = []
    for server in (upstream, relay):
        run(reader, "UPDATE t SET v = 0")
        wait_until(lambda: is_hit(relay, reader), 10, "a hit")
        with RawClient.logged_in(server, upstream.user, upstream.password, schema) as client:
            for before in (b"\1\0", b"\0\0"):
                client.ask(b"\x1b" + before)
                told.append((client.ask(b"\x1b" + option), client.sql(several)))
                told.append(upstream.sql(READ, schema))
                if server is relay:
                    assert ask(reader, READ) == told[-1][0][0]
    assert told[:4] == told[4:]


def test_what_the_server_does_not_offer_is_not_agreed_on(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str
) -> None:
    """MariaDB knows no query attributes, and no server the bits that have no name yet."""
    claimed = (0xFFFFFFFF << 32) | OLD | Capability.QUERY_ATTRIBUTES
    claimed &= ~(Capability.LONG_PASSWORD | Capability.MARIADB_EXTENDED_METADATA)
    claimed &= ~Capability.MARIADB_CACHE_METADATA
    attributes = b"\0\1" * (upstream.name != "mariadbd")
    asked = b"\x03" + attributes + READ.encode()
    with RawClient(relay) as client, RawClient(upstream) as direct:
        for each in (client, direct):
            each.read_greeting()
            each.log_in(upstream.user, upstream.password, schema, claimed)
        expected = packets_to_eofs(direct, asked)
        assert packets_to_eofs(client, asked) == expected
        before = relay.metrics()["sqlcache_hits_total"]
        assert packets_to_eofs(client, asked) == expected
        assert relay.metrics()["sqlcache_hits_total"] > before


def packets_to_eofs(client: RawClient, command: bytes) -> list[bytes]:
    """The answer to a query, without DEPRECATE_EOF."""
    client.command(command)
    packets: list[bytes] = []
    while sum(each[:1] == b"\xfe" for each in packets) < 2:
        packets.append(client.read_packet()[1])
        assert packets[-1][:1] != b"\xff", packets
    return packets


# --- answers that nobody reads ------------------------------------------------------------------

ROWS, ROW_BYTES = 24, 1_000_000
LONG = f"SELECT REPEAT('x', {ROW_BYTES}) FROM long_answer"
FLAGS = OLD | Capability.DEPRECATE_EOF


@pytest.fixture
def slow(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str
) -> Iterator[RawClient]:
    """A session that reads nothing unless it is told to. There are a table of a few rows, for
    answers no buffer holds, and a procedure that writes, and answers with one."""
    run(reader, "CREATE TABLE long_answer (v INT)")
    run(reader, "INSERT INTO long_answer VALUES " + ", ".join(["(1)"] * ROWS))
    run(reader, f"CREATE PROCEDURE p() BEGIN UPDATE t SET v = v + 1; {LONG}; END")
    wait_until(lambda: is_hit(relay, reader), 10, "a hit")
    client = RawClient.logged_in(relay, upstream.user, upstream.password, schema, FLAGS)
    with client:
        yield client


def rows_of(client: RawClient, ends: int) -> int:
    """How many long rows come before so many OKs or ends of result sets."""
    rows = 0
    while ends:
        _, payload = client.read_packet()
        assert payload[:1] != b"\xff", payload
        rows += len(payload) > ROW_BYTES
        ends -= payload[:1] in (b"\0", b"\xfe") and len(payload) < 64
    return rows


@pytest.mark.parametrize(
    ("write", "ends"),
    [
        ("CALL p()", 2),
        (f"{LONG}; UPDATE t SET v = v + 1", 2),
        (f"UPDATE t SET v = v + 1; {LONG}", 2),
        ("BEGIN; UPDATE t SET v = v + 1; COMMIT" + f"; {LONG}" * 4, 7),
        (f"INSERT INTO t SELECT 1 FROM long_answer LIMIT 1; {LONG}", 2),
    ],
)
def test_a_client_that_does_not_read_its_answer_keeps_no_fence_up(
    relay: PrivateSqlcache, reader: Any, slow: RawClient, write: str, ends: int
) -> None:
    slow.query(write)
    wait_until(lambda: ask(reader, READ) == 1, 10, "the write")
    wait_until(lambda: is_hit(relay, reader), 10, "a hit")
    assert rows_of(slow, ends) == ROWS * max(write.count(LONG), 1)
    assert ask(reader, READ) == 1
    assert slow.sql("DO 0")[4:5] == b"\0"


def test_rows_that_a_write_returns_are_read_before_their_client_takes_them(
    mariadb: PrivateMariaDB, proxy: ProxyFactory, memcached: PrivateMemcached, schema: str
) -> None:
    relay = proxy(mariadb, memcached, upstream__catalog_refresh_s=3600)
    account = {"user": mariadb.user, "password": mariadb.password, "database": schema}
    with (
        closing(relay.connect(**account)) as session,
        RawClient.logged_in(relay, mariadb.user, mariadb.password, schema, FLAGS) as slow,
    ):
        run(session, "CREATE TABLE t (v INT)")
        wait_until(lambda: is_hit(relay, session), 10, "a hit")
        rows = ", ".join(["(1)"] * ROWS)
        slow.query(f"INSERT INTO t VALUES {rows} RETURNING REPEAT('x', {ROW_BYTES})")
        wait_until(lambda: ask(session, READ) == ROWS, 10, "the write")
        wait_until(lambda: is_hit(relay, session), 10, "a hit")
        assert rows_of(slow, 1) == ROWS


FILLED = 14
"""Rows of an answer that is to be stored."""


@pytest.fixture
def no_room(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, slow: RawClient, schema: str
) -> Iterator[None]:
    """Clients that do not read have all the room for what is read ahead of clients."""
    account = upstream.user, upstream.password, schema
    with ExitStack() as clients:
        for number in range(14):
            each = clients.enter_context(RawClient.logged_in(relay, *account, FLAGS))
            each.query(f"{LONG} AS l{number} LIMIT {FILLED}")
            each.wait_for_bytes()
        wait_until_nothing_more_is_told(relay)
        yield


def wait_until_nothing_more_is_told(relay: PrivateSqlcache) -> None:
    """Returns when all clients that are answered are waited for."""

    def told() -> float:
        return relay.metrics()["sqlcache_bytes_to_clients_total"]

    def stands_still() -> bool:
        seen = told()
        return [told() for _ in range(20)] == [seen] * 20

    wait_until(stands_still, 20, "all clients being waited for")


def test_a_fill_that_would_wait_for_its_client_is_left_to_others(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    no_room: None,
    slow: RawClient,
    schema: str,
) -> None:
    account = upstream.user, upstream.password, schema
    read = f"{LONG} LIMIT {FILLED}"
    slow.query(read)
    wait_until_nothing_more_is_told(relay)
    before = relay.metrics()
    with (
        RawClient.logged_in(relay, *account, FLAGS) as first,
        RawClient.logged_in(relay, *account, FLAGS) as second,
    ):
        for each in (first, second):
            each.query(read)
        for each in (first, second):
            assert rows_of(each, 1) == FILLED
        first.query(read)
        assert rows_of(first, 1) == FILLED
    after = relay.metrics()
    assert after["sqlcache_fills_total"] == before["sqlcache_fills_total"] + 1
    assert after["sqlcache_hits_total"] > before["sqlcache_hits_total"]
    assert rows_of(slow, 1) == FILLED


def test_an_answer_that_is_too_long_to_be_stored_makes_nobody_wait_for_its_client(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, slow: RawClient, schema: str
) -> None:
    slow.query(LONG)
    wait_until_nothing_more_is_told(relay)
    account = upstream.user, upstream.password, schema
    with RawClient.logged_in(relay, *account, FLAGS) as other:
        other.query(LONG)
        assert rows_of(other, 1) == ROWS
    assert rows_of(slow, 1) == ROWS


def test_a_client_that_does_not_read_amid_a_write_is_cut_off_where_there_is_no_room(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    reader: Any,
    no_room: None,
    slow: RawClient,
    schema: str,
) -> None:
    with RawClient.logged_in(relay, upstream.user, upstream.password, schema, FLAGS) as steady:
        steady.query("CALL p()")
        assert rows_of(steady, 2) == ROWS
    slow.query("CALL p()")
    wait_until(lambda: ask(reader, READ) == 2, 20, "the write")
    wait_until(lambda: is_hit(relay, reader), 20, "a hit")
    assert relay.metrics()["sqlcache_clients_cut_total"] == 1
    assert "client cut off" in relay.log_text()
    slow.read_to_end()


def test_a_client_that_does_not_send_its_file_keeps_no_fence_up_when_mysql_has_given_up(
    relay: PrivateSqlcache, reader: Any, slow: RawClient
) -> None:
    slow.sql("SET net_read_timeout = 1")
    slow.query("LOAD DATA LOCAL INFILE 'x' INTO TABLE t")
    _, asked = slow.read_packet()
    assert asked == b"\xfbx"
    said = slow.read_to_end()
    assert said == b"" or said[4:5] == b"\xff"
    wait_until(lambda: is_hit(relay, reader), 20, "a hit")


def test_what_is_read_ahead_of_clients_is_bounded(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, slow: RawClient, schema: str
) -> None:
    before = resident_mb(relay)
    run(reader, f"CREATE PROCEDURE q() BEGIN {LONG}; {LONG}; {LONG}; {LONG}; {LONG}; END")
    account = upstream.user, upstream.password, schema
    clients = [RawClient.logged_in(relay, *account, FLAGS) for _ in range(3)]
    for each in clients:
        each.query("CALL q()")  # of 120 MB
    settled = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%REPEAT%'"
    wait_until(lambda: upstream.sql(settled)[0][0] >= 3, 10, "they are under way")
    peaks = []
    for each in clients:
        each.wait_for_bytes()
        peaks.append(resident_mb(relay))
    for each in clients:
        assert rows_of(each, 6) == 5 * ROWS
        peaks.append(resident_mb(relay))
        each.close()
    assert max(peaks) - before < 150, (before, peaks)


CROWDED = 'sqlcache_bypasses_total{reason="too much that clients have not read"}'


def test_what_clients_do_not_read_of_hits_is_bounded(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, slow: RawClient, schema: str
) -> None:
    """An answer that is too long to be near is put together for each of them."""
    account = upstream.user, upstream.password, schema
    read = f"{LONG} LIMIT {FILLED}"

    def is_stored() -> bool:
        before = relay.metrics()["sqlcache_hits_total"]
        slow.query(read)
        assert rows_of(slow, 1) == FILLED
        return relay.metrics()["sqlcache_hits_total"] > before

    wait_until(is_stored, 10, "a hit")
    before = resident_mb(relay)
    with ExitStack() as stack:
        clients = [
            stack.enter_context(RawClient.logged_in(relay, *account, FLAGS)) for _ in range(45)
        ]
        for each in clients:
            each.query(read)
            each.wait_for_bytes()
        wait_until_nothing_more_is_told(relay)
        assert resident_mb(relay) - before < 256 + 150
        assert relay.metrics()[CROWDED] > 0
        for each in clients[:25]:
            each.close()
        for each in clients[25:]:
            assert rows_of(each, 1) == FILLED
        crowded = relay.metrics()[CROWDED]
        for each in clients[25:]:
            each.query(read)
            assert rows_of(each, 1) == FILLED
        assert relay.metrics()[CROWDED] == crowded


def resident_mb(relay: PrivateSqlcache) -> float:
    status = Path(f"/proc/{relay.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def peak_mb(relay: PrivateSqlcache) -> float:
    status = Path(f"/proc/{relay.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def test_nothing_is_kept_of_an_answer_that_only_the_server_needs(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str
) -> None:
    """A read with an offset is run again for who asks for its FOUND_ROWS(), and the table may have
    any number of rows by then."""
    account = {"user": upstream.user, "password": upstream.password, "database": schema}
    with closing(relay.connect(autocommit=True, **account)) as asker:
        run(reader, "CREATE TABLE g (v INT)")
        run(reader, "INSERT INTO g VALUES (1), (1)")
        long = f"SELECT REPEAT('x', {ROW_BYTES}) FROM g LIMIT 1, 1000000"

        def hits() -> bool:
            before = relay.metrics()["sqlcache_hits_total"]
            run(asker, long)
            return relay.metrics()["sqlcache_hits_total"] > before

        wait_until(hits, 10, "a hit")
        run(reader, "INSERT INTO g VALUES " + ", ".join(["(1)"] * 200))
        before = peak_mb(relay)
        assert ask(asker, "SELECT FOUND_ROWS()") == 202
        assert peak_mb(relay) - before < 100


@pytest.mark.parametrize("announced", [1 << 20, 1 << 17])
def test_little_is_held_of_what_clients_send_that_have_not_logged_in(
    relay: PrivateSqlcache, reader: Any, announced: int
) -> None:
    """There may be as many of them as of others, and anyone may be one."""
    before = peak_mb(relay)
    with ExitStack() as clients:
        unsent: dict[socket.socket, bytes] = {}
        for _ in range(60):
            client = clients.enter_context(RawClient(relay))
            client.read_greeting()
            client.socket.setblocking(False)
            unsent[client.socket] = packets_of(bytes(announced), 1)[:-1]
        until = time.monotonic() + 2
        while time.monotonic() < until:
            _, ready, _ = select.select([], unsent, [], 0.1)
            for each in ready:
                with suppress(OSError):
                    unsent[each] = unsent[each][each.send(unsent[each]) :]
        assert peak_mb(relay) - before < 60 * 0.5


def test_nothing_is_held_of_what_was_answered(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str
) -> None:
    sessions = 40
    with ExitStack() as clients:
        account = upstream.user, upstream.password, schema
        connected = [
            clients.enter_context(RawClient.logged_in(relay, *account, FLAGS))
            for _ in range(sessions)
        ]
        connected[0].sql(f"DO '{'x' * 1_000_000}'")
        before = resident_mb(relay)
        for each in connected[1:]:
            each.sql(f"DO '{'x' * 1_000_000}'")
        assert resident_mb(relay) - before < sessions * 0.5


# --- statements that nobody ends ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "size"),
    [("UPDATE t SET v = v + 1 /*%s*/", 0xFFFFFF), ("/*%s*/ UPDATE t SET v = v + 1", 1_200_000)],
)
def test_a_client_that_does_not_end_its_statement_keeps_no_fence_up(
    relay: PrivateSqlcache, reader: Any, slow: RawClient, write: str, size: int
) -> None:
    text = write % ("x" * (size - len(b"\x03") - len(write % "")))
    statement = packets_of(b"\x03" + text.encode())
    slow.send(statement[:-1])
    for _ in range(3):
        assert is_hit(relay, reader)
    slow.send(statement[-1:])
    read_ok(slow)
    assert ask(reader, READ) == 1


# --- commands that make the connection a stream -------------------------------------------------


@pytest.mark.parametrize("command", [Command.BINLOG_DUMP, Command.BINLOG_DUMP_GTID])
def test_after_a_binlog_dump_that_is_refused_commands_are_read(
    relay: PrivateSqlcache, reader: Any, schema: str, nobody: str, command: Command
) -> None:
    with RawClient(relay) as client:
        client.read_greeting()
        client.log_in(nobody, "", schema, OLD)
        client.command(bytes((command,)) + bytes(18))
        _, refusal = client.read_packet()
        assert refusal[:1] == b"\xff", refusal
        client.send(UPDATE)
        read_ok(client)
        assert ask(reader, READ) == 1


def test_a_command_that_comes_with_a_binlog_dump_that_is_refused_is_read(
    relay: PrivateSqlcache, reader: Any, schema: str, nobody: str
) -> None:
    with RawClient(relay) as client:
        client.read_greeting()
        client.log_in(nobody, "", schema, OLD)
        client.send(packets_of(bytes((Command.BINLOG_DUMP,)) + bytes(18)) + UPDATE)
        _, refusal = client.read_packet()
        assert refusal[:1] == b"\xff", refusal
        read_ok(client)
        assert ask(reader, READ) == 1


def test_a_table_dump_is_an_unknown_command_after_which_others_are_read(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str
) -> None:
    account = upstream.user, upstream.password, schema
    with (
        RawClient.logged_in(relay, *account) as client,
        RawClient.logged_in(upstream, *account) as direct,
    ):
        dump = bytes((Command.TABLE_DUMP,)) + b"\x01a\x01t"
        client.command(dump)
        direct.command(dump)
        refusal = client.read_packet()
        assert refusal == direct.read_packet()
        assert int.from_bytes(refusal[1][1:3], "little") == ER_UNKNOWN_COM_ERROR
        client.send(UPDATE)
        read_ok(client)
        assert ask(reader, READ) == 1


def test_a_binlog_dump_that_is_not_refused_is_streamed(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str
) -> None:
    upstream.sql("FLUSH BINARY LOGS")  # what others have written is longer than a packet
    *_, (name, *_) = upstream.sql("SHOW BINARY LOGS")
    with RawClient.logged_in(relay, upstream.user, upstream.password, schema) as replica:
        replica.sql("SET @master_binlog_checksum = 'NONE', @source_binlog_checksum = 'NONE'")
        dump = (4).to_bytes(4, "little") + bytes(2) + (77).to_bytes(4, "little")
        replica.command(bytes((Command.BINLOG_DUMP,)) + dump + name.encode())
        run(reader, "CREATE TABLE a_table_of_the_stream (v INT)")
        streamed = b""
        while b"a_table_of_the_stream" not in streamed:
            _, streamed = replica.read_packet()
            assert streamed[:1] == b"\0", streamed


# --- a server that does not take what a login says ----------------------------------------------


def test_a_text_is_read_in_the_character_set_that_the_server_reads_it_in(
    tmp_path: Path, proxy: ProxyFactory
) -> None:
    """In gbk the third byte takes the backslash with it, and the quote ends. MySQL 9.7 has no such
    servers any more."""
    options = ("--skip-character-set-client-handshake", "--character-set-server=gbk")
    with PrivateMariaDB(tmp_path / "own", options) as server:
        server.sql("CREATE DATABASE s")
        relay = proxy(server, "memory", upstream__catalog_refresh_s=3600)
        account = {"user": server.user, "password": server.password, "database": "s"}
        with closing(relay.connect(**account)) as session:
            run(session, "CREATE TABLE t (v INT)")
            run(session, "INSERT INTO t VALUES (0)")
            wait_until(lambda: is_hit(relay, session), 10, "a hit")
            with RawClient.logged_in(relay, server.user, server.password, "s", OLD) as client:
                text = b"SELECT '\xe4\xb8\xbf\\'; UPDATE t SET v = 1; -- '"
                client.ask(b"\x03" + text)
            assert server.sql(READ, "s") == ((1,),)
            assert ask(session, READ) == 1
            wait_until(lambda: is_hit(relay, session), 10, "a hit")


@pytest.mark.parametrize("named", ["at the login", "later", "no more"])
def test_by_no_collation_that_the_server_has_it_reads_texts_by_its_own(
    tmp_path: Path, proxy: ProxyFactory, named: str
) -> None:
    """As where a client of MySQL 8 names its own to MariaDB; or one that changes its user names
    none."""
    with PrivateMariaDB(tmp_path / "own", ("--character-set-server=latin1",)) as server:
        has = f"SELECT 1 FROM information_schema.COLLATIONS WHERE ID = {MYSQLS_COLLATION}"
        if named != "no more" and server.sql(has):
            pytest.skip("from version 11.4 on MariaDB has those of MySQL")
        server.sql("CREATE DATABASE s; CREATE USER nobody; GRANT ALL ON s.* TO nobody")
        relay = proxy(server, "memory", upstream__catalog_refresh_s=3600)
        account = {"user": server.user, "password": server.password, "database": "s"}
        with closing(relay.connect(**account, charset="utf8mb4")) as session:
            run(session, "CREATE TABLE `Ã©` (v INT)")
            run(session, "INSERT INTO `Ã©` VALUES (0)")
            read = "SELECT SUM(v) FROM `Ã©`"
            wait_until(lambda: is_hit(relay, session, read), 10, "a hit")
            with RawClient(relay) as client:
                client.read_greeting()
                login = bytearray(client.response("nobody", "", "s", OLD))
                login[8] = MYSQLS_COLLATION if named == "at the login" else COLLATION
                client.send(packets_of(bytes(login), 1))
                client.authenticate("")
                if named == "later":
                    client.send(change_user(client, "nobody", "s", MYSQLS_COLLATION))
                elif named == "no more":
                    client.command(b"\x11nobody\0\0s\0\x2d")
                if named != "at the login":
                    client.authenticate("")
                client.sql("UPDATE `é` SET v = 1")
            assert ask(session, read) == 1


@pytest.mark.parametrize("changes_user", [False, True])
def test_a_schema_that_servers_look_for_at_different_places_is_the_one_that_is_found(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    reader: Any,
    nobody: str,
    schema: str,
    changes_user: bool,
) -> None:
    """Behind authentication data that end with a NUL for MariaDB, and after three bytes for MySQL.
    What is read there too late, or too early, is another schema."""
    data = b"\x03a\0" if upstream.name == "mariadbd" else b"\x03a\0X"
    said = nobody.encode() + b"\0" + data + schema.encode() + b"\0"
    capabilities = OLD & ~Capability.SECURE_CONNECTION | Capability.CONNECT_WITH_DB
    with RawClient(relay) as client:
        client.read_greeting()
        head = struct.pack("<IIB23x", capabilities, 1 << 30, COLLATION)
        if changes_user:
            plugin = client.plugin.encode()
            client.send(packets_of(head + nobody.encode() + b"\0\0\0" + plugin + b"\0", 1))
            client.authenticate("")
            client.command(b"\x11" + said + b"\x2d\0no_plugin\0")
        else:
            client.send(packets_of(head + said + b"no_plugin\0", 1))
        client.authenticate("")
        client.sql("UPDATE t SET v = v + 1")
    assert ask(reader, READ) == 1


@pytest.mark.parametrize("odd", [b"\0x", b"\0", b"\xff", b"\xc3"])
@pytest.mark.parametrize("at_login", [False, True])
def test_a_schema_whose_name_is_not_all_read_is_the_one_that_is_found(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    reader: Any,
    nobody: str,
    schema: str,
    odd: bytes,
    at_login: bool,
) -> None:
    """MySQL goes by the beginning of such names, and MariaDB knows none."""
    name = schema.encode() + odd

    def update(server: PrivateSqlServer | PrivateSqlcache) -> bytes:
        with RawClient(server) as client:
            client.read_greeting()
            login = client.response(nobody, "", schema if at_login else "", OLD)
            if at_login:
                login = login.replace(schema.encode() + b"\0", name + b"\0")
            client.send(packets_of(login, 1))
            with suppress(PermissionError):
                client.authenticate("")
                told = b"" if at_login else client.ask(b"\x02" + name)
                return told + client.sql("UPDATE t SET v = v + 1")
            return b"refused"

    directly = update(upstream)
    assert update(relay) == directly
    assert ask(reader, READ) == upstream.sql(READ, schema)[0][0]
