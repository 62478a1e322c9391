"""What literals tell of a query, which texts of its shape may differ in."""

import pytest

from sqlcache.sql.analysis.literals import may_tell, tell
from sqlcache.sql.lexer import lex, tokenize
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.statement import Told
from tests.sql.analysis.reading import PLAIN, one

DATES, OFFSETS = Told.DATES, Told.OFFSETS


def told(call: str, dialect: Dialect = PLAIN) -> Told:
    """What is told of a query that a text with this call is."""
    text = f"SELECT a FROM t WHERE d > {call}"
    return one(text, dialect).may_tell & tell(tokenize(text.encode(), dialect))


@pytest.mark.parametrize(
    "form",
    ["%Y-%m-%d", "%Y-%m-%d %H:%i:%s", "%X%V %W", "%T %c", "%f%a", "%H%%%j", "%%%y", "%q %b", "%Y%"],
)
def test_a_format_with_a_year_month_week_or_weekday_makes_a_date(form: str) -> None:
    assert told(f"STR_TO_DATE(s, '{form}')") is DATES
    assert told(f'str_to_date (CONCAT(s, "x", 1), "{form}")') is DATES


@pytest.mark.parametrize(
    "form",
    ["%H:%i", "%T", "%r", "%f", "%d %H:%i", "%e", "%D %k", "%H%%Y", "%%Y", "%", "Y", "", "%\\Y"],
)
def test_any_other_format_may_make_a_time(form: str) -> None:
    assert told(f"STR_TO_DATE(s, '{form}')") is Told.NOTHING


@pytest.mark.parametrize(
    "form",
    [
        "?", "f", "@f", "N'%Y'", "_utf16'%Y'", "X'2559'", "5", "-5", "NULL", "'%H' '%Y'",
        "'%Y' 'x'", "CONCAT('%', 'Y')", "'%Y' COLLATE utf8mb4_bin", "('%Y')", "IF(a, '%H', '%Y')",
        "'%é%Y'", "'%''Y'", "'%\n%Y'", "'%\\%Y'",
    ],
)  # fmt: skip
def test_what_is_no_plain_literal_tells_nothing(form: str) -> None:
    text = f"SELECT a FROM t WHERE d > STR_TO_DATE(s, {form})"
    assert DATES not in tell(tokenize(text.encode(), PLAIN))


def test_a_quoted_name_is_no_format() -> None:
    assert told('STR_TO_DATE(s, "%Y")') is DATES
    assert told('STR_TO_DATE(s, "%Y")', Dialect(ansi_quotes=True)) is Told.NOTHING


def test_one_format_that_may_make_a_time_is_enough() -> None:
    date, time = "STR_TO_DATE(s, '%Y')", "STR_TO_DATE(s, '%H')"
    assert told(f"{date} AND d < {date}") is DATES
    assert told(f"{date} AND d < {time}") is told(f"{time} AND d < {date}") is Told.NOTHING
    assert told(f"STR_TO_DATE({time}, '%Y')") is told(f"COALESCE({date}, {time})") is Told.NOTHING


def test_calls_in_versioned_comments_tell_nothing() -> None:
    date = "STR_TO_DATE(s, '%Y')"
    assert told(f"{date} /*!50000 AND d < STR_TO_DATE(s, '%H') */") is Told.NOTHING
    assert told(f"/*! STR_TO_DATE */ (s, '%H') AND d < {date}") is Told.NOTHING
    assert told(f"{date} /*!50000 + INTERVAL 1 DAY */") is Told.NOTHING


@pytest.mark.parametrize("between", ["/* sqlcache: ttl=10 */", "/*+ c */", "/* c */"])
def test_what_stands_between_is_as_if_it_did_not(between: str) -> None:
    assert told(f"STR_TO_DATE {between} (s, '%Y')") is DATES
    assert told(f"STR_TO_DATE {between} (s, '%H')") is Told.NOTHING


@pytest.mark.parametrize(
    "offset", ["+00:00", "-00:00", "+5:30", "+05:30", "-12:59", "+12:59", "+13:00"]
)
def test_offsets_that_every_server_takes_name_no_zone(offset: str) -> None:
    assert told(f"CONVERT_TZ(e, '{offset}', '+01:00')") is OFFSETS
    assert told(f"CONVERT_TZ(e, '+01:00', \"{offset}\")") is OFFSETS


@pytest.mark.parametrize(
    "zone",
    [
        "'UTC'", "'SYSTEM'", "'+13:01'", "'-13:00'", "'+14:00'", "'05:30'", "'+05:60'", "'+05'",
        "'+05:30 '", "'+05:3'", "'+005:30'", "''", "zone", "?", "NULL", "+5", "N'+01:00'",
        "_utf8mb4'+01:00'", "'+01' ':00'", "CONCAT('+01:', '00')",
    ],
)  # fmt: skip
def test_any_other_zone_may_be_a_name(zone: str) -> None:
    for call in (f"CONVERT_TZ(e, {zone}, '+01:00')", f"CONVERT_TZ(e, '+01:00', {zone})"):
        text = f"SELECT a FROM t WHERE d > {call} AND d < CONVERT_TZ(e, '+00:00', '+01:00')"
        assert OFFSETS not in tell(tokenize(text.encode(), PLAIN))


def test_what_is_the_same_either_way_is_not_told() -> None:
    for text in (
        "SELECT STR_TO_DATE(s, '%Y'), STR_TO_DATE(s, '%H') AS x FROM t ORDER BY x",
        "SELECT a FROM t WHERE STR_TO_DATE(s, '%H') < '12:00:00'",
        "SELECT a FROM t WHERE d > STR_TO_DATE(s, f)",
        "SELECT a FROM t WHERE d > CONVERT_TZ(e, '+00:00', zone)",
        "INSERT INTO t SELECT a FROM u WHERE d > STR_TO_DATE(s, '%Y')",
    ):
        assert one(text).may_tell is Told.NOTHING, text


def test_a_date_is_none_of_the_times_that_a_query_has() -> None:
    dated = one("SELECT STR_TO_DATE(s, '%Y') AS x, d FROM t HAVING x < d")
    assert (dated.may_tell, dated.operands.times, dated.dated.times) == (DATES, True, False)
    other = one("SELECT STR_TO_DATE(s, '%Y') AS x FROM t WHERE MAKETIME(1, 2, 3) < d")
    assert other.dated.times


LITERALS = ["'%H'", "'%Y'", "N'x'", "'+01:00'", "5", "-5", "NULL", "TRUE"]
OTHERS = [*LITERALS, "a", "?", "'%H' '%Y'"]


@pytest.mark.parametrize("call", ["STR_TO_DATE(s, X)", "CONVERT_TZ(e, '+01:00', X)", "f(X, 1)"])
def test_what_may_be_told_is_so_of_all_texts_of_a_shape(call: str) -> None:
    shapes: dict[bytes, set[Told]] = {}
    for other in OTHERS:
        text = f"SELECT a FROM t WHERE d > {call.replace('X', other)}".encode()
        told = shapes.setdefault(lex(text, PLAIN).shape, set())
        told.add(may_tell(tokenize(text, PLAIN)))
    assert all(len(told) == 1 for told in shapes.values())
    assert len(shapes) == 4
