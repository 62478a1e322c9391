"""What statements do, told from their text."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.sql.lexer import Dialect, word_set
from sqlcache.sql.names import TableRef
from sqlcache.sql.statement import (
    HEAD_BYTES,
    Kind,
    Locks,
    Statement,
    Transaction,
    analyse,
    identifiers_in,
)

PLAIN = Dialect()


def one(text: str, dialect: Dialect = PLAIN) -> Statement:
    (statement,) = analyse(text.encode(), dialect)
    return statement


def names(refs: frozenset[TableRef]) -> set[str]:
    return {".".join(filter(None, ref)) for ref in refs}


# --- what may be cached -----------------------------------------------------------------------

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
    ("SELECT MATCH (a) AGAINST ('x' IN BOOLEAN MODE) FROM t", "t"),
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
    ("SELECT DATABASE() FROM t", "DATABASE"),
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
    ("SELECT SQL_CALC_FOUND_ROWS a FROM t", "FOUND_ROWS"),
    ("SELECT SQL_NO_CACHE a FROM t", "SQL_NO_CACHE"),
    ("SELECT a FROM t PROCEDURE ANALYSE()", "PROCEDURE"),
    ("SELECT NEXTVAL(s) FROM t", "NEXTVAL"),
    ("SELECT NEXT VALUE FOR s FROM t", "locks what it reads, or"),
    ("SELECT s.nextval FROM t", "sequence"),
    ("SELECT /*! SQL_NO_CACHE */ a FROM t", "versioned comment"),
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


def test_functions_are_told_for_who_knows_the_stored_ones() -> None:
    assert one("SELECT COUNT(a), Regexp_Like(b, 'x') FROM t").functions == {"COUNT", "REGEXP_LIKE"}


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


@given(st.binary())
def test_no_bytes_raise(text: bytes) -> None:
    analyse(text, PLAIN)
    analyse(text, PLAIN, head=True)
    identifiers_in(text, PLAIN)


@pytest.mark.parametrize(
    "text",
    [
        "EXPLAIN " * 3000 + "SELECT 1",
        "SET STATEMENT a=1 FOR " * 2000 + "SELECT 1",
        "(" * 5000,
        "SELECT " + "NOT " * 5000 + "1 FROM t",
        "WITH " * 2000,
        "SELECT CASE " * 2000,
    ],
)
def test_deep_nesting_is_not_cacheable_and_does_not_raise(text: str) -> None:
    assert not one(text).cacheable


# --- what is written --------------------------------------------------------------------------

WRITES = [
    ("INSERT INTO t VALUES (1)", "t"),
    ("INSERT IGNORE t (a, b) VALUES (1, 2) ON DUPLICATE KEY UPDATE a = VALUES(a)", "t"),
    ("INSERT INTO t PARTITION (p0) (a) SELECT b FROM u", "t"),
    ("INSERT INTO t SET a = (SELECT MAX(b) FROM u)", "t"),
    ("INSERT INTO t WITH x AS (SELECT * FROM u) SELECT * FROM x", "t"),
    ("INSERT INTO t VALUE (1) AS new (a) ON DUPLICATE KEY UPDATE a = new.a", "t"),
    ("INSERT INTO t(a)SELECT(a)FROM u", "t"),
    ("INSERT INTO t (a) VALUES (1) RETURNING ABS(a)", "t"),
    ("REPLACE db.t VALUES (1)", "db.t"),
    ("REPLACE INTO t SELECT * FROM u", "t"),
    ("UPDATE t SET a = 1 WHERE b IN (SELECT c FROM u)", "t"),
    ("UPDATE LOW_PRIORITY IGNORE t AS x, db.u y SET x.a = y.b", "t db.u"),
    ("UPDATE t JOIN (SELECT * FROM u) d ON t.a = d.a SET t.b = 1", "t"),
    ("UPDATE t USE INDEX FOR JOIN (i), u SET t.a = u.a", "t u"),
    ("WITH c AS (SELECT * FROM u) UPDATE t JOIN c ON t.a = c.a SET t.b = 1", "t"),
    ("WITH c AS (SELECT * FROM u) DELETE t FROM t JOIN c", "t"),
    ("DELETE FROM t WHERE a = 1", "t"),
    ("DELETE FROM t AS x WHERE a IN (SELECT b FROM u JOIN v USING (c))", "t"),
    ("DELETE a, b FROM t1 AS a JOIN t2 AS b JOIN t3", "t1 t2"),
    ("DELETE FROM a.*, t3 USING t1 AS a JOIN t2 AS b JOIN t3", "t1 t3"),
    ("DELETE t1.* FROM t1, t2", "t1"),
    ("DELETE x.a FROM t1 AS a, t2", "t1"),
    ("DELETE b FROM t1 AS a, t2", "t1 t2 b"),
    ("DELETE FROM t FOR PORTION OF p FROM 'a' TO 'b'", "t"),
    ("UPDATE t FOR PORTION OF p FROM 'a' TO 'b' SET c = 1", "t"),
    ("TRUNCATE t", "t"),
    ("TRUNCATE TABLE db.t", "db.t"),
    ("LOAD DATA LOCAL INFILE 'x' REPLACE INTO TABLE t (a, @b) SET c = ABS(@b)", "t"),
    ("LOAD XML INFILE 'x' INTO TABLE db.t", "db.t"),
    ("HANDLER t OPEN", ""),
    ("DO SLEEP(1)", ""),
    ("PREPARE s FROM 'DELETE FROM t'", ""),
    ("XA START 'x'", ""),
    ("XA PREPARE 'x'", ""),
    ("SELECT NEXTVAL(db.s)", "db.s"),
    ("SELECT NEXT VALUE FOR s", "s"),
    ("SET STATEMENT max_statement_time=1 FOR UPDATE t SET a = 1", "t"),
    ("EXPLAIN DELETE FROM t", ""),
    ("EXPLAIN ANALYZE DELETE t FROM t JOIN u", "t"),
    ("ANALYZE FORMAT=JSON UPDATE t SET a = 1", "t"),
    ("ANALYZE TABLE t", ""),
    ("OPTIMIZE TABLE t, u", "t u"),
    ("REPAIR LOCAL TABLE t", "t"),
    ("SHOW TABLES", ""),
    ("DESC t", ""),
    ("KILL 5", ""),
    ("LOCK TABLES t WRITE", ""),
    ("FLUSH LOGS", ""),
    ("FLUSH TABLES t, u WITH READ LOCK", "t u"),
    ("CREATE TABLE t (a INT DEFAULT (UUID()), KEY k (a))", "t"),
    ("CREATE TABLE IF NOT EXISTS db.t LIKE u", "db.t"),
    ("CREATE TABLE t AS SELECT ABS(a) FROM u", "t"),
    ("CREATE UNIQUE INDEX i ON db.t (a)", "db.t"),
    ("DROP INDEX i ON t", "t"),
    (
        "CREATE OR REPLACE ALGORITHM=MERGE DEFINER=`u`@`h` SQL SECURITY INVOKER VIEW v AS SELECT 1",
        "v",
    ),
    ("ALTER TABLE t RENAME TO db.u", "t db.u"),
    ("ALTER TABLE t RENAME u", "t u"),
    ("ALTER TABLE t RENAME COLUMN a TO b, ADD c INT", "t"),
    ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE db.u", "t db.u"),
    ("ALTER TABLE t CONVERT PARTITION p TO TABLE u", "t u"),
    ("ALTER TABLE t UNION=(a, b)", "t a b"),
    ("ALTER TABLE t IMPORT TABLESPACE", "t"),
    ("DROP TABLE IF EXISTS t, db.u", "t db.u"),
    ("RENAME TABLE a TO b, db.c TO d", "a b db.c d"),
]


@pytest.mark.parametrize(("text", "tables"), WRITES)
def test_a_statements_targets_are_known(text: str, tables: str) -> None:
    statement = one(text)
    assert names(statement.writes) == set(tables.split())
    assert not statement.writes_everything
    assert not statement.cacheable


@pytest.mark.parametrize(
    "text",
    [
        "CALL p()",
        "DO f(1)",
        "SELECT f(1)",
        "SELECT db.f(1) FROM t",
        "INSERT INTO t (a) VALUES (f(1))",
        "INSERT INTO t VALUES (1) RETURNING f(a)",
        "INSERT INTO t SET a = value(1)",
        "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = f(VALUES(a))",
        "UPDATE t SET a = f(1)",
        "DELETE FROM t WHERE f(a)",
        "LOAD DATA INFILE 'x' INTO TABLE t SET a = f(1)",
        "CREATE TABLE t SELECT f(1)",
        "WITH c AS (SELECT f(1)) DELETE t FROM t JOIN c",
        "EXPLAIN SELECT f(1) FROM t",
        "SET @x = f(1)",
        "SET STATEMENT x = f(1) FOR SELECT 1",
        "XA COMMIT 'x'",
        "XA ROLLBACK 'x'",
        "EXECUTE s",
        "EXECUTE IMMEDIATE 'DELETE FROM t'",
        "BEGIN NOT ATOMIC DELETE FROM t; END",
        "INSERT /*!50000 IGNORE */ INTO t VALUES (1)",
        "/*!99999 DELETE FROM t */",
        "GRANT SELECT ON t TO u",
        "REVOKE ALL ON *.* FROM u",
        "CREATE USER u",
        "ALTER USER u ACCOUNT LOCK",
        "DROP ROLE r",
        "RENAME USER a TO b",
        "SET PASSWORD = 'x'",
        "SET DEFAULT ROLE r TO u",
        "FLUSH PRIVILEGES",
        "FLUSH TABLES",
        "SET GLOBAL x = 1",
        "SET @@global.x = 1",
        "SET PERSIST x = 1",
        "BINLOG 'x'",
        "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (HOST 'h')",
        "INSTALL PLUGIN p SONAME 's'",
        "IMPORT TABLE FROM 'x.sdi'",
        "CREATE PROCEDURE p() SELECT 1; DELETE FROM t",
        "FOO BAR",
        "UPDATE",
        "DELETE t",
        "DROP TABLE",
        "SELECT 'unclosed",
        "INSERT INTO t VALUES ($$a$$)",
        "UPDATE t[1] SET a = 1",
    ],
)
def test_what_may_write_anything_writes_everything(text: str) -> None:
    assert one(text).writes_everything


@pytest.mark.parametrize(
    ("text", "schemas"),
    [
        ("CREATE TABLE t (a INT)", {None}),
        ("ALTER TABLE db.t RENAME TO t", {"db", None}),
        ("RENAME TABLE a.t TO b.t", {"a", "b"}),
        ("CREATE DATABASE IF NOT EXISTS x", {"x"}),
        ("DROP SCHEMA `x y`", {"x y"}),
        ("CREATE DEFINER=event@h TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.a = 1", {None}),
        ("CREATE FUNCTION db.f() RETURNS INT RETURN 1", {"db"}),
        ("ALTER EVENT e RENAME TO db.f", {None, "db"}),
        ("DROP PROCEDURE IF EXISTS db.p", {"db"}),
        ("DROP VIEW a.v, b.w", {"a", "b"}),
        ("CREATE SEQUENCE s", {None}),
        ("TRUNCATE t", set()),
    ],
)
def test_a_definition_names_the_schemas_it_changes(text: str, schemas: set[str | None]) -> None:
    statement = one(text)
    assert statement.schemas == schemas
    assert (statement.kind, statement.may_commit) == (Kind.DDL, True)


# --- what becomes of the session --------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (
            "SET sql_mode='ANSI_QUOTES', @@session.Time_Zone = '+00:00'",
            "sql_mode=ANSI_QUOTES time_zone=+00:00",
        ),
        ("SET LOCAL x = ON, y = -5, z := utf8mb4", "x=1 y=-5 z=utf8mb4"),
        ("SET @@x = FALSE, @a = f", "x=0"),
        ("SET TIME_ZONE = 'it''s'", "time_zone=it's"),
        (
            "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
            "character_set_client=utf8mb4 character_set_results=utf8mb4"
            " character_set_connection=utf8mb4 collation_connection=utf8mb4_bin",
        ),
        (
            "/*!40101 SET NAMES 'Latin1' */;",
            "character_set_client=latin1 character_set_results=latin1"
            " character_set_connection=latin1 collation_connection=default_of_latin1",
        ),
        (
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY",
            "transaction_isolation=read-committed transaction_read_only=1",
        ),
        ("SET TRANSACTION READ WRITE", "next_transaction_read_only=0"),
        ("SET autocommit=0", "autocommit=0"),
    ],
)
def test_settings_with_literal_values_are_known(text: str, settings: str) -> None:
    statement = one(text)
    known = [f"{name}={value}".replace(" ", "_") for name, value in statement.settings]
    assert known == settings.split()
    assert not statement.opaque_session
    assert not statement.writes_everything


@pytest.mark.parametrize(
    "text",
    [
        "SET sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')",
        "SET time_zone = @old",
        "SET x = DEFAULT",
        "SET NAMES DEFAULT",
        "SET CHARACTER SET utf8",
        "SET ROLE r",
        "SET x = 1 + 1",
        "SET x = -y",
        "SET a.b = 1",
        "SET TRANSACTION SOMETHING",
        "CALL p()",
        "EXECUTE s",
        "BEGIN NOT ATOMIC SET x = 1; END",
        "FOO",
    ],
)
def test_a_session_that_cannot_be_known_from_the_text_is_opaque(text: str) -> None:
    assert one(text).opaque_session


def test_the_word_global_holds_for_later_names_without_a_scope() -> None:
    statement = one("SET GLOBAL a = 1, b = 2, SESSION c = 3, d = 4")
    assert statement.settings == (("c", "3"), ("d", "4"))
    assert statement.changes_globals
    assert one("SET @@global.a = 1, b = 2").settings == (("b", "2"),)


def test_a_user_variable_alone_changes_nothing() -> None:
    statement = one("SET @x = 1, @y := ABS(@x)")
    assert statement.settings == ()
    assert not any((statement.opaque_session, statement.writes_everything, statement.may_commit))


def test_use_names_the_schema() -> None:
    assert one("USE `my db`").use_schema == "my db"


def test_temporary_tables_are_told_from_shared_ones() -> None:
    created = one("CREATE TEMPORARY TABLE t SELECT * FROM u")
    assert (names(created.temporary_created), names(created.reads)) == ({"t"}, {"u"})
    assert not any((created.writes, created.may_commit, created.schemas))
    dropped = one("DROP TEMPORARY TABLE t")
    assert (names(dropped.temporary_dropped), dropped.writes) == ({"t"}, frozenset())
    either = one("DROP TABLE t")
    assert names(either.temporary_dropped) == names(either.writes) == {"t"}


@pytest.mark.parametrize(
    ("text", "transaction", "may_commit"),
    [
        ("BEGIN", Transaction.START, True),
        ("START TRANSACTION READ ONLY", Transaction.START, True),
        ("COMMIT AND CHAIN", Transaction.COMMIT, True),
        ("ROLLBACK", Transaction.ROLLBACK, False),
        ("ROLLBACK WORK TO SAVEPOINT s", Transaction.ROLLBACK_TO_SAVEPOINT, False),
        ("SAVEPOINT s", Transaction.SAVEPOINT, False),
        ("RELEASE SAVEPOINT s", Transaction.RELEASE_SAVEPOINT, False),
        ("XA START 'x'", Transaction.XA, False),
        ("SET autocommit = 1", None, True),
        ("SET @@session.autocommit = 1", None, True),
        ("TRUNCATE t", None, True),
        ("LOCK TABLES t READ", None, True),
        ("CALL p()", None, True),
        ("INSERT INTO t VALUES (1)", None, False),
        ("SELECT * FROM t", None, False),
    ],
)
def test_transactions_and_what_may_commit_one(
    text: str, transaction: Transaction | None, may_commit: bool
) -> None:
    statement = one(text)
    assert (statement.transaction, statement.may_commit) == (transaction, may_commit)


@pytest.mark.parametrize(
    ("text", "locks"),
    [
        ("LOCK TABLES t READ, u WRITE", Locks.LOCK),
        ("UNLOCK TABLES", Locks.UNLOCK),
        ("FLUSH TABLES WITH READ LOCK", Locks.LOCK),
        ("FLUSH TABLES t FOR EXPORT", Locks.LOCK),
        ("FLUSH TABLES t", None),
        ("BACKUP STAGE START", Locks.BACKUP),
        ("LOCK INSTANCE FOR BACKUP", Locks.BACKUP),
    ],
)
def test_locks_on_tables_are_told(text: str, locks: Locks | None) -> None:
    assert one(text).locks is locks


@pytest.mark.parametrize(
    "text",
    [
        "SELECT FOUND_ROWS()",
        "SELECT ROW_COUNT()",
        "SHOW WARNINGS",
        "SHOW COUNT(*) ERRORS",
        "SELECT @@warning_count",
        "SELECT @@session.`error_count`",
        "GET DIAGNOSTICS @a = ROW_COUNT",
        "INSERT INTO t VALUES (FOUND_ROWS())",
    ],
)
def test_what_reads_what_the_statement_before_left_is_diagnostic(text: str) -> None:
    assert one(text).diagnostic


@pytest.mark.parametrize("text", ["SELECT * FROM t", "SHOW TABLES", "SELECT LAST_INSERT_ID()"])
def test_other_statements_are_not_diagnostic(text: str) -> None:
    assert not one(text).diagnostic


@pytest.mark.parametrize("end", ["FOR UPDATE", "FOR SHARE NOWAIT", "LOCK IN SHARE MODE"])
def test_locking_reads_are_told(end: str) -> None:
    assert one("SELECT a FROM t " + end).locking_read
    assert not one("SELECT a FROM t").locking_read


def test_directives_are_what_comments_say_to_sqlcache() -> None:
    statement = one("/* sqlcache: ttl=5 */ SELECT a FROM t -- sqlcache: other")
    assert statement.directives == ("ttl=5", "other")
    assert statement.cacheable


# --- whole texts ------------------------------------------------------------------------------


def test_each_statement_of_several_is_told_apart() -> None:
    first, second, third = analyse(b"DELETE FROM t; SET x = 1; COMMIT;", PLAIN)
    assert names(first.writes) == {"t"}
    assert second.settings == (("x", "1"),)
    assert third.transaction is Transaction.COMMIT


def test_a_session_that_cannot_send_several_statements_is_not_believed_to() -> None:
    (statement,) = analyse(b"SELECT a FROM t; DELETE FROM t", PLAIN, multi_statements=False)
    assert statement.writes_everything


def test_a_body_with_semicolons_is_certain_only_if_nothing_can_follow_it() -> None:
    text = b"CREATE PROCEDURE p() BEGIN SELECT 1; DELETE FROM t; END"
    (alone,) = analyse(text, PLAIN, multi_statements=False)
    (several,) = analyse(text, PLAIN)
    assert not alone.writes_everything
    assert several.writes_everything


def test_empty_texts_hold_no_statement() -> None:
    assert analyse(b" ;; -- x", PLAIN) == ()


ROWS = ",".join(f"({n}, 'it\\'s f(1); {n}', NULL, -1.5e3, N'x', 0xAB)" for n in range(20_000))


@pytest.mark.parametrize(
    ("before", "after", "everything"),
    [
        ("INSERT INTO t (a) VALUES ", "", False),
        ("INSERT INTO t VALUES", ";", False),
        ("REPLACE t VALUES ", "", False),
        ("INSERT INTO t VALUES ", " ON DUPLICATE KEY UPDATE a = VALUES(a)", False),
        ("INSERT INTO t VALUES ", " ON DUPLICATE KEY UPDATE a = f(1)", True),
        ("INSERT INTO t VALUES ", ", (f(1))", True),
        ("INSERT INTO t VALUES ", ", (e1(1))", True),
        ("INSERT INTO t VALUES ", ", (1f(1))", True),
        ("INSERT INTO t VALUES ", ", (NULL /* x */, 1 /*!50000 + f(1) */)", True),
        ("INSERT INTO t VALUES ", "; DELETE FROM u", True),
        ("INSERT INTO t VALUES ", ", ('", True),
    ],
)
def test_a_large_insert_is_known_from_its_ends_but_no_call_is_missed(
    before: str, after: str, everything: bool
) -> None:
    text = (before + ROWS + after).encode()
    assert len(text) > HEAD_BYTES
    (statement,) = analyse(text, PLAIN, multi_statements=False)
    assert statement.writes_everything is everything
    assert names(statement.writes) <= {"t"}
    assert everything or statement.writes


def test_a_large_insert_costs_milliseconds() -> None:
    text = ("INSERT INTO t VALUES " + ROWS).encode()
    start = time.perf_counter()
    analyse(text, PLAIN, multi_statements=False)
    assert time.perf_counter() - start < 0.2


@pytest.mark.parametrize(
    ("head", "tables"),
    [
        ("INSERT INTO db.t VALUES (1, 'ab", "db.t"),
        ("REPLACE t (a, b", "t"),
        ("LOAD DATA INFILE 'x' INTO TABLE t FIELDS TERM", "t"),
    ],
)
def test_a_head_tells_the_target_it_fully_holds(head: str, tables: str) -> None:
    (statement,) = analyse(head.encode(), PLAIN, head=True)
    assert names(statement.writes) == set(tables.split())
    assert not statement.writes_everything


@pytest.mark.parametrize(
    "head",
    [
        "INSERT INTO db.t",
        "INSERT INTO db.",
        "INSERT INTO `db` . `",
        "INSERT INTO `db` .",
        "INSERT INTO t ",
        "INSERT INTO t /*!50000 (a) */ VALUES (",
        "UPDATE t SET a = 1 WHERE b = 'x",
        "SELECT * FROM t WHERE a = 1",
        "",
    ],
)
def test_any_other_head_writes_everything(head: str) -> None:
    (statement,) = analyse(head.encode(), PLAIN, head=True)
    assert (statement.kind, statement.writes_everything) == (Kind.UNKNOWN, True)


# --- identifiers ------------------------------------------------------------------------------


def test_all_names_of_a_body_are_found() -> None:
    body = b"BEGIN INSERT INTO log (a) VALUES (NEW.a); UPDATE `x y`.t SET b = ABS(c); END"
    use = identifiers_in(body, PLAIN)
    assert {("log",), ("NEW", "a"), ("x y", "t"), ("b",)} <= use.paths
    assert use.functions == {("ABS",)}
    assert not use.opaque


@pytest.mark.parametrize(
    "body",
    ["CALL p()", "EXECUTE s", "SET x = f(1)", "SET x = db.abs(1)", "/*!50000 x */", "'unclosed"],
)
def test_a_body_that_runs_what_it_does_not_show_is_opaque(body: str) -> None:
    assert identifiers_in(body.encode(), PLAIN).opaque
