"""Logins that fail, and what MySQL does to connections: counted by cause, and told in the log."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateSqlcache,
    PrivateSqlServer,
    free_port,
    wait_until,
)
from sqlcache.mysql.constants import Command
from tests.certificates import Authority
from tests.coherence.sessions import ask
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import OLD, RawClient, packets_of
from tests.integration.test_broken_logins import own_address
from tests.servers import MySQLMissing, PrivateMySQL

SECRET = "open barley"
LOGIN_S = 4.0


@pytest.fixture
def relay(upstream: PrivateSqlServer, proxy: ProxyFactory, tmp_path: Path) -> PrivateSqlcache:
    return proxy(upstream, "memory", proxy__login_timeout_s=LOGIN_S, log__format="json")


@pytest.fixture
def nobody(upstream: PrivateSqlServer, schema: str) -> Iterator[str]:
    """An account without a password and without rights."""
    name = f"{schema}_nobody"
    upstream.sql(f"CREATE USER {name}")
    yield name
    upstream.sql(f"DROP USER {name}")


def counted(relay: PrivateSqlcache, metric: str) -> dict[str, float]:
    """What is not 0 of a metric, by its label."""
    pattern = re.compile(rf'sqlcache_{metric}_total{{\w+="(.*)"}}')
    return {
        found[1]: value
        for name, value in relay.metrics().items()
        if value and (found := pattern.fullmatch(name))
    }


def failures(relay: PrivateSqlcache) -> list[tuple[str, str]]:
    """The users and codes that the log tells of."""
    lines = [json.loads(line) for line in relay.log_text().splitlines() if line[:1] == "{"]
    failed = [line for line in lines if line["event"] == "login failed"]
    assert all(line["client"].startswith("127.0.0.1:") for line in failed)
    return [(line["user"], line["code"]) for line in failed]


def log_in(relay: PrivateSqlcache, **login: Any) -> int:
    """The error that a login gets."""
    with pytest.raises(pymysql.err.MySQLError) as refused:
        relay.connect(**login)
    code: int = refused.value.args[0]
    return code


def test_a_wrong_password_and_a_schema_out_of_reach_are_counted_by_their_error(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, nobody: str
) -> None:
    assert log_in(relay, user=upstream.user, password=SECRET) == 1045
    assert log_in(relay, user=nobody, database="mysql") == 1044
    account = {"user": upstream.user, "password": upstream.password}
    assert log_in(relay, **account, database="no_such_schema") == 1049
    assert counted(relay, "logins_failed") == {"1045": 1, "1044": 1, "1049": 1}
    assert counted(relay, "upstream_errors") == {}, "they are the clients' own"
    assert counted(relay, "limits_reached") == {}
    assert failures(relay) == [
        (upstream.user, "1045"),
        (nobody, "1044"),
        (upstream.user, "1049"),
    ]
    assert SECRET not in relay.log_text()


def test_so_is_a_change_of_user_that_fails(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, nobody: str
) -> None:
    with RawClient.logged_in(relay, nobody, "") as client:
        plugin = client.plugin.encode() + b"\0"
        client.command(bytes((Command.CHANGE_USER,)) + b"no_such_user\0\0\0" + b"\x2d\0" + plugin)
        sequence, answer = client.read_packet()
        if answer[:1] == b"\xfe":
            client.send(packets_of(b"", sequence + 1))
            _, answer = client.read_packet()
        assert answer[1:3] == (1045).to_bytes(2, "little")
        assert counted(relay, "logins_failed") == {"1045": 1}
        assert failures(relay) == [("no_such_user", "1045")]


def test_of_a_user_with_a_long_name_the_begin_is_told(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, nobody: str
) -> None:
    told = "u" * 79 + "…"
    with RawClient(relay) as client:
        client.read_greeting()
        client.send(packets_of(client.response("u" * 120_000, "", "", OLD), 1))
        client.read_to_end()
    wait_until(lambda: failures(relay) != [], 10, "the line")
    with RawClient.logged_in(relay, nobody, "") as client:
        plugin = client.plugin.encode() + b"\0"
        client.command(bytes((Command.CHANGE_USER,)) + b"u" * 100_000 + b"\0\0\0\x2d\0" + plugin)
        client.read_to_end()
    wait_until(lambda: len(failures(relay)) > 1, 10, "the other line")
    assert [user for user, _ in failures(relay)] == [told, told]
    assert len(relay.log_text()) < 10_000


def test_a_user_that_is_no_text_cannot_write_into_the_log(relay: PrivateSqlcache) -> None:
    user = "a\nlogin failed client=10.0.0.1 user='root' code=1045\x1b[31m"
    log_in(relay, user=user)
    wait_until(lambda: failures(relay) != [], 10, "the line")
    assert failures(relay) == [(user, "1045")]
    assert "\x1b" not in relay.log_text()


def leave_greeted(client: RawClient) -> None:
    client.read_greeting()
    client.close()


def answer_by_another_plugin(client: RawClient) -> None:
    client.read_greeting()
    answer = client.response("app", "wrong", "", OLD)
    client.send(packets_of(answer.replace(client.plugin.encode(), b"another_one"), 1))


def be_asked_once_more(client: RawClient) -> None:
    answer_by_another_plugin(client)
    _, asked = client.read_packet()
    assert asked[:1] == b"\xfe", asked


def leave_amid_the_login(client: RawClient) -> None:
    be_asked_once_more(client)
    client.close()


def speak_out_of_turn(client: RawClient) -> None:
    be_asked_once_more(client)
    client.send(packets_of(b"\x03DO 0"))
    client.read_to_end()


def stay_silent(client: RawClient) -> None:
    client.read_greeting()
    client.read_to_end()


def stay_silent_amid_the_login(client: RawClient) -> None:
    answer_by_another_plugin(client)
    client.read_to_end()


def send_garbage(client: RawClient) -> None:
    client.read_greeting()
    client.send(packets_of(b"GET / HTTP/1.1", 1))
    client.read_to_end()


@pytest.mark.parametrize(
    ("probe", "code", "told"),
    [
        (leave_greeted, "broke off", None),
        (leave_amid_the_login, "broke off", "app"),
        (speak_out_of_turn, "broke off", "app"),
        (stay_silent, "timeout", ""),
        (stay_silent_amid_the_login, "timeout", "app"),
        (send_garbage, "other", ""),
    ],
)
def test_a_client_that_does_not_end_its_login_is_counted_as_what_it_did(
    relay: PrivateSqlcache, probe: Callable[[RawClient], None], code: str, told: str | None
) -> None:
    with RawClient(relay) as client:
        probe(client)
    wait_until(lambda: counted(relay, "logins_failed") == {code: 1}, 10, "the count")
    assert counted(relay, "upstream_errors") == {}
    reached = {"login_timeout_s": 1.0} if code == "timeout" else {}
    assert counted(relay, "limits_reached") == reached
    assert failures(relay) == ([] if told is None else [(told, code)])


def test_a_client_without_tls_where_that_is_required_is_counted(
    upstream: PrivateSqlServer, proxy: ProxyFactory, tmp_path: Path
) -> None:
    own = Authority(tmp_path / "own").issue("own", "IP:127.0.0.1")
    relay = proxy(
        *(upstream, "memory"),
        proxy__tls_certificate=str(own.certificate),
        proxy__tls_key=str(own.key),
        proxy__tls_required=True,
    )
    assert log_in(relay, user="app", ssl_disabled=True) == 3159
    assert counted(relay, "logins_failed") == {"3159": 1}


# --- what MySQL does ----------------------------------------------------------------------------


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PrivateSqlServer]:
    """A SQL server of the test's own, which counts errors of hosts."""
    options = ("--bind-address=0.0.0.0", "--max-connect-errors=3", "--performance-schema=ON")
    try:
        made: PrivateSqlServer = (
            PrivateMariaDB(tmp_path / "own", options)
            if request.param == "mariadb"
            else PrivateMySQL(tmp_path / "own", options)
        )
    except MySQLMissing as missing:
        pytest.skip(str(missing))
    with made:
        yield made


