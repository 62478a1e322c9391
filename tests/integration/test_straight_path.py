"""What goes the straight path is answered as by the long way, and leaves it where it must.

All scripts repeat their statements: the first time makes a plan, the others go by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pymysql
import pytest
from pymysql.constants import COMMAND

from sqlcache.demo.servers import PrivateSqlServer, wait_until
from tests.integration.scripts import World
from tests.servers import PATIENT

PLANNED = "sqlcache_statements_planned_total"
MAKE = "CREATE TABLE t (a INT PRIMARY KEY, v VARCHAR(20)); INSERT INTO t VALUES (1, 'x'), (2, 'y')"


@pytest.fixture(scope="module")
def world(upstream: PrivateSqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(upstream, tmp_path_factory.mktemp("world")) as started:
        yield started


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
@pytest.mark.parametrize(
    ("first", "then"),
    [
        (["SELECT RAND() > 2, 1"], ["SELECT RAND() > 2, 1", "SELECT RAND() > 2, 22.5"]),
        (["SELECT RAND() > 2, 'a'"], ["SELECT RAND() > 2, 'b'", "SELECT RAND() > 2, 'it''s'"]),
        (["SET NAMES utf8mb4", "SET NAMES latin1"] * 2, ["SET NAMES utf8mb4", "SET NAMES latin1"]),
        (["BEGIN", "COMMIT"], ["BEGIN", "COMMIT"]),
    ],
)
def test_what_was_seen_before_is_passed_by_its_plan(
    world: World, first: list[str], then: list[str]
) -> None:
    with closing(world.proxy.connect()) as session, session.cursor() as cursor:
        for text in first:
            cursor.execute(text)
        before = world.proxy.metrics()[PLANNED]
        for text in then:
            cursor.execute(text)
    assert world.proxy.metrics()[PLANNED] - before == len(then)


def test_a_plan_ends_with_what_it_went_by(world: World) -> None:
    """A view that called nothing calls a function that writes: what only read is a write now."""
    world.compare(f"""
        a  {MAKE}
        a  CREATE VIEW w AS SELECT a FROM t
        a  CREATE FUNCTION f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN
            UPDATE t SET v = CONCAT(v, '!'); RETURN 1; END
        w  SELECT RAND() > 2, a FROM w
        w  SELECT RAND() > 2, a FROM w
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  CREATE OR REPLACE VIEW w AS SELECT f() AS a
        w  SELECT RAND() > 2, a FROM w
        b  SELECT v FROM t
        b+ SELECT v FROM t
        w  SELECT RAND() > 2, a FROM w
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  DROP FUNCTION f
    """)


def test_a_table_of_the_sessions_own_ends_its_plans(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT RAND() > 2, v FROM t
        a  SELECT RAND() > 2, v FROM t
        a  SELECT v FROM t WHERE a = 1
        a+ SELECT v FROM t WHERE a = 1
        a  CREATE TEMPORARY TABLE t (a INT, v INT)
        a  SELECT RAND() > 2, v FROM t
        a  SELECT v FROM t WHERE a = 2
        b  SELECT RAND() > 2, v FROM t
        b+ SELECT v FROM t WHERE a = 1
        a  DROP TEMPORARY TABLE t
        a  SELECT RAND() > 2, v FROM t
        a  SELECT v FROM t WHERE a = 2
    """)


def test_answers_that_are_not_plain_are_the_same(world: World) -> None:
    """Errors, warnings, and more than comes at once."""
    world.compare(f"""
        a  {MAKE}
        a  SELECT RAND() > 2, (SELECT a FROM t WHERE v < 'y')
        a  SELECT RAND() > 2, (SELECT a FROM t WHERE v < 'y')
        a  SELECT RAND() > 2, (SELECT a FROM t WHERE v < 'z')
        a  SHOW WARNINGS
        a  SELECT RAND() > 2, (SELECT a FROM t WHERE v < 'y')
        a  SHOW WARNINGS
        a  SELECT RAND() > 2, CAST('1' AS SIGNED)
        a  SELECT RAND() > 2, CAST('x' AS SIGNED)
        a  SHOW WARNINGS
        a  SELECT RAND() > 2, CAST('2' AS SIGNED)
        a  SHOW WARNINGS
        a  SELECT RAND() > 2, REPEAT('x', 10)
        a  SELECT RAND() > 2, REPEAT('x', 1000000)
        a  SELECT RAND() > 2, REPEAT('x', 1000000)
        a  SELECT FOUND_ROWS()
        a  SELECT RAND() > 2, v FROM t
        a  SELECT RAND() > 2, v FROM t
        a  SELECT FOUND_ROWS()
        a  SELECT v FROM t WHERE a = 1
        a+ SELECT v FROM t WHERE a = 1
        a  SELECT RAND() > 2, v FROM t
        a  SELECT FOUND_ROWS()
        a  SELECT RAND() > 2, CAST('x' AS SIGNED)
        a+ SELECT v FROM t WHERE a = 1
        a  .option 0
    """)


