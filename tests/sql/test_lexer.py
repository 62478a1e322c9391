"""The lexer: tokens, shape and canonical text."""

import random
import sys
from contextlib import suppress
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.errors import SqlSyntaxError
from sqlcache.sql import pieces
from sqlcache.sql.lexer import (
    Kind,
    abridged,
    lex,
    split_statements,
    string_value,
    tokenize,
    word_set,
)
from sqlcache.sql.pieces import Dialect, split
from tests.costs import a_moment, costs_at_most

PLAIN = Dialect()
ANSI = Dialect(ansi_quotes=True)
RAW = Dialect(no_backslash_escapes=True)
DIALECTS = st.builds(Dialect, st.booleans(), st.booleans(), st.booleans(), st.booleans())


def kinds(text: str, dialect: Dialect = PLAIN) -> list[tuple[str, str]]:
    return [(t.kind.name, t.text.decode()) for t in tokenize(text.encode(), dialect)]


def canonical(text: str, dialect: Dialect = PLAIN) -> bytes:
    return lex(text.encode(), dialect).canonical


def shape(text: str, dialect: Dialect = PLAIN) -> bytes:
    return lex(text.encode(), dialect).shape


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1abc", [("WORD", "1abc")]),
        ("1e5", [("NUMBER", "1e5")]),
        ("1e5x", [("NUMBER", "1e5"), ("WORD", "x")]),
        ("0xAf", [("NUMBER", "0xAf")]),
        ("0xAfg", [("WORD", "0xAfg")]),
        ("0X1", [("WORD", "0X1")]),
        ("0b01", [("NUMBER", "0b01")]),
        (".5", [("NUMBER", ".5")]),
        ("1.from", [("NUMBER", "1."), ("WORD", "from")]),
        ("a.from", [("NAME", "a"), ("OPERATOR", "."), ("NAME", "from")]),
        ("t.1e5", [("NAME", "t"), ("OPERATOR", "."), ("NAME", "1e5")]),
        ("`a`.from", [("NAME", "`a`"), ("OPERATOR", "."), ("NAME", "from")]),
        ("select.a", [("NAME", "select"), ("OPERATOR", "."), ("NAME", "a")]),
        ("`a``b`", [("NAME", "`a``b`")]),
        ("'a''b'", [("STRING", "'a''b'")]),
        (r"'a\'b'", [("STRING", r"'a\'b'")]),
        (r"'\\' 'x'", [("STRING", r"'\\'"), ("STRING", "'x'")]),
        ("N'x' x'41' B'01'", [("STRING", "N'x'"), ("STRING", "x'41'"), ("STRING", "B'01'")]),
        ("_utf8mb4'x'", [("WORD", "_utf8mb4"), ("STRING", "'x'")]),
        ('"x"', [("STRING", '"x"')]),
        ("@a @`b c` @'d'", [("USER_VARIABLE", v) for v in ("@a", "@`b c`", "@'d'")]),
        ("@@x @@global.x", [("SYSTEM_VARIABLE", "@@x"), ("SYSTEM_VARIABLE", "@@global.x")]),
        ("?", [("PARAMETER", "?")]),
        ("/*+ X */", [("HINT", "/*+ X */")]),
        ("/*!50000 x */", [("VERSIONED", "/*!50000 x */")]),
        ("/*M!100100 x */", [("VERSIONED", "/*M!100100 x */")]),
        ("/* x */ a -- y\n#z\nb", [("WORD", "a"), ("WORD", "b")]),
        ("/* sqlcache: ttl=5 */", [("DIRECTIVE", "ttl=5")]),
        ("-- sqlcache: off", [("DIRECTIVE", "off")]),
        ("#", []),
        ("--", []),
        ("1--1", [("NUMBER", "1"), ("OPERATOR", "-"), ("OPERATOR", "-"), ("NUMBER", "1")]),
        ("a->>'$'", [("WORD", "a"), ("OPERATOR", "->>"), ("STRING", "'$'")]),
        ("<=> := != || &&", [("OPERATOR", o) for o in ("<=>", ":=", "!=", "||", "&&")]),
        (
            "a[1]\\",
            [("WORD", "a"), ("OTHER", "["), ("NUMBER", "1"), ("OTHER", "]"), ("OTHER", "\\")],
        ),
        ("é", [("WORD", "é")]),
    ],
)
def test_a_text_is_split_as_mysql_splits_it(text: str, expected: list[tuple[str, str]]) -> None:
    assert kinds(text) == expected


