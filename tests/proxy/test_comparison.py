"""Answers to one query that differ: which of them can be of one moment."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sqlcache.mysql.packets import packet
from sqlcache.proxy.comparison import Result, compared
from sqlcache.sql.lexer import lex
from sqlcache.sql.order import order_of
from sqlcache.sql.pieces import Dialect

SAME, DIFFERENT, NOT_COMPARABLE = Result.SAME, Result.DIFFERENT, Result.NOT_COMPARABLE
INT, DOUBLE, TEXT = 3, 5, 253
END = b"\xfe\0\0\x02\0\0\0"

Value = str | None


def lenenc(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


def column(name: str, type_: int, *, table: str = "t", called: str = "", length: int = 11) -> bytes:
    """A column's definition; `called` is its name in the answer, if it is another."""
    names = ("def", "s", table, table, called or name, name)
    numbers = b"\x21\0" + length.to_bytes(4, "little") + bytes((type_, 0, 0, 0, 0, 0))
    return b"".join(map(lenenc, names)) + b"\x0c" + numbers


AB = (column("a", INT), column("b", TEXT))


def answer(columns: Sequence[bytes], *rows: tuple[Value, ...]) -> bytes:
    written = [b"".join(b"\xfb" if v is None else lenenc(v) for v in row) for row in rows]
    payloads = (bytes((len(columns),)), *columns, *written, END)
    return b"".join(packet(number & 0xFF, payload) for number, payload in enumerate(payloads))


def result(text: str, stored: bytes, fresh: bytes, *, is_text: bool = True) -> Result:
    order = order_of(lex(text.encode(), Dialect()).tokens)
    return compared(stored, fresh, order, is_text=is_text, deprecate_eof=True)


def pairs(text: str) -> list[tuple[Value, ...]]:
    """`1a 2b` as rows."""
    return [(word[0], word[1]) for word in text.split()]


@pytest.mark.parametrize(
    ("asked", "stored", "fresh", "expected"),
    [
        # Any order is right.
        ("SELECT a, b FROM t", "1x 2y", "2y 1x", SAME),
        ("SELECT a, b FROM t", "1x 1x 2y", "1x 2y 2y", DIFFERENT),
        ("SELECT a, b FROM t", "1x", "1x 1x", DIFFERENT),
        # Those that are ordered as equals may change places.
        ("SELECT a, b FROM t ORDER BY a", "1x 1y 2z", "1y 1x 2z", SAME),
        ("SELECT a, b FROM t ORDER BY a", "1x 2y", "2y 1x", DIFFERENT),
        ("SELECT a, b FROM t ORDER BY a", "1x 2y", "1y 2x", DIFFERENT),
        ("SELECT a, b FROM t ORDER BY 1", "1x 2y", "2y 1x", DIFFERENT),
        ("SELECT a, b FROM t ORDER BY t.a DESC", "2x 1y", "1y 2x", DIFFERENT),
        # By what is ordered is not to be seen, or may be equal in several ways.
        ("SELECT a, b FROM t ORDER BY c", "1x 2y", "2y 1x", NOT_COMPARABLE),
        ("SELECT a, b FROM t ORDER BY c", "1x 2y", "2y 3x", DIFFERENT),
        ("SELECT a, b FROM t ORDER BY b", "1x 2X", "2X 1x", NOT_COMPARABLE),
        ("SELECT a, b FROM t ORDER BY u.a", "1x 2y", "2y 1x", NOT_COMPARABLE),
        ("SELECT a, b FROM t ORDER BY 3", "1x 2y", "2y 1x", NOT_COMPARABLE),
        # LIMIT leaves some out, or it does not.
        ("SELECT a, b FROM t LIMIT 1", "1x", "2y", NOT_COMPARABLE),
        ("SELECT a, b FROM t LIMIT 1", "1x", "", DIFFERENT),
        ("SELECT a, b FROM t LIMIT 21", "1x", "2y", DIFFERENT),
        ("SELECT a, b FROM t LIMIT 21", "1x 2y", "2y 1x", SAME),
        ("SELECT a, b FROM t LIMIT 2 OFFSET 1", "1x", "2y", NOT_COMPARABLE),
        ("SELECT a, b FROM t ORDER BY a LIMIT 3", "1u 2v 3w", "1u 2v 3x", SAME),
        ("SELECT a, b FROM t ORDER BY a LIMIT 3", "1u 2v 3w", "1u 2x 3w", DIFFERENT),
        ("SELECT a, b FROM t ORDER BY a LIMIT 3", "1u 2v 3w", "0x 1u 2v", DIFFERENT),
        ("SELECT a, b FROM t ORDER BY a LIMIT 2, 2", "2v 3w", "2x 3w", SAME),
        ("SELECT a, b FROM t ORDER BY a LIMIT 3", "1u 2v", "1u 2x", DIFFERENT),
        # What is open altogether.
        ("SELECT a, GROUP_CONCAT(b) FROM t GROUP BY a", "1x", "1y", NOT_COMPARABLE),
    ],
)
def test_what_a_query_leaves_open_is_no_difference(
    asked: str, stored: str, fresh: str, expected: Result
) -> None:
    assert result(asked, answer(AB, *pairs(stored)), answer(AB, *pairs(fresh))) is expected


