"""Traps of sessions: two that ask the same may be due different answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import PrivateMemcached, PrivateSqlServer, wait_until
from sqlcache.mysql.constants import Command
from tests.conftest import ProxyFactory
from tests.integration.scripts import World

CHARACTER_SETS = (
    "@@character_set_client, @@character_set_connection, @@character_set_results,"
    " @@collation_connection"
)
MEGABYTE = 1 << 20
MAKE = (
    "CREATE TABLE t (a INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20), c CHAR(5),"
    " at TIMESTAMP NULL);"
    " INSERT INTO t VALUES (1, 'x', 'a', '2020-06-01 12:00:00'), (2, 'é', 'b', NULL),"
    " (3, 'X', 'A', '2021-01-03 12:00:00')"
)


@pytest.fixture(scope="module")
def world(upstream: PrivateSqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(upstream, tmp_path_factory.mktemp("world")) as started:
        yield started


def test_trap_03_the_collation_in_column_definitions_is_the_sessions_own(world: World) -> None:
    """No variable tells of it: it comes of how character_set_results was set."""
    ways = [
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
        "SET character_set_results = 'utf8mb4'",
        "SET character_set_results = CONCAT('utf8', 'mb4')",
        "SET @cs = 'utf8mb4'; SET character_set_results = @cs",
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin; SET optimizer_switch = @@optimizer_switch",
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin; SET character_set_results = CONCAT('utf8', 'mb4')",
        "SET character_set_results = NULL",
        "SET character_set_results = DEFAULT",
    ]
    steps = [f"a  {MAKE}", "a  SELECT v FROM t"]
    for number, way in enumerate(ways):
        steps += [f"s{number}  {way}", f"s{number}  SELECT v FROM t", f"s{number}+ SELECT v FROM t"]
    world.compare("\n".join(steps))


@pytest.mark.parametrize(
    "read",
    [
        "SELECT x.v, COLLATION(x.v), x.v = 'E' FROM t,"
        " JSON_TABLE(c, '$' COLUMNS (v VARCHAR(9) PATH '$')) AS x",
        "SELECT * FROM w",
        "SELECT CHR(a + 232), COLLATION(CHR(a)) FROM t",
    ],
)
@pytest.mark.parametrize("collation", ["utf8mb4_bin", "latin1_swedish_ci"])
def test_trap_03_a_schema_has_for_its_session_the_collation_of_when_it_was_used(
    world: World, read: str, collation: str
) -> None:
    world.compare(f"""
        a  CREATE TABLE t (a INT PRIMARY KEY, c JSON);
           INSERT INTO t VALUES (1, '"e"')
        a  CREATE VIEW w AS SELECT x.v, COLLATION(x.v) AS n, x.v = 'E' AS e FROM t,
             JSON_TABLE(c, '$' COLUMNS (v VARCHAR(9) PATH '$')) AS x
        a  {read}
        a  {read}
        b  ALTER DATABASE {{db}} COLLATE {collation}
        a  {read}
        a  {read}
        c  {read}
        a  {read}
        b  {read}
        a  USE {{db}}
        a  {read}
    """)


# What the session's settings change.

SETTINGS = [
    ("SET time_zone = '+05:00'", "SELECT at FROM t"),
    ("SET @@session.time_zone = '+05:00'", "SELECT UNIX_TIMESTAMP('2020-01-01'), v FROM t"),
    ("SET @@local.`time_zone` = '+05:00'", "SELECT at FROM t"),
    ("SET LOCAL time_zone := '+05:00', @x = 1", "SELECT at FROM t"),
    ("/*!40103 SET TIME_ZONE='+05:00' */", "SELECT at FROM t"),
    ("SET @tz = '+05:00'; SET time_zone = @tz", "SELECT at FROM t"),
    ("SET time_zone = CONCAT('+05', ':00')", "SELECT at FROM t"),
    ("SET @x = 1, time_zone = (SELECT '+05:00')", "SELECT at FROM t"),
    ("EXECUTE IMMEDIATE 'SET time_zone = ''+05:00'''", "SELECT at FROM t"),
    ("PREPARE s FROM 'SET time_zone = ''+05:00'''; EXECUTE s", "SELECT at FROM t"),
    ("SET time_zone = '+05:00', lc_time_names = 'nowhere'", "SELECT at FROM t"),
    ("SET time_zone = '+05:00'; SELECT no_such FROM t", "SELECT at FROM t"),
    ("SET lc_time_names = 'de_DE'", "SELECT DATE_FORMAT(at, '%M'), MONTHNAME(at) FROM t"),
    ("SET default_week_format = 3", "SELECT WEEK(at) FROM t"),
    ("SET div_precision_increment = 9", "SELECT a / 3, AVG(a) FROM t GROUP BY a"),
    ("SET group_concat_max_len = 4", "SELECT GROUP_CONCAT(REPEAT(v, 9) ORDER BY a) FROM t"),
    ("SET sql_select_limit = 1", "SELECT v FROM t ORDER BY a"),
    ("SET max_sort_length = 4", "SELECT v FROM t ORDER BY a"),
    ("SET sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'", "SELECT LENGTH(c) FROM t"),
    ("SET sql_mode = 'PIPES_AS_CONCAT'", "SELECT v || c FROM t"),
    ("SET sql_mode = 'ansi_quotes'", 'SELECT "v" FROM t'),
    ("SET sql_mode = ANSI_QUOTES", 'SELECT "v" FROM t'),
    ("SET sql_mode = 'ANSI'", 'SELECT "v" || "c", COUNT (a) FROM t GROUP BY v, c ORDER BY v, c'),
    ("SET sql_mode = 4", 'SELECT "v" FROM t'),
    ("SET sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')", 'SELECT "v" FROM t'),
    ("SET sql_mode = 'NO_BACKSLASH_ESCAPES'", r"SELECT '\n', v FROM t"),
    ("SET sql_mode = 'NO_BACKSLASH_ESCAPES'", r"SELECT v FROM t WHERE v <> '\' OR 'b' = '\'"),
    ("SET sql_mode = 'HIGH_NOT_PRECEDENCE'", "SELECT NOT a BETWEEN 2 AND 3 FROM t"),
    ("SET sql_mode = 'ONLY_FULL_GROUP_BY'", "SELECT v, COUNT(*) FROM t GROUP BY c ORDER BY c"),
    ("SET sql_mode = 'ORACLE'", 'SELECT "v" FROM t'),
    ("SET sql_mode = 'MSSQL'", 'SELECT "v" FROM t'),
    ("SET NAMES utf8mb4 COLLATE utf8mb4_bin", "SELECT v FROM t WHERE v = 'x' OR 'a' = 'A'"),
    ("SET collation_connection = 'utf8mb4_bin'", "SELECT 'a' = 'A', v FROM t"),
    ("SET character_set_results = latin1", "SELECT v FROM t"),
    ("SET character_set_results = NULL", "SELECT v, 'é' FROM t"),
    ("SET character_set_connection = latin1", "SELECT CHARSET('x'), v FROM t"),
    ("SET CHARACTER SET latin1", "SELECT v FROM t"),
    ("SET NAMES latin1", "SELECT v FROM t"),
    ("SET NAMES latin1", "SELECT a FROM t WHERE v = 'é'"),
    ("SET character_set_client = latin1", "SELECT a, 'é' FROM t WHERE v <> 'é'"),
    ("SET character_set_client = 5", "SELECT a, 'é' FROM t WHERE v <> 'é'"),
    ("SET NAMES binary", "SELECT v, 'é' FROM t"),
    ("SET NAMES DEFAULT", "SELECT v, 'é' FROM t"),
    ("SET sql_big_selects = 0, max_join_size = 1", "SELECT t.v FROM t, t AS x, t AS y"),
    ("SET optimizer_switch = 'index_merge=off'", "SELECT v FROM t ORDER BY a"),
    ("SET STATEMENT time_zone = '+01:00' FOR SET time_zone = '+05:00'", "SELECT at FROM t"),
    ("SET sql_mode = DEFAULT", "SELECT v FROM t ORDER BY a"),
]
BY_CODE = [
    ("CALL sets()", "SELECT at FROM t"),
    ("SELECT f()", "SELECT at FROM t"),
    ("DO f()", "SELECT at FROM t"),
    ("UPDATE u SET a = f()", "SELECT at FROM t"),
    ("INSERT INTO u VALUES (1)", "SELECT at FROM t"),
    ("SELECT * FROM w", "SELECT at FROM t"),
]
CODE = (
    "CREATE TABLE u (a INT); CREATE PROCEDURE sets() SET time_zone = '+05:00';"
    " CREATE FUNCTION f() RETURNS INT DETERMINISTIC BEGIN SET time_zone = '+05:00'; RETURN 1; END;"
    " CREATE TRIGGER r BEFORE INSERT ON u FOR EACH ROW SET time_zone = '+05:00';"
    " CREATE VIEW w AS SELECT f() FROM t"
)


def parted(first: str, cases: list[tuple[str, str]]) -> str:
    """Each read in a session that is as it began, and in one that a change was made in."""
    begin = "SET time_zone = '+00:00', sql_mode = ''"
    steps = [first]
    for number, (change, read) in enumerate(cases):
        changed = f"s{number}"
        steps += [f"a  {read}", f"{changed}  {begin}", f"{changed}  {read}"]
        steps += [f"{changed}  {change}", f"{changed}  {read}", f"a  {read}", f"{changed}  {read}"]
        steps += [f"{changed}  SHOW VARIABLES WHERE variable_name IN ('time_zone', 'sql_mode')"]
    return "\n".join(step.replace("\n", " ") for step in [f"a  {begin}", *steps])


def test_trap_03_settings_that_change_an_answer_part_its_entries(world: World) -> None:
    world.compare(parted(f"a  {MAKE}", SETTINGS))


def test_trap_03_a_setting_for_writes_may_warn_of_a_query(world: World) -> None:
    """MySQL warns under it of an index that does not help to find what the query asks for."""
    make = "CREATE TABLE t (v CHAR(9), KEY (v)); INSERT INTO t VALUES ('5')"
    read = "SELECT v FROM t WHERE v = 5"
    world.compare(f"""
        a  {make}
        a  {read}
        a+ {read}
        b  SET sql_safe_updates = 1
        b  {read}
        b  SHOW WARNINGS
        b  {read}
        b  SELECT @@warning_count
        b  SET sql_safe_updates = 0
        b  {read}
        b  SHOW WARNINGS
    """)


@pytest.mark.parametrize(
    ("one", "other", "read"),
    [
        (
            "SET character_set_connection = utf8mb4",
            "SET collation_connection = latin1_bin",
            "SELECT COLLATION('x'), 'x' = 'X' FROM t",
        ),
        (
            "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
            "SET character_set_connection = utf8mb4",
            "SELECT COLLATION('x'), 'x' = 'X' FROM t",
        ),
        (
            "SET NAMES utf8mb4",
            "SET default_collation_for_utf8mb4 = utf8mb4_general_ci",
            "SELECT COLLATION('x'), 'x' = 'X' FROM t",
        ),
        ("SET max_join_size = 1", "SET sql_big_selects = 1", "SELECT COUNT(*) FROM t, t AS u"),
    ],
)
def test_trap_03_settings_that_change_each_other_count_in_their_order(
    world: World, one: str, other: str, read: str
) -> None:
    world.compare(f"""
        a  {MAKE}
        a  {one}
        a  {other}
        b  {other}
        b  {one}
        c  {one}, {other.removeprefix("SET ")}
        a  {read}
        a  {read}
        b  {read}
        c  {read}
    """)


def test_trap_03_optimizer_switches_that_a_set_does_not_name_stay_as_they_are(
    world: World,
) -> None:
    """Which of them are on decides in which order the rows come."""
    world.compare("""
        a  CREATE TABLE t (a INT PRIMARY KEY, k INT, v CHAR(200), KEY (k));
           INSERT INTO t VALUES (9, 1, 'x'), (8, 2, 'x'), (7, 3, 'x'), (6, 4, 'x'), (5, 5, 'x')
        a  SET optimizer_switch = 'mrr=on'
        a  SET optimizer_switch = 'mrr_cost_based=off'
        a  SET optimizer_switch = 'index_merge=on'
        b  SET optimizer_switch = 'mrr=off'
        b  SET optimizer_switch = 'index_merge=on'
        a  SELECT a, v FROM t FORCE INDEX (k) WHERE k BETWEEN 2 AND 4
        a+ SELECT a, v FROM t FORCE INDEX (k) WHERE k BETWEEN 2 AND 4
        b  SELECT a, v FROM t FORCE INDEX (k) WHERE k BETWEEN 2 AND 4
    """)


def test_trap_03_words_may_be_set_in_hexadecimal_digits(world: World) -> None:
    level = "tx_isolation" if world.is_mariadb else "transaction_isolation"
    uncommitted = f"SET SESSION {level} = 0x{b'READ-UNCOMMITTED'.hex()}"
    ansi = f"SET SESSION sql_mode = 0x{b'ANSI_QUOTES'.hex()}"
    world.compare(f"""
        a  {MAKE}
        a  {uncommitted}
        b  {uncommitted}
        w  BEGIN
        w  UPDATE t SET v = 'never' WHERE a = 1
        a  SELECT v FROM t WHERE a = 1
        w  ROLLBACK
        a  SELECT v FROM t WHERE a = 1
        b  SELECT v FROM t WHERE a = 1
        c  SELECT a FROM t WHERE v = "x"
        a  SELECT a FROM t WHERE v = "c"
        a  {ansi}
        a  SELECT a FROM t WHERE v = "c"
        a  INSERT INTO t (v) VALUES ('c'), ("v")
        c  SELECT a, v FROM t
    """)


def test_trap_03_code_that_is_stored_may_change_settings(world: World) -> None:
    world.compare(parted(f"a  {MAKE}; {CODE}", BY_CODE))


@pytest.mark.parametrize("change", ["SET CHARACTER SET latin1", "SET @x = 1, CHAR SET latin1"])
def test_trap_03_code_that_is_stored_may_change_the_character_set(
    world: World, change: str
) -> None:
    world.compare(f"""
        a  {MAKE}; CREATE TABLE u (a INT)
        a  CREATE PROCEDURE p() {change}
        a  CREATE TRIGGER r BEFORE INSERT ON u FOR EACH ROW {change}
        a  SELECT v FROM t
        b  SELECT v FROM t
        b+ SELECT v FROM t
        b  CALL p()
        b  SELECT v FROM t
        c  SELECT v FROM t
        c+ SELECT v FROM t
        c  INSERT INTO u VALUES (1)
        c  SELECT v FROM t
    """)


def test_trap_03_code_may_be_newer_than_the_prepared_statement_that_runs_it(world: World) -> None:
    steps = [f"m  {MAKE}; CREATE TABLE u (a INT)", "m  CREATE PROCEDURE p() SELECT 1"]
    runs = {"a": "INSERT INTO u VALUES (1)", "b": "CALL p()"}
    for session, run in runs.items():
        steps += [f"{session}  .prepare s {run}", f"{session}  SELECT at FROM t"]
    steps += ["m  CREATE TRIGGER r BEFORE INSERT ON u FOR EACH ROW SET time_zone = '+05:00'"]
    steps += ["m  DROP PROCEDURE p", "m  CREATE PROCEDURE p() SET time_zone = '+06:00'"]
    for session in runs:
        steps += [f"{session}  SELECT at FROM t", f"{session}+ SELECT at FROM t"]
        steps += [f"{session}  .execute s", f"{session}  SELECT at FROM t"]
    world.compare("\n".join(steps))


def test_trap_03_settings_that_change_one_another_are_known_by_what_came_of_it(
    world: World,
) -> None:
    """The same values, set in another order, leave others."""
    latin1, utf8 = "character_set_connection = latin1", "collation_connection = utf8mb4_bin"
    literal, join = "SELECT CHARSET('x'), 'a' = 'A', v FROM t", "SELECT t.v FROM t, t AS x, t AS y"
    steps = [f"a  {MAKE}"]
    for number, (changes, read) in enumerate(
        [
            (f"SET {latin1}; SET {utf8}", literal),
            (f"SET {utf8}; SET {latin1}", literal),
            (f"SET {latin1}, {utf8}", literal),
            (f"SET NAMES latin1, {utf8}", literal),
            (f"SET NAMES utf8mb4 COLLATE utf8mb4_bin, {latin1}", literal),
            ("SET max_join_size = 1, sql_big_selects = 1", join),
            ("SET sql_big_selects = 1, max_join_size = 1", join),
        ]
    ):
        steps += [f"s{number}  {changes}", f"s{number}  {read}", f"s{number}  {read}"]
    world.compare("\n".join(steps))


@pytest.mark.parametrize(
    "puts_back",
    [
        "SET STATEMENT max_join_size = 7 FOR SELECT 1",
        "SET STATEMENT max_join_size = 7 FOR SELECT nope",
        "SET STATEMENT max_join_size = 7 FOR SET STATEMENT max_statement_time = 9 FOR SELECT 1",
        "PREPARE s FROM 'SET STATEMENT max_join_size = 7 FOR SELECT 1'",
        "SET @s = 'SET STATEMENT max_join_size = 7 FOR SELECT 1'; PREPARE s FROM @s",
        "EXECUTE IMMEDIATE 'SET STATEMENT max_join_size = 7 FOR SELECT 1'",
        ".prepare s SET STATEMENT max_join_size = 7 FOR SELECT 1",
    ],
)
def test_trap_03_settings_that_are_put_back_change_others(world: World, puts_back: str) -> None:
    """By MariaDB, whenever it sets them."""
    join = "SELECT COUNT(*) FROM t, t AS u"
    world.compare(f"""
        a  {MAKE}
        a  SET max_join_size = 1, sql_big_selects = 1
        a  {join}
        a+ {join}
        a  {puts_back}
        a  {join}
    """)


@pytest.mark.parametrize("charset", ["utf16", "utf16le", "utf32", "ucs2"])
def test_trap_03_settings_are_read_in_any_character_set_of_results(
    world: World, charset: str
) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SET character_set_results = {charset}
        a  SET sql_mode = CONCAT(@@sql_mode, '')
        a  SELECT v FROM t
        a+ SELECT v FROM t
    """)


