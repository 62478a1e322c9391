"""Which tables a change of rows writes."""

import pytest

from sqlcache.sql.analysis import analyse
from sqlcache.sql.names import TableRef
from sqlcache.sql.routines import Declared, Routine
from sqlcache.sql.statement import (
    ADDS,
    ANYTHING,
    DELETES,
    MOST_COLUMNS,
    Changes,
    FoundRows,
    Statement,
)
from tests.sql.analysis.reading import PLAIN, one, written


@pytest.mark.parametrize(
    ("text", "tables"),
    [
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
        ("DELETE a FROM t1 AS A JOIN t2 AS b", "t1"),
        ("DELETE a FROM t1 AS A JOIN db.a JOIN t3", "a t1 db.a t3"),
        ("DELETE é FROM t1 AS É JOIN db.t2", "é t1 db.t2"),
        ("DELETE b FROM t1 AS É JOIN t2 AS b", "b t1 t2"),
        ("DELETE t1.* FROM t1, t2", "t1"),
        ("DELETE x.a FROM t1 AS a, t2", "t1"),
        ("DELETE b FROM t1 AS a, t2", "t1 t2 b"),
        ("DELETE FROM t FOR PORTION OF p FROM 'a' TO 'b'", "t"),
        ("UPDATE t FOR PORTION OF p FROM 'a' TO 'b' SET c = 1", "t"),
        ("LOAD DATA LOCAL INFILE 'x' REPLACE INTO TABLE t (a, @b) SET c = ABS(@b)", "t"),
        ("LOAD XML INFILE 'x' INTO TABLE db.t", "db.t"),
        ("HANDLER t OPEN", ""),
        ("DO SLEEP(1)", ""),
    ],
)
def test_the_tables_that_rows_change_in_are_known(text: str, tables: str) -> None:
    assert written(text) == set(tables.split())


@pytest.mark.parametrize(
    "text",
    [
        "CALL p()",
        "EXECUTE s",
        "EXECUTE IMMEDIATE 'DELETE FROM t'",
        "BINLOG 'x'",
        "UPDATE",
        "DELETE t",
    ],
)
def test_a_change_whose_tables_cannot_be_known_writes_everything(text: str) -> None:
    assert one(text).writes_everything


def test_a_declared_routine_reads_and_writes_what_it_is_declared_to() -> None:
    writes, reads = frozenset({TableRef("shop", "t")}), frozenset({TableRef("shop", "u")})
    declared = Declared(frozenset({Routine("shop", "p", reads=reads, writes=writes)}), "shop")

    def read(text: str) -> Statement:
        (statement,) = analyse(text.encode(), PLAIN, declared=declared)
        return statement

    for text in ("CALL p(1)", "CALL shop.P", "DO p(1)", "SELECT p(1)", "EXPLAIN SELECT p(1)"):
        statement = read(text)
        assert not statement.writes_everything, text
        assert statement.writes == writes, text
    assert read("CALL p(1)").may_commit, "it may hold a COMMIT"
    assert read("INSERT INTO v VALUES (p(1))").writes == writes | {TableRef(None, "v")}
    for text in ("CALL q()", "CALL other.p()", "CALL p(f(1))", "SELECT p(f(1))"):
        assert read(text).writes_everything, text


