"""Clients' character sets, checked against what the servers make of the same bytes."""

import pytest

from sqlcache.demo.servers import PrivateSqlServer
from sqlcache.sql import charset

SINGLE_BYTES = [bytes((byte,)) for byte in range(128, 256)]
OF_ONE_BYTE = (
    *("latin1", "latin2", "latin5", "latin7", "cp1250", "cp1251", "cp1257", "cp850", "cp852"),
    *("koi8r", "macce", "macroman", "tis620"),
)
OF_TWO_BYTES = ("big5", "euckr", "gb2312", "gbk", "sjis", "ujis")
PAIRS = [bytes((lead, trail)) for lead in range(128, 256) for trail in range(48, 256)]
OF_JAPAN = [bytes((0x8F, row, cell)) for row in range(128, 256) for cell in range(128, 256)]
OF_KOREA = [chr(code).encode("euc_kr") for code in range(0xAC00, 0xD7A4)]
OF_CHINA = [
    bytes((first, second, third, fourth))
    for first in (*range(0x81, 0x85), 0x90, 0xE3)
    for second in range(0x30, 0x3A)
    for third in range(0x81, 0xFF)
    for fourth in range(0x30, 0x3A)
]


def test_every_collation_a_client_can_log_in_with_has_the_servers_character_set(
    upstream: PrivateSqlServer,
) -> None:
    is_mysql = upstream.name == "mysqld"  # MariaDB names those of several sets elsewhere
    table = "collations" if is_mysql else "collation_character_set_applicability"
    rows = upstream.sql(f"SELECT id, character_set_name FROM information_schema.{table}")
    known = {number: charset.of_collation(number) for number, _ in rows}
    for number, name in rows:
        no_clients = name.startswith(("ucs2", "utf16", "utf32"))
        assert known[number] == (None if no_clients else name)


@pytest.mark.parametrize(
    ("name", "sequences"),
    [
        *((name, SINGLE_BYTES) for name in OF_ONE_BYTE),
        *((name, PAIRS) for name in (*OF_TWO_BYTES, "gb18030")),
        *(("ujis", OF_JAPAN), ("euckr", OF_KOREA), ("gb18030", OF_CHINA)),
    ],
)
def test_texts_become_what_the_server_reads(
    upstream: PrivateSqlServer, name: str, sequences: list[bytes]
) -> None:
    if name == "gb18030" and upstream.name == "mariadbd":
        pytest.skip("MariaDB has no such character set")
    read = {text: known for text in sequences if (known := charset.to_utf8(text, name))}
    values = ", ".join(f"(X'{text.hex()}')" for text in read)
    rows = upstream.sql(
        "CREATE TEMPORARY TABLE mysql.bytes (b VARBINARY(8));"
        f"INSERT INTO mysql.bytes VALUES {values};"
        f"SELECT HEX(b), HEX(CONVERT(CAST(b AS CHAR CHARACTER SET {name}) USING utf8mb4))"
        " FROM mysql.bytes"
    )
    theirs = {bytes.fromhex(text): bytes.fromhex(known or "") for text, known in rows}
    assert len(read) > 90
    assert theirs == read


@pytest.mark.parametrize("name", ["gbk", "sjis", "big5", "gb18030"])
def test_no_byte_of_a_character_becomes_a_quote_or_a_backslash(name: str) -> None:
    for text in PAIRS:
        known = charset.to_utf8(text, name)
        if known is not None and len(known.decode()) == 1:
            assert not any(byte in known for byte in b"'\"`\\")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"\x81", "gbk"),  # half a character
        (b"\xff'", "gbk"),
        ("ü".encode(), "cp932"),
        (b"\x81\x5f", "sjis"),  # which Python takes for another character
        (b"SELECT 1", "swe7"),
        (b"SELECT 1", "utf16"),
    ],
)
def test_a_text_that_may_be_read_otherwise_is_not_read(text: bytes, name: str) -> None:
    assert charset.to_utf8(text, name) is None


@pytest.mark.parametrize("name", ["gbk", "cp932", "latin1", "utf8mb4", "binary", "no such"])
def test_plain_ascii_is_the_same_everywhere(name: str) -> None:
    assert charset.to_utf8(b"SELECT `a` FROM t WHERE b = 'x'", name) is not None
