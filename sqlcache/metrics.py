"""Every metric, declared once: `Metrics` is the list of them, with their kind and help.

- Counting is an attribute: `metrics.hits += 1`, `metrics.bypasses["transaction"] += 1`. Nothing
  else happens until somebody asks.
- A process has one `Metrics`. Those of several processes are summed, gauges too, from snapshots.
- Names for Prometheus come from the attribute: `hits` is `sqlcache_hits_total`.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from sqlcache import __version__
from sqlcache.implementation import IMPLEMENTATION

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Snapshot = dict[str, int | dict[str, Any]]

_BOUNDS_S: Final = tuple(
    step * scale for scale in (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0) for step in (1, 2.5, 5)
)


class Histogram:
    """How long something took, by classes whose bounds are 1, 2.5 and 5 times a power of ten."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Counts one."""
        self.counts[bisect.bisect_left(_BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def snapshot(self) -> dict[str, Any]:
        """What it has counted, as plain data."""
        return {"counts": list(self.counts), "sum_s": self.sum_s}

    def update(self, other: Mapping[str, Any]) -> None:
        """Adds another's snapshot."""
        self.counts = [a + b for a, b in zip(self.counts, other["counts"], strict=True)]
        self.sum_s += other["sum_s"]

    def buckets(self) -> list[tuple[str, int]]:
        """Upper bound, and how many took at most so long; as Prometheus wants them."""
        bounds = [*(f"{bound:.9g}" for bound in _BOUNDS_S), "+Inf"]
        return list(zip(bounds, itertools.accumulate(self.counts), strict=True))


@dataclasses.dataclass(frozen=True, slots=True)
class _Declaration:
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    label: str | None = None


def _counter(help: str) -> int:
    value: int = dataclasses.field(default=0, metadata={"metric": _Declaration("counter", help)})
    return value


def _gauge(help: str) -> int:
    value: int = dataclasses.field(default=0, metadata={"metric": _Declaration("gauge", help)})
    return value


def _histogram(help: str) -> Histogram:
    value: Histogram = dataclasses.field(
        default_factory=Histogram, metadata={"metric": _Declaration("histogram", help)}
    )
    return value


def _counter_by(label: str, help: str, values: tuple[str, ...] = ()) -> collections.Counter[str]:
    """A counter with a label, whose known values are shown as 0 from the start.

    Like its siblings it only wraps `dataclasses.field`, so no instance shares its value (RUF009).
    """
    value: collections.Counter[str] = dataclasses.field(
        default_factory=lambda: collections.Counter(dict.fromkeys(values, 0)),
        metadata={"metric": _Declaration("counter", help, label)},
    )
    return value


@dataclasses.dataclass(slots=True)
class Metrics:
    """What one process has counted since it started."""

    hits: int = _counter("Reads answered from the cache.")
    misses: int = _counter("Reads that could have been answered from the cache and were not there.")
    bypasses: collections.Counter[str] = _counter_by(  # noqa: RUF009
        "reason", "Statements passed on without the cache being asked, by why."
    )
    fills: int = _counter("Answers stored.")
    fills_failed: int = _counter("Answers that memcached did not take.")
    fill_declined: int = _counter("Answers not storable: too large, with warnings, or an error.")
    invalidations: collections.Counter[str] = _counter_by(  # noqa: RUF009
        "kind",
        "Tags given a new version, by what they stand for; schemas and the root once a node.",
        ("table", "schema", "root"),
    )
    fences: int = _counter("Writes whose tags were marked before they were sent.")
    fences_shared: int = _counter("Those for which the marks of others under way stood already.")
    fences_unreachable: int = _counter("Tags a write should have marked whose node was away.")
    oks_withheld: int = _counter(
        "Writes MySQL has done whose OK was not sent: their tags could not be reached."
    )
    fences_lapsed: int = _counter("Marks of writes whose proxy is gone, lifted at their deadline.")
    writes_refused: int = _counter("Writes not sent because their tags could not be reached.")
    lease_waits: int = _counter("Reads that waited for another's fill of the same key.")
    lease_timeouts: int = _counter("Such waits that ended without an answer.")
    statements_relayed: int = _counter("Commands that were no hit at once: sent on, most of them.")
    statements_planned: int = _counter("Those of them that a plan made before was enough for.")
    statements_ahead: int = _counter(
        "Those that were answered as MySQL had before, and went to it with what it had to see next."
    )
    connections_accepted: int = _counter("Client connections accepted.")
    connections_open: int = _gauge("Client connections open now.")
    clients_cut: int = _counter("Those cut off: they did not read while others waited for a write.")
    hit_seconds: Histogram = _histogram(  # noqa: RUF009
        "From a read's arrival to its answer's sending, of those answered from the cache."
    )
    upstream_seconds: Histogram = _histogram(  # noqa: RUF009
        "From the sending of a client's command to MySQL to the end of its answer."
    )
    upstream_up: int = _gauge("Processes whose own connection to MySQL works.")
    workers: int = _gauge("Processes that serve.")
    upstream_errors: int = _counter("Connections to MySQL, for clients, that could not be opened.")
    bytes_to_clients: int = _counter("Bytes passed on from MySQL to clients.")
    memcached_nodes: int = _gauge("memcached nodes of the settings, in each process.")
    memcached_nodes_away: int = _gauge("Those that are silent, or not yet trusted again.")
    catalog_loads: int = _counter("Times the catalog was read from MySQL.")
    catalog_failures: int = _counter("Times it could not be read.")
    grants_missing: int = _gauge("Rights that sqlcache's own account needs and does not have.")
    pending_bumps: int = _gauge("Tags whose new version memcached has not taken yet; retried.")
    near_hits: int = _counter("Hits whose entry was in the process already.")
    early_refreshes: int = _counter("Entries fetched anew before their time, by one client.")
    stale_serves: int = _counter("Reads that a rule let have the last answer meanwhile.")
    node_outages: int = _counter("Silences of a memcached node after which it was disowned.")
    function_hits: int = _counter("Calls of cached Python functions answered from the cache.")
    function_runs: int = _counter("Times the body of a cached Python function was run.")
    function_declines: int = _counter("Values of cached Python functions that were not stored.")
    near_bytes: int = _gauge("Bytes of entries in the process.")
    statements_bytes: int = _gauge("Bytes that what is remembered of statements takes, roughly.")

    def snapshot(self) -> Snapshot:
        """All values as plain data, for another process."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @staticmethod
    def past(snapshot: Mapping[str, Any]) -> Snapshot:
        """Of a process that is gone, what still counts: all but the gauges."""
        gauges = {
            f.name for f in dataclasses.fields(Metrics) if f.metadata["metric"].kind == "gauge"
        }
        return {name: value for name, value in snapshot.items() if name not in gauges}

    @classmethod
    def merge(cls, snapshots: Iterable[Mapping[str, int | Mapping[str, Any]]]) -> Metrics:
        """The sum of several processes' snapshots."""
        total = cls()
        for snapshot in snapshots:
            for name, value in snapshot.items():
                if isinstance(value, Mapping):
                    getattr(total, name).update(value)
                else:
                    setattr(total, name, getattr(total, name) + value)
        return total

    def render(self) -> bytes:
        """All values as Prometheus text, of media type CONTENT_TYPE."""
        registry = CollectorRegistry()
        registry.register(_MetricsCollector(self))
        return generate_latest(registry)


def _plain(value: Any) -> Any:
    if isinstance(value, Histogram):
        return value.snapshot()
    return dict(value) if isinstance(value, dict) else value


class _MetricsCollector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        yield InfoMetricFamily(
            "sqlcache_build",
            "The running version, and whether its kernel is compiled or pure Python.",
            value={"version": __version__, "kernel": IMPLEMENTATION},
        )
        for declared in dataclasses.fields(Metrics):
            value = getattr(self._metrics, declared.name)
            yield _family(declared.name, declared.metadata["metric"], value)


def _family(name: str, declaration: _Declaration, value: Any) -> Metric:
    name = f"sqlcache_{name}"
    if isinstance(value, Histogram):
        return HistogramMetricFamily(
            name, declaration.help, buckets=value.buckets(), sum_value=value.sum_s
        )
    family = CounterMetricFamily if declaration.kind == "counter" else GaugeMetricFamily
    if declaration.label is None:
        return family(name, declaration.help, value=value)
    labelled = family(name, declaration.help, labels=[declaration.label])
    for label, count in sorted(value.items()):
        labelled.add_metric([label], count)
    return labelled
