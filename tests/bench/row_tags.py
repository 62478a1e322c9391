"""What answers told apart by rows bring: the share of reads that are hits, and what they cost, with
`cache.row_tags` off and on, by proxies in turns on each kind of server.

Of the reads that can be cached: a query that no cache could answer is none of them, nor is one of a
transaction that has written or locked before, which sees what no one else sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from sqlcache.demo.servers import PrivateMemcached, PrivateSqlcache, PrivateSqlServer
from tests.bench.binlog import SERVERS
from tests.bench.pace import Pace
from tests.bench.results import Figures, Row
from tests.bench.tpcc import Tpcc
from tests.bench.visits import visits
from tests.bench.works import ACCOUNT, TURNS, Load, Oltp, Place, Work
from tests.servers import PATIENT, MySQLMissing

PART = "rows"
BY_TABLE, BY_ROW = "tables", "rows"
_RELAYED = "sqlcache_statements_relayed_total"
_PASSED = "sqlcache_bypasses_total"
_CANNOT_BE = {f'{_PASSED}{{reason="{each}"}}' for each in ("not cacheable", "transaction")}
DEADLINE_S = 2
"""Of writes: for so long each of a proxy that has just started forgets all."""
_TIMES = 10  # of a load's seconds: a table's columns are noticed after some reads


def works() -> Sequence[Work]:
    """All that are measured."""
    return Oltp(), Tpcc(), *visits(), *TURNS


def wanted(pace: Pace) -> list[Work]:
    """Those that are to be measured."""
    return [each for each in works() if pace.wants(PART, each.name)]


def fetch(pace: Pace) -> list[str]:
    """Gets what these need, and says what that is. Raises: NotFetched."""
    return [what for each in wanted(pace) for what in each.fetch()]


def measure(folder: Path, pace: Pace) -> list[Row]:
    """Each kind of server by itself, where it is to be had. Raises: WrongPage where a page is not
    what it must be; NotFetched."""
    fetch(pace)
    rows: list[Row] = []
    for name, kind in SERVERS.items():
        here = [each for each in wanted(pace) if each.runs_on(name)]
        if not here:
            continue
        try:
            server = kind(folder / name)
        except MySQLMissing:
            continue
        with server:
            rows += _measure(server, name, folder / f"on-{name}", pace, here)
    return rows


def way(by: str, server: str) -> str:
    """The name of a row's way."""
    return f"by {by}, {server}"


def _measure(
    server: PrivateSqlServer, name: str, folder: Path, pace: Pace, works: Sequence[Work]
) -> list[Row]:
    server.sql(
        f"CREATE USER {ACCOUNT}@'%' IDENTIFIED BY '{ACCOUNT}'; GRANT ALL ON *.* TO {ACCOUNT}@'%'"
    )
    with ExitStack() as stack:
        proxies = {by: _proxy(stack, server, folder / by, by) for by in (BY_TABLE, BY_ROW)}
        runs: list[tuple[Row, Callable[[], Figures]]] = []
        for number, work in enumerate(works):
            for by, proxy in proxies.items():
                schema = f"work_{number}_by_{by}"
                server.sql(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
                place = Place(server, schema, proxy.port, folder / schema)
                load = work.begin(stack, place)
                row = Row(PART, work.name, way(by, name), work.connections)
                runs.append((row, partial(_share, proxy, load, _TIMES * pace.load_s)))
        for number in range(1, pace.passes + 1):
            for row, run_once in runs:
                pace.say(PART, number, pace.passes, f"{row.name}, {row.way}")
                if number == 1:
                    run_once()
                row.repeats.append(run_once())
        return [row for row, _ in runs]


def _proxy(stack: ExitStack, server: PrivateSqlServer, folder: Path, by: str) -> PrivateSqlcache:
    """One that tells answers apart so, with a memcached of its own."""
    node = stack.enter_context(PrivateMemcached(folder / "memcached", 256))
    tags = {"cache__row_tags": by == BY_ROW, "cache__write_deadline_s": DEADLINE_S}
    settings = {**PATIENT, **tags}
    proxy = PrivateSqlcache(folder / "sqlcache", server.service_url, (node.address,), **settings)
    return stack.enter_context(proxy)


def _share(proxy: PrivateSqlcache, load: Load, seconds: float) -> Figures:
    before, cpu_s = proxy.metrics(), proxy.cpu_s()
    load(seconds)
    after, cpu_s = proxy.metrics(), proxy.cpu_s() - cpu_s
    hits, others = reads(before, after)
    relayed = after[_RELAYED] - before[_RELAYED]
    return {"hits_share": hits / (hits + others), "sqlcache_us": 1e6 * cpu_s / (hits + relayed)}


def reads(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[float, float]:
    """How many that can be cached were hits, and how many were not."""

    def more(name: str) -> float:
        return after[name] - before.get(name, 0)

    others = [name for name in after if name.startswith(_PASSED) and name not in _CANNOT_BE]
    return more("sqlcache_hits_total"), more("sqlcache_misses_total") + sum(map(more, others))
