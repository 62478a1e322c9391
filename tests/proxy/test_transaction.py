import pytest

from sqlcache.proxy.transaction import READ_COMMITTED, REPEATABLE_READ, TransactionView
from sqlcache.sql.analysis import analyse
from sqlcache.sql.lexer import Dialect


def run(view: TransactionView, *texts: bytes) -> TransactionView:
    for text in texts:
        for statement in analyse(text, Dialect()):
            view.ran(statement, text)
    return view


def test_under_read_committed_every_current_answer_holds() -> None:
    view = TransactionView(READ_COMMITTED)
    view.opened(5)
    assert view.holds(seen_since=9)
    assert view.opening() == b"START TRANSACTION"


def test_a_snapshot_holds_what_was_seen_before_it() -> None:
    view = TransactionView(REPEATABLE_READ)
    assert view.holds(seen_since=4)
    view.opened(5)
    view.opened(8)
    assert view.holds(seen_since=4.9)
    assert not view.holds(seen_since=5)


@pytest.mark.parametrize("isolation", ["serializable", "read-uncommitted", ""])
def test_other_isolation_levels_use_no_cache(isolation: str) -> None:
    assert TransactionView(isolation).spoilt


@pytest.mark.parametrize(
    "text",
    [
        b"UPDATE t SET a = 1",
        b"SELECT a FROM t FOR UPDATE",
        b"SELECT stored(a) FROM t",
        b"CALL p()",
        b"SAVEPOINT a",
        b"XA END 'x'",
        b"START TRANSACTION WITH CONSISTENT SNAPSHOT",
    ],
)
def test_what_changes_what_it_sees_spoils_it(text: bytes) -> None:
    assert run(TransactionView(REPEATABLE_READ), b"BEGIN", text).spoilt


@pytest.mark.parametrize(
    "text", [b"SELECT a FROM t", b"SELECT NOW()", b"SET @a = 1", b"USE shop", b"SET NAMES utf8mb4"]
)
def test_what_changes_nothing_does_not(text: bytes) -> None:
    assert not run(TransactionView(REPEATABLE_READ), b"START TRANSACTION", text).spoilt


def test_a_savepoint_in_an_open_snapshot_changes_nothing() -> None:
    view = TransactionView(REPEATABLE_READ)
    view.opened(1)
    assert not run(view, b"SAVEPOINT a", b"ROLLBACK TO SAVEPOINT a").spoilt


def test_a_read_only_transaction_stays_one() -> None:
    view = run(TransactionView(REPEATABLE_READ), b"START TRANSACTION READ ONLY")
    assert view.opening() == b"START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
    view = run(TransactionView(READ_COMMITTED), b"START TRANSACTION READ ONLY")
    assert view.opening() == b"START TRANSACTION READ ONLY"


def test_what_was_read_in_a_snapshot_is_remembered_until_a_write() -> None:
    view = TransactionView(REPEATABLE_READ)
    view.keep(b"k", b"too early")
    assert view.kept(b"k") is None
    view.opened(1)
    view.keep(b"k", b"entry")
    assert view.kept(b"k") == b"entry"
    view.keep(b"large", bytes(5_000_000))
    assert view.kept(b"large") is None
    run(view, b"DELETE FROM t")
    assert view.kept(b"k") is None


def test_a_read_that_may_have_opened_the_snapshot_unseen_ends_all_hits() -> None:
    for isolation, spoilt in ((REPEATABLE_READ, True), (READ_COMMITTED, False)):
        view = TransactionView(isolation)
        view.read_unseen()
        assert view.spoilt is spoilt
    view = TransactionView(REPEATABLE_READ)
    view.opened(1)
    view.read_unseen()
    assert not view.spoilt
