from collections.abc import Callable

import pytest

from sqlcache.cache.entry import COUNTED
from sqlcache.mysql.constants import Capability, Command
from sqlcache.mysql.packets import packet, query_packet
from sqlcache.mysql.response import ResponseTracker
from sqlcache.plan.commands import NO_STATEMENT, UNKNOWN, ClientCommand, Meaning
from sqlcache.proxy.diagnostics import Diagnostics
from sqlcache.proxy.looking_back import MOST_SEARCHED_BYTES, may_keep_rows, may_look_back
from sqlcache.sql.analysis import analyse
from sqlcache.sql.pieces import Dialect
from tests.costs import a_moment, costs_at_most

CAPABILITIES = Capability.PROTOCOL_41 | Capability.DEPRECATE_EOF
READ = query_packet(b"SELECT v FROM t", CAPABILITIES)
OK = b"\0\0\0\x02\0\0\0"
OK_WITH_A_WARNING = b"\0\0\0\x02\0\x01\0"


def after_hit(packet: bytes = READ, rows: int = 12) -> Diagnostics:
    diagnostics = Diagnostics()
    diagnostics.hit(packet, packet, rows)
    return diagnostics


def query(text: str) -> tuple[ClientCommand, Meaning]:
    command = ClientCommand(Command.QUERY, query_packet(text.encode(), CAPABILITIES), whole=True)
    return command, Meaning(analyse(text.encode(), Dialect()))


def misses(diagnostics: Diagnostics, text: str) -> bool:
    return diagnostics.missed_by(*query(text), text.encode(), unprepared=False)


def ran(diagnostics: Diagnostics, text: str, answer: bytes = OK, *, unread: bool = False) -> None:
    command, meaning = query(text)
    diagnostics.ran(command, UNKNOWN if unread else meaning, answered(answer))


def answered(answer: bytes) -> ResponseTracker:
    tracker = ResponseTracker(Command.QUERY, CAPABILITIES)
    tracker.feed(packet(1, answer))
    assert tracker.done
    return tracker


@pytest.mark.parametrize("before", range(12))
def test_a_long_text_that_asks_is_found_wherever_it_does(before: int) -> None:
    for asks in (b"SHOW WARNINGS", b"SELECT FOUND_ROWS()", b"GET DIAGNOSTICS a = NUMBER"):
        blanks = MOST_SEARCHED_BYTES - len(asks) + before
        assert may_look_back(b" " * blanks + asks)
        assert not may_look_back(b" " * blanks + b"SELECT 1")


