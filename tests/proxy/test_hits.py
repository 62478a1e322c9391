"""Long hits, of which clients may not read all."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sqlcache.cache import entry
from sqlcache.cache.outcomes import Hit
from sqlcache.cache.reads import Read
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import Status
from sqlcache.plan.prepared import Prepared
from sqlcache.proxy.room import Room
from sqlcache.proxy.straight.hits import Hits

LONG = 1 << 22
COLUMNS = 3
STATUS_AT = 9
STATUS = Status.AUTOCOMMIT.to_bytes(2, "little")
ANSWER = (b"\1\0\0\1" + bytes((COLUMNS,))).ljust(STATUS_AT, b"\0") + STATUS + bytes(LONG)
READ = cast(Read, None)


class Answering(Hits):
    """Only writes what it answers."""

    __slots__ = ("answers",)
    answers: list[bytes]

    def _tell(
        self, read: Read, hit: Hit, answer: tuple[bytes | memoryview, int], *about: Any
    ) -> None:
        self.answers.append(bytes(answer[0][:20]))
        self._client.write(answer[0])


def answering(client: Channel, room: Room) -> Answering:
    hits = object.__new__(Answering)
    hits._client, hits._room, hits.answers = client, room, []
    return hits


def asked(hits: Answering, prepared: Prepared | None = None) -> bool:
    hit = Hit(entry.encode(b"", int(Status.AUTOCOMMIT), [STATUS_AT], ANSWER, 1), 0)
    return hits.answer(b"", READ, hit, Status.AUTOCOMMIT, prepared, None)


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Channel, socket.socket]]:
    """A client's connection, and that client's end."""
    ours, theirs = socket.socketpair()
    channel = Channel.over(ours, buffer_bytes=1 << 16)
    theirs.setblocking(False)
    yield channel, theirs
    theirs.close()
    channel.abort()


async def test_what_is_not_read_takes_room_until_it_is_gone(
    pair: tuple[Channel, socket.socket],
) -> None:
    client, peer = pair
    hits = answering(client, Room(LONG + 1_000))
    assert asked(hits)
    assert not asked(hits)
    peer.shutdown(socket.SHUT_WR)  # it says nothing more, and may read all the same
    async with asyncio.timeout(20):
        while not client.closed:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert client.unsent_bytes
    assert not asked(hits)
    client.abort()
    async with asyncio.timeout(20):
        while not hits._room.take(LONG):
            await asyncio.sleep(0.01)


async def test_what_is_read_makes_room(pair: tuple[Channel, socket.socket]) -> None:
    client, peer = pair
    hits = answering(client, Room(LONG + 1_000))
    assert asked(hits)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(20):
        while not hits._room.take(LONG):
            await loop.sock_recv(peer, 1 << 20)


async def test_of_other_columns_is_told_who_was_refused_for_want_of_room(
    pair: tuple[Channel, socket.socket],
) -> None:
    client, _ = pair
    hits = answering(client, Room(0))
    prepared = cast(Prepared, SimpleNamespace(columns=COLUMNS - 1, last_hit=None))
    assert not asked(hits, prepared)
    hits._room.give_back(4 * LONG)
    assert asked(hits, prepared)
    assert asked(hits, prepared)
    changed = Status.AUTOCOMMIT | Status.METADATA_CHANGED
    said = [int.from_bytes(each[STATUS_AT:][:2], "little") for each in hits.answers]
    assert said == [changed, Status.AUTOCOMMIT]
