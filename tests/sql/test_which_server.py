"""What tells a server from all others, and when it began."""

import time
from typing import Any

import pytest

from sqlcache.demo.servers import PrivateSqlServer
from sqlcache.driver import aiomysql
from sqlcache.sql.catalog_loader import server as module
from sqlcache.sql.catalog_loader.server import identity_of

MARIADB = {
    "server_uid": "n0kq4Xm2nHyTUtPvOMyaPqvK5w8=",
    "server_id": "1",
    "hostname": "db",
    "port": "3306",
    "datadir": "/var/lib/mysql/",
}
MYSQL = {**MARIADB, "server_uuid": "0f2d4a3e-5c1b-11ef-8d3c-0242ac110002"}


@pytest.mark.parametrize("name", MARIADB)
def test_of_mariadb_its_uid_is_not_enough(name: str) -> None:
    """It is made of a port and a hardware address, which containers on several hosts share."""
    other = {**MARIADB, name: "another"}
    assert identity_of(other.items()) != identity_of(MARIADB.items())
    assert identity_of(MARIADB.items()) == identity_of(reversed(MARIADB.items()))


def test_one_that_has_none_is_told_by_the_rest() -> None:
    old = {name: value for name, value in MARIADB.items() if name != "server_uid"}
    assert identity_of(old.items()) != identity_of({**old, "hostname": "another"}.items())


def test_of_mysql_its_uuid_is() -> None:
    """Which stays with its files, wherever they are."""
    moved = {**MYSQL, "hostname": "another", "port": "3307", "datadir": "/data/"}
    assert identity_of(moved.items()) == identity_of(MYSQL.items()) == MYSQL["server_uuid"]


@pytest.mark.parametrize("age_s", [0, 3, 86_400, -7_199])
async def test_when_it_began_stays_the_same_whatever_its_clock_is_set_to(
    age_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An age that is less than none is told in 64 bits without a sign."""

    async def rows_of(connection: object, query: str) -> list[tuple[int, str]]:
        return [(1_000_000 + age_s, str(age_s % (1 << 64)))]

    monkeypatch.setattr(module, "rows_of", rows_of)
    nobody: Any = None
    assert await module.began(nobody) == 1_000_000


async def test_servers_tell_when_they_began(upstream: PrivateSqlServer) -> None:
    """The same at any moment, and by any clock of the session."""
    connection = await aiomysql.connect(
        host=upstream.host, port=upstream.port, user=upstream.user, password=upstream.password
    )
    seen = set[int]()
    until = time.monotonic() + 1.2
    while time.monotonic() < until:
        seen.add(await module.began(connection))
    async with connection.cursor() as cursor:
        await cursor.execute("SET timestamp = 1000")
    seen.add(await module.began(connection))
    connection.close()
    (began,) = seen
    assert 0 <= time.time() - began < 86_400
