"""Logins of which one side is secure and the other is not."""

import asyncio

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from sqlcache.errors import ConnectionLost, ProtocolError
from sqlcache.mysql.packets import packet
from sqlcache.proxy.authentication import Authentication
from tests.fakes.scripted_channel import ScriptedChannel

PLUGIN = b"caching_sha2_password"
OK = packet(2, b"\0\0\0\2\0\0\0")


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


async def test_the_server_says_whether_a_client_is_let_in_that_has_left() -> None:
    client, server = ScriptedChannel([]), ScriptedChannel([])
    login = Authentication(client, server, b"n" * 20)
    ends = asyncio.ensure_future(login.relay(PLUGIN))
    await asyncio.sleep(0)
    client.connection_lost(None)
    assert login.awaits_verdict
    server.data_received(packet(1, b"\1\3"))
    server.data_received(OK)
    async with asyncio.timeout(10):
        assert await ends == OK
    assert not login.awaits_verdict


async def test_where_it_asks_one_that_has_left_nobody_is_let_in() -> None:
    client, server = ScriptedChannel([]), ScriptedChannel([])
    login = Authentication(client, server, b"n" * 20)
    ends = asyncio.ensure_future(login.relay(PLUGIN))
    await asyncio.sleep(0)
    client.connection_lost(None)
    server.data_received(packet(1, b"\1\4"))
    async with asyncio.timeout(10):
        with pytest.raises(ConnectionLost):
            await ends
    assert (login.client_broke_off, login.awaits_verdict) == (True, False)


async def test_nor_where_one_leaves_that_was_given_a_key_for_its_password() -> None:
    """The server waits for that, whatever the client has said to sqlcache."""
    client, server = ScriptedChannel([packet(3, b"\2")]), ScriptedChannel([])
    login = Authentication(client, server, b"n" * 20)
    login.server_is_secure = True
    ends = asyncio.ensure_future(login.relay(PLUGIN))
    server.data_received(packet(2, b"\1\4"))
    async with asyncio.timeout(30):  # a key may have to be made
        while not client.written or not client.written[-1].startswith(b"\1-----", 4):
            await asyncio.sleep(0.01)
        client.connection_lost(None)
        while not login.client_broke_off:
            await asyncio.sleep(0.01)
    assert not login.awaits_verdict
    ends.cancel()
