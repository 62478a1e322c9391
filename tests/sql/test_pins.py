import pytest

from sqlcache.sql.lexer import lex, literals_apart, tokenize
from sqlcache.sql.names import TableRef
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.pins import pins
from sqlcache.sql.pins.found import Column, Equality, Pins

ID, T = Column("id", "x"), Column("t", "u")


def read(text: str) -> Pins | None:
    return pins(tokenize(text.encode(), Dialect()))


def values(text: str) -> dict[str, bytes]:
    """What a text's conditions pin, by column."""
    found = read(text)
    assert found is not None
    return {
        each.column: b" ".join(b"-"[: value.negative] + value.text for value in each.values)
        for each in found.conditions
        if each.equal
    }


@pytest.mark.parametrize(
    ("text", "pinned"),
    [
        ("SELECT * FROM t WHERE id = 5", {"id": b"5"}),
        (
            "SELECT a, COUNT(*) FROM s.t AS x WHERE x.ID = 5 AND `k` <=> -3",
            {"id": b"5", "k": b"-3"},
        ),
        ("SELECT EXTRACT(YEAR FROM d) FROM t WHERE id = '5' AND z IS NOT NULL", {"id": b"'5'"}),
        ("SELECT * FROM t WHERE k > 1 AND id = ? GROUP BY a ORDER BY a LIMIT 3", {"id": b"?"}),
        ("UPDATE t SET a = a + 1, b = IF(a, 1, 2) WHERE id = 5 LIMIT 1", {"id": b"5"}),
        ("UPDATE IGNORE t x SET x.a = 1 WHERE x.id = 5", {"id": b"5"}),
        ("DELETE FROM t WHERE id = 5 AND k = 7", {"id": b"5", "k": b"7"}),
        ("SELECT * FROM t WHERE id IN (5, -6, '7', ?) AND k = 1", {"id": b"5 -6 '7' ?", "k": b"1"}),
        ("DELETE FROM t WHERE id IN(5)", {"id": b"5"}),
    ],
)
def test_what_is_written_plainly_pins_its_values(text: str, pinned: dict[str, bytes]) -> None:
    assert values(text) == pinned


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t",
        "SELECT * FROM t WHERE id = 5 OR k = 3",
        "SELECT * FROM t WHERE id = 5 || k",
        "SELECT * FROM t WHERE (id = 5)",
        "SELECT * FROM t WHERE NOT id = 5",
        "SELECT * FROM t WHERE 5 = id",
        "SELECT * FROM t WHERE id = 5 + 1",
        "SELECT * FROM t WHERE id = -'5'",
        *(f"SELECT 1 FROM t, u WHERE t.id = 5 AND u.t ={sign}t.id" for sign in "-+~!"),
        "SELECT 1 FROM t, u WHERE t.id = 5 AND t.id = - `u`.t",
        "SELECT 1 FROM t JOIN u ON u.t = -t.id WHERE t.id = 5",
        "SELECT * FROM t WHERE id = '5' '6'",
        "SELECT * FROM t WHERE id = '5' COLLATE utf8mb4_bin",
        'SELECT * FROM t WHERE id = "5"',
        "SELECT * FROM t WHERE id = x'05'",
        "SELECT * FROM t WHERE id = k",
        "SELECT * FROM t WHERE id NOT IN (5)",
        "SELECT * FROM t WHERE id IN (5, NULL)",
        "SELECT * FROM t WHERE id IN (5, 6 + 1)",
        "SELECT * FROM t WHERE id IN (5, (6))",
        "SELECT * FROM t WHERE id IN ()",
        "SELECT * FROM t WHERE id IN (5,",
        "SELECT * FROM t WHERE (id, k) IN ((5, 6))",
        f"SELECT * FROM t WHERE id IN ({', '.join(['5'] * 65)})",
        "SELECT * FROM t WHERE v BETWEEN 1 AND id = 5",
        "SELECT * FROM t WHERE CASE WHEN v AND id = 5 AND v THEN 1 END",
        "SELECT * FROM t WHERE id = 5 AND CAST(v AS SIGNED) = 3",
        "SELECT * FROM t WHERE id = 5 AND EXISTS (SELECT 1 FROM t)",
        "SELECT (SELECT MAX(id) FROM t) FROM t WHERE id = 5",
        "SELECT (TABLE t LIMIT 1) FROM t WHERE id = 5",
        "SELECT * FROM t WHERE id IN (5, 6) GROUP BY id WITH ROLLUP",
        "SELECT * FROM t WHERE id IN (5, 6) GROUP BY ROLLUP (id)",
        "SELECT * FROM t WHERE id IN (5, 6) ORDER BY id PROCEDURE ANALYSE()",
        "SELECT * FROM t WHERE id = 5 UNION SELECT * FROM t",
        "SELECT * FROM t WHERE id = 5 GROUP BY id UNION TABLE t",
        "SELECT * FROM t JOIN u ON t.id > u.t WHERE t.id = 5",
        "SELECT * FROM t JOIN u ON t.id = u.t OR 1 WHERE t.id = 5",
        "SELECT * FROM t JOIN u ON t.id = u.t + 1 WHERE t.id = 5",
        "SELECT * FROM t JOIN u ON (t.id = u.t WHERE t.id = 5",
        "SELECT * FROM t LEFT JOIN u WHERE t.id = 5",
        "SELECT * FROM t LEFT JOIN u JOIN v ON u.id = v.u WHERE t.id = 5",
        "SELECT * FROM t LEFT JOIN u JOIN v ON u.id = v.u ON t.id = u.t WHERE t.id = 5",
        "SELECT * FROM t JOIN u ON t.id = u.t JOIN v USING (id) WHERE t.id = 5",
        "SELECT * FROM t JOIN u USING () WHERE t.id = 5",
        "SELECT * FROM t JOIN u USING (t.id, WHERE t.id = 5",
        "SELECT * FROM t WHERE TRUE = 1",
        "SELECT * FROM t WHERE NULL <=> NULL",
        "SELECT * FROM t WHERE ROWNUM = 1",
        "SELECT * FROM t WHERE current_date = 20260101",
        "DELETE FROM t WHERE current_user = 'a@b'",
        "SELECT * FROM t NATURAL JOIN u WHERE t.id = 5",
        "SELECT * FROM t JOIN (u, v) ON t.id = u.t WHERE t.id = 5",
        "SELECT * FROM t JOIN (SELECT 1) u WHERE t.id = 5",
        "SELECT * FROM t JOIN LATERAL (VALUES ROW(1)) u WHERE t.id = 5",
        "SELECT * FROM t FULL JOIN u ON t.id = u.t WHERE t.id = 5",
        "SELECT * FROM t, u WHERE t.id = 5 AND t.k <=> u.k",
        "SELECT * FROM t, u WHERE t.id = 5 AND NOT t.k = u.k",
        "SELECT * FROM t JOIN u AS 'x' WHERE t.id = 5",
        "SELECT * FROM t AS \u0130 JOIN u WHERE \u0130.id = 5",
        "SELECT * FROM t PARTITION (p0) WHERE id = 5",
        "SELECT * FROM t USE INDEX (k) WHERE id = 5",
        "SELECT /*+ NO_INDEX(t) */ * FROM t WHERE id = 5",
        "SELECT * FROM t WHERE id = 5 /*! OR 1 */",
        "WITH t AS (SELECT 1) SELECT * FROM t WHERE id = 5",
        "UPDATE t, u SET t.v = 1 WHERE id = 5",
        "UPDATE t SET \u0130d = 6 WHERE id = 5",
        "UPDATE t SET _rowid = 6 WHERE id = 5",
        "INSERT INTO t (\u0130d, id) VALUES (6, 5)",
        "DELETE t FROM t WHERE id = 5",
        "DELETE FROM t USING t WHERE id = 5",
        "INSERT INTO t VALUES (5)",
        "INSERT INTO t SET id = 5",
        "INSERT INTO t (id) SELECT 5",
        "INSERT INTO t (id, k) VALUES (5)",
        "TRUNCATE t",
        "",
    ],
)
def test_all_else_pins_nothing(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        (
            "SELECT * FROM s.T AS x JOIN u ON x.Id = u.t WHERE x.id = 5 AND U.k IS NOT NULL",
            Equality(ID, T, 2),
        ),
        ("SELECT u.v FROM s.T x, u WHERE x.id = u.t AND x.id = 5 ORDER BY u.v", Equality(ID, T, 2)),
        (
            "SELECT 1 FROM s.T x LEFT OUTER JOIN `u` ON (`x`.`id` = `u`.`t`) WHERE x.id = 5",
            Equality(ID, T, 2, "LEFT", "u"),
        ),
        (
            "SELECT 1 FROM s.T x RIGHT JOIN u ON u.t = x.id WHERE x.id = 5",
            Equality(T, ID, 2, "RIGHT", "u"),
        ),
        (
            "SELECT 1 FROM s.T x STRAIGHT_JOIN u WHERE x.id = 5 AND x.id = u.t",
            Equality(ID, T, 2),
        ),
        (
            "SELECT 1 FROM s.T x LEFT JOIN u USING (`ID`) WHERE id = 5",
            Equality(ID, Column("id", "u"), side="LEFT", last="u"),
        ),
    ],
)
def test_the_tables_of_a_join_are_told(text: str, joined: Equality) -> None:
    found = read(text)
    assert found is not None
    assert found.sources == ((TableRef("s", "T"), "x"), (TableRef(None, "u"), "u"))
    assert found.joined == (joined,)
    assert [(each.table, each.column) for each in found.conditions if each.equal] == [("x", "id")]


