"""Traps of reads: answers that must not be stored, or not be shared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sqlcache.demo.servers import PrivateSqlServer
from tests.integration.scripts import World

MAKE = (
    "CREATE TABLE t (a INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20), at DATETIME);"
    " CREATE TABLE u (a INT PRIMARY KEY, v VARCHAR(20));"
    " INSERT INTO t VALUES (1, 'x', '2020-01-01'), (2, 'y', '2021-01-01');"
    " INSERT INTO u VALUES (1, 'one'), (2, 'two')"
)


def test_trap_01_what_is_not_deterministic_is_asked_anew_each_time(
    world: World, schema: str
) -> None:
    """A hit would give the same answer twice; the table's rows make each read look cacheable."""
    world.upstream.sql(MAKE, schema)
    expressions = ["UUID()", "RAND()", "NOW(6)", "SYSDATE(6)", "CURTIME(6)", "UUID_SHORT()"]
    expressions += ["CURRENT_TIMESTAMP(6)", "UTC_TIMESTAMP(6)", "LOCALTIME(6)", "UTC_TIME(6)"]
    expressions += ["UNIX_TIMESTAMP(NOW(6))", "AT + INTERVAL MICROSECOND(NOW(6)) MICROSECOND"]
    expressions += ["RANDOM_BYTES(8)", "SHA2(UUID(), 256)", "(SELECT RAND() FROM u LIMIT 1)"]
    login = {"user": world.upstream.user, "password": world.upstream.password}
    with world.proxy.connect(**login, database=schema) as connection:
        for expression in expressions:
            answers = set()
            for _ in range(4):
                with connection.cursor() as cursor:
                    cursor.execute(f"SELECT {expression}, v FROM t WHERE a = 1")
                    answers.add(cursor.fetchall())
            assert len(answers) == 4, expression


@pytest.mark.parametrize(
    "read",
    [
        "SELECT f(), v FROM t",
        "SELECT {db}.f(), v FROM t",
        "SELECT `f`(), v FROM t",
        "SELECT v FROM t HAVING f() > 1 ORDER BY f(), v",
        "SELECT v, (SELECT f()) FROM t",
        "SELECT * FROM v",
        "SELECT * FROM w",
    ],
)
def test_trap_02_a_stored_function_may_read_what_no_statement_names(
    world: World, read: str
) -> None:
    world.compare(f"""
        a  {MAKE}; CREATE FUNCTION f() RETURNS INT READS SQL DATA RETURN (SELECT MAX(a) FROM u);
           CREATE VIEW v AS SELECT v, f() AS n FROM t; CREATE VIEW w AS SELECT * FROM v
        a  {read}
        b  {read}
        b  INSERT INTO u VALUES (3, 'three')
        a  {read}
        b  {read}
    """)


def test_trap_02_a_stored_function_may_have_the_name_of_one_built_in_elsewhere(
    world: World,
) -> None:
    name = "uuid_to_bin" if world.is_mariadb else "natural_sort_key"
    world.compare(f"""
        a  {MAKE}
        a  CREATE FUNCTION {name}(n INT) RETURNS INT READS SQL DATA
             RETURN (SELECT MAX(a) FROM u) + n
        a  SELECT {name}(a) FROM t
        a  SELECT {name}(a) FROM t
        b  DELETE FROM u WHERE a = 2
        a  SELECT {name}(a) FROM t
    """)


@pytest.mark.parametrize(
    "read",
    [
        "SELECT v FROM t WHERE a = @x",
        "SELECT @x, v FROM t",
        "SELECT @`x` + a FROM t",
        "SELECT @x := @x + a FROM t",
        "SELECT v FROM t WHERE a = (SELECT @x FROM u LIMIT 1)",
        "SELECT @@session.sql_select_limit, v FROM t",
        "SELECT @@pseudo_thread_id > 0, @@timestamp = 5, v FROM t",
        "SELECT LAST_INSERT_ID(7), v FROM t",
    ],
)
def test_trap_04_variables_are_the_sessions_own(world: World, read: str) -> None:
    world.compare(f"""
        a  {MAKE}; SET @x = 1
        b  SET @x = 2, sql_select_limit = 1
        a  {read}
        a  {read}
        b  {read}
        a  SET @x = 2, @@timestamp = 5
        a  {read}
        b  {read}
        a  SELECT LAST_INSERT_ID()
    """)


