"""What a session is, from its login and its statements."""

from __future__ import annotations

import functools
import math
import secrets

import pytest

from sqlcache.mysql.constants import Capability, Status
from sqlcache.mysql.handshake import Login
from sqlcache.mysql.packets import End
from sqlcache.plan.state import SessionState
from sqlcache.plan.variables import (
    CHOSEN_CHARACTER_SETS,
    COLLATIONS,
    EXPIRED_PASSWORDS,
    NEW_SESSIONS_RIGHTS,
    Globals,
    Settings,
    _after,
)
from sqlcache.sql.analysis import analyse
from sqlcache.sql.names import TableName
from sqlcache.sql.policy import NOTHING_SAID

UTF8MB4, LATIN1, GBK, UCS2 = 45, 8, 28, 35
GLOBALS: Settings = (
    (NEW_SESSIONS_RIGHTS, "[]"),
    ("autocommit", "ON"),
    ("init_connect", ""),
    ("sql_auto_is_null", "OFF"),
    ("sql_mode", "STRICT_TRANS_TABLES"),
    ("time_zone", "SYSTEM"),
    ("tx_isolation", "REPEATABLE-READ"),
)
TOLD = tuple(pair for pair in GLOBALS if pair[0] != NEW_SESSIONS_RIGHTS)
IDLE = Status.AUTOCOMMIT
FAILED = End(None, 0, error_code=1064)

inherited = functools.cache(Globals)  # sessions that begin with the same have one


def session(
    *,
    collation: int = UTF8MB4,
    schema: bytes | None = b"shop",
    capabilities: int = Capability.PROTOCOL_41,
    globals_: Settings = GLOBALS,
) -> SessionState:
    login = Login(capabilities, collation, b"app", schema)
    told = inherited(globals_)
    state = SessionState(login, told, IDLE, secrets.token_hex)
    state.rights.confirm(told)
    return state


def run(state: SessionState, text: str, *, status: int = IDLE, failed: bool = False) -> None:
    statements = analyse(text.encode(), state.dialect)
    state.answered([FAILED if failed else End(status, 0)])
    state.ran(statements, failed=failed)


def test_a_new_session_may_use_the_cache() -> None:
    assert session().bypass_reason() is None


# How its texts are read.


@pytest.mark.parametrize(
    ("mode", "ansi_quotes", "ignore_space"),
    [
        ("", False, False),
        ("ANSI_QUOTES", True, False),
        ("IGNORE_SPACE,STRICT_ALL_TABLES", False, True),
        ("ansi", True, True),
        ("TRADITIONAL", False, False),
    ],
)
@pytest.mark.parametrize("inherited", [True, False])
def test_the_dialect_follows_the_sql_mode(
    mode: str, ansi_quotes: bool, ignore_space: bool, inherited: bool
) -> None:
    globals_ = (*GLOBALS, ("sql_mode", mode if inherited else "ANSI_QUOTES,IGNORE_SPACE"))
    state = session(globals_=globals_)
    if not inherited:
        run(state, f"SET sql_mode = '{mode}'")
    assert state.readable
    assert state.dialect.ansi_quotes == ansi_quotes
    assert state.dialect.ignore_space == ignore_space


def test_a_client_may_ask_for_ignore_space_until_it_sets_a_mode() -> None:
    state = session(capabilities=Capability.PROTOCOL_41 | Capability.IGNORE_SPACE)
    assert state.dialect.ignore_space
    run(state, "SET sql_mode = ''")
    assert not state.dialect.ignore_space


@pytest.mark.parametrize("mode", ["ORACLE", "mssql", "STRICT_ALL_TABLES,DB2", "MAXDB"])
def test_a_mode_with_another_grammar_is_not_read(mode: str) -> None:
    state = session()
    run(state, f"SET sql_mode = '{mode}'")
    assert not state.readable
    assert state.as_utf8(b"SELECT 1") is None
    assert not session(globals_=(*GLOBALS, ("sql_mode", mode))).readable


