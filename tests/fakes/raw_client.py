"""A MySQL client that sends the very bytes it is told to and keeps the very bytes that come back.

It knows nothing of responses: where one ends it learns by asking a question of its own after it,
whose answer cannot be mistaken. So it is a witness independent of `sqlcache.mysql`.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from typing import Protocol, Self

from pymysql import _auth

from sqlcache.mysql.constants import Capability

MAX_PAYLOAD = 0xFFFFFF
COLLATION = 45  # utf8mb4_general_ci
OLD = (
    Capability.LONG_PASSWORD
    | Capability.LONG_FLAG
    | Capability.LOCAL_FILES
    | Capability.PROTOCOL_41
    | Capability.TRANSACTIONS
    | Capability.SECURE_CONNECTION
    | Capability.MULTI_STATEMENTS
    | Capability.MULTI_RESULTS
    | Capability.PS_MULTI_RESULTS
    | Capability.PLUGIN_AUTH
)
NEW = OLD | Capability.DEPRECATE_EOF | Capability.SESSION_TRACK

_SENTINEL = b"the answer ends here"
_SENTINEL_ROW = bytes((len(_SENTINEL),)) + _SENTINEL
_DEADLINE_S = 30.0


class Address(Protocol):
    """Anything that listens."""

    host: str
    port: int


def packets_of(payload: bytes, sequence: int = 0) -> bytes:
    """A payload as packets, however long it is."""
    packets = []
    for start in range(0, len(payload) + 1, MAX_PAYLOAD):
        part = payload[start : start + MAX_PAYLOAD]
        packets.append(len(part).to_bytes(3, "little") + bytes((sequence & 0xFF,)) + part)
        sequence += 1
    return b"".join(packets)


class RawClient:
    """One connection. Closed by `close`, which says nothing to the server, or as a context."""

    def __init__(self, address: Address, *, deadline_s: float = _DEADLINE_S) -> None:
        self.socket = socket.create_connection((address.host, address.port), timeout=deadline_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.greeting = b""
        self.capabilities = OLD
        self._unread, self._at = b"", 0  # what has come, and how much of that was taken

    @classmethod
    def logged_in(
        cls,
        address: Address,
        user: str | bytes,
        password: str,
        schema: str = "",
        capabilities: int = OLD,
        *,
        collation: int = COLLATION,
    ) -> Self:
        """A session. With caching_sha2_password the server must remember the password already."""
        client = cls(address)
        client.read_greeting()
        client.log_in(user, password, schema, capabilities, collation=collation)
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves without a word."""
        self.socket.close()

    def reset(self) -> None:
        """Leaves as a crashed host does: with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    # The login.

    def read_greeting(self) -> None:
        """Takes the server's first packet."""
        _, self.greeting = self.read_packet()

    @property
    def connection_id(self) -> int:
        """What the greeting says MySQL calls the session."""
        at = self.greeting.index(b"\0", 1) + 1
        return int.from_bytes(self.greeting[at : at + 4], "little")

    @property
    def offered(self) -> int:
        """What the greeting says the server can do."""
        at = self.greeting.index(b"\0", 1) + 1 + 4 + 8 + 1
        low: int
        high: int
        low, high = struct.unpack_from("<H3xH", self.greeting, at)
        (extended,) = struct.unpack_from("<I", self.greeting, at + 14)
        mariadb = 0 if low & Capability.LONG_PASSWORD else extended
        return low | high << 16 | mariadb << 32

    @property
    def salt(self) -> bytes:
        """The scramble's random bytes."""
        at = self.greeting.index(b"\0", 1) + 1 + 4
        return self.greeting[at : at + 8] + self.greeting[at + 27 : at + 39]

    @property
    def plugin(self) -> str:
        """The authentication the greeting proposes."""
        at = self.greeting.index(b"\0", 1) + 1 + 4 + 40
        return self.greeting[at:].rstrip(b"\0").decode()

    def response(
        self,
        user: str | bytes,
        password: str,
        schema: str,
        capabilities: int,
        collation: int = COLLATION,
    ) -> bytes:
        """A handshake response's payload."""
        self.capabilities = capabilities
        if schema:
            capabilities |= Capability.CONNECT_WITH_DB
        answer = _scramble(self.plugin, password, self.salt)
        extended = 0 if capabilities & Capability.LONG_PASSWORD else capabilities >> 32
        head = struct.pack("<IIB19xI", capabilities & 0xFFFFFFFF, 1 << 30, collation, extended)
        body = _as_bytes(user) + b"\0" + bytes((len(answer),)) + answer
        if schema:
            body += schema.encode() + b"\0"
        return head + body + self.plugin.encode() + b"\0"

    def log_in(
        self,
        user: str | bytes,
        password: str,
        schema: str,
        capabilities: int,
        sequence: int = 1,
        *,
        collation: int = COLLATION,
    ) -> bytes:
        """Answers the greeting, and what the server asks then; returns the OK's payload."""
        answer = self.response(user, password, schema, capabilities, collation)
        self.send(packets_of(answer, sequence))
        return self.authenticate(password)

    def authenticate(self, password: str) -> bytes:
        """Answers until the server lets us in. Raises: PermissionError with what it says."""
        while True:
            sequence, payload = self.read_packet()
            if payload[0] == 0xFE:
                plugin, _, salt = payload[1:].partition(b"\0")
                answer = _scramble(plugin.decode(), password, salt.rstrip(b"\0"))
                self.send(packets_of(answer, sequence + 1))
            elif payload[0] == 0xFF:
                raise PermissionError(payload[3:].decode())
            elif payload[:2] == b"\x01\x04":
                raise PermissionError("the server wants the password itself")
            elif payload[0] == 0x00:
                return payload

    def change_user(self, user: str | bytes, collation: int = COLLATION) -> bytes:
        """Changes to a user without a password; what the server says in the end."""
        end = b"\0\0\0" + collation.to_bytes(2, "little") + self.plugin.encode() + b"\0"
        self.command(b"\x11" + _as_bytes(user) + end)
        sequence, answer = self.read_packet()
        while answer[:1] == b"\xfe":
            self.send(packets_of(b"", sequence + 1))
            sequence, answer = self.read_packet()
        return answer

    def start_tls(self, context: ssl.SSLContext, capabilities: int, *, one_segment: bool) -> None:
        """Asks for TLS and speaks it; `one_segment`: the ClientHello comes with the request."""
        capabilities |= Capability.SSL | Capability.CONNECT_WITH_DB
        request = packets_of(struct.pack("<IIB23x", capabilities, 1 << 30, COLLATION), 1)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(incoming, outgoing)
        with contextlib.suppress(ssl.SSLWantReadError):
            session.do_handshake()
        if one_segment:
            self.socket.sendall(request + outgoing.read())
        else:
            self.socket.sendall(request)
            self.socket.sendall(outgoing.read())
        while True:
            incoming.write(self.socket.recv(65536))
            try:
                session.do_handshake()
            except ssl.SSLWantReadError:
                continue
            finally:
                self.socket.sendall(outgoing.read())
            break
        self.tls_version = session.version()
        self._secure(session, incoming, outgoing)

    def _secure(
        self, session: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> None:
        def send(data: bytes) -> None:
            session.write(data)
            self.socket.sendall(outgoing.read())

        def receive() -> bytes:
            while True:
                try:
                    return session.read(65536)
                except ssl.SSLWantReadError:
                    incoming.write(self.socket.recv(65536))

        self.send = send  # type: ignore[method-assign]
        self._receive = receive  # type: ignore[method-assign]

    # Bytes and packets.

    def send(self, data: bytes) -> None:
        """Sends bytes."""
        self.socket.sendall(data)

    def command(self, payload: bytes) -> None:
        """Sends a command, its first byte the code."""
        self.send(packets_of(payload))

    def query(self, statement: str) -> None:
        """Sends a COM_QUERY and does not wait."""
        self.command(self._head + statement.encode())

    @property
    def _head(self) -> bytes:
        """What a COM_QUERY without query attributes begins with."""
        counts = self.capabilities & self.offered & Capability.QUERY_ATTRIBUTES
        return b"\x03\0\1" if counts else b"\x03"

    def _receive(self) -> bytes:
        return self.socket.recv(1 << 18)

    def read_bytes(self, size: int) -> bytes:
        """Exactly so many. Raises: EOFError where the server closes before."""
        end = self._at + size
        if end > len(self._unread):
            parts = [self._unread[self._at :]]
            missing = end - len(self._unread)
            while missing > 0:
                chunk = self._receive()
                if not chunk:
                    raise EOFError("the server closed the connection")
                parts.append(chunk)
                missing -= len(chunk)
            self._unread, self._at, end = b"".join(parts), 0, size
        data, self._at = self._unread[self._at : end], end
        return data

    def wait_for_bytes(self) -> None:
        """Returns when something has come, and leaves it there."""
        if self._at == len(self._unread):
            self._unread, self._at = self._receive(), 0

    def read_packet(self) -> tuple[int, bytes]:
        """The next packet's sequence id and payload."""
        packet = self.read_whole_packet()
        return packet[3], packet[4:]

    def read_whole_packet(self) -> bytes:
        """The next packet as it came, its header before its payload."""
        header = self.read_bytes(4)
        return header + self.read_bytes(int.from_bytes(header[:3], "little"))

    def read_to_end(self) -> bytes:
        """All that comes until the server closes the connection."""
        parts = [self._unread[self._at :]]
        with contextlib.suppress(ConnectionResetError):
            while chunk := self._receive():
                parts.append(chunk)
        return b"".join(parts)

    # Questions and answers.

    def ask(self, payload: bytes) -> bytes:
        """Sends a command and returns every byte of what comes back for it."""
        return self.ask_bytes(packets_of(payload))

    def ask_bytes(self, data: bytes) -> bytes:
        """As `ask`, for bytes that are commands already."""
        self.send(data + self.sentinel())
        return self.read_to_sentinel()

    def sql(self, statement: str) -> bytes:
        """As `ask`, for a statement."""
        return self.ask(self._head + statement.encode())

    def sentinel(self) -> bytes:
        """The command whose answer marks the end."""
        return packets_of(self._head + b"SELECT '" + _SENTINEL + b"' AS x")

    def read_to_sentinel(self) -> bytes:
        """What comes before the answer to `sentinel`."""
        packets = [self.read_whole_packet()]
        while packets[-1][4:] != _SENTINEL_ROW:
            packets.append(self.read_whole_packet())
        self.read_packet()
        own = 3 if self.capabilities & Capability.DEPRECATE_EOF else 4
        return b"".join(packets[:-own])

    def packets_to_sentinel(self) -> Iterator[tuple[int, bytes]]:
        """Sequence ids and payloads up to and with the row of the answer to `sentinel`."""
        payload = b""
        while payload != _SENTINEL_ROW:
            sequence, payload = self.read_packet()
            yield sequence, payload
        self.read_packet()


def _as_bytes(user: str | bytes) -> bytes:
    return user.encode() if isinstance(user, str) else user


def _scramble(plugin: str, password: str, salt: bytes) -> bytes:
    if not password:
        return b""
    if plugin == "caching_sha2_password":
        return _auth.scramble_caching_sha2(password.encode(), salt)
    return _auth.scramble_native_password(password.encode(), salt)