def test_a_nul_byte_ends_a_line_comment_as_it_does_in_mysql() -> None:
    assert kinds("-- x\0DELETE") == [("OTHER", "\0"), ("WORD", "DELETE")]


def test_double_quotes_are_names_under_ansi_quotes() -> None:
    (token,) = tokenize(b'"a""\\b"', ANSI)
    assert (token.kind, token.name) == (Kind.NAME, 'a"\\b')


def test_backslashes_are_plain_under_no_backslash_escapes() -> None:
    assert kinds(r"'a\' b", RAW) == [("STRING", r"'a\'"), ("WORD", "b")]


@pytest.mark.parametrize(
    "text",
    [
        "'a",
        "'a''b''c",
        r"'a\'",
        '"',
        "`x",
        "/* x",
        "/*!1 x",
        "@'x",
        "N'x",
        "SELECT 'a' 'b",
        "$$a$$",
    ],
)
def test_what_is_not_closed_is_refused(text: str) -> None:
    with pytest.raises(SqlSyntaxError):
        tokenize(text.encode(), PLAIN)


def test_the_refusal_names_the_position() -> None:
    with pytest.raises(SqlSyntaxError, match="at 7"):
        tokenize(b"SELECT 'abc", PLAIN)


def test_a_name_that_is_not_utf8_is_refused_but_a_string_may_be_anything() -> None:
    assert tokenize(b"'\xff\xfe'", PLAIN)
    for text in (b"\xff", b"`\xff`", b"@\xff"):
        with pytest.raises(SqlSyntaxError):
            tokenize(text, PLAIN)


def test_an_unquoted_word_beyond_ascii_is_refused_where_its_character_set_decides() -> None:
    other = Dialect(ascii_words=True)
    assert tokenize("`é` 'é'".encode(), other)
    with pytest.raises(SqlSyntaxError):
        tokenize("t\u00a0WHERE".encode(), other)


def test_only_ascii_letters_make_keywords() -> None:
    (token,) = tokenize("\u017felect".encode(), PLAIN)  # its upper case in Unicode is SELECT
    assert token.word != "SELECT"


@given(st.one_of(st.binary(), st.text("'\"`@.,1eE+-/*#xNb\\0 \n", max_size=60)), DIALECTS)
def test_in_turns_a_text_is_split_as_at_once(text: str | bytes, dialect: Dialect) -> None:
    data = text if isinstance(text, bytes) else text.encode()
    with patch.object(pieces, "TURN_BYTES", len(data) + 1):
        at_once = pieces._split_in_turns(data, dialect)
    for size in (1, 7, 16):
        with patch.object(pieces, "TURN_BYTES", size):
            assert pieces._split_in_turns(data, dialect) == at_once


@pytest.mark.parametrize("piece", [b"1,", b"'a'\"b\"", b"a ", b"1.1", b"`a`'b'", b"-"])
def test_little_of_a_long_text_is_split_at_a_time(piece: bytes) -> None:
    """No other thread runs amid that."""
    turns = []

    class Watched:
        def findall(self, text: bytes, start: int = 0, end: int = sys.maxsize) -> list[bytes]:
            turns.append(min(end, len(text)) - start)
            found: list[bytes] = splitter.findall(text, start, end)
            return found

    splitter = pieces._splitter(PLAIN)
    text = b"SELECT " + piece * 100_000
    with patch.object(pieces, "_splitter", lambda dialect: Watched()):
        found = split(text, PLAIN)
    assert found == splitter.findall(text)
    assert max(turns) <= pieces.TURN_BYTES


@given(st.binary(), DIALECTS)
def test_any_bytes_are_split_or_refused_and_pieces_join_to_the_text(
    text: bytes, dialect: Dialect
) -> None:
    try:
        lexed = lex(text, dialect)
    except SqlSyntaxError:
        return
    assert b"".join(lexed.pieces) == text
    for token in lexed.tokens:
        if token.kind is not Kind.DIRECTIVE:
            assert text[token.start : token.end] == token.text


FRAGMENTS = word_set(
    "SELECT FROM IN VALUES INTO UNION a . , ( ) * 'x' \"y\" `z` /* */ /*! /*+ -- # \\ ' \" ` @ @@",
    "; 1 1.5 0x - -> ? := { $ é",
) | {" ", "\n", "\0"}
SQLISH = st.lists(st.sampled_from(sorted(FRAGMENTS))).map("".join)


