"""What a run's rows say, as tables: for the terminal and for the documents.

All CPU time is told as a part of d: what MariaDB takes for a point select that is sent to it
directly, by 32 connections, in the same pass. On a busy machine only ratios mean something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.bench import binlog, kinds, memory, pages, python_api, row_tags, statements, sysbench
from tests.bench.kinds import FEW, KINDS, MANY, MOST, Kind
from tests.bench.results import Figures, Result, Row

NONE = "-"
_SERVERS = ("sqlcache_us", "memcached_us", "mariadb_us")
_NO_HIT = 0.01  # a row of hits with more misses than that says something else


@dataclass(frozen=True, slots=True)
class Table:
    """Cells, the first of each row its heading. No rows: nothing of it was measured."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        lines = [self.headings, ["---"] * len(self.headings), *self.rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def short(value: float | None) -> str:
    """A ratio with the digits that it can be trusted for."""
    if value is None or value < 0.005:
        return NONE
    if value < 0.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 9.95 else f"{value:,.0f}"


def figure(name: str) -> Callable[[Figures], float]:
    """One figure of a repeat; 0 where it has none of that name."""
    return lambda figures: figures.get(name, 0.0)


def of_servers(figures: Figures) -> float:
    """The CPU time of all servers an answer."""
    return sum(figures.get(name, 0.0) for name in _SERVERS)


class Figured:
    """A run's statements, as parts of what they are measured by."""

    def __init__(self, result: Result) -> None:
        self._result = result
        name, way, connections = kinds.D
        self._d = result.find(statements.PART, name, way, connections)

    @property
    def d_us(self) -> float | None:
        return None if self._d is None else self._d.median["mariadb_us"]

    def row(self, kind: Kind, way: str, connections: int) -> Row | None:
        return self._result.find(statements.PART, kind.name, way, connections)

    def of_d(self, row: Row | None, measure: Callable[[Figures], float]) -> str:
        if row is None or self._d is None:
            return NONE
        return short(row.ratio(measure, self._d, figure("mariadb_us")))

    def of(self, row: Row | None, other: Row | None, measure: Callable[[Figures], float]) -> str:
        """A measure of one row, as a part of the same of another."""
        return NONE if row is None or other is None else short(row.ratio(measure, other, measure))

    def floors(self, row: Row | None, floor: Row | None, name: str) -> str:
        """A process's CPU time, as parts of the floor's."""
        if row is None or floor is None:
            return NONE
        return short(row.ratio(figure(name), floor, figure("floor_us")))


def costs(result: Result) -> Table:
    """CPU time of each kind of statement with 32 connections."""
    figured = Figured(result)
    rows = []
    for kind in KINDS:
        strict = kinds.UNPLANNED if kinds.UNPLANNED in kind.ways else kinds.STRICT
        through = figured.row(kind, strict, MANY)
        if through is None:
            continue
        bounded = figured.row(kind, kinds.BOUNDED, MANY)
        direct = figured.row(kind, kinds.DIRECT, MANY)
        cells = [figured.of_d(through, figure(name)) for name in _SERVERS]
        cells.insert(1, figured.of_d(bounded, figure("sqlcache_us")))
        cells.append(figured.of_d(direct, figure("mariadb_us")))
        cells.append(figured.of(through, direct, figure("rate")))
        rows.append([kind.name + _doubt(kind, through), *cells])
    headings = (
        *("statement", "sqlcache, of d", "bounded", "and memcached", "MariaDB through sqlcache"),
        *("MariaDB directly", "answers/s, of direct's"),
    )
    told = "" if figured.d_us is None else f"; d = {figured.d_us:.0f} µs"
    return Table(f"CPU time a statement, {MANY} connections{told}", headings, rows)


def _doubt(kind: Kind, row: Row) -> str:
    missed = row.median.get("missed", 0)
    return f" ({missed:.0%} missed)" if kind.hits and missed > _NO_HIT else ""


