import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pymysql
import pytest

from sqlcache.demo import customers, run
from sqlcache.errors import ConfigError

ROOT = Path(run.__file__).parents[2]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files; pytest's own has too long a path for MariaDB's socket."""
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        yield Path(folder)


def start(temporary: Path, *flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "sqlcache", "demo", "--rows", "3000", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        preexec_fn=_mind_signals,
    )


def _mind_signals() -> None:
    """As a job in the background, or one of nohup's, does not."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def read_until(lines: IO[str], beginning: str) -> str:
    """What follows `beginning` in the line that starts with it."""
    seen = []
    for line in lines:
        if line.startswith(beginning):
            return line.removeprefix(beginning).strip()
        seen.append(line)
    raise AssertionError(f"no line starts with {beginning!r} in:\n{''.join(seen)}")


def cells(output: str, label: str) -> list[str]:
    """The figures of a line of the table: direct, cold, warm."""
    line = next(line for line in output.splitlines() if re.search(rf"[|│] {label}", line))
    return [cell.strip() for cell in re.split(r"[|│]", line)[2:-1]]


def test_it_shows_that_warm_reads_do_not_reach_mysql_and_that_a_write_is_seen(
    temporary: Path,
) -> None:
    demo = start(temporary, "--reads", "200")
    output, _ = demo.communicate(timeout=100)
    assert demo.returncode == 0, output
    assert cells(output, "hits")[2] == "100.0 %"
    assert cells(output, "queries MySQL ran")[0] == "200"
    assert cells(output, "queries MySQL ran")[2] == "0"
    assert "the three runs got the same answers" in output
    assert "Grace Hopper" in output
    assert "\x1b" not in output
    assert list(temporary.iterdir()) == []


def test_with_keep_all_stays_up_until_ctrl_c(temporary: Path) -> None:
    demo = start(temporary, "--reads", "5", "--keep")
    assert demo.stdout is not None
    client = read_until(demo.stdout, "sqlcache  ")
    options = dict(re.findall(r"--(\w+)=(\S+)", client))
    read_until(demo.stdout, "Ctrl-C")
    connection = pymysql.connect(
        host=options["host"],
        port=int(options["port"]),
        user=options["user"],
        password=options["password"],
        database=client.split()[-1],
    )
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {customers.TABLE}")
        assert cursor.fetchone() == (3000,)
    connection.close()
    demo.send_signal(signal.SIGINT)
    assert demo.wait(30) == 0
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ended_early_it_leaves_nothing_behind(temporary: Path, number: signal.Signals) -> None:
    demo = start(temporary)
    assert demo.stdout is not None
    read_until(demo.stdout, "filling")
    demo.send_signal(number)
    output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 128 + number, output
    assert "Traceback" not in output
    assert list(temporary.iterdir()) == []


def test_more_reads_than_anyone_waits_for_are_refused() -> None:
    with pytest.raises(ConfigError, match="--reads 1000001: expected at most 1000000"):
        run.run(rows=1, reads=run.MAX_READS + 1, keep=False)


def test_more_rows_than_ids_are_refused() -> None:
    with pytest.raises(ConfigError, match="expected at most 8388607"):
        run.run(rows=customers.MAX_ROWS + 1, reads=1, keep=False)