@pytest.mark.parametrize(
    "read",
    [
        "SELECT table_name FROM information_schema.tables WHERE table_schema = '{db}'",
        "SELECT column_name FROM Information_Schema.`Columns` WHERE table_schema = '{db}'"
        " ORDER BY table_name, ordinal_position",
        "SELECT v FROM t WHERE 4 <> (SELECT COUNT(*) FROM information_schema.tables"
        " WHERE table_schema = '{db}')",
        "SELECT user FROM mysql.user WHERE user = '{user}'",
        "SELECT COUNT(*) FROM mysql.global_grants WHERE user = '{user}'",
        "SHOW TABLES",
        "SELECT 1",
        "SELECT * FROM listed",
    ],
)
def test_trap_09_what_the_server_tells_of_itself_is_asked_anew(world: World, read: str) -> None:
    world.compare(f"""
        a  {MAKE}; CREATE VIEW listed AS SELECT table_name FROM information_schema.tables
           WHERE table_schema = '{{db}}'
        a  {read}
        a  {read}
        b  CREATE TABLE w (a INT); CREATE USER '{{user}}'
        a  {read}
    """)


def test_trap_09_a_system_schema_is_known_where_it_is_the_default(world: World) -> None:
    world.compare("""
        a  USE information_schema
        a  SELECT table_name FROM tables WHERE table_schema = '{db}'
        a  SELECT table_name FROM tables WHERE table_schema = '{db}'
        b  CREATE TABLE w (a INT)
        a  SELECT table_name FROM tables WHERE table_schema = '{db}'
    """)


def test_trap_12_comments_that_are_code_are_no_white_space(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT /* x */ v FROM t
        a+ SELECT /* y */ v FROM t
        a  SELECT /*!99999 a, */ v FROM t
        a  SELECT /*!40000 a, */ v FROM t
        a  SELECT /*M!100000 a, */ v FROM t
        a  SELECT /*!40000 a, */ v FROM t
        a  SELECT v FROM t /*!40000 WHERE a = 1 */
        a  SELECT v FROM t /*!99999 WHERE a = 1 */
        a  SELECT v FROM t
        a  /*!40000 UPDATE t SET v = 'new' */
        a  SELECT /* x */ v FROM t
        a  UPDATE t /*!99999 , u */ SET t.v = 'newer'
        a  SELECT /* x */ v FROM t
        a  SELECT v FROM t WHERE v = '/* x */'
        a  SELECT v FROM t WHERE v = '/* y */'
    """)


def test_trap_12_a_hint_may_change_the_answer(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT GROUP_CONCAT(v) FROM t
        a+ SELECT GROUP_CONCAT(v) FROM t
        a  SELECT /*+ SET_VAR(group_concat_max_len = 4) */ GROUP_CONCAT(REPEAT(v, 9)) FROM t
        a  SELECT GROUP_CONCAT(REPEAT(v, 9)) FROM t
        a  SELECT /*+ SET_VAR(group_concat_max_len = 4) */ GROUP_CONCAT(REPEAT(v, 9)) FROM t
        a  SELECT /*+ SET_VAR(sql_select_limit = 1) */ v FROM t
        a  SELECT v FROM t
        a  SELECT /* + SET_VAR(sql_select_limit = 1) */ v FROM t
    """)


