"""A login that broke off: MySQL counts it against the host of sqlcache, which stands for all its
clients, and refuses the host after some of them in a row."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateSqlcache, PrivateSqlServer, wait_until
from tests.coherence.sessions import ask
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import OLD, RawClient, packets_of
from tests.servers import MySQLMissing, PrivateMySQL

MAX_CONNECT_ERRORS = 10
OPTIONS = (
    "--bind-address=0.0.0.0",
    "--connect-timeout=30",  # sqlcache is to be the one that ends a silent login
    f"--max-connect-errors={MAX_CONNECT_ERRORS}",
    "--performance-schema=ON",
)


def own_address() -> str:
    """An address of this machine that is not the loopback one, which MySQL would exempt."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no network")
        address: str = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("this machine has no network")
    return address


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivateSqlServer]:
    """A SQL server that counts errors, and is soon at its end."""
    folder: Path = tmp_path_factory.mktemp("counting")
    try:
        made: PrivateSqlServer = (
            PrivateMariaDB(folder, OPTIONS)
            if request.param == "mariadb"
            else PrivateMySQL(folder, OPTIONS)
        )
    except MySQLMissing as missing:
        pytest.skip(str(missing))
    with made:
        yield made


@pytest.fixture
def relay(server: PrivateSqlServer, proxy: ProxyFactory) -> PrivateSqlcache:
    """sqlcache on what is another host for the server."""
    server.sql(
        "FLUSH HOSTS" if server.name == "mariadbd" else "TRUNCATE performance_schema.host_cache"
    )
    url = server.service_url.replace(server.host, own_address())
    return proxy(
        SimpleNamespace(service_url=url),
        "memory",
        upstream__catalog_refresh_s=3600,
        proxy__login_timeout_s=60,
    )


def errors(server: PrivateSqlServer) -> int:
    """How many the server counts against a host."""
    counted = "SELECT MAX(SUM_CONNECT_ERRORS) FROM performance_schema.host_cache"
    return int(server.sql(counted)[0][0] or 0)


def leave_greeted(relay: PrivateSqlcache) -> None:
    with RawClient(relay) as client:
        client.read_greeting()


def leave_at_once(relay: PrivateSqlcache) -> None:
    RawClient(relay).reset()


def send_garbage(relay: PrivateSqlcache) -> None:
    with RawClient(relay) as client:
        client.read_greeting()
        client.send(packets_of(b"GET / HTTP/1.1", 1))
        client.read_to_end()


def leave_amid_the_login(relay: PrivateSqlcache) -> None:
    with RawClient(relay) as client:
        client.read_greeting()
        answer = client.response("app", "wrong", "", OLD)
        client.send(packets_of(answer.replace(client.plugin.encode(), b"another_one"), 1))
        _, asked = client.read_packet()
        assert asked[:1] == b"\xfe", asked


@pytest.mark.parametrize(
    "probe", [leave_greeted, leave_at_once, send_garbage, leave_amid_the_login]
)
def test_clients_that_do_not_log_in_do_not_make_the_server_refuse_the_others(
    server: PrivateSqlServer, relay: PrivateSqlcache, probe: Callable[[PrivateSqlcache], None]
) -> None:
    for _ in range(3 * MAX_CONNECT_ERRORS):
        probe(relay)
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 0, 10, "their end")
    assert errors(server) < 2
    with closing(relay.connect(user=server.user, password=server.password)) as session:
        assert ask(session, "SELECT 1") == 1


def test_nor_do_those_that_stay_and_say_nothing(
    server: PrivateSqlServer, relay: PrivateSqlcache
) -> None:
    """The server would wait for ten seconds."""
    with ExitStack() as clients:
        silent = [clients.enter_context(RawClient(relay)) for _ in range(3 * MAX_CONNECT_ERRORS)]
        for each in silent:
            each.read_to_end()
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 0, 10, "their end")
    assert errors(server) == 0


def test_nor_do_many_at_once(server: PrivateSqlServer, relay: PrivateSqlcache) -> None:
    with ExitStack() as clients:
        for _ in range(3 * MAX_CONNECT_ERRORS):
            clients.enter_context(RawClient(relay)).read_greeting()
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 0, 10, "their end")
    assert errors(server) == 0
    with closing(relay.connect(user=server.user, password=server.password)) as session:
        assert ask(session, "SELECT 1") == 1
