"""The dashboard asks for what there is, and Grafana finds it and its source of numbers."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docker.promql import ROOT, never_counted, promtool, unknown, unknown_reasons
from tests.docker.test_prometheus import RULES, RUNBOOK, alerts

FOLDER = ROOT / "docker" / "grafana"
DASHBOARD = FOLDER / "sqlcache.json"
COMPOSE = ROOT / "docker" / "compose.yaml"
COLUMNS = 24

MADE_BY_GRAFANA = {"__rate_interval": "5m", "__range": "6h"}


def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return read


def panels() -> list[dict[str, Any]]:
    """Without the rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def variables() -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in dashboard()["templating"]["list"]}


def expressions() -> list[str]:
    """Every query, its variables replaced as Grafana does."""
    values = {name: each["query"] for name, each in variables().items() if name == "asked"}
    values |= MADE_BY_GRAFANA | {"job": "sqlcache", "instance": "sqlcache:9307"}
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    asked += [note["expr"] for note in dashboard()["annotations"]["list"] if "expr" in note]
    return [re.sub(r"\$(\w+)", lambda found: values[found[1]], each) for each in asked]


def provisioned(kind: str) -> dict[str, Any]:
    (file,) = (FOLDER / "provisioning" / kind).glob("*.yaml")
    read: dict[str, Any] = yaml.safe_load(file.read_text())
    return read


def seen_at(path: str) -> Path:
    """The repository's file or folder that the compose file's Grafana sees there."""
    volumes = yaml.safe_load(COMPOSE.read_text())["services"]["grafana"]["volumes"]
    mounted = {Path(target): source for source, target, *_ in map(_source_and_target, volumes)}
    at = max((target for target in mounted if Path(path).is_relative_to(target)), key=str)
    return (COMPOSE.parent / mounted[at]).resolve() / Path(path).relative_to(at)


def _source_and_target(volume: str | dict[str, str]) -> list[str]:
    """Of a volume in the compose file's short form or its long one."""
    return volume.split(":") if isinstance(volume, str) else [volume["source"], volume["target"]]


def test_it_is_known_by_a_name_and_not_by_a_database_key() -> None:
    assert dashboard()["uid"] == "sqlcache"
    assert "id" not in dashboard()
    assert dashboard()["schemaVersion"] >= 38, "Grafana 10 at least"


def test_panels_are_told_apart_and_do_not_overlap() -> None:
    everything = dashboard()["panels"]
    ids = [panel["id"] for panel in everything]
    assert len(set(ids)) == len(ids)
    for panel in everything:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS, panel["title"]
    for a, b in itertools.combinations(everything, 2):
        one, other = a["gridPos"], b["gridPos"]
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (a["title"], b["title"])


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_says_what_to_look_for_in_which_unit_and_asks_the_chosen_source(
    panel: dict[str, Any],
) -> None:
    assert 1 <= len(re.findall(r"\.(?: |$)", panel["description"])) <= 3, "clear sentences, few"
    assert panel["fieldConfig"]["defaults"]["unit"]
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert panel["datasource"] == chosen
    assert all(target["datasource"] == chosen for target in panel["targets"])
    references = [target["refId"] for target in panel["targets"]]
    assert len(set(references)) == len(references)
    for target in panel["targets"]:
        assert 'job=~"$job"' in target["expr"]
        assert 'instance=~"$instance"' in target["expr"]


def test_each_alert_is_shown_by_a_panel_that_links_to_its_page() -> None:
    links = {link["url"] for panel in panels() for link in panel["links"]}
    assert links == {f"{RUNBOOK}#{alert.lower()}" for alert in alerts()}
    assert [link["url"] for link in dashboard()["links"]] == [RUNBOOK]


def test_every_query_is_promql(tmp_path: Path) -> None:
    asked = [{"record": f"a:query:{n}", "expr": each} for n, each in enumerate(expressions())]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": asked}]}))
    assert f"{len(asked)} rules found" in promtool("check", "rules", file)


def test_every_query_is_about_what_is_exposed_and_counted() -> None:
    assert unknown(expressions()) == []
    assert never_counted(expressions()) == []
    assert unknown_reasons(expressions()) == []


def test_every_variable_is_declared_and_asks_for_what_is_exposed() -> None:
    used = set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text()))
    assert used - MADE_BY_GRAFANA.keys() - {"__all"} == set(variables())
    asked = [each["query"]["query"] for each in variables().values() if each["type"] == "query"]
    found = [re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", each) for each in asked]
    assert unknown([f'{each[1]}{{{each[2]}=""}}' for each in found if each]) == []
    assert all(found)


def test_a_hit_share_is_of_the_same_reads_in_the_dashboard_and_in_the_alerts() -> None:
    assert f'reason=~"{variables()["asked"]["query"]}"' in RULES.read_text()


def test_grafana_finds_the_dashboard_and_prometheus_where_the_compose_file_puts_them() -> None:
    assert seen_at("/etc/grafana/provisioning") == FOLDER / "provisioning"
    (provider,) = provisioned("dashboards")["providers"]
    assert seen_at(f"{provider['options']['path']}/{DASHBOARD.name}") == DASHBOARD
    (source,) = provisioned("datasources")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in yaml.safe_load(COMPOSE.read_text())["services"]