@pytest.mark.parametrize(
    ("joins", "among"),
    [
        ("a JOIN b ON x = y", [2]),
        ("a JOIN b ON x = y LEFT JOIN c ON x = z", [2, 3]),
        ("a, b JOIN c ON y = z", [None]),
        ("a JOIN b JOIN c ON y = z", [None]),
        ("a CROSS JOIN b LEFT JOIN c ON y = z JOIN d ON x = w", [None, None]),
        ("a JOIN b USING (x) JOIN c ON x = z", [None, 3]),
    ],
)
def test_it_is_told_of_which_tables_a_column_may_be(joins: str, among: list[int | None]) -> None:
    """As servers read it, the tables that stand in an ON's own join."""
    found = read(f"SELECT 1 FROM {joins} WHERE w = 5 AND z = v")
    assert found is not None
    assert [each.among for each in found.joined] == [*among, len(found.sources)]


@pytest.mark.parametrize(
    ("joins", "table"),
    [("", "a"), ("INNER", "a"), ("LEFT", "a"), ("RIGHT", "b")],
)
def test_a_column_that_two_tables_have_in_common_is_of_the_one_that_has_a_row(
    joins: str, table: str
) -> None:
    found = read(
        f"SELECT 1 FROM a {joins} JOIN b USING (x, y) JOIN c ON y = z WHERE x = 5 AND z = 1"
    )
    assert found is not None
    assert [each.table for each in found.conditions] == [table, ""]
    assert found.joined[-1].one == Column("y", table)


