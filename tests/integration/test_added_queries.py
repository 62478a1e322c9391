"""Queries that sqlcache adds on a client's connection: none, on the paths of common frameworks."""

from __future__ import annotations

from contextlib import closing

import pymysql
import pytest

from sqlcache.demo.servers import PrivateServer
from tests.integration.scripts import World

MAKE = "CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)"
READ = "SELECT id, v FROM t WHERE id = 1"
COUNT = "SELECT SQL_CALC_FOUND_ROWS id FROM t ORDER BY v DESC LIMIT 0, 1"
WRITES = ["UPDATE t SET v = v + 1 WHERE id = 2", "DELETE FROM t WHERE id = 3"]

# What each sends at its connect, and around its statements.
SEQUENCES = {
    "pymysql": ["SET NAMES utf8mb4", "SET AUTOCOMMIT = 0", READ, "COMMIT", READ, "ROLLBACK"],
    "sqlalchemy": [
        "SET NAMES utf8mb4",
        "SELECT DATABASE()",
        "SELECT @@sql_mode",
        "SELECT @@lower_case_table_names",
        "ROLLBACK",
        "COMMIT",
    ],
    "django": [
        "SET NAMES utf8mb4",
        "SET autocommit=1",
        "SELECT VERSION(), @@sql_mode, @@default_storage_engine, @@sql_auto_is_null,"
        " @@lower_case_table_names",
        "SET SQL_AUTO_IS_NULL = 0; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        READ,
        READ,
        *WRITES,
        READ,
        "set autocommit=0",
        "REPLACE INTO t VALUES (4, 4)",
        "SAVEPOINT s1_x1",
        "RELEASE SAVEPOINT s1_x1",
        "COMMIT",
        "set autocommit=1",
        READ,
        READ,
    ],
    "rails": [
        "SET NAMES utf8mb4, @@SESSION.sql_mode = CONCAT(CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'),"
        " ',NO_AUTO_VALUE_ON_ZERO'), @@SESSION.sql_auto_is_null = 0,"
        " @@SESSION.wait_timeout = 2147483",
        "SHOW FULL FIELDS FROM t",
        READ,
        READ,
        "SHOW VARIABLES LIKE 'lower_case%'",
        "BEGIN",
        WRITES[0],
        "COMMIT",
        READ,
        READ,
    ],
    "wordpress": [
        "SET NAMES utf8mb4",
        "SELECT @@SESSION.sql_mode",
        "SET SESSION sql_mode='NO_ENGINE_SUBSTITUTION'",
        READ,
        READ,
        "SHOW FULL COLUMNS FROM t",
        READ,
        COUNT,
        "SELECT FOUND_ROWS()",
        READ,
        COUNT,
        "SELECT FOUND_ROWS()",
        READ,
        *WRITES,
    ],
    "hibernate": [
        "SELECT @@session.auto_increment_increment AS auto_increment_increment,"
        " @@character_set_client AS character_set_client, @@sql_mode AS sql_mode",
        "SET character_set_results = NULL",
        "SET autocommit=1",
        READ,
        READ,
        "SET SESSION TRANSACTION READ ONLY",
        "SET SESSION TRANSACTION READ WRITE",
        "SET autocommit=0",
        WRITES[0],
        "commit",
        "SET autocommit=1",
        READ,
    ],
}
# The first hit of a REPEATABLE READ transaction opens the snapshot that it is a part of.
SNAPSHOTS = {"pymysql": 1}
# Who fills an entry that counts all rows asks for FOUND_ROWS(), so that its client has no need to.
COUNTS = {"wordpress": 1}
_TRIES = 5


def bypasses(world: World) -> float:
    """How many reads went past the cache so far, as they do for a moment after this process, or its
    memcached, has stood still."""
    told = world.proxy.metrics().items()
    return sum(count for name, count in told if name.startswith("sqlcache_bypasses_total"))


def asked(world: World, server: PrivateServer, schema: str, statements: list[str]) -> int:
    """How many statements MySQL counts for this connection, its own question included."""
    with (
        closing(
            pymysql.connect(
                host=server.host,
                port=server.port,
                user=world.upstream.user,
                password=world.upstream.password,
                database=schema,
                autocommit=None,
                client_flag=pymysql.constants.CLIENT.MULTI_STATEMENTS,
            )
        ) as connection,
        connection.cursor() as cursor,
    ):
        for statement in statements:
            cursor.execute(statement)
            while cursor.nextset():
                pass
        cursor.execute("SHOW SESSION STATUS LIKE 'Questions'")
        return int(cursor.fetchall()[0][1])


