"""What is remembered of statements stays within its bound, whatever clients send."""

import subprocess
import sys

import pytest

from sqlcache.cache.bounded import Bounded, weigh
from tests.proxy import fill_memory

BOUND_BYTES = 8 << 20


def test_no_number_of_texts_takes_more_memory_than_the_setting_says() -> None:
    command = [sys.executable, "-m", fill_memory.__name__, str(BOUND_BYTES)]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    assert int(told.stdout) < 1.4 * BOUND_BYTES


def test_what_was_used_least_recently_makes_room() -> None:
    memory: Bounded[str, int] = Bounded(4_000)
    for number, key in enumerate("abcdefghij"):
        memory.put(key, number, 180)
    assert memory.get("a") == 0
    memory.put("k", 10, 180)
    assert (memory.get("a"), memory.get("b"), memory.get("k")) == (0, None, 10)
    assert memory.size_bytes <= 4_000
    memory.put("a", 11, 300)
    assert memory.get("a") is None, "it would take more than a tenth"
    memory.clear()
    assert (len(memory), memory.size_bytes) == (0, 0)


@pytest.mark.parametrize("value", [b"x" * 10_000, ("y" * 10_000,), frozenset({("z" * 10_000,)})])
def test_a_value_weighs_what_it_is_made_of(value: object) -> None:
    assert 10_000 < weigh(value) < 10_600
    assert weigh((value, value)) < 10_800