def test_trap_03_staleness_ends_with_the_words_that_allow_it_whatever_follows_them(
    world: World,
) -> None:
    world.compare(f"""
        m  {MAKE}
        a  SET time_zone = '+00:00'; SELECT no_such FROM t
        a  SELECT v FROM t
        a  SET @sqlcache = 'max_staleness_ms=60000'
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  SET @sqlcache = NULL; SELECT no_such FROM t
        m  UPDATE t SET v = 'new'
        a  SELECT v FROM t
    """)


def test_trap_03_a_mode_set_to_nothing_is_not_the_inherited_one(world: World) -> None:
    world.compare(f"""
        a  SET GLOBAL sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'
        a  {MAKE}
        b  SELECT "v" FROM t
        b+ SELECT "v" FROM t
        c  SET sql_mode = ''
        c  SELECT "v" FROM t
        c  SELECT '\\\\' FROM t
        b  SELECT '\\\\' FROM t
        c  SELECT "v" FROM t
        b+ SELECT "v" FROM t
        a  SET GLOBAL sql_mode = DEFAULT
    """)


def test_trap_03_globals_reach_the_sessions_that_begin_after_them(world: World) -> None:
    world.compare(f"""
        a  SET GLOBAL time_zone = '+00:00'
        a  .again
        a  {MAKE}
        a  SELECT at FROM t
        a+ SELECT at FROM t
        b  SET GLOBAL time_zone = '+07:00'
        c  SELECT at FROM t
        a  SELECT at FROM t
        c  SELECT at FROM t
        a  .reset
        a  .use {{db}}
        a  SELECT at FROM t
        a  SET GLOBAL time_zone = DEFAULT
    """)


@pytest.mark.parametrize("setting", ["sql_safe_updates = 1", "range_optimizer_max_mem_size = 100"])
def test_trap_11_globals_by_which_mysql_warns_reach_the_sessions_that_begin_after_them(
    world: World, setting: str
) -> None:
    asks = "SELECT v FROM t WHERE v = 1 OR a IN (1, 2, 3, 4, 5, 6, 7, 8, 9) AND c <> 1"
    name, _, _ = setting.partition(" = ")
    world.compare(f"""
        a  {MAKE}; ALTER TABLE t ADD KEY (v); UPDATE t SET v = a, c = a
        a  {asks}
        a+ {asks}
        a  SET GLOBAL {setting}
        b  {asks}
        b  SHOW WARNINGS
        b  {asks}
        a  SET GLOBAL {name} = DEFAULT
        a  {asks}
    """)


def test_trap_11_a_global_by_which_an_order_is_refused_reaches_the_sessions_that_begin_after_it(
    world: World,
) -> None:
    rows = ", ".join(f"({n}, JSON_QUOTE(REPEAT('a', {12_000 + n})))" for n in range(20))
    hit = "a " if world.is_mariadb and world.version >= (11,) else "a+"  # it warns of long values
    world.compare(f"""
        a  CREATE TABLE t (a INT PRIMARY KEY, j JSON); INSERT INTO t VALUES {rows}
        a  SELECT a FROM t ORDER BY j, a
        {hit} SELECT a FROM t ORDER BY j, a
        a  SET GLOBAL sort_buffer_size = 32768
        b  SELECT a FROM t ORDER BY j, a
        a  SET GLOBAL sort_buffer_size = DEFAULT
        a  SELECT a FROM t ORDER BY j, a
    """)


