"""SIGHUP, to the running program: what applies at once, what is named, and what changes nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache, wait_until
from sqlcache.errors import ConfigError
from sqlcache.process import logs
from sqlcache.process.reloading import AT_ONCE, Reloading, changed, taken_from
from sqlcache.process.systemd import Systemd
from sqlcache.settings import Settings
from sqlcache.settings.sources import from_arguments
from tests.certificates import Authority, Certificate
from tests.conftest import ProxyFactory
from tests.process.test_logs import read_json, read_logfmt
from tests.process.test_systemd import Manager, Unit
from tests.process.test_workers import ALL_READY, workers
from tests.servers import PATIENT, Invalidating

OFF = 'sqlcache_bypasses_total{reason="switched off"}'
HITS = "sqlcache_hits_total"
REQUIRED = {"upstream.url": "mysql://cat@127.0.0.1", "memcached.nodes": "127.0.0.1:1"}


def given(**settings: object) -> Settings:
    return from_arguments({**REQUIRED, **{k.replace("__", "."): v for k, v in settings.items()}})


def test_every_setting_that_differs_is_named_and_only_what_may_change_is_taken() -> None:
    other = {
        "cache__ttl_s": 5,
        "memcached__nodes": "127.0.0.1:2",
        "upstream__url": "mysql://dog@127.0.0.1",
        "upstream__tls": "required",
        "log__level": "debug",
        "log__format": "json",
        "log__slow_miss_ms": 5,
        "rules": [{"off": True}],
        "routines": [{"name": "s.f"}],
    }
    running, read = given(), given(**other)
    paths = {name.replace("__", ".") for name in other}
    at_once = {"upstream.tls", "log.level", "log.format", "log.slow_miss_ms", "rules"}
    assert dict(changed(running, read)) == {path: path in at_once for path in paths}
    taken = taken_from(running, read)
    assert {path for path, _ in changed(running, taken)} == at_once
    assert {path for path, _ in changed(taken, read)} == paths - at_once
    assert list(changed(running, given())) == []


def test_what_applies_at_once_are_settings() -> None:
    for section, names in AT_ONCE.items():
        fields = type(getattr(given(), section)).model_fields if names else {}
        assert set(names) <= set(fields)


class Went:
    """Goes by all settings that it is given, or by none."""

    def __init__(self, *, refuses: str = "") -> None:
        self.by: list[Settings] = []
        self._refuses = refuses

    async def use(self, settings: Settings) -> None:
        if self._refuses:
            raise ConfigError(self._refuses)
        self.by.append(settings)


def reloaded(app: Went, running: Settings, *readings: Settings) -> Reloading:
    """One that has read these, one after the other."""

    async def run() -> Reloading:
        left = iter(readings)
        reloading = Reloading(running, lambda: next(left), app, Systemd({}), asyncio.Event())
        for _ in readings:
            await reloading.reload()
        return reloading

    return asyncio.run(run())


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The levels that the log has got, in place of having them."""
    levels: list[str] = []
    monkeypatch.setattr(logs, "configure", lambda level, _: levels.append(level))
    return levels


@pytest.mark.usefixtures("logged")
@pytest.mark.parametrize("auto", [True, False])
def test_who_counts_on_tls_has_it_after_a_reload_without_a_certificate(
    tmp_path: Path, *, auto: bool
) -> None:
    issued = Authority(tmp_path / "authority").issue("a1", "IP:127.0.0.1")
    files = {
        "proxy__tls_certificate": str(issued.certificate),
        "proxy__tls_key": str(issued.key),
    }
    app = Went()
    required = {"proxy__tls_required": True}
    running = given(proxy__tls_auto=auto, **files, **required)
    for read in (given(**required), *([given()] if auto else [])):
        with pytest.raises(ConfigError, match=r"proxy\.tls_certificate: is not set"):
            reloaded(app, running, read)
    assert app.by == []
    own = given(**required)  # of which one was made at the start
    assert reloaded(app, own, given(**files, **required), own).settings == own
    off = given(proxy__tls_auto=False)
    assert reloaded(app, given(proxy__tls_auto=False, **files), off).settings == off


def test_what_is_refused_does_not_change_the_log_either(logged: list[str]) -> None:
    with pytest.raises(ConfigError, match="just being replaced"):
        reloaded(Went(refuses="just being replaced"), given(), given(log__level="debug"))
    assert logged == []
    reloaded(Went(), given(), given(log__level="debug"))
    assert logged == ["debug"]


@pytest.fixture(params=[1, 2], ids=["alone", "workers"])
def serve(
    request: pytest.FixtureRequest,
    proxy: ProxyFactory,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
) -> Callable[..., PrivateSqlcache]:
    def start(**settings: Any) -> PrivateSqlcache:
        return proxy(mariadb, memcached, proxy__workers=request.param, **settings)

    return start


Connect = Callable[..., Any]