@pytest.mark.parametrize("name", SEQUENCES)
def test_no_query_is_added(world: World, schema: str, name: str) -> None:
    world.upstream.sql(MAKE, schema)
    statements = SEQUENCES[name]
    direct = asked(world, world.upstream, schema, statements)
    if name in COUNTS:  # the first answer to FOUND_ROWS() shows what the others look like
        asked(world, world.proxy, schema, statements)
    added = SNAPSHOTS.get(name, 0) + COUNTS.get(name, 0)
    for _ in range(_TRIES if name in COUNTS else 1):  # whose writes have it begin anew each time
        before, past = world.hits(), bypasses(world)
        through = asked(world, world.proxy, schema, statements)
        told = through + (world.hits() - before)
        if bypasses(world) == past:
            break
    assert told == direct + added


QUERIES_OF_NO_TABLE = [
    "INSERT INTO t SELECT 50, 1",
    "INSERT INTO t SELECT 51, MAX(1)",
    "INSERT INTO t (SELECT 52, 1 UNION ALL SELECT 53, 1)",
    "INSERT INTO t VALUES (54, (SELECT MAX(1)))",
    "INSERT INTO t VALUES (55, (SELECT MAX(1) FROM DUAL WHERE 1 = 0))",
    "INSERT INTO t VALUES (56, (VALUES (1)))",
    "INSERT INTO t VALUES (1, (VALUES (1))) ON DUPLICATE KEY UPDATE v = VALUES(v)",
    "INSERT INTO t VALUES (1, 5) ON DUPLICATE KEY UPDATE v = GREATEST(VALUES(v), v)",
    "INSERT INTO t VALUES (1, 5) ON DUPLICATE KEY UPDATE v = (1 IN (VALUES (v), (2)))",
    "REPLACE INTO t SELECT 1, 1",
    "UPDATE t SET v = (VALUES (5)) WHERE id = 1",
    "UPDATE t SET v = EXISTS(VALUES (1)) WHERE id = 1",
    "DELETE FROM t WHERE id IN (VALUES (9), (10))",
    "SET @x = (SELECT MAX(1))",
    "SET @x = EXISTS(SELECT 1)",
    "CREATE OR REPLACE VIEW x AS SELECT 1",
    "CREATE TABLE IF NOT EXISTS x SELECT 1",
    "UPDATE t SET v = 8 WHERE id = 1 AND 'min from' <> 'sum where'",
    "INSERT INTO t VALUES (57, CHAR_LENGTH('max from'))",
]
"""And changes that have none."""


@pytest.mark.parametrize("statement", QUERIES_OF_NO_TABLE)
def test_the_rows_a_hit_found_are_told_after_a_query_of_no_table(
    world: World, statement: str
) -> None:
    """It may leave FOUND_ROWS() as it was, or not: in a change of rows, too."""
    steps = []
    for read in ("SELECT id FROM t", "SELECT id FROM t WHERE id = 77"):
        steps += [f"b  {read}", "a  SELECT 1", f"a+ {read}", f"a  {statement}"]
        steps += ["a  SELECT FOUND_ROWS()", "a  DELETE FROM t WHERE id > 3"]
    world.compare("\n".join([f"a  {MAKE}", *steps * 3]))


def test_the_rows_a_hit_found_are_told_after_whatever_came_between(world: World) -> None:
    asks = "SELECT FOUND_ROWS()"
    between = [
        "UPDATE t SET v = v + 1 WHERE id = 2",
        "UPDATE t SET v = v + 1 WHERE id = 99",
        "UPDATE t SET v = v + 1 WHERE 1 = 0",
        "UPDATE t SET v = v",
        "DELETE FROM t WHERE id = 99",
        "UPDATE t JOIN u USING (id) SET t.v = 1",
        "UPDATE w SET v = 3",
        "UPDATE t SET v = (SELECT MAX(n) FROM u) WHERE id = 1",
        "SHOW FULL COLUMNS FROM t",
        "SHOW TABLES WHERE 0",
        "SHOW CREATE TABLE t",
        "SHOW VARIABLES LIKE 'sql_mode'",
    ]
    three, none = "SELECT id FROM t", "SELECT id FROM t WHERE id = 77"
    steps = [f"a  {MAKE}; CREATE TABLE u (id INT, n INT); INSERT INTO u VALUES (1, 1)"]
    steps += ["a  CREATE VIEW w AS SELECT * FROM t WHERE id IN (SELECT id FROM u)"]
    for statement in between:
        for read, before in ((three, "SELECT 1"), (none, "SELECT 1"), (three, none)):
            warm = [f"b  {read}", f"b+ {read}"]
            steps += [*warm, f"a  {before}", f"a+ {read}", f"a  {statement}", f"a  {asks}"]
            steps += [*warm, f"a+ {read}", f"a  {statement}", f"a  {statement}", f"a  {asks}"]
    world.compare("\n".join(steps))
