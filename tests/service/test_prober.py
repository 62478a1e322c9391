"""What sqlcache asks about rows while a write's fence stands."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiomysql
import pytest
import uvloop

from sqlcache.callbacks import told
from sqlcache.demo.servers import PrivateMariaDB, PrivateSqlServer
from sqlcache.errors import UpstreamError
from sqlcache.metrics import Metrics
from sqlcache.mysql.packets import packet
from sqlcache.service import prober as module
from sqlcache.service.opening import connect_service
from sqlcache.service.pipeline import Rows
from sqlcache.service.prober import Prober
from tests.certificates import Authority
from tests.fakes.middleman import Fault, Middleman
from tests.servers import MySQLMissing, PrivateMySQL

PATIENT_S = 20.0
LIMIT_S = 0.3
FIVE = b"SELECT k, s FROM t WHERE id = 5 LIMIT 65"

NewLoop = Callable[[], asyncio.AbstractEventLoop]
Connect = Callable[[], Awaitable[aiomysql.Connection]]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.05)


@pytest.fixture
def table(upstream: PrivateSqlServer, schema: str) -> str:
    """`t` with a row 5, and 70 rows whose k is 1."""
    rows = ", ".join(f"({1000 + n}, 1, 'x')" for n in range(70))
    upstream.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, k INT, s VARCHAR(60), c CHAR(9), KEY (k));"
        f"INSERT INTO t (id, k, s) VALUES (5, 7, NULL), {rows}",
        schema,
    )
    return f"{schema}.t"


def connecting(server: PrivateSqlServer | Middleman, **options: Any) -> Connect:
    known = server._server if isinstance(server, Middleman) else server

    async def connect() -> aiomysql.Connection:
        return await connect_service(
            server.host, server.port, known.service_user, known.service_password, 10, **options
        )

    return connect


@asynccontextmanager
async def probing(
    connect: Connect, limit_s: float = PATIENT_S
) -> AsyncIterator[tuple[Prober, Metrics]]:
    """One that has been told something, and closed at the end; nothing is left of it then."""
    before = asyncio.all_tasks()
    metrics = Metrics()
    prober = Prober(connect, metrics, limit_s=limit_s)
    try:
        await until_told(prober)
        while time.monotonic() < prober._not_before:  # where the host is busy that took long
            await asyncio.sleep(0.01)
        metrics.probes.clear()
        yield prober, metrics
    finally:
        await prober.close()
        assert asyncio.all_tasks() == before


async def ask(prober: Prober, statement: bytes) -> Rows | None:
    async with asyncio.timeout(2 * PATIENT_S):
        return await told(lambda done: prober.ask(statement, done))


async def until_told(prober: Prober, statement: bytes = b"SELECT 1 LIMIT 65") -> Rows:
    async with asyncio.timeout(2 * PATIENT_S):
        while (rows := await ask(prober, statement)) is None:
            await asyncio.sleep(0.01)
    return rows


def of(table: str, statement: bytes = FIVE) -> bytes:
    return statement.replace(b" t ", f" {table} ".encode())


async def test_whoever_asks_first_is_not_made_to_wait_for_the_login(
    upstream: PrivateSqlServer,
) -> None:
    metrics = Metrics()
    prober = Prober(connecting(upstream), metrics)
    answers: list[Rows | None] = []
    prober.ask(b"SELECT 1", answers.append)
    assert answers == []  # nobody is called within the call
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (answers, +metrics.probes) == ([None], {"refused": 1})
    assert await until_told(prober) == [(b"1",)]
    await prober.close()


async def test_rows_come_as_they_are(upstream: PrivateSqlServer, table: str) -> None:
    async with probing(connecting(upstream)) as (prober, metrics):
        assert await ask(prober, of(table)) == [(b"7", None)]
        assert await ask(prober, of(table, b"SELECT k FROM t WHERE id = 6 LIMIT 65")) == []
        many = await ask(prober, of(table, b"SELECT id, s FROM t WHERE k = 1 LIMIT 65"))
        assert many is not None
        assert (len(many), many[0]) == (65, (b"1000", b"x"))
        assert +metrics.probes == {"told": 3}


async def test_each_of_those_that_ask_at_once_gets_its_own(
    upstream: PrivateSqlServer, table: str
) -> None:
    asked = [of(table, b"SELECT id FROM t WHERE id = %d LIMIT 65" % (1000 + n)) for n in range(64)]
    async with probing(connecting(upstream)) as (prober, metrics):
        answers = await asyncio.gather(*(ask(prober, each) for each in [*asked, *asked]))
        assert answers[:64] == [[(b"%d" % (1000 + n),)] for n in range(64)]
        assert answers[64:] == [None] * 64  # too many
        assert +metrics.probes == {"told": 64, "refused": 64}


async def test_rows_are_those_that_are_committed_at_the_time(
    upstream: PrivateSqlServer, table: str
) -> None:
    async with probing(connecting(upstream)) as (prober, _):
        with closing(upstream.connect(autocommit=False)) as writer, writer.cursor() as cursor:
            for k in range(20):
                cursor.execute(f"UPDATE {table} SET k = {k + 1} WHERE id = 5")
                if k:
                    assert await ask(prober, of(table)) == [(b"%d" % k, None)]
                writer.commit()
                assert await ask(prober, of(table)) == [(b"%d" % (k + 1), None)]


async def test_neither_globals_nor_init_connect_change_them(
    upstream: PrivateSqlServer, table: str
) -> None:
    upstream.sql(f"UPDATE {table} SET c = 'ä', k = 8")
    globals_ = {
        "sql_mode": "'PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
        "autocommit": "0",
        "lock_wait_timeout": "600",
        "init_connect": "'SET NAMES latin1, transaction_prealloc_size = 4096'",
    }
    if isinstance(upstream, PrivateMariaDB):
        globals_ |= {
            "tx_isolation": "'READ-UNCOMMITTED'",
            "system_versioning_asof": "'2001-01-01 00:00:00'",
        }
        upstream.sql(f"ALTER TABLE {table} ADD SYSTEM VERSIONING")
    else:
        globals_["transaction_isolation"] = "'READ-UNCOMMITTED'"
    before = {name: upstream.sql(f"SELECT @@GLOBAL.{name}")[0][0] for name in globals_}
    upstream.sql(";".join(f"SET GLOBAL {name} = {value}" for name, value in globals_.items()))
    try:
        statement = of(table, rb"""SELECT c, '\'', "x" FROM t WHERE id = 5 LIMIT 65""")
        async with probing(lambda: _bare(upstream)) as (prober, _):
            assert await ask(prober, statement) == [("ä".encode(), b"'", b"x")]
            with closing(upstream.connect()) as writer, writer.cursor() as cursor:
                writer.begin()
                cursor.execute(f"UPDATE {table} SET k = 9 WHERE id = 5")
                assert await ask(prober, of(table)) == [(b"8", None)]
                writer.commit()
                assert await ask(prober, of(table)) == [(b"9", None)]
            assert await ask(prober, b"SELECT @@lock_wait_timeout < 2") == [(b"1",)]
    finally:
        for name, value in before.items():
            quoted = "DEFAULT" if value == "DEFAULT" else value
            literal = quoted if str(quoted).isdigit() or quoted == "DEFAULT" else f"'{quoted}'"
            upstream.sql(f"SET GLOBAL {name} = {literal}")


async def _bare(server: PrivateSqlServer) -> aiomysql.Connection:
    """A login that sets nothing."""
    return await aiomysql.connect(
        host=server.host,
        port=server.port,
        user=server.service_user,
        password=server.service_password,
        autocommit=None,
    )


@pytest.mark.parametrize("fails", [b"SELECT 1 FROM nowhere.t LIMIT 65", b"SELEC", b"SELECT"])
async def test_what_mysql_refuses_is_not_told_and_harms_no_other(
    upstream: PrivateSqlServer, table: str, fails: bytes
) -> None:
    async with probing(connecting(upstream)) as (prober, metrics):
        asked = (ask(prober, each) for each in (of(table), fails, of(table)))
        assert await asyncio.gather(*asked) == [[(b"7", None)], None, [(b"7", None)]]
        assert +metrics.probes == {"told": 2, "failed": 1}


async def test_an_answer_that_is_too_long_is_not_told(
    upstream: PrivateSqlServer, table: str
) -> None:
    async with probing(connecting(upstream)) as (prober, metrics):
        long = b"SELECT REPEAT('x', 65537) LIMIT 65"
        longest = b"SELECT REPEAT('x', 4000000) LIMIT 65"
        asked = (ask(prober, each) for each in (of(table), long, longest, of(table)))
        assert await asyncio.gather(*asked) == [[(b"7", None)], None, None, [(b"7", None)]]
        fits = await ask(prober, b"SELECT REPEAT('x', 65000) LIMIT 65")
        assert fits == [(b"x" * 65000,)]
        assert +metrics.probes == {"told": 3, "failed": 2}


async def test_a_table_that_is_locked_holds_nobody_up(
    upstream: PrivateSqlServer, table: str
) -> None:
    async with probing(connecting(upstream), limit_s=8.0) as (prober, metrics):
        number = await ask(prober, b"SELECT CONNECTION_ID() LIMIT 65")
        with closing(upstream.connect()) as client, client.cursor() as cursor:
            cursor.execute(f"LOCK TABLES {table} WRITE")
            assert await ask(prober, of(table)) is None
            cursor.execute("UNLOCK TABLES")
        assert await until_told(prober, of(table)) == [(b"7", None)]
        # The wait has ended by itself, in less than the limit, and not the connection.
        assert await ask(prober, b"SELECT CONNECTION_ID() LIMIT 65") == number
        del metrics.probes["refused"]  # if it took long, as where MySQL waits for a second
        assert +metrics.probes == {"told": 3, "failed": 1}


async def test_a_slow_answer_is_told_and_then_none_is_asked_for_a_moment(
    upstream: PrivateSqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause_s = 5.0
    async with probing(connecting(upstream)) as (prober, metrics):
        monkeypatch.setattr(module, "_SLOW", 0.8 / PATIENT_S)
        monkeypatch.setattr(module, "_FIRST_PAUSE_S", pause_s)
        began = time.monotonic()
        assert await ask(prober, b"SELECT SLEEP(0.88), 2") == [(b"0", b"2")]
        assert prober._not_before > began + 0.8 + pause_s
        assert await ask(prober, b"SELECT 3") is None
        monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.05)
        prober._not_before -= pause_s
        assert await until_told(prober, b"SELECT 4") == [(b"4",)]
        assert metrics.probes["told"] == 2


async def test_what_takes_too_long_is_late_for_all_and_the_next_answers_are_right(
    upstream: PrivateSqlServer, table: str
) -> None:
    with Middleman(upstream) as middleman:
        async with probing(connecting(middleman), LIMIT_S) as (prober, metrics):
            trap = middleman.set_trap(b"id = 5", Fault.HOLD)
            began = time.monotonic()
            asked = (ask(prober, each) for each in (of(table), b"SELECT 2", b"SELECT 3"))
            assert await asyncio.gather(*asked) == [None, None, None]
            assert time.monotonic() - began > LIMIT_S / 2
            assert +metrics.probes == {"late": 3}
            trap.released.set()
            assert await until_told(prober, b"SELECT 4") == [(b"4",)]


async def test_an_answer_that_came_while_the_process_was_held_up_is_not_late(
    upstream: PrivateSqlServer, table: str
) -> None:
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    limit_s = 4.0  # MySQL, too, may be held up for a moment, and ends what takes half of it

    def hold_up() -> None:
        loop.remove_reader(near)
        time.sleep(1.5 * limit_s)

    async with probing(connecting(upstream), limit_s) as (prober, metrics):
        slow = of(table, b"SELECT k + SLEEP(0.05) FROM t WHERE id = 5 LIMIT 65")
        asked = asyncio.ensure_future(ask(prober, slow))
        await asyncio.sleep(0.01)
        # By another's bytes: what comes meanwhile is not among what the loop has just found.
        loop.add_reader(near, hold_up)
        far.send(b"x")
        assert await asked == [(b"7",)]
        time.sleep(1.5 * limit_s)  # noqa: ASYNC251 - who asks after that has all its time
        assert await ask(prober, b"SELECT 3") == [(b"3",)]
        assert +metrics.probes == {"told": 2}
    near.close()
    far.close()


async def test_a_server_that_stands_still_is_not_asked_for_a_while(
    upstream: PrivateSqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    logins = 0
    connect = connecting(upstream)

    async def counted() -> aiomysql.Connection:
        nonlocal logins
        logins += 1
        return await connect()

    async with probing(counted, LIMIT_S) as (prober, metrics):
        monkeypatch.setattr(module, "_FIRST_PAUSE_S", 600.0)
        prober._pause_s, before = 0.0, logins
        upstream.freeze()
        try:
            assert await ask(prober, b"SELECT 2") is None
            assert await ask(prober, b"SELECT 3") is None
        finally:
            upstream.thaw()
        assert (logins, +metrics.probes) == (before, {"late": 1, "refused": 1})


@pytest.mark.parametrize("met", ["nobody", "an end", "no answer"])
async def test_there_are_longer_and_longer_pauses_between_logins_that_bring_nothing(
    upstream: PrivateSqlServer, monkeypatch: pytest.MonkeyPatch, met: str
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "_LONGEST_PAUSE_S", 0.08)
    times: list[float] = []
    connect = connecting(upstream)

    async def fail() -> aiomysql.Connection:
        times.append(time.monotonic())
        if met == "nobody":
            raise UpstreamError("nobody there")
        connection = await connect()
        if met == "no answer":
            connection._reader.feed_data(packet(1, b""))
        connection._reader.feed_eof()
        return connection

    prober = Prober(fail, Metrics())
    async with asyncio.timeout(PATIENT_S):
        while len(times) < 6:
            assert await ask(prober, b"SELECT 1") is None
            await asyncio.sleep(0.001)
    waited = [after - before for before, after in pairwise(times)]
    assert all(s >= least for s, least in zip(waited, (0.01, 0.02, 0.04, 0.08, 0.08), strict=True))
    await prober.close()


async def test_who_is_with_another_server_is_told_nothing_until_it_is_asked(
    upstream: PrivateSqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a failover, where the server of before goes on as a replica."""
    monkeypatch.setattr(module, "_LONGEST_PAUSE_S", 0.1)
    with Middleman(upstream) as before:
        connect = [connecting(before)]
        async with probing(lambda: connect[0]()) as (prober, metrics):

            async def of_server(server: PrivateSqlServer | Middleman) -> Rows | None:
                peer = (server.host, server.port)
                return await told(lambda done: prober.ask(b"SELECT 5", done, peer=peer))

            assert await of_server(before) == [(b"5",)]
            await asyncio.sleep(0.2)
            connect[0] = connecting(upstream)
            assert await of_server(upstream) is None
            assert +metrics.probes == {"told": 1, "refused": 1}
            async with asyncio.timeout(PATIENT_S):
                while await of_server(upstream) is None:
                    await asyncio.sleep(0.01)
            assert await of_server(before) is None


