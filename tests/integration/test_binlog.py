"""Writes made around sqlcache, on real servers: what the binary log tells is seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
)
from sqlcache.demo.waiting import Waited
from sqlcache.mysql.constants import ER_XAER_NOTA
from tests.conftest import ProxyFactory
from tests.forked import ForkedSqlcache
from tests.servers import (
    PATIENT,
    Invalidating,
    MySQLMissing,
    PrivateMySQL,
    begins_log_anew,
    end_streams,
    purge_log,
)

WITHIN_S = 20.0
FOLLOWS = {"binlog__follow": "on"}

Rows = tuple[tuple[Any, ...], ...]


@pytest.fixture(scope="module")
def followed(
    upstream: PrivateSqlServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivateSqlcache]:
    """A sqlcache that follows the log."""
    folder = tmp_path_factory.mktemp("followed")
    with (
        PrivateMemcached(folder / "memcached") as memcached,
        ForkedSqlcache(
            folder / "sqlcache", upstream.service_url, (memcached.address,), **PATIENT | FOLLOWS
        ) as server,
    ):
        until(lambda: settled(server, upstream))
        yield server
    assert "Traceback" not in server.log_text()


def follows(server: PrivateSqlcache) -> bool:
    """Whether it does, and has forgotten what it had to before."""
    return "following the binary log" in server.log_text() and not server.readiness()["warnings"]


def not_seen(server: PrivateSqlcache) -> list[str]:
    """The lines that say so, and why."""
    words = 'event="writes made around sqlcache are not seen"'
    return [line for line in server.log_text().splitlines() if words in line]


def settled(server: PrivateSqlcache, upstream: PrivateSqlServer) -> bool:
    """The same; of MySQL it forgets everything once more, before it tells others where it is."""
    roots = server.metrics()['sqlcache_invalidations_total{kind="root"}']
    return follows(server) and roots >= (2 if upstream.name == "mysqld" else 1)


def told(server: PrivateSqlcache) -> dict[str, Any]:
    """What its dashboard says of the log."""
    binlog: dict[str, Any] = json.loads(server.fetch("/api/summary"))["binlog"]
    return binlog


def is_at_the_end(server: PrivateSqlcache, upstream: PrivateSqlServer) -> bool:
    """Whether it has seen all that was written: what was defined before a test's first read, too,
    which would else be told after it, and have it forgotten."""
    command = "SHOW BINARY LOG STATUS" if upstream.name == "mysqld" else "SHOW MASTER STATUS"
    file, position, *_ = upstream.sql(command)[0]
    binlog = told(server)
    return (binlog["file"], binlog["position"]) == (int(file.rpartition(".")[2]), position)


def ends_branch(server: PrivateSqlServer, statement: str) -> bool:
    """Whether it was done: that cannot be before the server has ended who prepared the branch."""
    try:
        server.sql(statement)
    except pymysql.MySQLError as error:
        if error.args[0] != ER_XAER_NOTA:
            raise
        return False
    return True


def until(holds: Callable[[], bool], within_s: float = WITHIN_S) -> float:
    """Waits until it holds; returns for how long, in seconds. Pauses do not count."""
    waited = Waited()
    while not holds():
        assert waited.seconds() < within_s, "it never came"
        waited.sleep(0.001)
    return waited.seconds()


class Client:
    """A client of sqlcache, for reads."""

    def __init__(self, server: PrivateSqlcache, upstream: PrivateSqlServer, schema: str) -> None:
        login = {"user": upstream.user, "password": upstream.password, "database": schema}
        self.server = server
        self._connection = server.connect(**login)

    def read(self, query: str) -> Rows | str:
        """Its rows, or the error that it gets."""
        with self._connection.cursor() as cursor:
            try:
                cursor.execute(query)
                return tuple(cursor.fetchall())
            except pymysql.MySQLError as error:
                return str(error.args[0])

    def cache(self, query: str) -> Rows | str:
        """Its rows, when they are answered from the cache."""
        until(lambda: self._is_hit(query))
        return self.read(query)

    def _is_hit(self, query: str) -> bool:
        before = self.count("sqlcache_hits_total")
        self.read(query)
        return self.count("sqlcache_hits_total") > before

    def count(self, metric: str) -> float:
        return self.server.metrics()[metric]

    @property
    def roots(self) -> float:
        """How often everything was forgotten."""
        return self.count('sqlcache_invalidations_total{kind="root"}')


TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, v INT);
CREATE TABLE u (id INT PRIMARY KEY, v INT);
INSERT INTO t VALUES (1, 1), (2, 2);
INSERT INTO u VALUES (1, 10), (2, 20);
"""
FAMILY = """
CREATE TABLE p (id INT PRIMARY KEY);
CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)
    ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE g (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES c (id) ON DELETE SET NULL);
INSERT INTO p VALUES (1), (2);
INSERT INTO c VALUES (1, 1), (2, 2);
INSERT INTO g VALUES (1, 1), (2, 2);
"""
HISTORY = """
CREATE TABLE p (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING;
CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)
    WITH SYSTEM VERSIONING;
CREATE TABLE g (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES c (id) ON DELETE SET NULL);
INSERT INTO p VALUES (1, 1), (2, 2);
INSERT INTO c VALUES (1, 1), (2, 2);
INSERT INTO g VALUES (1, 1), (2, 2);
"""
LOGGED = """
CREATE TRIGGER logs AFTER UPDATE ON t FOR EACH ROW INSERT INTO u VALUES (NEW.v, NEW.v);
"""
AS_STATEMENTS = "SET SESSION binlog_format = STATEMENT;"

