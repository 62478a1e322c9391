"""The login's two packets that sqlcache reads: the server's greeting, the client's answer.

All other packets of a login pass through unread, but for their first byte.
"""

import struct
from typing import NamedTuple

from sqlcache.errors import ProtocolError
from sqlcache.mysql.constants import FOLLOWED, Capability
from sqlcache.mysql.frames import OFFERED
from sqlcache.mysql.packets import read_lenenc, read_nul

SSL_REQUEST_BYTES = 32
_COLLATION_AT = 8

_AFTER_VERSION = struct.Struct("<I8sxHBHHB6sI")  # thread id … MariaDB's extended capabilities


class Greeting(NamedTuple):
    """The server's first packet (protocol version 10)."""

    server_version: str
    thread_id: int
    capabilities: int
    collation: int
    capability_offset: int
    """Where the lower two capability bytes stand in the payload."""
    nonce: bytes
    """What the client mixes its password with."""


def read_greeting(payload: bytes) -> Greeting:
    """Raises: ProtocolError for anything but a version 10 greeting."""
    if not payload or payload[0] != 10:
        raise ProtocolError(f"the server greets with protocol version {payload[:1].hex() or '-'}")
    version, offset = read_nul(payload, 1)
    if len(payload) < offset + _AFTER_VERSION.size:
        raise ProtocolError("the server's greeting is cut short")
    thread_id, _, low, collation, _, high, _, _, extended = _AFTER_VERSION.unpack_from(
        payload, offset
    )
    capabilities = low | high << 16
    if not capabilities & Capability.LONG_PASSWORD:  # only MariaDB leaves this bit out
        capabilities |= extended << 32
    return Greeting(
        version.decode("utf-8", "replace"),
        thread_id,
        capabilities,
        collation,
        offset + 13,
        payload[offset + 4 : offset + 12] + payload[offset + 31 : offset + 43],
    )


def offer(payload: bytes, greeting: Greeting, *, tls: bool) -> bytes:
    """The greeting as a client is to see it: only what sqlcache can follow, or do itself.

    `tls` says whether sqlcache itself can speak TLS to this client, whatever the server can.
    """
    kept = greeting.capabilities & (FOLLOWED & ~Capability.SSL | OFFERED)
    if tls:
        kept |= Capability.SSL
    changed = bytearray(payload)
    at = greeting.capability_offset
    struct.pack_into("<H", changed, at, kept & 0xFFFF)
    struct.pack_into("<H", changed, at + 5, kept >> 16 & 0xFFFF)
    if not greeting.capabilities & Capability.LONG_PASSWORD:
        struct.pack_into("<I", changed, at + 14, kept >> 32)
    return bytes(changed)


class Login(NamedTuple):
    """What a client's handshake response, or its COM_CHANGE_USER, says of the session."""

    capabilities: int
    collation: int
    """0, which is none, where it is not known which one the server takes, or what schema."""
    user: bytes
    schema: bytes | None
    plugin: bytes = b""
    """The one the client has answered by, if it says so."""


def read_capabilities(payload: bytes) -> int:
    """The capabilities in an SSL request or a handshake response. Raises: ProtocolError."""
    if len(payload) < SSL_REQUEST_BYTES:
        raise ProtocolError("the client's handshake response is cut short")
    capabilities = int.from_bytes(payload[:4], "little")
    if not capabilities & Capability.PROTOCOL_41:
        raise ProtocolError("the client speaks a protocol older than MySQL 4.1")
    if not capabilities & Capability.LONG_PASSWORD:
        capabilities |= int.from_bytes(payload[28:32], "little") << 32
    return capabilities


_QUOTE = b"'"


def read_login(payload: bytes) -> Login:
    """Reads a handshake response of the 4.1 protocol. Raises: ProtocolError."""
    capabilities = read_capabilities(payload)
    user, offset = read_nul(payload, SSL_REQUEST_BYTES)
    if len(user) > 1 and user.startswith(_QUOTE) and user.endswith(_QUOTE):
        user = user[1:-1]  # as both servers have it, but for those who change to another user
    if _is_ambiguous(capabilities, payload, offset):
        return Login(capabilities, 0, user, None)
    if capabilities & Capability.PLUGIN_AUTH_LENENC_CLIENT_DATA:
        length, offset = read_lenenc(payload, offset)
        offset += length
    else:
        offset += 1 + _byte(payload, offset)
    schema = None
    if capabilities & Capability.CONNECT_WITH_DB and offset < len(payload):
        schema, offset = read_nul(payload, offset)
    plugin = _plugin(payload, offset) if capabilities & Capability.PLUGIN_AUTH else b""
    return Login(capabilities, payload[_COLLATION_AT], user, schema or None, plugin)


def after_request(login: Login, request: bytes) -> Login:
    """The login of who asked for TLS before, or not, by a first packet with this payload: servers
    differ in by which of the two they know its collation."""
    return login if request[_COLLATION_AT] == login.collation else login._replace(collation=0)


def _is_ambiguous(capabilities: int, payload: bytes, offset: int) -> bool:
    """Whether servers differ in where the authentication data there end: for who cannot say how
    long they are, MariaDB takes them up to a NUL, and MySQL has their length all the same."""
    return not capabilities & Capability.SECURE_CONNECTION and bool(_byte(payload, offset))


def _plugin(payload: bytes, offset: int) -> bytes:
    """A plugin's name; not every client puts a NUL behind it."""
    return payload[offset:].partition(b"\0")[0]


def begun_by(request: bytes, payload: bytes) -> bytes:
    """A handshake response with the capabilities of the SSL request before it, by which servers go.

    Raises: ProtocolError.
    """
    read_capabilities(payload)
    return request[:4] + payload[4:28] + request[28:SSL_REQUEST_BYTES] + payload[SSL_REQUEST_BYTES:]


def with_capabilities(payload: bytes, added: int, common: int) -> bytes:
    """The SSL request or handshake response with some capabilities more, and of its own those in
    `common`.

    Raises: ProtocolError.
    """
    kept = read_capabilities(payload) & common | added
    changed = bytearray(payload)
    changed[:4] = (kept & 0xFFFFFFFF).to_bytes(4, "little")
    if not kept & Capability.LONG_PASSWORD:
        changed[28:32] = (kept >> 32).to_bytes(4, "little")
    return bytes(changed)


def read_change_user(payload: bytes, before: Login) -> Login:
    """Reads a COM_CHANGE_USER of who logged in so `before`. Raises: ProtocolError.

    Source: MySQL's COM_CHANGE_USER: user, authentication data with a one-byte length, schema,
    then a two-byte collation and the plugin, if anything follows. Without a collation the server
    takes its own character set.
    """
    user, offset = read_nul(payload, 1)
    if _is_ambiguous(before.capabilities, payload, offset):
        return Login(before.capabilities, 0, user, None)
    offset += 1 + _byte(payload, offset)
    schema, offset = read_nul(payload, offset)
    collation = 0
    if offset + 2 <= len(payload):
        collation = int.from_bytes(payload[offset : offset + 2], "little")
    plugin = _plugin(payload, offset + 2)
    return Login(before.capabilities, collation, user, schema or None, plugin)


def _byte(payload: bytes, offset: int) -> int:
    if offset >= len(payload):
        raise ProtocolError("a login packet is cut short")
    return payload[offset]
