"""What each kind of statement costs: CPU microseconds of sqlcache a statement, from /proc.

    python -m tests.bench.statements [--connections N] [--seconds S] [--rounds R] [--only TEXT]

One client process keeps N connections busy with one kind at a time, through sqlcache and directly,
in turns and in the same run. The first column is what sqlcache itself takes, with memcached's
share beside it; "of d" is that as a part of d: what MariaDB takes for a point select that is sent
to it directly. The last columns are what MariaDB takes for the same statement, through sqlcache
and directly. Medians of the rounds. On a busy machine only the ratios mean something.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import count, cycle
from pathlib import Path
from random import Random
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache
from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import packet
from tests.bench.load import Target, connect_and_quit, drive, logged_in, prepare, queries

ROWS = 1_000
POINT = "SELECT c FROM t WHERE id = {}"
PASSED = "SELECT c, RAND() FROM t WHERE id = {}"  # no answer of it can be stored
UPDATE = "UPDATE w SET n = n + 1 WHERE id = {}"
MANY = "SELECT id, c FROM t"
_WARM_S = 0.3

Asks = Iterator[bytes]
"""What one connection sends, packet by packet."""


class Kind(NamedTuple):
    """A kind of statement. `asks` gives what a connection sends, by its number; where there is a
    `text`, that is prepared first, and it is by the statement's."""

    name: str
    asks: Callable[[int, Random], Iterable[bytes]]
    text: str | None = None


def _texts(*texts: str) -> Callable[[int, Random], Asks]:
    packets = queries(texts)
    return lambda _, chance: iter(lambda: chance.choice(packets), None)


def _fresh(text: str) -> Callable[[int, Random], Asks]:
    """Never the same text twice."""
    return lambda number, chance: (
        queries([text.format(chance.randint(1, ROWS), number * 10**7 + at)])[0] for at in count()
    )


def _in_turn(*texts: str) -> Callable[[int, Random], Asks]:
    return lambda _number, _chance: cycle(queries(texts))


def _executions(statement: int, chance: Random) -> Asks:
    """Of one that was prepared, with an integer."""
    head = bytes((Command.STMT_EXECUTE,)) + statement.to_bytes(4, "little")
    bound = b"\x00\x01\x00\x00\x00\x00\x01\x03\x00"
    packets = [
        packet(0, head + bound + value.to_bytes(4, "little")) for value in range(1, ROWS + 1)
    ]
    return iter(lambda: chance.choice(packets), None)


POINTS = [POINT.format(id) for id in range(1, ROWS + 1)]
KINDS = [
    Kind("hit", _texts(*POINTS)),
    Kind("hit, prepared", _executions, POINT.format("?")),
    Kind("hit, 1,000 rows", _texts(MANY)),
    Kind("passed through", _texts(*(PASSED.format(id) for id in range(1, ROWS + 1)))),
    Kind("passed through, fresh literals", _fresh(PASSED + " AND 1 <> {}")),
    Kind("passed through, prepared", _executions, PASSED.format("?")),
    Kind("passed through, 1,000 rows", _texts("SELECT id, c, RAND() FROM t")),
    Kind("miss", _fresh(POINT + " AND 1 <> {}")),
    Kind("UPDATE of one row", _texts(*(UPDATE.format(id) for id in range(99)))),
    Kind("BEGIN, point select, COMMIT", _in_turn("BEGIN", POINT.format(7), "COMMIT")),
    Kind("SET NAMES", _texts("SET NAMES utf8mb4")),
    Kind("USE", _texts("USE bench")),
    Kind("CREATE and DROP TEMPORARY TABLE", _in_turn(
        "CREATE TEMPORARY TABLE x (a INT)", "DROP TEMPORARY TABLE x"
    )),
    Kind("ping", lambda _number, _chance: cycle([packet(0, bytes((Command.PING,)))])),
]  # fmt: skip
CONNECT = "connect, login, quit"


class Cost(NamedTuple):
    """CPU microseconds a statement."""

    sqlcache: float
    memcached: float
    mariadb: float


def main() -> None:
    options = _options()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sqlcache-bench-")))
        bench = Bench(stack, folder, options)
        names = [kind.name for kind in KINDS] + [CONNECT]
        wanted = [name for name in names if options.only.lower() in name.lower()]
        rounds = [bench.round(wanted) for _ in range(options.rounds)]
    _print(wanted, rounds, options.connections)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="kinds with this in their name")
    return parser.parse_args()