def test_mysql_that_has_no_connection_left_is_counted_and_the_log_says_what_to_do(
    server: PrivateSqlServer, proxy: ProxyFactory
) -> None:
    server.sql("CREATE USER one")
    relay = proxy(server, "memory")
    server.sql("SET GLOBAL max_connections = 10")
    sessions = []
    with suppress(pymysql.OperationalError):
        while True:
            sessions.append(relay.connect(user="one"))
    assert log_in(relay, user="one") == 1040
    assert counted(relay, "logins_failed") == {"1040": 2}
    assert counted(relay, "upstream_errors")["1040"] >= 2
    assert counted(relay, "limits_reached") == {}
    assert relay.log_text().count("it has no connection left: raise its max_connections") == 1
    for session in sessions:
        session.close()


def test_mysql_that_has_blocked_this_host_is_counted_and_the_log_says_what_to_do(
    server: PrivateSqlServer, proxy: ProxyFactory
) -> None:
    url = server.service_url.replace(server.host, own_address())
    relay = proxy(SimpleNamespace(service_url=url), "memory", upstream__catalog_refresh_s=3600)
    for _ in range(4):
        with socket.create_connection((own_address(), server.port)) as rude:
            rude.recv(1000)
            rude.sendall(packets_of(b"GET / HTTP/1.1", 1))
            with suppress(ConnectionResetError):  # it need not have read all when it closes
                while rude.recv(1000):
                    pass
    for _ in range(2):
        assert log_in(relay, user=server.user, password=server.password) == 1129
    assert counted(relay, "logins_failed") == {"1129": 2}
    assert counted(relay, "upstream_errors")["1129"] >= 2
    assert relay.log_text().count("it refuses this host: FLUSH HOSTS") == 1


