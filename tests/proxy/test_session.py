"""A session whose MySQL, or the network to it, misbehaves at the worst moment."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache, wait_until
from sqlcache.mysql.packets import err_packet
from sqlcache.proxy.session import _kind_of
from tests.conftest import ProxyFactory
from tests.fakes.middleman import Fault, Middleman
from tests.fakes.raw_client import RawClient, packets_of

OK = b"\0\0\0\2\0\0\0"
WRITE_DEADLINE_S = 0.5
KEEPALIVE_S = 0.3
PING = packets_of(b"\x0e")


@pytest.fixture
def middleman(mariadb: PrivateMariaDB) -> Iterator[Middleman]:
    """The network to MariaDB."""
    with Middleman(mariadb) as between:
        yield between


@pytest.fixture
def relay(middleman: Middleman, proxy: ProxyFactory) -> PrivateSqlcache:
    """sqlcache that reaches MariaDB through the middleman only."""
    return proxy(middleman, "memory", cache__write_deadline_s=WRITE_DEADLINE_S)


@pytest.fixture
def log_in(
    mariadb: PrivateMariaDB, relay: PrivateSqlcache, schema: str
) -> Iterator[Callable[[], Any]]:
    """`log_in()` is a new session through the relay; there is a table `t` with one row, 0."""
    opened: list[Any] = []

    def connect() -> Any:
        account = {"user": mariadb.user, "password": mariadb.password, "database": schema}
        opened.append(relay.connect(**account))
        return opened[-1]

    run(connect(), "CREATE TABLE t (v INT)")
    run(connect(), "INSERT INTO t VALUES (0)")
    yield connect
    for each in opened:
        if each.open:
            each._force_close()


def run(connection: Any, statement: str) -> tuple[tuple[Any, ...], ...]:
    """A statement's rows."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        rows: tuple[tuple[Any, ...], ...] = cursor.fetchall()
        return rows


def fails(connection: Any, statement: str) -> None:
    """Runs a statement whose connection is to break."""
    with pytest.raises(pymysql.MySQLError) as lost:
        run(connection, statement)
    assert lost.value.args[0] in (2006, 2013), lost.value


def is_hit(relay: PrivateSqlcache, connection: Any) -> bool:
    """Whether a read of `t` is answered from the cache."""
    before = relay.metrics()["sqlcache_hits_total"]
    run(connection, "SELECT v FROM t")
    return relay.metrics()["sqlcache_hits_total"] > before


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.CUT_AMID])
def test_a_write_of_unknown_outcome_leaves_no_stale_answer(
    mariadb: PrivateMariaDB,
    middleman: Middleman,
    relay: PrivateSqlcache,
    log_in: Callable[[], Any],
    schema: str,
    fault: Fault,
) -> None:
    reader = log_in()
    for statements, fatal in (
        (["UPDATE t SET v = v + 1"], b"UPDATE"),
        (["BEGIN", "UPDATE t SET v = v + 1", "COMMIT"], b"COMMIT"),
        (["BEGIN", "UPDATE t SET v = v + 1", "ALTER TABLE t COMMENT 'x'"], b"ALTER"),
        (["SET autocommit = 0", "UPDATE t SET v = v + 1", "SET autocommit = 1"], b"autocommit = 1"),
    ):
        wait_until(lambda: is_hit(relay, reader), 10, "a hit")
        writer = log_in()
        for statement in statements[:-1]:
            run(writer, statement)
        trap = middleman.set_trap(fatal, fault)
        fails(writer, statements[-1])
        assert trap.sprung.wait(20)
        wait_until(
            lambda: (
                mariadb.sql(  # the server, too, has to notice
                    "SELECT COUNT(*) FROM information_schema.processlist"
                    f" WHERE db = '{schema}' AND command <> 'Sleep'"
                )
                == ((0,),)
            ),
            20,
            "the write's end on the server",
        )
        for _ in range(3):
            assert run(reader, "SELECT v FROM t") == mariadb.sql("SELECT v FROM t", schema)
        wait_until(lambda: is_hit(relay, reader), 10, "a hit, once the mark of the write is gone")
        assert run(reader, "SELECT v FROM t") == mariadb.sql("SELECT v FROM t", schema)


