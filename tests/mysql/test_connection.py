"""A channel's end."""

import asyncio
import socket

import pytest

from sqlcache.mysql.connection import Channel

LONG = b"x" * 16_000_000  # more than the kernel takes


@pytest.mark.parametrize("reads", [True, False])
async def test_a_peer_gets_the_last_bytes_if_it_takes_them_in_time(reads: bool) -> None:
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    _, channel = await loop.create_connection(lambda: Channel(buffer_bytes=1 << 16), sock=ours)
    reader, writer = await asyncio.open_connection(sock=theirs)
    channel.write(LONG)
    channel.close()
    assert not channel.closed
    if reads:
        taken = asyncio.ensure_future(reader.readexactly(len(LONG)))
        await channel.gone(10)
        assert await taken == LONG
    else:
        await channel.gone(0.05)
    await channel.gone(10)
    for _ in range(3):
        await asyncio.sleep(0)
    assert channel.closed
    writer.close()