@pytest.mark.parametrize("text", ["SELECT 1 FROM t WHERE a IN (", "BEGIN ", "SELECT FROM "])
def test_of_a_long_text_not_all_is_searched(text: str) -> None:
    """Nobody is served meanwhile."""

    def search(size: int) -> Callable[[], None]:
        command = query_packet(b"", CAPABILITIES) + text.encode() + b"1, " * (size // 3)
        diagnostics = Diagnostics()
        diagnostics.mariadb = True
        ran(diagnostics, "DO 1/0", OK_WITH_A_WARNING)
        asked = ClientCommand(Command.QUERY, command, whole=True)

        def go() -> None:
            diagnostics.may_be_kept(command)
            diagnostics.hit(command, command, 1)
            diagnostics.missed_by(asked, UNKNOWN, command, unprepared=False)
            diagnostics.ran(asked, UNKNOWN, answered(OK))
            diagnostics.hit(command, command, 1)
            diagnostics.missing(0, limited=False)

        return go

    assert costs_at_most(4, search(1 << 20), search(MOST_SEARCHED_BYTES // 2))


@pytest.mark.parametrize(
    "text", ["SELECT FOUND_ROWS()", "SELECT ROW_COUNT()", "SHOW WARNINGS", "SELECT @@warning_count"]
)
def test_who_asks_after_a_hit_misses_what_it_would_have_left(text: str) -> None:
    assert misses(after_hit(), text)
    assert not misses(Diagnostics(), text)


@pytest.mark.parametrize(
    "text", ["SELECT v FROM u", "INSERT INTO t VALUES (1)", "SET NAMES utf8mb4"]
)
def test_others_miss_nothing(text: str) -> None:
    assert not misses(after_hit(), text)


def test_only_found_rows_reach_back_behind_the_statement_before() -> None:
    diagnostics = after_hit()
    ran(diagnostics, "SET @x = 1")
    assert misses(diagnostics, "SELECT FOUND_ROWS()")
    assert not misses(diagnostics, "SHOW WARNINGS")
    ran(diagnostics, "UPDATE t SET v = (SELECT 1 FROM u)")
    assert not misses(diagnostics, "SELECT FOUND_ROWS()")


def test_what_counts_warnings_misses_that_a_hit_took_them_away() -> None:
    ping = ClientCommand(Command.PING, packet(0, bytes([Command.PING])), whole=True)
    diagnostics = Diagnostics()
    ran(diagnostics, "SET sql_mode = ''", OK_WITH_A_WARNING)
    assert not diagnostics.missed_by(ping, NO_STATEMENT, None, unprepared=False)
    diagnostics.hit(READ, READ, 1)
    assert diagnostics.missed_by(ping, NO_STATEMENT, None, unprepared=False)


def test_who_asks_for_rows_in_what_cannot_be_read_gets_those_of_the_hit() -> None:
    def misses_unread(text: str) -> bool:
        command, _ = query(text)
        return diagnostics.missed_by(command, UNKNOWN, command.payload, unprepared=False)

    diagnostics = after_hit()
    ran(diagnostics, "SELECT v FROM missing", b"\xff\x7a\x04#42S02no such table")
    ran(diagnostics, "COMMIT", unread=True)
    assert misses_unread("SELECT FOUND_ROWS()")
    assert not misses_unread("SHOW WARNINGS")
    ran(diagnostics, "COMMIT AND CHAIN; SELECT 1", unread=True)
    assert not misses_unread("SELECT FOUND_ROWS()")


def test_who_executes_what_may_count_no_rows_misses_those_of_the_hit() -> None:
    data = packet(0, b"\x17\x09\0\0\0\0\1\0\0\0")
    execute = ClientCommand(Command.STMT_EXECUTE, data, whole=True)

    def misses_executed(text: str | None) -> bool:
        diagnostics = after_hit()
        diagnostics.mariadb = True
        told = None if text is None else text.encode()
        return diagnostics.missed_by(execute, NO_STATEMENT, told, unprepared=False)

    assert misses_executed("SELECT MAX(a) FROM t")
    assert misses_executed("(VALUES (1), (2))")
    assert misses_executed(None)
    assert not misses_executed("SELECT MAX(1)")
    assert not misses_executed("SELECT a FROM t")
    assert not misses_executed("INSERT INTO t VALUES (1)")


def test_rows_written_are_those_of_a_ping_after_a_hit() -> None:
    ping = ClientCommand(Command.PING, packet(0, bytes([Command.PING])), whole=True)
    diagnostics = after_hit()
    diagnostics.ran(ping, NO_STATEMENT, answered(OK))
    assert not misses(diagnostics, "SELECT ROW_COUNT()")
    assert misses(diagnostics, "SELECT FOUND_ROWS()")


def test_an_execution_of_nothing_adds_its_error_to_what_is_there() -> None:
    command = ClientCommand(
        Command.STMT_EXECUTE, packet(0, b"\x17\x09\0\0\0\0\1\0\0\0"), whole=True
    )
    assert after_hit().missed_by(command, UNKNOWN, None, unprepared=True)


def test_a_query_that_finds_as_many_rows_takes_the_hits_place_once() -> None:
    diagnostics = after_hit(rows=12)
    (run_instead,) = diagnostics.missing(CAPABILITIES, limited=False)
    assert b"LIMIT 12" in run_instead
    assert b"FROM t" not in run_instead.replace(b"AS t", b"")
    assert not misses(diagnostics, "SELECT FOUND_ROWS()")


@pytest.mark.parametrize(
    ("text", "itself"),
    [
        (b"SELECT v FROM t LIMIT 3", False),
        (b"SELECT v FROM t LIMIT 3 OFFSET 1", True),
        (b"SELECT v FROM t LIMIT 1, 3", True),
        (b"SELECT v FROM t UNION SELECT v FROM u", False),
        (b"SELECT v FROM t UNION SELECT v FROM u LIMIT 3", True),
    ],
)
def test_a_read_that_finds_more_rows_than_it_answers_is_run_itself(
    text: bytes, itself: bool
) -> None:
    read = query_packet(text, CAPABILITIES)
    assert (after_hit(read).missing(CAPABILITIES, limited=False) == [read]) is itself


def test_a_count_of_all_rows_is_left_behind_without_the_rows() -> None:
    diagnostics = after_hit(rows=12 | COUNTED)
    (run_instead,) = diagnostics.missing(CAPABILITIES, limited=False)
    assert b"SQL_CALC_FOUND_ROWS" in run_instead
    assert b"LIMIT 12)" in run_instead


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT FOUND_ROWS()", 7),
        ("select  found_rows() as total;", 7),
        ("SELECT FOUND_ROWS() `n`", 7),
        ("SELECT FOUND_ROWS(), 1", None),
        ("SELECT FOUND_ROWS() FROM t", None),
        ("SELECT FOUND_ROWS() + 1", None),
    ],
)
def test_who_asks_for_nothing_but_the_count_just_after_a_hit_is_told(
    text: str, told: int | None
) -> None:
    diagnostics = after_hit(rows=7 | COUNTED)
    command, _ = query(text)
    assert diagnostics.found_rows(command.data) == told


def test_a_count_that_was_answered_is_asked_for_again_before_what_looks_back() -> None:
    command, _ = query("SELECT FOUND_ROWS()")
    diagnostics = after_hit(rows=7)
    assert diagnostics.found_rows(command.data) == 7
    diagnostics.answered(command)
    assert diagnostics.found_rows(command.data) is None
    assert diagnostics.missing(CAPABILITIES, limited=False)[1:] == [command.data]


@pytest.mark.parametrize(
    "text", [b"SELECT v FROM t LIMIT 3, 1", b"SELECT 1 UNION SELECT 2 LIMIT 1"]
)
def test_a_count_that_the_rows_do_not_tell_is_the_servers_to_tell(text: bytes) -> None:
    command, _ = query("SELECT FOUND_ROWS()")
    assert after_hit(query_packet(text, CAPABILITIES)).found_rows(command.data) is None


def test_after_an_aggregate_mariadb_is_asked() -> None:
    command, _ = query("SELECT FOUND_ROWS()")
    for text, told in ((b"SELECT max(v) FROM t", None), (b"SELECT v, SUM(v) FROM t GROUP BY v", 1)):
        hit = after_hit(query_packet(text, CAPABILITIES), rows=1)
        assert hit.found_rows(command.data) == 1
        hit.mariadb = True
        assert hit.found_rows(command.data) == told


def test_nothing_is_told_once_the_server_ran_something() -> None:
    command, _ = query("SELECT FOUND_ROWS()")
    diagnostics = after_hit(rows=7 | COUNTED)
    ran(diagnostics, "SET @x = 1")
    assert diagnostics.found_rows(command.data) is None


@pytest.mark.parametrize("mariadb", [False, True])
def test_the_text_of_a_hit_is_searched_once_however_much_comes_behind_it(mariadb: bool) -> None:
    diagnostics = Diagnostics()
    diagnostics.mariadb = mariadb
    text = b"\0" * 4 + b"\3SELECT a FROM t WHERE b = '" + b"a=1 OR " * 4_000 + b"'"
    diagnostics.hit(text, text, 1)

    def close_many() -> None:
        for _ in range(1_000):
            diagnostics.owed_executions()

    assert costs_at_most(50, close_many, a_moment)


def test_no_question_comes_before_what_may_look_back() -> None:
    assert may_look_back(b"show warnings")
    assert may_look_back(b"SET  ROLE NONE")
    assert may_look_back(b"SELECT 1; call p()")
    assert may_look_back(b"SELECT @@session.warning_count")
    assert may_look_back(b"/*! SHOW ERRORS */")
    assert may_look_back(b"GET CURRENT DIAGNOSTICS @n = NUMBER")
    assert not may_look_back(b"SELECT v FROM t")


@pytest.mark.parametrize(
    "text",
    [
        b"SELECT comment_count FROM posts",
        b"SELECT 'automatically', \"SHOW WARNINGS\" FROM t",
        b"SHOW VARIABLES LIKE 'sql_mode'",
        b"SHOW FULL FIELDS FROM `warnings`",
        b"SELECT errors, role, `call` FROM t /* CALL */",
        b"UPDATE t SET v = 'please call', role = 1",
    ],
)
def test_words_that_only_look_like_it_do_not_look_back(text: bytes) -> None:
    assert not may_look_back(text)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("SELECT v FROM t", False),
        ("select `v` from `t`", False),
        ("SELECT 'a'", True),
        ("SELECT 1 FROM DUAL", True),
        ("START TRANSACTION", True),
    ],
)
def test_what_reads_no_table_keeps_the_warnings(text: str, kept: bool) -> None:
    packet = query_packet(text.encode(), CAPABILITIES)
    diagnostics = Diagnostics()
    assert not diagnostics.may_be_kept(packet)
    ran(diagnostics, "SET sql_mode = ''", OK_WITH_A_WARNING)
    assert diagnostics.may_be_kept(packet) is kept