_TABLE = "CREATE TABLE t (a INT PRIMARY KEY, b INT, s VARCHAR(300), FULLTEXT (s)) ENGINE=InnoDB"


@pytest.mark.parametrize(
    ("setting", "asks"),
    [
        ("max_session_mem_used = 200000", "SELECT s FROM t ORDER BY s"),
        ("tmp_disk_table_size = 1024", "SELECT DISTINCT CONCAT(s, REPEAT('a', 600)) FROM t"),
        ("innodb_ft_result_cache_limit = 1000000", "SELECT a FROM t WHERE {match}"),
        ("join_buffer_size = 257", "SELECT x.a, y.a FROM t x JOIN t y ON x.b = y.b LIMIT 700"),
        ("tmp_table_size = 1024", "SELECT b, COUNT(*), MAX(s) FROM t GROUP BY b"),
        ("big_tables = 1", "SELECT b, COUNT(*), MAX(s) FROM t GROUP BY b"),
    ],
)
def test_trap_11_globals_that_limit_queries_reach_the_sessions_that_begin_after_them(
    world: World, setting: str, asks: str
) -> None:
    rows = ", ".join(f"({n}, {n * 7 % 50}, REPEAT('word x{n % 40} ', 20))" for n in range(1500))
    asks = asks.format(match="MATCH (s) AGAINST ('\"word x1 word\"' IN BOOLEAN MODE)")
    name, _, _ = setting.partition(" = ")
    world.compare(f"""
        a  {_TABLE}; INSERT INTO t VALUES {rows}
        a  {asks}
        a+ {asks}
        a  SET GLOBAL {setting}
        b  {asks}
        b  SHOW WARNINGS
        a  SET GLOBAL {name} = DEFAULT
        a  {asks}
    """)


def test_trap_26_a_global_level_is_that_of_the_transactions_that_begin_after_it(
    world: World,
) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT a FROM t
        a  SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED
        b  BEGIN
        b  SELECT v FROM t
        a  UPDATE t SET v = 'committed'
        b  SELECT v FROM t
        b  COMMIT
        a  SET GLOBAL TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE
        c  BEGIN
        c  SELECT v FROM t
        a  UPDATE t SET v = 'later'
        c  SELECT v FROM t
        c  COMMIT
    """)


def test_trap_32_after_a_reset_a_session_is_as_a_new_one_but_for_some_settings(
    world: World,
) -> None:
    """The role and the default schema stay; MySQL takes the global character sets, MariaDB those
    of the login."""
    read = "SELECT 'é', \"é\", v, DATE_FORMAT(at, '%M'), at, 1 / 3 FROM t"
    settings = (
        "sql_mode = 'ANSI_QUOTES', time_zone = '+05:00', lc_time_names = 'fr_FR',"
        " div_precision_increment = 9, sql_select_limit = 1"
    )
    grant = "FOR" if world.is_mariadb else "TO"
    world.compare(
        f"""
        a  {MAKE}; CREATE ROLE '{{db}}_role'; GRANT SELECT ON {{db}}.* TO '{{db}}_role'
        a  {USER}; GRANT '{{db}}_role' TO '{{user}}'@'%'
        a  {read}
        a+ {read}
        a  SET NAMES latin1; SET {settings}
        a  .reset
        a  {read}
        a+ {read}
        a  SELECT {CHARACTER_SETS}, DATABASE()
        b  SET NAMES latin2
        b  .reset
        b  {read}
        b  SELECT {CHARACTER_SETS}
        f  .reset
        f+ {read}
        c  SELECT v, at FROM t
        c+ SELECT v, at FROM t
        c  .reset
        c  SELECT {CHARACTER_SETS}
        c  SELECT v, at FROM t
        c+ SELECT v, at FROM t
        c  {read}
        d  .login {{user}}
        d  .reset
        d  SELECT v FROM {{db}}.t
        d  SET ROLE '{{db}}_role'
        d  .reset
        d  SELECT v FROM {{db}}.t
        d+ SELECT v FROM {{db}}.t
        d  .reset
        d  SELECT v FROM {{db}}.t
        d  .reset
        d+ SELECT v FROM {{db}}.t
        a  SET DEFAULT ROLE '{{db}}_role' {grant} '{{user}}'@'%'
        e  .login {{user}}
        e  SELECT v FROM {{db}}.t
        e  SET ROLE NONE
        e  .reset
        e  SELECT v FROM {{db}}.t
        e  SET ROLE DEFAULT
        e  SELECT v FROM {{db}}.t
        a  DROP USER '{{user}}'@'%'
        a  DROP ROLE '{{db}}_role'
        """,
        {"c": {"charset": "latin1"}},
    )


def test_trap_03_names_are_those_of_the_clients_character_set(world: World) -> None:
    """The same name in two encodings; and two names that are the same bytes."""
    world.compare(
        f"""
        a  {MAKE}; CREATE TABLE `é` (v INT); CREATE TABLE `Ã©` (v INT);
           INSERT INTO `é` VALUES (1); INSERT INTO `Ã©` VALUES (2)
        a  SELECT v FROM `é`
        b  SELECT v FROM `é`
        a  SELECT v FROM `Ã©`
        b  UPDATE `é` SET v = 3
        a  SELECT v FROM `é`
        a  SELECT v FROM `Ã©`
        b  SELECT v FROM é
        a  SELECT v FROM é
        b  INSERT INTO t VALUES (9, 'é', NULL, NULL)
        a  SELECT v FROM t
        a  SELECT v FROM t WHERE v = 'é'
        b  SELECT v FROM t WHERE v = 'é'
        """,
        {"b": {"charset": "latin1"}},
    )


def test_trap_03_a_default_schema_is_known_in_any_character_set(world: World) -> None:
    world.compare(
        """
        a  CREATE DATABASE `{db}_é`; CREATE TABLE `{db}_é`.t (v INT);
           INSERT INTO `{db}_é`.t VALUES (1)
        a  SELECT v FROM `{db}_é`.t
        a+ SELECT v FROM `{db}_é`.t
        b  .use {db}_é
        b  UPDATE t SET v = 2
        a  SELECT v FROM `{db}_é`.t
        c  USE `{db}_é`
        c  UPDATE t SET v = 3
        a  SELECT v FROM `{db}_é`.t
        c  SET @x = 1, lc_time_names = @@lc_time_names
        c  UPDATE t SET v = 4
        a  SELECT v FROM `{db}_é`.t
        """,
        {"b": {"charset": "latin1"}, "c": {"charset": "cp1250"}},
    )


def test_trap_03_bytes_of_a_character_are_no_quotes(world: World) -> None:
    """In gbk, the second byte of a character can be a backslash."""
    world.compare(
        f"""
        a  {MAKE}; CREATE TABLE u (v VARCHAR(50)); INSERT INTO u VALUES ('x')
        b  SELECT v FROM u
        a  SELECT v FROM u
        b  INSERT INTO u VALUES ('誠')
        a  SELECT v FROM u
        b  SELECT v FROM u WHERE v = '誠' OR v = ' OR 1 -- '
        b  SELECT v FROM u WHERE v = '誠' OR v = ' OR 2 -- '
        b  UPDATE u SET v = '誠' WHERE v = ', (SELECT 1) -- ' OR v = 'x'
        a  SELECT v FROM u
        """,
        {"b": {"charset": "gbk"}},
    )


def test_trap_03_what_stands_for_one_character_elsewhere_may_be_four(world: World) -> None:
    """In euckr, by a rule that Python's codec follows, and the servers do not."""
    world.compare(
        """
        a  CREATE TABLE `ㅤㄷㅞㅂ` (v INT); INSERT INTO `ㅤㄷㅞㅂ` VALUES (1)
        a  SELECT v FROM `ㅤㄷㅞㅂ`
        a+ SELECT v FROM `ㅤㄷㅞㅂ`
        b  UPDATE `ㅤㄷㅞㅂ` SET v = 2
        a  SELECT v FROM `ㅤㄷㅞㅂ`
        """,
        {"b": {"charset": "euckr"}},
    )


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
        a  SET SESSION pseudo_thread_id = 6
        a  CREATE TEMPORARY TABLE t AS SELECT 'tmp' AS v
        a  {as_another} CREATE TEMPORARY TABLE t (v INT)
        a  {as_another} DROP TEMPORARY TABLE t
        a  {back}
        a  SELECT v FROM t
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


# What the statement before left behind.


BETWEEN = [
    "DO 0",
    "SET @x = 1",
    "SET @x = (SELECT COUNT(*) FROM u)",
    "UPDATE t SET v = v",
    ".ping",
    "INSERT INTO u SELECT a FROM t LIMIT 2",
    "INSERT INTO u VALUES (7)",
    ".use {db}",
    "BEGIN",
    "USE {db}",
    "SHOW TABLES",
    "SELECT no_such FROM t",
    "SELECT 1; SELECT no_such FROM t",
    "SET @x = 2; SELECT no_such FROM t",
    "SELECT 1; SET @x = 2; DELETE FROM no_such",
    "PREPARE s FROM 'SELECT 1'",
    "COMMIT",
    "CREATE TABLE w (a INT)",
    "CREATE TABLE x AS SELECT a FROM t LIMIT 1",
    "SHOW WARNINGS",
    ".prepare s SELECT FOUND_ROWS()",
    "SELECT 1",
    "EXPLAIN SELECT * FROM t",
    "DELETE FROM u",
]


@pytest.mark.parametrize(
    "variable", ["character_set_results", "character_set_client", "character_set_connection"]
)
def test_trap_03_a_set_to_the_global_value_is_one_where_the_login_chose_another(
    world: World, variable: str
) -> None:
    """The server's own character set is latin1 or utf8mb4; logins are of both."""
    steps = [f"a  {MAKE}"]
    for login in ("utf8mb4", "latin1"):
        steps += [f"{login}  .again {login}", f"{login}  SELECT v, 'it' FROM t"]
        steps += [f"{login}+ SELECT v, 'it' FROM t"]
        for chosen in ("latin1", "utf8mb4"):
            session = f"{login}_{chosen}"
            steps += [f"{session}  .again {login}", f"{session}  SET {variable} = {chosen}"]
            steps += [f"{session}  SELECT v, 'it' FROM t"] * 2
    world.compare("\n".join(steps))


