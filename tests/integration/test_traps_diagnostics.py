"""Traps of sessions: after a hit errors, warnings and flags are those there are after an answer."""

from __future__ import annotations

import pytest

from sqlcache.mysql.constants import Command
from tests.integration.scripts import World
from tests.integration.sessions import MAKE

FAILS = (
    *("SELECT nothing FROM t", "INSERT INTO t (a) VALUES (1), (1)", "SET nosuch = 1", "SELEC"),
    *("DROP TABLE nosuch", "CALL nosuch()", "UPDATE t SET nothing = 1"),
)
ASKS = (
    *("SELECT FOUND_ROWS(), 1", "SELECT FOUND_ROWS() + 1 AS n", "SET @n = FOUND_ROWS()"),
    *("SELECT FOUND_ROWS(), ROW_COUNT()", "SELECT IF(FOUND_ROWS() > 1, 'y', 'n')"),
    *("SELECT @@warning_count, FOUND_ROWS()", "SELECT FOUND_ROWS(), @@error_count"),
)


@pytest.mark.parametrize("asks", ASKS)
@pytest.mark.parametrize("limit", ["LIMIT 0", "LIMIT 1", ""])
def test_trap_07_who_asks_for_found_rows_among_others_leaves_errors(
    world: World, asks: str, limit: str
) -> None:
    """And is told of them, though the server runs first what it has missed."""
    read = f"SELECT v FROM t ORDER BY a {limit}"
    steps = [f"a  {MAKE}"]
    for number, fails in enumerate(FAILS):
        said = read, "DO 1", read, fails, asks, "SELECT @n", "SHOW WARNINGS", "SELECT FOUND_ROWS()"
        steps += [f"a{number}{'+' if each == 2 else ' '} {said[each]}" for each in range(len(said))]
    world.compare("\n".join(steps))


@pytest.mark.parametrize("between", ["UNLOCK TABLES", "FLUSH STATUS", "COMMIT", "SET @x = 1"])
def test_trap_07_what_counts_no_rows_leaves_errors_as_they_were(world: World, between: str) -> None:
    """After a hit whose FOUND_ROWS() the server does not know."""
    world.compare(f"""
        a  {MAKE}
        a  SELECT v FROM t
        a  DO 0
        a+ SELECT v FROM t
        a  INSERT INTO no_such VALUES (1)
        a  {between}
        a  SHOW ERRORS
        a  SELECT FOUND_ROWS()
    """)


def test_trap_07_diagnostics_after_a_hit_are_those_of_the_query(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  UPDATE t SET v = v WHERE a = 1
        a  SELECT ROW_COUNT()
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  SELECT ROW_COUNT(), FOUND_ROWS()
        a  SELECT 1 / 0, CAST('x' AS SIGNED)
        a+ SELECT v FROM t
        a  SHOW WARNINGS
        a  SELECT CAST('x' AS SIGNED)
        a+ SELECT v FROM t
        a  SELECT @@warning_count
        a  SELECT CAST('x' AS SIGNED)
        a+ SELECT v FROM t
        a  .ping
        a  SHOW COUNT(*) WARNINGS
        a  SELECT CAST('x' AS SIGNED)
        a+ SELECT v FROM t
        a  GET DIAGNOSTICS @n = NUMBER
        a  SELECT @n
        a+ SELECT v FROM t
        a  SET @x = 1
        a  SELECT ROW_COUNT()
        a+ SELECT v FROM t
        a  DELETE FROM t WHERE a = 3
        a  SELECT ROW_COUNT()
        a  SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1
        a  SELECT FOUND_ROWS()
        a+ SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1
        a+ SELECT FOUND_ROWS()
    """)


@pytest.mark.parametrize("fails", [False, True])
def test_trap_07_to_get_diagnostics_leaves_them(world: World, fails: bool) -> None:
    """A handler of errors asks for them first."""
    ran = "SELECT nope" if fails else "SET @x = 1"
    for _ in range(3):
        world.compare(f"""
            a  {MAKE}
            a  SELECT v FROM t
            a+ SELECT v FROM t
            a  {ran}
            a  GET DIAGNOSTICS @n = NUMBER
            a  SELECT ROW_COUNT(), FOUND_ROWS()
            a+ SELECT v FROM t
            a  {ran}
            a  GET DIAGNOSTICS @n = NUMBER
            a  GET DIAGNOSTICS @r = ROW_COUNT
            a  SELECT ROW_COUNT(), @n, @r
        """)


def test_trap_07_the_warning_of_a_count_made_up_for_goes_with_the_next_hit(world: World) -> None:
    world.compare("""
        a  CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2)
        b  SELECT SQL_CALC_FOUND_ROWS a FROM t LIMIT 1
        b  SELECT a FROM t
        b+ SELECT SQL_CALC_FOUND_ROWS a FROM t LIMIT 1
        b  .ping
        b+ SELECT a FROM t
        b  .option 0
    """)


@pytest.mark.parametrize(
    "asked", ["SHOW COUNT(*) WARNINGS", "SHOW WARNINGS", "SELECT FOUND_ROWS()", ".ping"]
)
@pytest.mark.parametrize(
    "prepared", ["SELECT SQL_CALC_FOUND_ROWS a FROM t", "SELECT a FROM t", "SELECT nothing FROM t"]
)
@pytest.mark.parametrize("hit", ["SELECT a FROM t", "SELECT SQL_CALC_FOUND_ROWS a FROM t LIMIT 1"])
def test_trap_07_after_a_hit_a_prepare_leaves_warnings_of_its_own(
    world: World, hit: str, prepared: str, asked: str
) -> None:
    world.compare(f"""
        a  CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2)
        b  {hit}
        b+ {hit}
        b  .prepare p {prepared}
        b  {asked}
        b  {asked}
        b+ {hit}
        b  .prepare q {prepared}
        b  SELECT a, RAND() > 2 FROM t
        b  {asked}
    """)


def test_trap_07_a_hit_takes_away_what_a_count_warned_of(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT v FROM t
        b  SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1
        b+ SELECT v FROM t
        b  .use {{db}}
        c+ SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1
        c+ SELECT v FROM t
        c  .use {{db}}
        c+ SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1
        c  SELECT FOUND_ROWS()
        c+ SELECT v FROM t
        c  .use {{db}}
    """)