@pytest.mark.parametrize("path", ["other", "other,current_schema", "`current_schema`"])
def test_where_routines_of_other_schemas_are_called_without_these_nothing_is_read(
    path: str,
) -> None:
    globals_ = (*GLOBALS, ("path", "CURRENT_SCHEMA"))
    state = session(globals_=globals_)
    assert state.readable
    run(state, f"SET path = '{path}'")
    assert not state.readable
    run(state, "SET @@path = 'current_schema'")
    assert state.readable
    assert not session(globals_=(*GLOBALS, ("path", path))).readable


def test_modes_and_the_servers_own_flag_must_agree_on_backslashes() -> None:
    state = session()
    run(state, "SET sql_mode = 'NO_BACKSLASH_ESCAPES'")
    assert not state.readable
    state.answered([End(IDLE | Status.NO_BACKSLASH_ESCAPES, 0)])
    assert state.readable
    assert state.dialect.no_backslash_escapes


@pytest.mark.parametrize("number", ["4", "0x414E53495F51554F544553", "0b1"])
@pytest.mark.parametrize("name", ["sql_mode", "character_set_client", "tx_isolation"])
def test_a_number_for_a_set_of_words_makes_the_settings_unknown(name: str, number: str) -> None:
    state = session()
    run(state, f"SET SESSION {name} = {number}")
    assert state.bypass_reason() == "session settings unknown"


def test_texts_are_read_by_the_clients_character_set() -> None:
    state = session(collation=LATIN1)
    assert state.as_utf8(b"SELECT `\xe9`") == "SELECT `é`".encode()
    assert state.dialect.ascii_words
    run(state, "SET NAMES utf8mb4")
    assert state.as_utf8("é".encode()) == "é".encode()
    assert not state.dialect.ascii_words
    run(state, "SET character_set_client = gbk")
    assert state.as_utf8(b"\xd5\x5c") == b"\xe8\xaa\xa0"  # one character, no backslash
    assert state.as_utf8(b"\xff") is None
    assert state.as_utf8(b"SELECT 1") == b"SELECT 1"


def test_a_login_with_a_character_set_no_client_can_have_is_asked_for_its_own() -> None:
    assert session(collation=UCS2).settings_unknown


def test_a_schemas_name_is_read_by_the_clients_character_set() -> None:
    assert session(collation=LATIN1, schema=b"caf\xe9").schema == "café"
    assert session(schema="café".encode()).schema == "café"
    assert session(collation=GBK, schema=b"\xff").settings_unknown
    assert session(schema=None).schema is None


# What makes it bypass the cache.


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SET time_zone = @x", "session settings unknown"),
        ("CALL p()", "session settings unknown"),
        ("FOO BAR", "session settings unknown"),
        ("CREATE TEMPORARY TABLE t (a INT)", "temporary table"),
        ("LOCK TABLES t READ", "locked tables"),
        ("FLUSH TABLES WITH READ LOCK", "locked tables"),
        ("SET TRANSACTION READ ONLY", "settings of the next transaction"),
        ("SET @@tx_isolation = 'READ-COMMITTED'", "settings of the next transaction"),
        ("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", "isolation level"),
        ("SET tx_isolation = 'READ-UNCOMMITTED'", "isolation level"),
        ("SET transaction_isolation = 'SERIALIZABLE'", "isolation level"),
        ("SET sql_auto_is_null = 1", "sql_auto_is_null"),
        ("SELECT 1; SET sql_auto_is_null = ON", "sql_auto_is_null"),
    ],
)
def test_statements_that_make_a_session_bypass_the_cache(text: str, reason: str) -> None:
    state = session()
    run(state, text)
    assert state.bypass_reason() == reason


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TEMPORARY TABLE t (a INT); DROP TABLE t",
        "LOCK TABLES t READ; UNLOCK TABLES",
        "SET TRANSACTION READ ONLY; COMMIT",
        "SET tx_isolation = 'SERIALIZABLE'; SET transaction_isolation = 'READ-COMMITTED'",
        "SET @x = 1",
    ],
)
def test_what_it_bypassed_the_cache_for_can_be_over(text: str) -> None:
    state = session()
    run(state, text)
    assert state.bypass_reason() is None


