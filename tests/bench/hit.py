"""What a cache hit costs: CPU microseconds of each server process a query, from /proc.

    python -m tests.bench.hit [--connections N ...] [--seconds S] [--rounds R]

One client process keeps N connections busy with point selects that are all in the cache. The same
load goes, in turns and in the same run, to sqlcache, to MariaDB itself, and to the floor: a C
server that answers every query with the same bytes, the least that a server can do (built from
`echosrv.c` in the folder that --floor names; left out where there is none, or no C compiler).
Wall-clock figures on a busy machine mean little; CPU time a query and the ratios between the rows
do. The median of the rounds is printed.
"""

import argparse
import contextlib
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateServer,
    PrivateSqlcache,
)
from tests.bench.load import Target, ask_each, load, logged_in, queries

FLOOR = Path(__file__).parents[3] / "shared" / "bench"
ROWS = 1_000
ROW_BYTES = 119
STATEMENT = "SELECT c FROM sbtest1 WHERE id={}"


class CFloor(PrivateServer):
    """The C server that answers everything with one canned row."""

    name = "echosrv"

    def __init__(self, folder: Path, program: Path) -> None:
        super().__init__(folder)
        self._program = program

    def command(self) -> list[str]:
        return [str(self._program), str(self.port), str(ROW_BYTES)]

    def answers(self) -> bool:
        target = Target("floor", self.port, "bench", "bench", "bench")
        with contextlib.suppress(Exception), logged_in(target, 1):
            return True
        return False


def main() -> None:
    options = _options()
    with (
        tempfile.TemporaryDirectory(prefix="sqlcache-bench-") as folder,
        _servers(Path(folder), options.floor) as (targets, processes),
    ):
        packets = queries([STATEMENT.format(number) for number in range(1, ROWS + 1)])
        for target in targets:
            with logged_in(target, 1) as sockets:
                ask_each(sockets[0], packets)
        for connections in options.connections:
            figures = _measure(targets, processes, packets, connections, options)
            _print(figures, connections)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--floor", type=Path, default=FLOOR, help="folder of echosrv.c")
    return parser.parse_args()


Processes = dict[str, list[PrivateServer]]
Figures = dict[str, list[list[float]]]


@contextlib.contextmanager
def _servers(folder: Path, floor: Path) -> Iterator[tuple[list[Target], Processes]]:
    with contextlib.ExitStack() as stack:
        mariadb = stack.enter_context(PrivateMariaDB(folder / "mariadb"))
        memcached = stack.enter_context(PrivateMemcached(folder / "memcached"))
        _fill(mariadb)
        sqlcache = stack.enter_context(
            PrivateSqlcache(folder / "sqlcache", mariadb.service_url, (memcached.address,))
        )
        servers: list[tuple[PrivateServer, list[PrivateServer]]] = [
            (sqlcache, [sqlcache, memcached]),
            (mariadb, [mariadb]),
        ]
        program = _compiled(floor / "echosrv.c", folder / "echosrv")
        if program is not None:
            echo = stack.enter_context(CFloor(folder / "floor", program))
            servers.append((echo, [echo]))
        targets = [
            Target(server.name, server.port, "bench", "bench", "bench") for server, _ in servers
        ]
        yield targets, {server.name: counted for server, counted in servers}


def _fill(mariadb: PrivateMariaDB) -> None:
    mariadb.sql("CREATE DATABASE bench")
    mariadb.sql("CREATE USER bench@'%' IDENTIFIED BY 'bench'")
    mariadb.sql("GRANT ALL ON bench.* TO bench@'%'")
    mariadb.sql(f"CREATE TABLE sbtest1 (id int PRIMARY KEY, c char({ROW_BYTES}))", "bench")
    rows = ",".join(f"({number},'{'x' * ROW_BYTES}')" for number in range(1, ROWS + 1))
    mariadb.sql(f"INSERT INTO sbtest1 VALUES {rows}", "bench")


def _compiled(source: Path, program: Path) -> Path | None:
    compiler = shutil.which("cc")
    if compiler is None or not source.exists():
        return None
    subprocess.run([compiler, "-O2", "-w", "-o", str(program), str(source)], check=True)
    return program


def _measure(
    targets: list[Target],
    processes: Processes,
    packets: list[bytes],
    connections: int,
    options: argparse.Namespace,
) -> Figures:
    """For each target its rounds' figures: queries a second, then CPU µs of each process."""
    figures: Figures = {target.name: [] for target in targets}
    for _ in range(options.rounds):
        for target in targets:
            counted = processes[target.name]
            with logged_in(target, connections) as sockets:
                load(sockets, packets, 0.3)  # past what only the first queries cost
                before = [server.cpu_s() for server in counted]
                began = time.monotonic()
                answered = load(sockets, packets, options.seconds)
                took_s = time.monotonic() - began
                used = [server.cpu_s() - was for server, was in zip(counted, before, strict=True)]
            cpu_us = [1e6 * seconds / answered for seconds in used]
            figures[target.name].append([answered / took_s, *cpu_us])
    return figures


def _print(figures: Figures, connections: int) -> None:
    medians = {
        name: [statistics.median(column) for column in zip(*rounds, strict=True)]
        for name, rounds in figures.items()
    }
    table = Table(title=f"a hit, {connections} connection(s)")
    for heading in ("server", "queries/s", "CPU µs/query", "and memcached's", "times the floor"):
        table.add_column(heading, justify="left" if heading == "server" else "right")
    floor = medians.get("echosrv")
    for name, (rate, own, *more) in medians.items():
        ratio = f"{own / floor[1]:.2f}" if floor else "-"
        extra = f"+ {more[0]:.1f}" if more else ""
        table.add_row(name, f"{rate:,.0f}", f"{own:.1f}", extra, ratio)
    Console().print(table)


if __name__ == "__main__":
    main()
