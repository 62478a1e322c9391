"""What a flood of distinct statements does to the list of statements, and to what a hit costs.

In one process: the list's own bytes under 1,000,000 shapes and under 1,000 of 50 kB, and what
counting a hit costs before and after. Through a proxy: 100,000 shapes and 1,000 of 50 kB, the CPU
time of a hit before and after, and the process's memory. Run as `python -m
tests.bench.statement_flood [--shapes 1000000] [--sent 100000]`; it fails where the list takes more
than it may, or its counting 1 µs a hit.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from time import process_time
from timeit import repeat

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache
from sqlcache.metrics import Metrics
from sqlcache.plan.planner import LIST_SHARE
from sqlcache.statement_counts import MOST_ROWS, StatementCounts, Statements
from tests.bench.memory import resident
from tests.bench.programs import Generator, Target, compiled
from tests.servers import PATIENT

MOST_BYTES = 100_663_296 // LIST_SHARE  # by `proxy.statements_bytes` as it is by default
LONG, LONG_SHAPES = 50_000, 1_000
MOST_US = 1.0
_HITS = 200_000
_SECONDS = 3.0
_PASSES = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", type=int, default=1_000_000, help="in one process (1,000,000)")
    parser.add_argument("--sent", type=int, default=100_000, help="through a proxy (100,000)")
    wanted = parser.parse_args()
    for title, shapes in (
        (f"{wanted.shapes:,} shapes", short_shapes(wanted.shapes)),
        (f"{LONG_SHAPES:,} shapes of {LONG // 1000} kB", long_shapes()),
    ):
        taken = list_bytes(shapes)
        print(f"in one process, {title}: {taken:,} bytes of {MOST_BYTES:,}")
        if taken > MOST_BYTES:
            raise SystemExit("the list takes more than it may")
    before = counting_us(0)
    after = counting_us(wanted.shapes // 10)
    print(f"counting a hit: {before:.2f} µs before and {after:.2f} µs after, less the metrics' own")
    if max(before, after) > MOST_US:
        raise SystemExit(f"expected at most {MOST_US} µs")
    with tempfile.TemporaryDirectory(prefix="sqlcache-bench-") as name:
        through_a_proxy(Path(name), wanted.sent)


def short_shapes(count: int) -> Iterator[bytes]:
    """So many, all different."""
    return (b"SELECT v AS c%d FROM t WHERE id = ?" % number for number in range(count))


def long_shapes() -> Iterator[bytes]:
    """A thousand of 50 kB each, all different."""
    tail = b" FROM t WHERE id = 1 AND v IN (v%b)" % (b",v" * (LONG // 2))
    return (b"SELECT v AS c%d%b" % (number, tail) for number in range(LONG_SHAPES))


def _flooded(statements: Statements, shapes: Iterator[bytes]) -> None:
    """Each is a hit once, and answered by MySQL once: then a row has all that it can have."""
    metrics = Metrics()
    for shape in shapes:
        counts = statements.of(shape, "read")
        counts.hit(metrics, 0.0, 100)
        counts.took(metrics, 0.0, 100)
        counts.went_past(metrics, "not cacheable", "calls NOW()")


def list_bytes(shapes: Iterator[bytes]) -> int:
    """What the list takes after them all, by the allocator."""
    statements = Statements(MOST_BYTES)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    _flooded(statements, shapes)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    told = asyncio.run(statements.report())
    if statements.size_bytes > MOST_BYTES or len(told) > MOST_ROWS + 1:
        raise SystemExit("the list has more rows than it may")
    return taken


def counting_us(shapes: int) -> float:
    """What a row's counting of a hit costs above that of the metrics, after so many shapes."""
    statements, metrics = Statements(MOST_BYTES), Metrics()
    row = statements.of(b"SELECT v FROM t WHERE id = ?", "read")
    row.hit(metrics, 0.0, 1)
    _flooded(statements, short_shapes(shapes))

    def of_metrics() -> None:
        metrics.hits += 1
        metrics.hit_seconds.observe(5e-5)

    def took_us(of: str, counted: StatementCounts) -> float:
        names = {"hit": counted.hit, "metrics": metrics, "alone": of_metrics, "now": 0.0}
        took_s = repeat(of, timer=process_time, number=_HITS, repeat=_PASSES, globals=names)
        return 1e6 * min(took_s) / _HITS

    return took_us("hit(metrics, now, 100)", row) - took_us("alone()", row)


def through_a_proxy(folder: Path, shapes: int) -> None:
    """Prints what the flood does to a hit's CPU time and to the process."""
    with ExitStack() as stack:
        generator = Generator(compiled("load", folder))
        mariadb = stack.enter_context(PrivateMariaDB(folder / "mariadb"))
        memcached = stack.enter_context(PrivateMemcached(folder / "memcached", 512))
        proxy = stack.enter_context(
            PrivateSqlcache(
                folder / "sqlcache", mariadb.service_url, (memcached.address,), **PATIENT
            )
        )
        mariadb.sql("CREATE DATABASE bench; CREATE TABLE bench.t (id INT PRIMARY KEY, v INT)")
        mariadb.sql("INSERT INTO bench.t SELECT seq, seq FROM mysql.seq_1_to_1000")
        mariadb.sql("CREATE USER bench@'%' IDENTIFIED BY 'bench'; GRANT ALL ON *.* TO bench@'%'")
        target, pids = Target(proxy.port), {"proxy": proxy.pid}

        def hit_us() -> float:
            options = ["--statement=SELECT v FROM t WHERE id = {id}", "--ids=100", "--warm=1"]
            options.append("--connections=32")
            loads = (generator.run(target, options, _SECONDS, pids) for _ in range(_PASSES))
            return min(load.cpu_us["proxy"] for load in loads)  # the least disturbed

        before, held = hit_us(), resident(proxy.pid)
        text = "--statement=SELECT v AS c{new} FROM t WHERE id = 1"
        options = [text, "--connections=8", f"--count={shapes}", "--first=1"]
        generator.run(target, options, 1200, {})
        after_short = hit_us()
        with (
            closing(proxy.connect(user="bench", password="bench", database="bench")) as session,
            session.cursor() as cursor,
        ):
            for shape in long_shapes():
                cursor.execute(shape.decode())
        after_long, now = hit_us(), resident(proxy.pid)
        metrics = proxy.metrics()
    grown = (now.own - held.own) / (1 << 20)
    remembered = metrics["sqlcache_statements_bytes"] / (1 << 20)
    print(f"through a proxy: a hit took {before:.1f} µs of CPU; after {shapes:,} shapes it takes")
    print(f"  {after_short:.1f} µs, after {LONG_SHAPES:,} of {LONG // 1000} kB {after_long:.1f} µs")
    print(f"  the process has grown by {grown:.0f} MiB, and remembers {remembered:.0f} MiB")


if __name__ == "__main__":
    main()
