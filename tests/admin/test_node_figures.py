"""What memcached nodes say of themselves, among the metrics."""

import asyncio
from typing import Any

import pytest

from sqlcache.admin import node_figures
from sqlcache.admin.node_figures import _SHOWN, NodeFigures
from sqlcache.admin.questions import Question
from sqlcache.metrics import Metrics, declarations
from sqlcache.operations import NODE_STATS

A_NODE = {"node": "a:1", "away": 0, "curr_items": 7, "evictions": 2, "version": "1.6"}
SILENT = {"node": "b:1", "away": 1, "error": "no answer"}


class Processes:
    """They are asked this often, and answer when they may."""

    def __init__(self) -> None:
        self.asked = 0
        self.may = asyncio.Event()
        self.may.set()
        self.answers: list[Any] = [[A_NODE, SILENT]]

    async def ask_one(self, question: Question, *about: Any) -> list[Any]:
        assert question is Question.NODES
        self.asked += 1
        await self.may.wait()
        return self.answers


async def shown(figures: NodeFigures) -> Metrics:
    metrics = Metrics()
    await figures.add_to(metrics)
    return metrics


async def test_each_node_that_answers_has_its_figures() -> None:
    metrics = await shown(NodeFigures(Processes()))  # type: ignore[arg-type]
    assert metrics.memcached_node_items == {"a:1": 7}
    assert metrics.memcached_node_evictions == {"a:1": 2}
    assert metrics.memcached_node_bytes == {}


async def test_nodes_are_asked_seldom_and_one_that_has_gone_is_shown_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processes = Processes()
    figures = NodeFigures(processes)  # type: ignore[arg-type]
    for _ in range(5):
        assert (await shown(figures)).memcached_node_items
    assert processes.asked == 1
    processes.answers = [[SILENT]]
    monkeypatch.setattr(node_figures, "FRESH_S", 0.0)
    assert (await shown(figures)).memcached_node_items == {}
    processes.answers = []
    assert (await shown(figures)).memcached_node_items == {}
    assert processes.asked == 3


async def test_who_asks_for_metrics_waits_for_no_slow_node() -> None:
    processes = Processes()
    processes.may.clear()
    figures = NodeFigures(processes)  # type: ignore[arg-type]
    async with asyncio.timeout(20):
        assert (await shown(figures)).memcached_node_items == {}
        processes.may.set()
        while not (await shown(figures)).memcached_node_items:
            pass
    assert processes.asked == 1


def test_all_figures_of_nodes_are_asked_for_and_shown() -> None:
    assert set(_SHOWN) <= set(NODE_STATS)
    metrics = Metrics()
    for metric in _SHOWN.values():
        metric(metrics)["a:1"] += 1
    own = [name for name, each in declarations() if each.label == "node"]
    counted = {name: getattr(metrics, name)["a:1"] for name in own}
    of_processes = ("memcached_node_away", "memcached_node_connections_lost")
    assert counted == dict.fromkeys(own, 1) | dict.fromkeys(of_processes, 0)
