"""What TLS costs sqlcache: its CPU for a hit, for a large one, and for a connection with its login.

One client at a time, as `upstream.tls = "as-client"` has it: who speaks TLS has it towards MySQL,
too. Run as `python -m tests.bench.tls [--seconds 2]`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache

ROUNDS = 5
STATEMENTS = {
    "a hit of one row": "SELECT v FROM t WHERE id = 1",
    "a hit of 100 kB": "SELECT REPEAT(v, 100000) FROM t WHERE id = 1",
}
WAYS: tuple[dict[str, Any], ...] = ({"ssl_disabled": True}, {"ssl": {"check_hostname": False}})
"""Plain, and TLS."""


def cpu_us(sqlcache: PrivateSqlcache, once: Callable[[], Any], seconds: float) -> float:
    """Microseconds of its CPU for what is done again and again, for so long."""
    times = 0
    began, until = sqlcache.cpu_s(), perf_counter() + seconds
    while perf_counter() < until:
        once()
        times += 1
    return 1e6 * (sqlcache.cpu_s() - began) / times


def measured(sqlcache: PrivateSqlcache, login: dict[str, Any], seconds: float) -> dict[str, float]:
    """Microseconds of each, by what it is."""

    def log_in() -> None:
        sqlcache.connect(**login).close()

    took = {"a connection and its login": cpu_us(sqlcache, log_in, seconds)}
    with closing(sqlcache.connect(**login)) as connection, connection.cursor() as cursor:
        for what, text in STATEMENTS.items():
            took[what] = cpu_us(sqlcache, partial(cursor.execute, text), seconds)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help=f"of each, {ROUNDS} times (2)")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="sqlcache-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        mariadb = stack.enter_context(PrivateMariaDB(folder / "mariadb"))
        memcached = stack.enter_context(PrivateMemcached(folder / "memcached"))
        mariadb.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT)")
        mariadb.sql("INSERT INTO d.t VALUES (1, 'a')")
        served = PrivateSqlcache(
            *(folder / "sqlcache", mariadb.service_url, (memcached.address,)), binlog__follow="off"
        )
        stack.enter_context(served)
        login = {"user": mariadb.user, "password": mariadb.password, "database": "d"}
        rounds = [[measured(served, login | way, seconds) for way in WAYS] for _ in range(ROUNDS)]
    for what in rounds[0][0]:
        plain, tls = (median(ways[at][what] for ways in rounds) for at in range(len(WAYS)))
        print(f"{what}: plain {plain:.0f} us, TLS {tls:.0f} us, {tls / plain:.1f} times that")


if __name__ == "__main__":
    main()
