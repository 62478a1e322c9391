"""Traps of sessions: their settings, from logins, globals and SETs, are a part of the question."""

from __future__ import annotations

import pytest

from tests.integration.scripts import World
from tests.integration.sessions import MAKE, USER

CHARACTER_SETS = (
    "@@character_set_client, @@character_set_connection, @@character_set_results,"
    " @@collation_connection"
)


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


@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK"])
def test_trap_03_settings_put_back_around_what_ends_a_transaction_change_others(
    world: World, ends: str
) -> None:
    if not world.is_mariadb:
        pytest.skip("MySQL has no SET STATEMENT")
    own, read = "SET max_join_size = 1, sql_big_selects = 1", "SELECT COUNT(*) FROM t, t AS u"
    world.compare(f"""
        a  {MAKE}
        a  {own}
        a  {read}
        a+ {read}
        a  BEGIN
        a  SET STATEMENT max_join_size = 7 FOR {ends}
        b  {own}
        b  {read}
        b+ {read}
        b  BEGIN
        b  SET STATEMENT max_join_size = 7 FOR {ends}
        b  {read}
    """)


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


def test_trap_10_a_setting_that_shapes_columns_outlives_a_set_that_fails(world: World) -> None:
    world.compare("""
        a  CREATE TABLE t (a INT PRIMARY KEY)
        b  SET sql_buffer_result = 1
        b  SET sql_mode = NO_SUCH
        b  SELECT * FROM t
        c  SET sql_mode = NO_SUCH
        c  SELECT * FROM t
    """)
