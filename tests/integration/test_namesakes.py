"""Accounts of one name for several hosts: which of them somebody is, is for MySQL to say."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from sqlcache import host_names
from sqlcache.demo.servers import PrivateMemcached, PrivateSqlcache, PrivateSqlServer
from tests.conftest import ProxyFactory

SHOP = "CREATE DATABASE shop; CREATE TABLE shop.t (v INT); INSERT INTO shop.t VALUES (7)"
READ = "SELECT v FROM shop.t"
LOGIN: dict[str, Any] = {"user": "u", "password": "p"}

SITE = """
import os, socket
from pathlib import Path

look_up = socket.getaddrinfo

def look_up_here(host, *args, **options):
    if host == "db.test" and not options.get("flags"):
        host = Path(os.environ["ADDRESS_OF_DB_TEST"]).read_text()
    return look_up(host, *args, **options)

socket.getaddrinfo = look_up_here
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where sqlcache finds the server."""

    service_url: str

    @classmethod
    def of(cls, server: PrivateSqlServer, address: str) -> Place:
        return cls(server.service_url.replace(server.address, address))


@pytest.fixture
def address_of_db(tmp_path: Path) -> Path:
    """What the file says is the address of the host db.test."""
    return tmp_path / "address"


@pytest.fixture
def sqlcache_kind(tmp_path: Path, address_of_db: Path) -> type[PrivateSqlcache]:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)

    class Sqlcache(PrivateSqlcache):
        def _environment(self) -> Mapping[str, str]:
            path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
            named = {"PYTHONPATH": path, "ADDRESS_OF_DB_TEST": str(address_of_db)}
            return {**super()._environment(), **named}

    return Sqlcache


@contextmanager
def started(
    like: PrivateSqlServer, folder: Path, accounts: str, *options: str
) -> Iterator[PrivateSqlServer]:
    """A server of that kind, with a shop and these accounts."""
    with type(like)(folder / "server", options) as server:
        server.sql(f"{SHOP}; {accounts}")
        yield server


def log_in_directly(server: PrivateSqlServer) -> None:
    """As caching_sha2_password wants it before it lets somebody in who does not speak TLS."""
    pymysql.connect(host=server.host, port=server.port, **LOGIN).close()
    pymysql.connect(unix_socket=str(server.socket), **LOGIN).close()


def read_by_who_may(relay: PrivateSqlcache) -> None:
    before = relay.metrics()["sqlcache_hits_total"]
    with closing(relay.connect(**LOGIN)) as may:
        assert [may.cursor().execute(READ) for _ in range(4)] == [1] * 4
    assert relay.metrics()["sqlcache_hits_total"] >= before + 2


def is_denied(relay: PrivateSqlcache) -> None:
    with (
        closing(relay.connect(**LOGIN)) as may_not,
        pytest.raises(pymysql.OperationalError, match="denied"),
    ):
        may_not.cursor().execute(READ)


def by_socket(server: PrivateSqlServer) -> Place:
    return Place.of(server, f"localhost?unix_socket={server.socket}")


def test_who_came_by_another_address_than_sqlcache_itself_is_another(
    upstream: PrivateSqlServer, tmp_path: Path, address_of_db: Path, proxy: ProxyFactory
) -> None:
    accounts = (
        "CREATE USER u@'::1' IDENTIFIED BY 'p', u@127.0.0.1 IDENTIFIED BY 'p';"
        "GRANT SELECT ON shop.* TO u@'::1'"
    )
    at_both = ("--skip-name-resolve", "--bind-address=127.0.0.1,::1")
    with started(upstream, tmp_path, accounts, *at_both) as server:
        for host in ("127.0.0.1", "::1"):
            pymysql.connect(host=host, port=server.port, **LOGIN).close()
        address_of_db.write_text("::1")
        place = Place.of(server, f"db.test:{server.port}")
        relay = proxy(place, "memory", upstream__catalog_refresh_s=3600)
        read_by_who_may(relay)
        address_of_db.write_text("127.0.0.1")
        time.sleep(host_names._KEPT_S)
        is_denied(relay)
        address_of_db.write_text("::1")
        time.sleep(host_names._KEPT_S)
        read_by_who_may(relay)


@pytest.mark.parametrize(
    ("accounts", "options"),
    [
        pytest.param(
            # The server looks up names, and calls 127.0.0.1 localhost, as it calls its socket.
            "CREATE USER u@127.0.0.1 IDENTIFIED BY 'p', u@'%' IDENTIFIED BY 'p';"
            "GRANT SELECT ON shop.* TO u@127.0.0.1",
            (),
            id="two accounts, though both hosts have one name",
        ),
        pytest.param(
            "CREATE USER u@'%' IDENTIFIED BY 'p';"
            "INSERT INTO mysql.db (Host, Db, User, Select_priv)"
            " VALUES ('127.0.0.1', 'shop', 'u', 'Y'); FLUSH PRIVILEGES",
            ("--skip-name-resolve",),
            id="one account with rights for one host",
        ),
    ],
)
def test_who_comes_by_a_socket_may_do_something_else(
    upstream: PrivateSqlServer,
    tmp_path: Path,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    accounts: str,
    options: tuple[str, ...],
) -> None:
    with started(upstream, tmp_path, accounts, *options) as server:
        log_in_directly(server)
        read_by_who_may(proxy(server, memcached))
        is_denied(proxy(by_socket(server), memcached))


def test_who_is_taken_for_another_has_his_rights_by_where_he_comes_from_himself(
    mysql: PrivateSqlServer, tmp_path: Path, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    accounts = (
        "CREATE USER u IDENTIFIED WITH sha256_password BY 'p';"
        "CREATE USER dev@'%' IDENTIFIED BY 'x', dev@127.0.0.1 IDENTIFIED BY 'x';"
        "GRANT SELECT ON shop.* TO dev@127.0.0.1; GRANT PROXY ON dev@'%' TO u;"
        "SET GLOBAL check_proxy_users = ON, GLOBAL sha256_password_proxy_users = ON"
    )
    with started(mysql, tmp_path, accounts, "--skip-name-resolve") as server:
        log_in_directly(server)
        read_by_who_may(proxy(server, memcached))
        is_denied(proxy(by_socket(server), memcached))
