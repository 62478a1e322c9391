"""Events as a server sends them, made by hand."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterable
from typing import Final

from sqlcache.binlog.events import Kind
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES

SERVER: Final = uuid.UUID(int=7)
MODES: Final = 1


def event(
    kind: int, body: bytes = b"", *, end: int = 100, flags: int = 0, checked: bool = True
) -> bytes:
    """An event, with its checksum."""
    size = 19 + len(body) + 4 * checked
    made = struct.pack("<IBIIIH", 1, kind, 1, size, end, flags) + body
    return made + struct.pack("<I", zlib.crc32(made)) if checked else made


def packets(*events: bytes, longest: int = MAX_PAYLOAD_BYTES) -> bytes:
    """The packets that they come in."""
    sent = b""
    for each in events:
        payload = b"\0" + each
        while True:
            part, payload = payload[:longest], payload[longest:]
            sent += len(part).to_bytes(3, "little") + b"\0" + part
            if len(part) < longest:
                break
    return sent


def format_description(*, checked: bool = True, made: int = 1, began: bool = True) -> bytes:
    """That of a log's file, with which the server `began`."""
    body = struct.pack("<H50sIB", 4, b"9.7.0", made * began, 19) + bytes(40) + bytes((checked,))
    size = 19 + len(body) + 4
    told = struct.pack("<IBIIIH", made, Kind.FORMAT_DESCRIPTION, 1, size, 0, 0) + body
    return told + struct.pack("<I", zlib.crc32(told))


def rotate(file: str = "binlog.000001", at: int = 4, *, checked: bool = True) -> bytes:
    """What names the file that follows; no file has this one."""
    body = struct.pack("<Q", at) + file.encode()
    return event(Kind.ROTATE, body, end=0, flags=0x20, checked=checked)


def begins(*, checked: bool = True) -> bytes:
    """What every stream begins with."""
    return packets(rotate(checked=checked), format_description(checked=checked))


def table(number: int, schema: str, name: str, *, checked: bool = True) -> bytes:
    """The name of a table by its number."""
    body = number.to_bytes(6, "little") + b"\0\0"
    body += bytes((len(schema),)) + schema.encode() + b"\0"
    body += bytes((len(name),)) + name.encode() + b"\0"
    return event(Kind.TABLE_MAP, body + b"\x01\x03\x00\x00", checked=checked)


def rows(
    number: int, kind: int = Kind.WRITE_ROWS, data: bytes = b"rows", *, checked: bool = True
) -> bytes:
    """Changed rows of a table by its number."""
    return event(kind, number.to_bytes(6, "little") + b"\x01\0\x02\0" + data, checked=checked)


def query(
    text: str,
    schema: str = "shop",
    *,
    modes: int = 0,
    collation: int = 45,
    kind: int = Kind.QUERY,
    more: bytes = b"",
) -> bytes:
    """A statement; `more` is told of its session."""
    told = b"\0" + bytes(4) + b"\x01" + modes.to_bytes(8, "little")
    told += b"\x06\x03std" + more + b"\x04" + struct.pack("<HHH", collation, collation, 8)
    head = struct.pack("<IIBHH", 9, 0, len(schema), 0, len(told))
    if kind == Kind.EXECUTE_LOAD_QUERY:
        head += bytes(13)
    return event(kind, head + told + schema.encode() + b"\0" + text.encode())


def xid(*, checked: bool = True) -> bytes:
    """A commit."""
    return event(Kind.XID, bytes(8), checked=checked)


def gtid(number: int) -> bytes:
    """MySQL's name of the transaction that follows."""
    return event(Kind.GTID, b"\1" + SERVER.bytes + number.to_bytes(8, "little") + bytes(18))


def mariadb_gtid(number: int = 0, *, domain: int = 0, standalone: bool = False) -> bytes:
    """MariaDB's, which begins it unless it stands alone."""
    told = struct.pack("<QIB", number, domain, standalone)
    return event(Kind.MARIADB_GTID, told + bytes(6))


def in_pieces(data: bytes, size: int) -> Iterable[bytes]:
    """The same, a few bytes at a time."""
    return (data[at : at + size] for at in range(0, len(data), size))
