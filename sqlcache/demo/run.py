"""`sqlcache demo`: the same reads directly, through a cold and a warm sqlcache; then a write.

It needs no server of yours: MariaDB, memcached and sqlcache run in a temporary folder and leave
nothing behind. Exit code 0 says that all answers were equal and that the write was seen at once.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from sqlcache.demo import customers, report
from sqlcache.demo.measure import Reader, Run, measure, on_one_cpu
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache
from sqlcache.errors import ConfigError, ConnectionLost, SqlcacheError

MAX_READS = 1_000_000
"""Of each run; all statements are made before."""
_REFRESH_S = 0.1
_ANSWER_DEADLINE_S = 30

_DIRECT, _COLD, _WARM = "direct", "sqlcache, cold", "sqlcache, warm"


def run(rows: int, reads: int, keep: bool) -> int:
    """Shows it all and returns the process's exit code. Raises: SqlcacheError."""
    if rows > customers.MAX_ROWS:
        raise ConfigError(f"--rows {rows}: expected at most {customers.MAX_ROWS}, the last id")
    if reads > MAX_READS:
        raise ConfigError(f"--reads {reads}: expected at most {MAX_READS}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has the latter
            signal.signal(number, lambda ended_by, _: sys.exit(128 + ended_by))
    console = Console(highlight=False)
    try:
        with _servers(console, rows) as servers:
            right = _show(console, servers, rows, reads)
            if keep:
                _wait(console, servers)
    except KeyboardInterrupt:
        console.print("stopped")
        return 128 + signal.SIGINT
    return 0 if right else 1


@dataclass(frozen=True, slots=True)
class _Servers:
    mariadb: PrivateMariaDB
    memcached: PrivateMemcached
    sqlcache: PrivateSqlcache

    @property
    def login(self) -> dict[str, Any]:
        return {
            "read_timeout": _ANSWER_DEADLINE_S,
            "user": self.mariadb.user,
            "password": self.mariadb.password,
            "database": customers.SCHEMA,
        }


@contextmanager
def _servers(console: Console, rows: int) -> Iterator[_Servers]:
    """The three servers in a folder that goes with them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sqlcache-demo-")))
        console.print("starting a private MariaDB and memcached")
        memcached = stack.enter_context(PrivateMemcached(folder / "memcached"))
        mariadb = stack.enter_context(PrivateMariaDB(folder / "mariadb"))
        console.print(f"filling {customers.TABLE} with {rows:,} rows")
        customers.create(mariadb, rows)
        console.print("starting sqlcache")
        sqlcache = PrivateSqlcache(
            folder / "sqlcache",
            mariadb.service_url,
            (memcached.address,),
            upstream__catalog_refresh_s=3600,  # its own queries are not to be counted
            binlog__follow="off",  # nor those of who follows the log
            proxy__tls_auto=False,  # this MariaDB offers none: the same for both
            memcached__timeout_s=5,  # a busy machine is no outage: nothing would be a hit
            memcached__outage_s=8,
        )
        yield _Servers(mariadb, memcached, stack.enter_context(sqlcache))


def _show(console: Console, servers: _Servers, rows: int, reads: int) -> bool:
    """Whether all went as it must. Raises: SqlcacheError with sqlcache's log if a server fails."""
    try:
        right = _show_reads(console, servers, rows, reads)
        return _show_write(console, servers, customers.read_ids(reads, rows)[0]) and right
    except (pymysql.MySQLError, ConnectionLost, OSError) as error:
        log = servers.sqlcache.log_text()[-2000:]
        raise SqlcacheError(f"the demo failed: {error}\nsqlcache's log ends:\n{log}") from error


def _show_reads(console: Console, servers: _Servers, rows: int, reads: int) -> bool:
    """Runs and prints the three runs; whether their answers were equal."""
    statements = [customers.select(number).encode() for number in customers.read_ids(reads, rows)]
    direct, cached = (
        Reader(servers.mariadb, **servers.login),
        Reader(servers.sqlcache, **servers.login),
    )
    through = servers.sqlcache
    runs: dict[str, Run] = {}
    pids = [servers.mariadb.pid, servers.memcached.pid, servers.sqlcache.pid]
    with on_one_cpu(pids), _bars(console, reads) as bar:
        runs[_DIRECT] = measure(direct, statements, servers.mariadb, None, bar(_DIRECT))
        runs[_COLD] = measure(cached, statements, servers.mariadb, through, bar(_COLD))
        runs[_WARM] = measure(cached, statements, servers.mariadb, through, bar(_WARM))
    direct.close()
    cached.close()
    console.print(report.table(runs, reads, rows))
    if len({run.answers for run in runs.values()}) > 1:
        console.print("WRONG: the three runs got different answers")
        return False
    console.print("the three runs got the same answers, byte for byte")
    return True


@contextmanager
def _bars(console: Console, reads: int) -> Iterator[Callable[[str], Callable[[], None]]]:
    """Makes a progress bar for each run, drawn between reads only: no thread disturbs them."""
    columns = (TextColumn("{task.description:>14}"), BarColumn(), MofNCompleteColumn())
    shown = console.is_terminal
    with Progress(*columns, console=console, auto_refresh=False, disable=not shown) as progress:

        def bar(name: str) -> Callable[[], None]:
            task = progress.add_task(name, total=reads)
            done, drawn = 0, 0.0

            def advance() -> None:
                nonlocal done, drawn
                done += 1
                if done == reads or (done % 16 == 0 and time.monotonic() - drawn > _REFRESH_S):
                    progress.update(task, completed=done, refresh=True)
                    drawn = time.monotonic()

            return advance

        yield bar


def _show_write(console: Console, servers: _Servers, number: int) -> bool:
    """Changes a row that is cached, through sqlcache; whether the next reads have the change."""
    new = ("Grace", "Hopper")
    writer = servers.sqlcache.connect(**servers.login)
    reader = servers.sqlcache.connect(**servers.login)
    try:
        with writer.cursor() as writing, reader.cursor() as reading:
            before = _row(reading, number)
            writing.execute(
                f"UPDATE {customers.TABLE} SET firstname=%s, lastname=%s WHERE id={number}", new
            )
            after = _row(reading, number)
    finally:
        writer.close()
        reader.close()
    console.print(f"customer {number} before the write: {' '.join(before)}")
    console.print(f"the next read, by another client:  {' '.join(after)}")
    if after != new:
        console.print(f"WRONG: expected {' '.join(new)}")
    return after == new


def _row(cursor: Any, number: int) -> tuple[str, ...]:
    cursor.execute(customers.select(number))
    row: tuple[str, ...] = cursor.fetchone()
    return row


def _wait(console: Console, servers: _Servers) -> None:
    """Says where everything is and returns at Ctrl-C."""
    login = f"--user={servers.mariadb.user} --password={servers.mariadb.password}"
    admin = f"http://{servers.sqlcache.host}:{servers.sqlcache.admin_port}"
    for name, server in (("MariaDB ", servers.mariadb), ("sqlcache", servers.sqlcache)):
        client = f"mariadb --host={server.host} --port={server.port} {login} {customers.SCHEMA}"
        console.print(f"{name}  {client}", soft_wrap=True)
    console.print(f"memcached {servers.memcached.address}")
    console.print(f"metrics   {admin}/metrics")
    console.print("Ctrl-C ends and removes all of it")
    try:
        signal.pause()
    except KeyboardInterrupt:
        console.print("stopping")
