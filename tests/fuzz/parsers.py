"""What reads bytes from outside, each as one function of bytes that may only fail as it promises.

`PARSERS` is what the harnesses feed with any bytes. Each also checks what must hold besides: that
chunks make no difference, and that the pieces of a text are that text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping

from sqlcache import kernel
from sqlcache.errors import ProtocolError, SqlSyntaxError
from sqlcache.memcache.protocol import Reply, ReplyParser
from sqlcache.mysql import scan as pure_scan
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Capability, Command
from sqlcache.mysql.handshake import (
    offer,
    read_change_user,
    read_greeting,
    read_login,
    with_capabilities,
)
from sqlcache.mysql.packets import (
    End,
    query_text,
    read_eof,
    read_err,
    read_lenenc,
    read_nul,
    read_ok,
)
from sqlcache.mysql.response import ResponseTracker
from sqlcache.mysql.rows import read_text_rows
from sqlcache.mysql.scan import OLD_END_BYTES
from sqlcache.plan.prepared import Prepared
from sqlcache.sql import shapes as pure_shapes
from sqlcache.sql.analysis import analyse
from sqlcache.sql.lexer import lex
from sqlcache.sql.pieces import Dialect

_COMMANDS = (Command.QUERY, Command.STMT_PREPARE, Command.STMT_FETCH, Command.STATISTICS)
_CAPABILITIES = (0, Capability.DEPRECATE_EOF, Capability.QUERY_ATTRIBUTES)
_DIALECTS = tuple(Dialect(bool(n & 1), bool(n & 2), bool(n & 4), bool(n & 8)) for n in range(16))


def cut(data: bytes, lengths: Iterable[int]) -> list[bytes]:
    """The data in chunks of these lengths, as far as it reaches."""
    chunks = []
    at = 0
    for length in lengths:
        chunks.append(data[at : at + length])
        at += length
    return [chunk for chunk in (*chunks, data[at:]) if chunk]


def followed(
    chunks: Iterable[bytes], command: Command, capabilities: int
) -> tuple[list[End], int, list[int], bool, bool, bool]:
    """All a ResponseTracker says of a response: its ends, length, and where the status flags are;
    whether it is over, waits for a file, is no response."""
    tracker = ResponseTracker(command, capabilities)
    ends: list[End] = []
    used = 0
    refused = False
    try:
        for chunk in chunks:
            taken = tracker.feed(chunk)
            ends += tracker.ends
            used += taken
            if tracker.done or tracker.wants_file:
                break
    except ProtocolError:
        refused = True
        used = 0
    return ends, used, tracker.status_offsets, tracker.done, tracker.wants_file, refused


def replies(chunks: Iterable[bytes]) -> tuple[list[Reply], bool]:
    """memcached's replies in a stream, and whether it was refused."""
    parser = ReplyParser()
    found: list[Reply] = []
    try:
        for chunk in chunks:
            found += parser.feed(chunk)
    except ProtocolError:
        return found, True
    return found, False


def _response(data: bytes) -> None:
    lengths, data = data[1 : 1 + data[0] % 8] if data else b"", data[9:]
    for command in _COMMANDS:
        for capabilities in _CAPABILITIES[:2]:
            whole = followed([data] if data else [], command, capabilities)
            parts = followed(cut(data, lengths), command, capabilities)
            if not whole[-1]:
                assert parts == whole


def _scan(data: bytes) -> None:
    """The kernel that runs says what its twin in pure Python says."""
    for part in (data, data[len(_CUTS) :]):
        for deprecate_eof in (False, True):
            found = kernel.scan(part, deprecate_eof=deprecate_eof)
            assert found == pure_scan.scan(part, deprecate_eof=deprecate_eof)
        for end_bytes in (OLD_END_BYTES, MAX_PAYLOAD_BYTES):
            rows = kernel.step_over_rows(part, 0, end_bytes)
            assert rows == pure_scan.step_over_rows(part, 0, end_bytes)


def _packets(data: bytes) -> None:
    readers: list[Callable[[bytes], object]] = [
        *(read_ok, read_eof, read_err, read_greeting, read_login),
        lambda payload: read_lenenc(payload, 0),
        lambda payload: read_nul(payload, 0),
        lambda payload: with_capabilities(payload, 0, Capability.SSL),
        lambda payload: offer(payload, read_greeting(payload), tls=True),
        lambda payload: read_change_user(b"\x11" + payload, read_login(payload)),
    ]
    readers += [
        lambda payload, c=c: query_text(b"\x03" + payload, c)  # type: ignore[misc]
        for c in _CAPABILITIES
    ]
    readers += [
        lambda payload, c=c: read_text_rows(payload, c)  # type: ignore[misc]
        for c in _CAPABILITIES
    ]
    for read in readers:
        _refusing(read, data)


