"""Small ones of what `idle_sessions` and `statement_flood` do."""

from pathlib import Path

import pytest

from tests.bench import idle_sessions
from tests.bench.statement_flood import (
    MOST_BYTES,
    MOST_US,
    counting_us,
    list_bytes,
    long_shapes,
    short_shapes,
)

MOST_A_SESSION = 100e6 / 5_000


def test_an_idle_session_takes_its_part_of_100_mb_and_the_one_above_the_limit_is_told_so(
    tmp_path: Path,
) -> None:
    sessions = 200
    before, after, told = idle_sessions.measure(tmp_path, sessions)
    taken = after.own - before.own
    assert 1_000 < taken / sessions < MOST_A_SESSION, "else they were not there"
    assert after.whole - before.whole < sessions * MOST_A_SESSION
    assert told.args == (1040, "Too many connections")


@pytest.mark.parametrize("length", ["short", "long"])
def test_a_flood_of_shapes_leaves_the_list_within_its_bytes(length: str) -> None:
    shapes = short_shapes(20_000) if length == "short" else long_shapes()
    assert list_bytes(shapes) < MOST_BYTES


def test_counting_a_hit_in_the_list_takes_less_than_a_microsecond_after_a_flood() -> None:
    assert counting_us(5_000) < MOST_US
