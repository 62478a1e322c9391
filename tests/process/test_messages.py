"""The messages between a parent and its workers, over a real pair of sockets."""

import asyncio
import socket
from typing import Any

import pytest

from sqlcache.process.messages import Messages

LONG = "x" * 5_000_000
"""More than sockets hold."""


class End:
    """One end, and what it has heard."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.ended = asyncio.Event()
        self.came = asyncio.Event()
        self.messages = Messages(self._hear, self.ended.set)

    def _hear(self, message: object) -> None:
        self.heard.append(message)
        self.came.set()

    async def hears(self, number: int) -> list[Any]:
        async with asyncio.timeout(10):
            while len(self.heard) < number:
                self.came.clear()
                await self.came.wait()
        return self.heard


async def test_messages_longer_than_the_sockets_hold_come_whole_and_in_order() -> None:
    one, other = End(), End()
    ours, theirs = socket.socketpair()
    one.messages.send("before it is open")
    await one.messages.open(ours)
    await other.messages.open(theirs)
    for message in (1, LONG, {"a": LONG}, 2):
        one.messages.send(message)
        other.messages.send(message)
    assert await other.hears(5) == ["before it is open", 1, LONG, {"a": LONG}, 2]
    assert await one.hears(4) == [1, LONG, {"a": LONG}, 2]


@pytest.mark.parametrize("how_many", [1, 1_000])
async def test_nobody_waits_for_one_that_takes_nothing(how_many: int) -> None:
    one = End()
    ours, theirs = socket.socketpair()
    await one.messages.open(ours)
    with theirs:
        for _ in range(how_many):
            one.messages.send(LONG[: 5_000_000 // how_many])
        await asyncio.sleep(0)
        assert one.messages.waiting_bytes > 1_000_000
        async with asyncio.timeout(20):
            await one.messages.close()
    async with asyncio.timeout(20):
        await one.ended.wait()


async def test_what_was_sent_last_is_heard_before_the_end() -> None:
    one, other = End(), End()
    ours, theirs = socket.socketpair()
    await one.messages.open(ours)
    await other.messages.open(theirs)
    one.messages.send(LONG)
    one.messages.send("last")
    await one.messages.close()
    async with asyncio.timeout(20):
        await other.ended.wait()
    assert other.heard == [LONG, "last"]
    other.messages.send("to one that has gone")