def floors(result: Result) -> Table:
    """CPU time as parts of what a server in C takes that answers with the same rows."""
    figured = Figured(result)
    ways = {
        "hit": ("hit", kinds.STRICT, "sqlcache_us"),
        "hit, bounded": ("hit", kinds.BOUNDED, "sqlcache_us"),
        "passed through": ("passed through", kinds.STRICT, "sqlcache_us"),
        "memcached's own get": ("hit", kinds.MEMCACHED, "memcached_us"),
        "MariaDB, directly": ("hit", kinds.DIRECT, "mariadb_us"),
    }
    columns = [(size, form) for size in (1, 100, 1_000) for form in (False, True)]
    by_form = {(kind.name.partition(" ")[0].strip(","), kind.rows, kind.prepared): kind
               for kind in reversed(KINDS) if kind.name.startswith(("hit", "passed"))}  # fmt: skip
    rows = []
    for told, (name, way, process) in ways.items():
        cells = []
        for size, form in columns:
            kind = by_form[name.partition(" ")[0], size, form]
            floor = figured.row(by_form["hit", size, form], kinds.FLOOR, MANY)
            cells.append(figured.floors(figured.row(kind, way, MANY), floor, process))
        if set(cells) != {NONE}:
            rows.append([told, *cells])
    headings = [f"{size:,} row{'s' * (size > 1)}, {('text', 'prepared')[form]}"
                for size, form in columns]  # fmt: skip
    return Table(f"CPU time in C floors, {MANY} connections", ["", *headings], rows)


def connections(result: Result) -> Table:
    """CPU time of sqlcache, and of MariaDB directly, with few and many connections."""
    figured = Figured(result)
    counts = (FEW, MANY, MOST)
    rows = []
    for kind in KINDS:
        if set(kind.connections) != set(counts):
            continue
        for way in (w for w in kind.ways if w in (kinds.STRICT, kinds.BOUNDED)):
            through = [figured.row(kind, way, each) for each in counts]
            direct = [figured.row(kind, kinds.DIRECT, each) for each in counts]
            if any(through):
                told = kind.name + ", bounded" * (way == kinds.BOUNDED)
                own = [figured.of_d(row, figure("sqlcache_us")) for row in through]
                theirs = [figured.of_d(row, figure("mariadb_us")) for row in direct]
                rows.append([told, *own, *theirs])
    headings = [f"{who}, {each}" for who in ("sqlcache", "MariaDB directly") for each in counts]
    return Table("CPU time a statement, of d, by the number of connections", ["", *headings], rows)


def latencies(result: Result) -> Table:
    """How long an answer takes one client that is alone."""
    figured = Figured(result)
    rows = []
    for kind in (kind for kind in KINDS if FEW in kind.connections):
        direct = figured.row(kind, kinds.DIRECT, FEW)
        floor = next(
            (figured.row(each, kinds.FLOOR, FEW) for each in KINDS
             if each.rows == kind.rows and kinds.FLOOR in each.ways), None
        )  # fmt: skip
        for way in (w for w in kind.ways if w != kinds.DIRECT):
            row = figured.row(kind, way, FEW)
            if row is None:
                continue
            told = kind.name if way == kinds.STRICT else f"{kind.name}: {way.split(', ')[-1]}"
            times = [_us(row, "p50_us"), _us(row, "p95_us"), _us(direct, "p50_us")]
            comparable = not kind.connects
            in_floors = figured.of(row, floor, figure("p50_us")) if comparable else NONE
            rows.append([told, *times, _us(direct, "p95_us"), in_floors])
    headings = ("", "p50, µs", "p95, µs", "directly: p50", "p95", "p50, in C floors")
    return Table("an answer's time, 1 connection", headings, rows)


def _us(row: Row | None, name: str) -> str:
    return NONE if row is None else f"{row.median[name]:,.0f}"


def worst(result: Result) -> Table:
    """What an app gets that does nothing but what is dear."""
    figured = Figured(result)
    names = (kinds.MISS, kinds.MISS_1000, kinds.UPDATE, kinds.INSERT, kinds.CONNECT)
    rows = []
    for kind in (kind for kind in KINDS if kind.name in names):
        row, direct = (figured.row(kind, way, MANY) for way in kinds.THROUGH)
        if row is not None:
            measures = (figure("rate"), of_servers, figure("p50_us"), figure("p95_us"))
            rows.append([kind.name, *(figured.of(row, direct, each) for each in measures)])
    headings = ("nothing but", "answers/s", "CPU of all servers", "p50", "p95")
    return Table(f"the worst cases, {MANY} connections, as parts of direct's", headings, rows)