@given(SQLISH, DIALECTS)
def test_broken_sql_is_split_or_refused(text: str, dialect: Dialect) -> None:
    try:
        lexed = lex(text.encode(), dialect)
    except SqlSyntaxError:
        return
    assert b"".join(lexed.pieces) == text.encode()


@pytest.mark.parametrize(
    "text",
    [
        b"'\\" * 100_000,
        b"'" * 200_001,
        b"/*" * 100_000,
        b"`" * 100_001,
        b"a." * 100_000,
        b"@'" * 99_999,
    ],
)
def test_hostile_texts_take_linear_time(text: bytes) -> None:
    def read() -> None:
        with suppress(SqlSyntaxError):
            lex(text, PLAIN)

    assert costs_at_most(100, read, a_moment)


GAPS = st.sampled_from([b" ", b"\n\t", b"/* c */", b"-- c\n", b"# c\n", b" /**/ "])
STATEMENT = b"FROM t WHERE a . b = 'x' AND c IN ( 1 , 2 ) OR COUNT( d ) > - 1 ORDER BY e".split(
    b" "
)


@given(st.lists(GAPS, min_size=len(STATEMENT), max_size=len(STATEMENT)))
def test_white_space_and_comments_change_nothing_outside_select_lists(gaps: list[bytes]) -> None:
    plain = lex(b"SELECT 1 " + b" ".join(STATEMENT), PLAIN)
    text = b"".join(word + gap for word, gap in zip(STATEMENT, gaps, strict=True))
    spaced = lex(b"SELECT" + gaps[0] + b"1" + gaps[1] + text, PLAIN)
    assert (spaced.shape, spaced.canonical) == (plain.shape, plain.canonical)


NUMBERS = st.integers(-1000, 1000).map(str)
STRINGS = st.text().map(lambda s: "'" + s.replace("\\", "\\\\").replace("'", "''") + "'")
LITERALS = NUMBERS | STRINGS | st.sampled_from(["1.5e3", "0xAB", "N'x'", "b'01'", "NULL"])


@given(LITERALS, st.lists(LITERALS, min_size=1), LITERALS.filter(lambda s: s != "NULL"))
def test_literals_and_the_length_of_lists_do_not_change_the_shape(
    first: str, several: list[str], last: str
) -> None:
    text = f"SELECT f({first}) FROM t WHERE a IN ({', '.join(several)}) AND b = {last}"
    assert shape(text) == b"SELECT f( ? ) FROM t WHERE a IN ( ? ) AND b = ?"