@pytest.mark.parametrize(
    ("stored", "fresh", "expected"),
    [
        ("0.30000000000000004", "0.3", SAME),
        ("1e300", "1.0000000001e300", SAME),
        ("0.3", "0.31", DIFFERENT),
        ("0.3", None, DIFFERENT),
        (None, "0", DIFFERENT),
    ],
)
def test_the_last_digits_of_floats_make_no_difference(
    stored: Value, fresh: Value, expected: Result
) -> None:
    columns = (column("a", INT), column("f", DOUBLE))
    one = answer(columns, ("1", stored), ("2", "7.5"))
    other = answer(columns, ("2", "7.5"), ("1", fresh))
    assert result("SELECT a, f FROM t", one, other) is expected
    moved = answer(columns, ("1", "7.5"), ("2", stored))
    assert result("SELECT a, f FROM t", one, moved) is DIFFERENT


def test_floats_that_are_not_written_in_ascii_are_not_comparable() -> None:
    columns = (column("f", DOUBLE),)
    one, other = (answer(columns, ("\0".join(["", *digits]),)) for digits in ("0.5", "0.7"))
    assert result("SELECT f FROM t", one, other) is NOT_COMPARABLE


def test_rows_that_are_no_text_are_compared_as_they_are() -> None:
    one, other = answer(AB, ("1", "x"), ("2", "y")), answer(AB, ("2", "y"), ("1", "x"))
    assert result("SELECT a, b FROM t", one, other, is_text=False) is SAME
    assert result("SELECT a, b FROM t ORDER BY a", one, other, is_text=False) is NOT_COMPARABLE
    floats = (column("a", INT), column("f", DOUBLE))
    one, other = answer(floats, ("1", "1")), answer(floats, ("1", "2"))
    assert result("SELECT a, f FROM t", one, other, is_text=False) is NOT_COMPARABLE


def test_columns_count_but_not_their_lengths() -> None:
    def one_of(definition: bytes) -> bytes:
        return answer((definition,), ("1",))

    stored = one_of(column("a", INT))
    assert result("SELECT a FROM t", stored, one_of(column("a", INT, length=20))) is SAME
    assert result("SELECT a FROM t", stored, one_of(column("a", TEXT))) is DIFFERENT
    assert result("SELECT a FROM t", stored, one_of(column("b", INT))) is DIFFERENT


def test_a_name_is_a_column_of_the_answer_only_where_it_is_one_alone() -> None:
    twice = (column("a", INT), column("b", INT, called="a"))
    asked = "SELECT a, b AS a FROM t ORDER BY a"
    one, other = answer(twice, ("1", "1"), ("2", "2")), answer(twice, ("2", "2"), ("1", "1"))
    assert result(asked, one, other) is NOT_COMPARABLE
    renamed = (column("b", INT, called="a"),)
    one, other = answer(renamed, ("1",), ("2",)), answer(renamed, ("2",), ("1",))
    assert result("SELECT b AS a FROM t ORDER BY a", one, other) is DIFFERENT
    assert result("SELECT b AS a FROM t ORDER BY t.a", one, other) is NOT_COMPARABLE
