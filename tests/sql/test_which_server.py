"""What tells a server from all others, and when it began."""

from typing import Any

import pytest

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


@pytest.mark.parametrize("uptime_s", [0, 3, 86_400, -7_199])
async def test_when_it_began_is_told_by_a_clock_that_goes_on_while_the_host_sleeps(
    uptime_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one whose clock was set back since it is told in 64 bits without a sign."""
    clock = iter([500.0, 500.25])
    monkeypatch.setattr(module, "boot_clock", lambda: next(clock))

    async def rows_of(connection: object, query: str) -> list[tuple[str, str]]:
        return [("Uptime", str(uptime_s % (1 << 64)))]

    monkeypatch.setattr(module, "rows_of", rows_of)
    nobody: Any = None
    assert await module.began(nobody) == (499 - uptime_s, 500.25 - uptime_s)
