"""Timeouts of a process that may be late itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import uvloop

from sqlcache.demo.servers import HOST, PrivateMemcached, PrivateSqlServer
from sqlcache.mysql.sockets import connected
from sqlcache.patience import LOOKS, Patience
from tests.fakes.watched_node import Watched

TURN_S = 0.2
LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
Run = Callable[..., None]


@contextmanager
def busy() -> Iterator[None]:
    """Each turn of the event loop takes `TURN_S`."""
    loop = asyncio.get_running_loop()
    ends = False

    def work() -> None:
        time.sleep(TURN_S)
        if not ends:
            loop.call_soon(work)

    loop.call_soon(work)
    try:
        yield
    finally:
        ends = True


@LOOPS
def test_a_busy_process_reaches_a_node(memcached: PrivateMemcached, run: Run) -> None:
    async def scenario() -> None:
        with busy():
            node = Watched(
                *("node", HOST, memcached.port), timeout_s=TURN_S, connect_timeout_s=TURN_S
            )
            await node.wait_connected(60)
        assert node.failed == 0
        await node.close()

    run(scenario())


@LOOPS
def test_a_busy_process_reaches_the_server(mariadb: PrivateSqlServer, run: Run) -> None:
    async def scenario() -> None:
        with busy():
            (await connected("localhost", mariadb.port, None, within_s=TURN_S)).close()

    run(scenario())


@LOOPS
def test_what_comes_in_time_is_waited_for(run: Run) -> None:
    async def scenario() -> None:
        with Patience(20):
            await asyncio.sleep(0.01)
        with pytest.raises(ValueError, match="its own"), Patience(20):
            raise ValueError("its own")

    run(scenario())


@LOOPS
def test_what_does_not_come_is_not_waited_for(run: Run) -> None:
    async def scenario() -> None:
        began = time.monotonic()
        with pytest.raises(TimeoutError), Patience(0.2):
            await asyncio.sleep(60)
        assert time.monotonic() - began >= 0.2
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

    run(scenario())


@LOOPS
def test_what_does_not_come_to_a_busy_process_is_not_waited_for_long(run: Run) -> None:
    async def scenario() -> None:
        began = time.monotonic()
        with busy(), pytest.raises(TimeoutError), Patience(TURN_S):
            await asyncio.sleep(60)
        assert time.monotonic() - began >= LOOKS * TURN_S / 2

    run(scenario())


@LOOPS
def test_who_is_cancelled_while_it_waits_is_cancelled(run: Run) -> None:
    async def scenario() -> None:
        async def wait() -> None:
            with Patience(60):
                await asyncio.sleep(60)

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(scenario())
