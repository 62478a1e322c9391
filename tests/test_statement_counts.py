import asyncio
import gc
import tracemalloc
from typing import Any

import pytest

from sqlcache.metrics import Metrics
from sqlcache.statement_counts import LONGEST_TEXT, MOST_ROWS, StatementCounts, Statements, merged

ROOM = 3_000_000


def reported(statements: Statements) -> list[dict[str, Any]]:
    return asyncio.run(statements.report())


def called(counts: StatementCounts, times: int) -> None:
    for _ in range(times):
        counts.missed(Metrics())


def test_statements_of_a_shape_share_a_row_prepared_or_not() -> None:
    statements = Statements(ROOM)
    text = statements.of(b"SELECT * FROM t WHERE id = ?", "read")
    assert statements.of(b"SELECT * FROM t WHERE id = ??", "read") is text
    assert statements.of(b"SELECT * FROM u WHERE id = ?", "read") is not text


def test_a_row_tells_a_schema_that_its_statements_came_with() -> None:
    statements = Statements(ROOM)
    row = statements.of(b"SELECT * FROM t", "read")
    for schema in (None, "shop", "other"):
        assert statements.of(b"SELECT * FROM t", "read", schema) is row
    assert row.schema == "shop"
    nowhere = StatementCounts("SELECT * FROM t", "read").report()
    (together,) = merged([[nowhere], [row.report()], [nowhere]])
    assert together["schema"] == "shop"


def test_a_row_counts_what_the_metrics_count() -> None:
    metrics, counts = Metrics(), StatementCounts("SELECT ?", "read")
    counts.hit(metrics, 0.0, 100)
    counts.missed(metrics)
    counts.took(metrics, 0.0, 50)
    counts.went_past(metrics, "not cacheable", "calls NOW()")
    counts.went_past(metrics, "transaction")
    assert (metrics.hits, metrics.misses, metrics.passed["read"]) == (1, 1, 2)
    assert dict(metrics.bypasses) == {"not cacheable": 1, "transaction": 1}
    assert sum(metrics.hit_seconds.counts) == sum(metrics.upstream_seconds.counts) == 1
    (row,) = merged([[counts.report()]])
    assert (row["calls"], row["hits"], row["misses"], row["bytes"]) == (4, 1, 1, 150)
    assert row["passed"] == {"calls NOW()": 1, "transaction": 1}


def test_reasons_of_a_row_are_few() -> None:
    metrics, counts = Metrics(), StatementCounts("SELECT ?", "read")
    for number in range(100):
        counts.went_past(metrics, "not cacheable", f"reason {number}")
    assert len(counts.passed) < 10
    assert counts.passed.total() == 100


def test_long_reasons_are_cut_and_count() -> None:
    metrics, counts = Metrics(), StatementCounts("SELECT ?", "read")
    before = counts.size_bytes
    counts.went_past(metrics, "not cacheable", "calls " + 100_000 * "x")
    (why,) = counts.passed
    assert len(why) < 300
    assert counts.size_bytes >= before + len(why)


def test_what_is_sent_often_stays_through_any_number_of_others() -> None:
    statements = Statements(ROOM)
    called(statements.of(b"often", "read"), 100)
    for number in range(10 * MOST_ROWS):
        called(statements.of(b"once %d" % number, "read"), 1)
    gc.collect()
    rows = reported(statements)
    assert rows[0]["statement"] == "often"
    assert rows[0]["misses"] == 100
    assert len(rows) <= MOST_ROWS + 1


def test_who_makes_a_long_report_lets_others_have_their_turns() -> None:
    statements = Statements(ROOM)
    planned = [statements.of(b"planned %d" % number, "read") for number in range(3 * MOST_ROWS)]
    for row in planned:
        called(row, 1)

    async def turns_meanwhile() -> int:
        report = asyncio.create_task(statements.report())
        turns = 0
        while not report.done():
            await asyncio.sleep(0)
            turns += 1
        assert len(await report) == MOST_ROWS
        return turns

    assert asyncio.run(turns_meanwhile()) > 10


def test_a_row_that_left_the_list_is_back_when_it_counts_more() -> None:
    statements = Statements(ROOM)
    planned = statements.of(b"later", "read")  # as a plan refers to it
    for number in range(3 * MOST_ROWS):
        called(statements.of(b"more %d" % number, "read"), 2)
    called(planned, 50)
    assert reported(statements)[0]["statement"] == "later"


@pytest.mark.parametrize("length", [20, 50_000])
def test_however_many_and_long_they_are_the_list_keeps_within_its_bytes(length: int) -> None:
    room = 400_000
    statements = Statements(room)
    metrics = Metrics()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(5_000):
            counts = statements.of(b"%0*d" % (length, number), "read")
            counts.hit(metrics, 0.0, 1)
            counts.took(metrics, 0.0, 1)
            counts.went_past(metrics, "not cacheable", "why")
        del counts
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert statements.size_bytes <= room
    assert taken < 1.1 * room
    assert all(len(row["statement"]) <= LONGEST_TEXT + 1 for row in reported(statements))


def test_rows_of_several_processes_are_added() -> None:
    metrics, one, other = Metrics(), StatementCounts("DO ?", "other"), StatementCounts("DO ?", "x")
    alike = StatementCounts("DO ?", "other")
    one.went_past(metrics, "a")
    alike.went_past(metrics, "a")
    alike.went_past(metrics, "b")
    other.missed(Metrics())
    first, second = merged([[one.report(), other.report()], [alike.report()]])
    assert (first["kind"], first["passed"], first["why_not"]) == ("other", {"a": 2, "b": 1}, "a")
    assert (second["kind"], second["calls"], second["why_not"]) == ("x", 1, None)


def test_times_are_told_as_means_and_bounds() -> None:
    report = StatementCounts("SELECT ?", "read").report()
    counts = [0] * 19
    counts[2], counts[5] = 99, 1  # up to 50 µs, up to 1 ms
    report |= {"hits": 100, "hit_seconds": {"counts": counts, "sum_s": 0.005}}
    report |= {"mysql_seconds": {"counts": counts, "sum_s": 0.105}}
    (row,) = merged([[report]])
    assert row["hit_mean_s"] == pytest.approx(0.00005)
    assert row["hit_p99_s"] == pytest.approx(0.00005)
    assert row["saved_s"] == pytest.approx(0.1)
    (none,) = merged([[StatementCounts("SELECT ?", "read").report()]])
    assert (none["hit_mean_s"], none["mysql_p99_s"], none["saved_s"]) == (None, None, None)