def test_trap_07_a_hit_takes_away_what_a_prepare_warned_of(world: World) -> None:
    """Of SQL_CALC_FOUND_ROWS, on MySQL."""
    world.compare(f"""
        a  {MAKE}
        a  SELECT v FROM t
        b  .prepare s SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1
        b+ SELECT v FROM t
        b  .use {{db}}
        b  SHOW WARNINGS
    """)


def test_trap_07_a_count_that_gave_another_warning_is_not_kept(world: World) -> None:
    count = "SELECT SQL_CALC_FOUND_ROWS v + 1 FROM t LIMIT 1"
    world.compare(f"""
        a  {MAKE}
        a  {count}
        a  SHOW WARNINGS
        a  {count}
        a  SHOW WARNINGS
        a  SELECT FOUND_ROWS()
        a  SET max_error_count = 0
        a  {count}
        a  SELECT FOUND_ROWS()
    """)


def test_trap_07_diagnostics_of_what_came_after_a_hit_stay(world: World) -> None:
    world.compare("""
        a  CREATE TABLE t (v TINYINT); INSERT INTO t VALUES (1), (2), (3)
        a  SET sql_mode = ''
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  INSERT INTO t VALUES (999)
        a  SHOW WARNINGS
        a  SELECT FOUND_ROWS()
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  SELECT nosuch FROM t
        a  SHOW WARNINGS
        a  SHOW COUNT(*) ERRORS
        a  SELECT v FROM t
        a  SHOW ERRORS
        a  SELECT FOUND_ROWS()
    """)


@pytest.mark.parametrize("rows", [0, 1, 3, 27])
def test_trap_07_what_sqlcache_asks_the_server_changes_no_diagnostics(
    world: World, rows: int
) -> None:
    """It asks for the settings when a statement may have changed them in a way it cannot follow."""
    steps = [
        f"a  {MAKE}; CREATE TABLE u (a INT)",
        "a  INSERT INTO u WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n"
        f" WHERE i < {rows}) SELECT i FROM n WHERE i <= {rows}",
    ]
    for between in ("DO 0", "SET @x = 2", "UPDATE t SET v = v", "COMMIT", ".prepare s DO 0"):
        steps += [
            "a  SELECT a FROM u",
            "a  SET sql_mode = CONCAT(@@sql_mode, '')",
            f"a  {between}",
            "a  SELECT FOUND_ROWS(), LAST_INSERT_ID()",
            "a  SELECT FOUND_ROWS()",
        ]
    steps += ["a  SET NAMES swe7", "a  SELECT a FROM u", "a  DROP TABLE no_such"]
    world.compare("\n".join([*steps, "a  SELECT FOUND_ROWS()"]))


