"""How far who follows the log is behind, by when its ends were seen."""

import asyncio

import pytest

from sqlcache.binlog.lag import LOOK_EVERY_S, Lag


class Clock:
    now = 100.0


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock.now, raising=False)
    return clock


async def test_it_is_behind_since_the_end_up_to_which_it_had_followed_was_seen(
    clock: Clock,
) -> None:
    lag = Lag()
    lag.begin()
    assert not lag.ended(100.0, ("log.000001", 500))
    clock.now = 103.0
    assert lag.lag_s == 3.0
    assert not lag.ended(103.0, ("log.000001", 900))
    assert not lag.bumped(("log.000001", 500))
    clock.now = 104.0
    assert lag.lag_s == 4.0
    assert lag.bumped(("log.000001", 900))
    assert lag.lag_s == 0.0


async def test_a_moment_without_a_look_is_no_lag(clock: Clock) -> None:
    lag = Lag()
    clock.now += 2 * LOOK_EVERY_S
    assert lag.lag_s == 0.0
    clock.now += 3.0
    assert lag.lag_s == 3.0


async def test_it_is_in_bytes_of_the_file_in_which_the_log_ends(clock: Clock) -> None:
    lag = Lag()
    assert lag.in_bytes((1, 100)) == 0
    lag.ended(clock.now, ("log.000002", 700))
    assert lag.in_bytes((1, 100)) == 700
    assert lag.in_bytes((2, 100)) == 600
    assert lag.in_bytes((2, 800)) == 0


async def test_it_stalls_while_nothing_comes_of_a_log_that_goes_on(clock: Clock) -> None:
    lag = Lag()
    assert lag.stalled_s(clock.now) == 0.0
    lag.ended(clock.now, ("log.000001", 500))
    clock.now += 5.0
    assert lag.stalled_s(clock.now) == 5.0
    lag.came()
    clock.now += 9.0
    assert lag.stalled_s(clock.now) == 0.0, "it may take its time to bump what has come"
    lag.listens()
    assert lag.stalled_s(clock.now + 5.0) == 5.0
    lag.begin_connection()
    assert lag.stalled_s(clock.now + 9.0) == 0.0
