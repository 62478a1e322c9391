"""Logins of which one side is secure and the other is not."""

import asyncio

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from sqlcache.errors import ProtocolError
from sqlcache.mysql.packets import packet
from sqlcache.proxy.authentication import Authentication
from tests.fakes.scripted_channel import ScriptedChannel

PLUGIN = b"caching_sha2_password"


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
