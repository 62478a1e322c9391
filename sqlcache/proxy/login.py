"""The login, relayed: MySQL itself checks the password, sqlcache never learns it.

Packets go through unchanged but for three things: the greeting offers only what sqlcache can
follow; TLS ends here and begins anew towards the server; and where only the client's side speaks
TLS, sequence ids differ by the one packet that asked for it.

The server's side speaks TLS exactly where the client's does, if the server offers it. So what a
client sends for a secure connection, such as a password in clear text, stays on one.
"""

import asyncio
import ssl

from sqlcache.errors import ConnectionLost, ProtocolError
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import UNFOLLOWED, Capability
from sqlcache.mysql.handshake import (
    SSL_REQUEST_BYTES,
    Greeting,
    Login,
    offer,
    read_capabilities,
    read_greeting,
    read_login,
    strip_capabilities,
)
from sqlcache.mysql.packets import HEADER_BYTES, packet

_MAX_LOGIN_PACKET_BYTES = 1 << 20
_OK, _ERR = 0x00, 0xFF
_LEAST_OK_BYTES = 7


class LoginRefused(ConnectionLost):
    """The server said no; the client has its words."""


async def relay_login(
    client: Channel, upstream: Channel, client_tls: ssl.SSLContext | None
) -> tuple[Login, bytes]:
    """Takes both sides from the greeting to the OK packet that ends the login.

    Returns what the client said and that packet, which is relayed too.

    Raises: LoginRefused; ConnectionLost; ProtocolError.
    """
    greeting = await _relay_greeting(client, upstream, tls=client_tls is not None)
    answer = await client.read_packet(_MAX_LOGIN_PACKET_BYTES)
    shift, removed = 0, UNFOLLOWED | Capability.SSL
    if len(answer) == HEADER_BYTES + SSL_REQUEST_BYTES:
        if client_tls is None or not read_capabilities(answer[HEADER_BYTES:]) & Capability.SSL:
            raise ProtocolError("the client asks for TLS, which was not offered")
        shift = await _start_tls(client, upstream, client_tls, greeting, answer)
        removed = UNFOLLOWED | Capability.SSL if shift else UNFOLLOWED
        answer = await client.read_packet(_MAX_LOGIN_PACKET_BYTES)
    payload = strip_capabilities(answer[HEADER_BYTES:], removed)
    login = read_login(payload)
    upstream.write(packet(answer[3] - shift, payload))
    return login, await relay_authentication(client, upstream, shift)


async def _relay_greeting(client: Channel, upstream: Channel, *, tls: bool) -> Greeting:
    first = await upstream.read_packet(_MAX_LOGIN_PACKET_BYTES)
    payload = first[HEADER_BYTES:]
    if payload[:1] == bytes((_ERR,)):  # as for a host that may not connect at all
        client.write(first)
        raise LoginRefused("the server refuses the connection")
    greeting = read_greeting(payload)
    client.write(packet(first[3], offer(payload, greeting, tls=tls)))
    return greeting


async def _start_tls(
    client: Channel,
    upstream: Channel,
    client_tls: ssl.SSLContext,
    greeting: Greeting,
    request: bytes,
) -> int:
    """TLS with the client, and with the server if it offers it; the difference of the sides'
    sequence ids from here on."""
    await client.start_tls(client_tls, server_side=True)
    if not greeting.capabilities & Capability.SSL:
        return 1
    upstream.write(packet(request[3], strip_capabilities(request[HEADER_BYTES:], UNFOLLOWED)))
    await upstream.start_tls(_unverified(), server_side=False)
    return 0


def _unverified() -> ssl.SSLContext:
    """TLS as a MySQL client in mode PREFERRED has it: encrypted, the server's name not checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def relay_authentication(client: Channel, upstream: Channel, shift: int = 0) -> bytes:
    """Relays packets of an authentication both ways until the server ends it; returns its OK.

    `shift` is how far the client's sequence ids are ahead of the server's.
    Raises: LoginRefused; ConnectionLost; ProtocolError.
    """
    answers = asyncio.ensure_future(_relay_answers(client, upstream, shift))
    try:
        while True:
            got = await upstream.read_packet(_MAX_LOGIN_PACKET_BYTES)
            client.write(_shifted(got, shift))
            if len(got) == HEADER_BYTES:
                continue
            if got[HEADER_BYTES] == _ERR:
                raise LoginRefused("the server refuses the login")
            if got[HEADER_BYTES] == _OK and len(got) >= HEADER_BYTES + _LEAST_OK_BYTES:
                return got
    finally:
        answers.cancel()


async def _relay_answers(client: Channel, upstream: Channel, shift: int) -> None:
    """How many packets a plugin has its client send is its own affair: all are passed on."""
    try:
        while True:
            got = await client.read_packet(_MAX_LOGIN_PACKET_BYTES)
            upstream.write(_shifted(got, -shift))
    except (ConnectionLost, ProtocolError):
        upstream.abort()


def _shifted(data: bytes, shift: int) -> bytes:
    return data[:3] + bytes((data[3] + shift & 0xFF,)) + data[4:] if shift else data
