"""What a hit costs that is told apart by rows, beside one by tables: sqlcache's CPU, with read
leases and without, in a table that nobody writes to, and in one whose other rows are written.

32 connections, one CPU for all. Run as `python -m tests.bench.row_hits [--seconds 2]`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar

from sqlcache.demo.measure import on_one_cpu
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache
from tests.bench.meanwhile import sent_meanwhile
from tests.bench.programs import Generator, Target, compiled
from tests.bench.row_tags import DEADLINE_S
from tests.servers import PATIENT

R = TypeVar("R")

ROUNDS = 5
CONNECTIONS = 32
IDS = 200
EVERY_S = 0.1
LEASES_MS = (5, 0)
READ = "SELECT v FROM t WHERE id = {id}"
WRITE = f"UPDATE t SET v = v + 1 WHERE id = {IDS + 1}"
BY_TABLES, BY_ROWS, AMID_WRITES = "by tables", "by rows", "by rows, while others are written"


class Hits(NamedTuple):
    """What a load of reads took: microseconds of sqlcache's CPU for each, and the share of hits."""

    cpu_us: float
    share: float


def hits(generator: Generator, proxy: PrivateSqlcache, seconds: float) -> Hits:
    """Reads rows of the table at random, for so long."""
    options = [f"--statement={READ}", f"--connections={CONNECTIONS}", f"--ids={IDS}", "--warm=0.3"]
    before = proxy.metrics()["sqlcache_misses_total"]
    load = generator.run(Target(proxy.port), options, seconds, {"sqlcache": proxy.pid})
    missed = proxy.metrics()["sqlcache_misses_total"] - before
    return Hits(load.cpu_us["sqlcache"], 1 - missed / load.answered)


def tell_rows_apart(proxy: PrivateSqlcache, connection: Any) -> None:
    """Writes and reads until rows are told apart."""
    with connection.cursor() as cursor:
        while not proxy.metrics()["sqlcache_slots_taken_total"]:
            cursor.execute(WRITE)
            cursor.execute(READ.replace("{id}", "1"))


def measured(stack: ExitStack, folder: Path, seconds: float) -> dict[tuple[int, str], list[Hits]]:
    """Of each read lease, in milliseconds, and each way, the rounds."""
    generator = Generator(compiled("load", folder))
    mariadb = stack.enter_context(PrivateMariaDB(folder / "mariadb"))
    memcached = stack.enter_context(PrivateMemcached(folder / "memcached"))
    mariadb.sql("CREATE DATABASE bench; CREATE TABLE bench.t (id INT PRIMARY KEY, v INT)")
    mariadb.sql(f"INSERT INTO t SELECT seq, 0 FROM seq_1_to_{IDS + 1}", "bench")
    mariadb.sql("CREATE USER bench@'%' IDENTIFIED BY 'bench'; GRANT ALL ON bench.* TO bench@'%'")
    proxies: dict[tuple[int, str], tuple[PrivateSqlcache, Any]] = {}
    for lease_ms in LEASES_MS:
        for way in (BY_TABLES, BY_ROWS):
            proxy = PrivateSqlcache(
                *(folder / f"{way} {lease_ms}", mariadb.service_url, (memcached.address,)),
                cache__read_lease_ms=lease_ms,
                cache__row_tags=way == BY_ROWS,
                cache__write_deadline_s=DEADLINE_S,
                memcached__prefix=f"{way[-4:]}{lease_ms}",
                **PATIENT,
            )
            stack.enter_context(proxy)
            login = {"user": "bench", "password": "bench", "database": "bench"}
            connection = stack.enter_context(closing(proxy.connect(**login, autocommit=True)))
            proxies[lease_ms, way] = proxy, connection
    for lease_ms in LEASES_MS:
        tell_rows_apart(*proxies[lease_ms, BY_ROWS])
    for proxy, _ in proxies.values():
        hits(generator, proxy, 1.5)  # fills, and is quiet for longer than reads are leased after
    rounds: dict[tuple[int, str], list[Hits]] = {}
    for _ in range(ROUNDS):
        for (lease_ms, way), (proxy, connection) in proxies.items():
            rounds.setdefault((lease_ms, way), []).append(hits(generator, proxy, seconds))
            if way == BY_ROWS:
                with sent_meanwhile(connection, WRITE, EVERY_S):
                    amid = hits(generator, proxy, seconds)
                rounds.setdefault((lease_ms, AMID_WRITES), []).append(amid)
                hits(generator, proxy, 1.5)
    return rounds


def told_to(measure: Callable[[ExitStack, Path, float], R], doc: str | None) -> R:
    """What is measured, in a folder of its own and with one CPU for all, for as long as the command
    line says."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help=f"of each, {ROUNDS} times (2)")
    seconds = parser.parse_args().seconds
    with (
        tempfile.TemporaryDirectory(prefix="sqlcache-bench-") as name,
        on_one_cpu([]),
        ExitStack() as stack,
    ):
        return measure(stack, Path(name), seconds)


def main() -> None:
    rounds = told_to(measured, __doc__)
    for (lease_ms, way), took in rounds.items():
        whole = [each.cpu_us for each in rounds[lease_ms, BY_TABLES]]
        ratio = median(one.cpu_us / other for one, other in zip(took, whole, strict=True))
        cpu_us, share = median(each.cpu_us for each in took), median(each.share for each in took)
        print(
            f"read leases of {lease_ms} ms, {way}: {cpu_us:.1f} us, {ratio:.2f} times that by"
            f" tables; {share:.2%} hits"
        )


if __name__ == "__main__":
    main()
