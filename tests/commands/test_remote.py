"""The lists of `sqlcache stats`: what stands below each heading is what the API says of it."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from sqlcache.cli import main
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache
from tests.conftest import ProxyFactory

LISTS = ("statements", "tables", "nodes", "sessions", "events")


@pytest.fixture
def used(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, proxy: ProxyFactory, schema: str
) -> PrivateSqlcache:
    """One with something in each list."""
    mariadb.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1)", schema)
    served = proxy(mariadb, memcached)
    login = {"user": mariadb.user, "password": mariadb.password, "database": schema}
    with closing(served.connect(**login)) as session, session.cursor() as cursor:
        for _ in range(3):
            cursor.execute("SELECT * FROM t WHERE id = 1")
        for value in range(2):
            cursor.execute("UPDATE t SET v = %s WHERE id = 1", (value,))
    return served


def shown(
    server: PrivateSqlcache, which: str, capsys: pytest.CaptureFixture[str], *flags: str
) -> list[list[str]]:
    """The headings, and the rows."""
    admin = "--admin", f"127.0.0.1:{server.admin_port}"
    assert main(["stats", f"--{which}", *flags, *admin]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.replace("┃", "│").split("│")[1:-1] for line in lines if line[0] in "┃│"]
    return [[cell.strip() for cell in row] for row in rows]


@pytest.mark.parametrize("which", LISTS)
def test_each_column_has_a_heading(
    which: str, used: PrivateSqlcache, capsys: pytest.CaptureFixture[str]
) -> None:
    headings, *_ = shown(used, which, capsys)
    assert all(headings)


@pytest.mark.parametrize("sort", ["bypasses", "fills", "mysql_p99_s"])
def test_what_statements_are_sorted_by_is_shown(
    sort: str, used: PrivateSqlcache, capsys: pytest.CaptureFixture[str]
) -> None:
    items = json.loads(used.fetch(f"/api/statements?sort={sort}"))["items"]
    (headings, *rows) = shown(used, "statements", capsys, "--sort", sort)
    assert headings[0] == sort
    said = [each[sort] for each in items]
    assert [row[0] for row in rows] == ["-" if each is None else f"{each:g}" for each in said]


@pytest.mark.parametrize("sort", ["calls", "hits", "mysql_mean_s", "saved_s"])
def test_what_has_a_column_is_shown_once(
    sort: str, used: PrivateSqlcache, capsys: pytest.CaptureFixture[str]
) -> None:
    headings = shown(used, "statements", capsys)[0]
    assert shown(used, "statements", capsys, "--sort", sort)[0] == headings


def test_a_table_has_its_figures_below_their_headings(
    used: PrivateSqlcache, schema: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (said,) = json.loads(used.fetch("/api/tables"))["items"]
    headings, row = shown(used, "tables", capsys)
    told = dict(zip(headings, row, strict=True))
    assert told["table"] == f"{schema}.t"
    assert told["writes"] == str(said["writes"]["proxy"]) == "2"
    assert told["by the log"] == str(said["writes"]["binlog"])
    assert told["invalidations"] == str(said["invalidations"]) == "2"
