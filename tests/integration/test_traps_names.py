"""Traps of sessions: a name means what it means there, by temporary tables and default schemas."""

from __future__ import annotations

import pytest

from tests.integration.scripts import World
from tests.integration.sessions import MAKE

# Temporary tables.


HIDES = [
    ("CREATE TEMPORARY TABLE t (v CHAR(9))", "DROP TEMPORARY TABLE t"),
    ("CREATE TEMPORARY TABLE IF NOT EXISTS {db}.t AS SELECT 'tmp' AS v", "DROP TABLE {db}.t"),
    ("CREATE OR REPLACE TEMPORARY TABLE t AS SELECT 'tmp' AS v", "DROP TABLE t"),
    ("/*!40000 CREATE TEMPORARY TABLE t (v CHAR(9)) */", "DROP TABLE t"),
    (
        "CREATE TEMPORARY TABLE x (v INT); ALTER TABLE x RENAME t;"
        " DROP TEMPORARY TABLE IF EXISTS x",
        "DROP TEMPORARY TABLE t",
    ),
    ("CREATE TEMPORARY TABLE x (v INT); RENAME TABLE x TO t", "DROP TEMPORARY TABLE t"),
    ("CREATE TEMPORARY TABLE t (v INT); SELECT no_such FROM t", "DROP TABLE t"),
    ("CREATE TEMPORARY TABLE t AS SELECT 'tmp' AS v, 1 AS $a$", "DROP TABLE t"),
    (
        "CREATE DATABASE {db}_x; CREATE TEMPORARY TABLE t (v INT); USE {db}_x;"
        " CREATE TEMPORARY TABLE t (v INT); DROP TEMPORARY TABLE t; USE {db}",
        "DROP TEMPORARY TABLE t",
    ),
    ("PREPARE s FROM 'CREATE TEMPORARY TABLE t (v INT)'; EXECUTE s", "DROP TABLE t"),
    ("EXECUTE IMMEDIATE 'CREATE TEMPORARY TABLE t (v INT)'", "DROP TEMPORARY TABLE IF EXISTS t"),
    ("BEGIN NOT ATOMIC CREATE TEMPORARY TABLE t (v INT); END", "DROP TEMPORARY TABLE IF EXISTS t"),
    (
        "SET STATEMENT max_statement_time = 9 FOR CREATE TEMPORARY TABLE t (v INT)",
        "DROP TEMPORARY TABLE IF EXISTS t",
    ),
]
HIDDEN_BY_CODE = [
    ("CALL hides()", "DROP TEMPORARY TABLE t"),
    ("SELECT f()", "DROP TEMPORARY TABLE t"),
    ("INSERT INTO u VALUES (f())", "DROP TEMPORARY TABLE t"),
    ("REPLACE INTO w VALUES (1)", "DROP TEMPORARY TABLE t"),
]
HIDING = (
    "CREATE TABLE u (a INT); CREATE TABLE w (a INT);"
    " CREATE PROCEDURE hides() CREATE TEMPORARY TABLE t AS SELECT 'tmp' AS v;"
    " CREATE FUNCTION f() RETURNS INT DETERMINISTIC"
    " BEGIN CREATE TEMPORARY TABLE t AS SELECT 'tmp' AS v; RETURN 1; END;"
    " CREATE TRIGGER r BEFORE INSERT ON w FOR EACH ROW"
    " BEGIN CREATE TEMPORARY TABLE t AS SELECT 'tmp' AS v; END"
)  # fmt: skip


def hidden(first: str, cases: list[tuple[str, str]]) -> str:
    """Each way to hide a table, in a session of its own."""
    steps = [first]
    for number, (hide, drop) in enumerate(cases):
        hider = f"s{number}"
        steps += ["a  SELECT v FROM t", f"{hider}+ SELECT v FROM t"]
        steps += [f"{hider}  {hide}", f"{hider}  SELECT v FROM t", "a  SELECT v FROM t"]
        steps += [f"{hider}  SELECT v FROM {{db}}.t", f"{hider}  INSERT INTO t (v) VALUES (7)"]
        steps += [f"{hider}  SELECT v FROM t", "a  SELECT v FROM t", f"{hider}  {drop}"]
        steps += [f"{hider}  SELECT v FROM t", "a  CREATE TABLE IF NOT EXISTS t (v INT)"]
    return "\n".join(steps)


def test_trap_05_a_temporary_table_hides_another_for_its_session_alone(world: World) -> None:
    world.compare(hidden(f"a  {MAKE}", HIDES))


def test_trap_05_code_that_is_stored_may_hide_tables(world: World) -> None:
    world.compare(hidden(f"a  {MAKE}; {HIDING}\na  .again", HIDDEN_BY_CODE))