# name -> what there is, what is read, what changes that
CASES = {
    "insert": (TABLES, "SELECT * FROM t", "INSERT INTO t VALUES (3, 3)"),
    "update": (TABLES, "SELECT * FROM t", "UPDATE t SET v = 5 WHERE id = 1"),
    "delete": (TABLES, "SELECT * FROM t", "DELETE FROM t WHERE id = 1"),
    "replace": (TABLES, "SELECT * FROM t", "REPLACE INTO t VALUES (1, 7)"),
    "several tables": (
        TABLES,
        "SELECT * FROM u",
        "UPDATE t JOIN u ON t.id = u.id SET t.v = 5, u.v = 50",
    ),
    "a transaction": (
        TABLES,
        "SELECT t.v, u.v FROM t JOIN u USING (id)",
        "BEGIN; UPDATE t SET v = 8; SAVEPOINT s; UPDATE u SET v = 9; ROLLBACK TO s; COMMIT",
    ),
    "truncate": (TABLES, "SELECT * FROM t", "TRUNCATE t"),
    "drop": (TABLES, "SELECT * FROM t", "DROP TABLE t"),
    "rename": (TABLES, "SELECT * FROM t", "RENAME TABLE t TO old, u TO t"),
    "drop database": (
        TABLES,
        "SELECT * FROM t",
        "DROP DATABASE {schema}; CREATE DATABASE {schema}; CREATE TABLE {schema}.t (id INT)",
    ),
    "alter": (TABLES, "SELECT * FROM t", "ALTER TABLE t ADD COLUMN w INT DEFAULT 4"),
    "create as select": (
        TABLES,
        "SELECT * FROM t",
        "DROP TABLE t; CREATE TABLE t AS SELECT * FROM u",
    ),
    "truncate partition": (
        "CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2;"
        "INSERT INTO t VALUES (1), (2)",
        "SELECT * FROM t",
        "ALTER TABLE t TRUNCATE PARTITION p0",
    ),
    "view": (
        TABLES + "CREATE VIEW w AS SELECT v FROM t",
        "SELECT * FROM w",
        "ALTER VIEW w AS SELECT v FROM u",
    ),
    "rows under a view": (
        TABLES + "CREATE VIEW w AS SELECT v FROM t",
        "SELECT * FROM w",
        "UPDATE t SET v = 3",
    ),
    "through a view": (
        TABLES + "CREATE VIEW w AS SELECT v FROM t",
        "SELECT * FROM t",
        "UPDATE w SET v = 3",
    ),
    "trigger": (TABLES + LOGGED, "SELECT * FROM u", "UPDATE t SET v = 7 WHERE id = 1"),
    "cascade": (FAMILY, "SELECT * FROM c", "DELETE FROM p WHERE id = 1"),
    "cascade of a key": (FAMILY, "SELECT * FROM c", "UPDATE p SET id = 9 WHERE id = 1"),
    "cascade over two": (FAMILY, "SELECT * FROM g", "DELETE FROM p WHERE id = 1"),
    "new key, then cascade": (
        "CREATE TABLE p (id INT PRIMARY KEY); CREATE TABLE c (id INT PRIMARY KEY, p INT);"
        "INSERT INTO p VALUES (1); INSERT INTO c VALUES (1, 1)",
        "SELECT * FROM c",
        "ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE;"
        "DELETE FROM p WHERE id = 1",
    ),
    "myisam": (
        "CREATE TABLE t (id INT PRIMARY KEY) ENGINE = MyISAM; INSERT INTO t VALUES (1)",
        "SELECT * FROM t",
        "BEGIN; INSERT INTO t VALUES (2); ROLLBACK",
    ),
    "xa": (
        TABLES,
        "SELECT * FROM t",
        "XA START 'a', 'b', 3; UPDATE t SET v = 6; XA END 'a', 'b', 3; XA PREPARE 'a', 'b', 3;"
        "XA COMMIT 'a', 'b', 3",
    ),
    "xa in one phase": (
        TABLES,
        "SELECT * FROM t",
        "XA START 'one'; UPDATE t SET v = 6; XA END 'one'; XA COMMIT 'one' ONE PHASE",
    ),
    "procedure": (
        TABLES + "CREATE PROCEDURE q() UPDATE t SET v = 12",
        "SELECT * FROM t",
        "CALL q()",
    ),
    "statements": (
        TABLES,
        "SELECT * FROM t",
        AS_STATEMENTS + "BEGIN; UPDATE u SET v = 1; UPDATE t SET v = 11; COMMIT",
    ),
    "statement with a trigger": (
        TABLES + LOGGED,
        "SELECT * FROM u",
        AS_STATEMENTS + "UPDATE t SET v = 7 WHERE id = 1",
    ),
    "statement with a cascade": (
        FAMILY,
        "SELECT * FROM g",
        AS_STATEMENTS + "DELETE FROM p WHERE id = 1",
    ),
    "statement in another mode": (
        TABLES,
        "SELECT * FROM t",
        AS_STATEMENTS + """SET sql_mode = ANSI_QUOTES; UPDATE "t" SET "v" = 7""",
    ),
    "temporary table with the rows of another": (
        "CREATE TABLE t (id INT) ENGINE = MyISAM; INSERT INTO t VALUES (1)",
        "SELECT * FROM t",
        AS_STATEMENTS
        + "CREATE TEMPORARY TABLE m (id INT) ENGINE = MERGE UNION = (t) INSERT_METHOD = LAST;"
        "INSERT INTO m VALUES (2)",
    ),
    "temporary table like one with the rows of another": (
        "CREATE TABLE t (id INT) ENGINE = MyISAM; INSERT INTO t VALUES (1)",
        "SELECT * FROM t",
        AS_STATEMENTS
        + "CREATE TEMPORARY TABLE m (id INT) ENGINE = MERGE UNION = (t) INSERT_METHOD = LAST;"
        "CREATE TEMPORARY TABLE IF NOT EXISTS m (id INT);"
        "CREATE TEMPORARY TABLE x LIKE m; INSERT INTO x VALUES (2)",
    ),
    "large rows": (
        "CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB); INSERT INTO t VALUES (1, 'x')",
        "SELECT id, LENGTH(b) FROM t",
        "UPDATE t SET b = REPEAT(b, 7000000); UPDATE t SET b = CONCAT(b, b)",
    ),
}
ON_MYSQL = {
    "compressed": (
        TABLES,
        "SELECT * FROM t",
        "SET SESSION binlog_transaction_compression = ON;"
        "INSERT INTO t SELECT a.help_topic_id + 10, 1 FROM mysql.help_topic a",
    ),
    "parts of json": (
        "CREATE TABLE t (id INT PRIMARY KEY, j JSON); INSERT INTO t VALUES (1, '{\"a\": 1}')",
        "SELECT * FROM t",
        "SET SESSION binlog_row_value_options = PARTIAL_JSON;"
        "UPDATE t SET j = JSON_SET(j, '$.a', 2)",
    ),
    "tagged gtid": (
        TABLES,
        "SELECT * FROM t",
        "SET gtid_next = 'AUTOMATIC:tagged'; UPDATE t SET v = 13",
    ),
}
ON_MARIADB = {
    "replaced table": (
        TABLES,
        "SELECT * FROM t",
        "CREATE OR REPLACE TABLE t AS SELECT * FROM u",
    ),
    "temporary tables of one name": (
        "CREATE TABLE t (id INT) ENGINE = MyISAM; INSERT INTO t VALUES (1)",
        "SELECT * FROM t",
        AS_STATEMENTS + "BEGIN; CREATE TEMPORARY TABLE m (id INT); INSERT INTO m VALUES (2);"
        "DROP TEMPORARY TABLE m;"
        "CREATE TEMPORARY TABLE m (id INT) ENGINE = MERGE UNION = (t) INSERT_METHOD = LAST;"
        "INSERT INTO m VALUES (3); COMMIT",
    ),
    "branch that is rolled back but for a table without transactions": (
        TABLES + "CREATE TABLE m (v INT) ENGINE = MyISAM;",
        "SELECT * FROM m",
        AS_STATEMENTS + "XA START 'r'; UPDATE t SET v = 6; INSERT INTO m VALUES (1); XA END 'r';"
        "XA PREPARE 'r'; XA ROLLBACK 'r'",
    ),
    "cascade from history": (HISTORY, "SELECT * FROM c", "DELETE FROM p WHERE id = 1"),
    "cascade from history over two": (HISTORY, "SELECT * FROM g", "DELETE FROM p WHERE id = 1"),
    "replaced row with history": (HISTORY, "SELECT * FROM c", "REPLACE INTO p VALUES (1, 7)"),
}


