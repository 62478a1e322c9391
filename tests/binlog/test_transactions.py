import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.binlog import transactions
from sqlcache.binlog.change import Change
from sqlcache.binlog.events import ROWS, EventStream, Kind
from sqlcache.binlog.transactions import Transactions
from sqlcache.sql.statement import ADDS, ANYTHING, DELETES, Changes
from tests.binlog.logs import (
    SERVER,
    begins,
    event,
    gtid,
    in_pieces,
    mariadb_gtid,
    packets,
    query,
    rotate,
    rows,
    table,
    xid,
)
from tests.costs import grows_linearly


def changes(
    *events: bytes, following: Transactions | None = None, longest_bytes: int = 5_000
) -> list[Change]:
    """What became visible by them."""
    transactions = following or Transactions()
    stream = EventStream(longest_bytes=longest_bytes)
    sent = in_pieces(begins() + packets(*events), 65_536)
    read = [each for piece in sent for each in stream.feed(piece)]
    return [change for each in read if (change := transactions.take(each)) is not None]


def texts(change: Change) -> list[bytes]:
    return [each.text for each in change.statements]


T, U = ("shop", "t"), ("shop", "u")
UPDATES = Changes(None)
MAPS = table(7, *T), table(8, *U)


def test_rows_are_told_at_the_commit_and_all_at_once() -> None:
    told = changes(query("BEGIN"), *MAPS, rows(7), rows(8, Kind.UPDATE_ROWS), xid())
    assert [each.tables for each in told] == [{T: ADDS, U: UPDATES}]
    assert changes(query("BEGIN"), *MAPS, rows(7)) == []


def test_a_table_that_is_named_and_not_changed_is_not_told() -> None:
    (told,) = changes(query("BEGIN"), *MAPS, rows(8), xid())
    assert told.tables == {U: ADDS}


@pytest.mark.parametrize("kind", sorted(ROWS))
def test_all_kinds_of_rows_are_known(kind: int) -> None:
    (told,) = changes(query("BEGIN"), table(7, *T), rows(7, kind), xid())
    name = Kind(kind).name
    assert told.tables == {T: ADDS if "WRITE" in name else DELETES if "DELETE" in name else UPDATES}


def test_what_is_done_to_a_table_is_gathered() -> None:
    many = [rows(7, kind) for kind in (Kind.WRITE_ROWS, Kind.DELETE_ROWS, Kind.UPDATE_ROWS)]
    (told,) = changes(query("BEGIN"), table(7, *T), *many, rows(7), xid())
    assert told.tables == {T: ANYTHING}


def test_a_number_may_be_another_tables_in_a_transaction() -> None:
    (told,) = changes(query("BEGIN"), table(7, *T), rows(7), table(7, *U), rows(7), xid())
    assert told.tables == {T: ADDS, U: ADDS}


def test_rows_of_a_table_without_a_name_change_everything() -> None:
    (told,) = changes(query("BEGIN"), rows(7), xid())
    assert told.everything
    assert changes(query("BEGIN"), rows(0xFFFFFF), xid()) == []


def test_a_transaction_that_changed_nothing_is_not_told() -> None:
    told = changes(gtid(5), query("BEGIN"), xid(), gtid(6), query("BEGIN"), *MAPS, rows(7), xid())
    assert [each.commit for each in told] == [(f"{SERVER}:", 6, 1)]


def test_mariadbs_begin_a_transaction_unless_they_stand_alone() -> None:
    (told,) = changes(mariadb_gtid(), *MAPS, rows(7), query("COMMIT"))
    assert told.tables == {T: ADDS}
    alone = changes(mariadb_gtid(standalone=True), query("DROP TABLE t"))
    assert texts(alone[0]) == [b"DROP TABLE t"]


def test_a_statement_outside_of_a_transaction_is_told_at_once() -> None:
    (told,) = changes(query("TRUNCATE t"))
    assert texts(told) == [b"TRUNCATE t"]
    assert told.statements[0].schema == "shop"