def test_trap_03_a_set_is_one_also_where_the_server_was_asked_for_the_settings(
    world: World,
) -> None:
    world.compare(f"""
        a  {MAKE}
        a  .change_user app {{db}}
        a  SET sql_mode = CONCAT(@@sql_mode, '')
        a  SELECT v, 'it' FROM t
        a+ SELECT v, 'it' FROM t
        a  SET character_set_results = utf8mb4
        a  SELECT v, 'it' FROM t
        a  SET sql_mode = CONCAT(@@sql_mode, '')
        a  SELECT v, 'it' FROM t
    """)


def test_trap_07_found_rows_counts_what_a_hit_gave(world: World) -> None:
    steps = [f"a  {MAKE}; CREATE TABLE u (a INT)"]
    for number, between in enumerate(BETWEEN):
        asks = ".execute s" if between.startswith(".prepare") else "SELECT FOUND_ROWS()"
        read = f"SELECT v FROM t WHERE {number} = {number}"
        steps += [f"a  {read}", "a  SELECT 1 FROM t WHERE a = 0", f"a+ {read}"]
        steps += [f"a  {between}", f"a  {asks}", "a  SELECT FOUND_ROWS()", "a  COMMIT"]
    world.compare("\n".join(steps))


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


@pytest.mark.parametrize(
    "none",
    [
        *("SET @x = 1", "SET time_zone = '+01:00'", "BEGIN", "COMMIT", "USE {db}", ".use {db}"),
        *(".ping", "UPDATE t SET v = 'new' WHERE a > 100", "CREATE TABLE IF NOT EXISTS t (a INT)"),
    ],
)
def test_trap_07_that_no_row_was_written_is_told_beside_the_rows_of_a_hit(
    world: World, none: str
) -> None:
    read = f"SELECT v, {none.count('z')} FROM t"
    steps = [f"a  {MAKE}", *(f"a  {each}" for each in ("SELECT 1", none) * 4)]
    for asks in ("SELECT FOUND_ROWS(), ROW_COUNT()", "SET @n = FOUND_ROWS(), @r = ROW_COUNT()"):
        for between in ("", "a  .prepare p SELECT 1", "a  SELECT nothing", "a  .ping"):
            steps += ["a  COMMIT", f"a  {read}", "a  SELECT 1", f"a+ {read}", f"a  {none}", between]
            steps += [f"a  {asks}", "a  SELECT @n, @r"]
    world.compare("\n".join(steps))


@pytest.mark.parametrize(
    "asks", ["DO 1", "SHOW WARNINGS", "SELECT FOUND_ROWS(), ROW_COUNT()", "SELECT FOUND_ROWS()"]
)
@pytest.mark.parametrize("chain", ["NO_CHAIN", "CHAIN"])
def test_trap_07_what_is_made_up_for_begins_no_transaction(
    world: World, asks: str, chain: str
) -> None:
    """With autocommit switched off since the hit, which was not counted by its rows."""
    read = "SELECT v FROM t ORDER BY a LIMIT 1, 1"
    switched = f"SET autocommit = 0, completion_type = '{chain}'"
    steps = (read, "SELECT 1", read, switched, asks, "DO 0", "SET TRANSACTION READ ONLY", "COMMIT")
    world.compare(
        "\n".join(
            [f"a  {MAKE}", *(f"a{'+' if at == 2 else ' '} {each}" for at, each in enumerate(steps))]
        )
    )


@pytest.mark.parametrize(
    "asks", ["SELECT FOUND_ROWS()", "SET @n = FOUND_ROWS()", "DO FOUND_ROWS()"]
)
@pytest.mark.parametrize("begins", ["BEGIN", "START TRANSACTION READ ONLY"])
def test_trap_07_what_is_made_up_for_opens_no_snapshot(
    world: World, begins: str, asks: str
) -> None:
    """Else it is older than what the transaction reads first, and nobody knows."""
    read = "SELECT v FROM t ORDER BY a LIMIT 1, 1"
    world.compare(f"""
        a  {MAKE}; CREATE TABLE u (a INT PRIMARY KEY, n INT); INSERT INTO u VALUES (1, 1)
        a  {read}
        a  SELECT 1
        a+ {read}
        a  {begins}
        a  {asks}
        b  UPDATE u SET n = 7
        a  SELECT n FROM u
        a  SELECT n FROM u
        b  SELECT n FROM u
        a  COMMIT
        b  SELECT n FROM u
        b  UPDATE u SET n = 8
        b  SELECT n FROM u
    """)


@pytest.mark.parametrize("read", ["SELECT v FROM t ORDER BY a LIMIT 1, 1", "SELECT v FROM t"])
@pytest.mark.parametrize("asks", ["SELECT FOUND_ROWS()", "SET @n = FOUND_ROWS()"])
def test_trap_07_what_is_made_up_for_uses_nothing_up_that_was_set_for_the_next_transaction(
    world: World, asks: str, read: str
) -> None:
    world.compare(f"""
        a  {MAKE}
        a  {read}
        a  SELECT 1
        a+ {read}
        a  SET TRANSACTION READ ONLY
        a  {asks}
        a  START TRANSACTION
        a  INSERT INTO t (v) VALUES ('refused')
        a  ROLLBACK
        b  SELECT v FROM t
    """)


@pytest.mark.parametrize(
    "fails",
    [
        "INSERT INTO u VALUES (7), (8), (8)",
        "INSERT INTO u VALUES (9); SELECT nothing",
        "SELECT a FROM u FOR UPDATE; SELECT nothing",
    ],
)
def test_trap_07_what_is_made_up_for_ends_no_transaction(world: World, fails: str) -> None:
    """Which a statement that fails may have begun."""
    read = "SELECT v FROM t ORDER BY a LIMIT 1, 1"
    world.compare(f"""
        a  {MAKE}; CREATE TABLE u (a INT PRIMARY KEY) ENGINE=InnoDB
        a  {read}
        a  SELECT 1
        a+ {read}
        a  SET autocommit = 0
        a  {fails}
        a  SELECT 1 + FOUND_ROWS()
        a  DO 0
        a  ROLLBACK
        b  SELECT a FROM u
    """)


def test_trap_07_it_is_told_to_a_statement_that_is_too_long_to_be_read(
    upstream: PrivateSqlServer, proxy: ProxyFactory, schema: str
) -> None:
    relay = proxy(upstream, "memory", proxy__max_statement_bytes=1024)
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (1), (2)", schema)
    asks = f"SELECT /* {' ' * 2000} */ ROW_COUNT(), FOUND_ROWS()"
    told = []
    for server in (upstream, relay):
        with closing(server.connect(database=schema)) as session, session.cursor() as cursor:
            for text in ("SELECT v FROM t", "SELECT 1") * 3:
                cursor.execute(text)
            for text in ("SELECT v FROM t", "SET @x = 1", asks):
                cursor.execute(text)
            told.append(cursor.fetchall())
    assert told[0] == told[1]
    assert relay.metrics()["sqlcache_hits_total"]


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


def test_trap_07_found_rows_are_those_up_to_the_limit(world: World) -> None:
    steps = [f"a  {MAKE}"]
    for limit in ("LIMIT 2", "LIMIT 1, 1", "LIMIT 5, 1"):
        read = f"SELECT v FROM t {limit}"
        steps += [f"a  {read}", "a  DO 0", f"a+ {read}", "a  SELECT FOUND_ROWS()"]
    steps += ["a  SET sql_select_limit = 2", "a  SELECT v FROM t", "a+ SELECT v FROM t"]
    world.compare("\n".join([*steps, "a  SELECT FOUND_ROWS()"]))


@pytest.mark.parametrize(
    "limit",
    [
        *("OFFSET 1 ROWS", "OFFSET 1 ROWS FETCH FIRST 1 ROWS ONLY", "FETCH FIRST 1 ROW ONLY"),
        *("FETCH FIRST 1 ROWS WITH TIES", "LIMIT 1 OFFSET 1"),
    ],
)
def test_trap_07_found_rows_are_those_of_a_standard_limit(world: World, limit: str) -> None:
    """Which MySQL does not know."""
    hit = "+" if world.is_mariadb or limit.startswith("LIMIT") else " "
    world.compare(f"""
        a  {MAKE}
        a  SELECT a FROM t ORDER BY a {limit}
        a  DO 0
        a{hit} SELECT a FROM t ORDER BY a {limit}
        a  SELECT FOUND_ROWS()
        a  SELECT a FROM t UNION ALL SELECT a + 10 FROM t ORDER BY a {limit}
        a  DO 0
        a{hit} SELECT a FROM t UNION ALL SELECT a + 10 FROM t ORDER BY a {limit}
        a  SELECT FOUND_ROWS()
    """)


