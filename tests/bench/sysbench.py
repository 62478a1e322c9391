"""sysbench's own tests: directly, and through sqlcache with one worker and with two.

Each way has a schema of its own, so that none changes what another has in its cache.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from sqlcache.demo.servers import (
    HOST,
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    find_program,
)
from tests.bench.pace import Pace
from tests.bench.results import Row
from tests.servers import PATIENT

PART = "sysbench"
TESTS = ("oltp_point_select", "oltp_read_only", "oltp_read_write", "oltp_update_index")
FORMS = {"text": "disable", "prepared": "auto"}
"""By its name, what sysbench calls it."""
DIRECT, ONE, TWO = "direct", "1 worker", "2 workers"
WAYS = {DIRECT: 0, ONE: 1, TWO: 2}
THREADS = 16
_ROWS = 10_000
_WARM_S = 1
_GRACE_S = 60

_FIGURES = {
    "rate": re.compile(r"queries: +\d+ +\(([\d.]+) per sec\.\)"),
    "p95_ms": re.compile(r"95th percentile: +([\d.]+)"),
    "errors": re.compile(r"ignored errors: +(\d+) "),
}


class SysbenchFailed(Exception):
    """sysbench ended with an error, or said nothing of what it measured: carries what it said."""


def parsed(output: str) -> dict[str, float]:
    """The queries a second, latencies (of a transaction, as sysbench has it) and errors that
    sysbench tells at its end. Raises: SysbenchFailed."""
    found = {name: pattern.search(output) for name, pattern in _FIGURES.items()}
    told = {name: float(match[1]) for name, match in found.items() if match}
    if len(told) != len(found):
        raise SysbenchFailed(output[-2_000:])
    return told


def name_of(test: str, form: str) -> str:
    """What the row of a test is called."""
    return f"{test}, {form}"


def measure(folder: Path, pace: Pace) -> list[Row]:
    """Passes over all tests, forms and ways."""
    rows = {
        (test, form, way): Row(PART, name_of(test, form), way, THREADS)
        for test in TESTS
        for form in FORMS
        for way in WAYS
        if pace.wants(PART, name_of(test, form))
    }
    if not rows:
        return []
    with ExitStack() as stack:
        ports = _servers(stack, folder)
        for number in range(1, pace.sysbench_passes + 1):
            for (test, form, way), row in rows.items():
                pace.say(PART, number, pace.sysbench_passes, f"{row.name}, {way}")
                if number == 1:
                    _run(ports, way, test, "run", form, _WARM_S)
                row.repeats.append(parsed(_run(ports, way, test, "run", form, pace.sysbench_s)))
    return list(rows.values())


def _servers(stack: ExitStack, folder: Path) -> Mapping[str, int]:
    """Starts them; returns the port of each way."""
    mariadb = stack.enter_context(PrivateMariaDB(folder / "mariadb"))
    memcached = stack.enter_context(PrivateMemcached(folder / "memcached", 256))
    mariadb.sql("CREATE USER bench@'%' IDENTIFIED BY 'bench'; GRANT ALL ON *.* TO bench@'%'")
    ports = {DIRECT: mariadb.port}
    for way, workers in WAYS.items():
        mariadb.sql(f"CREATE DATABASE {_schema(way)}")
        _run({way: mariadb.port}, way, TESTS[0], "prepare", "text", 0)
        if workers:
            proxy = PrivateSqlcache(
                folder / f"sqlcache-{workers}",
                mariadb.service_url,
                (memcached.address,),
                proxy__workers=workers,
                **PATIENT,
            )
            ports[way] = stack.enter_context(proxy).port
    return ports


def _schema(way: str) -> str:
    return f"bench_{WAYS[way]}"


def _run(
    ports: Mapping[str, int], way: str, test: str, command: str, form: str, seconds: int
) -> str:
    threads = THREADS if command == "run" else 1
    return run_at(ports[way], _schema(way), test, command, seconds, threads=threads, form=form)


def run_at(
    port: int,
    schema: str,
    test: str,
    command: str,
    seconds: int,
    *,
    threads: int = 1,
    form: str = "text",
) -> str:
    """What it says at its end. Raises: SysbenchFailed."""
    options = {
        "mysql-host": HOST,
        "mysql-port": port,
        "mysql-user": "bench",
        "mysql-password": "bench",
        "mysql-db": schema,
        "db-ps-mode": FORMS[form],
        "table-size": _ROWS,
        "threads": threads,
        "time": seconds,
    }
    given = [f"--{name}={value}" for name, value in options.items()]
    ended = subprocess.run(
        [find_program("sysbench", "sysbench"), test, *given, command],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds + _GRACE_S,
    )
    if ended.returncode:
        raise SysbenchFailed((ended.stdout + ended.stderr)[-2_000:])
    return ended.stdout
