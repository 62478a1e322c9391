import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sqlcache import __version__
from sqlcache.implementation import IMPLEMENTATION
from sqlcache.metrics import Metrics, declarations


def samples(metrics: Metrics) -> dict[str, float]:
    """What a Prometheus server would read: sample name with its labels' values -> value."""
    return {
        ".".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def test_every_metric_is_rendered_from_the_start() -> None:
    rendered = samples(Metrics())
    for name, declared in declarations():
        if name != "bypasses" and declared.label != "node":  # known when they happen
            exposed = declared.exposed(name)
            assert any(sample.startswith(exposed) for sample in rendered), name
    assert all(value == 0 for name, value in rendered.items() if "build" not in name)


def test_every_metric_has_help_and_counters_end_in_total() -> None:
    for family in text_string_to_metric_families(Metrics().render().decode()):
        assert family.documentation
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)


def test_counting_is_adding_to_an_attribute() -> None:
    metrics = Metrics()
    metrics.hits += 2
    metrics.connections_open += 5
    metrics.bypasses["transaction"] += 3
    metrics.invalidations["table"] += 1
    rendered = samples(metrics)
    assert rendered["sqlcache_hits_total"] == 2
    assert rendered["sqlcache_connections_open"] == 5
    assert rendered["sqlcache_bypasses_total.transaction"] == 3
    assert rendered["sqlcache_invalidations_total.table"] == 1
    assert rendered["sqlcache_invalidations_total.root"] == 0


@pytest.mark.parametrize("label", ['a "word"', r"a \ and a \n", "two\nlines", "Grüße"])
def test_a_label_is_read_as_it_is(label: str) -> None:
    metrics = Metrics()
    metrics.bypasses[label] += 1
    assert samples(metrics)[f"sqlcache_bypasses_total.{label}"] == 1


def test_a_metric_that_was_not_declared_cannot_be_counted() -> None:
    with pytest.raises(AttributeError):
        Metrics().hitz = 1  # type: ignore[attr-defined]


def test_the_sum_of_several_processes_survives_the_way_as_json() -> None:
    first, second = Metrics(hits=1, connections_open=2), Metrics(hits=10, connections_open=20)
    first.bypasses["transaction"] += 1
    second.bypasses["transaction"] += 2
    second.bypasses["unsafe"] += 4
    snapshots = json.loads(json.dumps([first.snapshot(), second.snapshot()]))
    total = Metrics.merge(snapshots)
    assert (total.hits, total.connections_open) == (11, 22)
    assert total.bypasses == {"transaction": 3, "unsafe": 4}
    assert (first.hits, first.bypasses["unsafe"]) == (1, 0)


def test_a_snapshot_does_not_change_afterwards() -> None:
    metrics = Metrics()
    snapshot = metrics.snapshot()
    metrics.bypasses["transaction"] += 1
    assert snapshot["bypasses"] == {}


def test_two_instances_share_nothing() -> None:
    first, second = Metrics(), Metrics()
    first.invalidations["table"] += 1
    assert second.invalidations["table"] == 0


def test_what_runs_is_shown() -> None:
    (name,) = (name for name in samples(Metrics()) if name.startswith("sqlcache_build_info."))
    assert name == f"sqlcache_build_info.{IMPLEMENTATION}.{__version__}"


def test_a_histogram_counts_what_took_at_most_so_long() -> None:
    metrics, other = Metrics(), Metrics()
    for seconds in (0.000_02, 0.000_025, 0.3, 60):
        metrics.hit_seconds.observe(seconds)
    other.hit_seconds.observe(0.000_005)
    snapshots = json.loads(json.dumps([metrics.snapshot(), other.snapshot()]))
    rendered = samples(Metrics.merge(snapshots))
    assert rendered["sqlcache_hit_seconds_bucket.1e-05"] == 1
    assert rendered["sqlcache_hit_seconds_bucket.2.5e-05"] == 3
    assert rendered["sqlcache_hit_seconds_bucket.0.25"] == 3
    assert rendered["sqlcache_hit_seconds_bucket.0.5"] == 4
    assert rendered["sqlcache_hit_seconds_bucket.+Inf"] == 5
    assert rendered["sqlcache_hit_seconds_count"] == 5
    assert rendered["sqlcache_hit_seconds_sum"] == pytest.approx(60.300_05)


def test_of_a_process_that_is_gone_the_counters_stay() -> None:
    metrics = Metrics(hits=3, connections_open=5)
    metrics.hit_seconds.observe(0.1)
    total = Metrics.merge([Metrics.past(metrics.snapshot()), Metrics(hits=1).snapshot()])
    assert (total.hits, total.connections_open) == (4, 0)
    assert sum(total.hit_seconds.counts) == 1