def test_a_declared_loadable_functions_definition_is_everybodys() -> None:
    declared = Declared(frozenset({Routine(None, "f", deterministic=True)}), "shop")
    for text in (b"DROP FUNCTION IF EXISTS f", b"CREATE FUNCTION f RETURNS INT SONAME 'f.so'"):
        (statement,) = analyse(text, PLAIN, declared=declared)
        assert statement.writes_everything
        (statement,) = analyse(text, PLAIN)
        assert not statement.writes_everything


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("INSERT INTO t VALUES (1)", True),
        ("INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = GREATEST(VALUES(a), 1)", True),
        ("INSERT INTO t SET a = 'SELECT'", True),
        ("LOAD DATA INFILE 'x' INTO TABLE t", True),
        ("INSERT INTO t SELECT 1", False),
        ("INSERT INTO t VALUES ((VALUES (1)))", False),
        ("INSERT INTO t VALUES ((VALUES (1))) ON DUPLICATE KEY UPDATE a = 1", False),
        ("INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = (SELECT 1)", False),
        ("SET STATEMENT max_statement_time = 1 FOR INSERT INTO t SELECT 1", False),
        ("UNLOCK TABLES", True),
        ("LOCK TABLES t READ, u AS x WRITE", True),
        ("FLUSH TABLES t WITH READ LOCK", True),
        ("BACKUP STAGE START", True),
        ("DO 1", False),
        ("KILL (SELECT 1)", False),
        ("SET @x = 1", True),
        ("SET @x = EXISTS(SELECT 1)", False),
    ],
)
def test_only_what_holds_a_query_may_count_rows(text: str, is_kept: bool) -> None:
    assert (one(text).after is FoundRows.KEPT) is is_kept


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("INSERT INTO t VALUES (1)", ADDS),
        ("INSERT IGNORE INTO t (a) SELECT b FROM u", ADDS),
        ("INSERT INTO t SET a = 1", ADDS),
        ("INSERT INTO t (`duplicate`) VALUES ('ON DUPLICATE KEY UPDATE a = 1')", ADDS),
        ("INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE A = VALUES(a), b = b + 1", "a b"),
        ("INSERT INTO t SELECT 1 FROM u ON DUPLICATE KEY UPDATE t.a = 1", "a"),
        ("INSERT INTO t VALUES (1) AS n (a) ON DUPLICATE KEY UPDATE `a` = n.a", "a"),
        ("INSERT INTO t SELECT 1 FROM u JOIN v ON duplicate", ANYTHING),
        ("INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 1 ON DUPLICATE", ANYTHING),
        ("INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE é = 1", Changes(None)),
        ("REPLACE INTO t VALUES (1)", ANYTHING),
        ("LOAD DATA INFILE 'x' IGNORE INTO TABLE t", ADDS),
        ("LOAD DATA INFILE 'x' REPLACE INTO TABLE t", ANYTHING),
        ("LOAD XML LOCAL INFILE 'x' REPLACE INTO TABLE t", ANYTHING),
        ("UPDATE t SET a = 1", "a"),
        ("UPDATE IGNORE t x SET x.A = (SELECT 1, 2), `b` = IF(a, 1, 2) WHERE d = 1", "a b"),
        ("UPDATE t SET a = b = 1, c = d WHERE e = 1 ORDER BY f LIMIT 1", "a c"),
        ("WITH u AS (SELECT 1) UPDATE t SET a = 1", "a"),
        ("SET STATEMENT max_statement_time = 1 FOR UPDATE t SET a = 1", "a"),
        ("UPDATE t SET a = 1 ORDER BY b, c", Changes(None)),
        ("UPDATE t SET a := 1", Changes(None)),
        ("UPDATE t SET `é` = 1", Changes(None)),
        ("UPDATE t SET (a, b) = (1, 2)", Changes(None)),
        ("UPDATE t SET a = 1, `_RowID` = 2", Changes(None)),
        ("INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE t._rowid = 1", Changes(None)),
        ("UPDATE t, u SET a = 1", Changes(None)),
        ("UPDATE t LEFT JOIN u ON t.a = u.a SET t.b = 1", Changes(None)),
        ("UPDATE t FOR PORTION OF p FROM 1 TO 2 SET a = 1", Changes(None)),
        ("UPDATE t PARTITION (p0) SET a = 1", Changes(None)),
        ("DELETE FROM t WHERE a = 1", DELETES),
        ("DELETE t, u FROM t JOIN u", DELETES),
        ("DELETE FROM t FOR PORTION OF p FROM 1 TO 2", ANYTHING),
        ("TRUNCATE t", ANYTHING),
        ("CREATE TABLE t REPLACE SELECT 1 AS a", ANYTHING),
    ],
)
def test_what_may_be_done_to_rows_that_are_there(text: str, told: Changes | str) -> None:
    expected = Changes(frozenset(told.split())) if isinstance(told, str) else told
    assert one(text).changes == expected


def test_an_insert_that_goes_on_may_do_anything() -> None:
    text = b"INSERT INTO t (a) VALUES (1), (2), (3)"
    (head,) = analyse(text, PLAIN, head=True)
    assert head.changes == ANYTHING


def test_an_insert_of_very_many_rows_is_read_to_its_end() -> None:
    rows = ", ".join(["('abcdefgh', 1)"] * 2_000)
    text = f"INSERT INTO t VALUES {rows} ON DUPLICATE KEY UPDATE id = 9".encode()
    (read,) = analyse(text, PLAIN, multi_statements=False)
    assert read.changes == Changes(frozenset({"id"}))


def test_very_many_columns_are_any() -> None:
    few = ", ".join(f"c{number} = 1" for number in range(MOST_COLUMNS))
    assert one(f"UPDATE t SET {few}").changes.columns is not None
    assert one(f"UPDATE t SET {few}, x = 1").changes == Changes(None)
    both = one(f"UPDATE t SET {few}").changes.with_(one("UPDATE t SET x = 1").changes)
    assert both == Changes(None)


@pytest.mark.parametrize("duplicate", ["a", "duplicate"])
def test_a_list_of_rows_is_a_subquery(duplicate: str) -> None:
    assert one(f"UPDATE t SET {duplicate} = 1").one_table
    assert not one(f"UPDATE t SET {duplicate} = (VALUES (1))").one_table
