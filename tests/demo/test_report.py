import io

import pytest
from rich.console import Console

from sqlcache.demo import report
from sqlcache.demo.measure import Run

DIRECT = Run((0.002,) * 4, (b"a",) * 4, upstream_queries=4, upstream_cpu_s=0.01)
WARM = Run((0.00004,) * 4, (b"a",) * 4, 1, 0.0, hits=3, misses=1)


def shown(*runs: Run, width: int = 80) -> dict[str, list[str]]:
    """The table's lines as a pipe would get them: label -> cells."""
    console = Console(file=io.StringIO(), width=width)
    names = ["direct", "sqlcache, cold", "sqlcache, warm"]
    console.print(report.table(dict(zip(names, runs, strict=False)), reads=4, rows=30_000))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    return {label: rest for label, *rest in cells}


def test_it_compares_every_run_with_the_first() -> None:
    lines = shown(DIRECT, DIRECT, WARM)
    assert lines["total time"] == ["8.00 ms", "8.00 ms", "160 µs"]
    assert lines["times faster"] == ["1.0", "1.0", "50"]


def test_it_shows_hits_and_misses_in_percent_where_a_cache_was_asked() -> None:
    lines = shown(DIRECT, WARM)
    assert lines["hits"] == ["-", "75.0 %"]
    assert lines["misses"] == ["-", "25.0 %"]


def test_it_shows_what_mysql_had_to_do() -> None:
    lines = shown(DIRECT, WARM)
    assert lines["queries MySQL ran"] == ["4", "1"]
    assert lines["MySQL's CPU time"] == ["0.01 s", "0.00 s"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.50 s"), (0.0125, "12.50 ms"), (0.001, "1.00 ms"), (0.0000321, "32 µs")],
)
def test_durations_have_the_unit_that_suits_them(seconds: float, text: str) -> None:
    assert report.duration(seconds) == text
