"""What decides an answer, or is written, without a word of it in the text that does so."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlcache.demo.servers import PrivateSqlServer
from tests.integration.scripts import World

DOC = "'<a><b>X</b><b>Y</b></a>'"
XPATHS = {
    "extract": f"SELECT ExtractValue({DOC}, '//b[$@i]'), v FROM t",
    "update": f"SELECT UpdateXML({DOC}, '//b[$@i]', '<c/>'), v FROM t",
    "computed": f"SELECT v FROM t WHERE ExtractValue({DOC}, CONCAT('//b[$', '@i]')) = 'Y'",
    "of a view": "SELECT * FROM seen",
}


@pytest.mark.parametrize("read", XPATHS.values(), ids=XPATHS)
def test_an_xpath_reads_user_variables(world: World, read: str) -> None:
    world.compare(
        f"""
        m  CREATE TABLE t (v INT); INSERT INTO t VALUES (1)
        m  CREATE VIEW seen AS SELECT ExtractValue({DOC}, '//b[$@i]') AS e, v FROM t
        a  SET @i = 1
        b  SET @i = 2
        a  {read}
        b  {read}
        b  SET @i = 1
        b  {read}
        """
    )


def test_an_xpath_may_be_a_parameter_and_compute_a_column(world: World) -> None:
    column = f"e VARCHAR(9) AS (ExtractValue({DOC}, '//b[$@i]')) VIRTUAL"
    computed = "" if world.is_mariadb else f", {column}"  # which MariaDB refuses
    world.compare(
        f"""
        m  CREATE TABLE t (v INT{computed}); INSERT INTO t (v) VALUES (1)
        a  SET @i = 1
        b  SET @i = 2
        a  .prepare p SELECT ExtractValue({DOC}, ?), v FROM t
        b  .prepare p SELECT ExtractValue({DOC}, ?), v FROM t
        a  .execute p //b[$@i]
        a  .execute p //b[$@i]
        b  .execute p //b[$@i]
        a  SELECT * FROM t
        b  SELECT * FROM t
        """
    )


def test_a_time_of_before_is_not_taken_for_the_same_one_in_another_zone(world: World) -> None:
    if not world.is_mariadb:
        pytest.skip("MySQL has no versions of rows")
    ((now,),) = world.upstream.sql("SELECT UTC_TIMESTAMP() + INTERVAL 1 MINUTE")
    world.compare(
        f"""
        m  CREATE TABLE t (v INT) WITH SYSTEM VERSIONING; INSERT INTO t VALUES (1)
        a  SET time_zone = '-03:00'
        a  SET system_versioning_asof = '{now}'
        a  SET time_zone = '+05:00'
        a  SELECT * FROM t
        b  SET time_zone = '+05:00'
        b  SET system_versioning_asof = '{now}'
        b  SELECT * FROM t
        """
    )


@pytest.mark.parametrize(
    "names",
    ["SET NAMES utf8", "SET NAMES utf8 COLLATE utf8_bin", "SET character_set_results = utf8"],
)
def test_a_character_set_is_the_one_that_its_name_meant_then(world: World, names: str) -> None:
    if not world.is_mariadb:
        pytest.skip("MySQL has no old_mode")
    read = "SELECT CHARSET('x'), v FROM t"
    world.compare(
        f"""
        m  CREATE TABLE t (v VARCHAR(9)); INSERT INTO t VALUES ('x')
        a  {names}
        a  SET old_mode = ''
        b  SET old_mode = ''
        b  {names}
        c  SET old_mode = ''
        c  {names}
        c  SET old_mode = 'UTF8_IS_UTF8MB3'
        d  {names}
        a  {read}
        b  {read}
        c  {read}
        d  {read}
        """
    )


NEST = f"{'(' * 61}1{')' * 61}"
MANY = ", ".join(f"c{number} AS (SELECT 1)" for number in range(61))
UNREAD = {
    "a query": f"SELECT {NEST} + n FROM w",
    "an expression": f"DO (SELECT {NEST} + n FROM w LIMIT 1)",
    "a variable": f"SET @x = (SELECT {NEST} + n FROM w LIMIT 1)",
    "an insert": f"INSERT INTO x SELECT {NEST} + n FROM w",
    "a call": f"CALL noop((SELECT {NEST} + n FROM w LIMIT 1))",
    "many expressions": f"SELECT * FROM (WITH {MANY} SELECT 1 FROM c1) d JOIN w",
}
RETURNS = {
    "delete": "DELETE FROM x RETURNING (SELECT n FROM w LIMIT 1)",
    "insert": "INSERT INTO x SELECT 5 FROM u RETURNING (SELECT MAX(n) FROM w)",
    "replace": "REPLACE INTO x SELECT 5 FROM u RETURNING (SELECT MAX(n) FROM w)",
}
WRITING_VIEW = """
        m  CREATE TABLE t (v INT); CREATE TABLE u (a INT); CREATE TABLE x (a INT)
        m  INSERT INTO u VALUES (1), (2); INSERT INTO x VALUES (1)
        m  CREATE FUNCTION f(n INT) RETURNS INT DETERMINISTIC BEGIN INSERT INTO t VALUES (n);
           SET time_zone = '+05:00'; RETURN n; END
        m  CREATE PROCEDURE noop(n INT) BEGIN END
        m  CREATE VIEW w AS SELECT f(a + 80) AS n FROM u"""


@pytest.mark.parametrize("write", UNREAD.values(), ids=UNREAD)
def test_what_is_not_read_to_its_end_may_write_by_any_view_that_it_names(
    world: World, write: str
) -> None:
    world.compare(
        f"""{WRITING_VIEW}
        b  SELECT * FROM t
        b  SELECT * FROM t
        w  SELECT FROM_UNIXTIME(0), a FROM u
        w  {write}
        b  SELECT * FROM t
        w  SELECT FROM_UNIXTIME(0), a FROM u
        w  BEGIN
        w  SELECT * FROM t
        w  {write}
        w  SELECT * FROM t
        w  COMMIT
        b  SELECT * FROM t
        """
    )


@pytest.mark.parametrize("write", RETURNS.values(), ids=RETURNS)
def test_what_a_write_returns_may_be_asked_of_a_view_that_writes(world: World, write: str) -> None:
    if not world.is_mariadb:
        pytest.skip("MySQL has no RETURNING")
    world.compare(
        f"""{WRITING_VIEW}
        b  SELECT * FROM t
        b  SELECT * FROM t
        w  {write}
        b  SELECT * FROM t
        """
    )


def test_a_name_with_characters_that_mysql_does_not_know_is_another_tables(world: World) -> None:
    read = "SELECT * FROM `t?`"
    writes = (
        "INSERT INTO `t\N{GRINNING FACE}` VALUES (2)",
        "UPDATE `t\N{MUSICAL SYMBOL G CLEF}` SET v = 3",
        "DELETE FROM `t\N{GRINNING FACE}` WHERE v = 3",
    )
    steps = "".join(f"\n        w  {write}\n        b  {read}" for write in writes)
    world.compare(
        f"""
        m  CREATE TABLE `t?` (v INT); INSERT INTO `t?` VALUES (1)
        b  {read}
        b  {read}{steps}
        """
    )


def test_a_view_among_the_rights_may_write(upstream: PrivateSqlServer, tmp_path: Path) -> None:
    """In a world of its own: while it is there, nobody knows what rights sessions have."""
    with World(upstream, tmp_path) as world:
        try:
            world.compare(
                """
                m  CREATE TABLE t (v INT)
                m  CREATE FUNCTION f(n INT) RETURNS INT DETERMINISTIC BEGIN
                   INSERT INTO t VALUES (n); RETURN n; END
                m  CREATE OR REPLACE VIEW mysql.hv AS SELECT {db}.f(99) AS n
                b  SELECT * FROM t
                b  SELECT * FROM t
                w  SELECT * FROM mysql.hv
                b  SELECT * FROM t
                """
            )
        finally:
            upstream.sql("DROP VIEW IF EXISTS mysql.hv")


CALLING = "SELECT ROUND(1.5, counted())"


@pytest.mark.parametrize(
    "step",
    [
        f"PREPARE s FROM '{CALLING}'",
        f"SET @q = '{CALLING}'; PREPARE s FROM @q",
        "PREPARE s FROM 'SELECT * FROM seen'",
        "PREPARE s FROM 'UPDATE u SET v = ROUND(1.5, counted()) WHERE v = 2'",
        f".prepare s {CALLING}",
        ".prepare s INSERT INTO changed (v) VALUES (5)",
        ".prepare s SELECT * FROM seen",
        f"CREATE VIEW made AS {CALLING}",
        f"ALTER VIEW again (n) AS {CALLING}",
        "CREATE OR REPLACE VIEW again AS SELECT * FROM seen",
    ],
)
def test_a_function_may_be_called_when_a_query_is_prepared(world: World, step: str) -> None:
    """MariaDB does so to know its columns. What it writes is in a schema of its own: definitions
    forget all that is in theirs. And what sqlcache itself asks for views runs their functions."""
    world.compare(
        f"""
        m  CREATE DATABASE {{db}}_far; CREATE TABLE {{db}}_far.t (v INT)
        m  INSERT INTO {{db}}_far.t VALUES (0); CREATE TABLE u (v INT)
        m  CREATE FUNCTION counted() RETURNS INT DETERMINISTIC
            BEGIN IF USER() LIKE 'app@%' THEN UPDATE {{db}}_far.t SET v = v + 1; END IF;
            RETURN 1; END
        m  CREATE VIEW seen AS {CALLING}; CREATE VIEW again AS SELECT 1
        m  CREATE VIEW changed AS SELECT v, ROUND(1.5, counted()) AS n FROM u
        a  SELECT * FROM {{db}}_far.t
        a  SELECT * FROM {{db}}_far.t
        a+ SELECT * FROM {{db}}_far.t
        w  {step}
        a  SELECT * FROM {{db}}_far.t
        w  UPDATE {{db}}_far.t SET v = 0
        a  SELECT * FROM {{db}}_far.t
        a+ SELECT * FROM {{db}}_far.t
        w  {step.replace("VIEW made", "VIEW another")}
        a  SELECT * FROM {{db}}_far.t
        """
    )


@pytest.mark.parametrize(
    "step",
    [
        ".prepare s SELECT nothing FROM t WHERE",
        ".prepare s SELECT v FROM t WHERE v = ?",
        ".prepare s INSERT INTO u VALUES (?)",
        "PREPARE s FROM 'INSERT INTO u VALUES (1)'",
        "CREATE OR REPLACE VIEW again AS SELECT v + 1 FROM u",
    ],
)
def test_what_calls_none_forgets_nothing_when_it_is_prepared(world: World, step: str) -> None:
    """For all the functions that there are. The answers are of another schema: a view is made in
    its own."""
    world.compare(
        f"""
        m  CREATE DATABASE {{db}}_far; CREATE TABLE {{db}}_far.t (v INT)
        m  INSERT INTO {{db}}_far.t VALUES (0); CREATE TABLE u (v INT); CREATE TABLE t (v INT)
        m  CREATE FUNCTION counted() RETURNS INT DETERMINISTIC RETURN 1
        m  CREATE VIEW again AS SELECT 1
        a  SELECT * FROM {{db}}_far.t
        a  SELECT * FROM {{db}}_far.t
        a+ SELECT * FROM {{db}}_far.t
        w  {step}
        a+ SELECT * FROM {{db}}_far.t
        """
    )


@pytest.mark.parametrize("step", [f".prepare s {CALLING}", f"PREPARE s FROM '{CALLING}'"])
@pytest.mark.parametrize("error", [None, 1142, 1305])
def test_what_is_called_when_a_query_is_prepared_may_write_in_a_transaction_or_fail(
    world: World, step: str, error: int | None
) -> None:
    """Such a failure proves nothing: MariaDB takes back none of what was written before it."""
    fails = "" if error is None else f"SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = {error};"
    reads = ["SELECT * FROM {db}_far.t"] * 2
    steps = [step, *reads, "BEGIN", "SELECT 1", step, *reads, "COMMIT", *reads]
    first = f"""
        m  CREATE DATABASE {{db}}_far; CREATE TABLE {{db}}_far.t (v INT)
        m  INSERT INTO {{db}}_far.t VALUES (0)
        m  CREATE FUNCTION counted() RETURNS INT DETERMINISTIC
            BEGIN IF USER() LIKE 'app@%' THEN UPDATE {{db}}_far.t SET v = v + 1; {fails} END IF;
            RETURN 1; END
        a  SELECT * FROM {{db}}_far.t
        a  SELECT * FROM {{db}}_far.t
        a+ SELECT * FROM {{db}}_far.t
"""
    for each in steps:
        first += f"        {'a' if each in reads else 'w'}  {each}\n"
    world.compare(first + "        a+ SELECT * FROM {db}_far.t")
