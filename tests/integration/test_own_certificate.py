"""TLS with clients where no certificate is configured, as MySQL offers it."""

from __future__ import annotations

import os
import signal
import ssl
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
    wait_until,
)
from sqlcache.mysql.constants import Capability
from tests.coherence.sessions import ask, run
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import RawClient
from tests.process.test_workers import ALL_READY, workers

WORKERS = 3
READ = "SELECT SUM(v) FROM t"


def unverified() -> ssl.SSLContext:
    """What --ssl-mode=REQUIRED asks for: TLS, by whatever certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def connect(relay: PrivateSqlcache, server: PrivateSqlServer, **options: Any) -> Any:
    account = {"user": server.user, "password": server.password}
    return relay.connect(**account, **{"ssl": unverified(), **options})


def certificate(session: Any) -> bytes:
    shown: bytes = session._sock.getpeercert(binary_form=True)
    return shown


def open_files(relay: PrivateSqlcache) -> list[str]:
    names = []
    for file in Path(f"/proc/{relay.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # a connection that has ended meanwhile
            names.append(os.readlink(file))
    return names


def test_a_client_that_requires_tls_gets_it_and_hits_too(
    upstream: PrivateSqlServer, proxy: ProxyFactory, schema: str
) -> None:
    relay = proxy(upstream, "memory", proxy__tls_auto=True)
    with closing(connect(relay, upstream, database=schema)) as session:
        assert session._sock.version() == "TLSv1.3"
        run(session, "CREATE TABLE t (v INT)")
        run(session, "INSERT INTO t VALUES (7)")

        def is_hit() -> bool:
            before = relay.metrics()["sqlcache_hits_total"]
            assert ask(session, READ) == 7
            return relay.metrics()["sqlcache_hits_total"] > before

        wait_until(is_hit, 10, "a hit")
        assert ask(session, "SELECT REPEAT('x', 1000000)") == "x" * 1_000_000


def test_it_may_be_required_without_a_certificate(
    upstream: PrivateSqlServer, proxy: ProxyFactory
) -> None:
    relay = proxy(upstream, "memory", proxy__tls_auto=True, proxy__tls_required=True)
    with closing(connect(relay, upstream)) as session:
        assert ask(session, "SELECT 1") == 1
    with pytest.raises(pymysql.OperationalError, match="insecure transport") as refused:
        connect(relay, upstream, ssl=None, ssl_disabled=True)
    assert refused.value.args[0] == 3159


@pytest.mark.parametrize("on", [True, False])
def test_it_is_offered_unless_it_is_turned_off(
    upstream: PrivateSqlServer, proxy: ProxyFactory, *, on: bool
) -> None:
    relay = proxy(upstream, "memory", proxy__tls_auto=on)
    with RawClient(relay) as client:
        client.read_greeting()
        assert bool(client.offered & Capability.SSL) is on


def test_all_workers_show_the_same_certificate_also_one_that_was_started_anew(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    relay = proxy(mariadb, memcached, proxy__workers=WORKERS, proxy__tls_auto=True)
    shown = set()
    before = workers(relay)
    for again in (False, True):
        for _ in range(8 * WORKERS):
            with closing(connect(relay, mariadb)) as session:
                shown.add(certificate(session))
        if not again:
            os.kill(min(before), signal.SIGKILL)
            wait_until(lambda: len(workers(relay) - before) == 1, 20, "a new worker")
            wait_until(lambda: relay.readiness() == ALL_READY, 20, "all workers")
    assert len(shown) == 1


def test_each_start_makes_another_and_none_is_left_in_a_file(
    mariadb: PrivateMariaDB, proxy: ProxyFactory, tmp_path: Path
) -> None:
    shown = set()
    for _ in range(2):
        relay = proxy(mariadb, "memory", proxy__tls_auto=True)
        with closing(connect(relay, mariadb)) as session:
            shown.add(certificate(session))
        assert not [name for name in open_files(relay) if "certificate" in name]
    assert len(shown) == 2
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if b"PRIVATE KEY" in file.read_bytes()]
