import pytest

from sqlcache.sql.lexer import lex
from sqlcache.sql.order import OPEN, Order, order_of
from sqlcache.sql.pieces import Dialect

A, FREE = Order(terms=(("a",),)), Order()


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("SELECT a FROM t", FREE),
        ("SELECT a FROM t ORDER BY a", A),
        (
            "SELECT a FROM t ORDER BY a ASC, 2 DESC, `t`.`b c`",
            Order(terms=(("a",), 2, ("t", "b c"))),
        ),
        ("SELECT a FROM t ORDER BY a + 1", Order(terms=None)),
        ("SELECT a FROM t ORDER BY a, LOWER(b)", Order(terms=None)),
        ("SELECT a FROM t ORDER BY s.t.a", Order(terms=None)),
        ("SELECT a FROM t ORDER BY", Order(terms=None)),
        ("SELECT a FROM t ORDER BY ?", Order(terms=None)),
        ("SELECT a FROM t ORDER BY a LIMIT 3", A._replace(cut_at=3)),
        ("SELECT a FROM t LIMIT 21", Order(cut_at=21)),
        (f"SELECT a FROM t LIMIT {'0' * 5_000}21", Order(cut_at=21)),
        (f"SELECT a FROM t ORDER BY {'1' * 5_000}", Order(terms=None)),
        ("SELECT a FROM t LIMIT ?", Order(cut_at=0)),
        ("SELECT a FROM t ORDER BY a LIMIT 2, 3", A._replace(cut_at=0)),
        ("SELECT a FROM t ORDER BY a LIMIT 3 OFFSET 2", A._replace(cut_at=0)),
        ("SELECT a FROM t ORDER BY a FETCH FIRST 3 ROWS ONLY", A._replace(cut_at=0)),
        ("SELECT a FROM t ORDER BY a OFFSET 3 ROWS", A._replace(cut_at=0)),
        ("SELECT a FROM (SELECT a FROM t LIMIT 3) u ORDER BY a", OPEN),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a LIMIT 3) u", OPEN),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a) u LIMIT 3", Order(cut_at=3)),
        ("(SELECT a FROM t) UNION (SELECT b FROM u) ORDER BY a", A),
        ("SELECT a, RANK() OVER (ORDER BY a) FROM t", FREE),
        ("SELECT a, SUM(b) OVER (ORDER BY a ROWS 2 PRECEDING) FROM t", OPEN),
        ("SELECT a, ROW_NUMBER() OVER (ORDER BY a) FROM t", OPEN),
        ("SELECT GROUP_CONCAT(a) FROM t", OPEN),
        ("SELECT a /*!50000 + 1 */ FROM t", OPEN),
        ("SELECT `order`, 'LIMIT 3' FROM t", FREE),
        ("SELECT a) FROM t", FREE),
    ],
)
def test_what_two_answers_at_one_moment_have_in_common(text: str, order: Order) -> None:
    assert order_of(lex(text.encode(), Dialect()).tokens) == order
