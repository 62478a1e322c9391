"""What sqlcache costs, beside MariaDB, memcached and a server in C: `python -m tests.bench`.

Starts servers of its own, measures everything in passes over all of it, prints tables, and writes
the whole run as JSON, with a chart beside it. `python -m tests.bench.report` puts such a run into
the documents. `--quick` takes some minutes and tells what has become twice as dear; the whole run
takes most of an hour, and wants a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Shown

from sqlcache import __version__
from sqlcache.demo.servers import find_program
from sqlcache.implementation import IMPLEMENTATION
from tests.bench import binlog, memory, pages, python_api, report, row_tags, statements, sysbench
from tests.bench.pace import FULL, QUICK, Pace
from tests.bench.results import Result, Row
from tests.bench.tables import TABLES, Table
from tests.fetched import NotFetched

PARTS: tuple[Callable[[Path, Pace], list[Row]], ...] = tuple(
    each.measure for each in (statements, sysbench, row_tags, memory, python_api, binlog, pages)
)


def main() -> None:
    options = _options()
    pace = replace(QUICK if options.quick else FULL, only=options.only)
    try:
        apps = pages.fetch(pace)  # before an hour is spent
        row_tags.fetch(pace)
    except NotFetched as error:
        sys.exit(
            f"{error}\nWhat needs none of it: --only statements, sysbench, tpc-c, memory, binlog,"
            " python"
        )
    result = Result(_about(pace, apps))
    try:
        for measure in PARTS:
            with tempfile.TemporaryDirectory(prefix="sqlcache-bench-") as folder:
                result.add(measure(Path(folder), pace))
    finally:
        if result.rows:  # also what was measured before something failed
            result.write(options.output)
            options.output.with_suffix(".svg").write_text(report.drawn(result))
    console = Console(width=140)
    console.print(report.about(result), highlight=False)
    for table in (make(result) for make in TABLES.values()):
        if table.rows:
            console.print(_shown(table))
    print(f"{options.output}: all of it; python -m tests.bench.report puts it into the documents")


def _options() -> argparse.Namespace:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=lines[0])
    parser.add_argument("--quick", action="store_true", help="a few minutes")
    parser.add_argument("--only", default="", help='what has this in "part: name", as "sysbench"')
    parser.add_argument("--output", type=Path, default=Path("bench.json"))
    return parser.parse_args()


def _about(pace: Pace, apps: list[str]) -> dict[str, Any]:
    paces = {"passes": pace.passes, "load_s": pace.load_s}
    of_sysbench = {"sysbench_passes": pace.sysbench_passes, "sysbench_s": pace.sysbench_s}
    return {
        "date": str(datetime.date.today()),
        "machine": f"{_processor()}, {len(os.sched_getaffinity(0))} CPUs, Linux {_kernel()}",
        "load": round(os.getloadavg()[0], 1),
        "versions": ", ".join(_versions()),
        **paces,
        **of_sysbench,
        **({"pages": _about_pages(pace, apps)} if apps else {}),
    }


def _about_pages(pace: Pace, apps: list[str]) -> str:
    return f"{', '.join(apps)}; medians of {pace.passes} passes, {pace.page_s:g} s each"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _kernel() -> str:
    return ".".join(platform.release().split(".")[:2])


def _versions() -> list[str]:
    def said(program: str, package: str) -> str:
        command = [find_program(program, package), "--version"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    mariadb = said("mariadbd", "mariadb-server-core").partition("Ver ")[2].partition("-")[0]
    return [
        f"sqlcache {__version__} ({IMPLEMENTATION})",
        f"Python {platform.python_version()}",
        f"MariaDB {mariadb}",
        said("memcached", "memcached").strip(),
        " ".join(said("sysbench", "sysbench").split()[:2]),
    ]


def _shown(table: Table) -> Shown:
    shown = Shown(title=table.title)
    for at, heading in enumerate(table.headings):
        shown.add_column(heading, justify="right" if at else "left")
    for row in table.rows:
        shown.add_row(*row)
    return shown


if __name__ == "__main__":
    main()