@pytest.mark.parametrize(
    "fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.CUT_AMID, Fault.GARBAGE]
)
def test_a_read_that_breaks_off_is_not_stored_and_the_next_one_is_whole(
    middleman: Middleman, relay: PrivateSqlcache, log_in: Callable[[], Any], fault: Fault
) -> None:
    reader, other = log_in(), log_in()
    run(reader, "INSERT INTO t VALUES (1), (2), (3)")
    trap = middleman.set_trap(b"SELECT v FROM t", fault)
    with pytest.raises(pymysql.MySQLError):
        run(reader, "SELECT v FROM t")
    assert trap.sprung.wait(20)
    for _ in range(3):
        assert run(other, "SELECT v FROM t") == ((0,), (1,), (2,), (3,))
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] < 5, 20, "that session's end")


def test_an_answer_that_makes_no_sense_is_not_mended_with_words_of_our_own(
    mariadb: PrivateMariaDB, middleman: Middleman, relay: PrivateSqlcache, schema: str
) -> None:
    """The client may be amid a row, of which they would become a part."""
    with RawClient.logged_in(relay, mariadb.user, mariadb.password, schema) as client:
        middleman.set_trap(b"SELECT 1", Fault.GARBAGE)
        client.query("SELECT 1")
        assert client.read_to_end() == b""


def test_readers_that_wait_for_a_fill_that_breaks_off_get_their_answers(
    middleman: Middleman, relay: PrivateSqlcache, log_in: Callable[[], Any]
) -> None:
    readers = [log_in() for _ in range(6)]
    trap = middleman.set_trap(b"SELECT v FROM t", Fault.HOLD)
    outcomes: list[Any] = []

    def read(connection: Any) -> None:
        try:
            outcomes.append(run(connection, "SELECT v FROM t"))
        except pymysql.MySQLError as error:
            outcomes.append(error.args[0])

    first = threading.Thread(target=read, args=(readers[0],))
    first.start()
    assert trap.sprung.wait(20)
    others = [threading.Thread(target=read, args=(reader,)) for reader in readers[1:]]
    for other in others:
        other.start()
    wait_until(lambda: relay.metrics()["sqlcache_lease_waits_total"] >= 5, 20, "the others waiting")
    readers[0]._sock.shutdown(
        socket.SHUT_RDWR
    )  # the client gives up, and its upstream query with it
    for thread in (first, *others):
        thread.join(20)
    trap.released.set()
    assert outcomes.count(((0,),)) == 5, outcomes


@pytest.fixture
def locked(mariadb: PrivateMariaDB, schema: str, log_in: Callable[[], Any]) -> Iterator[Any]:
    """Who holds a lock for which all who read `t` wait, until `UNLOCK TABLES`."""
    with closing(mariadb.connect(database=schema)) as owner:
        run(owner, "LOCK TABLES t WRITE")
        yield owner


def running(server: PrivateMariaDB, text: str) -> list[int]:
    """The numbers of the connections on which it runs this."""
    return [row[0] for row in server.sql("SHOW PROCESSLIST") if row[7] == text]


def test_what_a_client_has_left_goes_on_for_those_who_wait_for_it(
    mariadb: PrivateMariaDB,
    middleman: Middleman,
    relay: PrivateSqlcache,
    log_in: Callable[[], Any],
    locked: Any,
) -> None:
    text = "SELECT v FROM t"
    first, second, third = log_in(), log_in(), log_in()
    with ThreadPoolExecutor() as threads:
        left = threads.submit(run, first, text)
        wait_until(lambda: len(running(mariadb, text)) == 1, 20, "the fill")
        trap = middleman.set_trap(text.encode(), Fault.HOLD)
        others = [threads.submit(run, each, text) for each in (second, third)]
        wait_until(lambda: relay.metrics()["sqlcache_lease_waits_total"] >= 2, 20, "who waits")
        first._sock.shutdown(socket.SHUT_RDWR)
        assert isinstance(left.exception(20), pymysql.MySQLError)
        wait_until(lambda: len(running(mariadb, text)) == 2, 20, "one that takes over")
        run(locked, "UNLOCK TABLES")
        assert trap.sprung.wait(20)  # that one hears nothing
        wait_until(lambda: any(each.done() for each in others), 20, "an answer")
        trap.released.set()
        assert [each.result(20) for each in others] == [((0,),)] * 2


