"""Traps of sessions: FOUND_ROWS() and the like say after a hit what they say after an answer."""

from __future__ import annotations

from contextlib import closing

import pytest

from sqlcache.demo.servers import PrivateSqlServer
from tests.conftest import ProxyFactory
from tests.integration.scripts import World
from tests.integration.sessions import MAKE

MEGABYTE = 1 << 20


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


def test_trap_07_found_rows_counts_what_a_hit_gave(world: World) -> None:
    steps = [f"a  {MAKE}; CREATE TABLE u (a INT)"]
    for number, between in enumerate(BETWEEN):
        asks = ".execute s" if between.startswith(".prepare") else "SELECT FOUND_ROWS()"
        read = f"SELECT v FROM t WHERE {number} = {number}"
        steps += [f"a  {read}", "a  SELECT 1 FROM t WHERE a = 0", f"a+ {read}"]
        steps += [f"a  {between}", f"a  {asks}", "a  SELECT FOUND_ROWS()", "a  COMMIT"]
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
