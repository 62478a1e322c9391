"""What each kind of statement costs: CPU time of every process, answers a second and latencies.

The same load goes through sqlcache, to MariaDB itself, to the floor and to memcached, in turns, in
passes over all of it. All servers and the generator share one CPU: to wake another one takes a
virtual machine longer than a cache hit does, and would be counted as the server's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import NamedTuple

from sqlcache.demo.measure import on_one_cpu
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateServer, PrivateSqlcache
from tests.bench import kinds
from tests.bench.kinds import KINDS, Kind
from tests.bench.pace import Pace
from tests.bench.programs import Floor, Generator, Target, compiled
from tests.bench.results import Row
from tests.servers import PATIENT

PART = "statements"
_WARM_S = 0.2
_FILLING = 8
_D_KIND = next(kind for kind in KINDS if kind.name == kinds.HIT)
_D_EVERY = 10
_ROOM = ("--max-connections=1000",)  # those of the last load may still be ending
_NEW = count(time.time_ns(), 10**9)  # texts that no earlier load has sent


class Way(NamedTuple):
    """Where a load goes, and the processes that work for it, by the names of their figures."""

    target: Target
    servers: Mapping[str, PrivateServer]


class Statements:
    """The servers, and the loads on them."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._generator = Generator(compiled("load", folder))
        mariadb = stack.enter_context(PrivateMariaDB(folder / "mariadb", _ROOM))
        memcached = stack.enter_context(PrivateMemcached(folder / "memcached", 256))
        _fill(mariadb)
        proxy, unplanned = (
            stack.enter_context(
                PrivateSqlcache(
                    folder / name,
                    mariadb.service_url,
                    (memcached.address,),
                    cache__ttl_s=86_400,
                    rules=[{"user": "bounded", "max_staleness_ms": 1_000}],
                    **PATIENT,
                    **settings,
                )
            )
            for name, settings in (("sqlcache", {}), ("unplanned", _FORGETFUL))
        )
        behind: dict[str, PrivateServer] = {"memcached": memcached, "mariadb": mariadb}
        through = Way(Target(proxy.port), {"sqlcache": proxy, **behind})
        self._ways = {
            kinds.DIRECT: Way(Target(mariadb.port), {"mariadb": mariadb}),
            kinds.STRICT: through,
            kinds.BOUNDED: Way(Target(proxy.port, user="bounded"), through.servers),
            kinds.UNPLANNED: Way(Target(unplanned.port), {"sqlcache": unplanned, **behind}),
            kinds.MEMCACHED: Way(Target(memcached.port), {"memcached": memcached}),
        }
        program = compiled("floor", folder)
        self._floors = {
            rows: stack.enter_context(Floor(folder / f"floor-{rows}", program, rows, kinds.WIDTH))
            for rows in (1, 100, 1_000)
        }
        for rows in self._floors:
            value = b"x" * (rows * (kinds.WIDTH + 5) + 70)  # as many bytes as the answer has
            memcached.ask(b"set %d 0 0 %d\r\n%b\r\n" % (rows, len(value), value), b"STORED\r\n")
        self._filled: set[tuple[str, str]] = set()

    def load(self, kind: Kind, way: str, connections: int, seconds: float) -> dict[str, float]:
        """One repeat. Of hits `missed` says how many were none, for each answer; those before the
        measuring began are among them."""
        where = self._way(kind, way)
        if kind.hits and way not in (kinds.DIRECT, kinds.FLOOR, kinds.MEMCACHED):
            self._fill_cache(kind, way, where)
        options = [f"--connections={connections}", f"--warm={_WARM_S}"]
        options += [f"--get={kind.rows}"] if way == kinds.MEMCACHED else kind.options(next(_NEW))
        pids = {name: server.pid for name, server in where.servers.items()}
        misses = self._misses(where)
        load = self._generator.run(where.target, options, seconds, pids)
        missed = {"missed": (self._misses(where) - misses) / load.answered} if kind.hits else {}
        cpu = {f"{name}_us": value for name, value in load.cpu_us.items()}
        timed = {"rate": load.rate, "p50_us": load.p50_us, "p95_us": load.p95_us}
        return {**timed, **cpu, **missed}

    def _way(self, kind: Kind, way: str) -> Way:
        if way != kinds.FLOOR:
            return self._ways[way]
        floor = self._floors[kind.rows]
        return Way(Target(floor.port), {"floor": floor})

    def _fill_cache(self, kind: Kind, way: str, where: Way) -> None:
        """Asks once for every answer, so that each load of the kind finds them."""
        if (kind.name, way) not in self._filled:
            self._filled.add((kind.name, way))
            texts = tuple(text.replace("{id}", "{next}") for text in kind.statements)
            options = kind._replace(statements=texts).options(1)
            # Twice: what a first look-up only takes note of, a second one keeps.
            answers = 2 * kind.ids * (1 if kind.connects else len(texts))
            options += [f"--connections={_FILLING}", f"--count={answers}"]
            self._generator.run(where.target, options, 60, {})

    def _misses(self, where: Way) -> float:
        proxy = where.servers.get("sqlcache")
        if not isinstance(proxy, PrivateSqlcache):
            return 0
        return proxy.metrics()["sqlcache_misses_total"]


