"""The demo's table of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.table import Table

from sqlcache.demo.measure import Run


def table(runs: Mapping[str, Run], reads: int, rows: int) -> Table:
    """A column for each run, the first of which is what the others are compared with."""
    made = Table(title=f"{reads:,} reads of a table with {rows:,} rows and no index")
    made.add_column("")
    for name in runs:
        made.add_column(name, justify="right")
    first = next(iter(runs.values()))
    for label, cell in _LINES:
        made.add_row(label, *(cell(run) for run in runs.values()))
    made.add_section()
    made.add_row("times faster", *(_factor(first.total_s / run.total_s) for run in runs.values()))
    return made


def duration(seconds: float) -> str:
    """Three figures and the unit that suits them."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 0.001:
        return f"{seconds * 1e3:.2f} ms"
    return f"{seconds * 1e6:.0f} µs"


def _percent(count: int | None, run: Run) -> str:
    return "-" if count is None else f"{100 * count / len(run.times_s):.1f} %"


def _factor(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


_LINES: tuple[tuple[str, Callable[[Run], str]], ...] = (
    ("total time", lambda run: duration(run.total_s)),
    ("mean per query", lambda run: duration(run.mean_s)),
    ("min", lambda run: duration(min(run.times_s))),
    ("max", lambda run: duration(max(run.times_s))),
    ("p99", lambda run: duration(run.quantile_s(0.99))),
    ("hits", lambda run: _percent(run.hits, run)),
    ("misses", lambda run: _percent(run.misses, run)),
    ("queries MySQL ran", lambda run: f"{run.upstream_queries:,}"),
    ("MySQL's CPU time", lambda run: f"{run.upstream_cpu_s:.2f} s"),
)
