"""What memory sqlcache takes: at idle, and for each 1,000 sessions.

    python -m tests.bench.memory [--sessions N]

Resident memory of the process from /proc, of which what is its own (anonymous) is shown beside it:
the rest are pages of files, which processes share. MariaDB's, in the same run, is for comparison.
Each session has asked once for what is in the cache, and once for what is not, and then idles.
"""

import argparse
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateServer, PrivateSqlcache
from tests.bench.load import Target, ask_each, logged_in, queries

MB = 1_000_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sessions", type=int, default=1000)
    sessions: int = options.parse_args().sessions
    with tempfile.TemporaryDirectory(prefix="sqlcache-bench-") as name:
        folder = Path(name)
        room = (f"--max-connections={sessions + 20}",)
        with (
            PrivateMariaDB(folder / "mariadb", room) as mariadb,
            PrivateMemcached(folder / "memcached") as memcached,
        ):
            mariadb.sql("CREATE DATABASE bench")
            mariadb.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)", "bench")
            for workers in (1, 2):
                proxy = PrivateSqlcache(
                    folder / f"sqlcache-{workers}",
                    mariadb.service_url,
                    (memcached.address,),
                    proxy__workers=workers,
                )
                with proxy:
                    _print(
                        f"{workers} workers" if workers > 1 else "one process",
                        proxy,
                        mariadb,
                        sessions,
                    )


def _print(title: str, proxy: PrivateSqlcache, mariadb: PrivateMariaDB, sessions: int) -> None:
    table = Table("", "sqlcache", "of that its own", "MariaDB", title=title)
    servers = (proxy, mariadb)
    table.add_row("idle", *_shown(servers))
    target = Target("sqlcache", proxy.port, mariadb.user, mariadb.password, "bench")
    packets = queries(["SELECT v FROM t", "SELECT v, SLEEP(0) FROM t"])
    with logged_in(target, sessions) as sockets:
        for sock in sockets:
            ask_each(sock, packets)
        table.add_row(f"{sessions:,} sessions", *_shown(servers))
    Console().print(table)


def _shown(servers: tuple[PrivateServer, ...]) -> list[str]:
    proxy, mariadb = (_resident(server.pid) for server in servers)
    return [f"{proxy[0] / MB:.0f} MB", f"{proxy[1] / MB:.0f} MB", f"{mariadb[0] / MB:.0f} MB"]


def _resident(pid: int) -> tuple[int, int]:
    """Bytes of a process and its children: all that are resident, and those of no file."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    whole, own = (int(status[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon"))
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    below = [_resident(int(child)) for child in children]
    return whole + sum(each[0] for each in below), own + sum(each[1] for each in below)


if __name__ == "__main__":
    main()
