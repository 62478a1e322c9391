"""Names in logged statements that may be those of temporary tables with the rows of others."""

import pytest

from sqlcache.binlog import temporary
from sqlcache.binlog.temporary import LoggedTemporaryTables
from sqlcache.sql.analysis import analyse
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import Server
from sqlcache.sql.facts import BaseTable, Facts
from sqlcache.sql.names import TableName
from sqlcache.sql.pieces import Dialect

M, T = TableName("s", "m"), TableName("s", "t")
Y = TableName("s", "y")
UNKNOWN = frozenset({M, Y})
CATALOG = Catalog.of(
    Server(flavour="mariadb", version=(10, 11, 6), lower_case_table_names=0),
    Facts([BaseTable(T, "MyISAM")]),
)
ONE, OTHER = b"one", b"other"
PLAIN = "CREATE TEMPORARY TABLE m (a INT)"
MERGES = "CREATE TEMPORARY TABLE m (a INT) ENGINE = MERGE UNION = (t)"
SHADOWS = MERGES.replace("TABLE m", "TABLE t")


def after(*texts: str) -> LoggedTemporaryTables:
    tables = LoggedTemporaryTables()
    for text in texts:
        tables.ran(ONE, analyse(text.encode(), Dialect()), "s", CATALOG)
    return tables


def may_lead(tables: LoggedTemporaryTables, name: TableName = M, session: bytes = ONE) -> bool:
    return tables.may_lead(session, [name], UNKNOWN)


def test_of_a_name_that_nobody_knows_it_is_not_known() -> None:
    assert may_lead(after())
    assert not may_lead(after(), T)


def test_one_that_was_made_with_rows_of_its_own_leads_nowhere() -> None:
    assert not may_lead(after(PLAIN))
    assert may_lead(after(PLAIN), session=OTHER)
    assert may_lead(after(PLAIN, "DROP TEMPORARY TABLE m"))


@pytest.mark.parametrize(
    "then", [MERGES, "ALTER TABLE m ENGINE = MERGE UNION = (t)", "ALTER TABLE m UNION = (t)"]
)
def test_one_that_has_the_rows_of_others_by_now_may_lead(then: str) -> None:
    assert may_lead(after(PLAIN, then))


def test_so_may_one_in_place_of_a_table_that_is_known() -> None:
    assert may_lead(after(SHADOWS), T)
    assert not may_lead(after(SHADOWS), T, OTHER)
    assert may_lead(after(MERGES, "ALTER TABLE m RENAME TO t"), T)


def test_made_again_it_is_what_it_was_made_as() -> None:
    assert not may_lead(after(MERGES, PLAIN))


def test_one_that_was_there_is_kept_where_it_is_made_only_if_there_is_none() -> None:
    none = PLAIN.replace("TABLE", "TABLE IF NOT EXISTS")
    assert may_lead(after(MERGES, none))
    assert may_lead(after(none)), "one from before may be meant"
    assert not may_lead(after(PLAIN, none))
    assert may_lead(after(PLAIN, MERGES.replace("TABLE", "TABLE IF NOT EXISTS")))


@pytest.mark.parametrize(
    ("made", "leads"),
    [("LIKE t", False), ("LIKE m", False), ("(LIKE x)", True), ("LIKE unknown", True)],
)
def test_one_that_is_made_like_another_may_have_the_rows_of_others_as_that(
    made: str, leads: bool
) -> None:
    like = f"CREATE TEMPORARY TABLE y {made}"
    tables = after(PLAIN, MERGES.replace("TABLE m", "TABLE x"), like)
    assert may_lead(tables, Y) is leads
    assert may_lead(after(SHADOWS, "CREATE TEMPORARY TABLE y LIKE t"), Y)


def test_of_one_that_is_dropped_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "_MOST", 1)
    drop = "DROP TEMPORARY TABLE t"
    tables = after(SHADOWS, drop)
    assert not may_lead(tables, T)
    tables = after(*[SHADOWS, drop] * 3)
    assert not may_lead(tables, T, OTHER)


def test_of_very_many_the_first_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "_MOST", 1)
    tables = after(PLAIN, PLAIN.replace("m (", "n ("))
    assert may_lead(tables)
    tables = after(MERGES, SHADOWS)
    assert may_lead(tables, T)
    assert may_lead(tables, T, OTHER)
