"""What a metric is: its declaration, its histogram, and what Prometheus reads of it, which is
written here: by Prometheus' own library it kept the event loop, and all clients, for ten times
as long."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, Final, Literal

BOUNDS_S: Final = tuple(
    step * scale for scale in (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0) for step in (1, 2.5, 5)
)
"""The upper bounds of the classes of a `Histogram`; what is above the last is a class, too."""
_BOUNDS: Final = (*(f"{bound:.9g}" for bound in BOUNDS_S), "+Inf")
_OF_THE_PROCESS: Final = "process_"


class Histogram:
    """How long something took, by classes whose bounds are 1, 2.5 and 5 times a power of ten."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Counts one."""
        observe(seconds, self)

    def snapshot(self) -> dict[str, Any]:
        """What it has counted, as plain data."""
        return {"counts": list(self.counts), "sum_s": self.sum_s}

    def update(self, other: Mapping[str, Any]) -> None:
        """Adds another's snapshot."""
        self.counts = [a + b for a, b in zip(self.counts, other["counts"], strict=True)]
        self.sum_s += other["sum_s"]

    def buckets(self) -> list[tuple[str, int]]:
        """Upper bound, and how many took at most so long; as Prometheus wants them."""
        return list(zip(_BOUNDS, itertools.accumulate(self.counts), strict=True))


def observe(seconds: float, *histograms: Histogram) -> None:
    """Counts one in each."""
    place = bisect.bisect_left(BOUNDS_S, seconds)
    for each in histograms:
        each.counts[place] += 1
        each.sum_s += seconds


@dataclasses.dataclass(frozen=True, slots=True)
class Declaration:
    """A metric. `unit` is what it counts, or is in; `normal` what it is where nothing is wrong, and
    `otherwise` what to do where it is not so. `label` tells its values apart, if it has several."""

    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    help: str
    normal: str
    otherwise: str
    label: str | None = None

    def exposed(self, name: str) -> str:
        """Its name for Prometheus, without what its kind adds."""
        return name if name.startswith(_OF_THE_PROCESS) else f"sqlcache_{name}"

    def exposition(self, name: str, value: Any) -> str:
        """What Prometheus is told of the metric of this name, which has this value: lines of its
        text format, https://prometheus.io/docs/instrumenting/exposition_formats/."""
        name = self.exposed(name)
        if self.kind == "counter":
            name += "_total"
        head = f"# HELP {name} {self.help}\n# TYPE {name} {self.kind}\n"
        if isinstance(value, Histogram):
            return head + _histogram_lines(name, value)
        if self.label is None:
            return f"{head}{name} {value}\n"
        return head + "".join(
            f'{name}{{{self.label}="{_escaped(label)}"}} {count}\n'
            for label, count in sorted(value.items())
        )


def _histogram_lines(name: str, histogram: Histogram) -> str:
    buckets = histogram.buckets()
    lines = [f'{name}_bucket{{le="{bound}"}} {count}\n' for bound, count in buckets]
    return "".join(lines) + f"{name}_count {buckets[-1][1]}\n{name}_sum {histogram.sum_s}\n"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


# These only wrap `dataclasses.field`, so no instance shares its value (RUF009).


def counter(unit: str, help: str, normal: str, otherwise: str) -> int:
    """One that only grows."""
    return _field(Declaration("counter", unit, help, normal, otherwise), 0)


def gauge(unit: str, help: str, normal: str, otherwise: str) -> int:
    """One that rises and falls, and says nothing of a process that is gone."""
    return _field(Declaration("gauge", unit, help, normal, otherwise), 0)


def histogram(help: str, normal: str, otherwise: str) -> Histogram:
    """How long something took, in seconds."""
    value: Histogram = dataclasses.field(
        default_factory=Histogram,
        metadata={"metric": Declaration("histogram", "seconds", help, normal, otherwise)},
    )
    return value


def counter_by(
    label: str, unit: str, help: str, normal: str, otherwise: str, values: tuple[str, ...] = ()
) -> collections.Counter[str]:
    """A counter with a label, whose known values are shown as 0 from the start."""
    return _labelled(Declaration("counter", unit, help, normal, otherwise, label), values)


def gauge_by(
    label: str, unit: str, help: str, normal: str, otherwise: str
) -> collections.Counter[str]:
    """A gauge with a label."""
    return _labelled(Declaration("gauge", unit, help, normal, otherwise, label), ())


def _field(declared: Declaration, default: int) -> int:
    value: int = dataclasses.field(default=default, metadata={"metric": declared})
    return value


def _labelled(declared: Declaration, values: tuple[str, ...]) -> collections.Counter[str]:
    value: collections.Counter[str] = dataclasses.field(
        default_factory=lambda: collections.Counter(dict.fromkeys(values, 0)),
        metadata={"metric": declared},
    )
    return value