@pytest.mark.parametrize(
    ("globals_", "is_unknown"),
    [(GLOBALS, False), ((), True), ((*GLOBALS, ("init_connect", "SET time_zone = 'x'")), True)],
)
def test_what_a_session_inherits_may_be_unknown(globals_: Settings, is_unknown: bool) -> None:
    assert session(globals_=globals_).settings_unknown == is_unknown


def test_what_a_session_may_have_begun_with_is_not_known_to_be_there() -> None:
    state = session()
    text = b"CREATE TEMPORARY TABLE t (a INT); SET @sqlcache = 'off'"
    state.may_have_begun_with(analyse(text, state.dialect))
    assert state.words == NOTHING_SAID
    assert not state.temporary.names
    run(state, "DROP TEMPORARY TABLE t")
    assert state.bypass_reason() == "temporary table"


def test_a_temporary_table_that_may_have_another_name_never_ends() -> None:
    state = session()
    run(state, "CREATE TEMPORARY TABLE t (a INT)")
    run(state, "ALTER TABLE t RENAME u")
    run(state, "DROP TEMPORARY TABLE IF EXISTS t")
    assert state.bypass_reason() == "temporary table"


def test_of_temporary_tables_that_are_known_others_are_told_apart() -> None:
    def after(*texts: str, failed: bool = False) -> SessionState:
        state = session()
        for text in texts:
            run(state, text, failed=failed and text == texts[-1])
        assert state.bypass_reason() is not None
        return state

    made = "CREATE TEMPORARY TABLE x.T (a INT)"
    state = after(made)
    assert state.bypass_reason(beside_temporary=True) is None
    assert state.temporary.may_hide([TableName("s", "u"), TableName("s", "t")])
    assert not state.temporary.may_hide([TableName("t", "u")])
    for not_known in (
        ("CREATE TEMPORARY TABLE `\u00fc` (a INT)",),
        ("CREATE TEMPORARY TABLE m (a INT) ENGINE=MERGE UNION=(t)",),
        (made, "ALTER TABLE x.T RENAME u"),
        (made, "RENAME TABLE x.T TO u"),
        (made, "SET STATEMENT max_statement_time = 9 FOR ALTER TABLE x.T RENAME u"),
        (made, "SET pseudo_thread_id = 7"),
        (made, "EXECUTE s"),
    ):
        assert after(*not_known).bypass_reason(beside_temporary=True) is not None
    renames = "RENAME TABLE x.T TO u; SELECT no_such"
    assert after(made, renames, failed=True).bypass_reason(beside_temporary=True) is not None


def test_of_very_many_temporary_tables_it_is_not_known_which_there_are() -> None:
    state = session()
    for number in range(2_000):
        run(state, f"CREATE TEMPORARY TABLE t{number} (a INT)")
    assert len(state.temporary.names) <= 1_000
    for number in range(2_000):
        run(state, f"DROP TABLE t{number}")
    assert state.bypass_reason() == "temporary table"


def test_temporary_tables_of_one_name_in_two_schemas_are_two() -> None:
    state = session()
    run(state, "CREATE TEMPORARY TABLE t (a INT); USE blog; CREATE TEMPORARY TABLE t (a INT)")
    run(state, "DROP TABLE t")
    assert state.bypass_reason() == "temporary table"
    run(state, "DROP TABLE shop.t")
    assert state.bypass_reason() is None


def test_a_set_that_failed_may_have_got_half_its_way() -> None:
    state = session()
    run(state, "SET time_zone = '+01:00', lc_time_names = 'nowhere'", failed=True)
    assert state.settings_unknown


def test_a_statement_that_failed_alone_changed_nothing() -> None:
    state = session()
    run(state, "USE blog", failed=True)
    run(state, "CREATE TEMPORARY TABLE t (a INT)", failed=True)
    assert (state.schema, state.bypass_reason()) == ("shop", None)