def test_settings_that_are_made_again_are_the_sessions(world: World) -> None:
    turn = """
        a  SET NAMES latin1
        a  SELECT 'é', v FROM t
        a  SELECT RAND() > 2, 'é', v FROM t
        a  SET NAMES utf8mb4
        a  SELECT 'é', v FROM t
        a  SELECT RAND() > 2, 'é', v FROM t
        a  SET SESSION sql_mode = 'ANSI_QUOTES'
        a  SELECT v AS "v" FROM t
        a  SET SESSION sql_mode = ''
        a  SELECT v AS "v" FROM t
        a  SET autocommit = 0
        a  UPDATE t SET v = CONCAT(v, '.')
        b  SELECT v FROM t
        a  SET autocommit = 1
        b  SELECT v FROM t
    """
    world.compare(f"        a  {MAKE}" + turn * 3)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", "BEGIN", "SET autocommit = 1"])
def test_what_a_transaction_wrote_is_seen_after_its_end_each_time(world: World, end: str) -> None:
    turn = f"""
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  BEGIN
        a  SELECT RAND() > 2, v FROM t
        a  UPDATE t SET v = CONCAT(v, '!') WHERE a = 1
        a  SELECT RAND() > 2, v FROM t
        a  SELECT v FROM t
        b  SELECT v FROM t
        a  {end}
        b  SELECT v FROM t
        a  COMMIT
        b  SELECT v FROM t
        a  BEGIN
        a  SELECT v FROM t
        a  {end}
        a  COMMIT
    """
    world.compare(f"        a  {MAKE}" + turn * 3)


@pytest.mark.parametrize(
    "read", ["SELECT RAND() > 2, a FROM u", "SELECT RAND() > 2, CAST('x' AS SIGNED) FROM u"]
)
@pytest.mark.parametrize("begin", ["SET autocommit = 0", "BEGIN"])
@pytest.mark.parametrize("level", ["REPEATABLE READ", "READ COMMITTED"])
def test_a_query_that_is_passed_on_begins_the_transaction(
    world: World, read: str, begin: str, level: str
) -> None:
    turn = f"""
        b  {begin}
        b  {read}
        w  UPDATE t SET v = CONCAT(v, '!')
        w  SELECT v FROM t
        w+ SELECT v FROM t
        b  SELECT v FROM t
        b  COMMIT
    """
    world.compare(
        f"""
        a  {MAKE}; CREATE TABLE u (a INT); INSERT INTO u VALUES (1)
        b  SET SESSION TRANSACTION ISOLATION LEVEL {level}
        w  SET SESSION TRANSACTION ISOLATION LEVEL {level}
        w  SELECT v FROM t
        w+ SELECT v FROM t"""
        + turn * 3
    )


def test_what_was_prepared_is_executed_alike_each_time(world: World) -> None:
    execute = """
        a  .execute p #1
        a  .execute q #1
        a  .execute p #2
        a  .execute q 2
        a  .execute p #1
        a  .execute q NULL
        a  .execute p #99
    """
    turn = f"""
        {execute}
        a  BEGIN
        {execute}
        a  UPDATE t SET v = CONCAT(v, '?')
        {execute}
        a  COMMIT
        a  ALTER TABLE t ADD COLUMN w{{}} INT
    """
    world.compare(
        f"        a  {MAKE}"
        + """
        a  .prepare p SELECT v, RAND() > 2 FROM t WHERE a = ?
        a  .prepare q SELECT v FROM t WHERE a = ?"""
        + turn.format(1)
        + turn.format(2)
    )


def test_a_query_that_is_killed_ends_as_it_does_directly(world: World) -> None:
    session: Any = world.proxy.connect()
    with closing(world.upstream.connect()) as admin, closing(session):
        cursor = session.cursor()
        for _ in range(3):
            cursor.execute("SELECT SLEEP(0), CONNECTION_ID()")
        ((_, number),) = cursor.fetchall()
        session._execute_command(COMMAND.COM_QUERY, "SELECT SLEEP(9), CONNECTION_ID()")
        running = "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(9)%'"
        wait_until(lambda: bool(world.upstream.sql(running)), 5, "the query runs")
        admin.cursor().execute(f"KILL {number}")
        with pytest.raises(pymysql.err.OperationalError):
            session._read_query_result()
