"""Where statements name tables."""

import pytest

from sqlcache.sql.lexer import tokenize
from sqlcache.sql.names import TableRef
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.tables import MAX_NESTING, leading_with, path_at, scan_tables


def refs(text: str, *, in_list: bool = False) -> set[str]:
    found = scan_tables(tokenize(text.encode(), Dialect()), in_list=in_list)
    assert found.doubt == ""
    return {".".join(filter(None, ref)) for ref in found.refs}


def doubt(text: str) -> str:
    return scan_tables(tokenize(text.encode(), Dialect())).doubt


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("SELECT * FROM a, (b JOIN c)", {"a", "b", "c"}),
        ("SELECT STRAIGHT_JOIN * FROM a STRAIGHT_JOIN b", {"a", "b"}),
        ("SELECT * FROM t PARTITION (p0) AS x, u", {"t", "u"}),
        ("SELECT * FROM t USE INDEX FOR JOIN (i), u", {"t", "u"}),
        ("SELECT * FROM t USE KEY FOR ORDER BY (i) JOIN u", {"t", "u"}),
        ("SELECT * FROM t window, u", {"t", "u"}),
        ("SELECT * FROM t WINDOW w AS (ORDER BY a), v AS (w)", {"t"}),
        ("SELECT * FROM t, LATERAL (SELECT * FROM u) AS l", {"t", "u"}),
        ("SELECT * FROM ((SELECT 1 FROM t) UNION (SELECT 2 FROM u)) AS d", {"t", "u"}),
        (
            "SELECT * FROM t, JSON_TABLE((SELECT j FROM u), '$' COLUMNS (a INT PATH '$')) j, v",
            {"t", "u", "v"},
        ),
        ("SELECT * FROM DUAL", set()),
        ("SELECT * FROM `DUAL`, db.dual", {"DUAL", "db.dual"}),
        ("SELECT * FROM `a.b`, db . t, .u", {"a.b", "db.t", "u"}),
        ("TABLE t UNION TABLE u", {"t", "u"}),
        ("SELECT EXTRACT(DAY FROM x), TRIM('a' FROM y) FROM t", {"t"}),
        ("SELECT (SELECT a FROM u) FROM t ORDER BY (SELECT b FROM v), c", {"t", "u", "v"}),
        ("SELECT * FROM a JOIN b ON a.x = (SELECT y FROM c), d", {"a", "b", "c", "d"}),
        ("SELECT a FROM t GROUP BY x, y ORDER BY z, w", {"t"}),
    ],
)
def test_every_table_of_a_query_is_found(query: str, tables: set[str]) -> None:
    assert refs(query) == tables


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("WITH x AS (SELECT * FROM t) SELECT * FROM x", {"t"}),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", {"t"}),
        ("WITH t AS (SELECT * FROM u) SELECT * FROM t", {"u"}),
        ("WITH RECURSIVE t AS (SELECT 1 UNION SELECT * FROM t) SELECT * FROM t, u", {"u"}),
        ("WITH x AS (SELECT * FROM t) SELECT * FROM db.x", {"t", "db.x"}),
        ("WITH X AS (SELECT * FROM t) SELECT * FROM x", {"t", "x"}),
        ("(WITH x AS (SELECT 1) SELECT * FROM x) UNION SELECT * FROM x", {"x"}),
        ("SELECT * FROM (WITH x AS (SELECT 1) SELECT * FROM x) d, x", {"x"}),
        ("WITH x AS (SELECT 1), y AS (SELECT * FROM x) SELECT * FROM y, z", {"z"}),
        ("WITH x AS (WITH y AS (SELECT * FROM t) SELECT * FROM y) SELECT * FROM x, y", {"t", "y"}),
        ("WITH x AS (SELECT 1) SELECT (SELECT a FROM x) FROM t", {"t"}),
    ],
)
def test_a_common_table_expression_counts_only_in_its_scope(query: str, tables: set[str]) -> None:
    assert refs(query) == tables


@pytest.mark.parametrize(
    "query",
    [
        "WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a",
        "WITH RECURSIVE a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a",
        "SELECT * FROM t FOR SYSTEM_TIME AS OF x, u",
        "SELECT * FROM a.b.c",
        "SELECT * FROM f(1)",
        "SELECT * FROM WHERE a",
        "SELECT * FROM t, ",
        "SELECT * FROM ()",
        "SELECT (1",
        "SELECT 1)",
        "SELECT " + "(" * (MAX_NESTING + 1) + "1" + ")" * (MAX_NESTING + 1),
    ],
)
def test_what_servers_read_differently_or_nobody_can_read_is_a_doubt(query: str) -> None:
    assert doubt(query)


@pytest.mark.parametrize(
    "time",
    [
        "ALL",
        "AS OF TIMESTAMP '2001-01-01'",
        "AS OF (SELECT MAX(a) FROM v)",
        "BETWEEN '2001-01-01' AND NOW()",
        "FROM '2001-01-01' TO NOW()",
    ],
)
def test_the_tables_behind_one_of_another_time_are_known(time: str) -> None:
    text = f"SELECT * FROM t FOR SYSTEM_TIME {time} AS x, u JOIN w"
    found = scan_tables(tokenize(text.encode(), Dialect()))
    assert found.doubt
    assert {ref.name for ref in found.refs} - {"v"} == {"t", "u", "w"}


def test_a_list_tells_its_own_tables_from_those_of_subqueries() -> None:
    tokens = tokenize(b"t AS x JOIN (SELECT * FROM u) d, (v) SET a = (SELECT 1 FROM w)", Dialect())
    found = scan_tables(tokens, in_list=True)
    listed = {(factor.ref.name, factor.alias) for factor in found.factors if not factor.nested}
    assert listed == {("t", "x"), ("v", None)}
    assert found.refs == {TableRef(None, name) for name in "tuvw"}


def test_a_leading_with_ends_where_its_statement_starts() -> None:
    tokens = tokenize(b"WITH a (x) AS (SELECT 1), b AS (SELECT 2) DELETE FROM t", Dialect())
    clause = leading_with(tokens)
    assert clause is not None
    assert tokens[clause.end].word == "DELETE"
    assert clause.ctes == {"a", "b"}
    assert leading_with(tokenize(b"WITH a", Dialect())) is None


def test_a_path_may_start_with_a_dot_and_hold_white_space() -> None:
    tokens = tokenize(b". t + db . `x.y` .*", Dialect())
    first, second = path_at(tokens, 0), path_at(tokens, 3)
    assert first is not None
    assert second is not None
    assert (first.parts, second.parts) == (("t",), ("db", "x.y"))
    assert path_at(tokens, 2) is None
