from collections.abc import AsyncIterator

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.memcache import health
from sqlcache.metrics import Metrics
from tests.cache.engines import DEADLINE_S, Node, engine_on, limits


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was late, as each is on a busy host, is soon believed again to be on time."""
    monkeypatch.setattr(health, "_PATIENCE_S", 3.0)


@pytest.fixture
async def node() -> Node:
    return Node()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def trusting() -> bool:
    """Whether the engines trust their nodes on: to be overridden where those are away."""
    return True


@pytest.fixture
def deadline_s() -> float:
    """How long their fences stand without a beat: to be overridden where those are to lapse."""
    return DEADLINE_S


@pytest.fixture
async def engines(
    node: Node, metrics: Metrics, trusting: bool, deadline_s: float
) -> AsyncIterator[list[Engine]]:
    """Two engines on one store."""
    own = limits(write_deadline_s=deadline_s)
    made = [await engine_on(node, metrics=metrics, own=own, trusting=trusting) for _ in range(2)]
    yield made
    for engine in made:
        await engine.close()


@pytest.fixture
def engine(engines: list[Engine]) -> Engine:
    return engines[0]
