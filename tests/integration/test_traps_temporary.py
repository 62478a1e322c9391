"""A session with temporary tables: what has nothing to do with them is cached as ever, and they
hide all that they do."""

from __future__ import annotations

import pytest

from tests.integration.scripts import World

MAKE = (
    "CREATE TABLE t (a INT PRIMARY KEY, v VARCHAR(20)); INSERT INTO t VALUES (1, 'x'), (2, 'y');"
    " CREATE TABLE u (a INT, v VARCHAR(20)); INSERT INTO u VALUES (1, 'u');"
    " CREATE VIEW seen AS SELECT v FROM t; CREATE VIEW far AS SELECT v FROM seen"
)


UNRELATED = [
    "SELECT v FROM t",
    "SELECT v FROM {db}.t",
    "SELECT v FROM far",
    "SELECT COUNT(*) FROM t",
]


@pytest.mark.parametrize("read", UNRELATED)
def test_what_has_nothing_to_do_with_them_is_a_hit(world: World, read: str) -> None:
    world.compare(f"""
        a  {MAKE}
        b  {read}
        b+ {read}
        a  CREATE TEMPORARY TABLE tmp (v INT)
        a+ {read}
        a  INSERT INTO tmp VALUES (1)
        a+ {read}
        a  SELECT v FROM tmp
        b  UPDATE t SET v = 'z'
        a  {read}
        b+ {read}
        a+ {read}
        a  UPDATE t SET v = 'own' WHERE a = 1
        b  {read}
        a+ {read}
        a  SELECT v FROM tmp
        a  SELECT v FROM tmp, t
        a  SELECT FOUND_ROWS()
        a  DROP TEMPORARY TABLE tmp
        a+ {read}
        a+ {read}
    """)


