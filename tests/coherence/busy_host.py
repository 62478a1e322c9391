"""A busy host is no outage: `python -m tests.coherence.busy_host --minutes 5`.

Proxies' workers, memcached, a MariaDB and clients share one core, or all cores with processes that
burn them. memcached is up and idle all the while: whatever is bypassed because it could not be
reached or trusted, and each time it is disowned, is a fault. Ends with 1 where there was one.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache

_OUTAGES = ("memcached unreachable", "memcached was away", "a bump is still to be made")
_ROWS = 500
_SCHEMA = "busy"


@dataclass(frozen=True, slots=True)
class Load:
    """What the host has to bear."""

    seconds: float
    workers: int = 1
    clients: int = 16
    burners: int = 0
    one_core: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What a proxy counted."""

    hits: float
    faults: dict[str, float]
    log: str

    @property
    def calm(self) -> bool:
        """Whether it never lost sight of memcached."""
        return not any(self.faults.values())


def bear(load: Load, folder: Path, **settings: Any) -> Seen:
    """Runs a proxy under the load."""
    with ExitStack() as stack:
        if load.one_core:
            stack.enter_context(_pinned())
        server = stack.enter_context(PrivateMariaDB(folder / "mariadb"))
        node = stack.enter_context(PrivateMemcached(folder / "memcached"))
        proxy = PrivateSqlcache(
            folder / "sqlcache",
            server.service_url,
            (node.address,),
            proxy__workers=load.workers,
            **settings,
        )
        stack.enter_context(proxy)
        _fill(server)
        before = _faults(proxy)
        _run(load, server, proxy)
        after = _faults(proxy)
        faults = {name: count - before.get(name, 0) for name, count in after.items()}
        return Seen(proxy.metrics()["sqlcache_hits_total"], faults, proxy.output.read_text())


@contextmanager
def _pinned() -> Iterator[None]:
    """All that is started in here shares one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _fill(server: PrivateMariaDB) -> None:
    server.sql(
        f"CREATE DATABASE {_SCHEMA}; USE {_SCHEMA}; CREATE TABLE t (id INT PRIMARY KEY, v INT);"
        f" INSERT INTO t SELECT seq, 0 FROM seq_1_to_{_ROWS}"
    )


def _faults(proxy: PrivateSqlcache) -> dict[str, float]:
    metrics = proxy.metrics()
    bypassed = {why: f'sqlcache_bypasses_total{{reason="{why}"}}' for why in _OUTAGES}
    faults = {why: metrics.get(sample, 0.0) for why, sample in bypassed.items()}
    return {**faults, "disowned": metrics["sqlcache_node_outages_total"]}


def _run(load: Load, server: PrivateMariaDB, proxy: PrivateSqlcache) -> None:
    until = time.monotonic() + load.seconds
    burners = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load.burners)
    ]
    clients = [
        threading.Thread(target=_client, args=(server, proxy, until, number))
        for number in range(load.clients)
    ]
    try:
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def _client(server: PrivateMariaDB, proxy: PrivateSqlcache, until: float, number: int) -> None:
    """Reads, cheap and dear ones, and sometimes writes."""
    chance = random.Random(number)
    connection = proxy.connect(
        user=server.user, password=server.password, database=_SCHEMA, connect_timeout=60
    )
    while time.monotonic() < until:
        row = chance.randrange(_ROWS)
        kind = chance.random()
        with connection.cursor() as cursor, suppress(pymysql.MySQLError):
            if kind < 0.02:
                cursor.execute(f"UPDATE t SET v = v + 1 WHERE id = {row}")
            elif kind < 0.1:
                cursor.execute(f"SELECT COUNT(*) FROM t a, t b WHERE a.v + b.v + {row} > 0")
            else:
                cursor.execute(f"SELECT v FROM t WHERE id = {row}")
    connection.close()


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description="Takes a busy host for no outage.")
    parser.add_argument("--minutes", type=float, default=5, help="how long each load lasts")
    options = parser.parse_args()
    seconds = options.minutes * 60
    burned = Load(seconds, workers=2, burners=8 * (os.cpu_count() or 1))
    calm = True
    for load in (Load(seconds, one_core=True), burned):
        with tempfile.TemporaryDirectory() as folder:
            seen = bear(load, Path(folder))
        print(load, seen.hits, seen.faults, seen.log, sep="\n", flush=True)
        calm &= seen.calm
    return 0 if calm else 1


if __name__ == "__main__":
    sys.exit(main())