def test_where_a_fill_is_killed_one_of_those_who_wait_takes_over(
    mariadb: PrivateMariaDB, relay: PrivateSqlcache, log_in: Callable[[], Any], locked: Any
) -> None:
    text = "SELECT v FROM t"
    first, *rest = [log_in() for _ in range(4)]
    with ThreadPoolExecutor() as threads:
        killed = threads.submit(run, first, text)
        wait_until(lambda: len(running(mariadb, text)) == 1, 20, "the fill")
        others = [threads.submit(run, each, text) for each in rest]
        wait_until(lambda: relay.metrics()["sqlcache_lease_waits_total"] >= 3, 20, "who waits")
        mariadb.sql(f"KILL QUERY {running(mariadb, text)[0]}")
        assert isinstance(killed.exception(20), pymysql.MySQLError)
        wait_until(lambda: relay.metrics()["sqlcache_lease_waits_total"] >= 5, 20, "who waits on")
        wait_until(lambda: len(running(mariadb, text)) == 1, 20, "the fill that took over alone")
        assert len(running(mariadb, text)) == 1
        run(locked, "UNLOCK TABLES")
        assert [each.result(20) for each in others] == [((0,),)] * 3


def test_a_client_that_goes_while_it_waits_for_a_fill_leaves_no_session(
    middleman: Middleman, relay: PrivateSqlcache, log_in: Callable[[], Any]
) -> None:
    reader, waiter = log_in(), log_in()
    trap = middleman.set_trap(b"SELECT v FROM t", Fault.HOLD)
    first = threading.Thread(target=run, args=(reader, "SELECT v FROM t"))
    first.start()
    assert trap.sprung.wait(20)
    open_before = relay.metrics()["sqlcache_connections_open"]
    waiter._execute_command(3, "SELECT v FROM t")
    wait_until(lambda: relay.metrics()["sqlcache_lease_waits_total"] >= 1, 20, "a waiter")
    waiter._force_close()
    wait_until(
        lambda: relay.metrics()["sqlcache_connections_open"] < open_before, 20, "its session's end"
    )
    trap.released.set()
    first.join(20)


def test_no_old_answer_is_served_once_a_held_write_is_confirmed(
    middleman: Middleman, relay: PrivateSqlcache, log_in: Callable[[], Any]
) -> None:
    writer, reader = log_in(), log_in()
    for number in range(1, 6):
        wait_until(lambda: is_hit(relay, reader), 10, "a hit")
        trap = middleman.set_trap(b"UPDATE", Fault.HOLD)
        update = threading.Thread(target=run, args=(writer, f"UPDATE t SET v = {number}"))
        update.start()
        assert trap.sprung.wait(20)
        # MySQL has written, no one has been told: both answers are right, but never go back.
        seen = [run(reader, "SELECT v FROM t")[0][0] for _ in range(5)]
        assert seen == sorted(seen)
        trap.released.set()
        update.join(20)
        assert run(reader, "SELECT v FROM t") == ((number,),)


def test_more_than_an_answer_ends_the_session(
    mariadb: PrivateMariaDB,
    middleman: Middleman,
    relay: PrivateSqlcache,
    log_in: Callable[[], Any],
    schema: str,
) -> None:
    other = log_in()
    with RawClient.logged_in(relay, mariadb.user, mariadb.password, schema) as victim:
        answer = victim.sql("SELECT v FROM t")
        middleman.set_trap(b"SELECT v FROM t", Fault.SURPLUS)
        victim.query("SELECT v FROM t FOR UPDATE")
        assert victim.read_to_end() == answer + packets_of(OK, 1)
    assert run(other, "SELECT v + 1 FROM t") == ((1,),)


@pytest.mark.parametrize("marked", ["SELECT v FROM t FOR UPDATE", "SELECT v FROM t"])
def test_what_came_at_once_is_not_answered_by_more_than_an_answer(
    mariadb: PrivateMariaDB,
    middleman: Middleman,
    relay: PrivateSqlcache,
    log_in: Callable[[], Any],
    schema: str,
    marked: str,
) -> None:
    """Nor is that stored: for the reads behind it it would be another's."""
    other = log_in()
    reads = [f"SELECT v + {number} FROM t" for number in range(5)]
    with RawClient.logged_in(relay, mariadb.user, mariadb.password, schema) as victim:
        middleman.set_trap(marked.encode(), Fault.SURPLUS)
        victim.send(b"".join(packets_of(b"\x03" + each.encode()) for each in [marked, *reads]))
        said = victim.read_to_end()
        assert said.endswith(packets_of(OK, 1))
        assert said.count(b"\x03def") == 1
    assert [run(other, each) for each in reads] == [((number,),) for number in range(5)]
    assert "session ended: MySQL says more than asked" in relay.log_text()


