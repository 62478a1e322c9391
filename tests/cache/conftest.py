from collections.abc import AsyncIterator

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.metrics import Metrics
from tests.cache.engines import Node, engine_on


@pytest.fixture
async def node() -> Node:
    return Node()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def engines(node: Node, metrics: Metrics) -> AsyncIterator[list[Engine]]:
    """Two engines on one store."""
    made = [await engine_on(node, metrics=metrics) for _ in range(2)]
    yield made
    for engine in made:
        await engine.close()


@pytest.fixture
def engine(engines: list[Engine]) -> Engine:
    return engines[0]