@given(st.lists(st.lists(LITERALS, min_size=1), min_size=1))
def test_rows_of_values_collapse_to_one(rows: list[list[str]]) -> None:
    values = ",".join("(" + ",".join(row) + ")" for row in rows)
    assert shape(f"INSERT INTO t VALUES {values}") == b"INSERT INTO t VALUES ( ? )"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT a FROM t", "SELECT a FROM T"),
        ("SELECT COUNT(a) FROM t", "SELECT COUNT (a) FROM t"),
        ("SELECT f(1) FROM t", "SELECT g(1) FROM t"),
        ("SELECT f() FROM t", "SELECT f(1) FROM t"),
        ("SELECT a FROM t WHERE a = 1", "SELECT a FROM t WHERE a = ?"),
        ("SELECT `a` FROM t", "SELECT 'a' FROM t"),
        ("SELECT a FROM t", "SELECT /*+ X */ a FROM t"),
        ("SELECT a FROM t", "SELECT /*! x */ a FROM t"),
        ("SELECT a FROM t", "/* sqlcache: off */ SELECT a FROM t"),
        ("SET sql_mode = 'a'", "SET sql_mode = 'b'"),
        ("SELECT 1; SET x = 1", "SELECT 1; SET x = 2"),
    ],
)
def test_what_changes_the_analysis_changes_the_shape(one: str, other: str) -> None:
    assert shape(one) != shape(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT COUNT(id) FROM t", "SELECT COUNT( id ) FROM t"),
        ("SELECT 1+1", "SELECT 1 + 1"),
        ("SELECT a+1 FROM t", "SELECT A+1 FROM t"),
        ("SELECT a+1 FROM t", "SELECT a/*x*/+1 FROM t"),
        ("SELECT a and b FROM t", "SELECT a AND b FROM t"),
        ("SELECT (select a from t) FROM t", "SELECT (SELECT a FROM t) FROM t"),
        ("SELECT * FROM (SELECT a+1 FROM t) x", "SELECT * FROM (SELECT a + 1 FROM t) x"),
        ("SELECT * FROM (VALUES (1+1)) x, t", "SELECT * FROM (VALUES (1 + 1)) x, t"),
        ("SELECT a FROM t WHERE b='x'", "SELECT a FROM t WHERE b='X'"),
        ("SELECT a FROM t WHERE b='x y'", "SELECT a FROM t WHERE b='x  y'"),
        ("SELECT a FROM t WHERE b=`c`", "SELECT a FROM t WHERE b=c"),
        ("SELECT a FROM t WHERE ABS(b)=1", "SELECT a FROM t WHERE ABS (b)=1"),
        ("SELECT a FROM t ORDER BY b.c", "SELECT a FROM t ORDER BY b .c"),
        ("SELECT a FROM t x", "SELECT a FROM t X"),
        ("SELECT a FROM select.x", "SELECT a FROM SELECT.x"),
        ("SELECT a FROM t WHERE 1--1", "SELECT a FROM t WHERE 1"),
        ("SELECT /*+ a */ a FROM t", "SELECT /*+ b */ a FROM t"),
        ("SELECT a FROM t /*! x */", "SELECT a FROM t"),
        (
            "SELECT a FROM t WHERE b=1 UNION SELECT c+1",
            "SELECT a FROM t WHERE b=1 UNION SELECT c +1",
        ),
    ],
)
def test_what_may_change_the_answer_changes_the_canonical_text(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


def test_white_space_behind_a_column_may_be_part_of_its_name() -> None:
    skipping = Dialect(ignore_space=True)
    one, other = "SELECT a + b FROM t", "SELECT a + b  FROM t"
    assert canonical(one) == canonical(other)
    assert canonical(one, skipping) != canonical(other, skipping)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT a FROM t WHERE b=1", "select  a /* x */ from  t\nwhere b = 1 -- end"),
        ("SELECT a FROM t", "SELECT /* x */ a /* y */ FROM t # z"),
        ("SELECT a FROM t", "/* sqlcache: ttl=5 */ SELECT a FROM t"),
        ("SELECT a FROM t a JOIN u b ON a.x=b.x", "SELECT a FROM t a join u b on a.x = b.x"),
        ("SELECT a FROM t UNION SELECT b FROM u", "SELECT a FROM t union\nSELECT b FROM u"),
        ("SELECT EXTRACT(DAY FROM a) FROM t", "SELECT EXTRACT(DAY FROM a) from t"),
        (
            "SELECT a FROM t WHERE (SELECT b FROM u)=1",
            "SELECT a FROM t where ( select b from u ) = 1",
        ),
    ],
)
def test_what_cannot_change_the_answer_leaves_the_canonical_text(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        (";;", 0),
        ("/* sqlcache: off */", 0),
        ("SELECT 1;", 1),
        ("SELECT ';'; SELECT 2", 2),
        ("CREATE PROCEDURE p() BEGIN SELECT 1; SELECT 2; END", 1),
        (
            "CREATE OR REPLACE DEFINER=event@h TRIGGER t BEFORE INSERT ON t FOR EACH ROW BEGIN;",
            1,
        ),
        ("BEGIN NOT ATOMIC SELECT 1; END", 1),
        ("CREATE TABLE t (event INT, `procedure` INT); DELETE FROM u", 2),
        ("CREATE DEFINER=event@h VIEW v AS SELECT 1; DELETE FROM u", 2),
        ("SELECT 1; CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO BEGIN SELECT 1; END", 2),
    ],
)
def test_statements_end_at_semicolons_unless_a_body_may_hold_them(text: str, count: int) -> None:
    assert len(split_statements(tokenize(text.encode(), PLAIN))) == count


def test_a_string_says_what_its_escapes_mean() -> None:
    def value(text: str, dialect: Dialect = PLAIN) -> str:
        (token,) = tokenize(text.encode(), dialect)
        return string_value(token, dialect)

    assert value(r"'a\'b''c\n\%'") == "a'b'c\n%"
    assert value(r"N'x\'", RAW) == "x\\"