@pytest.mark.parametrize(
    "text", ["USE blog; BAD", "CREATE TEMPORARY TABLE t (a INT); BAD", "LOCK TABLES t READ; BAD"]
)
def test_a_statement_before_one_that_failed_may_have_changed_anything(text: str) -> None:
    state = session()
    run(state, text.replace("BAD", "SELECT nothing"), failed=True)
    assert state.bypass_reason() is not None


# What parts its entries.


@pytest.mark.parametrize(
    "text", ["SET time_zone = '+01:00'", "USE blog", "SET sql_mode = ''", "SET unheard_of = 1"]
)
def test_what_can_change_an_answer_changes_the_fingerprint(text: str) -> None:
    state, other = session(), session()
    assert state.fingerprint() == other.fingerprint()
    run(state, text)
    assert state.fingerprint() != other.fingerprint()


def test_logins_that_differ_have_other_fingerprints() -> None:
    without_eof = Capability.PROTOCOL_41 | Capability.DEPRECATE_EOF
    seen = {
        session().fingerprint(),
        session(schema=None).fingerprint(),
        session(schema=b"blog").fingerprint(),
        session(collation=LATIN1).fingerprint(),
        session(capabilities=without_eof).fingerprint(),
        session(globals_=(*GLOBALS, ("time_zone", "+00:00"))).fingerprint(),
        session(globals_=(*GLOBALS, (NEW_SESSIONS_RIGHTS, "[('r',)]"))).fingerprint(),
    }
    assert len(seen) == 7


def test_rights_are_those_of_the_login_and_of_the_last_use() -> None:
    revoked = (*GLOBALS, (NEW_SESSIONS_RIGHTS, "others"))
    before, after, again = session(), session(globals_=revoked), session()
    again.rights.read_on_schema(inherited(revoked))
    reset = session()
    reset.reset(inherited(revoked), is_mariadb=True)
    role = session()
    role.rights.set_role(inherited(revoked))
    assert len({each.fingerprint() for each in (before, after, again, reset, role)}) == 5


def test_a_role_that_is_set_under_the_rights_of_the_login_brings_no_new_ones() -> None:
    role = session()
    role.rights.set_role(inherited(GLOBALS))
    role.rights.confirm(inherited(GLOBALS))
    assert role.fingerprint() == session().fingerprint()


def test_rights_that_changed_when_they_were_read_are_nobody_elses() -> None:
    revoked = (*GLOBALS, (NEW_SESSIONS_RIGHTS, "others"))
    states = [session(), session(), session(globals_=revoked)]
    for state in states[:2]:
        state.rights.read_on_schema(inherited(GLOBALS))
        assert state.bypass_reason() == "session settings unknown"
        state.rights.confirm(inherited(revoked))
        assert state.bypass_reason() is None
    assert len({each.fingerprint() for each in (session(), *states)}) == 4


def test_what_may_have_set_a_role_parts_from_others_where_rights_have_changed() -> None:
    unchanged, changed, again = session(), session(), session()
    unchanged.rights.may_have_been_read(inherited(GLOBALS))
    unchanged.rights.confirm(inherited(GLOBALS))
    assert unchanged.fingerprint() == session().fingerprint()
    revoked = (*GLOBALS, (NEW_SESSIONS_RIGHTS, "others"))
    seen = {session().fingerprint(), session(globals_=revoked).fingerprint()}
    for state in (changed, again, again):
        state.rights.may_have_been_read(inherited(revoked))
        state.rights.confirm(inherited(revoked))
        seen.add(state.fingerprint())
    assert len(seen) == 5


def test_rights_that_did_not_change_are_those_of_others() -> None:
    state = session()
    state.rights.read_on_schema(inherited(GLOBALS))
    state.rights.confirm(inherited(GLOBALS))
    assert state.fingerprint() == session().fingerprint()


