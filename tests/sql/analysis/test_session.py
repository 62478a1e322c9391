"""What a statement makes of its session."""

import pytest

from sqlcache.sql.statement import Computed
from tests.sql.analysis.reading import one, written


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (
            "SET sql_mode='ANSI_QUOTES', @@session.Time_Zone = '+00:00'",
            "sql_mode=ANSI_QUOTES time_zone=+00:00",
        ),
        ("SET LOCAL x = ON, y = -5, z := utf8mb4", "x=1 y=-5 z=utf8mb4"),
        ("SET @@x = FALSE, @a = f", "x=0"),
        ("SET TIME_ZONE = 'it''s'", "time_zone=it's"),
        (
            "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
            "character_set_client=utf8mb4 character_set_results=utf8mb4"
            " character_set_connection=utf8mb4 collation_connection=utf8mb4_bin",
        ),
        (
            "/*!40101 SET NAMES 'Latin1' */;",
            "character_set_client=latin1 character_set_results=latin1"
            " character_set_connection=latin1 collation_connection=default_of_latin1",
        ),
        (
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY",
            "transaction_isolation=read-committed transaction_read_only=1",
        ),
        ("SET TRANSACTION READ WRITE", "next_transaction_read_only=0"),
        (
            "SET tx_isolation = 'SERIALIZABLE', @@tx_isolation = 'READ-COMMITTED',"
            " @@local.tx_read_only = ON",
            "tx_isolation=SERIALIZABLE next_tx_isolation=READ-COMMITTED tx_read_only=1",
        ),
        ("SET autocommit=0", "autocommit=0"),
    ],
)
def test_settings_with_literal_values_are_known(text: str, settings: str) -> None:
    statement = one(text)
    known = [f"{name}={value}".replace(" ", "_") for name, value in statement.settings]
    assert known == settings.split()
    assert not statement.opaque_session
    assert not statement.writes_everything


@pytest.mark.parametrize(
    "text",
    [
        "SET sql_mode = CONCAT(@@global.sql_mode, ',ANSI_QUOTES')",
        "SET sql_mode = CONCAT(@@sql_mode, 'x', 'y')",
        "SET sql_mode = REPLACE(@@sql_mode, '', 'x')",
        "SET sql_mode = UPPER(@@sql_mode)",
        "SET sql_mode = CONCAT(CONCAT(@@global.sql_mode, 'x'), 'y')",
        f"SET sql_mode = {'CONCAT(' * 65}@@sql_mode{',1' * 65}".replace(",1", ", 'x')"),
        "SET time_zone = CONCAT(@@time_zone, 'x')",
        "SET time_zone = @old",
        f"SET sql_mode = '{'ANSI,' * 2_000}'",
        "SET x = DEFAULT",
        "SET NAMES DEFAULT",
        "SET CHARACTER SET utf8",
        "SET ROLE r",
        "SET x = 1 + 1",
        "SET x = -y",
        "SET a.b = 1",
        "SET TRANSACTION SOMETHING",
        "CALL p()",
        "EXECUTE s",
        "BEGIN NOT ATOMIC SET x = 1; END",
        "FOO",
    ],
)
def test_a_session_that_cannot_be_known_from_the_text_is_opaque(text: str) -> None:
    assert one(text).opaque_session


def test_the_word_global_holds_for_later_names_without_a_scope() -> None:
    statement = one("SET GLOBAL a = 1, b = 2, SESSION c = 3, d = 4")
    assert statement.settings == (("c", "3"), ("d", "4"))
    assert statement.changes_globals
    assert one("SET @@global.a = 1, b = 2").settings == (("b", "2"),)


@pytest.mark.parametrize(
    "text",
    [
        "SET PASSWORD = 'x'",
        "SET DEFAULT ROLE r TO u",
        "SET GLOBAL x = 1",
        "SET @@global.x = 1",
        "SET PERSIST x = 1",
        "SET @@global . sql_mode = ''",
        "SET @a = 1, @@Global/**/.x = 1",
        "SET @@persist. x = 1",
        "SET @@`persist_only` .x = 1",
    ],
)
def test_a_change_of_globals_or_rights_writes_everything(text: str) -> None:
    assert one(text).writes_everything


@pytest.mark.parametrize("scope", ["GLOBAL", "PERSIST", "SESSION x = 1, PERSIST", "PERSIST_ONLY"])
def test_a_character_set_is_the_sessions_whatever_the_scope_before_it(scope: str) -> None:
    statement = one(f"SET {scope} a = 1, NAMES gbk, b = 2")
    assert ("character_set_client", "gbk") in statement.settings
    assert statement.globals_set == {"a", "b"}
    for charset in ("CHARACTER SET", "charset"):
        statement = one(f"SET {scope} a = 1, {charset} latin1")
        assert ("character_set_results", "latin1") in statement.settings
        assert statement.opaque_session
    for part in ("ROLE r", "NAMES DEFAULT", "CHARACTER SET = x", "NAMES = 1"):
        assert one(f"SET {scope} a = 1, {part}").opaque_session


@pytest.mark.parametrize(
    "text",
    [
        "SET @a = 1, DEFAULT ROLE r FOR bob",
        "SET GLOBAL a = 1, PASSWORD FOR bob = 'x', b = 2",
        "SET DEFAULT ROLE r FOR bob, NAMES gbk",
        "SET PASSWORD = PASSWORD('x'), sql_mode = ANSI_QUOTES",
        "SET ROLE r, GLOBAL a = 1",
        "SET ROLE r, @@global.a := 1",
    ],
)
def test_any_part_may_change_accounts_and_the_others_the_session(text: str) -> None:
    statement = one(text)
    assert statement.writes_everything
    assert statement.changes_globals
    assert statement.opaque_session
    assert not statement.globals_set


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("SET GLOBAL a = 1, @@persist.b = 2", False),
        ("SET GLOBAL a = 1, NAMES gbk", True),
        ("SET GLOBAL a = 1, SESSION b = 2", True),
        ("SET GLOBAL a = 1, ROLE r", True),
    ],
)
def test_what_a_set_of_globals_leaves_of_the_session_is_told(text: str, left: bool) -> None:
    assert bool(one(text).leaves_behind) is left


def test_several_roles_are_the_sessions_alone() -> None:
    statement = one("SET ROLE r, 's'@'host'")
    assert (statement.sets_role, statement.writes_everything) == (True, False)


def test_a_user_variable_alone_changes_nothing() -> None:
    statement = one("SET @x = 1, @y := ABS(@x)")
    assert statement.settings == ()
    assert not any((statement.opaque_session, statement.writes_everything, statement.may_commit))


def test_use_names_the_schema() -> None:
    assert one("USE `my db`").use_schema == "my db"


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("PREPARE s FROM 'DELETE FROM t'", ""),
    ],
)
def test_preparing_writes_nothing(text: str, tables: str) -> None:
    assert written(text) == set(tables.split())


def test_a_computed_value_grows_no_longer_than_any_variables() -> None:
    """The server, too, may need little for what takes gigabytes on the way."""
    made = "@@sql_mode"
    for old, new in (("A", "x" * 4_000), ("x", "y" * 4_000), ("y" * 4_000, ""), ("x", "")):
        made = f"REPLACE({made}, '{old}', '{new}')"
    ((name, computed),) = one(f"SET sql_mode = {made}").settings
    assert name == "sql_mode"
    assert isinstance(computed, Computed)
    assert computed.of("STRICT_TRANS_TABLES") is None
    assert computed.of("") == ""
