"""Entries that are changed in memcached, with a secret and without one."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache
from tests.conftest import ProxyFactory

READ = "SELECT name FROM t"


def read(served: PrivateSqlcache, server: PrivateMariaDB, schema: str) -> str:
    account = {"user": server.user, "password": server.password, "database": schema}
    with closing(served.connect(**account)) as session, session.cursor() as cursor:
        cursor.execute(READ)
        ((name,),) = cursor.fetchall()
        assert isinstance(name, str)
        return name


class Intruder:
    """Somebody who may speak with memcached."""

    def __init__(self, memcached: PrivateMemcached) -> None:
        self._socket = socket.create_connection((memcached.host, memcached.port), timeout=5)
        self._lines = self._socket.makefile("rb")

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def changes(self, old: bytes, new: bytes) -> int:
        """Puts this in place of that in all items; in how many that was."""
        self._socket.sendall(b"lru_crawler metadump all\r\n")
        listed = list(iter(self._lines.readline, b"END\r\n"))
        keys = [line.split()[0].removeprefix(b"key=").replace(b"%3A", b":") for line in listed]
        return sum(self._change(key, old, new) for key in keys)

    def _change(self, key: bytes, old: bytes, new: bytes) -> bool:
        self._socket.sendall(b"mg %b v t\r\n" % key)
        code, size, left = self._lines.readline().split()
        assert code == b"VA"
        value = self._lines.read(int(size) + 2)[:-2]
        if old not in value:
            return False
        changed = value.replace(old, new)
        ttl = left.removeprefix(b"t").replace(b"-1", b"0")
        self._socket.sendall(b"ms %b %d T%b\r\n%b\r\n" % (key, len(changed), ttl, changed))
        assert self._lines.readline() == b"HD\r\n"
        return True


@pytest.mark.parametrize("is_sealed", [True, False])
def test_what_is_changed_in_memcached_is_not_served(
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    schema: str,
    tmp_path: Path,
    is_sealed: bool,
) -> None:
    mariadb.sql("CREATE TABLE t (name VARCHAR(20)); INSERT INTO t VALUES ('honest')", schema)
    (tmp_path / "secret").write_text("nobody is to know this\n")
    secret: dict[str, Any] = {"memcached__secret_file": str(tmp_path / "secret")}
    settings = secret if is_sealed else {}
    filler, reader = (proxy(mariadb, memcached, cache__near_bytes=0, **settings) for _ in range(2))
    assert read(filler, mariadb, schema) == "honest"
    assert read(reader, mariadb, schema) == "honest"
    assert reader.metrics()["sqlcache_hits_total"] == 1
    with closing(Intruder(memcached)) as intruder:
        assert intruder.changes(b"honest", b"forged") == 1
    assert read(reader, mariadb, schema) == ("honest" if is_sealed else "forged")
    broken = reader.metrics()["sqlcache_seals_broken_total"]
    assert broken == is_sealed
    assert ("without the secret" in reader.log_text()) == is_sealed
    assert read(filler, mariadb, schema) == ("honest" if is_sealed else "forged")