def test_the_columns_that_an_update_sets_are_told() -> None:
    found = read("UPDATE t SET t.A = 1, `b` = CONCAT(c, ',', 'x') WHERE id = 5")
    assert found is not None
    assert found.changed.keys() == {"a", "b"}


def put(text: str) -> dict[str, bytes | None]:
    """What a text sets its columns to."""
    found = read(text)
    assert found is not None
    return {
        name: each and b"-"[: each.negative] + each.text for name, each in found.changed.items()
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("UPDATE t AS x SET x.K = 3, `n` = 'a' WHERE id = 5", {"k": b"3", "n": b"'a'"}),
        ("UPDATE t SET k = -3, n = NULL ORDER BY id LIMIT 1", {"k": b"-3", "n": b"NULL"}),
        ("UPDATE t SET k = ? LIMIT 1", {"k": b"?"}),
        ("UPDATE t SET k = 1 WHERE a OR b", {"k": b"1"}),
        ("UPDATE t SET k = 3 + 1, n = (3), z = 4", {"k": None, "n": None, "z": b"4"}),
        ("UPDATE t SET k = - (3), n = DEFAULT, z = 4", {"k": None, "n": None, "z": b"4"}),
        ("UPDATE t SET k = 'x' COLLATE utf8mb4_bin, n = 'a' 'b'", {"k": None, "n": None}),
        ("UPDATE t SET k = NULL IS NULL, n = 1 = 1 WHERE id = 5", {"k": None, "n": None}),
        ("UPDATE t SET k = n, n = VALUES(n), z = t.z", {"k": None, "n": None, "z": None}),
        ("UPDATE t SET k = 3, n = 1, t.k = 3", {"k": None, "n": b"1"}),
        ('UPDATE t SET k = 3, n = "a"', {"k": None, "n": None}),
        ("UPDATE t SET k = 3 WHERE id = (SELECT 5)", {"k": None}),
    ],
)
def test_it_is_told_to_what_an_update_sets_them(text: str, told: dict[str, bytes | None]) -> None:
    assert put(text) == told


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ("k = 3, n = NULL", {"k": b"3", "n": b"NULL"}),
        ("k = VALUES(k), t.n = VALUES(`N`)", {"k": b"VALUES", "n": b"VALUES"}),
        ("k = VALUES(k) + 1, n = -VALUES(n)", {"k": None, "n": None}),
        ("k = VALUES(n), n = 4", {"k": None, "n": b"4"}),
        ("k = VALUES(n) + VALUES(k), n = VALUES(n)", {"k": None, "n": b"VALUES"}),
        ("k = x.k, n = x.k", {"k": None, "n": None}),
    ],
)
def test_it_is_told_to_what_columns_are_set_in_place_of_a_new_row(
    changed: str, told: dict[str, bytes | None]
) -> None:
    text = "INSERT INTO t (k, n) VALUES (1, 2) {} ON DUPLICATE KEY UPDATE "
    assert put(text.format("") + changed) == told
    assert put(text.format("AS x") + "k = x.k, n = x.n + 1") == {"k": b"VALUES", "n": None}
    assert put(text.format("AS x") + "k = y.k, n = t.n") == {"k": None, "n": None}


