import tracemalloc
from typing import Any

import pytest

from sqlcache.cache import entry
from sqlcache.cache.outcomes import FENCED, OUTDATED, Hit, Miss
from sqlcache.cache.reads import Freshness, Read, TagSet
from sqlcache.mysql.constants import Status
from sqlcache.proxy.own_transaction import OwnTransaction
from sqlcache.proxy.room import Room
from sqlcache.proxy.transaction import (
    OUT_OF_SNAPSHOT,
    READ_COMMITTED,
    REPEATABLE_READ,
    TransactionView,
)
from sqlcache.sql.analysis import analyse
from sqlcache.sql.catalog.server import Server
from sqlcache.sql.pieces import Dialect
from tests.plan.test_state import run as follow
from tests.plan.test_state import session

MISS = Miss(b"versions")


def run(view: TransactionView, *texts: bytes) -> TransactionView:
    for text in texts:
        for statement in analyse(text, Dialect()):
            view.ran(statement)
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
    assert TransactionView(isolation).uncacheable


@pytest.mark.parametrize(
    ("engines", "level", "uncacheable"),
    [
        ({"innodb", "sequence"}, "REPEATABLE-READ", False),
        ({"innodb", "rocksdb"}, "REPEATABLE-READ", True),
        ({"innodb", "rocksdb"}, "READ-COMMITTED", False),
    ],
)
def test_where_each_engine_has_a_snapshot_of_its_own_nothing_is_of_one_moment(
    engines: set[str], level: str, uncacheable: bool
) -> None:
    """MyRocks refuses writes in a transaction whose snapshot was opened for a hit."""
    server = Server(
        flavour="mariadb",
        version=(11, 4),
        lower_case_table_names=0,
        transactional_engines=frozenset(engines),
    )
    state = session()
    follow(state, f"SET SESSION transaction_isolation = '{level}'")
    follow(state, "BEGIN", status=Status.AUTOCOMMIT | Status.IN_TRANS)
    unused: Any = None
    own = OwnTransaction(unused, state, unused, lambda: server.has_one_snapshot, Room(1_000))
    own.enter()
    assert own.view is not None
    assert own.view.isolation == level.lower()
    assert own.view.uncacheable is uncacheable


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
def test_what_changes_what_it_sees_makes_it_uncacheable(text: bytes) -> None:
    assert run(TransactionView(REPEATABLE_READ), b"BEGIN", text).uncacheable


@pytest.mark.parametrize(
    "text", [b"SELECT a FROM t", b"SELECT NOW()", b"SET @a = 1", b"USE shop", b"SET NAMES utf8mb4"]
)
def test_what_changes_nothing_does_not(text: bytes) -> None:
    assert not run(TransactionView(REPEATABLE_READ), b"START TRANSACTION", text).uncacheable


def test_a_savepoint_in_an_open_snapshot_changes_nothing() -> None:
    view = TransactionView(REPEATABLE_READ)
    view.opened(1)
    assert not run(view, b"SAVEPOINT a", b"ROLLBACK TO SAVEPOINT a").uncacheable


@pytest.mark.parametrize(
    ("text", "access"),
    [
        (b"BEGIN /* only underwriters rewrite snapshots */", b""),
        (b"START TRANSACTION READ ONLY /* underwriter */", b"READ ONLY"),
        (b"START /**/ TRANSACTION READ -- ONLY\n WRITE", b"READ WRITE"),
        (b"START TRANSACTION READ ONLY; START TRANSACTION", b""),
    ],
)
def test_a_transaction_stays_as_it_was_begun(text: bytes, access: bytes) -> None:
    view = run(TransactionView(REPEATABLE_READ), text)
    assert not view.uncacheable
    snapshot = b"START TRANSACTION WITH CONSISTENT SNAPSHOT"
    assert view.opening() == (snapshot + b", " + access if access else snapshot)
    view = run(TransactionView(READ_COMMITTED), text)
    assert view.opening() == b" ".join([b"START TRANSACTION", access]).rstrip()


def read_under(edition: int, key: bytes = b"k") -> Read:
    tags = TagSet((), (), ())
    return Read(key, tags, b"", Freshness(60), rolls_back=True, edition=edition)


def test_what_was_read_in_a_snapshot_is_remembered_until_a_write() -> None:
    view = TransactionView(REPEATABLE_READ)
    read, large = read_under(1), read_under(1, b"large")
    view.keep(read, b"too early")
    assert view.kept(read, MISS) is None
    view.opened(1)
    view.keep(read, b"entry")
    assert view.kept(read, MISS) == view.kept(read, Hit(b"another", 0)) == b"entry"
    view.keep(large, bytes(5_000_000))
    assert view.kept(large, MISS) is None
    run(view, b"SAVEPOINT a", b"SELECT a FROM t")
    assert view.kept(read, MISS) == b"entry"
    run(view, b"DELETE FROM t")
    assert view.kept(read, MISS) is None


