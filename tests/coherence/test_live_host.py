"""What a machine does to a live run is no delay of those who run in it, and nothing else is."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.coherence.live_host import CALM_P99_S, CALM_S, OwnLag, Span, are_late

SOON = [(0.1 * number, 0.01) for number in range(400)]
PAUSES = [(50.0, 0.2), (60.0, 0.2), (70.0, 0.2)]


def at(began: float, late_s: float, count: int = 1) -> list[Span]:
    return [(began, late_s)] * count


@pytest.mark.parametrize(
    ("late", "pauses", "expected"),
    [
        ([], [], False),
        (SOON, [], False),
        ([*SOON, *at(50, CALM_S)], [], False),
        ([*SOON, *at(50, CALM_S + 0.1)], [], True),
        ([*SOON, *at(50, CALM_S + 0.1)], PAUSES, False),
        ([*SOON, *at(50, CALM_S + 0.3)], PAUSES, True),
        ([*SOON, *at(50, CALM_P99_S + 0.1, 5)], [], True),
        ([*SOON, *at(50, CALM_P99_S + 0.1, 5)], PAUSES, False),
        ([*SOON, *at(80, CALM_P99_S + 0.1, 5)], PAUSES, True),
        ([*SOON, *at(50, CALM_P99_S + 0.1, 2)], [], False),
        (at(50, CALM_P99_S + 0.1, 5), [], False),
    ],
)
def test_what_comes_late_but_for_the_machine_is_late(
    late: list[Span], pauses: list[Span], expected: bool
) -> None:
    assert are_late(late, pauses) is expected


async def test_a_pause_of_this_process_is_measured() -> None:
    lag = OwnLag()
    watching = asyncio.create_task(lag.watch())
    await asyncio.sleep(0)
    began = time.monotonic()
    time.sleep(0.5)  # noqa: ASYNC251 - that is the pause
    await asyncio.sleep(0.2)
    watching.cancel()
    assert any(at - 0.1 < began < at + lasted and lasted >= 0.4 for at, lasted in lag.pauses)