def changed(
    followed: PrivateSqlcache, upstream: PrivateSqlServer, schema: str, case: tuple[str, str, str]
) -> float:
    """Has what is read changed around sqlcache, until it is seen; how often the root was bumped."""
    setup, query, change = case
    upstream.sql(setup, schema)
    until(lambda: is_at_the_end(followed, upstream))
    client = Client(followed, upstream, schema)
    before = client.cache(query)
    roots = client.roots
    upstream.sql(change.replace("{schema}", schema), schema)
    try:
        now: Rows | str = upstream.sql(query, schema)
    except pymysql.MySQLError as error:
        now = str(error.args[0])
    assert now != before, "the change changes nothing"
    until(lambda: client.read(query) == now)
    return client.roots - roots


@pytest.mark.parametrize("name", CASES)
def test_what_is_changed_around_it_is_seen(
    followed: PrivateSqlcache, upstream: PrivateSqlServer, schema: str, name: str
) -> None:
    assert changed(followed, upstream, schema, CASES[name]) == 0


@pytest.mark.parametrize("name", [*ON_MYSQL, *ON_MARIADB])
def test_what_one_server_alone_can_do_is_seen(
    followed: PrivateSqlcache, upstream: PrivateSqlServer, schema: str, name: str
) -> None:
    cases = ON_MYSQL if upstream.name == "mysqld" else ON_MARIADB
    if name not in cases:
        pytest.skip("the other server's")
    assert changed(followed, upstream, schema, cases[name]) == 0


