"""How long others are waited for: while this process stands still, nobody is late."""

import time

import pytest

from sqlcache.demo.servers import wait_until
from sqlcache.demo.waiting import Waited


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Its reading, and how late each sleep ends."""
    reading = [0.0, 0.0]

    def sleep(seconds: float) -> None:
        reading[0] += seconds + reading[1]

    monkeypatch.setattr(time, "monotonic", lambda: reading[0])
    monkeypatch.setattr(time, "sleep", sleep)
    return reading


def test_what_is_slept_and_asked_counts(clock: list[float]) -> None:
    waited = Waited()
    waited.sleep(0.5)
    clock[0] += 0.25
    assert waited.seconds() == 0.75
    assert waited.seconds() == 0.75


def test_a_pause_counts_twice_the_sleep_or_as_a_long_question(clock: list[float]) -> None:
    waited = Waited()
    clock[1] = 2.0
    waited.sleep(0.5)
    clock[1] = 0.0
    waited.sleep(0.5)
    assert waited.seconds() == 1.5
    clock[0] += 2
    assert waited.seconds() == 2.5


def test_a_quarter_of_the_time_counts_in_any_case(clock: list[float]) -> None:
    waited = Waited()
    clock[0] += 100
    assert waited.seconds() == 25


def test_what_comes_after_a_pause_of_the_one_who_waits_came_in_time(clock: list[float]) -> None:
    tries = iter([False, False, True])

    def comes() -> bool:
        clock[0] += 3  # no core, before or amid the question
        return next(tries)

    wait_until(comes, 5, "the third")
    with pytest.raises(TimeoutError, match="never: not within 5 s"):
        wait_until(lambda: False, 5, "never")
    assert clock[0] == pytest.approx(9 + 5, abs=1)