def test_what_no_xid_ends_is_seen_when_its_session_unlocks_its_tables() -> None:
    write = mariadb_gtid(), *MAPS, rows(7)
    for end, session in ((query("COMMIT"), 9), (query("ROLLBACK"), 9), (xid(), None)):
        (told,) = changes(*write, end)
        assert told.session == session
    (told,) = changes(query("TRUNCATE t"))
    assert told.session is None


def test_tables_may_be_locked_until_their_session_is_at_something_else() -> None:
    change = Change(session=7)
    assert [change.may_be_locked(at) for at in ({7: 41}, {7: 41, 8: 9}, {7: 42}, {})] == [
        *(True, True, False, False)
    ]
    change = Change(session=7)
    assert not change.may_be_locked({8: 9})
    assert not change.may_be_locked({7: 41}), "a later one"


def test_statements_of_one_shape_are_told_once() -> None:
    inserts = [query(f"INSERT INTO t VALUES ({number})") for number in range(2_000)]
    (told,) = changes(query("BEGIN"), *inserts, xid())
    assert texts(told) == [b"INSERT INTO t VALUES (0)"]
    commented = [query(f"/* request {number} */ DELETE FROM t") for number in range(2_000)]
    (told,) = changes(query("BEGIN"), *commented, xid())
    assert texts(told) == [b"/* request 0 */ DELETE FROM t"]


@pytest.mark.parametrize(
    "define", ["CREATE TEMPORARY TABLE t (a INT)", "drop temporary table t", "/* */ ALTER TABLE t"]
)
def test_behind_a_definition_a_shape_is_told_anew(define: str) -> None:
    insert = query("INSERT INTO t VALUES (1)")
    sent = [insert, query(define), insert, insert, query(define), insert]
    (told,) = changes(query("BEGIN"), *sent, xid())
    assert texts(told) == [b"INSERT INTO t VALUES (1)", define.encode()] * 2 + texts(told)[:1]


def test_too_many_statements_or_tables_change_everything() -> None:
    many = [query(f"INSERT INTO t{number} VALUES (1)") for number in range(1_001)]
    (told,) = changes(query("BEGIN"), *many, xid())
    assert told.everything
    assert not told.statements
    maps = [each for n in range(10_001) for each in (table(n, "s", f"t{n}"), rows(n))]
    (told,) = changes(query("BEGIN"), *maps, xid())
    assert told.everything
    assert not told.tables


def test_savepoints_end_nothing() -> None:
    between = query("SAVEPOINT a"), query("ROLLBACK TO a"), query("RELEASE SAVEPOINT a")
    (told,) = changes(query("BEGIN"), *MAPS, rows(7), *between, rows(8), xid())
    assert told.tables == {T: ADDS, U: ADDS}


def test_what_a_rollback_could_not_undo_is_told() -> None:
    (told,) = changes(query("BEGIN"), *MAPS, rows(7), query("ROLLBACK"))
    assert told.tables == {T: ADDS}


def test_a_statement_is_read_by_the_settings_of_its_session() -> None:
    (told,) = changes(query('DELETE FROM "t"', modes=1 << 2 | 1 << 20))
    assert told.statements[0].dialect.ansi_quotes
    assert told.statements[0].dialect.no_backslash_escapes
    (told,) = changes(query("DELETE FROM t", modes=1 << 9))
    assert told.everything == "DELETE: its session's settings are none it can be read by"
    (told,) = changes(query("DELETE FROM t", collation=9999))
    assert told.everything


def test_what_is_not_asked_of_a_session_is_passed_over_as_far_as_it_is_known() -> None:
    collations = b"\x83\x02" + bytes(8)  # of two character sets, as MariaDB 11.5 has them
    (told,) = changes(query("DELETE FROM t", more=collations))
    assert told.statements[0].text == b"DELETE FROM t"
    (told,) = changes(query("DELETE FROM t", more=b"\x7f\x02"))
    assert told.everything


