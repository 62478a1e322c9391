"""The alerts fire when they should, name what there is, and each has its page in the runbook."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.docker.promql import (
    ROOT,
    never_counted,
    promtool,
    selectors,
    unknown,
    unknown_reasons,
)

FOLDER = ROOT / "docker" / "prometheus"
CONFIG = FOLDER / "prometheus.yaml"
RULES = FOLDER / "sqlcache.rules.yaml"
TESTS = sorted(FOLDER.glob("*.test.yaml"))
OPERATIONS = ROOT / "docs" / "operations.md"
RUNBOOK = "https://github.com/sqlcache/sqlcache/blob/main/docs/operations.md"


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def recorded() -> set[str]:
    return {rule["record"] for rule in rules() if "record" in rule}


def worlds() -> list[dict[str, Any]]:
    """What the alerts are tested with."""
    return [world for file in TESTS for world in yaml.safe_load(file.read_text())["tests"]]


def cases() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Every test of an alert, with the world it is about."""
    return [(world, case) for world in worlds() for case in world["alert_rule_test"]]


def has_a_quiet_one(world: dict[str, Any], case: dict[str, Any]) -> bool:
    """Whether there is an instance in the world of which the alert does not tell."""
    told = [alert["exp_labels"] for alert in case["exp_alerts"]]
    return any(
        all(
            (labels["job"], labels["instance"])
            != (of["job"], of.get("instance", labels["instance"]))
            for of in told
        )
        for series in world["input_series"]
        for _, labels in selectors(series["series"])
    )


def anchors(markdown: str) -> set[str]:
    """What GitHub makes of the headings."""
    headings = re.findall(r"^#+ +(.+?) *$", markdown, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_promtool_takes_the_rules_and_the_configuration() -> None:
    promtool("check", "rules", "--lint-fatal", RULES)
    assert "1 rule files found" in promtool("check", "config", CONFIG)


def test_each_alert_fires_when_it_should() -> None:
    promtool("test", "rules", *TESTS)


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(alert: str) -> None:
    mine = [(world, case) for world, case in cases() if case["alertname"] == alert]
    assert any(case["exp_alerts"] for _, case in mine)
    assert any(has_a_quiet_one(world, case) for world, case in mine)


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_says_how_bad_it_is_what_it_means_and_what_to_do(alert: str) -> None:
    rule = alerts()[alert]
    assert "for" in rule
    assert rule["labels"]["severity"] in ("critical", "warning")
    said = rule["annotations"]
    assert set(said) == {"summary", "description", "runbook_url"}
    assert said["description"].endswith(".")
    assert said["runbook_url"] == f"{RUNBOOK}#{alert.lower()}"


def test_each_runbook_is_in_the_operations_page() -> None:
    there = anchors(OPERATIONS.read_text())
    assert [alert for alert in alerts() if alert.lower() not in there] == []


def test_every_metric_is_one_that_is_exposed_and_counted() -> None:
    watched = [rule["expr"] for rule in rules()]
    simulated = [series["series"] for world in worlds() for series in world["input_series"]]
    assert unknown([*watched, *simulated], recorded()) == []
    assert never_counted([*watched, *simulated]) == []
    assert unknown_reasons([*watched, *simulated]) == []


def test_the_scraped_job_is_the_one_the_alerts_watch() -> None:
    watched = [labels for rule in rules() for _, labels in selectors(rule["expr"])]
    (scraped,) = yaml.safe_load(CONFIG.read_text())["scrape_configs"]
    assert {labels["job"] for labels in watched if "job" in labels} == {scraped["job_name"]}
    assert scraped["static_configs"] == [{"targets": ["sqlcache:9307"]}]


def test_two_alerts_are_to_be_changed_where_the_job_has_another_name() -> None:
    naming = [
        name
        for name, rule in alerts().items()
        if any("job" in labels for _, labels in selectors(rule["expr"]))
    ]
    assert naming == ["SqlcacheDown", "SqlcacheAbsent"]
    assert "or change `SqlcacheDown` and `SqlcacheAbsent`" in OPERATIONS.read_text()


def test_the_runbook_of_bypasses_knows_their_reasons() -> None:
    (runbook,) = re.findall(
        r"^### SqlcacheBypassesDominate\n(.*?)^### ",
        OPERATIONS.read_text(),
        re.DOTALL | re.MULTILINE,
    )
    told = set(re.findall(r"\*([a-z_ ]+)\*(?=[:,])", re.sub(r"\*\*.*?\*\*|\s+", " ", runbook)))
    assert {"switched off", "catalog unknown", "rewritten", "binlog lags"} <= told
    assert unknown_reasons(f'sqlcache_bypasses_total{{reason="{each}"}}' for each in told) == []