@pytest.mark.parametrize("waits", [False, True])
async def test_a_connection_that_mysql_ends_is_followed_by_another(
    upstream: PrivateSqlServer, table: str, waits: bool
) -> None:
    async with probing(connecting(upstream)) as (prober, _):
        ((number,),) = await until_told(prober, b"SELECT CONNECTION_ID()")
        assert number is not None
        asked = asyncio.ensure_future(ask(prober, b"SELECT SLEEP(9)")) if waits else None
        await asyncio.sleep(0.05)
        await asyncio.to_thread(upstream.sql, f"KILL {number.decode()}")
        if asked is not None:
            assert (await asked) in (None, [(b"1",)])  # MariaDB, MySQL: SLEEP tells of its end
        async with asyncio.timeout(PATIENT_S):
            while (again := await ask(prober, b"SELECT CONNECTION_ID()")) in (None, [(number,)]):
                await asyncio.sleep(0.01)
        assert again != [(number,)]


async def test_a_server_that_was_away_is_asked_again(
    tmp_path: Path,
) -> None:
    with PrivateMariaDB(tmp_path / "server") as server:
        async with probing(connecting(server)) as (prober, metrics):
            await asyncio.to_thread(server.kill)
            asked = [await ask(prober, b"SELECT 2") for _ in range(20)]
            assert asked == [None] * 20
            await asyncio.to_thread(server.restart)
            assert await until_told(prober, b"SELECT 3") == [(b"3",)]
            assert metrics.probes["late"] == 0