def test_a_right_that_is_taken_around_it_is_taken(
    followed: PrivateSqlcache, upstream: PrivateSqlServer, schema: str
) -> None:
    upstream.sql(TABLES, schema)
    upstream.sql(f"CREATE USER bob@'%' IDENTIFIED BY 'b'; GRANT SELECT ON {schema}.t TO bob@'%'")
    try:
        bob = followed.connect(user="bob", password="b", database=schema)

        def sees() -> bool:
            with bob.cursor() as cursor:
                try:
                    return bool(cursor.execute("SELECT * FROM t") == 2)
                except pymysql.MySQLError:
                    return False

        until(sees)
        assert sees()
        upstream.sql(f"REVOKE SELECT ON {schema}.t FROM bob@'%'")
        until(lambda: not sees())
    finally:
        upstream.sql("DROP USER bob@'%'")


def test_what_is_seen_when_a_table_is_unlocked_is_ended_again(
    followed: PrivateSqlcache, upstream: PrivateSqlServer, schema: str
) -> None:
    upstream.sql("CREATE TABLE t (v INT) ENGINE = MyISAM", schema)
    until(lambda: is_at_the_end(followed, upstream))
    before = told(followed)["bumps"]
    upstream.sql("INSERT INTO t VALUES (1)", schema)
    until(lambda: told(followed)["bumps"] >= before + 2)


def test_while_a_session_may_hold_its_tables_what_it_wrote_is_ended_again_and_again(
    proxy: ProxyFactory, mariadb: PrivateMariaDB, memcached: PrivateMemcached, schema: str
) -> None:
    """It is in the log, and the session goes on: as well it might with its unlocking. Now and then
    it is asked for so soon that it is at the INSERT still, and then at another statement."""
    service = mariadb.service_user
    mariadb.sql(f"GRANT PROCESS ON *.* TO {service}")
    served = proxy(mariadb, memcached, **FOLLOWS)
    until(lambda: settled(served, mariadb))
    mariadb.sql(f"REVOKE PROCESS ON *.* FROM {service}")
    mariadb.sql("CREATE TABLE t (v INT) ENGINE = Aria", schema)
    code = "BEGIN INSERT INTO t VALUES (1); DO SLEEP(6); END"
    mariadb.sql(f"CREATE PROCEDURE p() {code}", schema)
    until(lambda: is_at_the_end(served, mariadb))

    def are_many() -> bool:
        before = told(served)["bumps"]
        mariadb.sql("CALL p()", schema)
        return bool(told(served)["bumps"] >= before + 3)

    assert any(are_many() for _ in range(10))


def test_a_branch_that_is_prepared_is_seen_when_it_is_committed_by_another(
    followed: PrivateSqlcache, upstream: PrivateSqlServer, schema: str
) -> None:
    upstream.sql(TABLES, schema)
    client = Client(followed, upstream, schema)
    client.cache("SELECT * FROM t")
    upstream.sql(
        "XA START 'p'; UPDATE t SET v = 6 WHERE id = 1; XA END 'p'; XA PREPARE 'p'", schema
    )
    assert client.cache("SELECT * FROM t") == ((1, 1), (2, 2))
    until(lambda: ends_branch(upstream, "XA COMMIT 'p'"))
    until(lambda: client.read("SELECT * FROM t") == ((1, 6), (2, 2)))


def test_of_a_branch_with_statements_anything_is_feared_behind_a_definition(
    followed: PrivateSqlcache, upstream: PrivateSqlServer, schema: str
) -> None:
    if upstream.name == "mysqld":
        pytest.skip("what a branch uses stays locked there")
    upstream.sql(TABLES + LOGGED, schema)
    client = Client(followed, upstream, schema)
    write = "UPDATE t SET v = 6 WHERE id = 1"
    upstream.sql(f"{AS_STATEMENTS} XA START 'd'; {write}; XA END 'd'; XA PREPARE 'd'", schema)
    upstream.sql("DROP TRIGGER logs", schema)
    until(lambda: is_at_the_end(followed, upstream))
    before = client.cache("SELECT * FROM u")
    until(lambda: ends_branch(upstream, "XA COMMIT 'd'"))
    now = upstream.sql("SELECT * FROM u", schema)
    assert now != before, "it changes nothing"
    until(lambda: client.read("SELECT * FROM u") == now)