def test_any_statement_may_count_the_warnings_that_a_hit_would_have_taken_away() -> None:
    diagnostics = Diagnostics()
    ran(diagnostics, "SET sql_mode = ''", OK_WITH_A_WARNING)
    diagnostics.hit(READ, READ, 1)
    assert misses(diagnostics, "INSERT INTO t VALUES (1)")
    diagnostics.missing(CAPABILITIES, limited=False)
    diagnostics.hit(READ, READ, 1)
    assert not misses(diagnostics, "INSERT INTO t VALUES (1)")


def test_what_is_owed_for_aggregates_is_bounded() -> None:
    """However many come one after another, and however long they are."""
    diagnostics = after_hit(rows=3)
    diagnostics.mariadb = True
    sum_, max_ = (
        query_packet(b"SELECT %b(v) FROM t" % each, CAPABILITIES) for each in (b"SUM", b"MAX")
    )
    for packet_ in (sum_, max_) * 1_000:
        diagnostics.hit(packet_, packet_, 1)
    three = diagnostics.missing(CAPABILITIES, limited=False)
    assert len(three) == 3
    assert three[1:] == [sum_, max_]
    diagnostics.hit(READ, READ, 3)
    for number in range(1_000):
        long = query_packet(b"SELECT SUM(v) FROM t WHERE a = %d" % number, CAPABILITIES)
        diagnostics.hit(long, long, 1)
    assert sum(map(len, diagnostics.missing(CAPABILITIES, limited=False))) < 5_000


@pytest.mark.parametrize("aggregate", [b"COUNT", b"ST_COLLECT"])
def test_an_aggregate_of_no_rows_may_keep_what_was_found(aggregate: bytes) -> None:
    assert may_keep_rows(b"SELECT %b(g) FROM t WHERE a = 5" % aggregate)
    assert not may_keep_rows(b"SELECT %b(g) FROM t WHERE a = 5 GROUP BY b" % aggregate)