@pytest.mark.parametrize("fault", [Fault.GARBAGE, Fault.SURPLUS, Fault.CUT_AMID, Fault.CUT_AFTER])
async def test_what_is_no_answer_ends_the_connection_and_is_told_to_nobody(
    upstream: PrivateSqlServer, table: str, fault: Fault
) -> None:
    with Middleman(upstream) as middleman:
        async with probing(connecting(middleman)) as (prober, _):
            for _ in range(3):
                trap = middleman.set_trap(b"id = 5", fault)
                asked = (ask(prober, each) for each in (of(table), b"SELECT 2", b"SELECT 3"))
                answers = await asyncio.gather(*asked)
                right = ([(b"7", None)], [(b"2",)], [(b"3",)])
                pairs = zip(answers, right, strict=True)
                assert all(answer in (None, rows) for answer, rows in pairs)
                if fault is not Fault.SURPLUS:  # which may have ended the connection before
                    assert await asyncio.to_thread(trap.sprung.wait, PATIENT_S)
                    assert None in answers
                assert await until_told(prober, b"SELECT 4") == [(b"4",)]


@pytest.mark.parametrize(
    "said",
    [
        b"\x10\0\0\0\xff\xbf\x0f#HY000goodbye",  # as MySQL says unasked that it ends a session
        b"\x07\0\0\x01\0\0\0\x02\0\0\0",  # an OK
        b"\x01\0\0\x01\xfb",  # a request for a file
        b"\0\0\0\x01",
        bytes(100),
        b"\xff" * 100,
    ],
)
async def test_neither_is_what_it_says_unasked(upstream: PrivateSqlServer, said: bytes) -> None:
    with Middleman(upstream) as middleman:
        async with probing(connecting(middleman), 1.0) as (prober, _):
            trap = middleman.set_trap(b"SELECT 2", Fault.HOLD)
            asked = [asyncio.ensure_future(ask(prober, b"SELECT %d" % n)) for n in (2, 3)]
            await asyncio.to_thread(trap.sprung.wait, PATIENT_S)
            middleman.say(said)
            assert await asked[0] is None
            trap.released.set()
            assert await asked[1] is None
            assert await until_told(prober, b"SELECT 4") == [(b"4",)]


