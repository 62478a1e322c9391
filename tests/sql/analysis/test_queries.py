"""Which queries may be cached, and which tables they read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.sql.analysis import analyse, identifiers_in
from sqlcache.sql.lexer import lex, word_set
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.statement import FoundRows, Kind
from tests.sql.analysis.reading import PLAIN, names, one

CACHEABLE = [
    ("SELECT * FROM t", "t"),
    ("select a from t;", "t"),
    ("(SELECT a FROM t)", "t"),
    ("TABLE t", "t"),
    ("TABLE t UNION TABLE u", "t u"),
    ("SELECT a FROM t UNION ALL SELECT b FROM u EXCEPT SELECT c FROM v", "t u v"),
    ("WITH x AS (SELECT * FROM t) SELECT * FROM x", "t"),
    ("WITH t AS (SELECT * FROM t) SELECT * FROM t", "t"),
    ("WITH RECURSIVE x (n) AS (SELECT 1 UNION ALL SELECT n+1 FROM x) SELECT * FROM x, t", "t"),
    ("(WITH x AS (SELECT 1) SELECT * FROM x) UNION SELECT * FROM x", "x"),
    ("SELECT * FROM a, (b JOIN c)", "a b c"),
    ("SELECT * FROM a STRAIGHT_JOIN b", "a b"),
    ("SELECT STRAIGHT_JOIN * FROM a, b", "a b"),
    ("SELECT 1 FROM a" + "".join(f" JOIN t{n}" for n in range(6)), "a t0 t1 t2 t3 t4 t5"),
    ("SELECT DATE(TIME(YEAR(CHAR(a)))) FROM t", "t"),
    ("SELECT * FROM t PARTITION (p0) AS x, u", "t u"),
    ("SELECT * FROM t USE INDEX (i), u FORCE INDEX FOR JOIN (j)", "t u"),
    ("SELECT * FROM t, LATERAL (SELECT * FROM u WHERE u.a = t.a) AS l", "t u"),
    (
        "SELECT * FROM t WHERE a = (SELECT MAX(b) FROM u) ORDER BY (SELECT 1 FROM v LIMIT 1)",
        "t u v",
    ),
    ("SELECT * FROM t JOIN u ON t.a = (SELECT b FROM v) HAVING 1 IN (SELECT c FROM w)", "t u v w"),
    ("SELECT * FROM `a.b` JOIN db . t", "a.b db.t"),
    ("SELECT * FROM ((SELECT 1 FROM t) UNION (SELECT 2 FROM u)) AS d", "t u"),
    ("SELECT * FROM t, JSON_TABLE(t.j, '$[*]' COLUMNS (a INT PATH '$')) AS j", "t"),
    ("SELECT SUBSTRING(a FROM 1 FOR 2), EXTRACT(DAY FROM b), TRIM('x' FROM c) FROM t", "t"),
    ("SELECT COUNT(DISTINCT a), GROUP_CONCAT(b ORDER BY c SEPARATOR ',') FROM t", "t"),
    ("SELECT SUM(a) OVER (PARTITION BY b), RANK() OVER w FROM t WINDOW w AS (ORDER BY c)", "t"),
    ("SELECT a FROM t WHERE MATCH (a) AGAINST ('x' IN BOOLEAN MODE)", "t"),
    ("SELECT a FROM t WHERE b = 1 AND (NOT MATCH (a, b) AGAINST ('x')) ORDER BY a", "t"),
    ("SELECT COUNT(*) FROM t WHERE MATCH (a) AGAINST ('x')", "t"),
    ("SELECT COUNT(*) AS n FROM t WHERE MATCH (a) AGAINST ('x' WITH QUERY EXPANSION)", "t"),
    ("SELECT COUNT(DISTINCT b) n FROM t WHERE MATCH (a) AGAINST ('x')", "t"),
    ("SELECT a FROM t WHERE MATCH (a) AGAINST ('x' IN BOOLEAN MODE) ORDER BY a LIMIT 3", "t"),
    (
        "SELECT a FROM t WHERE b IN (SELECT c FROM u WHERE MATCH (c) AGAINST ('x')) ORDER BY a",
        "t u",
    ),
    ("SELECT a FROM t WHERE b = ANY (SELECT c FROM u) AND d MEMBER OF ('[1]')", "t u"),
    ("SELECT CAST(a AS CHAR(10)), CONVERT(b, DECIMAL(10,2)), CONVERT(c USING utf8mb4) FROM t", "t"),
    ("SELECT a->'$.x', _utf8mb4'y', X'41', 0x41, N'z' FROM t", "t"),
    ("SELECT a + INTERVAL 1 DAY, DATE '2020-01-01' FROM t", "t"),
    ("SELECT UNIX_TIMESTAMP(a) FROM t", "t"),
    ("SELECT ABS (a), IF (a, b, c) FROM t", "t"),
    ("SELECT a FROM t GROUP BY a WITH ROLLUP LIMIT 5 OFFSET 3", "t"),
    ("SELECT /*+ MAX_EXECUTION_TIME(1000) */ a FROM t", "t"),
    ("SELECT 'NOW()', \"FOR UPDATE\", `now`, t.user FROM t", "t"),
    ("/* SELECT NOW() */ SELECT a FROM t -- FOR UPDATE", "t"),
    ("SELECT `t1`.`a` FROM (`db`.`t1` JOIN `db`.`t2` ON((`t1`.`a` = `t2`.`a`)))", "db.t1 db.t2"),
    ("SELECT * FROM `select` WHERE `select`.`from` = 1", "select"),
    ("SELECT DATE_FORMAT('2020-01-01', '%Y'), LPAD('a', 3, '.'), f FROM t", "t"),
    ("SELECT a FROM t WHERE a = CONCAT(" + ", ".join(["'x'"] * 50) + ")", "t"),
    ("SELECT DATABASE(), SCHEMA(), AES_DECRYPT(a, 'key') FROM t", "t"),
    ("SELECT BIN(a), CONV(a, 10, 16), OCT(a), ST_DISTANCE(a, b) FROM t", "t"),
    ("SELECT {d '2020-01-01'}, a FROM t WHERE b < {ts '2020-01-01 10:00:00'}", "t"),
    ("SELECT SQL_CACHE a FROM t", "t"),
    ("SELECT /*!40000 STRAIGHT_JOIN */ a FROM t /*! USE INDEX (i) */", "t"),
    ("SELECT a FROM t WHERE b IN (" + ", ".join(map(str, range(5_000))) + ")", "t"),
]


@pytest.mark.parametrize(("text", "tables"), CACHEABLE)
def test_a_deterministic_query_over_tables_is_cacheable(text: str, tables: str) -> None:
    statement = one(text)
    assert (statement.reason, statement.cacheable) == ("", True)
    assert names(statement.reads) == set(tables.split())
    assert (statement.kind, statement.writes, statement.writes_everything) == (
        Kind.READ,
        frozenset(),
        False,
    )


NOT_CACHEABLE = [
    ("SELECT 1", "reads no table"),
    ("SELECT 1 FROM DUAL", "reads no table"),
    ("VALUES ROW(1, 2)", "reads no table"),
    ("SELECT NOW() FROM t", "calls NOW(), which is not deterministic"),
    ("SELECT CURRENT_TIMESTAMP FROM t", "CURRENT_TIMESTAMP"),
    ("SELECT a FROM t WHERE b > CURRENT_DATE - INTERVAL 1 DAY", "CURRENT_DATE"),
    ("SELECT UNIX_TIMESTAMP() FROM t", "UNIX_TIMESTAMP"),
    ("SELECT a FROM t ORDER BY RAND()", "RAND"),
    ("SELECT UUID(/* x */) FROM t", "UUID"),
    ("SELECT RAND /* x */ () FROM t", "RAND"),
    ("SELECT LAST_INSERT_ID() FROM t", "LAST_INSERT_ID"),
    ("SELECT CURRENT_USER() FROM t", "CURRENT_USER"),
    ("SELECT {t 5}, a FROM t", "ODBC"),
    ("SELECT a FROM t WHERE " + " OR ".join(["a = b"] * 2_500), "too long"),
    ("SELECT 1 FROM a" + " JOIN b" * 30, "too many ways"),
    (f"SELECT {'YEAR(' * 30}a{')' * 30} FROM t", "too many ways"),
    ("SELECT DEFAULT(a) FROM t", "DEFAULT"),
    ("SELECT a FROM t WHERE GET_LOCK('x', 1)", "GET_LOCK"),
    ("SELECT my_function(a) FROM t", "calls MY_FUNCTION(), which is not built in"),
    ("SELECT db.abs(a) FROM t", "not built in"),
    ("SELECT `abs`(a) FROM t", "not built in"),
    ("SELECT COUNT (a) FROM t", "not built in"),
    ("SELECT a FROM t WHERE b = ?", "parameter marker"),
    ("SELECT @x FROM t", "user variable"),
    ("SELECT @x := a FROM t", "variable"),
    ("SELECT @@version FROM t", "system variable"),
    ("SELECT a FROM t FOR UPDATE", "locks"),
    ("SELECT a FROM t FOR SHARE SKIP LOCKED", "locks"),
    ("SELECT a FROM t LOCK IN SHARE MODE", "locks"),
    ("SELECT a INTO @x FROM t", "INTO"),
    ("SELECT a FROM t INTO OUTFILE 'x'", "INTO"),
    ("TABLE t INTO OUTFILE 'x'", "INTO"),
    ("SELECT SQL_CALC_FOUND_ROWS a FROM t UNION SELECT b FROM u LIMIT 1", "FOUND_ROWS"),
    ("(SELECT SQL_CALC_FOUND_ROWS a FROM t)", "FOUND_ROWS"),
    ("SELECT a FROM (SELECT SQL_CALC_FOUND_ROWS a FROM t) AS d", "FOUND_ROWS"),
    ("SELECT a, SQL_CALC_FOUND_ROWS FROM t", "FOUND_ROWS"),
    ("SELECT SQL_NO_CACHE a FROM t", "SQL_NO_CACHE"),
    ("SELECT a FROM t PROCEDURE ANALYSE()", "PROCEDURE"),
    ("SELECT NEXTVAL(s) FROM t", "NEXTVAL"),
    ("SELECT NEXT VALUE FOR s FROM t", "uses a sequence"),
    ("SELECT s.nextval FROM t", "sequence"),
    ("SELECT /*! SQL_NO_CACHE */ a FROM t", "SQL_NO_CACHE"),
    ("SELECT /*!80000 a */ FROM t", "versioned comment"),
    ("SELECT /*M!100100 x */ a FROM t", "versioned comment"),
    ("SELECT /*+ SET_VAR(time_zone='+01:00') */ a FROM t", "hint"),
    ("SELECT a FROM t FOR SYSTEM_TIME AS OF '2020-01-01'", "another time"),
    ("SELECT a FROM t TABLESAMPLE SYSTEM (10)", "sample"),
    ("SELECT * FROM information_schema.tables", "information_schema"),
    ("SELECT * FROM t JOIN MySQL.user", "MySQL"),
    ("SELECT * FROM {oj a LEFT JOIN b ON a.x = b.x}", "ODBC"),
    ("SELECT a FROM t; SELECT b FROM u", "several"),
    ("WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a", "not certain"),
    ("SELECT * FROM t AS OF TIMESTAMP '2020-01-01'", "sqlglot"),
    ("SELECT a FROM t a b", "sqlglot"),
    ("SELECT a FROM t WHERE", "sqlglot"),
    ("SELECT a FROM t WHERE a = [1]", "byte"),
    ("SELECT a FROM t WHERE b = \\N", "byte"),
    ("SHOW TABLES", "SHOW is not a query"),
    ("SET STATEMENT max_statement_time=1 FOR SELECT * FROM t", "sets variables"),
    ("EXPLAIN SELECT * FROM t", "EXPLAIN is not a query"),
    ("HANDLER t READ FIRST", "HANDLER is not a query"),
]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT a FROM t ORDER BY ?", "orders or groups by a parameter"),
        ("SELECT a FROM t WHERE a REGEXP ?", "a regular expression and a parameter"),
        ("SELECT REGEXP_REPLACE(a, 'x', ?) FROM t", "a regular expression and a parameter"),
        ("SELECT a FROM t WHERE ? REGEXP 'x'", "a regular expression and a parameter"),
        ("SELECT a FROM t WHERE a REGEXP 'x' || ?", "a regular expression and a parameter"),
        ("SELECT BIN(a) FROM t", "BIN"),
    ],
)
def test_a_parameter_that_is_remembered_makes_a_query_not_cacheable(text: str, reason: str) -> None:
    (statement,) = analyse(text.encode(), PLAIN, parameters_allowed=True)
    assert not statement.cacheable
    assert reason in statement.reason


def test_a_pattern_of_its_own_may_stand_beside_a_parameter() -> None:
    text = b"SELECT a FROM t WHERE a REGEXP 'x' AND t.b NOT RLIKE 'y' AND c = ?"
    (statement,) = analyse(text, PLAIN, parameters_allowed=True)
    assert (statement.reason, statement.cacheable) == ("", True)


def test_thousands_of_parameters_are_read_as_one() -> None:
    listed = ", ".join("?" * 5_000)
    text = f"SELECT a FROM t WHERE a IN ({listed}) AND b = ?".encode()
    (statement,) = analyse(text, PLAIN, parameters_allowed=True)
    assert statement.cacheable
    assert statement.markers.columns == ("a", "b")
    assert lex(text, PLAIN).runs == (5_000, 1)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT MATCH (a) AGAINST ('x') FROM t",
        "SELECT a FROM t WHERE MATCH (a) AGAINST ('x') > 0.5",
        "SELECT a FROM t WHERE (MATCH (a) AGAINST ('x')) * 2",
        "SELECT a FROM t WHERE 1 < MATCH (a) AGAINST ('x')",
        "SELECT a FROM t WHERE FLOOR(MATCH (a) AGAINST ('x'))",
        "SELECT a FROM t ORDER BY MATCH (a) AGAINST ('x') DESC",
    ],
)
def test_a_score_is_not_cacheable(text: str) -> None:
    assert one(text).reason == "computes a score with MATCH"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM t WHERE MATCH (a) AGAINST ('x')",
        "SELECT a FROM t WHERE MATCH (a) AGAINST ('x' IN NATURAL LANGUAGE MODE)",
        "SELECT a FROM t WHERE MATCH (a) AGAINST ('x' WITH QUERY EXPANSION) LIMIT 3",
        "SELECT boolean mode FROM t WHERE MATCH (a) AGAINST ('x')",
        "SELECT a FROM t WHERE MATCH (a) AGAINST ('x') ORDER BY a LIMIT 3",
        "SELECT a FROM t WHERE MATCH (a) AGAINST ('x' IN BOOLEAN MODE) LIMIT 3",
        "SELECT a FROM t WHERE MATCH (a) AGAINST ('x' IN BOOLEAN MODE) AND MATCH (b) AGAINST ('x')",
        "SELECT a FROM (SELECT a FROM t WHERE MATCH (a) AGAINST ('x' IN BOOLEAN MODE) LIMIT 3) AS q"
        " ORDER BY a",
        "SELECT GROUP_CONCAT(a ORDER BY a) FROM t WHERE MATCH (a) AGAINST ('x')",
        "SELECT b, GROUP_CONCAT(a) FROM t WHERE MATCH (a) AGAINST ('x') GROUP BY b ORDER BY b",
        "SELECT ST_COLLECT(g) FROM t WHERE MATCH (a) AGAINST ('x') ORDER BY 1",
        "SELECT ANY_VALUE(b), COUNT(*) FROM t WHERE MATCH (a) AGAINST ('x') ORDER BY 1",
        "SELECT b, COUNT(*) FROM t WHERE MATCH (a) AGAINST ('x')",
        "SELECT COUNT(*) FROM t WHERE MATCH (a) AGAINST ('x') GROUP BY b",
        "SELECT COUNT(*), a FROM t WHERE MATCH (a) AGAINST ('x')",
        "SELECT COUNT(*) OVER w FROM t WHERE MATCH (a) AGAINST ('x') WINDOW w AS (ORDER BY b)",
        "SELECT COUNT(*) FROM (SELECT a FROM t WHERE MATCH (a) AGAINST ('x') LIMIT 3) AS q",
    ],
)
def test_rows_in_the_order_of_their_scores_are_not_cacheable(text: str) -> None:
    assert one(text).reason == "gives rows in the order of their scores in a MATCH"


@pytest.mark.parametrize(("text", "reason"), NOT_CACHEABLE)
def test_anything_else_is_not_cacheable_and_says_why(text: str, reason: str) -> None:
    for statement in analyse(text.encode(), PLAIN):
        assert not statement.cacheable
        assert reason in statement.reason


def test_a_parameter_is_fine_in_the_text_of_a_prepared_statement() -> None:
    (statement,) = analyse(b"SELECT a FROM t WHERE b = ? LIMIT ?", PLAIN, parameters_allowed=True)
    assert statement.cacheable


def test_white_space_before_a_parenthesis_is_fine_under_ignore_space() -> None:
    assert one("SELECT COUNT (a) FROM t", Dialect(ignore_space=True)).cacheable


def test_quotes_follow_the_session() -> None:
    text = 'SELECT "a" FROM "db"."t"'
    assert names(one(text, Dialect(ansi_quotes=True)).reads) == {"db.t"}
    assert not one(text).cacheable
    hidden = r"SELECT '\' FROM t FOR UPDATE -- '"
    assert one(hidden, Dialect(no_backslash_escapes=True)).locking_read
    assert not one(hidden).locking_read


FRAGMENTS = word_set(
    "SELECT FROM WITH AS ( ) , t u x . * JOIN ON 1 'a' FOR UPDATE UNION TABLE VALUES RAND( WHERE",
    "IN INTO LATERAL PARTITION SET DELETE USING INSERT CREATE ALTER RENAME TO ; EXPLAIN STATEMENT",
    "DROP @x @@y = /*!1*/ { } RECURSIVE",
)


@given(st.lists(st.sampled_from(sorted(FRAGMENTS)), max_size=25).map(" ".join))
def test_no_text_raises_and_what_is_cacheable_writes_nothing(text: str) -> None:
    for statement in analyse(text.encode(), PLAIN):
        if statement.cacheable:
            assert statement.reads
            assert not statement.writes
            assert not statement.writes_everything
            assert "RAND(" not in text
            assert "@" not in text
    identifiers_in(text.encode(), PLAIN)


def test_aliases_that_are_strings_do_not_change_what_is_known_of_a_query() -> None:
    """They are left out of its shape, which remembers it."""
    first = one("SELECT a 'x', b 'y' FROM t HAVING YEAR(y) > 1")
    second = one("SELECT a 'y', b 'x' FROM t HAVING YEAR(y) > 1")
    assert first == second
    assert {"a", "b"} <= first.operands.names


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        (b"VALUES (1), (2)", True),
        (b"values (1) LIMIT 1", True),
        (b"VALUES ROW(1), ROW(2)", False),
        (b"VALUES (1), (2) ORDER BY 1", False),
        (b"VALUES (1) UNION VALUES (2)", False),
        (b"VALUES ((SELECT MAX(a) FROM t))", False),
        (b"VALUES (f(1))", False),
        (b"SELECT 1", False),
    ],
)
def test_a_bare_list_of_rows_counts_none(text: bytes, is_kept: bool) -> None:
    (statement,) = analyse(text, PLAIN)
    assert (statement.after is FoundRows.KEPT) is is_kept


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT a FROM t", 0),
        ("SELECT a FROM t WHERE a = 5", 1),
        ("SELECT COUNT(*) FROM t WHERE a = 5", None),
        ("SELECT ST_COLLECT(a) FROM t WHERE a = 5", None),
        ("SELECT a FROM t WHERE a = NULL GROUP BY a WITH ROLLUP", None),
        ("SELECT a FROM t WHERE a = NULL GROUP BY ROLLUP (a)", None),
        ("SELECT a FROM t UNION SELECT 1", None),
    ],
)
def test_so_many_rows_prove_that_a_table_was_read(query: str, rows: int | None) -> None:
    """MySQL answers a ROLLUP of nothing with a row, and reads nothing for it."""
    assert one(query).proof_rows == rows


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        ("a VARCHAR(10) PATH '$'", True),
        ("b INT PATH '$', a char(3) PATH '$'", True),
        ("NESTED PATH '$[*]' COLUMNS (a longtext PATH '$')", True),
        ("a INT PATH '$', j JSON PATH '$', d DATE PATH '$', `text` DOUBLE PATH '$'", False),
    ],
)
def test_a_json_table_may_have_texts_in_the_schemas_character_set(column: str, texts: bool) -> None:
    table = f"JSON_TABLE(t.j, '$' COLUMNS ({column})) AS x"
    for query in (
        f"SELECT x.* FROM t, {table} WHERE CAST(b AS CHAR) = 'b'",
        f"SELECT * FROM (SELECT x.a FROM t, {table}) AS y",
        f"WITH c AS (SELECT x.a FROM t, {table}) SELECT CAST(a AS CHAR) FROM c",
    ):
        assert (one(query).cacheable, one(query).of_used_schema) == (True, texts)


def test_who_reads_no_json_table_has_no_such_texts() -> None:
    assert not one("SELECT CAST(b AS CHAR) FROM t").of_used_schema