def test_operators_see_how_far_it_is_followed(
    followed: PrivateSqlcache, upstream: PrivateSqlServer, schema: str
) -> None:
    upstream.sql(TABLES, schema)
    until(lambda: is_at_the_end(followed, upstream))
    binlog = told(followed)
    assert (binlog["following"], binlog["lag_bytes"], binlog["gaps"]) == (1, 0, 1)
    upstream.sql("FLUSH BINARY LOGS; UPDATE t SET v = 9", schema)
    until(lambda: told(followed)["file"] == binlog["file"] + 1)
    until(lambda: is_at_the_end(followed, upstream))
    assert told(followed)["bumps"] > binlog["bumps"]


def test_temporary_tables_forget_nothing(
    followed: PrivateSqlcache, upstream: PrivateSqlServer, schema: str
) -> None:
    upstream.sql(TABLES, schema)
    until(lambda: is_at_the_end(followed, upstream))
    client = Client(followed, upstream, schema)
    client.cache("SELECT * FROM t")
    upstream.sql(
        "CREATE TEMPORARY TABLE x (id INT); INSERT INTO x VALUES (1); DROP TEMPORARY TABLE x;"
        "UPDATE u SET v = 99",
        schema,
    )
    until(lambda: is_at_the_end(followed, upstream))
    missed = client.count("sqlcache_misses_total")
    client.read("SELECT * FROM t")
    assert client.count("sqlcache_misses_total") == missed


def test_what_is_written_through_it_is_seen_as_ever(
    followed: PrivateSqlcache, upstream: PrivateSqlServer, schema: str
) -> None:
    upstream.sql(TABLES, schema)
    client = Client(followed, upstream, schema)
    for number in range(20):
        client.read(f"UPDATE t SET v = {number} WHERE id = 1")
        assert client.read("SELECT v FROM t WHERE id = 1") == ((number,),)
        assert client.read("SELECT v FROM t WHERE id = 1") == ((number,),)


def test_a_process_of_its_own_follows_it_for_proxies_that_do_not(
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    tmp_path: Path,
    schema: str,
) -> None:
    mariadb.sql(TABLES, schema)
    served = proxy(mariadb, memcached)
    own = Invalidating(
        tmp_path / "invalidate", mariadb.service_url, (memcached.address,), **PATIENT
    )
    with own:
        until(lambda: follows(own))
        client = Client(served, mariadb, schema)
        client.cache("SELECT * FROM t")
        mariadb.sql("UPDATE t SET v = 4", schema)
        until(lambda: client.read("SELECT * FROM t") == ((1, 4), (2, 4)))
        assert own.stop() == 0
    assert "Traceback" not in own.log_text()


class TestTheTurn:
    def test_one_of_several_workers_has_it(
        self,
        mariadb: PrivateMariaDB,
        memcached: PrivateMemcached,
        proxy: ProxyFactory,
    ) -> None:
        served = proxy(mariadb, memcached, proxy__workers=2, **FOLLOWS)
        until(lambda: served.metrics()["sqlcache_binlog_following"] == 1)
        until(lambda: follows(served))
        assert served.metrics()["sqlcache_binlog_turns_total"] == 1

    def test_another_goes_on_where_the_follower_was_killed(
        self,
        upstream: PrivateSqlServer,
        memcached: PrivateMemcached,
        proxy: ProxyFactory,
        tmp_path: Path,
        schema: str,
    ) -> None:
        upstream.sql(TABLES, schema)
        first = ForkedSqlcache(
            tmp_path / "first", upstream.service_url, (memcached.address,), **PATIENT | FOLLOWS
        )
        with first:
            until(lambda: settled(first, upstream))
            second = proxy(upstream, memcached, **FOLLOWS)
            client = Client(second, upstream, schema)
            client.cache("SELECT * FROM t")
            assert client.count("sqlcache_binlog_following") == 0
            first.kill()
            upstream.sql("UPDATE t SET v = 77", schema)
            until(lambda: client.read("SELECT * FROM t") == ((1, 77), (2, 77)), 20)
            assert client.count("sqlcache_binlog_gaps_total") == 0, "it knew where to go on"

    def test_another_goes_on_where_the_follower_stands_still(
        self,
        upstream: PrivateSqlServer,
        memcached: PrivateMemcached,
        proxy: ProxyFactory,
        schema: str,
    ) -> None:
        upstream.sql(TABLES, schema)
        first = proxy(upstream, memcached, **FOLLOWS)
        until(lambda: settled(first, upstream))
        second = proxy(upstream, memcached, **FOLLOWS)
        client = Client(second, upstream, schema)
        client.cache("SELECT * FROM t")
        first.freeze()
        upstream.sql("UPDATE t SET v = 77", schema)
        until(lambda: client.read("SELECT * FROM t") == ((1, 77), (2, 77)), 20)
        first.thaw()
        until(lambda: first.metrics()["sqlcache_binlog_following"] == 0, 20)


