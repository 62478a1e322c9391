"""Users' names, checked against what the servers make of the same bytes at a login."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateSqlServer
from sqlcache.sql import charset, user_names
from tests.fakes.raw_client import NEW, RawClient
from tests.servers import MySQLMissing, PrivateMySQL

UTF8MB4, LATIN1, SWE7, ASCII, SJIS, GBK, ARMSCII8, BINARY = 45, 8, 10, 11, 13, 28, 32, 63
OTHERS = (*range(1, 11), 12, 14, 16, 18, 19, 22, 24, 25, 26, 29, 30, 36, 57, 92, 95, 97, 1069)
NO_CLIENTS, NONE = 35, 0
LONGEST_ACCOUNT = 32
NAMES = (
    *(b"x" + bytes((byte,)) + b"y" for byte in (*b"!'-@\\^`{~", 0x80, 0x81, 0xA4, 0xAC, 0xE9)),
    *(b"x" + bytes((byte,)) for byte in (0x81, 0xC3, 0xE9, 0xFF)),
    *("é".encode(), "🐬".encode(), b"\x81\x5f", b"b" * 97, b"b" * 95 + "é".encode()),
)


@pytest.fixture(scope="module", params=[PrivateMariaDB, PrivateMySQL])
def anybody(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[PrivateSqlServer]:
    """A server that lets in whoever names himself."""
    directory: Path = tmp_path_factory.mktemp("anybody")
    try:
        with request.param(directory / "server") as server:
            server.sql("CREATE USER ''@'localhost'; CREATE USER ''@'%'; CREATE USER known@'%'")
            yield server
    except MySQLMissing as missing:
        pytest.skip(str(missing))


def name_of(client: RawClient, sent: bytes, collation: int) -> bytes | None:
    """What the server says who has changed to this user is; None where it refuses."""
    if client.change_user(sent, collation)[:1] == b"\xff":
        return None
    host = len("@localhost")
    client.query(f"SELECT HEX(CONVERT(LEFT(USER(), CHAR_LENGTH(USER()) - {host}) USING utf8mb4))")
    row = [client.read_packet()[1] for _ in range(4)][2]
    return bytes.fromhex(row[1:].decode())


@pytest.mark.parametrize(
    "collation", [UTF8MB4, LATIN1, SWE7, ASCII, SJIS, GBK, ARMSCII8, BINARY, NO_CLIENTS, *OTHERS]
)
def test_a_name_is_what_the_server_reads(anybody: PrivateSqlServer, collation: int) -> None:
    known = 0
    client = RawClient.logged_in(anybody, "known", "", capabilities=NEW)
    for sent in NAMES:
        name = name_of(client, sent, collation)
        if name is None:
            assert collation == NO_CLIENTS
            break
        read = user_names.as_read(sent, collation)
        known += read is not None
        assert read in (name, None), sent
        assert user_names.may_be_read_as(sent, name) or len(name) > LONGEST_ACCOUNT, sent
        if collation == UTF8MB4:
            assert name.startswith(user_names.known_of(sent, collation))
    client.close()
    assert known >= 2 or charset.of_collation(collation) is None


@pytest.mark.parametrize(
    ("sent", "collation", "known"),
    [
        (b"bob\xff", UTF8MB4, b"bob"),
        (b"'bob'\xc3", UTF8MB4, b"bob"),
        ("josé".encode() + b"\xfe", UTF8MB4, "josé".encode()),
        (b"jos\xe9", LATIN1, "josé".encode()),
        (b"jos\xe9", BINARY, "josé".encode()),
        (b"jos\xe9", NONE, b"jos"),
        (b"a\xacb", ARMSCII8, b"a"),
        (b"caf\x60", SWE7, b"caf"),
        ("bob🐬".encode(), UTF8MB4, b"bob"),
        ("a\u200cb".encode(), UTF8MB4, "a\u200cb".encode()),
        (b"b" * 70_000, UTF8MB4, b"b" * 96),
        (b"\xff" * 70_000, UTF8MB4, b""),
    ],
)
def test_of_a_name_that_is_not_known_the_beginning_may_be(
    sent: bytes, collation: int, known: bytes
) -> None:
    assert user_names.known_of(sent, collation) == known


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        (b"root\xff", "root"),
        (b"'root'", "root"),
        (b"'root'\xc3", "root"),
        (b"\xffroot\xff", "root"),
        (b"\xffroot'", "root"),
        (b"sql\xaccache", "sql-cache"),
        (b"'x", "'x"),
        (b"caf\xe9", "café"),
        (b"caf\x60", "café"),
        (b"\xe9t\xe9", "été"),
    ],
)
def test_bytes_may_be_read_as_another_name(sent: bytes, name: str) -> None:
    assert user_names.may_be_read_as(sent, name.encode())
    assert user_names.may_be_read_as(name.encode(), name.encode())


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"roo",
        b"root2",
        b"ro\xff",
        b"sql_cache",
        b"\xffother\xff",
        "élan".encode(),
        b"ROOT",
        b"root@a",
        b"root~",
    ],
)
def test_others_are_not(sent: bytes) -> None:
    for name in (b"root", b"sql-cache", b"sqlcache"):
        assert not user_names.may_be_read_as(sent, name)
