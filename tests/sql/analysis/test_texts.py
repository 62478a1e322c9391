"""Whole texts: several statements, heads, large INSERTs, versioned comments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.sql.analysis import analyse, identifiers_in
from sqlcache.sql.analysis.texts import HEAD_BYTES
from sqlcache.sql.policy import NOT_UNDERSTOOD, read_terms
from sqlcache.sql.statement import Kind, Statement, Transaction
from sqlcache.sql.versioned import Opens
from tests.costs import a_moment, costs_at_most
from tests.sql.analysis.reading import PLAIN, names, one


@given(st.binary())
def test_no_bytes_raise(text: bytes) -> None:
    analyse(text, PLAIN)
    analyse(text, PLAIN, head=True)
    identifiers_in(text, PLAIN)


@pytest.mark.parametrize(
    "text",
    [
        "EXPLAIN " * 3000 + "SELECT 1",
        "SET STATEMENT a=1 FOR " * 2000 + "SELECT 1",
        "(" * 5000,
        "SELECT " + "NOT " * 5000 + "1 FROM t",
        "WITH " * 2000,
        "SELECT CASE " * 2000,
    ],
)
def test_deep_nesting_is_not_cacheable_and_does_not_raise(text: str) -> None:
    assert not one(text).cacheable


@pytest.mark.parametrize(
    "text",
    [
        "INSERT /*!99999 IGNORE */ INTO t VALUES (1)",
        "INSERT /*M!100000 IGNORE */ INTO t VALUES (1)",
        "/*!50000 DELETE FROM -- */ t\n u */",
        "/*!400 DELETE FROM t */",
        "/*!99999 DELETE FROM t */",
        "CREATE PROCEDURE p() SELECT 1; DELETE FROM t",
        "SELECT 'unclosed",
        "INSERT INTO t VALUES ($$a$$)",
        "UPDATE t[1] SET a = 1",
    ],
)
def test_what_cannot_be_split_or_seen_writes_everything(text: str) -> None:
    assert one(text).writes_everything


def test_directives_are_what_comments_say_to_sqlcache() -> None:
    statement = one("/* sqlcache: ttl=5 */ SELECT a FROM t -- sqlcache: other")
    assert statement.directives == ("ttl=5", "other")
    assert statement.cacheable


@pytest.mark.parametrize("said", ["x" * 1_000_000, "ttl=5 */ /* sqlcache: " * 50_000])
def test_of_long_directives_no_more_is_kept_than_that_nobody_understands_them(said: str) -> None:
    statement = one(f"SELECT a FROM t /* sqlcache: {said} */")
    assert sum(map(len, statement.directives)) < 1_000
    assert any(read_terms(said) == NOT_UNDERSTOOD for said in statement.directives)


def many(piece: str, count: int, between: str = ", ") -> str:
    return between.join(piece.format(each) for each in range(count))


@pytest.mark.parametrize(
    ("head", "piece", "between"),
    [
        ("DROP TABLE IF EXISTS ", "t{}", ", "),
        ("DROP TEMPORARY TABLE ", "t{}", ", "),
        ("RENAME TABLE ", "t{} TO u{}", ", "),
        ("DELETE t1 FROM ", "t{}", ", "),
        ("SELECT a FROM ", "t{}", ", "),
        ("INSERT INTO t SELECT a FROM ", "t{}", ", "),
        ("SELECT ", "f{}(a)", ", "),
        ("SET ", "@@a{} = 1", ", "),
        ("SET ", "@@a = 1", ", "),
        ("", "DELETE FROM t{}", "; "),
        ("", "DELETE FROM t", "; "),
        ("", "COMMIT", ";"),
    ],
)
def test_a_text_that_names_too_much_is_not_followed(head: str, piece: str, between: str) -> None:
    """Each name costs time and memory, while others wait."""
    piece = piece.replace("u{}", "u")
    few = analyse((head + many(piece, 100, between)).encode(), PLAIN)
    assert not any(statement.reason.endswith("too much") for statement in few)
    (statement,) = analyse((head + many(piece, 5_000, between)).encode(), PLAIN)
    assert statement.writes_everything
    assert statement.opaque_session
    assert not statement.reads | statement.writes | statement.temporary_dropped
    assert not statement.functions
    assert not statement.settings


def test_many_statements_that_name_the_same_are_followed() -> None:
    text = ";".join(
        f"INSERT INTO t VALUES ({each}); UPDATE u SET v = {each}" for each in range(450)
    )
    statements = analyse(text.encode(), PLAIN)
    assert len(statements) == 900
    assert not any(statement.writes_everything for statement in statements)


def test_each_statement_of_several_is_told_apart() -> None:
    first, second, third = analyse(b"DELETE FROM t; SET x = 1; COMMIT;", PLAIN)
    assert names(first.writes) == {"t"}
    assert second.settings == (("x", "1"),)
    assert third.transaction is Transaction.COMMIT


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("SET NAMES utf8mb4; SET sql_mode = ''; DELETE FROM t WHERE v = 'x'", True),
        ("SET NAMES gbk; INSERT INTO t VALUES ('\\n', \"x\")", True),
        ("SET time_zone = '+05:00'; INSERT INTO t VALUES ('\\n', \"x\", 'ü')", True),
        ("SET NAMES gbk; INSERT INTO t VALUES ('ü')", False),
        ("SET sql_mode = ''; INSERT INTO t VALUES ('\\'); DELETE FROM u; -- ')", False),
        ('SET sql_mode = ANSI_QUOTES; SELECT "f"(1)', False),
        ('SET sql_mode = @@sql_mode; COMMIT; DELETE FROM t WHERE v = "x"', False),
    ],
)
def test_a_statement_may_change_how_the_ones_after_it_are_read(text: str, known: bool) -> None:
    statements = analyse(text.encode(), PLAIN)
    assert not statements[0].writes_everything
    assert any(statement.writes_everything for statement in statements) is not known


def test_a_session_that_cannot_send_several_statements_is_not_believed_to() -> None:
    (statement,) = analyse(b"SELECT a FROM t; DELETE FROM t", PLAIN, multi_statements=False)
    assert statement.writes_everything


def test_a_body_with_semicolons_is_certain_only_if_nothing_can_follow_it() -> None:
    text = b"CREATE PROCEDURE p() BEGIN SELECT 1; DELETE FROM t; END"
    (alone,) = analyse(text, PLAIN, multi_statements=False)
    (several,) = analyse(text, PLAIN)
    assert not alone.writes_everything
    assert several.writes_everything


def test_empty_texts_hold_no_statement() -> None:
    assert analyse(b" ;; -- x", PLAIN) == ()


ROWS = ",".join(f"({n}, 'it\\'s f(1); {n}', NULL, -1.5e3, N'x', 0xAB)" for n in range(20_000))


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("INSERT /*!50000 IGNORE */ INTO t VALUES (1)", "t"),
        ("/*!40000 DELETE FROM t */ /*! WHERE a = 1 */", "t"),
        ("SELECT /*!40001 SQL_NO_CACHE */ * FROM t", ""),
    ],
)
def test_code_in_comments_that_every_server_runs_is_read(text: str, tables: str) -> None:
    statement = one(text)
    assert names(statement.writes) == set(tables.split())
    assert (statement.writes_everything, statement.cacheable) == (False, False)


MYSQL = Opens(is_mariadb=False, version=90704)
MARIADB = Opens(is_mariadb=True, version=101119)


@pytest.mark.parametrize(
    ("text", "by_mysql", "by_mariadb"),
    [
        ("/*!80000 DELETE FROM t */", "DELETE FROM t", ""),
        ("/*M!100100 DELETE FROM t */", "", "DELETE FROM t"),
        ("DELETE FROM t /*!80000 , u USING t JOIN u */", "DELETE FROM t, u USING t JOIN u", None),
        ("SELECT a /*!80000 + 1 */ FROM t", "SELECT a + 1 FROM t", "SELECT a FROM t"),
        ("SELECT a FROM t /*M!100100 , u */", "SELECT a FROM t", "SELECT a FROM t, u"),
        ("SELECT a /*!99999 INTO @a */ FROM t", "SELECT a FROM t", "SELECT a FROM t"),
        ("/*!80000 SET SESSION x = 0 */", "SET SESSION x = 0", ""),
        ("/*M!100101 SET LOCAL SQL_LOG_OFF=0 */", "", "SET LOCAL SQL_LOG_OFF=0"),
        ("/*!80000 CREATE TEMPORARY TABLE t (a INT) */", "CREATE TEMPORARY TABLE t (a INT)", ""),
        ("SELECT a FROM t; /*!99999 DELETE FROM t */", "SELECT a FROM t;", "SELECT a FROM t;"),
    ],
)
def test_code_in_comments_is_read_as_the_server_does(
    text: str, by_mysql: str, by_mariadb: str | None
) -> None:
    for server, read in ((MYSQL, by_mysql), (MARIADB, by_mariadb)):
        meant = text.partition(" /*")[0] if read is None else read
        told = analyse(text.encode(), PLAIN, opens=server)
        assert told == (analyse(meant.encode(), PLAIN) or (EMPTY,))


EMPTY = Statement("", Kind.OTHER, reason="it is empty")


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM t /*!80000 -- */\n , u USING t JOIN u */",
        "DELETE FROM t /*!99999 /* x */ , u USING t JOIN u */",
        "SELECT a /*!80000 'x*/ FROM t",
        "SELECT a /*!80000 `x*/ FROM t",
        "SELECT a /*!400 + 1 */ FROM t",
        "SELECT a /*!8000000 + 1 */ FROM t",
    ],
)
def test_code_in_comments_that_cannot_be_followed_writes_everything(text: str) -> None:
    assert [one.writes_everything for one in analyse(text.encode(), PLAIN, opens=MYSQL)] == [True]


def test_code_in_comments_may_be_several_statements() -> None:
    text = b"/*!80000 DELETE FROM t; DELETE FROM u */"
    both = analyse(text, PLAIN, opens=MYSQL)
    assert [names(each.writes) for each in both] == [{"t"}, {"u"}]
    (alone,) = analyse(text, PLAIN, opens=MYSQL, multi_statements=False)
    assert alone.writes_everything


@pytest.mark.parametrize(
    ("before", "after", "everything"),
    [
        ("INSERT INTO t (a) VALUES ", "", False),
        ("INSERT INTO t VALUES", ";", False),
        ("REPLACE t VALUES ", "", False),
        ("INSERT INTO t VALUES ", " ON DUPLICATE KEY UPDATE a = VALUES(a)", False),
        ("INSERT INTO t VALUES ", " ON DUPLICATE KEY UPDATE a = f(1)", True),
        ("INSERT INTO t VALUES ", ", (f(1))", True),
        ("INSERT INTO t VALUES ", ", (e1(1))", True),
        ("INSERT INTO t VALUES ", ", (1f(1))", True),
        ("INSERT INTO t VALUES ", ", (NULL /* x */, 1 /*!50000 + f(1) */)", True),
        ("INSERT INTO t VALUES ", ", -- '\n (f(1), 2), -- '\n (3, 'x')", True),
        ("INSERT INTO t VALUES ", ", (-1, - -- '\n f(1)), (3, --\t'\n 'x')", True),
        ("INSERT INTO t VALUES ", ", ---\0'\n (f(1), 2), --\x7f\"\n (3, 'x')", True),
        ("INSERT INTO t VALUES ", ", # '\n (f(1), 2), # '\n (3, 'x')", True),
        ("INSERT INTO t VALUES ", ", /*'*/ (f(1), 2), /*'*/ (3, 'x')", True),
        ("INSERT INTO t VALUES ", ", -- it's\n (--1, - -1), (3, 'x')", False),
        ("INSERT INTO t VALUES ", ", (1TRUE (1)), (0x1NULL\t(2))", True),
        ("REPLACE INTO t VALUES ", " RETURNING f(a)", True),
        ("INSERT INTO t VALUES ", "; DELETE FROM u", True),
        ("INSERT INTO t VALUES ", ", ('", True),
    ],
)
def test_a_large_insert_is_known_from_its_ends_but_no_call_is_missed(
    before: str, after: str, everything: bool
) -> None:
    text = (before + ROWS + after).encode()
    assert len(text) > HEAD_BYTES
    (statement,) = analyse(text, PLAIN, multi_statements=False)
    assert statement.writes_everything is everything
    assert names(statement.writes) <= {"t"}
    assert everything or statement.writes


def test_what_a_large_insert_reads_behind_its_rows_is_known() -> None:
    text = f"INSERT INTO t VALUES {ROWS}, (1, (SELECT MAX(a) FROM u))".encode()
    (statement,) = analyse(text, PLAIN, multi_statements=False)
    assert (names(statement.writes), names(statement.reads)) == ({"t"}, {"u"})


def test_a_large_insert_costs_milliseconds() -> None:
    text = ("INSERT INTO t VALUES " + ROWS).encode()
    assert costs_at_most(150, lambda: analyse(text, PLAIN, multi_statements=False), a_moment)


@pytest.mark.parametrize(
    ("head", "tables"),
    [
        ("INSERT INTO db.t VALUES (1, 'ab", "db.t"),
        ("REPLACE t (a, b", "t"),
        ("LOAD DATA INFILE 'x' INTO TABLE t FIELDS TERM", "t"),
    ],
)
def test_a_head_tells_the_target_it_fully_holds(head: str, tables: str) -> None:
    (statement,) = analyse(head.encode(), PLAIN, head=True)
    assert names(statement.writes) == set(tables.split())
    assert not statement.writes_everything


def test_the_head_of_a_select_writes_nothing_and_may_ask_and_lock() -> None:
    (statement,) = analyse(b"SELECT * FROM t WHERE a = 1", PLAIN, head=True)
    assert (statement.kind, statement.writes_everything) == (Kind.READ, False)
    assert statement.locking_read
    assert statement.diagnostic
    assert not statement.cacheable


@pytest.mark.parametrize(
    "head",
    [
        "INSERT INTO db.t",
        "INSERT INTO db.",
        "INSERT INTO `db` . `",
        "INSERT INTO `db` .",
        "INSERT INTO t ",
        "INSERT INTO t /*!50000 (a) */ VALUES (",
        "UPDATE t SET a = 1 WHERE b = 'x",
        "SELECT /*! b */ FROM t WHERE a = 1",
        "",
    ],
)
def test_any_other_head_writes_everything(head: str) -> None:
    (statement,) = analyse(head.encode(), PLAIN, head=True)
    assert (statement.kind, statement.writes_everything) == (Kind.UNKNOWN, True)
