"""Which stored code may change more than rows."""

import pytest

from sqlcache.sql.routines import is_unruly

VARIABLES = frozenset({"time_zone", "sql_mode"})


@pytest.mark.parametrize(
    "body",
    [
        "SET time_zone = '+00:00'",
        "BEGIN SET @@session.sql_mode = ''; END",
        "SET `Time_Zone` = '+00:00'",
        "SET NAMES latin1",
        "SET CHARACTER SET latin1",
        "SET @x = 1, CHAR SET latin1",
        "CREATE TEMPORARY TABLE t (a INT)",
        "BEGIN PREPARE s FROM @x; EXECUTE s; END",
        "BEGIN /*!50000 SET x = 1 */; END",
        "CALL sys.anything()",
        "XA COMMIT 'x'",
        "SELECT 'unclosed",
    ],
)
def test_a_body_that_sets_variables_or_makes_tables_is_unruly(body: str) -> None:
    assert is_unruly(body.encode(), "", VARIABLES)


@pytest.mark.parametrize(
    "body",
    [
        "BEGIN DECLARE n INT; SET n = 1, @x = n; INSERT INTO t VALUES ('time_zone', n); END",
        "SET NEW.a = 1",
        "CALL another()",
        "BEGIN DECLARE s CHAR CHARACTER SET latin1; SET s = CAST(1 AS CHAR CHARACTER SET gbk); END",
    ],
)
def test_a_body_that_only_works_on_rows_is_not(body: str) -> None:
    assert not is_unruly(body.encode(), "", VARIABLES)


def test_quotes_in_a_body_follow_the_mode_it_was_made_under() -> None:
    body = b'SELECT "time_zone" FROM t'
    assert is_unruly(body, "STRICT_ALL_TABLES,ANSI_QUOTES", VARIABLES)
    assert not is_unruly(body, "STRICT_ALL_TABLES", VARIABLES)


def test_a_body_that_cannot_be_seen_or_read_is_unruly() -> None:
    assert is_unruly(None, "", VARIABLES)
    assert is_unruly(b"NULL", "PIPES_AS_CONCAT,ORACLE", VARIABLES)