@pytest.mark.parametrize(
    "change",
    [
        *(
            "USE mysql",
            ".use mysql",
            "SET sql_select_limit = 1",
            "INSERT INTO t (v) VALUES ('more')",
        ),
        *(".reset", "DROP TABLE t"),
    ],
)
def test_trap_07_found_rows_are_those_of_the_time_of_the_hit(world: World, change: str) -> None:
    world.compare(f"""
        a  {MAKE}; CREATE TABLE u (a INT)
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  {change}
        a  SET @x = 1
        a  SELECT FOUND_ROWS()
    """)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE u SET v = 1 WHERE FALSE",
        "UPDATE u SET v = v + 1",
        "UPDATE u SET v = v",
    ],
    ids=["none", "all, 48 characters in English", "all"],
)
@pytest.mark.parametrize("language", ["en_US", "de_DE"])
def test_trap_07_found_rows_are_known_however_long_a_change_tells_of_them(
    world: World, language: str, change: str
) -> None:
    world.compare(f"""
        b  {MAKE}; CREATE TABLE u (v INT)
        b  INSERT INTO u SELECT 100 * x.n + y.n FROM
           (SELECT ROW_NUMBER() OVER () AS n FROM information_schema.COLLATIONS LIMIT 150) AS x,
           (SELECT ROW_NUMBER() OVER () AS n FROM information_schema.COLLATIONS LIMIT 100) AS y
        a  SET lc_messages = '{language}'
        a  SELECT v FROM t
        a  SELECT v FROM u LIMIT 2
        a+ SELECT v FROM t
        a  {change}
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


def test_trap_07_rows_are_counted_however_small_a_join_is_to_be(world: World) -> None:
    """sqlcache's own query, which leaves their number behind, is none of the client's. From version
    11 on MariaDB refuses the question for the session's settings then."""
    hit = "a+" if world.is_mariadb and world.version < (11,) else "a "
    world.compare(f"""
        a  {MAKE}
        a  INSERT INTO t SELECT 100 + x.a * 10 + y.a, 'x', 'c', NULL FROM t x, t y
        a  SET max_join_size = 30
        a  SELECT v FROM t
        {hit} SELECT v FROM t
        a  SELECT FOUND_ROWS() + 0
        a  SHOW WARNINGS
    """)


def test_trap_07_an_entry_keeps_the_count_of_all_rows(world: World) -> None:
    count = "SELECT SQL_CALC_FOUND_ROWS v FROM t WHERE a > 0 ORDER BY a LIMIT 1, 1"
    asks = "SELECT FOUND_ROWS() AS total"
    steps = [f"a  {MAKE}", f"a  {count}", f"a  {asks}", f"b+ {count}", f"b+ {asks}"]
    between = (
        *("SHOW WARNINGS", "SELECT 1", ".ping", "SET @x = 1", "UPDATE t SET v = v", "BEGIN"),
        *("SHOW COUNT(*) WARNINGS", "SELECT @@warning_count", ".prepare s SELECT 1", "COMMIT"),
        *("SELECT v FROM t", "SELECT FOUND_ROWS(), ROW_COUNT()", "DELETE FROM t WHERE a = 1"),
    )
    for statement in between:
        steps += [f"b  {count}", f"a+ {count}", f"a  {statement}", "a  SHOW WARNINGS", f"a  {asks}"]
        steps += [
            f"b  {count}",
            f"a+ {count}",
            f"a+ {asks}",
            f"a  {statement}",
            f"a  {asks}",
            "a  SHOW WARNINGS",
        ]
    steps += [f"a  {count}", f"b+ {count}", "a  INSERT INTO t VALUES (77, 'x')", f"b  {asks}"]
    steps += [f"b  {count}", f"b  {asks}", f"a+ {count}", f"a+ {asks}", "a  SELECT FOUND_ROWS()"]
    world.compare("\n".join(steps))


def test_trap_07_a_count_of_all_rows_is_that_of_its_transaction(world: World) -> None:
    count = "SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1"
    world.compare(f"""
        a  {MAKE}
        a  {count}
        a  SELECT FOUND_ROWS()
        b  SET TRANSACTION ISOLATION LEVEL REPEATABLE READ
        b  BEGIN
        b  {count}
        b  SELECT FOUND_ROWS()
        a  DELETE FROM t WHERE a = 1
        b  {count}
        b  SELECT FOUND_ROWS()
        a  {count}
        a  SELECT FOUND_ROWS()
        b  {count}
        b  SELECT FOUND_ROWS()
        b  COMMIT
        b+ {count}
        b+ SELECT FOUND_ROWS()
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


def test_trap_07_after_an_aggregate_of_no_rows_found_rows_are_the_servers(world: World) -> None:
    world.compare("""
        a  CREATE TABLE none (a INT) ENGINE=MyISAM; CREATE TABLE two (a INT)
        a  INSERT INTO two VALUES (1), (2)
        a  SELECT a FROM two
        a  SELECT MAX(a) FROM none WHERE a = 1
        a  SELECT a FROM two WHERE a = NULL
        a+ SELECT MAX(a) FROM none WHERE a = 1
        a  SELECT FOUND_ROWS()
    """)


@pytest.mark.parametrize("aggregate", ["MAX(a)", "MAX(a), RAND(1)", "MAX(a), @x"])
def test_trap_07_after_a_hit_an_aggregate_of_no_rows_keeps_its_found_rows(
    world: World, aggregate: str
) -> None:
    """On MariaDB, whether it is answered by the server or is a hit as well."""
    world.compare(f"""
        a  CREATE TABLE none (a INT) ENGINE=MyISAM; CREATE TABLE two (a INT)
        a  INSERT INTO two VALUES (1), (2)
        a  SELECT a FROM two
        a  SELECT a FROM two WHERE a = 1
        a+ SELECT a FROM two
        a  SELECT {aggregate} FROM none WHERE a = 1
        a  SELECT FOUND_ROWS()
        a  SELECT a FROM two WHERE a = 1
        a+ SELECT a FROM two
        a  SELECT {aggregate} FROM none WHERE a = 1
        a  SELECT COUNT(*) FROM none WHERE a = 1
        a  SELECT FOUND_ROWS()
    """)


def test_trap_07_a_delete_that_is_not_read_keeps_found_rows(world: World) -> None:
    """As while it is not known what schemas there are; and there are warnings, which what is
    missing would take away."""
    world.compare(f"""
        a  {MAKE}
        a  SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1
        a  DROP DATABASE IF EXISTS {{db}}_other
        a  DELETE FROM t WHERE a = 9
        a  SELECT FOUND_ROWS()
    """)


@pytest.mark.parametrize("read", ["SELECT a FROM new", "SELECT new.a FROM new JOIN aged USING (a)"])
@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM old WHERE a = 9",
        "INSERT INTO old VALUES (1)",
        "INSERT IGNORE INTO old VALUES (1)",
        "EXPLAIN UPDATE old SET a = 2 WHERE a = 9",
    ],
)
def test_trap_07_a_hit_parts_changes_in_two_storage_engines(
    world: World, change: str, read: str
) -> None:
    """MySQL 9 warns of a change of rows that follows one of another engine which changed none,
    unless it has read a transactional table in between, alone or not: planned or not, one hit or
    two."""
    world.compare(f"""
        a  CREATE TABLE old (a INT PRIMARY KEY) ENGINE=MyISAM; INSERT INTO old VALUES (1)
        a  CREATE TABLE new (a INT); CREATE TABLE other (a INT); CREATE TABLE aged LIKE old
        a  {read}
        a  SELECT a FROM aged
        a  {change}
        a+ {read}
        a  UPDATE other SET a = 2
        a  {change}
        a+ {read}
        a+ SELECT a FROM aged
        a  UPDATE other SET a = 2
        a  {change}
        a+ {read}
        a  UPDATE other SET a = 2
        a  {change}
        a  UPDATE other SET a = 2
        a  SHOW WARNINGS
    """)


def test_trap_07_a_query_that_counts_all_is_no_hit_that_parts_changes(world: World) -> None:
    """MySQL has run it, on no transactional table: as before, the hit that follows parts them."""
    world.compare("""
        a  CREATE TABLE old (a INT PRIMARY KEY) ENGINE=MyISAM; INSERT INTO old VALUES (1), (2)
        a  CREATE TABLE new (a INT); CREATE TABLE other (a INT); CREATE TABLE aged LIKE old
        a  SELECT a FROM new
        a  DELETE FROM aged WHERE a = 9
        a  SELECT SQL_CALC_FOUND_ROWS a FROM old ORDER BY a LIMIT 1, 1
        a+ SELECT a FROM new
        a  UPDATE other SET a = 2
        a  SHOW WARNINGS
    """)


def test_trap_07_a_change_of_user_after_a_hit_keeps_what_the_server_keeps(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  .change_user app
        a  SELECT FOUND_ROWS()
        a  USE {{db}}
        a  SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1
        a  .change_user app
        a  SELECT FOUND_ROWS()
    """)


def test_trap_07_found_rows_outlive_a_role_that_there_is_not(world: World) -> None:
    world.compare("""
        a  CREATE TABLE t (v INT)
        a  SELECT SQL_CALC_FOUND_ROWS v FROM t ORDER BY v DESC
        a  SET ROLE no_such_role
        a  EXPLAIN SELECT 1 FROM t WHERE 1 = 0
        a  SELECT FOUND_ROWS()
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


@pytest.mark.parametrize("asked", ["FOUND_ROWS()", "ROW_COUNT()"])
def test_trap_07_what_is_too_long_to_be_read_may_look_back(world: World, asked: str) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT v FROM t
        a  USE /* {"x" * MEGABYTE} */ {{db}}
        a  SELECT /* {"x" * MEGABYTE} */ {asked}
        a  SELECT v FROM t
    """)


@pytest.mark.parametrize("before", ["UPDATE t SET v = 'y'", "SET @x = 1", "SELECT v FROM t"])
def test_trap_07_what_sqlcache_asks_before_a_prepare_changes_no_count(
    world: World, before: str
) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT v FROM t WHERE a < 0
        a  {before}
        b  SET GLOBAL div_precision_increment = 6
        a  .prepare s SELECT v FROM t
        a  SELECT ROW_COUNT(), FOUND_ROWS()
        b  SET GLOBAL div_precision_increment = DEFAULT
    """)


@pytest.mark.parametrize("asked", ["FOUND_ROWS()", "ROW_COUNT()"])
@pytest.mark.parametrize("asks", ["{asked}", "asks()"])
def test_trap_07_code_that_is_stored_may_look_back(world: World, asked: str, asks: str) -> None:
    """The UPDATE leaves on the server what the hit that follows it would have replaced."""
    told = asks.format(asked=asked)
    world.compare(f"""
        a  CREATE TABLE t (v INT); INSERT INTO t VALUES (1), (2), (3)
        a  CREATE TABLE k (n INT); CREATE TABLE u (a INT); INSERT INTO u VALUES (1)
        a  CREATE FUNCTION asks() RETURNS INT DETERMINISTIC RETURN {asked}
        a  CREATE VIEW w AS SELECT {told} AS n
        a  CREATE TRIGGER r BEFORE INSERT ON k FOR EACH ROW SET NEW.n = {told}
        a  SELECT a FROM u
        a  INSERT INTO k VALUES (0)
        a  SELECT v FROM t
        a  SELECT v FROM t
        a  UPDATE u SET a = a + 1
        a  SELECT v FROM t
        a  SELECT n FROM w
        a  SELECT v FROM t
        a  UPDATE u SET a = a + 1
        a  SELECT v FROM t
        a  INSERT INTO k VALUES (0)
        a  SELECT n FROM k
    """)


def test_trap_07_who_traces_statements_finds_those_that_would_be_hits(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  SET profiling = 1
        a  SELECT v FROM t
        a  SET profiling = 0
        a  SELECT QUERY_ID FROM information_schema.PROFILING GROUP BY QUERY_ID
        b  SET optimizer_trace = 'enabled=on'
        b  SELECT v FROM t
        b  SELECT a FROM t
        b  SELECT v FROM t
        b  SELECT QUERY FROM information_schema.OPTIMIZER_TRACE
        b  SET optimizer_trace = 'enabled=off'
        b  SELECT v FROM t
        b+ SELECT v FROM t
    """)


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