def test_split_gives_gaps_and_comments_as_pieces() -> None:
    assert split(b"a /*x*/ b", PLAIN) == [b"a", b" ", b"/*x*/", b" ", b"b"]


# Lists of any length are one shape.


@pytest.mark.parametrize("item", ["?", "1", "-1", "'x'", "(?, ?)", "(1, 'x')"])
@pytest.mark.parametrize(
    "text", ["SELECT a FROM t WHERE b IN ({})", "INSERT INTO t VALUES ({0}), ({0})"]
)
def test_a_list_of_any_length_is_one_shape(text: str, item: str) -> None:
    many, more = (text.format(", ".join([item] * length)) for length in (20, 30))
    assert shape(many) == shape(more)


@pytest.mark.parametrize("arguments", ["?, ?", "'a', 'b'", "1, 2, 3"])
def test_a_functions_arguments_are_not_one(arguments: str) -> None:
    one = arguments.split(",")[0]
    assert shape(f"SELECT f({arguments}) FROM t") != shape(f"SELECT f({one}) FROM t")
    assert shape(f"SELECT `f`({arguments})") != shape(f"SELECT `f`({one})")
    assert shape(f"SELECT f(g(1), {arguments})") != shape(f"SELECT f(g(1), {one})")


_SOUP = (
    *("SELECT", "a", "f", "IN", "ROW", "VALUES", "WHERE", "t.v", "`x`", "NULL"),
    *("(", "(", ")", ")", ",", ",", ",", "?", "?", "?", "1", "'s'", "-", "=", ";"),
    *("/* sqlcache: off */", "/* c */", "/*+ h */"),
)


def test_a_shape_has_the_parameters_that_its_analysis_sees() -> None:
    chosen = random.Random(11)
    for _ in range(5_000):
        words = chosen.choices(_SOUP, k=chosen.randint(1, 30))
        text = "SELECT " + "".join(chosen.choice((" ", " ", "")) + word for word in words)
        lexed = lex(text.encode(), Dialect())
        parts = split_statements(lexed.tokens)
        if len(parts) > 1 or b" ." in lexed.shape:
            continue
        seen = [token for token in abridged(parts[0]) if token.kind is Kind.PARAMETER]
        assert lexed.shape.split().count(b"??") == len(lexed.runs) == len(seen), text
        assert sum(lexed.runs) == lexed.pieces.count(b"?")


@pytest.mark.parametrize(
    "text", ["EXPLAIN INSERT INTO t VALUES {}", "INSERT INTO t VALUES {}; SELECT 1", "SET a = {}"]
)
def test_rows_of_parameters_are_not_one_where_literals_matter(text: str) -> None:
    assert shape(text.format("(?), (?)")).count(b"??") == 2


@pytest.mark.parametrize("text", ["), (1) SELECT", "1), (1) SELECT", "?), (?) SELECT"])
def test_what_ends_before_any_row_has_begun_is_none(text: str) -> None:
    assert shape(text).count(b")") == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT id,v FROM t", "SELECT id, v FROM t"),
        ("SELECT id AS i,t.v FROM t", "SELECT id  AS i , t . v FROM t"),
        ("SELECT t.*,id FROM t", "SELECT t . * ,\n id FROM t"),
        ("SELECT id FROM t", "SELECT id FROM t;"),
        ("SELECT id FROM t", "SELECT id FROM t ; ;\n"),
    ],
)
def test_texts_with_one_answer_are_one(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)
    assert shape(one).split(b"FROM")[1:] == shape(other).split(b"FROM")[1:]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT id,COUNT(v) FROM t", "SELECT id,COUNT( v ) FROM t"),
        ("SELECT NOT  v FROM t", "SELECT NOT v FROM t"),
        ("SELECT BINARY  v FROM t", "SELECT BINARY v FROM t"),
        ("SELECT v  DIV w FROM t", "SELECT v DIV w FROM t"),
        ("SELECT a AS b, c FROM t", "SELECT a, b, c FROM t"),
        ("SELECT id FROM t", "SELECT id FROM t; -- more"),
        ("SELECT id FROM t", "SELECT id FROM t; /* more */ ;"),
        ("SELECT id FROM t", "SELECT id FROM t;; -- more\n;"),
        ("SELECT id AS  'x' FROM t", "SELECT id AS 'x' FROM t"),
    ],
)
def test_texts_whose_answers_may_differ_are_two(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)
