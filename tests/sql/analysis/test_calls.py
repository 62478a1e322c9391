"""What the functions of a statement mean for it."""

import pytest

from tests.sql.analysis.reading import one, written


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("SELECT NEXTVAL(db.s)", "db.s"),
        ("SELECT NEXT VALUE FOR s", "s"),
    ],
)
def test_a_sequence_is_written_when_it_is_asked(text: str, tables: str) -> None:
    assert written(text) == set(tables.split())


@pytest.mark.parametrize(
    "text",
    [
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
        "SHOW TABLES WHERE f(1)",
        "KILL f(1)",
        "SET STATEMENT x = f(1) FOR SELECT 1",
    ],
)
def test_a_function_that_is_not_built_in_may_write_everything(text: str) -> None:
    assert one(text).writes_everything


def test_functions_are_told_for_who_knows_the_stored_ones() -> None:
    assert one("SELECT COUNT(a), Regexp_Like(b, 'x') FROM t").functions == {"COUNT", "REGEXP_LIKE"}
