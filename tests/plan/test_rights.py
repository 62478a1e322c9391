"""What tells the rights of a session from others'."""

import secrets

from sqlcache.plan.rights import Rights
from sqlcache.plan.variables import NEW_SESSIONS_RIGHTS, PLACE, SEVERAL_ACCOUNTS, Globals


def globals_of(rights: str) -> Globals:
    return Globals(((NEW_SESSIONS_RIGHTS, rights),))


def reset(rights: Rights, now: str) -> tuple[str, str]:
    rights.reset(globals_of(now))
    rights.confirm(globals_of(now))
    return rights.told


def logged_in(rights: str) -> Rights:
    session = Rights(secrets.token_hex)
    session.log_in(globals_of(rights), b"ann")
    session.confirm(globals_of(rights))
    return session


def test_a_session_that_is_reset_again_and_again_has_the_rights_of_the_first_time() -> None:
    """As one of an app's pool, after a GRANT: else none of its reads would be a hit any more."""
    session = logged_in("old")
    at_login = session.told
    assert reset(session, "old") == at_login
    first = reset(session, "new")
    assert first not in (at_login, logged_in("new").told)
    assert [reset(session, "new") for _ in range(3)] == [first] * 3
    assert reset(logged_in("old"), "new") == first


def test_what_tells_them_is_no_longer_however_often_they_change() -> None:
    session = logged_in("rights 0")
    told = [reset(session, f"rights {each}") for each in range(1, 100)]
    assert len(set(told)) == len(told)
    assert max(len(on_server) for on_server, _ in told) == len(told[0][0])


def test_a_login_forgets_what_was_read_at_a_reset() -> None:
    session = logged_in("old")
    reset(session, "new")
    session.log_in(globals_of("old"), b"ann")
    session.confirm(globals_of("old"))
    assert session.told == logged_in("old").told
    assert reset(session, "new") == reset(logged_in("old"), "new")
    assert reset(session, "new") != logged_in("old").told


def test_only_who_may_be_several_accounts_is_told_by_the_way_the_connection_goes() -> None:
    named = (NEW_SESSIONS_RIGHTS, "old"), (PLACE, "db.test"), (SEVERAL_ACCOUNTS, "\0ann\0")

    def told(user: bytes, route: str) -> tuple[str, str]:
        session = Rights(secrets.token_hex, route)
        session.log_in(Globals(named), user)
        session.confirm(Globals(named))
        return session.told

    assert told(b"ann", "here there") == told(b"ann", "here there")
    assert told(b"ann", "here there") != told(b"ann", "elsewhere there")
    assert told(b"bob", "here there") == told(b"bob", "elsewhere there") == ("old", "old")