def _execution(data: bytes) -> None:
    lexed = lex(b"SELECT ?", Dialect())
    for parameters in (0, 1, 9):
        for capabilities in _CAPABILITIES:
            prepared = Prepared(lexed, b"", None, parameters)
            for payload in (data, data[:20], data):
                try:
                    execution = prepared.read(b"\x17" + payload, capabilities)
                    packet = len(payload + b"\x17").to_bytes(3, "little") + b"\0\x17" + payload
                    prepared.for_server(packet, execution)
                except ProtocolError:
                    break


def _memcached(data: bytes) -> None:
    lengths, data = data[1 : 1 + data[0] % 8] if data else b"", data[9:]
    whole, refused = replies([data])
    parts, parts_refused = replies(cut(data, lengths))
    # What is wrong may be noticed before or after the replies in front of it.
    assert refused == parts_refused
    if not refused:
        assert parts == whole


def _lexer(data: bytes) -> None:
    for dialect in _DIALECTS:
        try:
            lexed = lex(data, dialect)
        except SqlSyntaxError:
            continue
        assert b"".join(lexed.pieces) == data


def _shapes(data: bytes) -> None:
    assert kernel.without_literals(data) == pure_shapes.without_literals(data)


def _analysis(data: bytes) -> None:
    for dialect in _DIALECTS[:2]:
        for several in (False, True):
            analyse(data, dialect, multi_statements=several)
        analyse(data, dialect, head=True)


def _refusing(read: Callable[[bytes], object], data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        read(data)


PARSERS: Mapping[str, Mapping[str, Callable[[bytes], None]]] = {
    "packets": {
        "response": _response,
        "scan": _scan,
        "packets": _packets,
        "execution": _execution,
        "memcached": _memcached,
    },
    "lexer": {"lexer": _lexer, "shapes": _shapes, "analysis": _analysis},
}

_COLUMN = b"\3def\1d\1t\1t\1a\1a\x0c\x3f\0\x0b\0\0\0\3\3\x42\0\0\0"
_EOF = b"\xfe\0\0\x22\0"
_OK = b"\0\1\2\2\0\0\0"


def response(*payloads: bytes) -> bytes:
    """Payloads as the packets of one response."""
    return b"".join(
        len(each).to_bytes(3, "little") + bytes((number & 0xFF,)) + each
        for number, each in enumerate(payloads, 1)
    )


_CUTS = b"\4\5\1\2\3\4\5\6\7"

SEEDS: Mapping[str, tuple[bytes, ...]] = {
    "packets": (
        _CUTS + response(_OK),
        _CUTS + response(b"\1", _COLUMN, _EOF, b"\1" + b"1", b"\xfb", _EOF),
        _CUTS + response(b"\1", _COLUMN, b"\1" + b"1", b"\xfe\0\0\x22\0\0\0"),
        _CUTS + response(b"\0\1\2\x0a\0\0\0", b"\1", _COLUMN, _EOF, _EOF),
        _CUTS + response(b"\xff\x7a\x04#42S02No such table"),
        _CUTS + response(b"\xfbfile", _OK),
        _CUTS + response(b"\0\1\0\0\0\1\0\1\0\0\0\0", _COLUMN, _EOF, _COLUMN, _EOF),
        _CUTS + b"VA 5 c12 t-1\r\n1\r\n45\r\nHD\r\nEN\r\nSERVER_ERROR out of memory\r\n",
        b"\x0a9.7.0\0\1\0\0\0abcdefgh\0\xff\xff\x2d\2\0\xff\xff\x15"
        + bytes(10)
        + b"ijklmnopqrst\0",
        b"\x85\xa6\xff\1\0\0\0\1\x2d" + bytes(23) + b"root\0\0shop\0caching_sha2_password\0",
        b"\1\0\0\0\0\1\0\0\0\0\1\xfd\0\1a",
    ),
    "lexer": (
        b"SELECT a, 'it''s' FROM t WHERE b = \"x\\\"y\" AND c IN (1, 2.5, 0x41) -- end",
        b"WITH q AS (SELECT 1) UPDATE t JOIN q SET a = `b``c` /*!40101 + 1 */ # end",
        b"INSERT INTO s.t (a) VALUES (?, N'x'), (@a, @@b.c) ON DUPLICATE KEY UPDATE a = VALUES(a)",
        b"CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW BEGIN SET NEW.a = 1; END",
        b"SET NAMES utf8mb4, @@session.sql_mode = 'ANSI', GLOBAL x = 1; SELECT 1",
        b"DELETE a, b FROM t AS a, u b USING v; GRANT SELECT ON *.* TO u; XA COMMIT 'x'",
    ),
}
"""Bytes to begin from, such as servers, clients and memcached send."""