@pytest.fixture(scope="module", params=[PrivateMariaDB, PrivateMySQL], ids=["mariadb", "mysql"])
def moody(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivateSqlServer]:
    """A server of these tests' own, which loses nothing that was committed when it is killed."""
    try:
        server = request.param(
            tmp_path_factory.mktemp("moody"), ("--innodb-flush-log-at-trx-commit=1",)
        )
    except MySQLMissing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture
def own_server(moody: PrivateSqlServer) -> PrivateSqlServer:
    """The same with new tables, to be ended and begun again."""
    moody.sql("DROP DATABASE IF EXISTS shop; CREATE DATABASE shop")
    moody.sql(TABLES, "shop")
    return moody


def following(
    own_server: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    **settings: Any,
) -> tuple[PrivateSqlcache, Client]:
    """One that follows the server's log, and a client that has a table's rows from its cache."""
    served = proxy(own_server, memcached, **FOLLOWS, **settings)
    until(lambda: follows(served))
    client = Client(served, own_server, "shop")
    client.cache("SELECT * FROM t")
    return served, client


class TestTheServer:
    def test_that_restarts_is_followed_on(
        self, own_server: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
    ) -> None:
        served, _ = following(own_server, memcached, proxy)
        own_server.kill()
        own_server.restart()
        own_server.sql("UPDATE t SET v = 5", "shop")
        until(
            lambda: Client(served, own_server, "shop").read("SELECT * FROM t") == ((1, 5), (2, 5)),
            10,
        )
        assert served.metrics()["sqlcache_binlog_gaps_total"] == 1, "as it began, and never again"

    def test_that_purged_its_log_has_everything_forgotten(
        self, own_server: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
    ) -> None:
        served, client = following(own_server, memcached, proxy)
        served.freeze()
        own_server.sql("UPDATE t SET v = 5", "shop")
        purge_log(own_server)
        served.thaw()
        until(lambda: served.metrics()["sqlcache_binlog_gaps_total"] == 2, 15)
        until(lambda: client.read("SELECT * FROM t") == ((1, 5), (2, 5)), 10)

    def test_that_purged_its_log_may_have_prepared_another_branch_of_the_same_name(
        self, own_server: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
    ) -> None:
        def prepare(table: str) -> str:
            return f"XA START 'p'; UPDATE {table} SET v = 5; XA END 'p'; XA PREPARE 'p'"

        served, client = following(own_server, memcached, proxy)
        until(lambda: settled(served, own_server))
        own_server.sql(prepare("t"), "shop")
        until(lambda: is_at_the_end(served, own_server))
        roots = client.roots
        served.freeze()
        end_streams(own_server)  # what is sent is read, though it is purged
        until(lambda: ends_branch(own_server, "XA ROLLBACK 'p'"))
        own_server.sql(prepare("u"), "shop")
        purge_log(own_server)
        served.thaw()
        until(lambda: served.metrics()["sqlcache_binlog_gaps_total"] == 2, 15)
        until(lambda: client.roots == roots + (3 if own_server.name == "mysqld" else 2))
        client.cache("SELECT * FROM u")
        until(lambda: ends_branch(own_server, "XA COMMIT 'p'"))
        until(lambda: client.read("SELECT * FROM u") == ((1, 5), (2, 5)), 10)

    def test_that_began_its_log_anew_has_everything_forgotten(
        self, own_server: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
    ) -> None:
        served, client = following(own_server, memcached, proxy)
        own_server.sql("UPDATE u SET v = 5", "shop")
        own_server.sql(begins_log_anew(own_server))
        own_server.sql("UPDATE t SET v = 5", "shop")
        until(lambda: client.read("SELECT * FROM t") == ((1, 5), (2, 5)), 15)
        until(lambda: not served.readiness()["warnings"], 15)
        for value in (6, 7, 8):  # the new log then ends where the one before did
            client.cache("SELECT * FROM t")
            own_server.sql(begins_log_anew(own_server))
            own_server.sql(f"UPDATE t SET v = {value}", "shop")
            now = ((1, value), (2, value))
            until(lambda now=now: client.read("SELECT * FROM t") == now, 15)  # type: ignore[misc]

    def test_whose_account_may_not_is_told_of(
        self, own_server: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
    ) -> None:
        account = f"{own_server.service_user}@'%'"
        own_server.sql(f"REVOKE REPLICATION SLAVE, REPLICATION CLIENT ON *.* FROM {account}")
        try:
            served = proxy(own_server, memcached, binlog__follow="auto")
            until(lambda: served.metrics()["sqlcache_binlog_hindered"] == 1)
            said = served.readiness()
            assert said["ready"]
            assert "binlog" not in said["warnings"], "nobody has asked for it"
            assert served.metrics()["sqlcache_binlog_lagging"] == 0
            client = Client(served, own_server, "shop")
            client.cache("SELECT * FROM t")
            hits, turns = (
                client.count(f"sqlcache_{each}_total") for each in ("hits", "binlog_turns")
            )
            until(lambda: client.count("sqlcache_binlog_turns_total") > turns, 15)
            client.read("SELECT * FROM t")
            assert client.count("sqlcache_hits_total") == hits + 1, "who may not forgets nothing"
            (line,) = not_seen(served)
            assert "level=warning" in line
            assert "GRANT REPLICATION SLAVE" in line
        finally:
            own_server.sql(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}")
        until(lambda: follows(served), 15)
        own_server.sql("UPDATE t SET v = 6", "shop")
        until(lambda: client.read("SELECT * FROM t") == ((1, 6), (2, 6)))

    def test_whose_account_may_no_more_is_warned_of(
        self, own_server: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
    ) -> None:
        account = f"{own_server.service_user}@'%'"
        served = proxy(own_server, memcached, binlog__follow="auto", binlog__max_lag_s=2)
        until(lambda: settled(served, own_server))
        own_server.sql(f"REVOKE REPLICATION SLAVE, REPLICATION CLIENT ON *.* FROM {account}")
        try:
            end_streams(own_server)
            until(lambda: "GRANT REPLICATION" in served.readiness()["warnings"].get("binlog", ""))
            assert "level=warning" in not_seen(served)[-1]
            until(lambda: served.metrics()["sqlcache_binlog_lagging"] == 1)
        finally:
            own_server.sql(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}")
        until(lambda: not served.readiness()["warnings"], 15)

    def test_that_goes_on_without_its_log_is_warned_of(
        self, tmp_path: Path, memcached: PrivateMemcached, proxy: ProxyFactory
    ) -> None:
        logs = tmp_path / "logs"
        logs.mkdir()
        with PrivateMariaDB(tmp_path / "server", (f"--log-bin={logs}/binlog",)) as server:
            server.sql("CREATE DATABASE shop; CREATE TABLE shop.t (v INT)")
            served = proxy(
                *(server, memcached),
                **FOLLOWS,
                binlog__max_lag_s=1,
                binlog__when_lagging="bypass",
            )
            until(lambda: settled(served, server))
            client = Client(served, server, "shop")
            client.cache("SELECT * FROM t")
            logs.rename(tmp_path / "away")
            with pytest.raises(pymysql.MySQLError):
                server.sql("FLUSH BINARY LOGS")
            server.sql("INSERT INTO shop.t VALUES (1)")
            until(lambda: "turned its" in served.readiness()["warnings"].get("binlog", ""))
            assert "level=warning" in not_seen(served)[-1]
            until(lambda: client.read("SELECT * FROM t") == ((1,),))

    def test_whose_account_may_not_though_it_is_to_is_warned_of(
        self, own_server: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
    ) -> None:
        account = f"{own_server.service_user}@'%'"
        own_server.sql(f"REVOKE REPLICATION SLAVE, REPLICATION CLIENT ON *.* FROM {account}")
        try:
            served = proxy(own_server, memcached, **FOLLOWS, binlog__max_lag_s=2)
            until(lambda: "GRANT REPLICATION" in served.readiness()["warnings"].get("binlog", ""))
            assert served.readiness()["ready"]
            assert "level=warning" in not_seen(served)[0]
            until(lambda: served.metrics()["sqlcache_binlog_lagging"] == 1)
            assert served.metrics()["sqlcache_binlog_hindered"] == 1
        finally:
            own_server.sql(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}")
        until(lambda: not served.readiness()["warnings"], 15)

    def test_that_does_not_say_what_it_leaves_out_is_told_of(
        self, own_server: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
    ) -> None:
        if own_server.name == "mysqld":
            pytest.skip("MariaDB's")
        account = f"{own_server.service_user}@'%'"
        own_server.sql(f"REVOKE BINLOG MONITOR ON *.* FROM {account}")
        try:
            served = proxy(own_server, memcached, **FOLLOWS)
            until(lambda: "BINLOG MONITOR" in served.readiness()["warnings"].get("binlog", ""))
            client = Client(served, own_server, "shop")
            client.cache("SELECT * FROM t")
            own_server.sql("UPDATE t SET v = 4", "shop")
            until(lambda: client.read("SELECT * FROM t") == ((1, 4), (2, 4)))
        finally:
            own_server.sql(f"GRANT BINLOG MONITOR ON *.* TO {account}")

    def test_that_is_not_reached_is_not_taken_for_followed_at_each_try(
        self, own_server: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
    ) -> None:
        served, client = following(
            own_server, memcached, proxy, binlog__max_lag_s=2, upstream__connect_timeout_s=1
        )
        turns = client.count("sqlcache_binlog_turns_total")
        own_server.freeze()
        before = len(served.log_text())  # on a slow machine it may have lagged as it began

        def log_since() -> str:
            return served.log_text()[before:]

        try:
            until(lambda: "binary log lags," in log_since())
            until(lambda: client.count("sqlcache_binlog_turns_total") >= turns + 2, 60)
            assert "binary log lags no more" not in log_since()
            assert client.count("sqlcache_binlog_lag_seconds") > 10
        finally:
            own_server.thaw()
        until(lambda: "binary log lags no more" in log_since(), 40)

    def test_without_gtids_is_followed(
        self, own_server: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
    ) -> None:
        if own_server.name != "mysqld":
            pytest.skip("MySQL's")
        modes = ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")
        own_server.sql(";".join(f"SET GLOBAL gtid_mode = {mode}" for mode in modes))
        try:
            served = proxy(own_server, memcached, **FOLLOWS)
            until(lambda: settled(served, own_server))
            client = Client(served, own_server, "shop")
            client.cache("SELECT * FROM t")
            bumps = client.count("sqlcache_binlog_bumps_total")
            own_server.sql("UPDATE t SET v = 4", "shop")
            until(lambda: client.read("SELECT * FROM t") == ((1, 4), (2, 4)))
            until(lambda: client.count("sqlcache_binlog_bumps_total") == bumps + 2)
        finally:
            modes = ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")
            own_server.sql(";".join(f"SET GLOBAL gtid_mode = {mode}" for mode in modes))

    def test_without_a_log_has_reads_go_past_the_cache_where_that_is_wanted(
        self, tmp_path: Path, memcached: PrivateMemcached, proxy: ProxyFactory
    ) -> None:
        with PrivateMariaDB(tmp_path / "server", ("--skip-log-bin",)) as server:
            server.sql("CREATE DATABASE shop")
            server.sql(TABLES, "shop")
            served = proxy(
                server,
                memcached,
                binlog__follow="on",
                binlog__max_lag_s=1,
                binlog__when_lagging="bypass",
            )
            until(lambda: served.metrics()["sqlcache_binlog_lagging"] == 1)
            client = Client(served, server, "shop")
            hits = client.count("sqlcache_hits_total")
            for _ in range(5):
                assert client.read("SELECT * FROM t") == ((1, 1), (2, 2))
            assert client.count("sqlcache_hits_total") == hits
            until(lambda: "log_bin" in served.readiness()["warnings"]["binlog"])
            assert served.metrics()['sqlcache_bypasses_total{reason="binlog lags"}'] == 5