def opened(room: Room | None = None) -> TransactionView:
    view = TransactionView(REPEATABLE_READ, room)
    view.opened(1)
    return view


def test_what_transactions_have_read_has_room_together() -> None:
    room, read = Room(3_000), read_under(1)
    first, second = opened(room), opened(room)
    first.keep(read, bytes(2_000))
    second.keep(read, bytes(2_000))
    assert first.may_have_kept(read)
    assert not second.may_have_kept(read)
    first.keep(read, bytes(2_500))  # in place of what there was
    assert first.kept(read, MISS) == bytes(2_500)
    second.end()
    assert not room.take(2_000)
    first.end()
    first.keep(read, b"late")
    assert not first.may_have_kept(read)
    assert room.take(3_000)


@pytest.mark.parametrize("text", [b"ROLLBACK TO SAVEPOINT a", b"DELETE FROM t", b"CALL p()"])
def test_what_a_transaction_forgets_gives_its_room_back(text: bytes) -> None:
    room = Room(1_000)
    view = opened(room)
    for key in (b"k", b"l"):
        view.keep(read_under(1, key), b"entry")
    run(view, text)
    assert room.take(1_000)


def test_many_short_answers_take_no_more_memory_than_one_long() -> None:
    view = opened()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(40_000):
        view.keep(read_under(1, b"%032d" % number), bytes(120))
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert 2_000_000 < taken < 5_000_000


def test_what_was_read_in_a_snapshot_is_forgotten_where_others_may_have_redefined_it() -> None:
    view = TransactionView(REPEATABLE_READ)
    view.opened(1)
    view.keep(read_under(1), b"entry")
    assert view.kept(read_under(2), MISS) is None
    for unsure in (FENCED, OUTDATED):
        assert view.kept(read_under(1), unsure) is None
    run(view, b"ROLLBACK TO SAVEPOINT a")
    assert not view.uncacheable
    assert view.kept(read_under(1), MISS) is None


def test_a_read_that_may_have_opened_the_snapshot_unseen_ends_all_hits() -> None:
    for isolation, uncacheable in ((REPEATABLE_READ, True), (READ_COMMITTED, False)):
        view = TransactionView(isolation)
        view.read_unseen()
        assert view.uncacheable is uncacheable
    view = TransactionView(REPEATABLE_READ)
    view.opened(1)
    view.read_unseen()
    assert not view.uncacheable


def hit_of(rows: int) -> Hit:
    return Hit(entry.encode(b"", 0, [], b"", rows), 0)


def test_a_transaction_has_its_part_of_what_the_cache_has() -> None:
    read = read_under(1)
    read.proof_rows = 1
    view = TransactionView(REPEATABLE_READ)
    hit, empty, miss = hit_of(1), hit_of(0), Miss(b"")
    assert view.part_of(read, hit) is hit
    assert view.part_of(read, miss) is miss
    assert view.part_of(read, empty) is OUT_OF_SNAPSHOT, "the server may open none for it"
    read.tags.seen_since = hit.since = empty.since = miss.since = 1.0
    view.opened(2.0)
    for outcome in (hit, empty, miss, FENCED, OUTDATED):
        assert view.part_of(read, outcome) is outcome
    assert not view.is_past(read)
    read.tags.seen_since = hit.since = miss.since = 3.0
    assert view.is_past(read)
    assert view.part_of(read, hit) is view.part_of(read, miss) is OUT_OF_SNAPSHOT
    for outcome in (FENCED, OUTDATED):
        assert view.part_of(read, outcome) is outcome
    view.keep(read, b"entry")
    assert not view.is_past(read), "it has read that before"
    assert view.part_of(read, hit) == Hit(b"entry", 0)


def test_a_read_opens_the_snapshot_where_its_rows_prove_it() -> None:
    read, counts = read_under(1), read_under(1, b"counts")
    read.proof_rows = counts.proof_rows = 1
    counts.counts_all = True
    view = TransactionView(REPEATABLE_READ)
    view.has_read(read, 2.0, 1, b"entry")
    view.has_read(counts, 3.0, 1, b"entry")
    assert (view.opened_at, view.uncacheable) == (2.0, False)
    assert view.kept(read, MISS) == b"entry"
    assert view.kept(counts, MISS) is None, "what it counted is not known"
    empty = TransactionView(REPEATABLE_READ)
    empty.has_read(read, 2.0, 0, b"entry")
    assert empty.uncacheable