async def test_a_connection_that_says_something_unasked_is_not_asked_any_more(
    upstream: PrivateSqlServer,
) -> None:
    with Middleman(upstream) as middleman:
        async with probing(connecting(middleman)) as (prober, _):
            ((number,),) = await until_told(prober, b"SELECT CONNECTION_ID()")
            assert number is not None
            middleman.say(b"\x07\0\0\x01\0\0\0\x02\0\0\0")
            its_own = "SELECT 1 FROM information_schema.processlist WHERE id = " + number.decode()
            async with asyncio.timeout(PATIENT_S):
                while upstream.sql(its_own):
                    await asyncio.sleep(0.01)
            assert await until_told(prober, b"SELECT 2") == [(b"2",)]


@pytest.mark.parametrize("statement", [b"SELECT 1", b"COMMIT AND CHAIN"])
async def test_a_session_in_a_transaction_tells_nothing(
    upstream: PrivateSqlServer, statement: bytes
) -> None:
    connect = connecting(upstream)

    async def begin() -> aiomysql.Connection:
        connection = await connect()
        await connection.begin()
        return connection

    metrics = Metrics()
    prober = Prober(begin, metrics, limit_s=PATIENT_S)
    async with asyncio.timeout(PATIENT_S):
        while metrics.probes["failed"] < 2:
            assert await ask(prober, statement) is None
            await asyncio.sleep(0.01)
    await prober.close()


