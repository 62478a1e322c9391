"""The limit of open files: as high as it goes, and clients beyond it are refused in words."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pymysql
import pytest

from sqlcache.admin.http import MAX_CONNECTIONS
from sqlcache.demo.servers import PrivateMariaDB, PrivateSqlcache, find_program, wait_until
from sqlcache.process import open_files
from tests.fakes.raw_client import RawClient
from tests.servers import PATIENT

_FILES = 260
_KEPT_FREE = 200


@pytest.fixture
def soft_limit() -> Iterator[int]:
    """A low soft limit for this process, put back afterwards; it is the hard one that is given."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_is_raised_to_the_hard_one(soft_limit: int) -> None:
    assert open_files.most_sessions() == 100
    open_files.raise_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft_limit, soft_limit)
    assert open_files.most_sessions() > 100


class Limited(PrivateSqlcache):
    """One that may open few files, and begins with fewer."""

    def command(self) -> list[str]:
        limit = f"--nofile={_FILES // 2}:{_FILES}"
        return [str(find_program("prlimit", "util-linux")), limit, *super().command()]


def test_clients_beyond_the_limit_hear_so_and_the_admin_door_goes_on(
    mariadb: PrivateMariaDB, tmp_path: Path
) -> None:
    with (
        Limited(tmp_path / "sqlcache", mariadb.service_url, ("memory",), **PATIENT) as proxy,
        ExitStack() as clients,
    ):
        limits = Path(f"/proc/{proxy.pid}/limits").read_text()
        assert [line.split()[3:5] for line in limits.splitlines() if "open files" in line] == [
            [str(_FILES), str(_FILES)]
        ]
        login = {"user": mariadb.user, "password": mariadb.password}
        for _ in range((_FILES - _KEPT_FREE) // 2):
            clients.enter_context(closing(proxy.connect(**login)))
        for _ in range(2 * _FILES):
            refused = clients.enter_context(closing(RawClient(proxy)))
            refused.read_greeting()
            assert refused.greeting[:3] == b"\xff\x10\x04"  # 1040
        assert proxy.readiness()["ready"]
        assert proxy.log_text().count("clients are refused") == 1
        clients.pop_all().close()
        wait_until(
            lambda: not proxy.metrics()["sqlcache_connections_open"], 10, "all clients are gone"
        )
        with closing(proxy.connect(**login)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        with pytest.raises(pymysql.OperationalError, match="denied"):
            proxy.connect(user="nobody", password="wrong")
    assert "Traceback" not in proxy.log_text()


def test_who_holds_all_of_the_admin_doors_connections_takes_no_clients_files(
    mariadb: PrivateMariaDB, tmp_path: Path
) -> None:
    with (
        Limited(tmp_path / "sqlcache", mariadb.service_url, ("memory",), **PATIENT) as proxy,
        ExitStack() as clients,
    ):
        for _ in range(MAX_CONNECTIONS):
            held = socket.create_connection((proxy.host, proxy.admin_port))
            clients.enter_context(closing(held))
        login = {"user": mariadb.user, "password": mariadb.password}
        for _ in range(int(proxy.metrics()["sqlcache_connections_limit"])):
            clients.enter_context(closing(proxy.connect(**login)))
        refused = clients.enter_context(closing(RawClient(proxy)))
        refused.read_greeting()
        assert refused.greeting[:3] == b"\xff\x10\x04"  # 1040
        assert proxy.readiness()["ready"]
        assert "open files" not in proxy.log_text()
