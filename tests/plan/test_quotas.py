"""Which sessions may ask the server so many questions an hour, and what is known of them then."""

import pytest

from sqlcache.plan.quotas import LIMITED_ACCOUNTS, is_limited, told, write_alike
from sqlcache.plan.variables import NEW_SESSIONS_RIGHTS, Globals
from tests.plan.test_state import GLOBALS, inherited, run, session

LIMITED = (*GLOBALS, (LIMITED_ACCOUNTS, told(["app"])))


@pytest.mark.parametrize(
    ("accounts", "user", "limited"),
    [
        ([], b"ann", False),
        ([], "\u00fc".encode(), False),
        (["ann", "bob"], b"ann", True),
        (["ann", "bob"], b"an", False),
        (["ann"], b"a" * 33, True),  # for MySQL that may be a shorter one
        (["ann"], "\u00fc".encode(), True),
        ([""], b"bob", True),
        (["", "ann"], b"", True),
        (["ann"], b"", False),
    ],
)
def test_who_may_be_a_limited_account_is_one(
    accounts: list[str], user: bytes, limited: bool
) -> None:
    assert is_limited(Globals(((LIMITED_ACCOUNTS, told(accounts)),)), user) is limited


def test_a_session_of_one_has_no_hits_until_its_user_is_another() -> None:
    state = session(globals_=LIMITED)
    assert state.bypass_reason() == "MAX_QUERIES_PER_HOUR"
    state.begins_otherwise(inherited(GLOBALS))
    assert state.bypass_reason() == "MAX_QUERIES_PER_HOUR"
    state.log_in(state.login, inherited(GLOBALS), state.status)
    state.rights.confirm(inherited(GLOBALS))
    assert state.bypass_reason() is None
    state.begins_otherwise(inherited(LIMITED))
    assert state.bypass_reason() == "MAX_QUERIES_PER_HOUR"


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("SET optimizer_switch = DEFAULT", False),
        (
            "SET sql_select_limit = @x, optimizer_prune_level = @@GLOBAL.optimizer_prune_level",
            False,
        ),
        ("SET sql_mode = DEFAULT", True),
        ("SET sql_select_limit = DEFAULT, sql_mode = @x", True),
        ("SET sql_select_limit = f(1)", True),
        ("SET STATEMENT max_statement_time = 1 FOR SET optimizer_switch = DEFAULT", True),
        ("SET character_set_connection = latin1", True),
        ("CALL p()", True),
    ],
)
def test_it_is_asked_for_its_settings_only_where_these_decide_what_it_writes(
    text: str, asks: bool
) -> None:
    state, other = session(globals_=LIMITED), session()
    for each in (state, other):
        run(each, text)
    assert state.settings_unknown is asks
    assert other.settings_unknown


def test_what_new_sessions_begin_with_matters_as_far_as_that() -> None:
    before, rights = inherited(LIMITED), (NEW_SESSIONS_RIGHTS, "[1]")
    reads = Globals((*LIMITED[1:], rights, ("optimizer_switch", "mrr=on")))
    writes = Globals((*LIMITED[1:], rights, ("session_track_gtids", "ALL_GTIDS")))
    assert write_alike(before, reads)
    assert not write_alike(before, writes)
    state = session(globals_=LIMITED)
    state.begins_otherwise(reads)
    assert not state.settings_unknown
    state.begins_otherwise(writes)
    assert state.settings_unknown