def test_what_one_session_sets_no_other_has() -> None:
    """They share what they have in common."""
    one, other = session(), session()
    assert one.variables is other.variables
    for state in (one, other):
        run(state, "SET time_zone = '+03:00', lock_wait_timeout = 5")
    assert one.variables is other.variables
    run(one, "SET NAMES latin1")
    run(other, "SET sql_mode = 'ANSI_QUOTES'")
    assert (one.variables.character_set, one.dialect.ansi_quotes) == ("latin1", False)
    assert (other.variables.character_set, other.dialect.ansi_quotes) == ("utf8mb4", True)
    assert session().variables.setting("time_zone") == "SYSTEM"


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ("max_execution_time = 1500", 1.5),
        ("max_statement_time = 0.25", 0.25),
        ("max_statement_time = 1e1", 10),
        ("max_execution_time = 0", math.inf),
        ("max_execution_time = -1", math.inf),
        ("max_execution_time = @limit", math.inf),
        ("max_statement_time = 'nan'", math.inf),
        ("time_zone = 'UTC'", math.inf),
    ],
)
def test_how_long_a_query_may_take(settings: str, seconds: float) -> None:
    state = session()
    run(state, f"SET SESSION {settings}")
    assert state.variables.time_limit_s == seconds


@pytest.mark.parametrize("name", ["max_statement_time", "max_execution_time"])
def test_how_long_a_query_may_take_is_inherited(name: str) -> None:
    state = session(globals_=(*GLOBALS, (name, "2.000000")))
    limit_s = 2 if name == "max_statement_time" else 0.002
    assert state.variables.time_limit_s == limit_s
    run(state, f"SET {name} = 0")
    assert state.variables.time_limit_s == math.inf


def test_what_is_remembered_of_sets_is_short() -> None:
    state = session()
    _after.cache_clear()
    run(state, f"SET time_zone = '{'x' * 1_000}'")
    run(state, "SET time_zone = 'UTC'" + ", time_zone = '+03:00'" * 1_000)
    assert state.variables.setting("time_zone") == "+03:00"
    assert not _after.cache_info().currsize
    for number in range(1_000):
        run(state, f"SET @@session.a_variable_{number} = 'with a value of some letters'")
    assert 0 < _after.cache_info().currsize < 300
    before = _after.cache_info().misses
    run(state, "SET time_zone = '+03:00'")
    assert _after.cache_info().misses == before


# What the server tells of it.


def test_the_servers_word_ends_the_doubt() -> None:
    state = session()
    run(state, "SET time_zone = @x; SET sql_mode = @y")
    told = (*TOLD, ("time_zone", "+03:00"), ("sql_mode", "ANSI_QUOTES"))
    state.know_settings(told, "blog", "NONE", "app@localhost")
    assert (state.schema, state.bypass_reason()) == ("blog", None)
    assert state.variables.setting("time_zone") == "+03:00"
    assert state.dialect.ansi_quotes


def test_a_word_that_was_cut_short_ends_no_doubt() -> None:
    """As under `SET sql_select_limit = 3`."""
    state = session()
    run(state, "SET time_zone = @x")
    state.know_settings(TOLD[:3], "shop", "NONE", "app@localhost")
    assert state.settings_unknown


def test_a_role_parts_its_entries() -> None:
    fingerprints = set()
    for role in ("NONE", "`reader`@`%`"):
        state = session()
        state.know_settings(TOLD, "shop", role, "app@localhost")
        fingerprints.add(state.fingerprint())
    assert len(fingerprints) == 2


def test_who_has_become_another_user_uses_no_cache() -> None:
    """As MariaDB 12 lets those who may."""
    state = session()
    run(state, "SET SESSION AUTHORIZATION boss@localhost")
    assert not state.readable
    state.know_settings(TOLD, "shop", "NONE", "boss@localhost")
    assert state.bypass_reason() == "user is not the one who logged in"
    run(state, "SET SESSION AUTHORIZATION `app`@`%`")
    state.know_settings(TOLD, "shop", "NONE", "app@localhost")
    assert state.bypass_reason() is None