def test_trap_12_column_names_are_the_text_of_their_expressions(world: World) -> None:
    """Texts that differ in white space, case or comments only, each with names of its own."""
    texts = ["COUNT(a)", "COUNT( a )", "count(a)", "COUNT(/* x */a)", "COUNT(a) ", " COUNT(a)"]
    texts += ["COUNT(a) AS n", "COUNT(a) As N", "MAX(a)+1", "MAX(a) +1", "MAX(a)  + 1", "'x'"]
    texts += ["1", "1.0", "'a' 'b'", "'ab'", "NULL", "null", "(1)", "t.v", "`v`", "v", "V", "-1"]
    lines = "".join(f"\n        a  SELECT {text} FROM t" for text in texts)
    world.compare(f"""
        a  SET sql_mode = ''
        a  {MAKE}{lines}{lines}
    """)


QUERIES = [
    "(SELECT v FROM t)",
    "SELECT v FROM t UNION SELECT v FROM u",
    "(SELECT v FROM t) UNION ALL (SELECT v FROM u) ORDER BY 1 LIMIT 9",
    "WITH c AS (SELECT v FROM t) SELECT * FROM c",
    "WITH u AS (SELECT v FROM t) SELECT * FROM u",
    "WITH RECURSIVE c AS (SELECT MAX(a) AS n FROM t UNION SELECT n + 1 FROM c WHERE n < 9)"
    " SELECT * FROM c",
    "SELECT * FROM (SELECT v FROM (SELECT * FROM t) AS d) AS e",
    "SELECT v FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.v = 'new' AND t.a = u.a)",
    "SELECT (SELECT MAX(v) FROM t) FROM u",
    "SELECT u.v FROM u LEFT JOIN (t CROSS JOIN u AS w) ON t.a = u.a AND t.v = w.v",
    "SELECT v FROM u ORDER BY (SELECT v = 'new' FROM t WHERE t.a = u.a)",
]


@pytest.mark.parametrize(
    "write",
    [
        "UPDATE t SET v = 'new' WHERE a = 2",
        "WITH c AS (SELECT 2 AS a) UPDATE t JOIN c USING (a) SET t.v = 'new'",
        "SET STATEMENT max_statement_time = 9 FOR UPDATE t SET v = 'new' WHERE a = 2",
    ],
)
def test_trap_13_every_form_of_query_sees_every_form_of_change(world: World, write: str) -> None:
    """Also those only one of the servers has: the other refuses it."""
    reads = "".join(f"\n        a  {read}" for read in QUERIES)
    hits = "".join(f"\n        b+ {read}" for read in QUERIES)
    world.compare(f"""
        a  {MAKE}{reads}{hits}
        b  {write}{reads}
    """)


def test_trap_13_table_and_values_are_queries(world: World) -> None:
    hit = "" if world.is_mariadb else "+"
    world.compare(f"""
        a  {MAKE}
        a  TABLE t
        a{hit}  TABLE t
        a  TABLE t UNION TABLE t
        a  VALUES ROW(1, (SELECT MAX(a) FROM t)), ROW(2, 3)
        a  (VALUES (1, 2))
        b  INSERT INTO t VALUES (3, 'new', NULL)
        a  TABLE t
        a  TABLE t UNION TABLE t
        a  VALUES ROW(1, (SELECT MAX(a) FROM t)), ROW(2, 3)
    """)