def test_the_rows_of_an_insert_are_told() -> None:
    found = read("INSERT IGNORE INTO s.t (id, `K`, c) VALUES (5, -6, NOW()), (7, '8', DEFAULT)")
    assert found is not None
    given = [{name: each and each.text for name, each in row.items()} for row in found.rows]
    assert given == [{"id": b"5", "k": b"6", "c": None}, {"id": b"7", "k": b"'8'", "c": None}]
    assert found.rows[0]["k"] is not None
    assert found.rows[0]["k"].negative


def test_a_value_is_told_by_its_place_among_the_literals() -> None:
    found = read("SELECT 1, 'a,2', 3col FROM t WHERE id = 5 AND k = 6")
    assert found is not None
    assert [value.place for each in found.conditions for value in each.values] == [3, 4]


@pytest.mark.parametrize(
    "path",
    [
        *("t.1a", "s.2024_t.1a", "2024s.2024_t.1a", "2024s . 2024_t.1a", "2024s.t. 1a"),
        *("t/**/./**/1a", "`t`./**/1a", "`2t`.`1a`", "t . 1a", "t.1e5", "t.0x1a"),
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT {} FROM t WHERE {} = 5 AND b = '6' AND {} IN (7, 8) LIMIT 9",
        "UPDATE {} SET {} = 4, c = 3 WHERE {} = 5 AND b = '6' LIMIT 9",
        "DELETE FROM {} WHERE {} = 5 AND b = '6' ORDER BY {} LIMIT 9",
        "INSERT INTO {} (a, b) VALUES (5, '6'), (7, 8) ON DUPLICATE KEY UPDATE {} = 9, c = {}",
    ],
)
def test_it_is_there_whatever_names_begin_with(text: str, path: str) -> None:
    lexed = lex(text.replace("{}", path).encode(), Dialect())
    found = pins(lexed.tokens)
    assert found is not None
    told = [value for each in found.conditions for value in each.values]
    told += [value for row in (*found.rows, found.changed) for value in row.values() if value]
    places = [value for value in told if value.text != b"VALUES"]
    assert places
    literals = literals_apart(lexed).literals.split(b",")
    assert [literals[value.place] for value in places] == [value.text for value in places]
