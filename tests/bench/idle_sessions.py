"""What memory many idle sessions take in the proxy, and what the one above the limit is told.

Each has logged in without TLS, asked once for what is in the cache and once for what is not,
and then idles. Run as `python -m tests.bench.idle_sessions [--sessions 5000]`; wants two open files
a session and two more for the proxy: `ulimit -n 20000` for 5,000.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import pymysql

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache
from tests.bench.memory import Resident, resident
from tests.servers import PATIENT

ABOVE = 1040
_SPARE = 200
_ASKED = ("SELECT v FROM d.t WHERE id = 1", "SELECT v, SLEEP(0) FROM d.t WHERE id = 1")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=5_000, help="how many (5,000)")
    parser.add_argument("--megabytes", type=float, default=100.0, help="they may take (100)")
    wanted = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 2 * wanted.sessions + _SPARE:
        parser.error(f"ulimit -n = {most}: expected at least {2 * wanted.sessions + _SPARE}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="sqlcache-bench-") as name:
        before, after, told = measure(Path(name), wanted.sessions)
    own, whole = after.own - before.own, after.whole - before.whole
    print(f"the proxy, idle: {_mb(before.whole)}, {_mb(before.own)} of it its own")
    print(f"with {wanted.sessions} sessions: {_mb(after.whole)}, {_mb(after.own)} its own")
    print(f"they take {_mb(whole)}, {own / wanted.sessions / 1000:.1f} kB each")
    print(f"one more gets: {told}")
    if told.args[0] != ABOVE or max(whole, own) > wanted.megabytes * 1e6:
        raise SystemExit(f"expected error {ABOVE}, and at most {wanted.megabytes:g} MB")


def measure(folder: Path, sessions: int) -> tuple[Resident, Resident, pymysql.OperationalError]:
    """The proxy's memory before and after, and what the one above the limit got."""
    room = (f"--max-connections={sessions + _SPARE}", "--table-open-cache=400", "--back-log=512")
    with ExitStack() as stack:
        mariadb = stack.enter_context(PrivateMariaDB(folder / "mariadb", room))
        memcached = stack.enter_context(PrivateMemcached(folder / "memcached"))
        limits: dict[str, Any] = {**PATIENT, "proxy__max_connections": sessions}
        proxy = stack.enter_context(
            PrivateSqlcache(
                folder / "sqlcache", mariadb.service_url, (memcached.address,), **limits
            )
        )
        mariadb.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)")
        mariadb.sql("INSERT INTO d.t VALUES (1, 1)")
        account = {"user": mariadb.user, "password": mariadb.password}
        _session(proxy, account).close()  # what only the first one costs
        before, began = resident(proxy.pid), perf_counter()
        clients = [_session(proxy, account) for _ in range(sessions)]
        print(f"{sessions} sessions within {perf_counter() - began:.0f} s")
        after = resident(proxy.pid)
        try:
            _session(proxy, account)
        except pymysql.OperationalError as error:
            told = error
        else:
            raise SystemExit(f"more than {sessions} were let in")
        for each in (clients[0], clients[-1]):
            with each.cursor() as cursor:
                cursor.execute(_ASKED[1])
        for each in clients:
            each.close()
    return before, after, told


def _session(proxy: PrivateSqlcache, account: dict[str, str]) -> pymysql.Connection[Any]:
    connection = proxy.connect(**account)
    with connection.cursor() as cursor:
        for text in _ASKED:
            cursor.execute(text)
    return connection


def _mb(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


if __name__ == "__main__":
    main()