def test_what_the_server_says_unasked_reaches_the_client(
    mariadb: PrivateMariaDB, middleman: Middleman, relay: PrivateSqlcache, schema: str
) -> None:
    with RawClient.logged_in(relay, mariadb.user, mariadb.password, schema) as client:
        farewell = packets_of(b"\xff" + (4031).to_bytes(2, "little") + b"#HY000bye", 0)
        middleman.say(farewell)
        assert client.read_to_end() == farewell


GREETINGS = {
    "an old protocol": packets_of(b"\x09" + b"3.20\0" + bytes(20)),
    "not MySQL": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a greeting cut short": packets_of(b"\x0a8.0.0\0\1\2"),
    "an endless one": b"\xff\xff\xff\x00" + bytes(1 << 21),
}


def test_a_server_that_does_not_greet_as_mysql_does_ends_that_session_alone(
    mariadb: PrivateMariaDB, middleman: Middleman, relay: PrivateSqlcache, log_in: Callable[[], Any]
) -> None:
    neighbour = log_in()
    for greeting in GREETINGS.values():
        middleman.greet_with(greeting)
        with RawClient(relay) as client:
            answer = client.read_to_end()
        assert answer == b"" or (answer[3], answer[4]) == (0, 0xFF)
        assert run(neighbour, "SELECT v FROM t") == ((0,),)
    refusal = packets_of(b"\xff" + (1129).to_bytes(2, "little") + b"Host is blocked")
    middleman.greet_with(refusal)
    with RawClient(relay) as client:
        assert client.read_to_end() == refusal
    middleman.greet_with(None)
    log_in()


def test_a_server_that_does_not_take_what_is_sent_makes_the_client_wait(
    mariadb: PrivateMariaDB, middleman: Middleman, relay: PrivateSqlcache, schema: str
) -> None:
    def peak_bytes() -> int:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{relay.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    with RawClient.logged_in(relay, mariadb.user, mariadb.password, schema) as client:
        before = peak_bytes()
        middleman.stop_reading()
        client.socket.settimeout(1)
        client.send(b"\xff\xff\xff\x00\x03INSERT INTO t VALUES ('")
        sent = 0
        try:
            while sent < 0xFFFFFF - 1000:
                sent += client.socket.send(b"x" * 1000)
        except TimeoutError:
            pass  # the kernel's buffers are full; they may also have taken it all
        assert peak_bytes() - before < 6_000_000
        middleman.read_again()


def test_a_connection_cut_while_idle_ends_the_session_and_the_next_one_works(
    middleman: Middleman, relay: PrivateSqlcache, log_in: Callable[[], Any]
) -> None:
    idle = log_in()
    wait_until(lambda: is_hit(relay, idle), 10, "a hit")
    middleman.cut()
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 0, 20, "the sessions' end")
    fails(idle, "SELECT v FROM t")
    with closing(log_in()) as connection:
        assert run(connection, "SELECT v FROM t") == ((0,),)


def let_pings_pass(middleman: Middleman, meanwhile: Callable[[], object], count: int) -> None:
    """Returns when MySQL was pinged so often, doing the one thing again and again."""

    def comes() -> bool:
        meanwhile()
        return trap.sprung.is_set()

    for _ in range(count):
        trap = middleman.set_trap(PING, Fault.HOLD)
        trap.released.set()
        wait_until(comes, 10, "a ping")


def test_a_client_whose_hits_take_the_long_way_is_not_idle_for_mysql(
    mariadb: PrivateMariaDB, middleman: Middleman, proxy: ProxyFactory, schema: str
) -> None:
    relay = proxy(
        middleman, "memory", proxy__straight_path=False, upstream__keepalive_s=KEEPALIVE_S
    )
    account = {"user": mariadb.user, "password": mariadb.password, "database": schema}
    with closing(relay.connect(**account)) as session:
        run(session, "CREATE TABLE t (v INT)")
        wait_until(lambda: is_hit(relay, session), 10, "a hit")
        let_pings_pass(middleman, lambda: run(session, "SELECT v FROM t"), 3)
        assert is_hit(relay, session)