def test_trap_13_a_comment_among_closing_semicolons_is_a_statement(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT v FROM t
        a+ SELECT v FROM t ; ;
        a  SELECT v FROM t; /* more */
        a  SELECT v FROM t; /* more */ ;
        a  SELECT v FROM t ; /* more */ ; ;
        a  SELECT v FROM t; -- more
    """)


@pytest.mark.parametrize("end", ["; -- more", "; /* more */", "; /* more */ ;", " /*! ; */"])
def test_trap_13_what_is_one_statement_to_some_is_several_to_others(world: World, end: str) -> None:
    """To who may send several, a comment behind a semicolon is one more."""
    read = f"SELECT v FROM t{end}"
    world.compare(f"""
        a  {MAKE}
        b  .option 1
        b  {read}
        b  {read}
        a  {read}
        a  .option 1
        a  {read}
        a  .option 0
        a  {read}
    """)


def test_trap_14_parts_of_a_key_do_not_run_into_each_other(world: World) -> None:
    """The same bytes, cut elsewhere: schema and table, literal and literal, name and alias."""
    world.compare("""
        a  CREATE DATABASE {db}_x; CREATE TABLE {db}_x.y_t (v CHAR(9));
           CREATE TABLE x_y_t (v CHAR(9));
           INSERT INTO {db}_x.y_t VALUES ('other'); INSERT INTO x_y_t VALUES ('own'), ('ab'), ('a')
        a  SELECT v FROM x_y_t
        a+ SELECT v FROM x_y_t
        b  USE {db}_x
        b  SELECT v FROM y_t
        a  SELECT v FROM x_y_t WHERE v IN ('a', 'b')
        a  SELECT v FROM x_y_t WHERE v IN ('a'', ''b')
        a  SELECT v FROM x_y_t WHERE v IN ('ab')
        a  SELECT v FROM x_y_t WHERE v IN ('a' 'b')
        a  SELECT v FROM x_y_t WHERE v = 'a' OR v = ' b'
        a  SELECT v x_y FROM x_y_t
        a  SELECT v FROM x_y_t x_y
    """)


@pytest.mark.parametrize(
    "read",
    [
        "SELECT DATE_FORMAT('2020-01-01', '%Y'), LPAD('a', 3, '.'), v FROM t ORDER BY a",
        "SELECT DATABASE(), SCHEMA(), v FROM t ORDER BY a",
        "SELECT AES_DECRYPT(AES_ENCRYPT(v, 'k'), 'k') AS d FROM t ORDER BY a",
        "SELECT BIN(a), CONV(a, 10, 16), OCT(a), v FROM t ORDER BY a",
        "SELECT ST_DISTANCE(POINT(a, 1), POINT(0, 0)), v FROM t ORDER BY a",
        "SELECT {d '2020-01-01'} AS d, v FROM t WHERE at < {ts '2021-01-01 00:00:00'}",
        "SELECT /*!40000 STRAIGHT_JOIN */ v FROM t /*! ORDER BY a */",
        "SELECT v FROM t WHERE a IN (" + ", ".join(map(str, range(5_000))) + ") ORDER BY a",
    ],
)
def test_what_is_steady_is_a_hit_until_it_is_written(world: World, read: str) -> None:
    world.compare(f"""
        a  {MAKE}
        a  {read}
        a+ {read}
        b+ {read}
        b  UPDATE t SET v = 'z' WHERE a = 1
        a  {read}
        a+ {read}
    """)


def test_vectors_are_hits_until_they_are_written(world: World) -> None:
    if world.is_mariadb:
        pytest.skip("MariaDB 10.11 has none")
    read = "SELECT VECTOR_TO_STRING(e), VECTOR_DIM(e) FROM embeddings"
    world.compare(f"""
        a  CREATE TABLE embeddings (id INT PRIMARY KEY, e VECTOR(2))
        a  INSERT INTO embeddings VALUES (1, STRING_TO_VECTOR('[1, 2]'))
        a  {read}
        a+ {read}
        b  UPDATE embeddings SET e = TO_VECTOR('[3, 4]')
        a  {read}
        a+ {read}
        a  SELECT id FROM embeddings WHERE FROM_VECTOR(e) = '[3,4]'
        a+ SELECT id FROM embeddings WHERE FROM_VECTOR(e) = '[3,4]'
    """)


def test_the_default_schema_is_that_of_who_asks(world: World) -> None:
    read = "SELECT DATABASE() = '{db}' AS here, v FROM {db}.t ORDER BY a"
    world.compare(f"""
        a  {MAKE}
        a  {read}
        a+ {read}
        a  .prepare p {read}
        a  .execute p
        a+ .execute p
        a  USE mysql
        a  {read}
        a  .execute p
        a+ {read}
    """)


@pytest.fixture
def zones(upstream: PrivateSqlServer) -> Iterator[dict[str, int]]:
    """The numbers of two time zones that have names, which those of a new server have not."""
    for name, seconds in (("UTC", 0), ("Europe/Paris", 3600)):
        upstream.sql(f"""
            INSERT INTO mysql.time_zone (Use_leap_seconds) VALUES ('N');
            SET @zone = LAST_INSERT_ID();
            INSERT INTO mysql.time_zone_transition_type VALUES (@zone, 0, {seconds}, 0, 'x');
            INSERT INTO mysql.time_zone_name VALUES ('{name}', @zone)
        """)
    yield dict(upstream.sql("SELECT Name, Time_zone_id FROM mysql.time_zone_name"))
    for suffix in ("", "_name", "_transition_type"):
        upstream.sql(f"DELETE FROM mysql.time_zone{suffix}")


def test_another_zones_time_is_a_hit_until_the_zone_is_written(
    world: World, zones: dict[str, int]
) -> None:
    read = "SELECT CONVERT_TZ(made, 'UTC', '{db}') FROM t"
    prepared = "SELECT CONVERT_TZ(made, '+00:00', 'Europe/Paris') FROM t WHERE a < ?"
    world.compare(f"""
        a  CREATE TABLE t (a INT, made DATETIME); INSERT INTO t VALUES (1, '2020-06-01 12:00:00')
        a  {read}
        a+ {read}
        b  INSERT INTO mysql.time_zone_name VALUES ('{{db}}', {zones["Europe/Paris"]})
        a  SELECT made FROM t
        a  {read}
        a+ {read}
        b  UPDATE t SET made = '2021-06-01 12:00:00'
        a  {read}
        a+ {read}
        a  .prepare s {prepared}
        a  .execute s 5
        a+ .execute s 5
    """)


def test_texts_that_mean_the_same_share_an_answer(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT a,v FROM t ORDER BY a
        a+ SELECT a, v FROM t ORDER BY a;
        b+ SELECT a , v  FROM t ORDER BY a ;
        b  SET timestamp = 5, unique_checks = 0, net_write_timeout = 600
        b+ SELECT a,v FROM t ORDER BY a
        b  SET time_zone = '+03:00'
        b  SELECT a,v FROM t ORDER BY a
        a  SELECT COUNT(a),v FROM t GROUP BY v ORDER BY v
        a  SELECT COUNT( a ), v FROM t GROUP BY v ORDER BY v
        a  SELECT a AS  x,t . v FROM t ORDER BY a
        a+ SELECT a AS x, t.v FROM t ORDER BY a
    """)


