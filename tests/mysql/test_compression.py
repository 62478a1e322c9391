"""The layer that compresses, between a channel and its socket."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sqlcache.errors import ConnectionLost
from sqlcache.mysql.compression import Compression, compress
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.frames import PIECE_BYTES, Algorithm
from sqlcache.mysql.packets import packet
from sqlcache.mysql.tls import Tls
from tests.certificates import self_signed
from tests.fakes.frames import frame, plain_of
from tests.turns import counted_turns

BUFFER = 100_000
ZLIB = Algorithm("zlib", 4)
ALGORITHMS = pytest.mark.parametrize(
    "algorithm", [ZLIB, Algorithm("zstd", 3)], ids=lambda each: each.name
)
ROWS = b"".join(packet(n, f"the text of row {n}".encode()) for n in range(100_000))


@pytest.fixture
def peer() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def compressing(ours: socket.socket, algorithm: Algorithm = ZLIB) -> Channel:
    channel = Channel.over(ours, buffer_bytes=BUFFER)
    compress(channel, algorithm, BUFFER)
    return channel


async def said(theirs: socket.socket) -> bytes:
    """All that a peer hears until the end."""
    loop, parts = asyncio.get_running_loop(), list[bytes]()
    async with asyncio.timeout(30):
        while data := await loop.sock_recv(theirs, 1 << 16):
            parts.append(data)
    return b"".join(parts)


async def some_turns() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


@ALGORITHMS
async def test_what_is_long_is_compressed_while_others_have_turns(
    peer: tuple[socket.socket, socket.socket], algorithm: Algorithm
) -> None:
    channel = compressing(peer[0], algorithm)
    hears = asyncio.ensure_future(said(peer[1]))
    with counted_turns() as turns:
        channel.write(ROWS)
        assert channel.congested
        await channel.drain()
    assert turns.count >= len(ROWS) // PIECE_BYTES - 2
    channel.close()
    assert plain_of(await hears, algorithm.name) == ROWS


@ALGORITHMS
async def test_what_was_written_is_sent_before_the_end(
    peer: tuple[socket.socket, socket.socket], algorithm: Algorithm
) -> None:
    channel = compressing(peer[0], algorithm)
    channel.write(ROWS)
    channel.write(packet(1, b"the last"))
    channel.close()
    channel.write(b"nothing behind it")
    gone = asyncio.ensure_future(channel.gone(30))
    assert plain_of(await said(peer[1]), algorithm.name) == ROWS + packet(1, b"the last")
    await gone
    assert channel.closed


async def test_who_ends_writing_still_hears(peer: tuple[socket.socket, socket.socket]) -> None:
    channel = compressing(peer[0])
    channel.write(ROWS)
    channel.end_writing()
    assert plain_of(await said(peer[1]), "zlib") == ROWS
    await asyncio.get_running_loop().sock_sendall(peer[1], frame(packet(0, b"x"), 0, "zlib", False))
    assert await channel.read() == packet(0, b"x")
    channel.abort()


async def test_a_peer_that_reads_nothing_makes_wait(
    peer: tuple[socket.socket, socket.socket],
) -> None:
    """No more is compressed than goes, and the channel is told when there is room again."""
    channel, done = compressing(peer[0]), list[int]()
    noise = b"".join(packet(n, os.urandom(1_000)) for n in range(2_000))
    channel.write(noise)
    channel.when_caught_up(lambda: done.append(1))
    await some_turns()
    assert channel.congested
    assert not await channel.drain(0.01)
    assert not done
    assert channel.unsent_bytes > BUFFER
    hears = asyncio.ensure_future(said(peer[1]))
    async with asyncio.timeout(20):
        assert await channel.drain()
    assert done
    assert channel.unsent_bytes <= 2 * BUFFER
    channel.close()
    assert plain_of(await hears, "zlib") == noise


async def test_a_packet_that_is_not_all_there_makes_nobody_wait(
    peer: tuple[socket.socket, socket.socket],
) -> None:
    channel = Channel.over(peer[0], buffer_bytes=5_000)
    compress(channel, ZLIB, 5_000)
    row = packet(1, bytes(60_000))
    hears = asyncio.ensure_future(said(peer[1]))
    for at in range(0, len(row), 1_000):
        channel.write(row[at : at + 1_000])
        async with asyncio.timeout(20):
            assert await channel.drain()
    channel.close()
    assert plain_of(await hears, "zlib") == row


@ALGORITHMS
async def test_no_more_is_decompressed_than_the_buffer_holds(
    peer: tuple[socket.socket, socket.socket], algorithm: Algorithm
) -> None:
    """And nothing is lost, nor noticed of the end, before it was taken."""
    channel = compressing(peer[0], algorithm)
    data = packet(0, bytes(15_000_000))
    peer[1].setblocking(True)
    peer[1].sendall(frame(data, 0, algorithm.name))
    peer[1].close()
    heard = 0
    with suppress(ConnectionLost):
        while True:
            await some_turns()
            assert channel.buffered_bytes <= BUFFER + 2 * PIECE_BYTES + 70_000
            heard += len(await channel.read())
    assert heard == len(data)
    assert channel.closed


async def test_many_short_frames_leave_others_their_turns(
    peer: tuple[socket.socket, socket.socket],
) -> None:
    channel, heard = compressing(peer[0]), list[bytes]()

    def takes(data: bytes) -> bool:
        heard.append(data)
        return True

    channel.intercept = takes
    count = 5_000
    with counted_turns() as turns:
        sends = frame(packet(0, b"\x0e"), 0, "zlib", False) * count
        await asyncio.get_running_loop().sock_sendall(peer[1], sends)
        async with asyncio.timeout(20):
            while sum(map(len, heard)) < 5 * count:
                await asyncio.sleep(0)
    assert b"".join(heard) == packet(0, b"\x0e") * count
    assert turns.count >= count // 100
    channel.abort()


async def test_what_came_before_it_began_is_read_as_frames(
    peer: tuple[socket.socket, socket.socket],
) -> None:
    channel = Channel.over(peer[0], buffer_bytes=BUFFER)
    coded = frame(packet(0, bytes(100)), 0, "zlib")
    peer[1].send(coded[:10])
    assert await channel.peek(10) == coded[:10]
    compress(channel, ZLIB, BUFFER)
    peer[1].send(coded[10:])
    assert await channel.read_packet(1_000) == packet(0, bytes(100))
    channel.abort()


async def test_who_sends_no_frames_is_cut_off(
    peer: tuple[socket.socket, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    channel = compressing(peer[0])
    channel.write(ROWS)
    peer[1].send(b"\x08\0\0\0\x20\0\0garbage!")
    async with asyncio.timeout(20):
        while not channel.closed:
            await channel.wait()
    assert "client cut off, what it sends compressed is not understood" in caplog.text
    assert not channel.unsent_bytes


async def test_a_fault_at_what_comes_ends_the_connection(
    peer: tuple[socket.socket, socket.socket],
) -> None:
    channel, raised, unhandled = compressing(peer[0]), ValueError("a fault"), list[object]()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unhandled.append(context["exception"]))

    def fails(_: bytes) -> bool:
        raise raised

    channel.intercept = fails
    peer[1].send(frame(packet(0, b"\x0e"), 0, "zlib", False))
    async with asyncio.timeout(20):
        while not channel.closed:
            await channel.wait()
    assert unhandled == [raised]


@ALGORITHMS
async def test_it_is_inside_tls(
    peer: tuple[socket.socket, socket.socket], algorithm: Algorithm, tmp_path: Path
) -> None:
    made = self_signed(tmp_path, "sqlcache")
    serves = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serves.load_cert_chain(made.certificate, made.key)
    asks = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asks.check_hostname, asks.verify_mode = False, ssl.CERT_NONE
    loop, client = asyncio.get_running_loop(), Tls(asks, False, None)
    channel = Channel.over(peer[0], buffer_bytes=BUFFER)
    greets = asyncio.ensure_future(channel.start_tls(serves, server_side=True))
    client.decrypt()
    while not greets.done():
        await loop.sock_sendall(peer[1], client.pending_output())
        if not client.established:
            client.decrypt(await loop.sock_recv(peer[1], 1 << 16))
        await asyncio.sleep(0)
    coded = frame(packet(0, bytes(1_000)), 0, algorithm.name)
    await loop.sock_sendall(peer[1], client.encrypt(coded[:10]))
    await some_turns()
    compress(channel, algorithm, BUFFER)
    await loop.sock_sendall(peer[1], client.encrypt(coded[10:]))
    assert await channel.read_packet(2_000) == packet(0, bytes(1_000))
    hears = asyncio.ensure_future(said(peer[1]))
    channel.write(ROWS)
    channel.close()
    heard = client.decrypt(await hears)
    while client.waits:
        heard += client.decrypt()
    assert plain_of(heard, algorithm.name) == ROWS


async def test_who_is_lost_with_much_unread_and_unsent_is_over(
    peer: tuple[socket.socket, socket.socket],
) -> None:
    loop, troubles = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, trouble: troubles.append(trouble))
    channel = compressing(peer[0])
    await loop.sock_sendall(peer[1], frame(packet(0, bytes(5_000_000)), 0, "zlib"))
    await some_turns()
    channel.write(b"".join(packet(n, os.urandom(1_000)) for n in range(4_000)))
    await some_turns()
    assert channel.congested
    peer[1].close()
    async with asyncio.timeout(10):
        with suppress(ConnectionLost):
            await channel.drain()
    assert channel.closed
    assert not troubles


@ALGORITHMS
async def test_who_says_no_more_has_what_was_written_for_him(
    peer: tuple[socket.socket, socket.socket], algorithm: Algorithm
) -> None:
    channel = compressing(peer[0], algorithm)

    def takes(data: bytes) -> bool:
        channel.write(ROWS)
        return True

    channel.intercept = takes
    command = frame(packet(0, b"\x03SELECT 1"), 0, algorithm.name)
    await asyncio.get_running_loop().sock_sendall(peer[1], command)
    peer[1].shutdown(socket.SHUT_WR)
    assert plain_of(await said(peer[1]), algorithm.name) == ROWS


async def test_little_is_kept_of_commands_that_have_no_answer(
    peer: tuple[socket.socket, socket.socket],
) -> None:
    channel = compressing(peer[0])
    closes = frame(packet(0, b"\x19\xff\xff\xff\xff"), 0, "zlib")
    for _ in range(20):
        await asyncio.get_running_loop().sock_sendall(peer[1], closes * 1_000)
        await some_turns()
        while channel.has_some:
            channel.take(channel.buffered_bytes)
            await some_turns()
    layer = channel._transport
    assert isinstance(layer, Compression)
    assert len(layer._reader._begun) < 5_000
