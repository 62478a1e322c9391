"""`sqlcache serve` from start to end, as an orchestrator and the app beside it see it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import (
    NotStarted,
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    free_port,
    wait_until,
)
from sqlcache.errors import ConfigError
from sqlcache.process import serving
from sqlcache.process.ports import Port
from sqlcache.process.serving import invalidate
from sqlcache.process.systemd import Systemd
from sqlcache.settings import HostPort
from sqlcache.settings.sources import from_arguments
from tests.conftest import ProxyFactory
from tests.process.test_workers import workers
from tests.processes import command_line

SHUTDOWN = 1053
DRAIN_S = 60
"""More than any of this takes: what waits for it to pass is found out by the clock below."""

Serve = Callable[..., PrivateSqlcache]


@pytest.fixture(params=[1, 2], ids=["alone", "workers"])
def serve(
    request: pytest.FixtureRequest,
    proxy: ProxyFactory,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
) -> Serve:
    """`serve(**settings)` is a sqlcache that has a long time to drain."""

    def start(**settings: Any) -> PrivateSqlcache:
        workers = request.param
        given = {"proxy__drain_timeout_s": DRAIN_S, "proxy__workers": workers, **settings}
        return proxy(mariadb, memcached, **given)

    return start


@pytest.fixture
def connect(mariadb: PrivateMariaDB, schema: str) -> Iterator[Callable[..., Any]]:
    """`connect(server)` is a session in a schema with a table t of one row."""
    mariadb.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)", schema)
    opened: list[Any] = []

    def log_in(server: PrivateSqlcache) -> Any:
        account = {"user": mariadb.user, "password": mariadb.password, "database": schema}
        opened.append(server.connect(**account))
        return opened[-1]

    yield log_in
    for connection in opened:
        if connection.open:
            connection._force_close()


def run(connection: Any, statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def unasked(connection: Any) -> bytes:
    """What the server says before it ends the connection."""
    said: bytes = connection._rfile.read()
    return said


def has_ended(server: PrivateSqlcache) -> bool:
    return server.ended() is not None


def refuses(server: PrivateSqlcache) -> bool:
    with closing(socket.socket()) as sock:
        return sock.connect_ex((server.host, server.port)) != 0


def test_sigterm_ends_idle_sessions_as_mysql_does_and_new_ones_are_refused(
    serve: Serve, connect: Callable[..., Any]
) -> None:
    server = serve()
    idle, busy = connect(server), connect(server)
    run(idle, "SELECT v FROM t")
    run(busy, "BEGIN")
    server.signal(signal.SIGTERM)
    said = unasked(idle)
    assert said[4:7] == b"\xff" + SHUTDOWN.to_bytes(2, "little")
    assert said.endswith(b"#08S01Server shutdown in progress")
    wait_until(lambda: refuses(server), 20, "no more clients")
    assert server.ended() is None, "there is a transaction yet"
    run(busy, "ROLLBACK")
    assert unasked(busy)[4:7] == said[4:7]
    wait_until(lambda: has_ended(server), 20, "the end")
    assert server.ended() == 0


def test_statements_and_transactions_under_way_are_finished(
    serve: Serve, connect: Callable[..., Any], mariadb: PrivateMariaDB, schema: str
) -> None:
    """One that waits for the row that the transaction has written."""
    server = serve()
    slow, transaction = connect(server), connect(server)
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(run(slow, "SELECT v FROM t FOR UPDATE"))
    )
    run(transaction, "BEGIN")
    run(transaction, "UPDATE t SET v = v + 1")
    asking.start()
    wait_until(
        lambda: bool(
            mariadb.sql(
                "SELECT 1 FROM information_schema.processlist"
                f" WHERE db = '{schema}' AND info LIKE 'SELECT v FROM t FOR%'"
            )
        ),
        20,
        "the slow statement",
    )
    server.signal(signal.SIGTERM)
    wait_until(lambda: not server.readiness()["ready"], 20, "/ready says no")
    run(transaction, "UPDATE t SET v = v + 1")
    run(transaction, "COMMIT")
    asking.join(20)
    assert answers == [((3,),)]
    wait_until(lambda: has_ended(server), 20, "the end")
    assert mariadb.sql("SELECT v FROM t", schema) == ((3,),)
    assert "sessions cut" not in server.log_text()


def test_the_admin_port_answers_until_the_end(serve: Serve, connect: Callable[..., Any]) -> None:
    server = serve()
    transaction = connect(server)
    run(transaction, "BEGIN")
    server.signal(signal.SIGTERM)
    wait_until(lambda: not server.readiness()["ready"], 20, "/ready says no")
    assert server.readiness()["problems"] == {"sqlcache": "is draining"}
    assert server.fetch("/live") == "ok\n"
    assert "sqlcache_connections_open" in server.fetch("/metrics")
    run(transaction, "COMMIT")
    wait_until(lambda: has_ended(server), 20, "the end")


def test_what_outlasts_the_timeout_is_cut_and_counted_and_that_is_no_failure(
    serve: Serve, connect: Callable[..., Any], mariadb: PrivateMariaDB, schema: str
) -> None:
    server = serve(proxy__drain_timeout_s=1)
    transaction = connect(server)
    run(transaction, "BEGIN")
    run(transaction, "UPDATE t SET v = 7")
    server.signal(signal.SIGTERM)
    assert unasked(transaction)[5:7] == SHUTDOWN.to_bytes(2, "little")
    wait_until(lambda: has_ended(server), 20, "the end")
    assert server.ended() == 0
    assert 'event="sessions cut" sessions=1 in_transaction=1' in server.log_text()
    wait_until(lambda: mariadb.sql("SELECT v FROM t", schema) == ((1,),), 20, "the rollback")


def test_a_second_signal_ends_it_at_once(serve: Serve, connect: Callable[..., Any]) -> None:
    server = serve()
    transaction = connect(server)
    run(transaction, "BEGIN")
    server.signal(signal.SIGTERM)
    wait_until(lambda: not server.readiness()["ready"], 20, "/ready says no")
    server.signal(signal.SIGTERM)
    wait_until(lambda: has_ended(server), DRAIN_S / 2, "the end")
    assert server.ended() == 0
    assert "in_transaction=1" in server.log_text()


def test_who_was_accepted_right_before_the_end_is_served_once(
    serve: Serve, mariadb: PrivateMariaDB
) -> None:
    server = serve()
    account: dict[str, Any] = {"user": mariadb.user, "password": mariadb.password}
    with closing(socket.create_connection((server.host, server.port))) as sock:
        sock.settimeout(10)
        sock.recv(1, socket.MSG_PEEK)  # the greeting
        server.signal(signal.SIGTERM)
        wait_until(lambda: refuses(server), 20, "no more clients")
        connection: Any = pymysql.connect(defer_connect=True, **account)
        connection.connect(sock)
        assert run(connection, "SELECT 1") == ((1,),)
        assert unasked(connection)[5:7] == SHUTDOWN.to_bytes(2, "little")
    wait_until(lambda: has_ended(server), 20, "the end")
    assert server.ended() == 0


def test_a_worker_that_is_told_twice_still_drains(
    proxy: ProxyFactory,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    connect: Callable[..., Any],
) -> None:
    """As where all processes of a unit get SIGTERM, and the parent tells its workers, too."""
    server = proxy(mariadb, memcached, proxy__workers=2, proxy__drain_timeout_s=DRAIN_S)
    transaction = connect(server)
    run(transaction, "BEGIN")
    os.killpg(server.pid, signal.SIGTERM)
    wait_until(lambda: refuses(server), 20, "no more clients")
    run(transaction, "UPDATE t SET v = 2")
    run(transaction, "COMMIT")
    wait_until(lambda: has_ended(server), 20, "the end")
    assert server.ended() == 0


def test_it_starts_before_mysql_and_waits_for_it(
    proxy: ProxyFactory, tmp_path: Path, memcached: PrivateMemcached
) -> None:
    with PrivateMariaDB(tmp_path / "late") as late:
        late.stop()
        server = proxy(late, memcached, upstream__catalog_refresh_s=1)
        assert server.fetch("/live") == "ok\n"
        said = server.readiness()
        assert not said["ready"]
        assert "no connection to" in said["problems"]["upstream"]
        with pytest.raises(pymysql.err.OperationalError, match="sqlcache cannot reach MySQL"):
            server.connect(user=late.user, password=late.password)
        complaints = server.log_text().count("MySQL is not reached")
        late.restart()
        wait_until(lambda: bool(server.readiness()["ready"]), 20, "/ready says yes")
        with server.connect(user=late.user, password=late.password) as connection:
            assert run(connection, "SELECT 1") == ((1,),)
        assert complaints == 1, "it is said once, not with every try"
        assert "MySQL is reached again" in server.log_text()


def test_it_starts_before_memcached_and_says_that_it_is_away(
    proxy: ProxyFactory, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    memcached.stop()
    server = proxy(mariadb, memcached, memcached__outage_s=2)
    assert server.readiness() == {
        "ready": True,
        "problems": {},
        "warnings": {f"memcached {memcached.address}": "is away, or not trusted yet"},
    }
    assert f"node={memcached.address}" in server.log_text()
    assert server.metrics()["sqlcache_memcached_nodes_away"] == 1
    memcached.restart()
    wait_until(lambda: server.readiness()["warnings"] == {}, 60, "memcached")
    assert server.metrics()["sqlcache_memcached_nodes_away"] == 0


def test_both_may_go_and_come_back_while_it_runs(
    proxy: ProxyFactory, tmp_path: Path, memcached: PrivateMemcached
) -> None:
    with PrivateMariaDB(tmp_path / "mortal") as mortal:
        mortal.sql("CREATE DATABASE d; CREATE TABLE d.t (v INT); INSERT INTO d.t VALUES (1)")
        account = {"user": mortal.user, "password": mortal.password}
        server = proxy(mortal, memcached, memcached__outage_s=2)

        def is_hit() -> bool:
            before = server.metrics()["sqlcache_hits_total"]
            with server.connect(**account) as connection:
                assert run(connection, "SELECT v FROM d.t") == ((1,),)
            return server.metrics()["sqlcache_hits_total"] > before

        wait_until(is_hit, 60, "a hit")
        mortal.kill()
        memcached.kill()
        wait_until(lambda: not server.readiness()["ready"], 20, "/ready says no")
        assert server.metrics()["sqlcache_upstream_up"] == 0
        mortal.restart()
        memcached.restart()
        wait_until(lambda: bool(server.readiness()["ready"]), 20, "/ready says yes")
        assert server.metrics()["sqlcache_upstream_up"] == 1
        wait_until(is_hit, 60, "a hit again")


def test_ready_answers_while_mysql_is_frozen(
    proxy: ProxyFactory, tmp_path: Path, memcached: PrivateMemcached
) -> None:
    with PrivateMariaDB(tmp_path / "frozen") as frozen:
        server = proxy(frozen, memcached, upstream__connect_timeout_s=4)
        assert server.readiness()["ready"]
        frozen.freeze()
        wait_until(lambda: not server.readiness()["ready"], 20, "/ready says no")
        said = server.readiness()
        frozen.thaw()
        assert "MySQL does not answer" in said["problems"]["upstream"]


def test_a_password_file_is_read_again_when_the_password_is_changed(
    proxy: ProxyFactory, tmp_path: Path, memcached: PrivateMemcached
) -> None:
    with PrivateMariaDB(tmp_path / "rotated") as rotated:
        secret = tmp_path / "secret"
        secret.write_text(f"{rotated.service_password}\n")
        url = f"mysql://{rotated.service_user}@{rotated.address}"
        server = proxy(_Elsewhere(url), memcached, upstream__password_file=str(secret))
        assert server.readiness()["ready"]
        user = f"'{rotated.service_user}'@'%'"
        rotated.sql(f"ALTER USER {user} IDENTIFIED BY 'new'")
        for (session,) in rotated.sql(
            f"SELECT id FROM information_schema.processlist WHERE user = '{rotated.service_user}'"
        ):
            rotated.sql(f"KILL {session}")
        wait_until(lambda: "Access denied" in str(server.readiness()), 20, "the login is refused")
        secret.write_text("new\n")
        wait_until(lambda: "Access" not in str(server.readiness()), 20, "/ready says no more")
        assert "new" not in server.log_text().split()


class _Elsewhere:
    """An SQL server known by its URL alone."""

    def __init__(self, service_url: str) -> None:
        self.service_url = service_url


@pytest.mark.parametrize("sqlcache_kind", [PrivateSqlcache])
def test_the_process_list_does_not_show_the_password(
    proxy: ProxyFactory, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    server = proxy(mariadb, memcached)
    assert "PYTHONUNBUFFERED=1" in Path(f"/proc/{server.pid}/environ").read_text()
    shown = Path(f"/proc/{server.pid}/cmdline").read_text()
    assert mariadb.service_password not in shown
    assert f"mysql://***@{mariadb.address}" in shown


def test_it_serves_where_nobody_takes_what_it_says(
    tmp_path: Path, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    """As on a disk that is full."""
    server = Unheard(tmp_path / "sqlcache", mariadb.service_url, (memcached.address,))
    with server:
        with server.connect(user=mariadb.user, password=mariadb.password) as connection:
            connection.ping(reconnect=False)
        assert server.stop() == 0


class Unheard(PrivateSqlcache):
    """One whose output takes nothing."""

    def command(self) -> list[str]:
        return ["sh", "-c", 'exec "$@" >/dev/full 2>&1', "sh", *super().command()]

    def answers(self) -> bool:
        try:
            return not self.readiness()["problems"]
        except OSError:
            return False


@pytest.mark.parametrize("count", [1, 2])
def test_a_signal_amid_the_start_ends_it(
    tmp_path: Path, memcached: PrivateMemcached, count: int
) -> None:
    with starting(tmp_path, memcached, count) as (server, ends):
        server.signal(signal.SIGTERM)
        wait_until(lambda: bool(ends), DRAIN_S / 2, "the end")
        assert "ended with exit code 0" in ends[0]


def test_workers_end_with_their_parent_also_amid_the_start(
    tmp_path: Path, memcached: PrivateMemcached
) -> None:
    with starting(tmp_path, memcached, 2) as (server, _):
        before = workers(server)
        assert len(before) == 2
        server.signal(signal.SIGKILL)
        wait_until(lambda: not any(map(command_line, before)), DRAIN_S / 2, "their end")


@contextmanager
def starting(
    folder: Path, memcached: PrivateMemcached, count: int
) -> Iterator[tuple[PrivateSqlcache, list[str]]]:
    """One whose start goes on and on, as MySQL accepts and says nothing; and how it has ended."""
    ends: list[str] = []

    def start() -> None:
        try:
            server.start()
        except NotStarted as error:
            ends.append(str(error))

    def says_so() -> bool:
        try:
            problems = server.readiness()["problems"].values()
        except OSError:
            return False
        return list(problems) == ["is starting"] * count

    with closing(socket.create_server(("127.0.0.1", free_port()))) as silent:
        silent.settimeout(60)
        url = f"mysql://cat:pw@127.0.0.1:{silent.getsockname()[1]}"
        given = {
            "proxy__workers": count,
            "proxy__drain_timeout_s": DRAIN_S,
            "upstream__connect_timeout_s": DRAIN_S,
        }
        server = PrivateSqlcache(folder / "sqlcache", url, (memcached.address,), **given)
        launching = threading.Thread(target=start)
        launching.start()
        try:
            held = [silent.accept()[0] for _ in range(count)]
            wait_until(says_so, 60, "the admin door")
            yield server, ends
        finally:
            server.kill()
            launching.join()
        for each in held:
            each.close()


def test_who_follows_the_log_for_others_needs_nodes_that_they_share() -> None:
    here = {"upstream.url": "mysql://cat@127.0.0.1:1", "memcached.nodes": ["memory"]}
    settings = from_arguments(here)
    with pytest.raises(ConfigError, match=r"memcached\.nodes = memory"):
        invalidate(settings, lambda: settings)


async def test_no_step_of_the_end_is_left_out_for_what_another_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []

    class Ending:
        """What serves, of which only the end matters."""

        cut = None

        async def stop(self) -> None:
            steps.append("app")
            raise MemoryError

    class Door:
        async def stop(self) -> None:
            steps.append("admin")

    async def listen() -> None:
        raise ConfigError("no address")

    def stopping(self: Systemd, within_s: float) -> None:
        steps.append("systemd")
        raise OSError

    monkeypatch.setattr(Systemd, "stopping", stopping)
    monkeypatch.setattr(serving, "_admin", lambda *_: Door())
    signals = serving._Signals()
    monkeypatch.setattr(signals, "ignore", lambda: steps.append("signals"))
    here = {"upstream.url": "mysql://cat@127.0.0.1:1", "memcached.nodes": ["memory"]}
    settings = from_arguments({**here, "admin.listen": "127.0.0.1:1"})
    port = await Port.claim(HostPort("127.0.0.1", 0), take_over=False)
    (listening,) = port.sockets(0, of=1)
    app: Any = Ending()
    with pytest.raises(MemoryError):
        await serving._run(app, listen, "", settings, lambda: settings, port, signals)
    assert steps == ["systemd", "app", "admin", "signals"]
    assert listening.fileno() == -1
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().remove_signal_handler(number)