def test_a_pattern_beside_a_parameter_is_remembered_as_it_is(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  .prepare p SELECT v FROM t WHERE v REGEXP '^[xz]' AND a < ? ORDER BY a
        a  .execute p #5
        a+ .execute p #5
        a  .execute p NULL
        a  .execute p #2
        a  UPDATE t SET v = 'zz' WHERE a = 2
        a  .execute p #5
        a+ .execute p #5
    """)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a, d < ? FROM x",
        "SELECT a FROM x WHERE d < ? LIMIT 1",
        "SELECT DATEDIFF(d, ?) FROM x",
        "SELECT YEAR(?) FROM x",
        "SELECT CAST(? AS DATETIME) FROM x",
    ],
)
def test_a_time_of_day_that_becomes_a_date_takes_the_date_of_today(
    world: World, query: str
) -> None:
    """Another day stands for tomorrow."""
    world.compare(f"""
        a  CREATE TABLE x (a INT, d DATETIME); INSERT INTO x VALUES (1, '2010-05-05')
        a  SET timestamp = 1000000000
        a  .prepare p {query}
        a  .execute p TIME'10:11:12'
        a  .execute p TIME'10:11:12'
        b  SET timestamp = 1700000000
        b  .prepare p {query}
        b  .execute p TIME'10:11:12'
    """)


BY_FORMAT = "SELECT a, d < STR_TO_DATE(s, '{}') FROM x"
"""It answers otherwise each day where that makes a TIME; one date and one time have `s`."""
OF_FORMATS = """
        a  CREATE TABLE x (a INT, s VARCHAR(9), d DATETIME);
           INSERT INTO x VALUES (1, '10 11 12', '2010-05-05')
        a  SET timestamp = 1000000000
        b  SET timestamp = 1700000000
"""


@pytest.mark.parametrize("first", ["dated", "timed"])
def test_a_format_that_makes_a_time_shares_no_plan_with_one_that_makes_a_date(
    world: World, first: str
) -> None:
    """Another day stands for tomorrow."""
    dated, timed = BY_FORMAT.format("%y %m %d"), BY_FORMAT.format("%H %i %s")
    steps = {
        "dated": f"""
        a  {dated}
        b+ {dated}
""",
        "timed": f"""
        a  {timed}
        b  {timed}
        a  {timed}
""",
    }
    second = "timed" if first == "dated" else "dated"
    world.compare(
        OF_FORMATS
        + steps[first]
        + steps[second]
        + f"""
        b+ {dated}
        a  {timed}
        a  .prepare p {dated}
        a  .execute p
        a+ .execute p
        a  .prepare q {timed}
        a  .execute q
        b  .prepare q {timed}
        b  .execute q
        a  .prepare r SELECT a, d < STR_TO_DATE(s, ?) FROM x
        a  .execute r '%y %m %d'
        a  .execute r '%H %i %s'
        b  .prepare r SELECT a, d < STR_TO_DATE(s, ?) FROM x
        b  .execute r '%y %m %d'
        b  .execute r '%H %i %s'
        b  UPDATE x SET d = '2020-05-05'
        a  {dated}
        b+ {dated}
    """
    )


def test_a_format_of_two_bytes_a_character_may_be_another(world: World) -> None:
    read = "SELECT a, d < STR_TO_DATE('', '%y') FROM x"
    world.compare(
        OF_FORMATS
        + f"""
        a  SET collation_connection = utf16_general_ci
        b  SET collation_connection = utf16_general_ci
        a  {read}
        b  {read}
        a  .prepare p {read}
        b  .prepare p {read}
        a  .execute p
        b  .execute p
        a  SET collation_connection = DEFAULT
        a  .execute p
        a  {BY_FORMAT.format("%y %m %d")}
        a+ {BY_FORMAT.format("%y %m %d")}
    """
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT STR_TO_DATE(CONCAT(DATE_FORMAT(`x`.`d`, '%Y-%m'), '-01'), '%Y-%m-%d') AS `d`,"
        " COUNT(*) AS `count` FROM `x` GROUP BY"
        " STR_TO_DATE(CONCAT(DATE_FORMAT(`x`.`d`, '%Y-%m'), '-01'), '%Y-%m-%d') ORDER BY"
        " STR_TO_DATE(CONCAT(DATE_FORMAT(`x`.`d`, '%Y-%m'), '-01'), '%Y-%m-%d') ASC",
        "SELECT STR_TO_DATE(CONCAT(YEARWEEK(d), ' Sunday'), '%X%V %W') AS w, COUNT(*) FROM x"
        " WHERE d BETWEEN STR_TO_DATE('2009-01-01', '%Y-%m-%d') AND"
        " STR_TO_DATE('2029-01-01', '%Y-%m-%d') GROUP BY 1",
        "SELECT CONVERT_TZ(d, '+00:00', '+05:30') FROM x",
        "SELECT a FROM x WHERE CONVERT_TZ(d, '+00:00', '-03:00') < '2020-01-01'",
    ],
)
def test_dates_by_format_and_zones_by_offset_are_hits(world: World, query: str) -> None:
    world.compare(
        OF_FORMATS
        + f"""
        a  {query}
        b+ {query}
        a  .prepare p {query}
        a  .execute p
        a+ .execute p
        b  UPDATE x SET d = '2020-05-05'
        a  {query}
        b+ {query}
        a  .reset
        a  {query}
        a+ {query}
    """
    )


def test_a_zone_by_name_shares_no_plan_with_an_offset(world: World) -> None:
    read = "SELECT CONVERT_TZ(d, '+00:00', '{}') FROM x"
    offset, name = read.format("+05:30"), read.format("{db}")
    world.compare(
        OF_FORMATS
        + f"""
        a  {name}
        a  {offset}
        a+ {offset}
        a  {name}
        b  INSERT INTO mysql.time_zone VALUES (700, 'N')
        b  INSERT INTO mysql.time_zone_transition_type VALUES (700, 0, 7200, 0, 'x')
        b  INSERT INTO mysql.time_zone_name VALUES ('{{db}}', 700)
        a  {name}
        a  {offset}
        b  DELETE FROM mysql.time_zone_name WHERE Time_zone_id = 700
        b  DELETE FROM mysql.time_zone_transition_type WHERE Time_zone_id = 700
        b  DELETE FROM mysql.time_zone WHERE Time_zone_id = 700
    """
    )


def test_a_list_of_thousands_of_parameters_is_one(world: World) -> None:
    listed, values = ", ".join(["?"] * 5_000), " ".join(f"#{each}" for each in range(5_000))
    world.compare(f"""
        a  {MAKE}
        a  .prepare p SELECT v FROM t WHERE a IN ({listed}) ORDER BY a
        a  .execute p {values}
        a+ .execute p {values}
        a  UPDATE t SET v = 'z'
        a  .execute p {values}
        a+ .execute p {values}
    """)


@pytest.mark.parametrize(
    "asks",
    [
        "SELECT a FROM t WHERE MATCH (v) AGAINST ('apple pear')",
        "SELECT a FROM t WHERE MATCH (v) AGAINST ('apple pear') LIMIT 3",
        "SELECT a FROM t WHERE MATCH (v) AGAINST ('apple pear' WITH QUERY EXPANSION) LIMIT 3",
        "SELECT a FROM t WHERE MATCH (v) AGAINST ('apple pear' IN BOOLEAN MODE) LIMIT 3",
        "SELECT GROUP_CONCAT(a) FROM t WHERE MATCH (v) AGAINST ('apple pear')",
        "SELECT a FROM t WHERE a IN (SELECT a FROM t WHERE MATCH (v) AGAINST ('apple pear'))",
    ],
)
def test_trap_09_rows_come_in_the_order_of_scores_that_count_what_is_not_committed(
    world: World, asks: str
) -> None:
    texts = (
        " ".join(["apple"] * (n % 4) + ["pear"] * (n * 7 % 5) + ["rare"] * (n == 5))
        for n in range(1, 13)
    )
    rows = ", ".join(f"({n}, '{text} filler{n}')" for n, text in enumerate(texts, 1))
    others = ", ".join(f"({n}, 'apple apple apple filler2 rare pome')" for n in range(100, 140))
    world.compare(f"""
        a  CREATE TABLE t (a INT PRIMARY KEY, v TEXT, FULLTEXT (v)) STATS_AUTO_RECALC = 0;
           INSERT INTO t VALUES {rows}
        a  {asks}
        a  {asks}
        b  BEGIN
        b  INSERT INTO t VALUES {others}
        a  {asks}
        c  {asks}
        b  ROLLBACK
        a  {asks}
        c  {asks}
    """)


def test_what_matches_is_a_hit_where_its_order_does_not_matter(world: World) -> None:
    match = "MATCH (v) AGAINST ('apple pear')"
    reads = [
        f"SELECT COUNT(*) AS n FROM t WHERE {match}",
        f"SELECT a FROM t WHERE {match} ORDER BY a",
        "SELECT a FROM t WHERE MATCH (v) AGAINST ('apple' IN BOOLEAN MODE) ORDER BY a LIMIT 2",
    ]
    steps = "".join(f"\n        a  {read}\n        a+ {read}" for read in reads)
    world.compare(f"""
        a  CREATE TABLE t (a INT PRIMARY KEY, v TEXT, FULLTEXT (v));
           INSERT INTO t VALUES (1, 'apple'), (2, 'pear'), (3, 'an apple and a pear'){steps}
        b  DELETE FROM t WHERE a = 1{steps}
    """)
