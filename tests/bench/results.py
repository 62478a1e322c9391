"""What a run has measured: rows with their repeats, and what was measured on. Written as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Figures = Mapping[str, float]
"""What one repeat measured, by its name, which ends in its unit: `rate` is answers a second,
`sqlcache_us` the CPU time of sqlcache an answer."""

_DIGITS = 4  # more would claim what no clock here tells


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of work, done one way by so many connections: its repeats, in the order of the run.
    Repeat number n of every row was measured in the same pass over all of them."""

    part: str
    name: str
    way: str
    connections: int
    repeats: list[Figures] = field(default_factory=list)

    @property
    def id(self) -> tuple[str, str, str, int]:
        return self.part, self.name, self.way, self.connections

    @property
    def median(self) -> Figures:
        """The median of the repeats, for each figure by itself."""
        names = self.repeats[0].keys()
        return {name: statistics.median(each[name] for each in self.repeats) for name in names}

    def ratio(
        self, measure: Callable[[Figures], float], to: Row, of: Callable[[Figures], float]
    ) -> float:
        """The median over the passes of a measure, as a part of another row's in the same pass:
        what slowed the machine for a while slowed both."""
        return statistics.median(
            measure(own) / of(other) for own, other in zip(self.repeats, to.repeats, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Result:
    """A whole run. `about` says when, on what, with which versions and how long."""

    about: Mapping[str, Any]
    rows: list[Row] = field(default_factory=list)

    def find(self, part: str, name: str, way: str, connections: int) -> Row | None:
        """The row that was measured so, if it was."""
        wanted = part, name, way, connections
        return next((row for row in self.rows if row.id == wanted), None)

    def of_part(self, part: str) -> list[Row]:
        return [row for row in self.rows if row.part == part]

    def add(self, rows: Iterable[Row]) -> None:
        self.rows.extend(row for row in rows if row.repeats)

    def write(self, path: Path) -> None:
        """As JSON, a row a line, with few digits."""
        head = json.dumps(self.about, ensure_ascii=False, indent=1)
        rows = ",\n".join(json.dumps(_as_json(row), ensure_ascii=False) for row in self.rows)
        path.write_text(f'{{"about": {head},\n"rows": [\n{rows}\n]}}\n')


def read(path: Path) -> Result:
    """What `Result.write` has written; the medians, which stand there for others, are made anew."""
    said = json.loads(path.read_text())
    rows = []
    for each in said["rows"]:
        each.pop("median")
        rows.append(Row(**each))
    return Result(said["about"], rows)


def _as_json(row: Row) -> dict[str, Any]:
    return {
        "part": row.part,
        "name": row.name,
        "way": row.way,
        "connections": row.connections,
        "median": _rounded(row.median),
        "repeats": [_rounded(each) for each in row.repeats],
    }


def _rounded(figures: Figures) -> dict[str, float]:
    return {name: float(f"{value:.{_DIGITS}g}") for name, value in figures.items()}