def test_a_text_in_another_character_set_is_told_in_utf8() -> None:
    sent = query("DELETE FROM t WHERE v = '~'", collation=8).replace(b"~", b"\xe9")
    body = sent[19:-4]
    (told,) = changes(event(Kind.QUERY, body))
    assert texts(told) == ["DELETE FROM t WHERE v = 'é'".encode()]


def test_a_table_made_of_a_query_comes_with_its_rows() -> None:
    made = query("CREATE TABLE `t` (`a` int) START TRANSACTION")
    (told,) = changes(query("BEGIN"), made, table(7, *T), rows(7), xid())
    assert texts(told) == [b"CREATE TABLE `t` (`a` int)"]
    assert told.tables == {T: ADDS}


def test_blanks_in_a_text_cost_by_their_number() -> None:
    def follow(blanks: bytes) -> None:
        insert = query(f"INSERT INTO t VALUES ('{blanks.decode()}')")
        assert changes(query("BEGIN"), insert, xid(), longest_bytes=1 << 20)

    assert grows_linearly(lambda n: b" " * n, follow)


def test_a_load_of_a_file_is_a_statement() -> None:
    load = query("LOAD DATA LOCAL INFILE 'x' INTO TABLE t", kind=Kind.EXECUTE_LOAD_QUERY)
    (told,) = changes(query("BEGIN"), load, xid())
    assert texts(told) == [b"LOAD DATA LOCAL INFILE 'x' INTO TABLE t"]


def test_mariadbs_compressed_statements_are_unpacked() -> None:
    plain = query("DELETE FROM t")[19:-4]
    text = b"DELETE FROM t"
    packed = plain[: -len(text)] + bytes((0x81, len(text))) + zlib.compress(text)
    (told,) = changes(event(Kind.MARIADB_QUERY_COMPRESSED, packed))
    assert texts(told) == [text]
    (told,) = changes(event(Kind.MARIADB_QUERY_COMPRESSED, packed[:-4] + b"oops"))
    assert told.everything


# XA.


def prepare(one_phase: bool = False) -> bytes:
    head = bytes((one_phase,)) + b"".join(n.to_bytes(4, "little") for n in (3, 1, 2))
    return event(Kind.XA_PREPARE, head + b"abb")


NAME = "X'61',X'6262',3"
PREPARED = query(f"XA START {NAME}"), *MAPS, rows(7), query(f"XA END {NAME}"), prepare()


def test_a_branch_is_told_when_it_is_committed() -> None:
    assert changes(*PREPARED) == []
    (told,) = changes(*PREPARED, query(f"XA COMMIT {NAME}"))
    assert told.tables == {T: ADDS}
    assert not told.everything


def test_a_branch_that_is_rolled_back_changes_nothing() -> None:
    assert changes(*PREPARED, query(f"XA ROLLBACK {NAME}")) == []


def test_statements_of_a_branch_are_told_when_it_is_prepared_too() -> None:
    """The other tables that one wrote may have no transactions."""
    branch = query(f"XA START {NAME}"), query("UPDATE t SET v = 5"), query(f"XA END {NAME}")
    for end in ("ROLLBACK", "COMMIT"):
        told = changes(*branch, prepare(), query(f"XA {end} {NAME}"))
        assert [texts(each) for each in told] == [[b"UPDATE t SET v = 5"]] * (1 + (end == "COMMIT"))


@pytest.mark.parametrize(
    ("between", "is_known"),
    [
        ([query("INSERT INTO t VALUES (1)")], True),
        ([query("BEGIN"), *MAPS, rows(7), xid()], True),
        ([query("DROP TRIGGER tr")], False),
        ([query("DROP TRIGGER tr", collation=9999)], False),
        ([query("BEGIN"), query("CREATE TABLE t (a INT) START TRANSACTION"), xid()], False),
    ],
)
def test_a_branch_with_statements_is_known_until_something_is_defined(
    between: list[bytes], is_known: bool
) -> None:
    write = query("UPDATE t SET v = 5")
    prepared = query(f"XA START {NAME}"), write, query(f"XA END {NAME}"), prepare()
    *_, told = changes(*prepared, *between, query(f"XA COMMIT {NAME}"))
    assert bool(told.everything) is not is_known
    *_, told = changes(*PREPARED, *between, query(f"XA COMMIT {NAME}"))
    assert (told.tables, told.everything) == ({T: ADDS}, ""), "rows are what they are"