Figures = dict[str, tuple[Cost, Cost]]
"""For each kind what it costs through sqlcache, and directly. Under "d" the point select."""


class Bench:
    """The servers, and what is measured on them."""

    def __init__(self, stack: ExitStack, folder: Path, options: argparse.Namespace) -> None:
        mariadb = stack.enter_context(PrivateMariaDB(folder / "mariadb"))
        memcached = stack.enter_context(PrivateMemcached(folder / "memcached"))
        mariadb.sql("CREATE DATABASE bench")
        mariadb.sql("CREATE USER bench@'%' IDENTIFIED BY 'bench'")
        mariadb.sql("GRANT ALL ON bench.* TO bench@'%'")
        mariadb.sql("CREATE TABLE t (id INT PRIMARY KEY, c CHAR(119))", "bench")
        mariadb.sql(f"INSERT INTO t SELECT seq, REPEAT('x', 119) FROM seq_1_to_{ROWS}", "bench")
        mariadb.sql("CREATE TABLE w (id INT PRIMARY KEY, n INT)", "bench")
        mariadb.sql("INSERT INTO w SELECT seq, 0 FROM seq_0_to_99", "bench")
        address = (memcached.address,)
        proxy = stack.enter_context(PrivateSqlcache(folder / "proxy", mariadb.service_url, address))
        self._options = options
        self._servers = (proxy, memcached, mariadb)
        self._through, self._directly = (
            Target(server.name, server.port, "bench", "bench", "bench")
            for server in (proxy, mariadb)
        )

    def round(self, wanted: list[str]) -> Figures:
        """All kinds once."""
        both = (self._through, self._directly)
        figures = {"d": (Cost(0, 0, 0), self._cost(KINDS[0], self._directly))}
        for kind in KINDS:
            if kind.name in wanted:
                through, directly = (self._cost(kind, target) for target in both)
                figures[kind.name] = through, directly
        if CONNECT in wanted:
            through, directly = (self._cost_to_connect(target) for target in both)
            figures[CONNECT] = through, directly
        return figures

    def _cost(self, kind: Kind, target: Target) -> Cost:
        with logged_in(target, self._options.connections) as sockets:
            numbers = list(range(len(sockets)))
            if kind.text is not None:
                numbers = [prepare(sock, kind.text) for sock in sockets]
            asks = [iter(kind.asks(each, Random(at))) for at, each in enumerate(numbers)]
            drive(sockets, asks, _WARM_S)
            return self._counted(lambda: drive(sockets, asks, self._options.seconds))

    def _cost_to_connect(self, target: Target) -> Cost:
        connect_and_quit(target, _WARM_S)
        return self._counted(lambda: connect_and_quit(target, self._options.seconds))

    def _counted(self, work: Callable[[], int]) -> Cost:
        before = [server.cpu_s() for server in self._servers]
        answered = work()
        used = [s.cpu_s() - was for s, was in zip(self._servers, before, strict=True)]
        return Cost(*(1e6 * seconds / answered for seconds in used))


def _median(costs: list[Cost]) -> Cost:
    return Cost(*map(statistics.median, zip(*costs, strict=True)))


def _print(wanted: list[str], rounds: list[Figures], connections: int) -> None:
    d = statistics.median(figures["d"][1].mariadb for figures in rounds)
    table = Table(title=f"{connections} connections; d = {d:.1f} µs")
    for heading in ("", "sqlcache, µs", "of d", "memcached", "MariaDB, through", "directly"):
        table.add_column(heading, justify="right" if heading else "left")
    for name in wanted:
        through, directly = (
            Cost(
                *map(
                    statistics.median, zip(*(figures[name][way] for figures in rounds), strict=True)
                )
            )
            for way in (0, 1)
        )
        shown = (through.sqlcache, through.sqlcache / d, through.memcached)
        own, ratio, memcached = shown
        cells = (f"{own:.1f}", f"{ratio:.2f}", f"{memcached:.1f}")
        table.add_row(name, *cells, f"{through.mariadb:.1f}", f"{directly.mariadb:.1f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
