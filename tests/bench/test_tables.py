from tests.bench import binlog, kinds, memory, pages, python_api, row_tags, sysbench
from tests.bench.kinds import KINDS
from tests.bench.results import Result, Row
from tests.bench.tables import TABLES, Table, costs, short, summary
from tests.bench.works import Oltp


def whole_run() -> Result:
    """A run with a row of each kind and way, in which every repeat measured the same: sqlcache
    takes twice the time of the floor, and MariaDB twice that."""
    figures = {"rate": 100.0, "p50_us": 50.0, "p95_us": 60.0, "floor_us": 10.0, "missed": 0.0}
    servers = {"sqlcache_us": 20.0, "memcached_us": 4.0, "mariadb_us": 40.0}
    rows = [
        Row("statements", kind.name, way, connections, [figures | servers])
        for kind in KINDS
        for way in kind.ways
        for connections in kind.connections
    ]
    for way in sysbench.WAYS:
        repeat = {"rate": 1e4 if way == sysbench.DIRECT else 8e3, "p95_ms": 2.0, "errors": 0.0}
        rows.append(Row("sysbench", "oltp_point_select, text", way, 16, [repeat]))
    held = {"own_bytes": 5e6, "whole_bytes": 6e6}
    rows.append(Row("memory", memory.IDLE, "1 process", 1, [held]))
    spent = {"cpu_us": 10.0, "passed_us": 20.0}
    rows.append(Row("python", python_api.BY_HAND, python_api.WAY, 1, [spent]))
    shown = {"p50_us": 4e4, "pages": 9.0, "upstream": 36.0, **servers}
    rows += [Row("pages", "WordPress: front", way, 4, [shown]) for way in pages.WAYS]
    for by, share in ((row_tags.BY_TABLE, 0.02), (row_tags.BY_ROW, 0.4)):
        told = {"hits_share": share, "sqlcache_us": 20.0}
        rows.append(Row("rows", Oltp.name, row_tags.way(by, "MySQL"), 8, [told]))
    late = {"p50_ms": 3.0, "p99_ms": 9.0, "longest_ms": 12.0}
    name = binlog.delay(binlog.CHANGES[0])
    rows.append(Row("binlog", name, binlog.MARIADB, binlog.READERS, [late]))
    rates = {"events_rate": 4e4, "row_events_rate": 1e4, "bytes_rate": 2e6, "event_cpu_us": 10.0}
    followed = {**rates, "more_bytes": 3e6, "took_s": 2.0}
    rows.append(Row("binlog", "follower, small ones", binlog.MARIADB, 1, [followed]))
    for way, share in ((binlog.OFF, 0.9), (binlog.AUTO, 0.89)):
        shared = {"hits_share": share, "rate": 100.0, "sqlcache_us": 20.0}
        rows.append(Row("binlog", binlog.HITS, way, binlog.READERS, [shared]))
    about = {"date": "2026-01-31", "machine": "a machine", "versions": "MariaDB 11", "load": 0.1}
    paces = {"passes": 3, "load_s": 0.3, "sysbench_passes": 1, "sysbench_s": 2}
    return Result(about | paces, rows)


def test_a_table_is_written_as_markdown() -> None:
    table = Table("numbers", ("", "of d"), [["hit", "0.50"]])
    assert table.markdown() == "|  | of d |\n| --- | --- |\n| hit | 0.50 |\n"


def test_a_ratio_has_the_digits_that_it_can_be_trusted_for() -> None:
    assert [short(value) for value in (0.001, 0.456, 0.996, 4.56, 9.96, 4560)] == [
        *("-", "0.46", "1.0", "4.6", "10", "4,560")
    ]


def test_each_table_has_as_many_cells_as_headings() -> None:
    for name, make in TABLES.items():
        table = make(whole_run())
        assert table.rows, name
        assert {len(row) for row in table.rows} == {len(table.headings)}, name


def test_costs_are_parts_of_what_mariadb_takes_for_a_point_select() -> None:
    table = costs(whole_run())
    assert table.title == "CPU time a statement, 32 connections; d = 40 µs"
    assert table.rows[0] == ["hit", "0.50", "0.50", "0.10", "1.0", "1.0", "1.0"]
    assert len(table.rows) == len(KINDS), "every kind is measured with 32 connections"


def test_hits_that_were_none_are_told() -> None:
    result = whole_run()
    row = result.find("statements", kinds.HIT, kinds.STRICT, 32)
    assert row is not None
    row.repeats[:] = [{**row.repeats[0], "missed": 0.25}]
    assert costs(result).rows[0][0] == "hit (25% missed)"


def test_what_was_not_measured_has_no_row() -> None:
    assert [name for name, make in TABLES.items() if make(Result({})).rows] == []
    d_alone = Result({}, [whole_run().find("statements", *kinds.D) or Row("", "", "", 0)])
    assert costs(d_alone).rows == []


def test_the_summary_tells_some_of_the_costs() -> None:
    result = whole_run()
    told = [row[0] for row in summary(result).rows]
    assert kinds.HIT in told
    assert kinds.CONNECT in told
    assert len(told) < len(costs(result).rows) / 2


def test_kinds_are_told_apart_by_their_names() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)


def test_what_is_written_around_sqlcache_has_its_delays_and_what_that_costs() -> None:
    made = {name: TABLES[name](whole_run()).rows for name in ("delays", "follower", "followed")}
    assert made["delays"] == [["rows", "3", "9", "12", "-", "-", "-"]]
    assert made["follower"] == [
        ["small ones, MariaDB", "10.0", "40,000", "10,000", "25,000", "2", "3.0"]
    ]
    assert made["followed"][1] == ["binlog.follow = auto", "89.00%", "1.00", "1.00"]


def test_what_rows_bring_stands_beside_tables() -> None:
    assert TABLES["rows"](whole_run()).rows == [
        ["sysbench oltp_read_write, MySQL", "2%", "40%", "1.00"]
    ]
