"""What /ready says of MySQL, by whole logins that are few: 503 only where clients go unserved."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from http import HTTPStatus
from pathlib import Path
from threading import Timer
from typing import cast

import pymysql
import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache, wait_until
from tests import web
from tests.coherence.sessions import ask
from tests.conftest import ProxyFactory
from tests.fakes.middleman import Middleman
from tests.servers import kill_sessions

MOST = 10
LOGIN_S = 20
"""By then a login has been tried anew: each process does so every 10 s."""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateMariaDB]:
    """Few may log in to it, and what it is told does not matter to others."""
    options = (f"--max-connections={MOST}",)
    with PrivateMariaDB(tmp_path_factory.mktemp("own"), options) as server:
        yield server


@pytest.fixture(params=[1, 2], ids=["alone", "workers"])
def relay(
    request: pytest.FixtureRequest,
    own: PrivateMariaDB,
    proxy: ProxyFactory,
    memcached: PrivateMemcached,
) -> PrivateSqlcache:
    return proxy(
        own,
        memcached,
        proxy__workers=request.param,
        upstream__catalog_refresh_s=1,
        upstream__connect_timeout_s=5,
    )


def status(relay: PrivateSqlcache) -> int:
    return web.get(f"http://127.0.0.1:{relay.admin_port}/ready").status_code


def warnings(relay: PrivateSqlcache) -> str:
    return str(relay.readiness()["warnings"])


def serves(relay: PrivateSqlcache, own: PrivateMariaDB) -> bool:
    with closing(relay.connect(user=own.user, password=own.password)) as session:
        return bool(ask(session, "SELECT 1") == 1)


def kill_sessions_of_the_service(own: PrivateMariaDB) -> None:
    kill_sessions(own, own.service_user)


def test_however_many_probes_come_there_is_one_login_in_a_while(
    relay: PrivateSqlcache, own: PrivateMariaDB
) -> None:
    relay.readiness()
    loaded = relay.metrics()["sqlcache_catalog_loads_total"]
    before, began = own.status("Connections"), time.monotonic()
    with ThreadPoolExecutor(16) as probes:
        said = list(probes.map(lambda _: status(relay), range(100)))
    assert set(said) == {HTTPStatus.OK}
    due = 1 + (time.monotonic() - began) // 10
    made = own.status("Connections") - before - 2  # of `status` itself
    metrics = relay.metrics()
    loads = metrics["sqlcache_catalog_loads_total"] - loaded  # each logs in
    assert made <= metrics["sqlcache_workers"] * due + loads


def test_a_connection_that_was_killed_alone_is_no_reason_to_send_clients_away(
    relay: PrivateSqlcache, own: PrivateMariaDB
) -> None:
    for _ in range(3):
        assert status(relay) == HTTPStatus.OK
        kill_sessions_of_the_service(own)
        assert status(relay) == HTTPStatus.OK


def test_a_service_account_that_is_refused_is_merely_wrong(
    relay: PrivateSqlcache, own: PrivateMariaDB
) -> None:
    user = f"'{own.service_user}'@'%'"
    own.sql(f"ALTER USER {user} IDENTIFIED BY 'another'")
    try:
        kill_sessions_of_the_service(own)
        wait_until(lambda: "Access denied" in warnings(relay), LOGIN_S, "it is seen")
        assert status(relay) == HTTPStatus.OK
        assert "account" in warnings(relay)
        assert serves(relay, own)
    finally:
        own.sql(f"ALTER USER {user} IDENTIFIED BY '{own.service_password}'")
    wait_until(lambda: "Access denied" not in warnings(relay), LOGIN_S, "it is let in again")
    assert status(relay) == HTTPStatus.OK


def test_a_right_that_is_revoked_is_merely_wrong(
    relay: PrivateSqlcache, own: PrivateMariaDB
) -> None:
    user = f"'{own.service_user}'@'%'"
    own.sql(f"REVOKE TRIGGER ON *.* FROM {user}")
    try:
        wait_until(lambda: "TRIGGER" in warnings(relay), LOGIN_S, "it is seen")
        assert status(relay) == HTTPStatus.OK
        assert serves(relay, own)
    finally:
        own.sql(f"GRANT TRIGGER ON *.* TO {user}")
    wait_until(lambda: "TRIGGER" not in warnings(relay), LOGIN_S, "it is seen")


@pytest.mark.parametrize("stop", [PrivateMariaDB.kill, PrivateMariaDB.stop])
def test_a_mysql_that_is_away_is_a_reason_to_send_clients_away(
    relay: PrivateSqlcache, own: PrivateMariaDB, stop: Callable[[PrivateMariaDB], object]
) -> None:
    assert status(relay) == HTTPStatus.OK
    stop(own)
    wait_until(lambda: status(relay) == HTTPStatus.SERVICE_UNAVAILABLE, LOGIN_S, "no")
    own.restart()
    wait_until(lambda: status(relay) == HTTPStatus.OK, LOGIN_S, "yes")


@pytest.mark.parametrize("sqlcache_kind", [PrivateSqlcache])  # which waits no longer than people do
def test_one_that_has_hung_since_the_last_probe_is_a_reason_at_the_first(
    own: PrivateMariaDB, proxy: ProxyFactory, memcached: PrivateMemcached
) -> None:
    patience = {f"upstream__{name}_s": 1 for name in ("catalog_refresh", "catalog_timeout")}
    relay = proxy(own, memcached, **patience, upstream__connect_timeout_s=3)
    assert status(relay) == HTTPStatus.OK
    own.freeze()
    try:
        wait_until(lambda: "MySQL is not reached" in relay.log_text(), LOGIN_S, "MySQL away")
        assert status(relay) == HTTPStatus.SERVICE_UNAVAILABLE
    finally:
        own.thaw()
    wait_until(lambda: status(relay) == HTTPStatus.OK, LOGIN_S, "MySQL again")


def test_a_mysql_that_is_full_is_a_reason_too(relay: PrivateSqlcache, own: PrivateMariaDB) -> None:
    assert status(relay) == HTTPStatus.OK
    kill_sessions_of_the_service(own)
    with ExitStack() as clients:
        for _ in range(MOST):
            with suppress(pymysql.OperationalError):
                session = own.connect(user=own.user, password=own.password)
                clients.enter_context(closing(session))
        wait_until(lambda: status(relay) == HTTPStatus.SERVICE_UNAVAILABLE, LOGIN_S, "no")
        assert "Too many connections" in str(relay.readiness()["problems"])
    wait_until(lambda: status(relay) == HTTPStatus.OK, LOGIN_S, "yes")


def test_what_speaks_no_mysql_is_a_reason_too(
    own: PrivateMariaDB, proxy: ProxyFactory, memcached: PrivateMemcached
) -> None:
    """Such as the port of its X protocol. At the start it is waited for that this changes."""
    with Middleman(own) as between:
        between.greet_with(b"\5\0\0\0\x0b\x08\x05\x1a\0")
        greeting = Timer(2, between.greet_with, [None])
        greeting.start()
        relay = proxy(cast(PrivateMariaDB, between), memcached, upstream__connect_timeout_s=5)
        greeting.join()
        assert status(relay) == HTTPStatus.OK
        between.greet_with(b"\5\0\0\0\x0b\x08\x05\x1a\0")
        between.cut()
        wait_until(lambda: status(relay) == HTTPStatus.SERVICE_UNAVAILABLE, LOGIN_S, "no")
        assert "speaks no MySQL" in str(relay.readiness()["problems"])
        between.greet_with(None)
        wait_until(lambda: status(relay) == HTTPStatus.OK, LOGIN_S, "yes")


def test_an_address_of_no_memcached_is_merely_wrong(
    proxy: ProxyFactory, own: PrivateMariaDB, memcached: PrivateMemcached, tmp_path: Path
) -> None:
    nowhere = "nowhere.invalid:11211"
    relay = proxy(own, [memcached, nowhere], memcached__outage_s=2)
    assert status(relay) == HTTPStatus.OK
    assert nowhere in warnings(relay)
    assert serves(relay, own)