@pytest.mark.parametrize("read", ["SELECT v FROM t", "SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1"])
@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO w VALUES (3)",
        "INSERT INTO w VALUES (1) ON DUPLICATE KEY UPDATE a = 5",
        "INSERT IGNORE INTO w VALUES (1)",
        "REPLACE INTO w VALUES (1)",
        "UPDATE w SET a = 7 WHERE a IN (1)",
        "DELETE FROM w WHERE a IN (1)",
        "INSERT INTO w SELECT a + 10 FROM w",
        "INSERT INTO w VALUES (1)",
        "INSERT INTO no_such VALUES (1)",
    ],
)
def test_trap_07_a_change_behind_what_failed_leaves_as_many_rows_as_it_finds(
    world: World, change: str, read: str
) -> None:
    """By settings that nobody knows after it."""
    world.compare(f"""
        m  CREATE TABLE t (v INT); INSERT INTO t VALUES (1), (2), (3), (4), (5)
        m  CREATE TABLE w (a INT PRIMARY KEY); INSERT INTO w VALUES (1), (2)
        a  SELECT a FROM w
        a  {read}
        a  {read}
        a  SET SESSION sql_mode = NO_SUCH
        a  {change}
        a  SHOW WARNINGS
        a  SELECT FOUND_ROWS()
        a  SET SESSION sql_mode = NO_SUCH
        a  {change}
        a  SELECT FOUND_ROWS(), ROW_COUNT()
    """)


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


@pytest.mark.parametrize(
    "counts_none",
    [
        "VALUES (1), (2), (3)",
        "VALUES (1), (2), (3) LIMIT 1 OFFSET 1",
        "VALUES (1), (2), (3) ORDER BY 1",
        "(VALUES (1), (2), (3))",
        "WITH c AS (SELECT 1) VALUES (1), (2), (3)",
        "VALUES (1), ((SELECT 3))",
        "VALUES (1) UNION VALUES (2)",
        "SELECT MAX(a) FROM none WHERE a = 1",
        "SELECT MAX(a), RAND() > 2 FROM none WHERE a = 1",
        "SELECT MAX(1) WHERE 1 = 0",
    ],
)
def test_trap_07_a_query_that_counts_no_rows_leaves_those_of_a_hit(
    world: World, counts_none: str
) -> None:
    """On MariaDB. MySQL has no VALUES but of ROW()s, and counts these."""
    steps = [f"a  {MAKE}; CREATE TABLE none (a INT) ENGINE=MyISAM"]
    steps += ["a  SELECT v FROM t", "a  SELECT v FROM t WHERE a = 1"]
    ways = [counts_none]
    if world.is_mariadb or "VALUES" not in counts_none:
        steps += [f"a  .prepare p {counts_none}"]
        ways += [".execute p"]
    if counts_none.startswith("VALUES (1), (2)") or " none " in counts_none:
        steps += [f"a  PREPARE p FROM '{counts_none}'"]
        ways += ["EXECUTE p"]
    for way in ways * 2:
        steps += ["a+ SELECT v FROM t WHERE a = 1", "a+ SELECT v FROM t"]
        steps += [f"a  {way}", "a  SELECT FOUND_ROWS()"]
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


@pytest.mark.parametrize(
    "failing",
    [
        "SELECT (SELECT v FROM t)",
        "SELECT EXP(a * 300) FROM t",
        "SELECT a + 9223372036854775805 FROM t",
        "SELECT v INTO @v FROM t",
        "SELECT nosuch FROM t",
    ],
)
def test_trap_07_found_rows_of_a_query_that_fails_after_a_hit(world: World, failing: str) -> None:
    """MariaDB counts those that it had found by then."""
    steps = [f"a  {MAKE}", "a  SELECT v FROM t"]
    for asks in ("SELECT FOUND_ROWS()", "SELECT FOUND_ROWS() + 0"):
        steps += ["a+ SELECT v FROM t", f"a  {failing}", f"a  {asks}", "a  SHOW WARNINGS"]
    world.compare("\n".join(steps))


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


def test_trap_07_a_client_that_counts_found_rows_gets_them(world: World) -> None:
    world.compare(
        f"""
        a  {MAKE}
        a  UPDATE t SET v = 'x'
        a  UPDATE t SET v = 'x'
        b  UPDATE t SET v = 'x'
        """,
        {"b": {"client_flag": 2}},
    )


