"""What people see of a statement has no literal, whatever statement it is."""

from __future__ import annotations

import pytest

from sqlcache.sql.lexer import lex
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.shown import LONGEST_BYTES, without_values

PLAIN = Dialect()


def shown(text: str, dialect: Dialect = PLAIN) -> str:
    return without_values(lex(text.encode(), dialect)).decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT a FROM t1 WHERE b = 'secret'", "SELECT a FROM t1 WHERE b = ?"),
        ("SET @x = 'secret', @y = 17, names2 = 1", "SET @x = ? , @y = ? , names2 = ?"),
        ("set names utf8mb4", "SET names utf8mb4"),
        ("CREATE USER u@'%' IDENTIFIED BY 'secret'", "CREATE USER u @'%' IDENTIFIED BY ?"),
        ('ALTER USER u IDENTIFIED BY "secret"', "ALTER USER u IDENTIFIED BY ?"),
        ("CREATE USER u IDENTIFIED WITH p AS 0x5EC4E7", "CREATE USER u IDENTIFIED WITH p AS ?"),
        ("SET PASSWORD FOR u = PASSWORD(N'secret')", "SET PASSWORD FOR u = PASSWORD( ? )"),
        ("KILL 12345", "KILL ?"),
        ("PREPARE p FROM 'SELECT ''secret'''", "PREPARE p FROM ?"),
        ("ALTER TABLE t COMMENT x'5ec4e7'", "ALTER TABLE t COMMENT ?"),
        ("SELECT 1; SELECT 'secret', .5", "SELECT ? ; SELECT ? , ?"),
        ("SELECT /*!50000 'secret', 17 */ a", "SELECT /*!50000 ?, ?*/ a"),
        ("SELECT /*!'secret' */ a", "SELECT /*!?*/ a"),
        ("SELECT `a 'b' 5` FROM `1t`", "SELECT `a 'b' 5` FROM `1t`"),
    ],
)
def test_it_has_no_literal(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_a_name_in_double_quotes_is_no_literal_where_the_session_has_it_so() -> None:
    text = 'SET @x = "a"'
    assert shown(text) == "SET @x = ?"
    assert shown(text, Dialect(ansi_quotes=True)) == text


@pytest.mark.parametrize("before", range(LONGEST_BYTES - 12, LONGEST_BYTES))
def test_of_a_long_one_the_head_is_shown_and_no_part_of_a_literal(before: int) -> None:
    text = f"SET @{'x' * (before - 8)} = 'secret', @b = 'secret', @c = 17"
    assert "secret"[:2] not in shown(text)
    assert len(shown(text)) <= LONGEST_BYTES


@pytest.mark.parametrize("end", ["", " = 'secret'"])
def test_of_a_long_one_the_head_is_shown_whether_there_are_literals_or_none(end: str) -> None:
    """To find out would take as long as it is, each time."""
    text = f"SELECT {'x' * 100_000}{end}"
    assert shown(text) == text[:LONGEST_BYTES]