@pytest.fixture
def connect(mariadb: PrivateMariaDB, schema: str) -> Iterator[Connect]:
    """`connect(server)` is a session in a schema with a table t of one row."""
    mariadb.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)", schema)
    opened: list[Any] = []

    def log_in(server: PrivateSqlcache, **options: Any) -> Any:
        account = {"user": mariadb.user, "password": mariadb.password, "database": schema}
        opened.append(server.connect(**account, **options))
        return opened[-1]

    yield log_in
    for connection in opened:
        connection._force_close()


def reload(server: PrivateSqlcache, lines: int = 1, /, **settings: Any) -> str:
    """What the log says, in so many lines, of a reading of these settings."""
    before = len(server.log_text())
    server.configure(**settings)
    server.signal(signal.SIGHUP)
    wait_until(lambda: server.log_text()[before:].count("reloaded") >= lines, 60, "a reload")
    return server.log_text()[before:]


def count(server: PrivateSqlcache, connection: Any, statement: str, metric: str) -> float:
    """By how much a metric changes while a session runs a statement twice."""
    before = server.metrics().get(metric, 0)
    for _ in range(2):
        with connection.cursor() as cursor:
            cursor.execute(statement)
            cursor.fetchall()
    return server.metrics().get(metric, 0) - before


def test_a_statement_follows_another_rule_at_once_in_all_sessions(
    serve: Callable[..., PrivateSqlcache], connect: Connect, schema: str
) -> None:
    server = serve()
    sessions = [connect(server) for _ in range(6)]
    statement = "SELECT v FROM t"
    for session in sessions:
        count(server, session, statement, HITS)
    assert all(count(server, session, statement, HITS) == 2 for session in sessions)
    rule = {"table": f"{schema}.t", "off": True}
    assert "settings reloaded" in (said := reload(server, rules=[rule]))
    assert "changed=rules" in said
    assert "restart" not in said
    for session in [*sessions, connect(server)]:
        assert count(server, session, statement, OFF) == 2
    assert "changed=none" in reload(server)
    reload(server, rules=[{**rule, "off": False}])
    for session in sessions:
        assert count(server, session, statement, HITS) == 2


def test_a_prepared_statement_follows_another_rule(
    serve: Callable[..., PrivateSqlcache], connect: Connect, schema: str
) -> None:
    server = serve()
    session = connect(server)
    count(server, session, "PREPARE p FROM 'SELECT v FROM t WHERE v > ?'", HITS)
    by_literal = "SELECT v FROM t WHERE v > {}"
    for number in range(4):
        count(server, session, by_literal.format(number), HITS)
    assert count(server, session, by_literal.format(0), HITS) == 2
    reload(server, rules=[{"schema": schema, "off": True}])
    for number in range(6):  # by the packet, and by the plan of its shape
        assert count(server, session, by_literal.format(number), OFF) == 2


def test_a_worker_that_is_started_later_goes_by_the_new_settings(
    proxy: ProxyFactory,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    connect: Connect,
    schema: str,
) -> None:
    server = proxy(mariadb, memcached, proxy__workers=2)
    reload(server, rules=[{"schema": schema, "off": True}], cache__ttl_s=7, log__format="json")
    before = workers(server)
    for worker in before:
        os.kill(worker, signal.SIGKILL)
    wait_until(lambda: len(workers(server) - before) == 2, 60, "new workers")
    wait_until(lambda: server.readiness() == ALL_READY, 60, "all workers")
    for session in [connect(server) for _ in range(6)]:
        assert count(server, session, "SELECT v FROM t", OFF) == 2
    for line in server.log_text().splitlines():
        read_json(line) if line.startswith("{") else read_logfmt(line)


def test_what_needs_a_restart_is_named_and_stays_as_it_was(
    serve: Callable[..., PrivateSqlcache], connect: Connect
) -> None:
    server = serve()
    session = connect(server)
    said = reload(server, cache__ttl_s=7, memcached__prefix="other", cache__mode="off")
    wait_until(lambda: "need a restart" in server.log_text(), 60, "the line")
    said = server.log_text()
    names = "settings=memcached.prefix,cache.mode,cache.ttl_s"
    assert f'event="settings that need a restart" {names}' in said
    count(server, session, "SELECT v FROM t", HITS)
    assert count(server, session, "SELECT v FROM t", HITS) == 2
    assert said.count("need a restart") == 1


