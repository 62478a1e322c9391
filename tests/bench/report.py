"""Writes what a run has measured into the documents: `python -m tests.bench.report [bench.json]`.

Each table of docs/performance.md and README.md stands between two comments, of which the first
names it. Only what is between such comments is written here, and no figure of a run stands
elsewhere. The run is kept beside them as docs/performance.json, and the chart as
docs/performance.svg.
"""

from __future__ import annotations

import argparse
import re
from functools import reduce
from pathlib import Path

from tests.bench import chart
from tests.bench.results import Result, read
from tests.bench.tables import TABLES, Figured, summary

ROOT = Path(__file__).parents[2]
PAGES = ("docs/performance.md", "README.md")
RUN = "docs/performance.json"
CHART = "docs/performance.svg"
_BUSY = 1.0
_PLACE = re.compile(r"(<!-- bench: (\w+) -->\n).*?(<!-- end of bench -->)", re.DOTALL)


def filled(page: str, blocks: dict[str, str]) -> str:
    """The page with each block in its place. Raises: KeyError where it has a place for another."""
    return _PLACE.sub(lambda place: f"{place[1]}{blocks[place[2]]}{place[3]}", page)


def blocks(result: Result) -> dict[str, str]:
    """What goes into the documents, by the names of the places."""
    made = {name: table(result).markdown() for name, table in TABLES.items()}
    return {**made, "summary": summary(result).markdown(), "about": about(result) + "\n"}


def replaced(kept: Result, part: str, newer: Result) -> Result:
    """A run with one part of another, and when and on what that was measured."""
    rows = [row for row in kept.rows if row.part != part] + newer.of_part(part)
    others = kept.about.get("others", {}) | {
        part: f"{newer.about['date']}, {newer.about['machine']}"
    }
    return Result({**kept.about, "others": others}, rows)


def about(result: Result) -> str:
    """When and on what it was measured, in a line."""
    told = result.about
    d_us = Figured(result).d_us
    d = "" if d_us is None else f" d was {d_us:.0f} µs."
    load = told["load"]
    of_pages = f" Pages: {told['pages']}." if "pages" in told else ""
    by_run: dict[str, list[str]] = {}
    for part, when in told.get("others", {}).items():
        by_run.setdefault(when, []).append(part)
    others = "".join(f" Of another run ({when}): {', '.join(by_run[when])}." for when in by_run)
    rough = "" if load < _BUSY else f" **A rough run**: a load of {load:g} was there before."
    return (
        f"{told['date']}, {told['machine']}; {told['versions']}. Statements: medians of"
        f" {told['passes']} passes, {told['load_s']:g} s each; sysbench: of"
        f" {told['sysbench_passes']}, {told['sysbench_s']} s each.{of_pages}{d}{others}{rough}"
    )


def drawn(result: Result) -> str:
    """The chart."""
    return chart.svg(chart.bars(result), "CPU time a statement, as parts of d")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?", default=Path("bench.json"))
    parser.add_argument(
        "--part", action="append", help="write this part only, and keep the rest of the last run"
    )
    options = parser.parse_args()
    result = read(options.run)
    if options.part:
        kept, newer = read(ROOT / RUN), result
        result = reduce(lambda whole, part: replaced(whole, part, newer), options.part, kept)
    lacking = [name for name, table in TABLES.items() if not table(result).rows]
    if lacking:
        parser.error(f"the run did not measure {', '.join(lacking)}")
    for name in PAGES:
        page = ROOT / name
        page.write_text(filled(page.read_text(), blocks(result)))
    result.write(ROOT / RUN)
    (ROOT / CHART).write_text(drawn(result))


if __name__ == "__main__":
    main()
