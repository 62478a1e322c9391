"""Traps that few clients come near: odd flags of a login, and globals that are set out of sight."""

from __future__ import annotations

import pytest
from pymysql.constants import CLIENT

from tests.integration.scripts import World


def test_a_client_may_have_said_that_it_names_no_schemas(world: World) -> None:
    """For it `other.t` is the `t` of its default schema, wherever it stands."""
    script = """
        a  CREATE TABLE t (a INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 10)
        a  CREATE DATABASE {db}_o
        a  CREATE TABLE {db}_o.t (a INT PRIMARY KEY, v INT)
        a  INSERT INTO {db}_o.t VALUES (1, 99)
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  SELECT v FROM {db}_o.t
        b  SELECT v FROM {db}_o.t
        b  SELECT v FROM {db}_o.t
        b  UPDATE {db}_o.t SET v = 11
        a  SELECT v FROM t
        a  SELECT v FROM {db}_o.t
        a  UPDATE t SET v = 12
        b  SELECT v FROM {db}_o.t
    """
    world.compare(script, {"b": {"client_flag": CLIENT.NO_SCHEMA}})


@pytest.mark.parametrize(
    "sets",
    [
        "SET GLOBAL time_zone = '+05:00'",
        "SET @x = 1, @@global.time_zone = '+05:00'",
        "BEGIN DECLARE n INT; SET n = 1, GLOBAL time_zone := '+05:00'; END",
    ],
)
def test_a_trigger_may_set_what_sessions_begin_with(world: World, sets: str) -> None:
    world.compare(f"""
        a  CREATE TABLE t (a INT PRIMARY KEY, at TIMESTAMP NULL); CREATE TABLE u (a INT)
        a  INSERT INTO t VALUES (1, '2020-01-01')
        a  CREATE TRIGGER r BEFORE INSERT ON u FOR EACH ROW {sets}
        a  SELECT at FROM t
        b  SELECT at FROM t
        b+ SELECT at FROM t
        a  INSERT INTO u VALUES (1)
        c  SELECT at FROM t
        b  SELECT at FROM t
        c  SELECT at FROM t
        a  SET GLOBAL time_zone = DEFAULT
    """)


def test_how_much_memory_all_have_for_groups_decides_their_order(world: World) -> None:
    if world.is_mariadb:
        pytest.skip("MySQL has such a limit")
    world.compare("""
        a  CREATE TABLE t (a INT PRIMARY KEY, v VARCHAR(60));
           INSERT INTO t VALUES (1, 'x'), (2, 'abc'), (3, 'z'), (4, 'b'), (5, 'abc'), (6, '0')
        a  SELECT v, COUNT(*) FROM t GROUP BY v
        a+ SELECT v, COUNT(*) FROM t GROUP BY v
        a  SET GLOBAL temptable_max_ram = 2097152
        a  SELECT v, COUNT(*) FROM t GROUP BY v
        b  SELECT v, COUNT(*) FROM t GROUP BY v
        a  SET GLOBAL temptable_max_ram = DEFAULT
        a  SELECT v, COUNT(*) FROM t GROUP BY v
    """)


def test_what_the_server_knows_of_a_table_decides_which_rows_come_first(world: World) -> None:
    rows = ", ".join(f"({n}, {n * 7919 % 1009}, {n % 7})" for n in range(300))
    learn = "ANALYZE TABLE t UPDATE HISTOGRAM ON b, k WITH 8 BUCKETS"
    if world.is_mariadb:
        learn = "ANALYZE TABLE t PERSISTENT FOR ALL"
    world.compare(f"""
        a  CREATE TABLE t (a INT PRIMARY KEY, b INT, k INT, KEY (k), KEY (b)) STATS_AUTO_RECALC = 0
        a  INSERT INTO t VALUES (1000, 1, 1)
        a  ANALYZE TABLE t
        a  DELETE FROM t
        a  INSERT INTO t VALUES {rows}
        a  SELECT a, b FROM t WHERE k = 3 AND b < 300 LIMIT 9
        a+ SELECT a, b FROM t WHERE k = 3 AND b < 300 LIMIT 9
        a  {learn}
        a  SELECT a, b FROM t WHERE k = 3 AND b < 300 LIMIT 9
        b  SELECT a, b FROM t WHERE k = 3 AND b < 300 LIMIT 9
    """)


def test_how_much_a_text_may_take_to_read_decides_whether_it_is_refused(world: World) -> None:
    if world.is_mariadb:
        pytest.skip("MySQL has such a limit")
    asks = "SELECT a FROM t WHERE (a, 1) IN ({})".format(", ".join(["(1, 1)"] * 20_000))
    world.compare(f"""
        a  CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1)
        a  {asks}
        a+ {asks}
        a  SET GLOBAL parser_max_mem_size = 10000000
        b  {asks}
        a  SET GLOBAL parser_max_mem_size = DEFAULT
        a  {asks}
    """)


@pytest.mark.parametrize("charset", ["NAMES latin1", "CHARACTER SET latin1", "CHARSET latin1"])
@pytest.mark.parametrize("scope", ["GLOBAL", "SESSION lock_wait_timeout = 9, GLOBAL"])
def test_a_global_may_be_set_with_a_sessions_character_set(
    world: World, scope: str, charset: str
) -> None:
    world.compare(f"""
        a  CREATE TABLE t (a INT PRIMARY KEY, v VARCHAR(9)); INSERT INTO t VALUES (1, 'é')
        b  SELECT v FROM t
        b+ SELECT v FROM t
        c  SELECT v FROM t
        c+ SELECT v FROM t
        c  SET {scope} net_retry_count = 10, {charset}
        c  SELECT v FROM t
        b  SELECT v FROM t
        c  SELECT v FROM t
        c  SELECT v FROM t WHERE v = 'é'
    """)


ROWS = ", ".join(f"({n}, '{n:012d}')" for n in range(500))


@pytest.mark.parametrize(
    "row",
    [
        "-- '\n (f(1000), 2), -- '\n (1001, 'y')",
        "(-1, -\n --\t'\n f(1000)), (1001, --\t'\n 'y')",
        "# '\n (f(1000), 2), # '\n (1001, 'y')",
        "/*'*/ (f(1000), 2), /*'*/ (1001, 'y')",
        "(1TRUE (1000), 2)",
    ],
)
def test_a_row_among_many_may_run_code(world: World, row: str) -> None:
    lines = row.replace("\n", "\n" + 12 * " ")
    world.compare(
        f"""
        a  CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(20)); CREATE TABLE u (a INT)
        a  CREATE FUNCTION f (x INT) RETURNS INT MODIFIES SQL DATA DETERMINISTIC
            BEGIN INSERT INTO u VALUES (x); RETURN x; END
        a  CREATE FUNCTION 1TRUE (x INT) RETURNS INT MODIFIES SQL DATA DETERMINISTIC RETURN f(x)
        c  SELECT COUNT(*) FROM u
        c+ SELECT COUNT(*) FROM u
        b  INSERT INTO t VALUES {ROWS}, {lines}
        c  SELECT COUNT(*) FROM u
        """,
        {"b": {"client_flag": 0}},
    )