def test_trap_07_what_fails_after_a_hit_leaves_its_error(world: World) -> None:
    steps = [f"a  {MAKE}", "a  SELECT v FROM t"]
    for failing in (".prepare s SELECT no_such FROM t", ".use no_such"):
        for asking in ("SHOW WARNINGS", "SELECT @@error_count", ".ping"):
            steps += ["a+ SELECT v FROM t", f"a  {failing}", f"a  {asking}"]
    steps += ["a+ SELECT v FROM t", "a  SET sql_mode = 'NO_SUCH'", "a  SHOW WARNINGS"]
    steps += ["a  .execute none"] * 2 + ["a  SHOW COUNT(*) WARNINGS"]
    steps += ["a  SET ROLE NONE", "a  SELECT ROW_COUNT()"]
    steps += ["a  ROLLBACK TO SAVEPOINT s", "a  .execute none", "a  SHOW WARNINGS"]
    world.compare("\n".join(steps))


@pytest.mark.parametrize("asked", [".execute s", "SELECT FOUND_ROWS()"])
@pytest.mark.parametrize(
    "failing",
    [".prepare p SELEC", ".prepare p SELECT no_such FROM t", ".use no_such", "SET sql_mode = 'NO'"],
)
def test_trap_07_what_fails_after_a_hit_leaves_its_error_also_where_its_rows_are_asked_for(
    world: World, failing: str, asked: str
) -> None:
    """MariaDB keeps it for what comes after that."""
    world.compare(f"""
        a  {MAKE}
        a  .prepare s SELECT FOUND_ROWS()
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  {failing}
        a  {asked}
        a  SHOW WARNINGS
        a  .execute s
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  {failing}
        a  .ping
        a  .execute s
        a  {asked}
        a  SHOW WARNINGS
    """)


@pytest.mark.parametrize("dump", [Command.BINLOG_DUMP, Command.BINLOG_DUMP_GTID])
def test_trap_07_a_binlog_dump_that_is_refused_leaves_its_error(
    world: World, dump: Command
) -> None:
    """On MariaDB to what comes after that, too; and not to what comes after a hit."""
    world.compare(f"""
        a  {MAKE}
        a  CREATE USER '{{user}}' IDENTIFIED BY 'p'; GRANT ALL ON {{db}}.* TO '{{user}}'
        b  .login {{user}} {{db}}
        b  SELECT v FROM t
        b  SELECT no_such FROM t
        b+ SELECT v FROM t
        b  .command {int(dump)}
        b  SHOW WARNINGS
        b  SELECT FOUND_ROWS()
        b+ SELECT v FROM t
        b  .command {int(dump)}
        b  SELECT FOUND_ROWS()
        b  SHOW WARNINGS
        b  UPDATE t SET v = 'new'
        b  .command {int(dump)}
        b  SELECT ROW_COUNT()
        b  SELECT v FROM t
        b  .command {int(dump)}
        b+ SELECT v FROM t
        b  .ping
        b  SHOW WARNINGS
    """)


@pytest.mark.parametrize(
    "then",
    [
        "/*!99999 UPDATE t SET v = 'y' */ SELECT 1",
        "/*!99999 UPDATE t SET v = 'y' */ SELECT v FROM t",
        "/*!99999 UPDATE t SET v = 'y' */ SELECT MAX(a) FROM none WHERE a = 1",
        "SELECT 1 /*!99999 , 2 */",
        "SELECT MAX(1)",
        "VALUES (1), (2), (3)",
        "EXECUTE one",
        ".execute one",
    ],
)
def test_trap_07_what_follows_a_hit_and_an_error_takes_neither_away(
    world: World, then: str
) -> None:
    """The error stays on MariaDB where no table is read, FOUND_ROWS() where no rows are counted."""
    steps = [f"a  {MAKE}; CREATE TABLE none (a INT) ENGINE=MyISAM"]
    for session, asks in (("b", "SHOW WARNINGS"), ("c", "SELECT FOUND_ROWS()")):
        steps += ["d  SELECT v FROM t", "d  SELECT v FROM t WHERE a = 1"]
        steps += [f"{session}  PREPARE one FROM 'SELECT 1'", f"{session}  .prepare one SELECT 1"]
        steps += [f"{session}+ SELECT v FROM t WHERE a = 1", f"{session}+ SELECT v FROM t"]
        steps += [f"{session}  {text}" for text in ("SELECT v FROM missing", then, asks)]
    world.compare("\n".join(steps))


