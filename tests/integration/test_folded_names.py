"""Names of tables that the server folds: which are the same is its own affair."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from pymysql.cursors import Cursor

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache
from tests.conftest import ProxyFactory

FOLDED = ["É", "Σ", "ς", "ǅ", "İ", "\u212a", "\u212b", "Ω", "Ⅷ", "Ⓐ", "\uff21", "Ж"]
"""That MariaDB or Python has in another case."""
TOLD_APART = [
    ("Ƞ", "ƞ"),
    ("Ⱥ", "ⱥ"),
    ("\u0241", "\u0242"),
    ("\u0500", "\u0501"),
    ("Ⴀ", "ⴀ"),
    ("Ϸ", "ϸ"),
]
"""The same letter for Python, and none that MariaDB knows cases of."""


@pytest.fixture(scope="module")
def folding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateMariaDB]:
    """A server that has names in lower case."""
    folder = tmp_path_factory.mktemp("folding")
    with PrivateMariaDB(folder, ("--lower-case-table-names=1",)) as server:
        server.sql("CREATE DATABASE names CHARACTER SET utf8mb4")
        yield server


@pytest.fixture
def through(
    folding: PrivateMariaDB, memcached: PrivateMemcached, proxy: ProxyFactory
) -> PrivateSqlcache:
    return proxy(folding, memcached)


@pytest.fixture
def cursor(folding: PrivateMariaDB, through: PrivateSqlcache) -> Iterator[Cursor]:
    """That of a session through sqlcache."""
    login = {"user": folding.user, "password": folding.password, "database": "names"}
    with closing(through.connect(**login, charset="utf8mb4")) as session:
        yield session.cursor()


def test_a_write_by_one_spelling_is_seen_by_all(
    folding: PrivateMariaDB, through: PrivateSqlcache, cursor: Cursor
) -> None:
    for letter in FOLDED:
        spellings = dict.fromkeys((letter, letter.lower()[:1], letter.upper()[:1]))
        for each in spellings:
            cursor.execute(f"CREATE TABLE IF NOT EXISTS `x{each}` (v INT)")
            cursor.execute(f"INSERT INTO `x{each}` VALUES (1)")
        for written in spellings:
            for each in (*spellings, *spellings):
                cursor.execute(f"SELECT v FROM `x{each}`")
                cursor.fetchall()
            cursor.execute(f"UPDATE `x{written}` SET v = v + 1")
            for each in spellings:
                cursor.execute(f"SELECT v FROM `x{each}`")
                told = cursor.fetchall()
                assert told == folding.sql(f"SELECT v FROM `x{each}`", "names"), (written, each)
    assert through.metrics()["sqlcache_hits_total"] > 0


def test_tables_that_the_server_tells_apart_are_not_taken_for_each_other(
    through: PrivateSqlcache, cursor: Cursor
) -> None:
    """Else a view would be taken for a table, and a write to what it reads would not be seen."""
    cursor.execute("CREATE TABLE base (v INT)")
    cursor.execute("INSERT INTO base VALUES (1)")
    for pair in TOLD_APART:
        for view, table in (pair, reversed(pair)):
            cursor.execute(f"CREATE VIEW `{view}` AS SELECT v FROM base")
            cursor.execute(f"CREATE TABLE `{table}` (v INT)")
            for _ in range(3):
                cursor.execute(f"SELECT v FROM `{view}`")
            before = cursor.fetchall()
            cursor.execute("UPDATE base SET v = v + 1")
            cursor.execute(f"SELECT v FROM `{view}`")
            assert cursor.fetchall() != before, (view, table)
            cursor.execute(f"DROP VIEW `{view}`")
            cursor.execute(f"DROP TABLE `{table}`")
    assert through.metrics()["sqlcache_hits_total"] > 0


@pytest.mark.parametrize(
    "delete",
    [
        "DELETE far FROM near AS FAR, other.far",
        "DELETE FAR FROM near AS far, other.FAR",
        "DELETE FROM far USING near AS Far, other.far",
        "DELETE é FROM near AS É, other.é",
        "DELETE Near FROM NEAR, other.far",
    ],
)
def test_an_alias_is_the_name_of_a_table_in_any_spelling(
    folding: PrivateMariaDB, through: PrivateSqlcache, cursor: Cursor, delete: str
) -> None:
    folding.sql("DROP DATABASE IF EXISTS other; CREATE DATABASE other")
    for table in ("names.near", "other.far", "other.`é`"):
        folding.sql(f"CREATE OR REPLACE TABLE {table} (v INT); INSERT INTO {table} VALUES (1)")
    reads = ["SELECT v FROM near", "SELECT v FROM other.far", "SELECT v FROM other.`é`"]
    for read in (*reads, *reads):
        cursor.execute(read)
        assert cursor.fetchall() == ((1,),)
    cursor.execute(delete)
    assert cursor.rowcount == 1
    for read in reads:
        cursor.execute(read)
        assert cursor.fetchall() == folding.sql(read, "names"), read
