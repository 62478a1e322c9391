"""Which columns a prepared statement's markers are compared with."""

import pytest

from sqlcache.sql.analysis.markers import ROWS, markers
from sqlcache.sql.lexer import tokenize
from sqlcache.sql.pieces import Dialect


def columns(text: str) -> tuple[str | None, ...]:
    return markers(tokenize(text.encode(), Dialect())).columns


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("a = ?", ("a",)),
        ("t.A <=> ?", ("a",)),
        ("`b c` >= ? AND (a < ?)", ("b c", "a")),
        ("a IN (?, 1, ?) ORDER BY a", ("a", "a")),
        ("a NOT IN (?) LIMIT ? OFFSET ?", ("a", ROWS, ROWS)),
        ("a BETWEEN ? AND ? AND b NOT BETWEEN 1 AND ? LIMIT ?, ?", ("a", "a", "b", ROWS, ROWS)),
        ("NOT a = ? OR b = ? GROUP BY b", ("a", "b")),
    ],
)
def test_a_column_that_a_marker_alone_is_compared_with_is_found(
    condition: str, expected: tuple[str, ...]
) -> None:
    assert columns(f"SELECT v FROM t WHERE {condition}") == expected


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ? FROM t",
        "SELECT v FROM t WHERE a = ? + d",
        "SELECT v FROM t WHERE a + b = ?",
        "SELECT v FROM t WHERE x = a = ?",
        "SELECT v FROM t WHERE f(a) = ?",
        "SELECT v FROM t WHERE (a, b) = (?, 1)",
        "SELECT v FROM t WHERE a IN (1, f(?))",
        "SELECT v FROM t WHERE a BETWEEN ? AND b",
        "SELECT v FROM t WHERE a BETWEEN ? AND 9 + d",
        "SELECT v FROM t WHERE a + d BETWEEN 1 AND ?",
        "SELECT d AS a FROM t HAVING a = ?",
        "SELECT d a FROM t HAVING a = ?",
        "SELECT MAX(d) a FROM t HAVING a = ?",
        "SELECT x.a FROM (SELECT d AS a FROM t) x WHERE x.a = ?",
        "WITH c (a) AS (SELECT d FROM t) SELECT 1 FROM c WHERE a = ?",
        "SELECT a FROM t WHERE a = d UNION SELECT ?",
        "SELECT CASE a WHEN ? THEN 1 END FROM t",
    ],
)
def test_other_places_are_not_told(text: str) -> None:
    assert columns(text) == (None,)


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("SELECT a FROM t WHERE a = ?", False),
        ("SELECT YEAR(a) FROM t", True),
        ("SELECT a FROM t WHERE a = ? + INTERVAL 1 DAY", True),
        ("SELECT CAST(a AS DATETIME) FROM t", True),
        ("SELECT * FROM t WHERE a = ?", False),
        ("SELECT * FROM t UNION SELECT ?", True),
        ("TABLE t UNION SELECT ?", True),
    ],
)
def test_dates_of_a_texts_own_are_seen(text: str, dates: bool) -> None:
    assert markers(tokenize(text.encode(), Dialect())).dates is dates
