"""TLS over memory."""

import ssl
from pathlib import Path

import pytest

from sqlcache.mysql.tls import Tls
from tests.certificates import Certificate, self_signed

LONG = bytes(range(256)) * 40_000
PIECE_BYTES = 100_000  # with what TLS adds


class Buffer:
    """One of TLS's, which tells how much was in it at the most."""

    def __init__(self, buffer: ssl.MemoryBIO) -> None:
        self._buffer = buffer
        self.most = 0

    def write(self, data: bytes | memoryview) -> int:
        written = self._buffer.write(data)
        self.most = max(self.most, self.pending)
        return written

    def read(self) -> bytes:
        self.most = max(self.most, self.pending)
        return self._buffer.read()

    @property
    def pending(self) -> int:
        return self._buffer.pending


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return self_signed(tmp_path_factory.mktemp("tls"), "server")


@pytest.fixture
def sides(own: Certificate) -> tuple[Tls, Tls]:
    """A client and a server that have greeted each other."""
    return greeted(own.certificate, own.key)


def greeted(certificate: Path, key: Path) -> tuple[Tls, Tls]:
    serves = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serves.load_cert_chain(certificate, key)
    asks = ssl.create_default_context(cafile=certificate)
    asks.check_hostname = False
    client, server = Tls(asks, False, None), Tls(serves, True, None)
    said = b""
    while not (client.established and server.established):
        client.decrypt(said)
        server.decrypt(client.pending_output())
        said = server.pending_output()
    client.decrypt(said)
    return client, server


def test_what_is_long_goes_through_a_piece_at_a_time(sides: tuple[Tls, Tls]) -> None:
    """Else a session keeps as much memory as its longest answer took, until it ends."""
    client, server = sides
    out, incoming = Buffer(server._outgoing), Buffer(client._incoming)
    server._outgoing, client._incoming = out, incoming  # type: ignore[assignment]
    for data in (LONG, memoryview(LONG), LONG[:1]):
        assert client.decrypt(server.encrypt(data)) == data
    assert out.most < PIECE_BYTES
    assert incoming.most < PIECE_BYTES


def test_what_ends_it_first_is_why_it_ended(sides: tuple[Tls, Tls]) -> None:
    client, server = sides
    sent = bytearray(client.encrypt(LONG))
    sent[100] ^= 1
    assert server.decrypt(bytes(sent)) == b""
    assert server.ended
    # As OpenSSL calls it up to 3.0, and from 3.5 on.
    assert server.error in ("DECRYPTION_FAILED_OR_BAD_RECORD_MAC", "RECORD_LAYER_FAILURE")
