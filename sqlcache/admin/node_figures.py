"""The figures of the memcached nodes among the metrics."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlcache.admin.questions import Operated, Question
from sqlcache.metrics import Metrics

_log = logging.getLogger("sqlcache.admin")

FRESH_S: Final = 5.0
WAIT_S: Final = 0.25
"""For how long who asks for metrics waits for nodes that are slow to answer."""

_SHOWN: Final[dict[str, Callable[[Metrics], Counter[str]]]] = {
    "curr_items": lambda metrics: metrics.memcached_node_items,
    "bytes": lambda metrics: metrics.memcached_node_bytes,
    "limit_maxbytes": lambda metrics: metrics.memcached_node_limit_bytes,
    "curr_connections": lambda metrics: metrics.memcached_node_connections,
    "evictions": lambda metrics: metrics.memcached_node_evictions,
    "get_hits": lambda metrics: metrics.memcached_node_hits,
    "get_misses": lambda metrics: metrics.memcached_node_misses,
    "cmd_set": lambda metrics: metrics.memcached_node_sets,
}
"""By memcached's name of a figure, the metric that shows it."""


class NodeFigures:
    """What the nodes last said of themselves. They are asked by one of the processes, once in
    `FRESH_S` at most, however often metrics are asked for."""

    def __init__(self, operated: Operated) -> None:
        self._operated = operated
        self._nodes: Sequence[dict[str, Any]] = ()
        self._asked_at = -FRESH_S
        self._asking: asyncio.Task[None] | None = None

    async def add_to(self, metrics: Metrics) -> None:
        """Of nodes that do not answer there is nothing. After `WAIT_S` it is what was said when
        they were asked before."""
        now = time.monotonic()
        if self._asking is None and now - self._asked_at >= FRESH_S:
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask())
        if self._asking is not None:
            await asyncio.wait([self._asking], timeout=WAIT_S)
        for node in self._nodes:
            for said, metric in _SHOWN.items():
                if isinstance(value := node.get(said), int):
                    metric(metrics)[node["node"]] = value

    async def _ask(self) -> None:
        try:
            self._nodes = next(iter(await self._operated.ask_one(Question.NODES)), ())
        except Exception:
            _log.exception("memcached nodes not asked")
        finally:
            self._asking = None