_FORGETFUL = {"proxy__statements_bytes": 1_048_576}


def _fill(mariadb: PrivateMariaDB) -> None:
    mariadb.sql("CREATE DATABASE bench")
    for user in ("bench", "bounded"):
        mariadb.sql(f"CREATE USER {user}@'%' IDENTIFIED BY 'bench'")
        mariadb.sql(f"GRANT ALL ON bench.* TO {user}@'%'")
    mariadb.sql(f"CREATE TABLE t (id INT PRIMARY KEY, c CHAR({kinds.WIDTH}))", "bench")
    rows = f"seq_1_to_{kinds.MANY_IDS}"
    mariadb.sql(f"INSERT INTO t SELECT seq, REPEAT('x', {kinds.WIDTH}) FROM {rows}", "bench")
    mariadb.sql("CREATE TABLE w (id INT PRIMARY KEY, n INT)", "bench")
    mariadb.sql(f"INSERT INTO w SELECT seq, 0 FROM seq_1_to_{kinds.IDS}", "bench")
    mariadb.sql("CREATE TABLE log (id INT AUTO_INCREMENT PRIMARY KEY, n BIGINT)", "bench")


def planned(pace: Pace) -> list[tuple[Kind, str, int]]:
    """What is to be measured: each kind, each way, with each number of connections; and, whatever
    is wanted, what all else is a part of."""
    return [
        (kind, way, connections)
        for kind in KINDS
        for connections in kind.connections
        for way in kind.ways
        if pace.wants(PART, kind.name) or (kind.name, way, connections) == kinds.D
    ]


def measure(folder: Path, pace: Pace) -> list[Row]:
    """Passes over all kinds and ways. What all else is a part of is measured again and again in
    each pass, and has the medians: the machine may be slower for a part of it."""
    if not any(pace.wants(PART, kind.name) for kind in KINDS):
        return []
    loads = planned(pace)
    rows = [Row(PART, kind.name, way, connections) for kind, way, connections in loads]
    with on_one_cpu([]), ExitStack() as stack:  # what is started from here on stays there
        bench = Statements(stack, folder)
        for number in range(1, pace.passes + 1):
            d = Row(PART, *kinds.D)
            for at, ((kind, way, connections), row) in enumerate(zip(loads, rows, strict=True)):
                pace.say(PART, number, pace.passes, f"{kind.name}, {way}, {connections}")
                if at % _D_EVERY == 0:
                    d.repeats.append(bench.load(_D_KIND, kinds.DIRECT, kinds.MANY, pace.load_s))
                if row.id != d.id:
                    row.repeats.append(bench.load(kind, way, connections, pace.load_s))
            next(row for row in rows if row.id == d.id).repeats.append(d.median)
    return rows