@pytest.mark.parametrize(
    "hide",
    [
        "SET @x = (SELECT a FROM calls)",
        "SET @x = (SELECT a FROM calls), @y = (SELECT 1 UNION SELECT 2)",
        "SET @x = (SELECT a FROM calls); SELECT no_such FROM t",
        "CALL harmless((SELECT a FROM calls))",
        "SELECT g(), a FROM calls",
        "INSERT INTO u SELECT g() + a FROM calls",
        "SET STATEMENT max_statement_time = 9 FOR CALL hides()",
        "SET STATEMENT max_statement_time = 9 FOR INSERT INTO w VALUES (1)",
        "SET STATEMENT max_statement_time = 9 FOR EXECUTE s",
        "SET STATEMENT max_statement_time = 9 FOR"
        " EXECUTE IMMEDIATE 'CREATE TEMPORARY TABLE t (v INT)'",
        "PREPARE p FROM 'SELECT ROUND(1.5, f())'",
        "SET STATEMENT max_statement_time = 9 FOR PREPARE p FROM 'SELECT ROUND(1.5, f())'",
        ".prepare p SELECT ROUND(1.5, f())",
        ".prepare p SELECT a FROM rounds",
    ],
)
def test_trap_05_what_hides_a_table_may_stand_in_any_statement_or_run_when_it_is_prepared(
    world: World, hide: str
) -> None:
    """What its session reads then is not for others that are like it but for that."""
    learns = "SET time_zone = '+00:00'; SELECT no_such FROM t"
    world.compare(f"""
        m  {MAKE}; {HIDING}
        m  CREATE VIEW calls AS SELECT f() AS a FROM u; INSERT INTO u VALUES (1)
        m  CREATE VIEW rounds AS SELECT ROUND(1.5, f()) AS a
        m  CREATE FUNCTION g() RETURNS INT DETERMINISTIC RETURN 1
        m  CREATE PROCEDURE harmless(n INT) SELECT n
        a  PREPARE s FROM 'CREATE TEMPORARY TABLE t (v INT)'
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  {learns}
        a  SELECT v FROM t
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  {hide}
        a  SELECT v FROM t
        a  SELECT v FROM t
        b  PREPARE s FROM 'CREATE TEMPORARY TABLE t (v INT)'
        b  {learns}
        b  SELECT v FROM t
        c  SELECT v FROM t
    """)


ENDS_NOTHING = {
    "a sequence": ("", "DROP SEQUENCE IF EXISTS t"),
    "a temporary sequence": ("", "DROP TEMPORARY SEQUENCE IF EXISTS t"),
    "a sequence, in a comment": ("", "DROP /*!50000 SEQUENCE IF EXISTS t */"),
    "a sequence, prepared": (".prepare d DROP SEQUENCE IF EXISTS t", ".execute d"),
    "a view": ("", "DROP VIEW IF EXISTS t"),
    "prepared elsewhere": ("USE {db}_x; .prepare d DROP TABLE IF EXISTS t; USE {db}", ".execute d"),
    "prepared elsewhere, temporary": (
        ".use {db}_x; .prepare d DROP TEMPORARY TABLE IF EXISTS t; .use {db}",
        ".execute d",
    ),
    "prepared elsewhere, by name": (
        "USE {db}_x; PREPARE d FROM 'DROP TABLE IF EXISTS t'; USE {db}",
        "EXECUTE d",
    ),
}


@pytest.mark.parametrize(("before", "drop"), ENDS_NOTHING.values(), ids=ENDS_NOTHING.keys())
def test_trap_05_what_drops_another_ends_no_temporary_table(
    world: World, before: str, drop: str
) -> None:
    """What its session reads is for nobody else."""
    first = "\n".join(f"        a  {each}" for each in before.split("; ") if each)
    world.compare(f"""
        m  {MAKE}; CREATE DATABASE {{db}}_x
        m  SELECT v FROM {{db}}.t
        a  SELECT v FROM {{db}}.t
        a+ SELECT v FROM {{db}}.t
{first}
        a  CREATE TEMPORARY TABLE t (v INT)
        a  INSERT INTO t VALUES (7)
        m  INSERT INTO t (v) VALUES (8)
        a  {drop}
        a  SELECT v FROM {{db}}.t
        a  SELECT v FROM {{db}}.t
        m  SELECT v FROM {{db}}.t
    """)


def test_trap_05_what_is_prepared_makes_a_temporary_table_where_it_was(world: World) -> None:
    world.compare(f"""
        m  {MAKE}; CREATE DATABASE {{db}}_x
        m  SELECT v FROM {{db}}.t
        a  SELECT v FROM {{db}}.t
        a+ SELECT v FROM {{db}}.t
        a  .prepare c CREATE TEMPORARY TABLE t (v INT)
        a  .use {{db}}_x
        a  .execute c
        a  .use {{db}}
        a  DROP TABLE IF EXISTS {{db}}_x.t
        a  SELECT v FROM {{db}}.t
    """)


