"""The coherence protocol, as it is written, in every order of small cases and by chance.

The real engines of several processes run over simulated connections, nodes, clocks and a database;
see `model_world` for the law they must keep. A failure prints its schedule, cut down, and its
history; `model_soak` searches on. That all this finds what is wrong is shown by `model_bugs`.
"""

import logging
from collections.abc import Iterator

import pytest

from tests.coherence.model_bugs import BUGS, Bug
from tests.coherence.model_cases import CASES, PROFILES
from tests.coherence.model_explore import explore
from tests.coherence.model_search import Violation, replay, search, shortest

_MOST_ORDERS = 1_500
_EXAMPLES = 100
_EXAMPLES_TO_FIND_A_BUG = 400


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Outages are what this is about, and their number is too large to be told of."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("case", CASES)
def test_a_small_case_is_linearizable_in_every_order(case: str) -> None:
    _, violation = explore(CASES[case], most=_MOST_ORDERS)
    assert violation is None, _told(violation)


@pytest.mark.parametrize("profile", PROFILES)
def test_what_chance_draws_is_linearizable(profile: str) -> None:
    violation = search(PROFILES[profile], range(_EXAMPLES))
    assert violation is None, _told(violation)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_each_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    assert _found(BUGS[bug]) is not None


def test_a_schedule_breaks_the_law_each_time_it_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    bug = next(bug for bug, where in BUGS.items() if where in PROFILES)
    bug(monkeypatch)
    found = _found(BUGS[bug])
    assert found is not None
    again = replay(found.shape, found.schedule)
    assert again is not None
    assert again.history == found.history
    assert len(shortest(found).schedule) <= len(found.schedule)


def _found(where: str) -> Violation | None:
    if where in CASES:
        return explore(CASES[where], most=_MOST_ORDERS)[1]
    return search(PROFILES[where], range(_EXAMPLES_TO_FIND_A_BUG))


def _told(violation: Violation) -> str:
    return f"\n{shortest(violation)}"
