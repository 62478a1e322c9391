"""What definitions, privileges and upkeep write."""

import pytest

from sqlcache.sql.statement import Kind
from tests.sql.analysis.reading import names, one, written


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("TRUNCATE t", "t"),
        ("TRUNCATE TABLE db.t", "db.t"),
        ("ANALYZE TABLE t", "t"),
        ("ANALYZE LOCAL TABLE db.t UPDATE HISTOGRAM ON a WITH 8 BUCKETS", "db.t"),
        ("ANALYZE TABLE t PERSISTENT FOR COLUMNS (a) INDEXES (i), u", "t u"),
        ("OPTIMIZE TABLE t, u", "t u"),
        ("REPAIR LOCAL TABLE t", "t"),
        ("CREATE TABLE t (a INT DEFAULT (UUID()), KEY k (a))", "t"),
        ("CREATE TABLE IF NOT EXISTS db.t LIKE u", "db.t"),
        ("CREATE TABLE t AS SELECT ABS(a) FROM u", "t"),
        ("CREATE UNIQUE INDEX i ON db.t (a)", "db.t"),
        ("DROP INDEX i ON t", "t"),
        (
            "CREATE OR REPLACE ALGORITHM=MERGE DEFINER=`u`@`h` SQL SECURITY INVOKER"
            " VIEW v AS SELECT 1",
            "v",
        ),
        ("CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES p (a))", "t p"),
        (
            "CREATE TABLE db.t (a INT REFERENCES p (a), FOREIGN KEY (a) REFERENCES x.q (a))",
            "db.t db.p x.q",
        ),
        ("ALTER TABLE db.t ADD FOREIGN KEY (a) REFERENCES p (a)", "db.t db.p"),
        ("ALTER TABLE t RENAME TO db.u", "t db.u"),
        ("ALTER TABLE t RENAME u", "t u"),
        ("ALTER TABLE t RENAME COLUMN a TO b, ADD c INT", "t"),
        ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE db.u", "t db.u"),
        ("ALTER TABLE t CONVERT PARTITION p TO TABLE u", "t u"),
        ("ALTER TABLE t UNION=(a, b)", "t a b"),
        ("ALTER TABLE t IMPORT TABLESPACE", "t"),
        ("DROP TABLE IF EXISTS t, db.u", "t db.u"),
        ("RENAME TABLE a TO b, db.c TO d", "a b db.c d"),
    ],
)
def test_the_tables_a_definition_concerns_are_written(text: str, tables: str) -> None:
    assert written(text) == set(tables.split())


@pytest.mark.parametrize(
    "text",
    [
        "GRANT SELECT ON t TO u",
        "REVOKE ALL ON *.* FROM u",
        "CREATE USER u",
        "ALTER USER u ACCOUNT LOCK",
        "DROP ROLE r",
        "RENAME USER a TO b",
        "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (HOST 'h')",
        "INSTALL PLUGIN p SONAME 's'",
        "IMPORT TABLE FROM 'x.sdi'",
        "DROP TABLE",
    ],
)
def test_what_may_change_any_answer_writes_everything(text: str) -> None:
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


@pytest.mark.parametrize(
    ("text", "merges"),
    [
        ("CREATE TEMPORARY TABLE t (a INT) ENGINE=FEDERATED CONNECTION='s/t'", True),
        ("CREATE TEMPORARY TABLE t (a INT) COMMENT 'x' ENGINE `Spider`", True),
        ("CREATE TEMPORARY TABLE t (a INT) CONNECTION='s/t'", True),
        ("CREATE TEMPORARY TABLE t (a INT) ENGINE='CONNECT' TABLE_TYPE=PROXY", True),
        ("ALTER TABLE t ADD b INT, ENGINE FEDERATED", True),
        ("ALTER TABLE t COMMENT='x' ENGINE=spider", True),
        ("CREATE TEMPORARY TABLE t (a INT) ENGINE=InnoDB", False),
        ("CREATE TEMPORARY TABLE t (a INT) ENGINE 'Memory' COMMENT 'engine=FEDERATED'", False),
        ("CREATE TEMPORARY TABLE t (engine INT, CHECK (engine = 1)) ENGINE = heap", False),
        ("CREATE TEMPORARY TABLE t SELECT * FROM u WHERE engine = 'diesel'", False),
        ("ALTER TABLE t ADD engine INT, DROP connection, CHANGE engine engine TEXT", False),
        ("ALTER TABLE t ENGINE = Aria", False),
    ],
)
def test_an_engine_may_have_the_rows_of_other_tables(text: str, merges: bool) -> None:
    assert one(text).merges is merges


def test_a_table_with_rows_elsewhere_leads_there() -> None:
    assert one("CREATE TABLE t (a INT) ENGINE=FEDERATED CONNECTION='s/t'").leads
    assert not one("CREATE TABLE t (a INT) ENGINE=InnoDB").leads
    assert one("CREATE TABLE t LIKE u").leads
    assert one("CREATE TABLE IF NOT EXISTS t (LIKE u)").leads


def test_temporary_tables_are_told_from_shared_ones() -> None:
    created = one("CREATE TEMPORARY TABLE t SELECT * FROM u")
    assert (names(created.temporary_created), names(created.reads)) == ({"t"}, {"u"})
    assert not any((created.writes, created.may_commit, created.schemas))
    assert not created.keeps
    assert one("CREATE TEMPORARY TABLE IF NOT EXISTS t (a INT)").keeps
    dropped = one("DROP TEMPORARY TABLE t")
    assert (names(dropped.temporary_dropped), dropped.writes) == ({"t"}, frozenset())
    either = one("DROP TABLE t")
    assert names(either.temporary_dropped) == names(either.writes) == {"t"}