@pytest.mark.parametrize(
    ("sent", "collation", "user", "is_known"),
    [
        ("josé".encode(), UTF8MB4, "josé", True),
        (b"jos\xe9", LATIN1, "josé", True),
        (b"app\xff", UTF8MB4, "app\udcff", False),
        (b"jos\xe9", 0, "jos\udce9", False),
    ],
)
def test_only_who_is_known_by_name_uses_the_cache(
    sent: bytes, collation: int, user: str, is_known: bool
) -> None:
    state = session()
    state.log_in(Login(state.capabilities, collation, sent, b"shop"), inherited(GLOBALS), IDLE)
    state.rights.confirm(inherited(GLOBALS))
    assert state.user == user
    assert (state.bypass_reason() is None) is is_known


@pytest.mark.parametrize(
    ("let_in", "aware", "may_have"),
    [
        ("nobody", True, False),
        ("aware", True, True),
        ("aware", False, False),
        ("all", False, True),
    ],
)
def test_who_may_be_let_in_with_an_expired_password_has_to_be_answered_first(
    let_in: str, aware: bool, may_have: bool
) -> None:
    capabilities = Capability.PROTOCOL_41 | Capability.CAN_HANDLE_EXPIRED_PASSWORDS * aware
    globals_ = (*GLOBALS, (EXPIRED_PASSWORDS, let_in))
    state = session(capabilities=capabilities, globals_=globals_)
    assert (state.bypass_reason() is not None) is may_have
    state.expired = False
    assert state.bypass_reason() is None


@pytest.mark.parametrize(
    ("taken", "collation", "otherwise", "known"),
    [
        ("taken", GBK, "utf8mb4", True),
        ("", GBK, "utf8mb4", False),
        ("", UTF8MB4, "gbk", False),
        ("", UTF8MB4, "utf8mb3", True),
        ("", GBK, "gbk", True),
    ],
)
def test_a_character_set_that_the_server_may_not_have_taken_is_not_known(
    taken: str, collation: int, otherwise: str, known: bool
) -> None:
    own = ((CHOSEN_CHARACTER_SETS, taken), ("character_set_client", otherwise))
    assert session(collation=collation, globals_=(*GLOBALS, *own)).settings_unknown is not known


@pytest.mark.parametrize(
    ("collation", "otherwise", "known"),
    [(UTF8MB4, "latin1", True), (GBK, "latin1", False), (GBK, "gbk", True)],
)
def test_by_a_collation_that_the_server_has_not_it_takes_its_own(
    collation: int, otherwise: str, known: bool
) -> None:
    own = ((COLLATIONS, f" {LATIN1} {UTF8MB4} "), ("character_set_client", otherwise))
    assert session(collation=collation, globals_=(*GLOBALS, *own)).settings_unknown is not known


def test_a_dropped_default_schema_is_none() -> None:
    state = session()
    run(state, "DROP DATABASE shop", status=IDLE | Status.DB_DROPPED)
    assert state.schema is None


GLOBAL_CHARACTER_SETS: Settings = (
    ("character_set_client", "latin1"),
    ("character_set_connection", "latin1"),
    ("character_set_results", "latin2"),
    ("collation_connection", "latin1_swedish_ci"),
)


@pytest.mark.parametrize("is_mariadb", [True, False])
def test_a_reset_ends_everything_but_role_and_login(is_mariadb: bool) -> None:
    globals_ = GLOBALS + GLOBAL_CHARACTER_SETS
    state = session(globals_=globals_)
    new = state.variables.that_shape_answers
    run(state, "SET time_zone = '+01:00', sql_mode = 'ANSI'; SET NAMES gbk; LOCK TABLES t READ")
    run(state, "CREATE TEMPORARY TABLE t (a INT); SET TRANSACTION READ ONLY")
    state.reset(inherited(globals_), is_mariadb=is_mariadb)
    state.rights.confirm(inherited(globals_))
    assert state.bypass_reason() is None
    character_sets = {} if is_mariadb else dict(GLOBAL_CHARACTER_SETS)
    assert state.variables.that_shape_answers == new | character_sets
    assert state.variables.character_set == ("utf8mb4" if is_mariadb else "latin1")