def test_trap_08_the_last_inserted_id_is_the_sessions_own(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        b  SELECT LAST_INSERT_ID(), v FROM t
        a  INSERT INTO t (v) VALUES ('new')
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  SELECT LAST_INSERT_ID()
        a  SELECT @@identity, @@last_insert_id
        b  SELECT LAST_INSERT_ID()
        a  SELECT v FROM t WHERE a = LAST_INSERT_ID()
        b  SELECT v FROM t WHERE a = LAST_INSERT_ID()
        a  SELECT v FROM t WHERE a IS NULL
        b  SELECT v FROM t WHERE a IS NULL
        a  SET sql_auto_is_null = 1
        b  SET sql_auto_is_null = 1
        a  SELECT v FROM t WHERE a IS NULL
        b  SELECT v FROM t WHERE a IS NULL
        a  INSERT INTO t (v) VALUES ('newer')
        a  SELECT v FROM t WHERE a IS NULL
        b  SELECT v FROM t WHERE a IS NULL
        a  INSERT INTO t (v) VALUES ('newest')
        a  SELECT v FROM t WHERE a IS NULL
        b  SELECT v FROM t WHERE a IS NULL
    """)


# Rights.

USER = "CREATE USER '{user}'@'%' IDENTIFIED BY 'p'"


def test_trap_10_a_hit_needs_the_right_to_read(world: World) -> None:
    world.compare(f"""
        a  {MAKE}; {USER}
        a  SELECT v FROM {{db}}.t
        a+ SELECT v FROM {{db}}.t
        b  .login {{user}}
        b  SELECT v FROM {{db}}.t
        a  GRANT SELECT (v) ON {{db}}.t TO '{{user}}'@'%'
        b  SELECT v FROM {{db}}.t
        b+ SELECT v FROM {{db}}.t
        b  SELECT * FROM {{db}}.t
        a  SELECT * FROM {{db}}.t
        b  SELECT * FROM {{db}}.t
        a  REVOKE SELECT (v) ON {{db}}.t FROM '{{user}}'@'%'
        b  SELECT v FROM {{db}}.t
        a  GRANT SELECT ON {{db}}.* TO '{{user}}'@'%'
        b  SELECT v FROM {{db}}.t
        b+ SELECT v FROM {{db}}.t
        a  REVOKE ALL PRIVILEGES, GRANT OPTION FROM '{{user}}'@'%'
        b  SELECT v FROM {{db}}.t
        a  GRANT SELECT ON *.* TO '{{user}}'@'%'
        c  .login {{user}}
        c  SELECT v FROM {{db}}.t
        a  .change_user {{user}}
        a  SELECT v FROM {{db}}.t
    """)


def test_trap_10_rights_that_old_sessions_keep_give_new_ones_nothing(world: World) -> None:
    """The server reads rights on a schema at USE, and those on all of it at the login."""
    world.compare(f"""
        a  {MAKE}; {USER}; CREATE TABLE other (a INT)
        a  GRANT SELECT ON {{db}}.other TO '{{user}}'@'%'
        a  GRANT SELECT ON {{db}}.* TO '{{user}}'@'%'
        b  .login {{user}} {{db}}
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  REVOKE SELECT ON {{db}}.* FROM '{{user}}'@'%'
        b  SELECT v FROM t
        b+ SELECT v FROM t
        c  .login {{user}} {{db}}
        c  SELECT v FROM t
        b  .use {{db}}
        b  SELECT v FROM t
        a  GRANT SELECT ON *.* TO '{{user}}'@'%'
        d  .login {{user}} {{db}}
        d  SELECT v FROM t
        d+ SELECT v FROM t
        a  REVOKE SELECT ON *.* FROM '{{user}}'@'%'
        d  SELECT v FROM t
        e  .login {{user}} {{db}}
        e  SELECT v FROM t
        d  USE {{db}}
        d  SELECT v FROM t
        d  .reset
        d  SELECT v FROM t
        e  SELECT v FROM t
    """)


@pytest.mark.parametrize(
    "fails", ["USE {db}_other", "USE {db}; USE {db}_other", ".use {db}_other", "SET ROLE nosuch"]
)
def test_trap_10_what_fails_may_have_read_rights_or_not(world: World, fails: str) -> None:
    """What the session reads after that by its old rights is not for one that has the new ones."""
    world.compare(f"""
        a  {MAKE}; {USER}; CREATE TABLE other (a INT)
        a  GRANT SELECT ON {{db}}.other TO '{{user}}'@'%'
        a  GRANT SELECT, INSERT ON {{db}}.* TO '{{user}}'@'%'
        b  .login {{user}} {{db}}
        b  SELECT a FROM other
        a  REVOKE SELECT ON {{db}}.* FROM '{{user}}'@'%'
        b  {fails}
        b  SELECT v FROM t
        b  SELECT v FROM t
        b  USE {{db}}
        b  SELECT v FROM t
        c  .login {{user}} {{db}}
        c  SELECT v FROM t
    """)


@pytest.mark.parametrize(
    "goes",
    [
        "SELECT {db}_o.f()",
        "SELECT {db}_o.f(1)",
        "EXPLAIN SELECT {db}_o.f()",
        "SET @x = (SELECT n FROM {db}_o.v)",
        ".prepare called SELECT {db}_o.f()",
        "SELECT * FROM {db}_o.v",
        "SHOW COLUMNS FROM {db}_o.v",
        "SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '{db}_o'",
        "CHECK TABLE {db}_o.v",
        "RENAME TABLE {db}_o.read_by_f TO {db}_o.renamed",
        "INSERT INTO {db}_o.fires VALUES (1)",
        "CALL {db}_o.p()",
        "SHOW CREATE PROCEDURE {db}_o.p",
        ".execute elsewhere",
        "EXECUTE elsewhere",
    ],
)
def test_trap_10_who_comes_back_to_a_schema_has_its_rights_read_anew(
    world: World, goes: str
) -> None:
    """The server goes to another one for code that it loads, and for what was prepared there."""
    for first, second, one, other in (
        ("GRANT SELECT, INSERT", "REVOKE SELECT ON {db}.* FROM '{user}'@'%'", "c", "b"),
        ("GRANT INSERT", "GRANT SELECT ON {db}.* TO '{user}'@'%'", "b", "c"),
    ):
        world.compare(f"""
            a  {MAKE}; {USER}; CREATE DATABASE {{db}}_o; CREATE TABLE {{db}}_o.fires (a INT)
            a  CREATE TABLE {{db}}_o.read_by_f (a INT); CREATE TABLE {{db}}_o.t (a INT)
            a  CREATE FUNCTION {{db}}_o.f() RETURNS INT DETERMINISTIC
               RETURN (SELECT COUNT(*) FROM {{db}}_o.read_by_f WHERE a < 0)
            a  CREATE VIEW {{db}}_o.v AS SELECT {{db}}_o.f() AS n
            a  CREATE TRIGGER {{db}}_o.fired AFTER INSERT ON {{db}}_o.fires FOR EACH ROW
               INSERT INTO {{db}}_o.t VALUES ({{db}}_o.f())
            a  CREATE PROCEDURE {{db}}_o.p() SELECT 1
            a  {first} ON {{db}}.* TO '{{user}}'@'%'
            a  GRANT ALL ON {{db}}_o.* TO '{{user}}'@'%'
            b  .login {{user}} {{db}}_o
            b  .prepare elsewhere SELECT a FROM t
            b  PREPARE elsewhere FROM 'SELECT a FROM t'
            b  .execute elsewhere
            b  EXECUTE elsewhere
            c  .login {{user}} {{db}}_o
            b  USE {{db}}
            c  USE {{db}}
            b  SELECT v FROM t
            c  SELECT v FROM t
            a  {second}
            b  {goes}
            {one}  SELECT v FROM t
            {one}  SELECT v FROM t
            {other}  SELECT v FROM t
            {other}  SELECT v FROM t
        """)


@pytest.mark.parametrize("right", ["SELECT", "SELECT (v)"])
def test_trap_10_a_revoke_around_sqlcache_is_found(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    schema: str,
    right: str,
) -> None:
    """Of a right on a table or a column, which the server looks up for every statement."""
    user = f"{schema}_user"
    upstream.sql(f"{MAKE}; CREATE USER {user} IDENTIFIED BY 'p'", schema)
    upstream.sql(f"GRANT {right} ON t TO {user}", schema)
    server = proxy(upstream, memcached, upstream__catalog_refresh_s=0.3)
    upstream.connect(user=user, password="p").close()  # caching_sha2_password knows it from now on
    with closing(server.connect(user=user, password="p", database=schema)) as session:

        def rows() -> int:
            with session.cursor() as cursor:
                return int(cursor.execute("SELECT v FROM t"))

        def is_refused() -> bool:
            with suppress(pymysql.MySQLError):
                return not rows()
            return True

        def hits() -> float:
            return server.metrics()["sqlcache_hits_total"]

        assert [rows() for _ in range(3)] == [3] * 3
        assert hits() > 0
        upstream.sql(f"REVOKE {right} ON t FROM {user}", schema)
        wait_until(is_refused, 20, "the refusal")
    upstream.sql(f"DROP USER {user}")


@pytest.mark.parametrize(
    ("inside", "grants", "revokes", "read"),
    [
        (
            False,
            "GRANT SELECT ON {db}.* TO {user}",
            "REVOKE SELECT ON {db}.* FROM {user}",
            "SELECT v FROM {db}.t",
        ),
        (
            True,
            "CREATE USER {db}_d; GRANT SELECT ON *.* TO {db}_d; CREATE DEFINER = {db}_d VIEW d AS"
            " SELECT v FROM t; GRANT SELECT ON {db}.d TO {user}",
            "REVOKE SELECT ON *.* FROM {db}_d",
            "SELECT v FROM {db}.d",
        ),
    ],
)
def test_trap_10_a_revoke_around_sqlcache_is_found_by_sessions_that_are_open(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    schema: str,
    inside: bool,
    grants: str,
    revokes: str,
    read: str,
) -> None:
    """The server reads rights on a schema at USE, but those on others, and a view's definer's, for
    every statement."""
    names = {"db": schema, "user": f"{schema}_user"}
    upstream.sql(f"{MAKE}; CREATE USER {names['user']} IDENTIFIED BY 'p'", schema)
    upstream.sql(grants.format(**names), schema)
    server = proxy(*(upstream, memcached), upstream__catalog_refresh_s=0.3, binlog__follow="off")
    upstream.connect(user=names["user"], password="p").close()
    login: dict[str, Any] = {"user": names["user"], "password": "p"}
    with closing(server.connect(**login, database=schema if inside else None)) as session:
        upstream.sql(f"CREATE USER {schema}_other")  # from here on it goes by what it has asked for
        loads = server.metrics()["sqlcache_catalog_loads_total"]
        wait_until(
            lambda: server.metrics()["sqlcache_catalog_loads_total"] >= loads + 2, 20, "a reading"
        )

        def is_refused() -> bool:
            with suppress(pymysql.MySQLError):
                return not session.cursor().execute(read.format(**names))
            return True

        assert not any(is_refused() for _ in range(6))
        assert server.metrics()["sqlcache_hits_total"] > 0
        upstream.sql(revokes.format(**names))
        wait_until(is_refused, 20, "the refusal")
    upstream.sql(f"DROP USER IF EXISTS {schema}_user, {schema}_d, {schema}_other")


def test_trap_10_rights_are_read_anew_where_a_role_is_set(world: World) -> None:
    for role in ("NONE", "'{db}_role'"):
        world.compare(f"""
            a  {MAKE}; {USER}; CREATE ROLE '{{db}}_role'
            a  GRANT '{{db}}_role' TO '{{user}}'@'%'
            a  CREATE TABLE other (a INT); GRANT SELECT ON {{db}}.other TO '{{db}}_role'
            a  GRANT SELECT ON {{db}}.* TO '{{user}}'@'%'
            b  .login {{user}} {{db}}
            b  SET ROLE {role}
            b  SELECT v FROM t
            b+ SELECT v FROM t
            a  REVOKE SELECT ON {{db}}.* FROM '{{user}}'@'%'
            b  SELECT v FROM t
            b+ SELECT v FROM t
            b  SET ROLE {role}
            b  SELECT v FROM t
        """)


def test_trap_10_a_view_reads_with_its_definers_rights(world: World) -> None:
    world.compare(f"""
        a  {MAKE}; {USER}; CREATE SQL SECURITY DEFINER VIEW d AS SELECT v FROM t;
           CREATE SQL SECURITY INVOKER VIEW i AS SELECT v FROM t
        a  GRANT SELECT ON {{db}}.d TO '{{user}}'@'%'; GRANT SELECT ON {{db}}.i TO '{{user}}'@'%'
        a  SELECT v FROM {{db}}.d
        a  SELECT v FROM {{db}}.i
        b  .login {{user}}
        b  SELECT v FROM {{db}}.d
        b  SELECT v FROM {{db}}.i
        b  SELECT v FROM {{db}}.t
        a  UPDATE t SET v = 'new'
        b  SELECT v FROM {{db}}.d
        a  CREATE OR REPLACE SQL SECURITY INVOKER VIEW d AS SELECT v FROM t
        b  SELECT v FROM {{db}}.d
        a  SELECT v FROM {{db}}.d
    """)


def test_trap_10_a_role_gives_its_rights_while_it_is_set(world: World) -> None:
    world.compare(f"""
        a  {MAKE}; {USER}; CREATE ROLE '{{db}}_role'
        a  GRANT SELECT ON {{db}}.* TO '{{db}}_role'
        a  GRANT '{{db}}_role' TO '{{user}}'@'%'
        b  .login {{user}}
        b  SELECT v FROM {{db}}.t
        b  SET ROLE '{{db}}_role'
        b  SELECT v FROM {{db}}.t
        b+ SELECT v FROM {{db}}.t
        c  .login {{user}}
        c  SELECT v FROM {{db}}.t
        b  SET ROLE NONE
        b  SELECT v FROM {{db}}.t
        a  SET DEFAULT ROLE '{{db}}_role' {"FOR" if world.is_mariadb else "TO"} '{{user}}'@'%'
        d  .login {{user}}
        d  SELECT v FROM {{db}}.t
        d  SELECT v FROM {{db}}.t
        c  SELECT v FROM {{db}}.t
        d  SELECT v FROM {{db}}.t
        b  .reset
        b  SELECT v FROM {{db}}.t
        a  REVOKE '{{db}}_role' FROM '{{user}}'@'%'
        d  SELECT v FROM {{db}}.t
        a  DROP ROLE '{{db}}_role'
        a  DROP USER '{{user}}'@'%'
        d  SELECT v FROM {{db}}.t
    """)


def test_trap_10_who_logs_in_has_the_roles_of_everybody_or_has_not(world: World) -> None:
    name = "activate_mandatory_roles"
    if world.is_mariadb or not world.upstream.sql(f"SHOW GLOBAL VARIABLES LIKE '{name}'"):
        pytest.skip("MySQL has such, since 9.5")
    try:
        world.compare(f"""
            a  {MAKE}; {USER}; CREATE ROLE '{{db}}_role'
            a  GRANT SELECT ON {{db}}.* TO '{{db}}_role'
            a  SET GLOBAL mandatory_roles = '{{db}}_role', {name} = ON
            b  .login {{user}}
            b  SELECT v FROM {{db}}.t
            b+ SELECT v FROM {{db}}.t
            a  SET GLOBAL {name} = OFF
            b  SELECT v FROM {{db}}.t
            b  SELECT v FROM {{db}}.t
            c  .login {{user}}
            c  SELECT CURRENT_ROLE()
            c  SELECT v FROM {{db}}.t
            a  SET GLOBAL {name} = DEFAULT, mandatory_roles = DEFAULT
            a  DROP ROLE '{{db}}_role'
            a  DROP USER '{{user}}'@'%'
        """)
    finally:
        world.upstream.sql(f"SET GLOBAL {name} = DEFAULT, mandatory_roles = DEFAULT")


# Warnings and flags.


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


# The commands that make a session another one.


@pytest.mark.parametrize("anew", [".reset", ".change_user app {db}"])
def test_trap_32_a_session_that_begins_anew_has_the_settings_of_a_new_one(
    world: World, anew: str
) -> None:
    world.compare(f"""
        a  {MAKE}
        b  SELECT at FROM {{db}}.t
        b+ SELECT at FROM {{db}}.t
        a  SET time_zone = '+05:00', sql_mode = 'ANSI_QUOTES', @x = 1
        a  CREATE TEMPORARY TABLE t (at INT)
        a  .prepare s SELECT v FROM t WHERE a = 1
        a  BEGIN
        a  {anew}
        a  SELECT at FROM {{db}}.t
        a  SELECT "v" FROM {{db}}.t
        a  SELECT v FROM t
        a  SELECT @x
        a  SET NAMES latin1
        a  SELECT v FROM {{db}}.t
    """)


def test_trap_32_prepared_statements_are_known_by_their_numbers(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  .prepare r SELECT v FROM t WHERE a = ?
        a  .prepare w UPDATE t SET v = ? WHERE a = 1
        b  .prepare r INSERT INTO t (v) VALUES (?)
        a  .execute r 1
        a  .execute r 3
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  .execute w new
        b  SELECT v FROM t
        a  .execute r 1
        b  .execute r another
        b  SELECT v FROM t
        a  ALTER TABLE t ADD COLUMN z INT DEFAULT 5 FIRST
        b  SELECT * FROM t
        a  .execute r 1
    """)