def test_a_wrong_file_changes_nothing_and_each_fault_is_a_line(
    serve: Callable[..., PrivateSqlcache], connect: Connect, schema: str
) -> None:
    server = serve()
    session = connect(server)
    off = [{"schema": schema, "off": True}]
    said = reload(server, 2, rules=off, cache__ttl_s=-1, proxy__buffer_bytes=0)
    assert said.count("settings not reloaded") == 2
    assert "expected at least 1" in said
    said = reload(
        server,
        rules=[*off, {"statement": "'", "off": True}],
        cache__ttl_s=5,
        proxy__buffer_bytes=9999,
    )
    assert "rules[1].statement" in said
    assert "settings reloaded" not in server.log_text()
    assert "worker=" not in server.log_text(), "no worker was asked to go by it"
    server._config.write_text("[proxy")
    server.signal(signal.SIGHUP)
    wait_until(lambda: "is not TOML" in server.log_text(), 60, "the line")
    server._config.write_text("")
    server.signal(signal.SIGHUP)
    wait_until(lambda: "has no settings any more" in server.log_text(), 60, "the line")
    server._config.unlink()
    server.signal(signal.SIGHUP)
    wait_until(lambda: "there is no such file" in server.log_text(), 60, "the line")
    count(server, session, "SELECT v FROM t", HITS)
    assert count(server, session, "SELECT v FROM t", HITS) == 2
    for line in server.log_text().splitlines():
        assert read_logfmt(line)["level"] in ("info", "warning", "error")


def test_flags_win_over_what_is_read_again(serve: Callable[..., PrivateSqlcache]) -> None:
    server = serve()
    said = reload(server, upstream__url="mysql://no@nowhere", log__level="debug")
    assert "changed=log.level" in said
    assert "restart" not in said


def test_a_process_that_follows_the_log_for_others_may_have_their_settings(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, tmp_path: Path
) -> None:
    settings = {**PATIENT, "binlog__follow": "off"}
    with Invalidating(
        tmp_path / "invalidate", mariadb.service_url, (memcached.address,), **settings
    ) as own:
        for _ in range(2):  # when the second begins, all of the first is said
            assert "changed=none" in reload(own)
        assert "need a restart" not in own.log_text()


def test_the_level_and_the_form_of_lines_change_in_all_processes(
    serve: Callable[..., PrivateSqlcache], connect: Connect
) -> None:
    server = serve(log__level="error", proxy__drain_timeout_s=1)
    session = connect(server)
    with session.cursor() as cursor:
        cursor.execute("BEGIN")
    reload(server, log__level="info", log__format="json")
    server.stop()
    lines = [read_json(line) for line in server.log_text().splitlines()]
    events = [line["event"] for line in lines]
    assert "draining" in events, "of the process that was told"
    assert "sessions cut" in events, "of the process that served"


def issued(server: PrivateSqlcache, connect: Connect, authority: Authority) -> str:
    """The name in the certificate that a new client is shown."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    session = connect(server, ssl=context)
    (name,) = (value for part in session._sock.getpeercert()["subject"] for _, value in part)
    return str(name)


def test_new_connections_get_the_new_certificate_and_old_ones_live_on(
    serve: Callable[..., PrivateSqlcache], connect: Connect, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "authority")
    first, second, third = (authority.issue(name, "IP:127.0.0.1") for name in ("a1", "b2", "c3"))

    def files(used: Certificate) -> dict[str, str]:
        return {
            "proxy__tls_certificate": str(used.certificate),
            "proxy__tls_key": str(used.key),
        }

    server = serve()
    plain = connect(server)
    reload(server, **files(first))
    assert issued(server, connect, authority) == "a1"
    old = connect(server, ssl=ssl.create_default_context(cafile=str(authority.certificate)))
    first.certificate.write_bytes(second.certificate.read_bytes())
    first.key.write_bytes(second.key.read_bytes())
    assert "changed=none" in reload(server), "only the files' contents are other ones"
    assert {issued(server, connect, authority) for _ in range(4)} == {"b2"}
    first.key.write_bytes(third.key.read_bytes())
    assert "expected a PEM certificate and its private key" in reload(server)
    assert {issued(server, connect, authority) for _ in range(4)} == {"b2"}
    assert "proxy.tls_required" in reload(server, **files(third), proxy__tls_required=True)
    assert {issued(server, connect, authority) for _ in range(4)} == {"c3"}
    for session in (plain, old):
        assert count(server, session, "SELECT 1", HITS) == 0
    with pytest.raises(pymysql.MySQLError, match="3159"):
        connect(server, ssl_disabled=True)


def test_the_service_manager_is_told(
    tmp_path: Path, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    manager = Manager(str(tmp_path / "notify"))
    server = Unit(tmp_path / "unit", mariadb.service_url, (memcached.address,))
    server.environment = manager.environment
    with server:
        ready = manager.hears()
        assert "READY" in ready
        for ttl_s in (5, -5):  # also where nothing can be made of it
            server.configure(cache__ttl_s=ttl_s)
            server.signal(signal.SIGHUP)
            said = manager.hears()
            assert said.pop("RELOADING") == "1"
            assert int(said["MONOTONIC_USEC"]) > 0
            assert manager.hears() == ready
    manager.socket.close()


def test_a_hangup_of_all_its_processes_is_one_reload(
    proxy: ProxyFactory, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    server = proxy(mariadb, memcached, proxy__workers=2)
    before = workers(server)
    os.killpg(server.pid, signal.SIGHUP)
    wait_until(lambda: "settings reloaded" in server.log_text(), 60, "a reload")
    assert workers(server) == before
    server.stop()
    assert server.log_text().count("settings reloaded") == 1