def of_sysbench(result: Result) -> Table:
    """sysbench's tests: queries a second and 95th percentiles as parts of direct's."""
    rows = []
    for row in result.of_part(sysbench.PART):
        if row.way != sysbench.DIRECT:
            continue
        told = [f"{row.median['rate']:,.0f}", f"{row.median['p95_ms']:.2f} ms"]
        for way in (sysbench.ONE, sysbench.TWO):
            through = result.find(sysbench.PART, row.name, way, row.connections)
            if through is not None:
                measures = (figure("rate"), figure("p95_ms"))
                told += [short(through.ratio(each, row, each)) for each in measures]
        rows.append([row.name, *told])
    headings = ("test", "direct: queries/s", "p95", "1 worker: of direct's queries/s", "of its p95",
                "2 workers: of direct's queries/s", "of its p95")  # fmt: skip
    return Table(f"sysbench, {sysbench.THREADS} threads, all CPUs", headings, rows)


def of_memory(result: Result) -> Table:
    """What sqlcache's processes hold."""
    rows = []
    for row in result.of_part(memory.PART):
        told = row.median
        scale, unit = (1e6, "MB") if row.name == memory.IDLE else (1e3, "kB")
        shown = [f"{told['own_bytes'] / scale:,.1f} {unit}"]
        for name in ("whole_bytes", "memcached_bytes", "mariadb_bytes"):
            shown.append(f"{told[name] / scale:,.1f} {unit}" if name in told else NONE)
        rows.append([f"{row.name}, {row.way}", *shown])
    headings = ("", "sqlcache's own", "with pages of files", "memcached", "MariaDB")
    return Table("memory", headings, rows)


def of_python(result: Result) -> Table:
    """A hit from Python, as the app's own CPU time and the time that passed."""
    rows = []
    for row in result.of_part(python_api.PART):
        hand = result.find(python_api.PART, python_api.BY_HAND, row.way, row.connections)
        if hand is not None:
            ratio = short(row.ratio(figure("cpu_us"), hand, figure("cpu_us")))
            cells = [_us(row, "cpu_us"), _us(row, "passed_us"), ratio]
            rows.append([f"{row.name}, {row.connections} at once", *cells])
    headings = ("", "CPU, µs", "passed, µs", "CPU, times by hand")
    return Table(f"a hit of {python_api.WAY}", headings, rows)


def of_pages(result: Result) -> Table:
    """Pages of apps: how long they take through sqlcache, and what CPU time the servers do."""
    rows = []
    for direct in result.of_part(pages.PART):
        through = result.find(pages.PART, direct.name, pages.THROUGH, direct.connections)
        if direct.way != pages.DIRECT or through is None:
            continue
        own, theirs = through.median, direct.median
        clients = f"{direct.connections} client{'s' * (direct.connections > 1)}"
        rows.append(
            [
                f"{direct.name}, {clients}",
                _ms(theirs["p50_us"]),
                f"{through.ratio(figure('p50_us'), direct, figure('p50_us')):.2f}",
                *(_ms(told["mariadb_us"]) for told in (theirs, own)),
                *(_ms(own[name]) for name in ("sqlcache_us", "memcached_us")),
                f"{through.ratio(of_servers, direct, figure('mariadb_us')):.2f}",
                f"{theirs['upstream']:.1f}",
                f"{own['upstream']:.1f}",
            ]
        )
    headings = ("page", "directly, ms", "through, of it", "MariaDB directly: CPU, ms",
                "through", "sqlcache", "memcached", "all three, of MariaDB's directly",
                "statements to MariaDB directly", "through")  # fmt: skip
    return Table("pages: medians, and CPU time a page", headings, rows)


