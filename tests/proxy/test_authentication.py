"""Logins of which one side is secure and the other is not, and clients that send more than one."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from sqlcache.errors import ProtocolError
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.packets import packet
from sqlcache.proxy.authentication import Authentication
from tests.fakes.scripted_channel import ScriptedChannel
from tests.turns import counted_turns

PLUGIN = b"caching_sha2_password"
BUFFER_BYTES = 1 << 16
LONG = packet(3, bytes(BUFFER_BYTES))


async def test_a_password_too_long_for_the_servers_key_breaks_off_the_login() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    pem = key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    client = ScriptedChannel([packet(3, b"x" * 1_000 + b"\0")])
    server = ScriptedChannel([packet(2, b"\x01\x04"), packet(4, b"\x01" + pem)])
    login = Authentication(client, server, b"n" * 20)
    login.client_is_secure = True
    async with asyncio.timeout(10):
        with pytest.raises(ProtocolError, match="longer than the server's key"):
            await login.relay(PLUGIN)


@asynccontextmanager
async def login_under_way() -> AsyncIterator[tuple[Channel, Channel, socket.socket, socket.socket]]:
    """Both sides of one, and the sockets of who is there: client and server."""
    ours, client = socket.socketpair()
    others, server = socket.socketpair()
    with client, server:
        for each in (client, server):
            each.setblocking(False)
        to_client = Channel.over(ours, buffer_bytes=BUFFER_BYTES)
        to_server = Channel.over(others, buffer_bytes=BUFFER_BYTES)
        relay = Authentication(to_client, to_server, b"n" * 20).relay(PLUGIN)
        login = asyncio.ensure_future(relay)
        try:
            async with asyncio.timeout(60):
                yield to_client, to_server, client, server
        finally:
            login.cancel()
            await asyncio.wait([login])
            to_client.abort()
            to_server.abort()


async def test_of_a_client_that_sends_on_no_more_is_held_than_the_server_takes_in_time() -> None:
    async with login_under_way() as (client, server, sender, _):
        sending = asyncio.ensure_future(asyncio.get_running_loop().sock_sendall(sender, LONG * 500))
        held, still = (-1, -1), 0
        while not sending.done() and still < 100:
            await asyncio.sleep(0)
            now = client.buffered_bytes, server.unsent_bytes
            held, still = now, still + 1 if held == now else 0
        assert not sending.done()
        assert sum(held) < 20 * len(LONG)
        sending.cancel()


async def test_between_packets_that_came_together_others_have_their_turns() -> None:
    loop = asyncio.get_running_loop()
    packets = packet(3, b"") * 10_000
    async with login_under_way() as (_, _, sender, server):
        sending = asyncio.ensure_future(loop.sock_sendall(sender, packets))
        left = len(packets)
        with counted_turns() as turns:
            while left:
                left -= len(await loop.sock_recv(server, left))
        assert turns.count > 1_000
        await sending
