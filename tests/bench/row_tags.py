"""What answers told apart by rows bring: the share of reads that are hits, and what they cost, with
`cache.row_tags` off and on, by proxies in turns on each kind of server.

Of the reads that can be cached: a query that no cache could answer is none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sqlcache.demo.servers import PrivateMemcached, PrivateSqlcache, PrivateSqlServer
from tests.bench import sysbench
from tests.bench.binlog import MARIADB, SERVERS
from tests.bench.pace import Pace
from tests.bench.programs import Generator, Target, compiled
from tests.bench.results import Figures, Row
from tests.servers import PATIENT, MySQLMissing

PART = "rows"
BY_TABLE, BY_ROW = "tables", "rows"
CONNECTIONS = 8
_TEST = "oltp_read_write"
OLTP = f"sysbench {_TEST}"
_SCHEMA = "bench"
_IDS = 200
_RELAYED = "sqlcache_statements_relayed_total"
_CANNOT_BE = "not cacheable"
_TIMES = 10  # of a load's seconds: a table's columns are noticed after some reads

_READ = "SELECT v FROM {table} WHERE id = {{id}}"


class Work(NamedTuple):
    """Statements that each connection sends one after the other, with ids drawn anew."""

    name: str
    statements: Sequence[str]


def _works() -> list[Work]:
    by_id = _READ.format(table="t")
    by_key = "SELECT id, v FROM t WHERE k = {id}"
    update = "UPDATE t SET v = v + 1 WHERE id = {id}"
    number = _READ.format(table="n")
    moves = "UPDATE t SET k = 201 - k WHERE id = {id}"
    return [
        Work("15 reads by id, 1 UPDATE by id", [*[by_id] * 15, update]),
        Work("7 by id and 8 by a key, 1 UPDATE by id", [*[by_id] * 7, *[by_key] * 8, update]),
        Work("15 reads by id, 1 UPDATE of its key", [*[by_id] * 15, moves]),
        Work("15 reads by id, 1 INSERT", [*[number] * 15, "INSERT INTO n (v) VALUES ({id})"]),
    ]


_TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, k INT NOT NULL, v INT NOT NULL, KEY (k));
CREATE TABLE n (id INT AUTO_INCREMENT PRIMARY KEY, v INT NOT NULL)
"""


_NUMBERED = "INSERT INTO n (v) SELECT v FROM t; INSERT INTO n (v) SELECT v FROM t"


def measure(folder: Path, pace: Pace) -> list[Row]:
    """Each kind of server by itself, where it is to be had."""
    works = [each for each in _works() if pace.wants(PART, each.name)]
    if not works and not pace.wants(PART, OLTP):
        return []
    rows: list[Row] = []
    folder.mkdir(parents=True, exist_ok=True)
    generator = Generator(compiled("load", folder))
    for name, kind in SERVERS.items():
        try:
            server = kind(folder / name)
        except MySQLMissing:
            continue
        with server:
            loads = works if name == MARIADB else []  # the generator cannot log in to MySQL
            rows += _measure(server, name, folder / f"of {name}", pace, loads, generator)
    return rows


def way(by: str, server: str) -> str:
    """The name of a row's way."""
    return f"by {by}, {server}"


def _measure(
    server: PrivateSqlServer,
    name: str,
    folder: Path,
    pace: Pace,
    works: Sequence[Work],
    generator: Generator,
) -> list[Row]:
    values = ",".join(f"({id}, {id}, 0)" for id in range(1, _IDS + 1))
    server.sql("CREATE USER bench@'%' IDENTIFIED BY 'bench'; GRANT ALL ON *.* TO bench@'%'")
    rows: list[Row] = []
    with ExitStack() as stack:
        runs: list[tuple[Row, Callable[[], Figures]]] = []
        for by in (BY_TABLE, BY_ROW):
            schema = f"{_SCHEMA}_{by}"
            server.sql(f"CREATE DATABASE {schema}")
            server.sql(f"{_TABLES}; INSERT INTO t VALUES {values}", schema)
            server.sql(
                "INSERT INTO n (v) SELECT v FROM t; INSERT INTO n (v) SELECT 1 FROM t", schema
            )
            node = stack.enter_context(PrivateMemcached(folder / f"memcached-{by}", 256))
            settings = {**PATIENT, "cache__row_tags": by == BY_ROW}
            proxy = PrivateSqlcache(
                folder / f"sqlcache-{by}", server.service_url, (node.address,), **settings
            )
            stack.enter_context(proxy)
            if pace.wants(PART, OLTP):
                sysbench.run_at(server.port, schema, _TEST, "prepare", 0)
                load = partial(_oltp, proxy, schema, round(2 * _TIMES * pace.load_s))
                row = Row(PART, OLTP, way(by, name), CONNECTIONS)
                runs.append((row, partial(_share, proxy, load)))
            for work in works:
                load = partial(_load, generator, proxy, schema, work, _TIMES * pace.load_s)
                row = Row(PART, work.name, way(by, name), CONNECTIONS)
                runs.append((row, partial(_share, proxy, load)))
        for number in range(1, pace.passes + 1):
            for row, run_once in runs:
                pace.say(PART, number, pace.passes, f"{row.name}, {row.way}")
                if number == 1:
                    run_once()
                row.repeats.append(run_once())
        rows += [row for row, _ in runs]
    return rows


def _oltp(proxy: PrivateSqlcache, schema: str, seconds: int) -> None:
    sysbench.run_at(proxy.port, schema, _TEST, "run", seconds, threads=CONNECTIONS)


def _load(
    generator: Generator, proxy: PrivateSqlcache, schema: str, work: Work, seconds: float
) -> None:
    options = [f"--connections={CONNECTIONS}", f"--ids={_IDS}", "--first=1"]
    options += [f"--statement={each}" for each in work.statements]
    generator.run(Target(proxy.port, database=schema), options, seconds, {})


def _share(proxy: PrivateSqlcache, load: Callable[[], object]) -> Figures:
    before, cpu_s = proxy.metrics(), proxy.cpu_s()
    load()
    after, cpu_s = proxy.metrics(), proxy.cpu_s() - cpu_s
    hits, others = _reads(before, after)
    relayed = after[_RELAYED] - before[_RELAYED]
    return {"hits_share": hits / (hits + others), "sqlcache_us": 1e6 * cpu_s / (hits + relayed)}


def _reads(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[float, float]:
    """How many that can be cached were hits, and how many were not."""

    def more(name: str) -> float:
        return after[name] - before.get(name, 0)

    passed = "sqlcache_bypasses_total{"
    others = [name for name in after if name.startswith(passed) and _CANNOT_BE not in name]
    return more("sqlcache_hits_total"), more("sqlcache_misses_total") + sum(map(more, others))