def test_an_execution_of_what_was_never_prepared_leaves_the_session_as_it_is(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        b  .execute none
        b  SELECT v FROM t
        b+ SELECT v FROM t
    """)


def test_trap_32_what_a_parameter_was_taken_for_before_decides_what_it_is_now(
    world: World,
) -> None:
    """MySQL answers a 1 as 1.0 where it answered a 1.5 before, and as 1 where it did not."""
    read = "SELECT ?, v FROM t WHERE a = ?"
    world.compare(f"""
        a  {MAKE}
        a  .prepare s {read}
        a  .execute s #1 #1
        a+ .execute s #1 #1
        a  .execute s #1.5 #1
        a+ .execute s #1.5 #1
        a  .execute s #1 #1
        b  .prepare s {read}
        b+ .execute s #1 #1
        b+ .execute s #1.5 #1
        b+ .execute s #1 #1
        b  .execute s #2 #1
        c  .prepare s {read}
        c  .execute s #2.5 #1
        c  .execute s #1 #1
        c  .execute s NULL #1
        c+ .execute s #1 #1
        d  .prepare s {read}
        d+ .execute s #2.5 #1
        d  .execute s #3 #1
        d+ .execute s NULL #1
    """)


def test_trap_32_after_a_string_that_is_no_plain_integer_others_are_decimals(
    world: World,
) -> None:
    """MySQL answers a '2' as 2.000 where a '1.5' came before; a 'two' changes nothing."""
    script = f"a  {MAKE}"
    for number in ("-2", "-0", "+.5", "2.", "1e3", "9223372036854775808"):
        read = f"SELECT a + ?, '{number}' FROM t WHERE a > 0"
        script += f"""
a  .prepare s {read}
a  .execute s 2
a  .execute s two
a+ .execute s 2
b  .prepare s {read}
b  .execute s {number}
b  .execute s 2
b  .execute s two
c  .prepare s {read}
c+ .execute s 2
c  .execute s {number}
c  .execute s 2
c  .execute s #2
d  .prepare s {read}
d  .execute s two
d+ .execute s 2
d  .execute s {number}
d  .execute s 2"""
    world.compare(script)


@pytest.mark.parametrize("limit", ["LIMIT ?", "/*!40101 LIMIT ? */"])
@pytest.mark.parametrize("rows", ["two", "1.5", "2x", r"\n2"])
def test_trap_32_a_string_in_limit_counts_otherwise_from_the_second_execution_on(
    world: World, rows: str, limit: str
) -> None:
    """On MySQL, once it has taken another parameter for what it is: of a '1.5' it makes 1, then 2,
    and of a '2x' it warns only then."""
    read = f"SELECT ?, a FROM t {limit}"
    world.compare(f"""
        a  {MAKE}
        a  .prepare s {read}
        a  .execute s #1 {rows}
        a  .execute s #1 {rows}
        a  SHOW WARNINGS
        a  .execute s #1 {rows}
        b  .prepare s {read}
        b  .execute s #1 2
        b+ .execute s #1 2
        c  .prepare s {read}
        c+ .execute s #1 2
        c  .execute s #1 {rows}
        c  .execute s #1 2
    """)


def test_trap_32_after_a_number_on_a_line_of_its_own_others_are_decimals(world: World) -> None:
    """On MySQL, which takes a ' 2' for an integer all the same."""
    read = "SELECT a + ? FROM t"
    world.compare(rf"""
        a  {MAKE}
        a  .prepare s {read}
        a  .execute s 2
        a+ .execute s 2
        b  .prepare s {read}
        b  .execute s \n2
        b  .execute s 2
        c  .prepare s {read}
        c+ .execute s 2
        c  .execute s \n2
        c  .execute s 2
    """)


def test_trap_32_after_a_string_with_a_time_of_day_others_are_datetimes(world: World) -> None:
    """MySQL answers DATETIMEs from then on, where it would have answered DATEs."""
    script = "a  CREATE TABLE t (d DATE); INSERT INTO t VALUES ('2020-01-02'), (NULL)"
    moments = ["2020-01-01T10:00:00", "2020-01-01T10:00:00.5", "10:00:00", "20200101101112"]
    for moment in [*moments, "2020-01-01T10:00", "1.2.3"]:
        for read in (f"SELECT LEAST(d, ?), '{moment}' FROM t", f"SELECT ?, d, '{moment}' FROM t"):
            script += f"""
a  .prepare s {read}
a  .execute s 2020-01-01
a  .execute s two
b  .prepare s {read}
b  .execute s {moment}
b  .execute s 2020-01-01
b  .execute s two
c  .prepare s {read}
c+ .execute s 2020-01-01
c  .execute s {moment}
c  .execute s 2020-01-01"""
    world.compare(script)


@pytest.mark.parametrize(
    "read",
    [
        "SELECT CONV(a, 10, 16) FROM t",
        "SELECT BIN(a) FROM t",
        "SELECT OCT(a) FROM t",
        "SELECT ST_DISTANCE(POINT(a, 1), POINT(3, 3)) FROM t",
        "SELECT c FROM w",
    ],
)
def test_trap_32_some_functions_remember_the_execution_before(world: World, read: str) -> None:
    world.compare(f"""
        a  CREATE TABLE t (a INT); INSERT INTO t VALUES (7), (NULL);
           CREATE VIEW w AS SELECT CONV(a, 10, 16) AS c FROM t
        a  .prepare s {read}
        a  .execute s
        a  .execute s
        b  .prepare s {read}
        b  .execute s
        b  DELETE FROM t
        b  INSERT INTO t VALUES (8), (NULL)
        a  .execute s
        b  .prepare s {read}
        b  .execute s
        b  .execute s
    """)


@pytest.mark.parametrize(
    "read",
    [
        "SELECT GROUP_CONCAT(a, b ORDER BY ?) FROM t",
        "SELECT GROUP_CONCAT(a, b ORDER BY a > 9, (?)) FROM t",
        "SELECT MAX(a) FROM t GROUP BY a, ? ORDER BY 1",
        "SELECT a, b FROM t ORDER BY ?",
    ],
)
def test_trap_32_mariadb_takes_the_first_parameter_for_a_columns_place(
    world: World, read: str
) -> None:
    if not world.is_mariadb:
        pytest.skip("MySQL 9.7 dies of some of these")
    world.compare(f"""
        a  CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (1, 9), (2, 5), (3, 7)
        a  .prepare s {read}
        a  .execute s #1
        a  .execute s #2
        b  .prepare s {read}
        b  .execute s #2
        b  .execute s #1
        a  .execute s #1
    """)


def test_trap_32_a_number_that_was_a_date_makes_others_dates(world: World) -> None:
    """MySQL takes a 0 for a date where it wants one, and a 1 that comes later for a wrong one."""
    read = "SELECT COALESCE(d, ?), a FROM t WHERE a = ?"
    plain = "SELECT a + ?, ? FROM t WHERE a = ?"
    world.compare(f"""
        a  CREATE TABLE t (a INT, d DATE, ip VARCHAR(20));
           INSERT INTO t VALUES (1, NULL, '10.0.0.1')
        a  .prepare s {read}
        a  .execute s #1 #1
        a+ .execute s #1 #1
        b  .prepare s {read}
        b  .execute s #0 #1
        b  .execute s #1 #1
        b  .execute s 2020-01-05 #1
        c  .prepare s {read}
        c+ .execute s #1 #1
        c  .execute s #20200101101112 #1
        c  .execute s #1 #1
        a  .prepare p {plain}
        a  .execute p #0 #20200101 #1
        a+ .execute p #0 #20200101 #1
        a  .prepare q SELECT a FROM t WHERE ip = ? AND a = ? AND d IS NULL
        a  .execute q 10.0.0.1 #1
        a  .execute q 10.0.0.2 #0
        a+ .execute q 10.0.0.1 #1
        a+ .execute q 10.0.0.2 #0
    """)


def test_trap_32_after_a_definition_changed_the_server_forgets_what_parameters_were(
    world: World,
) -> None:
    """MySQL prepares the statement anew, and takes a 1 for an integer again."""
    read = "SELECT a + ? FROM t"
    world.compare(f"""
        a  CREATE TABLE t (a INT); INSERT INTO t VALUES (1)
        a  .prepare s {read}
        a  .execute s #1.5
        b  .prepare s {read}
        b  .execute s #1.5
        b  ALTER TABLE t ADD COLUMN z INT
        a  .execute s #1
        a  .execute s #1
        b  .execute s #1.5
        b  .execute s #1
        c  .prepare s {read}
        c  .execute s #1.5
        c  .execute s #1
        b  .execute s #1
        a  .execute s #1
        d  .prepare s {read}
        d+ .execute s #1.5
        d+ .execute s #1
    """)


def test_trap_32_a_cursor_is_not_the_first_execution_the_server_sees_after_a_hit(
    world: World,
) -> None:
    """MySQL 9.7 never ends its answer to an execution without a cursor where the first was with."""
    world.compare(f"""
        a  {MAKE}
        a  .prepare s SELECT v FROM t WHERE a < ?
        b  .prepare s SELECT v FROM t WHERE a < ?
        a  .execute s 3
        b+ .execute s 3
        b  .cursor s 9
        b  .execute s 9
        a  ALTER TABLE t ADD COLUMN z INT
        a  .execute s 3
        b+ .execute s 3
        b  .cursor s 3
        b  .execute s 3
        b+ .execute s 3
        b  .execute s 2
    """)


def test_trap_32_only_the_execution_after_a_change_tells_of_it(world: World) -> None:
    """That the columns are others than at the last one is told by a status flag."""
    world.compare("""
        a  CREATE TABLE t (a INT); INSERT INTO t VALUES (1)
        a  .prepare s SELECT * FROM t
        a  .execute s
        a+ .execute s
        b  ALTER TABLE t ADD COLUMN b INT
        a  .execute s
        a  .execute s
        a+ .execute s
        b  .prepare s SELECT * FROM t
        b+ .execute s
    """)


def test_trap_10_a_setting_that_shapes_columns_outlives_a_set_that_fails(world: World) -> None:
    world.compare("""
        a  CREATE TABLE t (a INT PRIMARY KEY)
        b  SET sql_buffer_result = 1
        b  SET sql_mode = NO_SUCH
        b  SELECT * FROM t
        c  SET sql_mode = NO_SUCH
        c  SELECT * FROM t
    """)