@pytest.mark.parametrize("what", ["PRIVILEGES", "STATUS", "TABLES", "TABLES t"])
def test_trap_07_a_flush_leaves_what_it_finds(world: World, what: str) -> None:
    """It runs no query, and on MariaDB the error before it stays."""
    read, warns = "SELECT v FROM t", "SELECT CAST('x' AS SIGNED), RAND() > 2"
    counts = "SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1"
    befores = [
        [read],
        [read, "SELECT v FROM t PARTITION (p0)"],
        [read, warns],
        [warns, read],
        [counts],
        [counts, "SELECT v FROM t PARTITION (p0)"],
        ["UPDATE u SET a = a + 1", read],
    ]
    asked = ["SHOW ERRORS", "SHOW WARNINGS", "SELECT FOUND_ROWS()", "SELECT ROW_COUNT()"]
    steps = [
        f"a  {text}"
        for before in befores
        for asks in asked
        for text in (read, counts, *before, f"FLUSH {what}", asks, "SELECT FOUND_ROWS()")
    ]
    made = f"a  {MAKE}; CREATE TABLE u (a INT); INSERT INTO u VALUES (1)"
    world.compare("\n".join([made, *steps]))


@pytest.mark.parametrize("charset", ["utf8mb4", "utf16"])
def test_trap_07_found_rows_leaves_the_error_that_came_after_a_hit(
    world: World, charset: str
) -> None:
    """MariaDB keeps it, and FOUND_ROWS() is that of the hit before it."""
    read = "SELECT v FROM t"
    failing = "SELECT d.* FROM (SELECT v, v FROM t) AS d"
    steps = [f"a  SET character_set_results = {charset}", f"a  {read}"]
    for asks in ("SHOW ERRORS LIMIT 1", "SHOW WARNINGS", "SELECT FOUND_ROWS()", ".ping"):
        for before in ([], ["SELECT FOUND_ROWS()"]):
            texts = [*before, failing, "SELECT FOUND_ROWS()", asks]
            steps += [f"a+ {read}", *(f"a  {text}" for text in texts)]
    world.compare("\n".join([f"a  {MAKE}", *steps]))


def test_trap_11_warnings_stay_while_sqlcache_wants_to_know_the_settings(world: World) -> None:
    """Statements that read no table keep them, and a question of sqlcache's own would not."""
    world.compare(f"""
        a  {MAKE}
        a  SET @@sql_mode = CONCAT(@@sql_mode, ''), nosuch = 1
        a  START TRANSACTION
        a  SHOW WARNINGS
        a  SET nosuch = 1
        a  SELECT 'a' UNION SELECT 'b'
        a  SHOW COUNT(*) WARNINGS
    """)


def test_trap_11_the_states_of_transactions_are_told_to_who_asked_for_them(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  SET session_track_transaction_info = 'STATE'
        a  BEGIN
        a  SELECT v FROM t
        a  COMMIT AND CHAIN
        a  SELECT v FROM t
        a  SET NAMES 'utf8'
        a  COMMIT
        a  SET session_track_transaction_info = 'OFF'
        a  SELECT v FROM t
        a+ SELECT v FROM t
    """)


def test_trap_11_errors_stay_through_statements_that_read_no_table(world: World) -> None:
    """MariaDB's do; a setting that sqlcache cannot follow comes first, so that it wants to ask."""
    world.compare(f"""
        a  {MAKE}
        a  SELECT v FROM t WHERE a > ALL (SELECT a FROM nonesuch)
        a  SET SESSION eq_range_index_dive_limit = 0
        a  SELECT CURRENT_ROLE()
        a  SHOW COUNT(*) ERRORS
        a  SELECT v FROM t
        a  SHOW COUNT(*) ERRORS
    """)


def test_trap_11_warnings_and_status_flags_are_the_sessions_own(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT CAST(v AS SIGNED) FROM t
        a  SHOW WARNINGS
        b  SELECT CAST(v AS SIGNED) FROM t
        b  SHOW WARNINGS
        a  SELECT v FROM t WHERE a = 1
        a+ SELECT v FROM t WHERE a = 1
        b  SET autocommit = 0
        b  SELECT v FROM t WHERE a = 1
        b  COMMIT
        b  SELECT c FROM t WHERE a = 2
        a  SELECT c FROM t WHERE a = 2
        b  COMMIT
        b  SET autocommit = 1
        b+ SELECT v FROM t WHERE a = 1
        c  START TRANSACTION READ ONLY
        c  SELECT at FROM t WHERE a = 2
        a  SELECT at FROM t WHERE a = 2
        c  COMMIT
        c  SELECT at FROM t WHERE a = 2
        d  SET sql_mode = 'NO_BACKSLASH_ESCAPES'
        d  SELECT v FROM t WHERE a = 1
        d+ SELECT v FROM t WHERE a = 1
        a+ SELECT v FROM t WHERE a = 1
    """)
