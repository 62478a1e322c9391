"""TLS over memory."""

import ssl
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlcache.mysql import tls
from sqlcache.mysql.tls import Tls
from tests.certificates import Certificate, self_signed
from tests.fakes.tls_records import CIPHER, Records

AT_ONCE = 64
"""Records, at the most."""

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]

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
    return greeted(own)


def strangers(
    own: Certificate,
    version: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
    keys: Path | None = None,
) -> tuple[Tls, Tls]:
    """A client and a server. `version`: the client's last; `keys`: where it logs its secrets."""
    serves = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serves.load_cert_chain(own.certificate, own.key)
    asks = ssl.create_default_context(cafile=own.certificate)
    asks.check_hostname = False
    asks.maximum_version = version
    if keys is not None:
        asks.keylog_filename = str(keys)
    return Tls(asks, False, None), Tls(serves, True, None)


def greeted(
    own: Certificate,
    version: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
    keys: Path | None = None,
) -> tuple[Tls, Tls]:
    client, server = strangers(own, version, keys)
    said = b""
    while not (client.established and server.established):
        client.decrypt(said)
        server.decrypt(client.pending_output())
        said = server.pending_output()
    client.decrypt(said)
    return client, server


@pytest.fixture
def records(own: Certificate, tmp_path: Path) -> tuple[Records, Tls]:
    """A client's, and the server that they are for."""
    keys = tmp_path / "keys"
    client, server = greeted(own, keys=keys)
    assert (client._object.cipher() or ("",))[0] == CIPHER
    return Records(keys), server


def all_of(side: Tls, data: bytes) -> bytes:
    """What it says, in as many turns as that takes."""
    plain = [side.decrypt(data)]
    while side.waits:
        plain.append(side.decrypt())
    return b"".join(plain)


def test_what_is_long_goes_through_a_piece_at_a_time(sides: tuple[Tls, Tls]) -> None:
    """Else a session keeps as much memory as its longest answer took, until it ends."""
    client, server = sides
    out, incoming = Buffer(server._outgoing), Buffer(client._incoming)
    server._outgoing, client._incoming = out, incoming  # type: ignore[assignment]
    for data in (LONG, memoryview(LONG), LONG[:1]):
        assert all_of(client, server.encrypt(data)) == data
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


@pytest.mark.parametrize("version", VERSIONS)
def test_so_many_records_are_decrypted_at_once_however_short_they_are(
    own: Certificate, version: ssl.TLSVersion
) -> None:
    client, server = greeted(own, version)
    said = bytes(range(256)) * 4
    left = b"".join(client.encrypt(said[at : at + 1]) for at in range(len(said)))
    heard = []
    while left or server.waits:
        heard.append(server.decrypt(left))
        left = b""
    assert {len(each) for each in heard[:-1]} == {AT_ONCE}
    assert b"".join(heard) == said


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=30)
@given(
    sizes=st.lists(st.sampled_from([1, 2, 4, 5, 6, 25, 29, 300, 16_406, 40_000]), max_size=60),
    keeps_up=st.booleans(),
)
def test_what_comes_is_decrypted_in_order_whatever_its_pieces(
    own: Certificate, version: ssl.TLSVersion, sizes: list[int], keeps_up: bool
) -> None:
    client, server = greeted(own, version)
    said = [bytes((at & 0xFF,)) * size for at, size in enumerate((1, 40_000, *(2,) * 90, 16_385))]
    sent = b"".join(client.encrypt(each) for each in said)
    heard = b""
    for size in (*sizes, len(sent)):
        heard += server.decrypt(sent[:size])
        sent = sent[size:]
        while keeps_up and server.waits:
            heard += server.decrypt()
    heard += all_of(server, b"")
    assert heard == b"".join(said)


def test_the_end_is_found_behind_what_was_said_before(sides: tuple[Tls, Tls]) -> None:
    client, server = sides
    sent = b"".join(client.encrypt(b"x") for _ in range(AT_ONCE + 1))
    with pytest.raises(ssl.SSLWantReadError):  # what comes is no answer to it
        client._object.unwrap()
    assert server.decrypt(sent + client.pending_output()) == b"x" * AT_ONCE
    assert (server.ended, server.waits) == (False, True)
    assert server.decrypt() == b"x"
    assert (server.ended, server.waits) == (True, False)


@pytest.mark.parametrize("asks", [True, False])
def test_a_peer_that_changes_its_keys_all_the_time_is_not_followed(
    records: tuple[Records, Tls], asks: bool
) -> None:
    client, server = records
    flood = b"".join(client.key_update(asks=asks) for _ in range(1_000))
    assert server.decrypt(flood) == b""
    assert (server.ended, server.waits) == (True, False)
    assert server.error == "too many records that say nothing"
    assert len(server.pending_output()) < AT_ONCE * 32


def test_nor_is_one_that_says_something_in_between(records: tuple[Records, Tls]) -> None:
    client, server = records
    flood = b"".join(client.key_update(asks=True) + client.data(b"x") for _ in range(1_000))
    assert len(all_of(server, flood)) < AT_ONCE
    assert server.ended


def test_one_that_does_so_now_and_then_is(
    records: tuple[Records, Tls], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, server = records
    now = 1_000.0
    monkeypatch.setattr(tls, "monotonic", lambda: now)
    for _ in range(100):
        sent = client.key_update(asks=True) + client.data(b"some") + client.key_update(asks=False)
        assert server.decrypt(sent + client.data(b"thing")) == b"something"
        now += 1
    assert not server.ended


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1", b"\x16\3\1\xff\xff\1", b"\x17\3\3\0\5hello", b"\1\2\0\0\0"],
    ids=["another protocol", "too long", "no greeting", "just a header"],
)
def test_what_is_no_greeting_is_refused_at_once(own: Certificate, sent: bytes) -> None:
    _, server = strangers(own)
    assert server.decrypt(sent) == b""
    assert server.ended
    assert server.error


@pytest.mark.parametrize("sent", [b"hello, who is it?", b"\x17\3\3\xff\xff", b"\x17\3\3\0\0"])
def test_so_is_what_is_no_record_later(sides: tuple[Tls, Tls], sent: bytes) -> None:
    client, server = sides
    assert server.decrypt(client.encrypt(b"before") + sent) == b"before"
    assert server.ended
    assert server.error


def test_a_greeting_that_comes_byte_by_byte_is_one(own: Certificate) -> None:
    client, server = strangers(own)
    client.decrypt()
    while not (client.established and server.established):
        for one, other in ((client, server), (server, client)):
            for byte in one.pending_output():
                other.decrypt(bytes((byte,)))
    assert all_of(server, client.encrypt(b"hello")) == b"hello"


def test_so_is_one_in_records_of_a_byte_each(own: Certificate) -> None:
    client, server = strangers(own)
    client.decrypt()
    hello = client.pending_output()[5:]
    all_of(server, b"".join(b"\x16\3\1\0\1" + bytes((byte,)) for byte in hello))
    client.decrypt(server.pending_output())
    server.decrypt(client.pending_output())
    assert server.established
