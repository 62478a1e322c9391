"""The coherence protocol, as it is written, in every order of small cases and by chance.

The real engines of several processes run over simulated connections, nodes, clocks and a database;
see `model_world` for the law they must keep. A failure prints its schedule, cut down, and its
history; `model_soak` searches on. That all this finds what is wrong is shown by `model_bugs`.
"""

import logging
from collections.abc import Iterator

import pytest

from tests.coherence.model_bugs import BUGS, Bug
from tests.coherence.model_cases import CASES, LARGE, PROFILES
from tests.coherence.model_explore import draw, explore
from tests.coherence.model_network import Lameness
from tests.coherence.model_row_bugs import ROW_BUGS
from tests.coherence.model_search import Violation, replay, reproducible, search, shortest
from tests.coherence.model_world import DEADLINE_S, LEASE_TTL_S, LONGEST_WAIT_S, Shape, World

_MOST_ORDERS, _MOST_OF_LARGE = 120, 1_500
_ORDERS_DRAWN = 50
_EXAMPLES = 40
_EXAMPLES_TO_FIND_A_BUG = 1_000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Outages are what this is about, and their number is too large to be told of."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("case", [case for case in CASES if case not in LARGE])
def test_a_small_case_is_linearizable_in_every_order(case: str) -> None:
    _, violation = explore(CASES[case], most=_MOST_ORDERS)
    assert violation is None, _told(violation)


@pytest.mark.soak
@pytest.mark.parametrize("case", LARGE)
def test_a_large_case_is_linearizable_in_every_order(case: str) -> None:
    _, violation = explore(CASES[case], most=_MOST_OF_LARGE)
    assert violation is None, _told(violation)


@pytest.mark.parametrize("case", LARGE)
def test_a_large_case_is_linearizable_in_orders_that_chance_draws(case: str, seed: int) -> None:
    violation = draw(CASES[case], times=_ORDERS_DRAWN, seed=seed)
    assert violation is None, _told(violation)


@pytest.mark.parametrize("profile", PROFILES)
def test_what_chance_draws_is_linearizable(profile: str) -> None:
    violation = search(PROFILES[profile], range(_EXAMPLES))
    assert violation is None, _told(violation)


@pytest.mark.parametrize("bug", [*BUGS, *ROW_BUGS], ids=lambda bug: bug.__name__)
def test_each_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    assert _found((BUGS | ROW_BUGS)[bug]) is not None


def test_a_schedule_breaks_the_law_each_time_it_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    bug = next(bug for bug, where in BUGS.items() if where in PROFILES)
    bug(monkeypatch)
    found = _found(BUGS[bug])
    assert found is not None
    again = replay(found.shape, found.schedule)
    assert again is not None
    assert again.history == found.history
    assert len(shortest(found).schedule) <= len(found.schedule)


@pytest.fixture
def world() -> Iterator[World]:
    """Three processes, the first of which fills `a` and waits for MySQL's answer; others too, and
    readers of each, wait for it."""
    with reproducible(0):
        world = World(Shape(processes=3))
        _begin_reads(world, "0:filler")
        world.do(("pass", 0.1))
        _begin_reads(world, "0:reader", "1:reader", "1:second", "2:reader", "2:second")
        world.do(("pass", 0.1))
        yield world
        assert not world.problems()
        world.close()


def _begin_reads(world: World, *names: str) -> None:
    for name in names:
        world.do(("read", name[0], "a", name))


def _queries(world: World) -> list[str]:
    """The reads that MySQL is asked, by their process."""
    world.flow()
    return sorted(each.process for each in world.database.statements.values() if not each.orphan)


def test_however_long_a_fill_takes_the_others_wait_for_it(world: World) -> None:
    world.do(("pass", 3.0 * LEASE_TTL_S))
    assert _queries(world) == ["0"]
    world.do(("commit", "0:filler.0"))
    world.do(("pass", 0.1))
    assert not world.open
    assert world.hits == 5


@pytest.mark.parametrize("fate", ["freeze", "kill"])
def test_when_the_filler_is_no_more_one_of_the_others_fills(world: World, fate: str) -> None:
    world.do((fate, "0"))
    world.do(("pass", 2 * LEASE_TTL_S))
    (filler,) = [process for process in _queries(world) if process != "0"]
    world.do(("thaw", "0"))
    world.do(("pass", 3.0 * LEASE_TTL_S))
    assert [process for process in _queries(world) if process != "0"] == [filler]
    world.do(("settle",))
    world.do(("pass", 0.1))
    assert not world.open
    assert world.hits >= 3


def test_a_filler_that_stood_still_does_not_end_the_lease_of_the_next(world: World) -> None:
    world.do(("freeze", "0"))
    world.do(("lose", "0:filler.0"))
    world.do(("pass", 2 * LEASE_TTL_S))
    filler = _queries(world)
    assert len(filler) == 1
    world.do(("thaw", "0"))
    world.do(("pass", 3.0 * LEASE_TTL_S))
    assert [process for process in _queries(world) if process != "0"] == filler


def test_where_a_write_overtakes_a_fill_one_of_the_others_fills_anew(world: World) -> None:
    world.do(("hurry", "write", "1", "a", "plain", "1:write"))
    world.do(("pass", 1.0))
    assert len(_queries(world)) == 2  # of five readers
    _begin_reads(world, "0:later", "1:later", "2:later")
    world.do(("pass", 3.0 * LEASE_TTL_S))
    assert len(_queries(world)) == 2
    world.do(("settle",))
    world.do(("pass", 0.1))
    assert not world.open


def test_a_table_that_is_written_to_all_the_time_starves_no_reader(world: World) -> None:
    for number in range(10):
        world.do(("hurry", "write", "1", "a", "plain", f"1:write {number}"))
        world.do(("pass", 1.0))
    assert sorted(_queries(world)) == ["0", "1", "2"]


def test_during_a_write_the_others_wait_on(world: World) -> None:
    world.do(("write", "1", "a", "plain", "1:write"))
    world.do(("pass", DEADLINE_S / 2))
    assert _queries(world) == ["0", "1"]  # the fill and the write


@pytest.mark.parametrize("late_with", [each.name for each in Lameness])
def test_a_lame_node_delays_writes_only_until_it_counts_as_out(late_with: str) -> None:
    """However often it is connected with anew: no write begins anew to wait for it."""
    with reproducible(0):
        world = World(Shape())
        world.do(("lame", "n0", late_with))
        world.do(("write", "0", "a", "plain", "0:first"))
        world.do(("pass", LONGEST_WAIT_S - 0.5))
        assert _queries(world) == []
        world.do(("pass", 2.0))
        assert _queries(world) == ["0"]
        for number in range(3):
            world.do(("write", "0", "a", "plain", f"0:later {number}"))
        world.do(("pass", 0.1))
        assert _queries(world) == 4 * ["0"]
        world.do(("settle",))
        world.do(("pass", 0.1))
        assert not world.open
        world.do(("finish",))
        assert not world.problems()
        world.close()


def _found(where: str) -> Violation | None:
    if where in CASES:
        return explore(CASES[where], most=_MOST_OF_LARGE)[1]
    return search(PROFILES[where], range(_EXAMPLES_TO_FIND_A_BUG))


def _told(violation: Violation) -> str:
    return f"\n{shortest(violation)}"
