"""Which declared routine a call means, and which stored code may change more than rows."""

import pytest

from sqlcache.sql.routines import Declared, Routine, is_unruly, leaves_something

VARIABLES = frozenset({"time_zone", "sql_mode"})
LOADABLE, STORED, OTHER = Routine(None, "f"), Routine("shop", "f"), Routine("Shop", "F")


@pytest.mark.parametrize(
    ("folds", "path", "expected"),
    [
        (False, ("f",), LOADABLE),
        (False, ("shop", "f"), STORED),
        (False, ("Shop", "f"), OTHER),
        (True, ("Shop", "f"), None),  # they are one schema, and say it both ways
    ],
)
def test_a_call_means_one_routine_whatever_the_order_of_their_declarations(
    folds: bool, path: tuple[str, ...], expected: Routine | None
) -> None:
    declared = Declared(frozenset((LOADABLE, STORED, OTHER)), "shop", folds)
    assert declared.find(path) == expected


def test_a_stored_routine_is_meant_where_no_loadable_one_is_declared() -> None:
    declared = Declared(frozenset((STORED, OTHER)), "shop")
    assert declared.find(("F",)) == STORED


@pytest.mark.parametrize(
    "body",
    [
        "SET time_zone = '+00:00'",
        "BEGIN SET @@session.sql_mode = ''; END",
        "SET `Time_Zone` = '+00:00'",
        "SET NAMES latin1",
        "SET CHARACTER SET latin1",
        "SET @x = 1, CHAR SET latin1",
        "CREATE TEMPORARY TABLE t (a INT)",
        "BEGIN PREPARE s FROM @x; EXECUTE s; END",
        "BEGIN /*!50000 SET x = 1 */; END",
        "CALL sys.anything()",
        "XA COMMIT 'x'",
        "SELECT 'unclosed",
    ],
)
def test_a_body_that_sets_variables_or_makes_tables_is_unruly(body: str) -> None:
    assert is_unruly(body.encode(), "", VARIABLES)


@pytest.mark.parametrize(
    "body",
    [
        "BEGIN DECLARE n INT; SET n = 1, @x = n; INSERT INTO t VALUES ('time_zone', n); END",
        "SET NEW.a = 1",
        "CALL another()",
        "BEGIN DECLARE s CHAR CHARACTER SET latin1; SET s = CAST(1 AS CHAR CHARACTER SET gbk); END",
    ],
)
def test_a_body_that_only_works_on_rows_is_not(body: str) -> None:
    assert not is_unruly(body.encode(), "", VARIABLES)


def test_quotes_in_a_body_follow_the_mode_it_was_made_under() -> None:
    body = b'SELECT "time_zone" FROM t'
    assert is_unruly(body, "STRICT_ALL_TABLES,ANSI_QUOTES", VARIABLES)
    assert not is_unruly(body, "STRICT_ALL_TABLES", VARIABLES)


def test_a_body_that_cannot_be_seen_or_read_is_unruly() -> None:
    assert is_unruly(None, "", VARIABLES)
    assert is_unruly(b"NULL", "PIPES_AS_CONCAT,ORACLE", VARIABLES)


@pytest.mark.parametrize(
    "body",
    [
        "SET @a = 1",
        "SELECT b INTO @a FROM t",
        "SET foreign_key_checks = 0",
        "BEGIN DECLARE a INT; SET a = 1, foreign_key_checks = 0; END",
        "BEGIN DECLARE a INT; -- UPDATE\n SET unique_checks = 0; END",
        "BEGIN UPDATE t SET a = 1; SET unique_checks = 0; END",
        "IF EXISTS (SELECT 1 FROM t FOR UPDATE) THEN SET unique_checks = 0; END IF",
        "BEGIN DECLARE CONTINUE HANDLER FOR NOT FOUND SET unique_checks = 0; END",
        "SET NEW.a = 1, SESSION unique_checks = 0",
        "SET NEW.a = (SELECT b FROM t), unique_checks = 0",
        "DO GET_LOCK('a', 1)",
        "SET NEW.a = `get_lock`('a', 1)",
        "HANDLER t OPEN",
        "LOCK INSTANCE FOR BACKUP",
        "BACKUP STAGE START",
        "BEGIN DECLARE a INT; SET a = 'it",
    ],
)
def test_a_body_that_leaves_something_in_its_session_is_known(body: str) -> None:
    assert leaves_something(body.encode(), "")


@pytest.mark.parametrize(
    "body",
    [
        "UPDATE t SET a = 1, b = 2",
        "INSERT INTO t SET a = 1 ON DUPLICATE KEY UPDATE a = 2",
        "SET NEW.a = IF(OLD.a, 1, 2), new.b = CASE NEW.b WHEN 1 THEN 2 ELSE 3 END",
        "BEGIN DECLARE a, b INT; DECLARE EXIT HANDLER FOR SQLEXCEPTION SET A = 1; SET b := 2; END",
        "SELECT 'a@b', a FROM t LOCK IN SHARE MODE",
        "BEGIN /* SET @a = 1 */ RETURN 1; END",
    ],
)
def test_what_changes_rows_and_its_own_variables_leaves_nothing(body: str) -> None:
    assert not leaves_something(body.encode(), "")


def test_a_body_that_cannot_be_seen_may_leave_something() -> None:
    assert leaves_something(None, "")