@pytest.mark.parametrize(
    ("as_another", "back"),
    [
        ("SET SESSION pseudo_thread_id = 7;", "SET SESSION pseudo_thread_id = 6"),
        ("SET sql_mode = '', @@pseudo_thread_id = 7;", "SET pseudo_thread_id = 6"),
        ("SET pseudo_thread_id = 7, sql_mode = 'none';", "SET pseudo_thread_id = 6"),
        ("SET SESSION server_id = 7;", "SET SESSION server_id = 1"),
        ("SET STATEMENT pseudo_thread_id = 7 FOR", "SET pseudo_thread_id = 6"),
        ("SET pseudo_thread_id = 1 + 6;", "SET pseudo_thread_id = 2 * 3"),
        ("EXECUTE s USING @seven;", "EXECUTE s USING @six"),
        ("CALL p7();", "SET pseudo_thread_id = 6"),
    ],
)
def test_trap_05_one_session_may_have_several_temporary_tables_of_one_name(
    world: World, as_another: str, back: str
) -> None:
    """As who runs again what the log says of many. The first comes back when the second is gone,
    and what it holds is for nobody else."""
    world.compare(f"""
        m  {MAKE}
        m  SELECT v FROM t
        b+ SELECT v FROM t
        m  CREATE PROCEDURE p7() SET pseudo_thread_id = 7
        a  SET @six = 6, @seven = 7
        a  PREPARE s FROM 'SET pseudo_thread_id = ?'
        a  SET SESSION pseudo_thread_id = 6
        a  CREATE TEMPORARY TABLE t AS SELECT 'tmp' AS v
        a  {as_another} CREATE TEMPORARY TABLE t (v INT)
        a  {as_another} DROP TEMPORARY TABLE t
        a  {back}
        a  SELECT v FROM t
        b  SELECT v FROM t
        m  INSERT INTO t (v) VALUES ('newer')
        a  SELECT v FROM t
        b  SELECT v FROM t
    """)


@pytest.mark.parametrize("end", [".reset", ".change_user app {db}", ".again"])
def test_trap_05_temporary_tables_end_with_the_session(world: World, end: str) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT v FROM {{db}}.t
        a+ SELECT v FROM {{db}}.t
        a  CREATE TEMPORARY TABLE t (v INT)
        a  SELECT v FROM {{db}}.t
        a  {end}
        a  SELECT v FROM {{db}}.t
    """)


# Schemas and names.


def test_trap_06_a_name_means_a_table_of_the_default_schema(world: World) -> None:
    world.compare("""
        a  CREATE TABLE t (v INT); INSERT INTO t VALUES (1); CREATE DATABASE {db}_x;
           CREATE TABLE {db}_x.t (v INT); INSERT INTO {db}_x.t VALUES (2);
           CREATE TABLE T (v INT); INSERT INTO T VALUES (3)
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  SELECT v FROM T
        a  SELECT v FROM `t`
        a  SELECT v FROM {db}.t
        b  USE {db}_x
        b  SELECT v FROM t
        b  SELECT v FROM T
        b  .use {db}
        b+ SELECT v FROM t
        b  .use {db}_none
        b+ SELECT v FROM t
        b  USE {db}_x; SELECT no_such FROM t
        b  SELECT v FROM t
        b  USE `{db}`
        b  .prepare s UPDATE t SET v = v + 10
        b  USE {db}_x
        b  .execute s
        b  SELECT v FROM t
        a  SELECT v FROM t
        b  UPDATE t SET v = 9
        b  SELECT v FROM t
        a  SELECT v FROM {db}_x.t
        a  SELECT v FROM t
        c  .login app
        b  DROP DATABASE {db}_x
        b  SELECT v FROM t
        b  SELECT v FROM {db}.t
    """)


def test_trap_06_a_default_schema_that_one_of_several_statements_drops_is_none(
    world: World,
) -> None:
    make = "CREATE DATABASE {db}_x; CREATE TABLE {db}_x.t (a INT); INSERT INTO {db}_x.t VALUES (1)"
    steps = [f"a  {MAKE}"]
    for session, drop in (
        ("b", "DROP DATABASE {db}_x; SELECT 1"),
        ("c", "DROP DATABASE {db}_x; DO SLEEP(0.2); SELECT 1"),
        ("d", "USE {db}; USE {db}_x; DROP DATABASE {db}_x"),
        ("e", "DROP DATABASE {db}_x; USE {db}"),
    ):
        steps += [f"a  {make}", "a  USE {db}_x", f"{session}  USE {{db}}_x"]
        steps += [f"{session}  SELECT a FROM t", f"{session}  {drop}", f"a  {make}"]
        steps += ["a  USE {db}_x", "a  SELECT a FROM t", "a+ SELECT a FROM t"]
        steps += [f"{session}  SELECT a FROM t", f"{session}  SELECT DATABASE()"]
        steps += ["a  DROP DATABASE {db}_x"]
    world.compare("\n".join(steps))


def test_trap_06_a_session_without_a_schema_has_no_unqualified_tables(world: World) -> None:
    world.compare(
        f"""
        a  {MAKE}
        a  SELECT v FROM t
        a+ SELECT v FROM t
        b  SELECT v FROM t
        b  SELECT v FROM {{db}}.t
        b+ SELECT v FROM {{db}}.t
        b  UPDATE {{db}}.t SET v = 'new'
        a  SELECT v FROM t
        """,
        {"b": {"database": None}},
    )