def test_a_client_whose_hit_is_under_way_when_mysql_is_to_hear_of_it_is_not_forgotten(
    mariadb: PrivateMariaDB,
    middleman: Middleman,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    schema: str,
) -> None:
    relay = proxy(
        *(middleman, memcached),
        memcached__timeout_s=8,
        cache__read_lease_ms=0,
        upstream__keepalive_s=KEEPALIVE_S,
    )
    account = {"user": mariadb.user, "password": mariadb.password, "database": schema}
    with closing(relay.connect(**account)) as session, ThreadPoolExecutor() as pool:
        run(session, "CREATE TABLE t (v INT)")
        wait_until(lambda: is_hit(relay, session), 10, "a hit")
        memcached.freeze()
        under_way = pool.submit(is_hit, relay, session)
        time.sleep(3 * KEEPALIVE_S)  # what is to come then comes to nobody's knowledge
        assert not under_way.done()
        trap = middleman.set_trap(PING, Fault.HOLD)
        trap.released.set()
        memcached.thaw()
        assert under_way.result()
        assert trap.sprung.wait(30)


def test_what_keeps_a_client_alive_takes_no_row_count_away(
    mariadb: PrivateMariaDB, middleman: Middleman, proxy: ProxyFactory, schema: str
) -> None:
    relay = proxy(middleman, "memory", upstream__keepalive_s=KEEPALIVE_S)
    account = {"user": mariadb.user, "password": mariadb.password, "database": schema}
    with (
        closing(relay.connect(**account)) as session,
        closing(relay.connect(**account)) as neighbour,
    ):
        run(session, "CREATE TABLE t (v INT)")
        run(session, "CREATE TABLE u (v INT)")
        for rows in ("(1), (2)", "(3), (4), (5)"):
            wait_until(lambda: is_hit(relay, session), 10, "a hit")
            run(session, f"INSERT INTO t VALUES {rows}")
            let_pings_pass(middleman, lambda: run(neighbour, "SELECT v FROM u"), 2)
            assert run(session, "SELECT ROW_COUNT()") == ((rows.count("("),),)


def unread_bytes_from(port: int) -> int:
    """How much of what this port of the machine has sent waits for a process to read it."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    return sum(int(row[4][9:], 16) for row in rows if row[2].endswith(f":{port:04X}"))


def test_a_hit_never_overtakes_a_miss_that_was_asked_before(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, proxy: ProxyFactory, schema: str
) -> None:
    """A client that does not wait for answers: each must be the one to its own question."""
    relay = proxy(mariadb, memcached)
    with RawClient.logged_in(relay, mariadb.user, mariadb.password, schema) as client:
        client.sql("CREATE TABLE a (v INT); CREATE TABLE b (v INT); INSERT INTO b VALUES (7)")
        client.sql("INSERT INTO a VALUES (0)")
        first, second = packets_of(b"\x03SELECT v FROM a"), packets_of(b"\x03SELECT v FROM b")
        client.ask_bytes(first)
        of_second = client.ask_bytes(second)
        for number in range(1, 21):
            client.sql(f"UPDATE a SET v = {number}")
            # Both wait for the process when it goes on: the answer that the first is a miss, and
            # the second. That order is what matters.
            memcached.freeze()
            client.send(first)
            for _ in ("it reads the statement", "it has asked memcached"):
                assert relay.metrics()["sqlcache_connections_open"] == 1
            relay.freeze()
            memcached.thaw()
            wait_until(lambda: unread_bytes_from(memcached.port) > 0, 20, "memcached's answer")
            client.send(second)
            relay.thaw()
            client.wait_for_bytes()
            client.send(client.sentinel())
            answer = client.read_to_sentinel()
            digits = str(number).encode()
            assert bytes((len(digits),)) + digits in answer[: -len(of_second)], number
            assert answer.endswith(of_second), number


def test_what_mysql_said_unforeseen_is_logged_without_what_it_quotes() -> None:
    text = "You have an error in your SQL syntax near 's3cret' at line 1"
    assert _kind_of(err_packet(1, 1064, text, "42000")) == "error 1064"
    assert _kind_of(b"\x02\x00\x00\x01\xff\x28") == "packet ff of 2 bytes"
    assert _kind_of(b"\x07\x00\x00\x01\x06s3cret") == "packet 06 of 7 bytes"