def test_a_branch_in_one_phase_is_told_when_it_ends() -> None:
    begun = query(f"XA START {NAME}"), *MAPS, rows(7), query(f"XA END {NAME}")
    (told,) = changes(*begun, prepare(one_phase=True))
    assert told.tables == {T: ADDS}
    (told,) = changes(*begun, query(f"XA COMMIT {NAME} ONE PHASE"))
    assert told.tables == {T: ADDS}


def test_a_branch_from_before_the_log_was_followed_may_change_everything() -> None:
    (told,) = changes(query(f"XA COMMIT {NAME}"))
    assert told.everything
    (told,) = changes(query("XA COMMIT what"))
    assert told.everything


def test_what_is_kept_of_prepared_branches_is_bounded() -> None:
    following = Transactions()
    most = transactions._MOST_PREPARED_BYTES
    insert = query(f"INSERT INTO t VALUES ('{'x' * (most // 5)}')")

    def prepared(each: int) -> str:
        name = f"X'{each:02}',X'',1"
        begun = query(f"XA START {name}"), insert, query(f"XA END {name}")
        head = bytes(1) + b"".join(n.to_bytes(4, "little") for n in (1, 1, 0))
        branch = event(Kind.XA_PREPARE, head + bytes.fromhex(f"{each:02}"))
        (told,) = changes(*begun, branch, following=following, longest_bytes=most)
        assert len(told.statements) == 1
        return name

    def committed(name: str) -> Change:
        (told,) = changes(query(f"XA COMMIT {name}"), following=following, longest_bytes=most)
        return told

    names = list(map(prepared, range(10, 15)))
    assert [bool(committed(name).statements) for name in names] == [True] * 4 + [False]
    assert committed(prepared(16)).statements
    assert committed(names[0]).everything, "it is no more"
    assert [committed(prepared(each)).everything for each in (20, 21)] == [""] * 2


def test_a_branch_is_known_after_the_stream_broke() -> None:
    following = Transactions()
    changes(*PREPARED, following=following)
    following.resume()
    (told,) = changes(query(f"XA COMMIT {NAME}"), following=following)
    assert told.tables == {T: ADDS}


def test_a_branch_is_the_one_that_was_prepared_where_it_is_read_from_again() -> None:
    following = Transactions()
    changes(*PREPARED, following=following)
    following.mark()
    marked = following.boundary
    again = query(f"XA START {NAME}"), *MAPS, rows(8), query(f"XA END {NAME}"), prepare()
    changes(query(f"XA COMMIT {NAME}"), rotate("binlog.000002"), *again, following=following)
    following.resume(marked)
    (told,) = changes(query(f"XA COMMIT {NAME}"), following=following)
    assert told.tables == {T: ADDS}


def test_what_is_prepared_elsewhere_in_the_log_is_not_known() -> None:
    following = Transactions()
    changes(*PREPARED, following=following)
    following.mark()
    following.resume(("binlog.000009", 4))
    (told,) = changes(query(f"XA COMMIT {NAME}"), following=following)
    assert told.everything


# What is not understood.


@pytest.mark.parametrize("kind", [6, 7, 8, 10, 12, 20, 21, 22, 99, 172, 255])
def test_an_event_that_nobody_knows_may_change_everything(kind: int) -> None:
    (told,) = changes(event(kind))
    assert told.everything
    (told,) = changes(query("BEGIN"), event(kind), xid())
    assert told.everything
    assert changes(event(kind, flags=0x80)) == []


def test_an_incident_changes_everything() -> None:
    (told,) = changes(event(Kind.INCIDENT, b"\1\0"))
    assert told.everything