def test_the_service_accounts_own_failed_login_is_counted(
    upstream: PrivateSqlServer, proxy: ProxyFactory
) -> None:
    url = re.sub(r"//.*@", "//nobody_has_this_name:wrong@", upstream.service_url)
    relay = proxy(SimpleNamespace(service_url=url), "memory")
    assert counted(relay, "upstream_errors")["1045"] >= 1
    assert counted(relay, "logins_failed") == {}


def test_a_server_that_is_away_is_counted_for_each_client_and_told_once(
    proxy: ProxyFactory,
) -> None:
    url = f"mysql://app@127.0.0.1:{free_port()}"
    relay = proxy(SimpleNamespace(service_url=url), "memory", log__format="json")
    before = counted(relay, "upstream_errors")
    assert set(before) == {"unreachable"}
    assert [log_in(relay, user="app") for _ in range(3)] == [2003] * 3
    assert counted(relay, "logins_failed") == {"2003": 3}
    assert counted(relay, "upstream_errors")["unreachable"] >= before["unreachable"] + 3
    assert relay.log_text().count("upstream not reached") == 1
    assert failures(relay) == []


def test_a_session_that_mysql_ends_is_counted_and_one_that_its_client_ends_is_not(
    upstream: PrivateSqlServer, relay: PrivateSqlcache
) -> None:
    account = {"user": upstream.user, "password": upstream.password}
    relay.connect(**account).close()
    upstream.connect().close()
    RawClient.logged_in(relay, upstream.user, upstream.password).reset()
    amid = RawClient.logged_in(relay, upstream.user, upstream.password)
    amid.query("SELECT SLEEP(100), 'amid'")
    sleeps = "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%amid%'"
    wait_until(lambda: upstream.sql(sleeps) == ((1,),), 10, "its query")
    amid.reset()
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 0, 10, "their end")
    with closing(relay.connect(**account)) as session:
        upstream.sql(f"KILL {ask(session, 'SELECT CONNECTION_ID()')}")
        wait_until(lambda: counted(relay, "upstream_errors") == {"lost": 1}, 10, "the count")
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 0, 10, "their end")
    assert counted(relay, "upstream_errors") == {"lost": 1}
    assert counted(relay, "logins_failed") == {}
