"""The Nth request to memcached fails, for N = 1, 2, 3 … until a run is done without.

In every run the client gets its answer, no read is stale (see `model_world`), and caching resumes;
only under `consistency` may a write be refused, and then it has changed nothing.
"""

import itertools
import logging
from collections.abc import Iterator

import pytest

from tests.coherence.model_mysql import QUERIES, tables_of
from tests.coherence.model_network import Fault
from tests.coherence.model_search import reproducible
from tests.coherence.model_world import Action, Shape, World

_FILL: tuple[Action, ...] = (("hurry", "read", "0", "ab", "0:fill"),)

SCENARIOS: dict[str, tuple[tuple[Action, ...], Action]] = {
    "a cold read": ((), ("read", "0", "ab", "0:it")),
    "a warm read": (_FILL, ("read", "0", "ab", "0:it")),
    "a write": (_FILL, ("write", "0", "a", "plain", "0:it")),
    "a transaction of two tables": (_FILL, ("write", "0", "ab", "plain", "0:it")),
    "a statement that commits twice": (_FILL, ("write", "0", "ab", "parts", "0:it")),
    "a write of anything": (_FILL, ("write", "0", "*", "plain", "0:it")),
    "a write that is not sent": (_FILL, ("write", "0", "ab", "undo", "0:it")),
}
_LONGEST_WAIT_S = 20.0
_CALM_S = 11.0  # for a quarantine, a fence's deadline, a lease's TTL


class _Run:
    """A run of one scenario in which the request number `nth` of its process suffers `fault`."""

    def __init__(self, scenario: str, shape: Shape, nth: int, fault: Fault) -> None:
        self.world = World(shape)
        self._before, self._action = SCENARIOS[scenario]
        self._nth = nth
        self._fault = fault
        self.suffered = False

    def play(self) -> None:
        world = self.world
        for action in self._before:
            world.do(action)
        for node in world.nodes.values():
            node.fault = self._next_fault
        world.do(self._action)
        world.do(("settle",))
        while "0:it" in world.open:
            assert world.now < 1000 + _LONGEST_WAIT_S, "the client waits in vain"
            world.do(("pass", 0.1))
            world.do(("settle",))
        for node in world.nodes.values():
            node.fault = lambda _: None

    def _next_fault(self, process: str) -> Fault | None:
        if process != "0" or self.suffered:
            return None
        self._nth -= 1
        self.suffered = self._nth == 0
        return self._fault if self.suffered else None

    def check(self) -> None:
        action, told = self._action, "\n".join(self.world.history)
        if action[0] == "write":
            refused = "  write 0:it is refused" in told
            acknowledged = "  write 0:it is acknowledged" in told
            assert not refused or self.world.shape.consistency
            assert refused or acknowledged or action[3] == "undo", told
            changed = set(self.world.database.values.values()) != {0}
            assert changed == acknowledged, told
        self.world.do(("finish",))
        self.world.do(("pass", _CALM_S))
        self.world.do(("settle",))  # who took over a lease fills
        self._must_hit()
        assert not self.world.problems()

    def _must_hit(self) -> None:
        for attempt in ("once", "twice"):
            before = self.world.hits
            for process, query in itertools.product(self.world.processes, QUERIES):
                name = f"{process}:{attempt} {tables_of(query)}"
                self.world.do(("hurry", "read", process, query, name))
        assert self.world.hits - before == len(self.world.processes) * len(QUERIES)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize(
    ("scenario", "consistency"),
    [
        (scenario, consistency)
        for scenario, (_, action) in SCENARIOS.items()
        for consistency in ((False, True) if action[0] == "write" else (False,))
    ],
)
def test_whatever_request_fails_the_promises_hold(
    scenario: str, consistency: bool, fault: Fault
) -> None:
    shape = Shape(processes=1, nodes=2, consistency=consistency)
    for nth in itertools.count(1):
        with reproducible(nth):
            run = _Run(scenario, shape, nth, fault)
            try:
                run.play()
                run.check()
            finally:
                run.world.close()
        if not run.suffered:
            assert nth > 4
            return