@pytest.mark.parametrize("follow", ["auto", "off"])
def test_a_process_that_does_nothing_else_is_warned_of_where_there_is_no_log(
    follow: str, tmp_path: Path, memcached: PrivateMemcached
) -> None:
    given = {**PATIENT, "binlog__follow": follow, "binlog__max_lag_s": 1}
    with (
        PrivateMariaDB(tmp_path / "server", ("--skip-log-bin",)) as server,
        Invalidating(
            tmp_path / "invalidate", server.service_url, (memcached.address,), **given
        ) as own,
    ):
        assert "following" not in own.output.read_text()
        until(lambda: "log_bin" in own.readiness()["warnings"].get("binlog", ""))
        until(lambda: own.metrics()["sqlcache_binlog_lagging"] == 1)


def test_a_cache_of_one_process_follows_it_too(
    upstream: PrivateSqlServer, proxy: ProxyFactory, schema: str
) -> None:
    upstream.sql(TABLES, schema)
    served = proxy(upstream, "memory", **FOLLOWS)
    until(lambda: settled(served, upstream))
    client = Client(served, upstream, schema)
    client.cache("SELECT * FROM t")
    upstream.sql("UPDATE t SET v = 4", schema)
    until(lambda: client.read("SELECT * FROM t") == ((1, 4), (2, 4)))


def test_of_definitions_changed_around_it_those_that_were_named_are_read_again(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory, schema: str
) -> None:
    upstream.sql(TABLES, schema)
    served = proxy(upstream, memcached, **FOLLOWS, upstream__catalog_refresh_s=3600)
    until(lambda: settled(served, upstream))
    until(lambda: is_at_the_end(served, upstream))
    client = Client(served, upstream, schema)
    client.cache("SELECT * FROM t")
    client.cache("SELECT * FROM u")
    loads = client.count("sqlcache_catalog_loads_total")
    for column in ("a", "b", "c"):
        upstream.sql(f"ALTER TABLE t ADD {column} INT DEFAULT 7", schema)
        until(lambda: is_at_the_end(served, upstream))
        client.cache("SELECT * FROM u")
    assert client.count("sqlcache_catalog_loads_total") == loads
    assert client.cache("SELECT * FROM t") == ((1, 1, 7, 7, 7), (2, 2, 7, 7, 7))
    assert client.count("sqlcache_catalog_loads_total") == loads + 1


def test_nothing_of_it_runs_where_it_is_off(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    served = proxy(upstream, memcached, binlog__follow="off")
    assert served.metrics()["sqlcache_binlog_turns_total"] == 0