def test_so_it_is_with_what_is_prepared_before_and_after(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  .prepare before SELECT v FROM t WHERE a = ?
        a  .execute before #1
        a  .execute before #1
        a+ .execute before #1
        a  CREATE TEMPORARY TABLE tmp (v INT)
        a+ .execute before #1
        a  .prepare after SELECT v FROM t WHERE a = ?
        a+ .execute after #1
        b  UPDATE t SET v = 'z'
        a  .execute before #1
        a+ .execute after #1
        a  .prepare hidden SELECT v FROM u
        a  .execute hidden
        a  CREATE TEMPORARY TABLE u (v INT, w INT)
        a  .execute hidden
        a+ .execute before #1
        a  INSERT INTO u VALUES (7, 7)
        a  .execute hidden
        a  DROP TEMPORARY TABLE u
        a  .execute hidden
        a+ .execute before #1
        b  SELECT v FROM u
        b+ SELECT v FROM u
    """)


HIDE = [
    "CREATE TEMPORARY TABLE t (a INT, v VARCHAR(20))",
    "CREATE TEMPORARY TABLE {db}.t AS SELECT 5 AS a, 'tmp' AS v",
    "CREATE TEMPORARY TABLE t LIKE u",
    "CREATE TEMPORARY TABLE T (a INT, v INT)",
    "CREATE TEMPORARY TABLE seen (a INT, v VARCHAR(20))",
    "CREATE TEMPORARY TABLE x (a INT, v INT); ALTER TABLE x RENAME t",
    "CREATE TEMPORARY TABLE x (a INT, v INT); RENAME TABLE x TO t",
    "CREATE DATABASE {db}_x; USE {db}_x; CREATE TEMPORARY TABLE t (a INT, v INT); SELECT 1",
    "BEGIN; CREATE TEMPORARY TABLE t (a INT, v INT); ROLLBACK",
    "BEGIN; CREATE TEMPORARY TABLE x (a INT, v INT); COMMIT; ALTER TABLE x RENAME TO t",
]
READS = [
    "SELECT v FROM t",
    "SELECT v FROM {db}.t",
    "SELECT v FROM `t` AS other",
    "SELECT v FROM seen",
    "SELECT v FROM far",
    "SELECT v FROM u WHERE v IN (SELECT v FROM t)",
    "SELECT v FROM u UNION SELECT v FROM t",
    "WITH w AS (SELECT v FROM t) SELECT v FROM w",
    "WITH t AS (SELECT v FROM u) SELECT v FROM t",
    "SELECT v FROM u",
]


@pytest.mark.parametrize("hide", HIDE)
def test_what_they_hide_is_not(world: World, hide: str) -> None:
    reads = "\n".join(f"        a  {each}\n        b  {each}" for each in READS)
    world.compare(f"""
        a  {MAKE}
        a  CREATE TEMPORARY TABLE first (v INT)
{reads}
{reads}
        a  {hide}
{reads}
        a  USE {{db}}
        b  UPDATE t SET v = 'newer' WHERE a = 1
        b  UPDATE u SET v = 'newer'
{reads}
        a  INSERT INTO t (v) VALUES (7)
{reads}
        a  UPDATE t SET v = 8
{reads}
        a  DROP TABLE IF EXISTS first
{reads}
        a  DROP TABLE t
{reads}
        b  CREATE TABLE IF NOT EXISTS t (a INT, v INT)
{reads}
        a  .reset
{reads}
    """)


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE x RENAME t; SELECT no_such FROM t",
        "RENAME TABLE x TO t; SELECT no_such FROM t",
        "/*!40000 ALTER TABLE x RENAME t */; SELECT no_such FROM t",
        "SET STATEMENT max_statement_time = 9 FOR ALTER TABLE x RENAME t",
        "PREPARE s FROM 'ALTER TABLE x RENAME t'; EXECUTE s",
        "CALL renames()",
        "CREATE TEMPORARY TABLE t LIKE x; SELECT no_such FROM t",
        "ALTER TABLE x ADD w INT, RENAME TO t",
        "DROP TABLE x; CREATE TEMPORARY TABLE t (v INT)",
        "DROP TABLE x, no_such; CREATE TEMPORARY TABLE t (v INT)",
    ],
)
def test_one_that_may_have_another_name_by_now_may_hide_anything(world: World, text: str) -> None:
    world.compare(f"""
        a  {MAKE}; CREATE PROCEDURE renames() ALTER TABLE x RENAME t
        a  .again
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  CREATE TEMPORARY TABLE x (v INT)
        a+ SELECT v FROM t
        a  {text}
        a  SELECT v FROM t
        a  SELECT v FROM t
        a  SELECT v FROM far
        b  SELECT v FROM t
        b  INSERT INTO t VALUES (3, 'new')
        a  SELECT v FROM t
        b  SELECT v FROM t
        a  DROP TEMPORARY TABLE IF EXISTS t
        a  SELECT v FROM t
    """)


def test_a_view_that_comes_to_name_a_hidden_table_is_no_hit(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  CREATE TEMPORARY TABLE u (a INT, v VARCHAR(20)); INSERT INTO u VALUES (9, 'tmp')
        a  SELECT v FROM far
        a  SELECT v FROM far
        a+ SELECT v FROM far
        b  CREATE OR REPLACE VIEW seen AS SELECT v FROM u
        b  SELECT v FROM far
        a  SELECT v FROM far
        b  SELECT v FROM far
        a  CREATE OR REPLACE VIEW seen AS SELECT v FROM t
        a  SELECT v FROM far
        b  SELECT v FROM far
        b  DROP VIEW seen
        a  SELECT v FROM far
        b  CREATE TABLE seen (v INT)
        a  SELECT v FROM far
        a  CREATE TEMPORARY TABLE seen (v INT); INSERT INTO seen VALUES (3)
        a  SELECT v FROM far
        b  SELECT v FROM far
    """)


def test_in_a_transaction_nothing_is_a_hit(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  CREATE TEMPORARY TABLE tmp (v INT)
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  BEGIN
        a  SELECT v FROM t
        b  UPDATE t SET v = 'z'
        b  SELECT v FROM t
        a  SELECT v FROM t
        a  CREATE TEMPORARY TABLE tmp2 SELECT v FROM t
        a  SELECT v FROM tmp2
        a  ROLLBACK
        a+ SELECT v FROM t
        a  SELECT v FROM tmp2
        a  SET autocommit = 0
        a  SELECT v FROM t
        b  UPDATE t SET v = 'zz'
        a  SELECT v FROM t
        a  COMMIT
        a  SELECT v FROM t
        a  SET autocommit = 1
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  LOCK TABLES t READ
        a  SELECT v FROM t
        a  UNLOCK TABLES
        a+ SELECT v FROM t
    """)


def test_what_asks_of_the_query_before_is_told_of_a_hit(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  CREATE TEMPORARY TABLE tmp (v INT); INSERT INTO tmp VALUES (1)
        a  SELECT v FROM t ORDER BY a LIMIT 1, 1
        a+ SELECT v FROM t ORDER BY a LIMIT 1, 1
        a  SELECT FOUND_ROWS()
        a+ SELECT v FROM t ORDER BY a LIMIT 1, 1
        a  SELECT FOUND_ROWS(), v FROM tmp
        a+ SELECT v FROM t ORDER BY a LIMIT 1, 1
        a  INSERT INTO tmp VALUES (2), (3)
        a  SELECT FOUND_ROWS()
    """)
