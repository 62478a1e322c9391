"""Statements by their first word, and those that hold another."""

import pytest

from tests.sql.analysis.reading import one, written


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("SET STATEMENT max_statement_time=1 FOR UPDATE t SET a = 1", "t"),
        ("EXPLAIN DELETE FROM t", ""),
        ("EXPLAIN ANALYZE DELETE t FROM t JOIN u", "t"),
        ("ANALYZE FORMAT=JSON UPDATE t SET a = 1", "t"),
        ("SHOW TABLES", ""),
        ("DESC t", ""),
        ("KILL 5", ""),
        ("EXPLAIN FOR CONNECTION 5", ""),
    ],
)
def test_a_statement_within_another_writes_only_if_it_runs(text: str, tables: str) -> None:
    assert written(text) == set(tables.split())


@pytest.mark.parametrize(
    "text",
    [
        "FOO BAR",
        "EXPLAIN ANALYZE FOR SCHEMA other SELECT f()",
        "DESC FORMAT=JSON INTO @x FOR DATABASE `other` SELECT f() FROM t",
    ],
)
def test_a_statement_that_cannot_be_read_writes_everything(text: str) -> None:
    assert one(text).writes_everything


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
