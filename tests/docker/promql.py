"""What PromQL expressions name, beside what there is; and promtool, which knows their grammar."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from sqlcache.demo.servers import find_program
from sqlcache.metrics import Metrics, declarations

ROOT = Path(__file__).parents[2]

TARGET_LABELS = frozenset({"job", "instance", "namespace"})
"""What Prometheus adds to each series of a target; the namespace in Kubernetes."""

_OF_PROMETHEUS = {
    "up": set[str](),
    "scrape_duration_seconds": set[str](),
    "ALERTS": {"alertname", "alertstate"},
}
_STRING = r'"(?:[^"\\]|\\.)*"'
_MATCHERS = rf"\{{((?:{_STRING}|[^}}\"])*)\}}"
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_NAMED = re.compile(rf"(?<![\w:.])([a-zA-Z_:][\w:]*+)(?!\s*\()(?:{_MATCHERS})?")
_MATCHER = re.compile(rf"(\w+)\s*(?:=~|!~|!=|=)\s*({_STRING})")
_WORDS = frozenset({"and", "or", "unless", "offset", "bool"})


class Selector(NamedTuple):
    """A metric's name, and what its labels are compared with."""

    metric: str
    labels: Mapping[str, str]


def promtool(*arguments: str | Path) -> str:
    """What it prints. Fails the test with that where it is not content."""
    done = subprocess.run(
        [find_program("promtool", "prometheus"), *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def selectors(expression: str) -> list[Selector]:
    """The metrics an expression names."""
    bare = re.sub(r"\[[^\]]*\]", "", _GROUPING.sub("", expression))
    return [
        Selector(name, {k: ast.literal_eval(v) for k, v in _MATCHER.findall(matchers)})
        for name, matchers in _NAMED.findall(bare)
        if name not in _WORDS
    ]


def unknown(expressions: Iterable[str], recorded: Iterable[str] = ()) -> list[str]:
    """What the expressions name that neither sqlcache exposes nor Prometheus or a rule makes."""
    there = _OF_PROMETHEUS | _exposed() | {name: set[str]() for name in recorded}
    found = []
    for expression in expressions:
        named = selectors(expression)
        may_be_grouped = set(TARGET_LABELS)
        for metric, labels in named:
            has = TARGET_LABELS | there.get(metric, set())
            may_be_grouped |= has
            found += [metric] if metric not in there else []
            found += [f"{metric}{{{label}}}" for label in labels if label not in has]
        grouped = re.findall(r"\w+", " ".join(_GROUPING.findall(expression)))
        found += [f"by ({label})" for label in grouped if label not in may_be_grouped]
    return found


def never_counted(expressions: Iterable[str]) -> list[str]:
    """sqlcache's metrics in the expressions that no line of its code touches."""
    named = {each.metric for expression in expressions for each in selectors(expression)}
    attributes = {
        re.sub(r"_(total|bucket|sum|count)$", "", metric.removeprefix("sqlcache_"))
        for metric in named
        if metric.startswith("sqlcache_") and metric != "sqlcache_build_info"
    }
    return sorted(name for name in attributes if not re.search(rf"metrics\.{name}\b", _code()))


def unknown_reasons(expressions: Iterable[str]) -> list[str]:
    """Reasons of bypasses in the expressions that no line of sqlcache's code gives."""
    patterns = {
        each.labels["reason"]
        for expression in expressions
        for each in selectors(expression)
        if "reason" in each.labels
    }
    asked = {reason for pattern in patterns for reason in pattern.split("|")}
    given = _strings()
    return sorted(each for each in asked if not any(re.fullmatch(each, text) for text in given))


@cache
def _exposed() -> dict[str, set[str]]:
    """Every sample's name of /metrics, and its labels."""
    metrics = Metrics()
    for name, declared in declarations():
        if declared.label is not None:
            getattr(metrics, name)["a value"] += 1
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@cache
def _code() -> str:
    return "".join(file.read_text() for file in sorted((ROOT / "sqlcache").rglob("*.py")))


@cache
def _strings() -> frozenset[str]:
    """The texts in the code, as they are."""
    files = (ROOT / "sqlcache").rglob("*.py")
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text())))
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    return frozenset(value for value in constants if isinstance(value, str))