def of_delays(result: Result) -> Table:
    """How soon what is written around sqlcache is seen."""
    rows = []
    for change in binlog.CHANGES:
        cells = []
        for server in binlog.SERVERS:
            row = result.find(binlog.PART, binlog.delay(change), server, binlog.READERS)
            told = {} if row is None else row.median
            names = ("p50_ms", "p99_ms", "longest_ms")
            cells += [f"{told[name]:,.0f}" if name in told else NONE for name in names]
        if set(cells) != {NONE}:
            rows.append([change.name, *cells])
    headings = [f"{server}: {what}, ms" for server in binlog.SERVERS
                for what in ("p50", "p99", "longest")]  # fmt: skip
    return Table(
        "from the OK of a write around sqlcache to a read that shows it", ["", *headings], rows
    )


def of_follower(result: Result) -> Table:
    """What it costs to follow the log."""
    rows = []
    for row in result.of_part(binlog.PART):
        if not row.name.startswith(binlog.FOLLOWER):
            continue
        told = row.median
        per_core = 1e6 / told["event_cpu_us"]
        of_rows = told["row_events_rate"] / told["events_rate"]
        rows.append(
            [
                f"{row.name.partition(', ')[2]}, {row.way}",
                f"{told['event_cpu_us']:.1f}",
                f"{told['events_rate']:,.0f}",
                f"{told['row_events_rate']:,.0f}" if of_rows else NONE,
                f"{per_core * of_rows:,.0f}" if of_rows else NONE,
                f"{told['bytes_rate'] / 1e6:,.0f}",
                f"{told['more_bytes'] / 1e6:,.1f}",
            ]
        )
    headings = ("", "CPU an event, µs", "events/s", "events of rows/s", "a core's worth of these",
                "MB/s", "more memory, MB")  # fmt: skip
    return Table("catching up with the log", headings, rows)


def of_hits(result: Result) -> Table:
    """What following the log takes of the hits of who writes through sqlcache."""
    rows = []
    off = result.find(binlog.PART, binlog.HITS, binlog.OFF, binlog.READERS)
    for row in result.of_part(binlog.PART):
        if row.name == binlog.HITS and off is not None:
            told = row.median
            ratios = [
                row.ratio(figure(name), off, figure(name)) for name in ("rate", "sqlcache_us")
            ]
            cells = [f"{told['hits_share']:.2%}", *(f"{each:.2f}" for each in ratios)]
            rows.append([f"binlog.follow = {row.way}", *cells])
    headings = ("", "hits", "statements/s, of off's", "sqlcache's CPU, of off's")
    return Table("hits with and without the log", headings, rows)


def _ms(microseconds: float) -> str:
    return f"{microseconds / 1e3:.1f}"


def of_rows(result: Result) -> Table:
    """What it brings to tell answers apart by rows."""
    rows = []
    for row in result.of_part(row_tags.PART):
        by, server = row.way.removeprefix("by ").split(", ")
        whole = result.find(*(row.part, row.name), row_tags.way(row_tags.BY_TABLE, server),
                            row.connections)  # fmt: skip
        if by != row_tags.BY_ROW or whole is None:
            continue
        shares = (f"{each.median['hits_share']:.0%}" for each in (whole, row))
        cpu = row.ratio(figure("sqlcache_us"), whole, figure("sqlcache_us"))
        rows.append([f"{row.name}, {server}", *shares, f"{cpu:.2f}"])
    headings = ("", "hits, by tables", "by rows", "sqlcache's CPU a statement, of that by tables")
    return Table("answers told apart by rows", headings, rows)


TABLES: dict[str, Callable[[Result], Table]] = {
    "costs": costs,
    "floors": floors,
    "connections": connections,
    "latencies": latencies,
    "sysbench": of_sysbench,
    "worst": worst,
    "memory": of_memory,
    "python": of_python,
    "pages": of_pages,
    "rows": of_rows,
    "delays": of_delays,
    "follower": of_follower,
    "followed": of_hits,
}
"""By the name of their place in the documents."""

_SUMMARY = (
    *(kinds.HIT, kinds.PREPARED_HIT, "hit of 1,000 rows", kinds.PASSED, kinds.MISS),
    *(kinds.UPDATE, kinds.CONNECT),
)


def summary(result: Result) -> Table:
    """The few rows that tell the most."""
    whole = costs(result)
    columns = (0, 1, 2, 5)
    rows = [[row[at] for at in columns] for row in whole.rows if row[0] in _SUMMARY]
    return Table(whole.title, [whole.headings[at] for at in columns], rows)