@pytest.mark.parametrize("waiting", [0, 3])
async def test_who_waits_is_told_none_at_the_end(
    upstream: PrivateSqlServer, table: str, waiting: int
) -> None:
    answers: list[Rows | None] = []
    async with probing(connecting(upstream)) as (prober, metrics):
        aborted = upstream.status("Aborted_clients")
        for _ in range(waiting):
            prober.ask(of(table, b"SELECT SLEEP(0.2) FROM t WHERE id = 5 LIMIT 65"), answers.append)
    assert answers == [None] * waiting
    assert +metrics.probes == +type(metrics.probes)(failed=waiting)
    assert await ask(prober, b"SELECT 1") is None
    if not waiting:
        assert upstream.status("Aborted_clients") == aborted


async def test_the_end_does_not_wait_for_a_login() -> None:
    metrics = Metrics()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        prober = Prober(lambda: connect_service("127.0.0.1", port, "u", "p", 60), metrics)
        assert await ask(prober, b"SELECT 1") is None
        await asyncio.sleep(0.05)
        async with asyncio.timeout(PATIENT_S):
            await prober.close()
    assert +metrics.probes == {"refused": 1}


async def test_who_is_told_may_ask_or_fail_or_close(upstream: PrivateSqlServer) -> None:
    async with probing(connecting(upstream)) as (prober, _):
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
        again: asyncio.Future[Rows | None] = asyncio.get_running_loop().create_future()

        def fail(rows: Rows | None) -> None:
            prober.ask(b"SELECT 3", again.set_result)
            raise LookupError(rows)

        prober.ask(b"SELECT 2", fail)
        assert await again == [(b"3",)]
        assert str(complaints[0]["exception"]) == "[(b'2',)]"