def test_a_text_that_is_too_long_changes_everything() -> None:
    (told,) = changes(query("DELETE FROM t WHERE v IN (" + "1," * 40_000 + "1)"))
    assert told.everything


def test_where_a_transactions_end_is_missing_it_is_told() -> None:
    told = changes(query("BEGIN"), *MAPS, rows(7), gtid(9), query("BEGIN"), rows(8), xid())
    assert told[0].tables == {T: ADDS}
    told = changes(query("BEGIN"), *MAPS, rows(7), rotate("binlog.000002"))
    assert told[0].tables == {T: ADDS}


@given(st.sampled_from(sorted(Kind)), st.binary(max_size=60))
def test_any_body_of_an_event_is_read_or_changes_everything(kind: Kind, body: bytes) -> None:
    if kind not in (Kind.FORMAT_DESCRIPTION, Kind.TRANSACTION_PAYLOAD) and kind not in ROWS:
        changes(event(kind, body), xid())


# Where it is.


def test_the_boundary_is_where_a_transaction_has_ended() -> None:
    following = Transactions()
    first = query("BEGIN"), *MAPS, rows(7), event(Kind.XID, bytes(8), end=500)
    (told,) = changes(*first, following=following)
    assert told.end == following.boundary == ("binlog.000001", 500)
    changes(*first, gtid(7), query("BEGIN"), rows(7), following=following)
    assert following.boundary == ("binlog.000001", 500)


def test_the_end_in_a_file_longer_than_events_tell_is_none_to_go_by() -> None:
    def commit(end: int) -> tuple[bytes, ...]:
        return query("BEGIN"), table(7, *T), rows(7), event(Kind.XID, bytes(8), end=end)

    following = Transactions()
    ends = [(1 << 32) - 10, 50, 300]
    told = changes(*(e for end in ends for e in commit(end)), following=following)
    assert [each.is_placed for each in told] == [True, False, False]
    (next_,) = changes(rotate("binlog.000002"), *commit(300), following=following)
    assert next_.is_placed


def test_a_new_file_is_a_boundary() -> None:
    following = Transactions()
    changes(rotate("binlog.000002"), following=following)
    assert following.boundary == ("binlog.000002", 4)


def test_a_heartbeat_moves_nothing() -> None:
    following = Transactions()
    changes(event(Kind.HEARTBEAT, b"binlog.000001", end=900), following=following)
    assert following.boundary == ("binlog.000001", 4)


def test_a_commit_is_known_by_what_the_server_calls_it() -> None:
    mysql = changes(gtid(9), query("BEGIN"), table(7, *T), rows(7), xid())
    assert [each.commit for each in mysql] == [(f"{SERVER}:", 9, 1)]
    mariadb = changes(mariadb_gtid(29, domain=3), table(7, *T), rows(7), xid())
    assert [each.commit for each in mariadb] == [("3-1-", 29, 1)]
    alone = changes(mariadb_gtid(30, standalone=True), query("TRUNCATE t"))
    assert [each.commit for each in alone] == [("0-1-", 30, 1)]


def test_what_has_no_gtid_that_is_read_is_no_known_commit() -> None:
    for kind in (Kind.TAGGED_GTID, Kind.ANONYMOUS_GTID):
        told = changes(event(kind, bytes(60)), query("BEGIN"), *MAPS, rows(7), xid())
        assert [each.commit for each in told] == [None]


def test_a_branch_is_known_by_the_gtid_of_its_commit() -> None:
    branch = b"\0" + bytes(4) + (1).to_bytes(4, "little") + bytes(4) + b"a"
    told = changes(
        *(mariadb_gtid(4), table(7, *T), rows(7), event(Kind.XA_PREPARE, branch)),
        *(mariadb_gtid(5, standalone=True), query("XA COMMIT X'61',X'',0")),
    )
    assert [(each.tables, each.commit) for each in told] == [({T: ADDS}, ("0-1-", 5, 1))]
