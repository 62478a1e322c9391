"""What a machine does to a live run is no delay of those who run in it, and nothing else is."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.coherence.live_host import CALM_P99_S, CALM_S, OwnLag, are_late

SOON = [0.01] * 400


@pytest.mark.parametrize(
    ("late_s", "lag_s", "late"),
    [
        ([], 0, False),
        (SOON, 0, False),
        ([*SOON, CALM_S], 0, False),
        ([*SOON, CALM_S + 0.1], 0, True),
        ([*SOON, CALM_S + 0.1], 0.2, False),
        ([*SOON, CALM_S + 0.3], 0.2, True),
        ([*SOON, *[CALM_P99_S + 0.1] * 5], 0, True),
        ([*SOON, *[CALM_P99_S + 0.1] * 5], 0.2, False),
        ([*SOON, *[CALM_P99_S + 0.1] * 2], 0, False),
        ([CALM_P99_S + 0.1] * 5, 0, False),
    ],
)
def test_what_comes_late_but_for_the_machine_is_late(
    late_s: list[float], lag_s: float, late: bool
) -> None:
    assert are_late(late_s, lag_s) is late


async def test_a_pause_of_this_process_is_measured() -> None:
    lag = OwnLag()
    watching = asyncio.create_task(lag.watch())
    await asyncio.sleep(0)
    time.sleep(0.5)  # noqa: ASYNC251 - that is the pause
    await asyncio.sleep(0.2)
    watching.cancel()
    assert lag.seconds >= 0.4