@pytest.fixture(scope="module", params=[PrivateMariaDB, PrivateMySQL])
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivateSqlServer]:
    folder = tmp_path_factory.mktemp("secured")
    own = Authority(folder).issue("server", "DNS:localhost")
    options = (f"--ssl-cert={own.certificate}", f"--ssl-key={own.key}")
    try:
        with request.param(folder / "server", options) as server:
            yield server
    except MySQLMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("way", ["TLS", "socket"])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_it_goes_by_tls_and_by_a_socket(
    secured: PrivateSqlServer, way: str, new_loop: NewLoop
) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_it_goes_by(secured, way))


async def _it_goes_by(secured: PrivateSqlServer, way: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    by_tls: dict[str, Any] = {"tls": context, "tls_required": True}
    options = by_tls if way == "TLS" else {"unix_socket": str(secured.socket)}
    async with probing(connecting(secured, **options)) as (prober, _):
        (cipher,) = await until_told(prober, b"SHOW STATUS LIKE 'Ssl_cipher'")
        assert bool(cipher[1]) is (way == "TLS")
        asked = [b"SELECT %d, REPEAT('x', 40000)" % n for n in range(50)]
        answers = await asyncio.gather(*(ask(prober, each) for each in asked))
        assert answers == [[(b"%d" % n, b"x" * 40000)] for n in range(50)]
        ((number,),) = await until_told(prober, b"SELECT CONNECTION_ID()")
        assert number is not None
        await asyncio.to_thread(secured.sql, f"KILL {number.decode()}")
        async with asyncio.timeout(PATIENT_S):
            while await ask(prober, b"SELECT CONNECTION_ID()") in (None, [(number,)]):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "test",
    [
        test_an_answer_that_is_too_long_is_not_told,
        test_a_table_that_is_locked_holds_nobody_up,
        test_what_takes_too_long_is_late_for_all_and_the_next_answers_are_right,
        test_an_answer_that_came_while_the_process_was_held_up_is_not_late,
        partial(
            test_what_is_no_answer_ends_the_connection_and_is_told_to_nobody, fault=Fault.CUT_AMID
        ),
        partial(
            test_what_is_no_answer_ends_the_connection_and_is_told_to_nobody, fault=Fault.GARBAGE
        ),
        partial(test_a_connection_that_mysql_ends_is_followed_by_another, waits=True),
        partial(test_who_waits_is_told_none_at_the_end, waiting=3),
    ],
)
def test_so_it_is_under_uvloop(
    upstream: PrivateSqlServer, table: str, test: Callable[..., Coroutine[None, None, None]]
) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test(upstream, table))