def test_a_reset_leaves_the_role_and_what_is_not_known_of_it() -> None:
    state = session()
    run(state, "SET ROLE reader")
    state.reset(inherited(GLOBALS), is_mariadb=True)
    assert state.settings_unknown
    state.know_settings(TOLD, "shop", "reader", "app@localhost")
    state.reset(inherited(GLOBALS), is_mariadb=True)
    assert not state.settings_unknown
    assert state.variables.that_shape_answers == session().variables.that_shape_answers | {
        "role": "reader"
    }


def test_after_a_reset_the_client_may_have_its_ignore_space_or_not() -> None:
    state = session(capabilities=Capability.PROTOCOL_41 | Capability.IGNORE_SPACE)
    state.reset(inherited(GLOBALS), is_mariadb=True)
    assert state.settings_unknown


def test_a_new_login_begins_anew() -> None:
    state = session()
    run(state, "SET time_zone = '+01:00'; CREATE TEMPORARY TABLE t (a INT)")
    state.log_in(Login(state.capabilities, UTF8MB4, b"app", b"shop"), inherited(GLOBALS), IDLE)
    state.rights.confirm(inherited(GLOBALS))
    assert (state.bypass_reason(), state.fingerprint()) == (None, session().fingerprint())


@pytest.mark.parametrize(
    "setting", ["timestamp = 1", "net_write_timeout = 600", "unique_checks = 0", "wait_timeout = 9"]
)
def test_settings_that_shape_no_answer_are_not_in_the_key(setting: str) -> None:
    one, other = session(), session()
    run(one, f"SET {setting}")
    assert one.fingerprint() == other.fingerprint()
    run(one, "SET time_zone = '+01:00'")
    assert one.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    ("said", "interactive", "longest_s"),
    [
        ((), False, 600),
        ((), True, 60),
        (("SET wait_timeout = 300",), True, 300),
        (("SET interactive_timeout = 3",), False, 600),
        (("SET SESSION wait_timeout = 3",), False, 3),
        (("SET idle_transaction_timeout = 5, @@wait_timeout = 8",), False, 5),
        (("SET idle_readonly_transaction_timeout = 4", "SET idle_transaction_timeout = 0"), 0, 4),
        (("SET idle_write_transaction_timeout = 6",), False, 6),
        (("SET wait_timeout = 0x3",), False, 0),
    ],
)
def test_for_how_long_the_server_may_be_asked_nothing_follows_from_settings(
    said: tuple[str, ...], interactive: bool, longest_s: float
) -> None:
    limits = (("wait_timeout", "600"), ("interactive_timeout", "60"))
    none = (("idle_transaction_timeout", "0"), ("idle_write_transaction_timeout", "0"))
    state = session(
        capabilities=Capability.PROTOCOL_41 | Capability.INTERACTIVE * interactive,
        globals_=(*GLOBALS, *limits, *none),
    )
    for text in said:
        run(state, text)
    assert state.longest_silence_s == longest_s
    assert (state.bypass_reason() is None) is (longest_s >= 2)
    shorter = inherited((*GLOBALS, ("wait_timeout", "1")))
    state.reset(shorter, is_mariadb=False)
    state.rights.confirm(shorter)
    assert state.bypass_reason() == "ended too soon when idle"


@pytest.mark.parametrize(
    ("global_one", "collation", "said", "reads"),
    [
        ("utf8mb4", 45, (), True),
        ("latin1", GBK, (), True),
        ("utf16", 45, (), False),
        ("utf8mb4", UCS2, (), False),
        ("utf8mb4", 45, ("SET NAMES latin1",), True),
        ("utf16", 45, ("SET NAMES gbk",), True),
        ("utf8mb4", 45, ("SET NAMES swe7",), False),
    ],
)
def test_what_formats_say_is_known_by_the_character_set_of_literals(
    global_one: str, collation: int, said: tuple[str, ...], reads: bool
) -> None:
    globals_ = (*GLOBALS, ("character_set_connection", global_one))
    state = session(globals_=globals_, collation=collation)
    for text in said:
        run(state, text)
    assert state.variables.reads_formats is reads
