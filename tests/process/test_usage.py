"""What a process says of its CPU, memory, files and event loop."""

import asyncio
import gc
import mmap
import os
import time

import pytest

from sqlcache.metric_kinds import Histogram
from sqlcache.metrics import Metrics
from sqlcache.process import usage
from sqlcache.process.usage import LoopLag, measure


def test_it_is_this_process_that_is_measured() -> None:
    gc.collect()  # what others have left open is closed before, or after
    gc.disable()
    before, after = Metrics(), Metrics()
    measure(before)
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    files = [os.dup(0) for _ in range(20)]
    # Pages of its own: what the allocator gives may have been resident before.
    with mmap.mmap(-1, 1 << 25) as kept:
        kept.write(bytes(len(kept)))
        measure(after)
    gc.enable()
    for each in files:
        os.close(each)
    assert after.process_cpu_seconds >= before.process_cpu_seconds + 0.08
    grown = after.process_resident_memory_bytes - before.process_resident_memory_bytes
    assert grown > 1 << 24
    assert after.process_open_fds == before.process_open_fds + 20
    assert after.process_max_fds > after.process_open_fds


async def test_a_callback_that_takes_long_is_seen_as_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "LOOKED_EVERY_S", 0.02)
    late = Histogram()
    lag = LoopLag(late)
    lag.start()
    await asyncio.sleep(0.1)
    looked, slept_s = sum(late.counts), 0.3
    assert looked >= 1
    usual = late.sum_s
    time.sleep(slept_s)  # noqa: ASYNC251 - what is to be seen
    await asyncio.sleep(0.05)
    assert late.sum_s - usual > slept_s - 0.05
    lag.stop()
    looked = sum(late.counts)
    await asyncio.sleep(0.1)
    assert sum(late.counts) == looked
