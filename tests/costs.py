"""What work costs the processor, held against other work of the same moments: how fast the machine
is does not count, and what else it does meanwhile only adds to some of the tries."""

import gc
from collections.abc import Callable
from time import process_time

TRIES = 20

TIMES = 8
FACTOR = 22
ENOUGH_S = 0.004  # to be measured
LONGEST_BYTES = 64_000


def cost_s(run: Callable[[], object]) -> float:
    gc.disable()
    try:
        began = process_time()
        run()
        return process_time() - began
    finally:
        gc.enable()


def costs_at_most(times: float, run: Callable[[], object], than: Callable[[], object]) -> bool:
    """Whether the one costs so many times what the other does, or less, each at its cheapest."""
    least = least_of_other = float("inf")
    for _ in range(TRIES):
        least = min(least, cost_s(run))
        least_of_other = min(least_of_other, cost_s(than))
        if least <= times * least_of_other:
            return True
    return False


def a_moment() -> None:
    """A millisecond's work, where the processor is one of 2023."""
    for _ in range(100_000):
        pass


def grows_linearly(make: Callable[[int], bytes], way: Callable[[bytes], object]) -> bool:
    """Whether what is `TIMES` as large costs about as many times as much: were some step of the way
    quadratic, it were `TIMES` times that."""

    def cost(n: int) -> float:
        made = make(n)
        return cost_s(lambda: way(made))

    n = 64
    while cost(n) < ENOUGH_S and len(make(n)) < LONGEST_BYTES:
        n *= 2
    return any(cost(TIMES * n) < FACTOR * max(cost(n), ENOUGH_S / TIMES) for _ in range(TRIES))
