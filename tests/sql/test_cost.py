"""What a client sends costs time in proportion to its length, whatever it sends. Each text is made
of so many pieces of one kind."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from sqlcache.errors import SqlSyntaxError
from sqlcache.plan.cacheability import assess
from sqlcache.plan.parameters import forms
from sqlcache.proxy.diagnostics import Diagnostics
from sqlcache.proxy.looking_back import may_look_back
from sqlcache.sql.analysis import analyse
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import Server
from sqlcache.sql.facts import BaseTable, Facts
from sqlcache.sql.lexer import lex
from sqlcache.sql.names import TableName
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.policy import Asked, Policy, Rule, Source, Terms, read_shape, read_terms
from tests.costs import a_moment, costs_at_most, grows_linearly

DIALECT = Dialect()
CATALOG = Catalog.of(
    Server(flavour="mysql", version=(9, 7), lower_case_table_names=0),
    Facts([BaseTable(TableName("s", "t"), "InnoDB")]),
)
POLICY = Policy(
    [Rule(Source("rules[0]", Terms(ttl_s=5)), shape=read_shape("SELECT 1 FROM t"))], ttl_s=60
)


def listed(piece: bytes, between: bytes = b",") -> Callable[[int], bytes]:
    return lambda n: between.join([piece] * n)


def numbered(piece: bytes) -> Callable[[int], bytes]:
    return lambda n: b",".join(piece.replace(b"#", b"%d" % each) for each in range(n))


def nested(opens: bytes, closes: bytes) -> Callable[[int], bytes]:
    return lambda n: opens * n + b"1" + closes * n


def repeated(piece: bytes) -> Callable[[int], bytes]:
    return lambda n: piece * n


WHERE = b"SELECT a FROM t WHERE "
TEXTS: dict[str, tuple[bytes, Callable[[int], bytes], bytes]] = {
    "parameters in a list": (WHERE + b"a IN (", listed(b"?"), b")"),
    "parameters and literals in a list": (WHERE + b"a IN (", listed(b"?,1"), b")"),
    "comparisons with parameters": (WHERE, listed(b"a = ?", b" OR "), b""),
    "arguments": (b"SELECT f(", listed(b"?"), b") FROM t"),
    "rows of parameters": (WHERE + b"(a,b) IN (", listed(b"(?,?)"), b")"),
    "rows of parameters and more": (WHERE + b"(a,b) IN (", listed(b"(?,b)"), b")"),
    "parameters in parentheses": (WHERE + b"a IN (", listed(b"((?))"), b")"),
    "selected parameters": (b"SELECT ", listed(b"?"), b" FROM t"),
    "ordered parameters": (b"SELECT a FROM t ORDER BY ", listed(b"((?)), a"), b""),
    "inserted parameters": (b"INSERT INTO t VALUES ", listed(b"(?,NOW())"), b""),
    "patterns": (WHERE, listed(b"a REGEXP b", b" OR "), b""),
    "ors": (WHERE, listed(b"a = 1", b" OR "), b""),
    "ands": (WHERE, listed(b"a = b", b" AND "), b""),
    "betweens": (WHERE, listed(b"a BETWEEN b AND c", b" AND "), b""),
    "sums after a between": (WHERE + b"a BETWEEN 1 AND 2", repeated(b" + b AND c"), b""),
    "limits": (b"SELECT a FROM t ", repeated(b"LIMIT 1 "), b""),
    "limits in a literal": (WHERE + b"a = '", repeated(b"LIMIT "), b"'"),
    "unions": (b"", listed(b"SELECT a FROM t", b" UNION "), b""),
    "unions in a literal": (WHERE + b"a = '", repeated(b"UNION "), b"'"),
    "selects in a literal": (WHERE + b"a = '", repeated(b"SELECT FROM  "), b"'"),
    "parentheses": (WHERE, nested(b"(", b")"), b""),
    "parentheses left open": (WHERE, repeated(b"("), b""),
    "parentheses closed too often": (WHERE, repeated(b")"), b""),
    "parentheses in a row": (WHERE + b"1", repeated(b" OR (a = 2)"), b""),
    "calls": (b"SELECT ", listed(b"ABS(a)"), b" FROM t"),
    "calls in calls": (b"SELECT ", nested(b"ABS(", b")"), b" FROM t"),
    "times in times": (WHERE, nested(b"TIME(", b")"), b""),
    "types in types": (b"SELECT ", nested(b"YEAR(CHAR(INT(DECIMAL(", b"))))"), b" FROM t"),
    "dates in dates": (b"SELECT ", nested(b"DATE(TIMESTAMP(", b"))"), b" FROM t"),
    "subqueries in subqueries": (WHERE, nested(b"a = (SELECT b FROM t WHERE ", b")"), b""),
    "subqueries in a row": (b"SELECT ", listed(b"(SELECT * FROM t)"), b" FROM t"),
    "compared subqueries": (WHERE, listed(b"a = (SELECT b FROM t)", b" OR "), b""),
    "a list": (WHERE + b"a IN (", numbered(b"#"), b")"),
    "lists": (WHERE, listed(b"a IN (1,2,b)", b" OR "), b""),
    "lists in lists": (WHERE, nested(b"a IN (", b")"), b""),
    "a string": (WHERE + b"a = '", repeated(b"xxxx"), b"'"),
    "backslashes": (WHERE + b"a = '", repeated(b"\\\\"), b"'"),
    "backslashes left open": (WHERE + b"a = '", repeated(b"\\"), b""),
    "quotes": (WHERE + b"a = ", repeated(b"''"), b""),
    "quotes left open": (WHERE + b"a = ", repeated(b"''"), b"'"),
    "backticks": (b"SELECT ", repeated(b"``"), b"`"),
    "comments": (WHERE + b"1", repeated(b"/* x */ "), b""),
    "comments left open": (WHERE + b"1", repeated(b"/* "), b""),
    "comments to the line's end": (WHERE + b"1", repeated(b"-- x\n#y\n"), b""),
    "dashes": (WHERE, repeated(b"-"), b"1"),
    "nots": (WHERE, repeated(b"NOT !"), b"a"),
    "directives": (WHERE + b"1", repeated(b"/* sqlcache: ttl=5 */"), b""),
    "white space in a directive": (WHERE + b"1 /* sqlcache: a", repeated(b" "), b"b */"),
    "words in a directive": (WHERE + b"1 /* sqlcache: ", repeated(b", "), b"1 */"),
    "versioned comments": (WHERE + b"1", repeated(b"/*!40000 x */"), b""),
    "a versioned comment": (WHERE + b"1 /*!40000 ", repeated(b"/*"), b"*/"),
    "hints": (b"SELECT ", repeated(b"/*+ x */"), b" a FROM t"),
    "a path": (b"SELECT a", repeated(b".a"), b" FROM t"),
    "a path with blanks": (b"SELECT a", repeated(b" . a"), b" FROM t"),
    "digits": (b"SELECT ", repeated(b"1"), b" FROM t"),
    "exponents": (b"SELECT ", repeated(b"1e"), b" FROM t"),
    "aliases": (b"SELECT ", numbered(b"a AS a#"), b" FROM t"),
    "tables": (b"SELECT a FROM ", numbered(b"t#"), b""),
    "joins": (b"SELECT 1 FROM t", repeated(b" JOIN t u ON t.a = u.a"), b""),
    "joins without conditions": (b"SELECT 1 FROM t", repeated(b" JOIN t"), b" WHERE a = 1"),
    "straight joins": (b"SELECT 1 FROM t", repeated(b" STRAIGHT_JOIN t u"), b""),
    "joins with their conditions behind them": (
        b"SELECT 1 FROM t",
        lambda n: b" JOIN t" * n + b" ON 1" * n,
        b"",
    ),
    "table expressions": (b"WITH ", numbered(b"c# AS (SELECT 1)"), b" SELECT * FROM t"),
    "table expressions of an update": (b"WITH ", numbered(b"c# AS (SELECT 1)"), b" DELETE FROM t"),
    "table expressions in a row": (
        WHERE + b"1",
        lambda n: b"".join(b" WITH c%d AS (SELECT 1)" % each for each in range(n)),
        b"",
    ),
    "withs": (b"", repeated(b"WITH "), b""),
    "matches": (WHERE, listed(b"MATCH (a) AGAINST ('x')", b" OR "), b""),
    "matches in matches": (WHERE, nested(b"AND MATCH (a) AGAINST (", b")"), b""),
    "matches of nothing": (WHERE, repeated(b"AND MATCH (a) "), b""),
    "matches left open": (WHERE, repeated(b"AND MATCH AGAINST ("), b""),
    "cases": (b"SELECT ", nested(b"CASE WHEN a THEN ", b" END"), b" FROM t"),
    "semicolons": (b"SELECT a FROM t", repeated(b";"), b""),
    "statements": (b"", repeated(b"SELECT a FROM t;"), b""),
    "statements that set": (b"", repeated(b"SET a = f(1);"), b""),
    "statements that set the mode": (b"", repeated(b"SET sql_mode = 'x';"), b""),
    "statements that use": (b"", repeated(b"USE a;"), b""),
    "a mode made of itself": (
        b"SET sql_mode = ",
        lambda n: b"CONCAT(" * n + b"@@sql_mode" + b",'a')" * n,
        b"",
    ),
    "settings": (b"SET ", listed(b"@a = 1, b = 2"), b""),
    "statements with settings": (b"", repeated(b"SET STATEMENT a=1 FOR "), b"SELECT 1"),
    "explains": (b"", repeated(b"EXPLAIN "), b"SELECT 1"),
    "inserted rows": (b"INSERT INTO t VALUES ", listed(b"(1,'x',NULL)"), b""),
    "inserted rows left open": (b"INSERT INTO t VALUES ", repeated(b"(1,'x"), b""),
    "updates": (b"UPDATE t SET ", listed(b"a = a + 1"), b""),
    "deletes": (b"DELETE FROM t WHERE ", listed(b"a = 1", b" OR "), b""),
    "deleted tables": (b"DELETE ", numbered(b"t#"), b" FROM t"),
    "created columns": (b"CREATE TABLE t (", numbered(b"c# INT"), b")"),
    "renames": (b"ALTER TABLE t ", listed(b"RENAME TO a"), b""),
    "merged tables": (b"ALTER TABLE t ", listed(b"UNION = (a, b)"), b""),
    "merged tables in a row": (b"ALTER TABLE t UNION = (", numbered(b"t#"), b")"),
    "deleted tables of a list": (
        b"DELETE ",
        lambda n: b"%b FROM %b" % ((b",".join([b"t"] * n),) * 2),
        b"",
    ),
    "dropped tables": (b"DROP TABLE ", numbered(b"t#"), b""),
    "definers": (b"CREATE ", repeated(b"DEFINER = "), b"VIEW v AS SELECT 1"),
    "a body": (b"CREATE PROCEDURE p() BEGIN ", repeated(b"SELECT 1; "), b"END"),
    "white space": (b"SELECT", repeated(b" \n"), b"a FROM t"),
    "system variables": (b"SELECT ", repeated(b"@@a,"), b"1"),
    "a system variable": (b"SELECT @@", repeated(b"`a`."), b"x"),
    "user variables": (b"SELECT ", repeated(b"@a,"), b"1"),
    "at signs": (b"SELECT ", repeated(b"@"), b""),
    "dollars": (b"SELECT ", repeated(b"a$"), b""),
    "letters beyond ASCII": (b"SELECT ", repeated("é ".encode()), b""),
    "bytes that are no letters": (b"SELECT ", repeated(b"\xff "), b""),
    "locks": (b"SELECT a FROM t ", repeated(b"FOR UPDATE "), b""),
    "selects": (b"", repeated(b"(SELECT "), b""),
    "stars": (b"SELECT ", repeated(b"*,"), b"1 FROM t"),
    "procedure's arguments": (b"CALL p(", listed(b"1, a"), b")"),
    "values": (b"VALUES ", listed(b"ROW(1,a)"), b""),
    "windows": (b"SELECT ", listed(b"LAG(a) OVER (ORDER BY a, b)"), b" FROM t"),
}
# What is copied with each piece costs little, until there is much of it.
LONG_TEXTS: dict[str, tuple[bytes, Callable[[int], bytes], bytes]] = {
    "dots": (WHERE, repeated(b"."), b""),
    "selected dots": (b"SELECT ", repeated(b"."), b""),
    "a path of quoted names": (b"SELECT a FROM ", listed(b"`a`", b"."), b""),
    "a selected path of quoted names": (b"SELECT ", listed(b"`a`", b"."), b""),
    "a path of strings": (WHERE, listed(b"'a'", b"."), b""),
    "a path of parentheses": (WHERE, repeated(b"a(."), b""),
    "dots after a long name": (WHERE, lambda n: b"`" + b"a" * n + b"`" + b"." * n, b""),
}
MANY_BYTES = 100_000

VALUES: dict[str, bytes] = {
    "digits": b"1",
    "white space": b" ",
    "digits with dots": b"1.",
    "exponents": b"1e",
    "dashes": b"1-",
    "colons": b":1",
}


def go_the_way_of(text: bytes) -> None:
    """What becomes of a text before it is sent on, or answered."""
    may_look_back(text)
    diagnostics = Diagnostics()
    diagnostics.may_be_kept(text)
    diagnostics.mariadb = True
    diagnostics.hit(text, text, 1)
    diagnostics.missing(0, limited=False)
    for prepared in (False, True):
        with suppress(SqlSyntaxError):
            lexed = lex(text, DIALECT)
            several = not prepared
            statements = analyse(
                text, DIALECT, multi_statements=several, parameters_allowed=prepared
            )
            for statement in statements:
                assess(statement, "s", CATALOG)
            words = [
                Source(said, read_terms(said)) for s in statements[:1] for said in s.directives
            ]
            POLICY.decide([TableName("s", "t")], Asked("ann", lexed, tuple(words)))
    analyse(text, DIALECT, head=True)


@pytest.mark.parametrize("kind", TEXTS)
def test_a_texts_cost_grows_with_its_length(kind: str) -> None:
    head, body, tail = TEXTS[kind]
    assert grows_linearly(lambda n: head + body(n) + tail, go_the_way_of)


@pytest.mark.parametrize("kind", TEXTS)
def test_no_piece_of_a_short_text_doubles_its_cost(kind: str) -> None:
    head, body, tail = TEXTS[kind]
    for n in (4, 8, 12, 18):  # beyond some depth none is read
        text = head + body(n) + tail
        assert costs_at_most(100, lambda: go_the_way_of(text), a_moment), n  # noqa: B023


@pytest.mark.parametrize("kind", LONG_TEXTS)
def test_a_long_texts_forms_cost_no_more_by_the_byte(kind: str) -> None:
    head, body, tail = LONG_TEXTS[kind]
    many = MANY_BYTES // len(body(1))
    long, longer = (head + body(n) + tail for n in (many, 4 * many))
    assert costs_at_most(9, lambda: lex(longer, DIALECT), lambda: lex(long, DIALECT))


@pytest.mark.parametrize("kind", VALUES)
def test_a_parameters_cost_grows_with_its_length(kind: str) -> None:
    def tell_its_form(value: bytes) -> None:
        payload = b"\xfe" + len(value).to_bytes(8, "little") + value
        forms(payload, 0, (b"\xfd\0",), b"\0")

    assert grows_linearly(lambda n: VALUES[kind] * n + b"x", tell_its_form)
