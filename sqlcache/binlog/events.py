"""The replication stream as bytes: packets in, the log's events out, no I/O.

Only what says what was changed is kept. No row is read: a million of them cost their way through
memory and a checksum. That is why the stream is read here, and not by a replication library: those
that there are make Python values of every row, and wait for the socket in a thread.

Laws:

- Memory is bounded, whatever the server sends: of row events the first bytes are kept, of others
  at most `longest_bytes`, of compressed transactions what one small piece unpacks to.
- So is the time at a stretch: events are handed out some at a time, and those of a compressed
  transaction are unpacked as they are taken.
- Nothing is skipped unseen. A checksum that is wrong, a length that does not fit, or the stream's
  end is an error: `BinlogGap`, `StreamRefused` or `StreamEnded`.

Source: MySQL's source code documentation, "Replication Protocol" and "Binlog event"; MariaDB's
"Replication Protocol".
"""

import struct
import zlib
from collections.abc import Generator, Iterator
from enum import IntEnum
from itertools import chain
from typing import Any, Final, NamedTuple

from sqlcache.errors import BinlogGap, ProtocolError, StreamEnded, StreamRefused
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES
from sqlcache.mysql.packets import HEADER_BYTES, payload_bytes, read_lenenc

try:
    import zstandard
except ImportError:  # then a compressed transaction may have changed anything
    zstandard = None  # type: ignore[assignment]


class Kind(IntEnum):
    """The types of events that are read, or known to change nothing."""

    START_V3 = 1
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    APPEND_BLOCK = 9
    DELETE_FILE = 11
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    TAGGED_GTID = 42
    MARIADB_ANNOTATE_ROWS = 160
    MARIADB_CHECKPOINT = 161
    MARIADB_GTID = 162
    MARIADB_GTID_LIST = 163
    MARIADB_START_ENCRYPTION = 164
    MARIADB_QUERY_COMPRESSED = 165
    MARIADB_WRITE_ROWS_COMPRESSED_V1 = 166
    MARIADB_UPDATE_ROWS_COMPRESSED_V1 = 167
    MARIADB_DELETE_ROWS_COMPRESSED_V1 = 168
    MARIADB_WRITE_ROWS_COMPRESSED = 169
    MARIADB_UPDATE_ROWS_COMPRESSED = 170
    MARIADB_DELETE_ROWS_COMPRESSED = 171


INSERTS: Final = frozenset(
    {
        Kind.WRITE_ROWS_V1,
        Kind.WRITE_ROWS,
        Kind.MARIADB_WRITE_ROWS_COMPRESSED_V1,
        Kind.MARIADB_WRITE_ROWS_COMPRESSED,
    }
)
DELETIONS: Final = frozenset(
    {
        Kind.DELETE_ROWS_V1,
        Kind.DELETE_ROWS,
        Kind.MARIADB_DELETE_ROWS_COMPRESSED_V1,
        Kind.MARIADB_DELETE_ROWS_COMPRESSED,
    }
)
ROWS: Final = (
    INSERTS
    | DELETIONS
    | {
        Kind.UPDATE_ROWS_V1,
        Kind.UPDATE_ROWS,
        Kind.PARTIAL_UPDATE_ROWS,
        Kind.MARIADB_UPDATE_ROWS_COMPRESSED_V1,
        Kind.MARIADB_UPDATE_ROWS_COMPRESSED,
    }
)
"""Events of changed rows, of which no more is read than the table's number."""

EVENT_HEADER_BYTES: Final = 19
TABLE_ID_BYTES: Final = 6
ROWS_HEAD_BYTES: Final = EVENT_HEADER_BYTES + TABLE_ID_BYTES
CHECKSUM_BYTES: Final = 4

_HEADER = struct.Struct("<IBIIIH")  # when, kind, server, bytes, position behind it, flags
_LENGTH_AT: Final = 9
_END_AND_FLAGS, _END_AT = struct.Struct("<IH"), 13
_UINT32 = struct.Struct("<I")
_IN_USE: Final = 0x01  # of a file that is written to; no part of the checksum
_FORMAT, _PAYLOAD = int(Kind.FORMAT_DESCRIPTION), int(Kind.TRANSACTION_PAYLOAD)
_ERR, _EOF = 0xFF, 0xFE
_EOF_BYTES: Final = 9  # and each event is longer
_WAITED_FOR: Final = 65_536
"""Bytes of a packet that is waited for as a whole; of a longer one events are read as it comes."""
_CRC32: Final = 1
_PIECE_BYTES: Final = 256
"""Of a compressed transaction, unpacked at once: zstd makes at most 128 KiB of four bytes."""
_END_MARK, _SIZE_FIELD, _COMPRESSION_FIELD = 0, 1, 2
_ZSTD, _NONE = 0, 255


_EVENTS_AT_ONCE: Final = 1_000
_UNPACKED_AT_ONCE_BYTES: Final = 262_144


class Event(NamedTuple):
    """One event. `data` are its header and body without a checksum, or their beginning where it is
    not `whole`. One that is `nested` came in a compressed transaction, and has no position."""

    kind: int
    data: bytes
    whole: bool = True
    nested: bool = False

    @property
    def body(self) -> bytes:
        """What stands behind the header."""
        return self.data[EVENT_HEADER_BYTES:]

    @property
    def end_and_flags(self) -> tuple[int, int]:
        """Where the next one begins in the log's file, 0 for one that stands in no file; and see
        `LOG_EVENT_…_F`."""
        return _END_AND_FLAGS.unpack_from(self.data, _END_AT)

    @property
    def flags(self) -> int:
        """See `LOG_EVENT_…_F`."""
        return self.end_and_flags[1]

    @property
    def server(self) -> int:
        """The number of the server that made it."""
        return int.from_bytes(self.data[5:9], "little")

    @property
    def seconds(self) -> int:
        """When it was made, by the server's clock."""
        return int.from_bytes(self.data[:4], "little")


_Some = list[Event]


class EventStream:
    """The events of one answer to COM_BINLOG_DUMP."""

    def __init__(self, *, longest_bytes: int) -> None:
        self._longest = longest_bytes
        self._rest = b""
        self._long: _Long | None = None
        self._payload: _Payload | None = None
        self._checksums: bool | None = None  # None until the log's format is known
        self.bytes = 0
        """Taken in."""

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events that `data` completes, in order; see `pieces`."""
        return chain.from_iterable(self.pieces(data))

    def pieces(self, data: bytes) -> Iterator[_Some]:
        """The same, so many at a time that each takes some milliseconds at most; perhaps none. All
        are to be taken before it is fed again.

        Raises: BinlogGap; StreamRefused; StreamEnded; ProtocolError. The stream is over then.
        """
        self.bytes += len(data)
        if self._rest:
            data, self._rest = self._rest + data, b""
        events: list[Event] = []
        append = events.append
        at, size = 0, len(data)
        view, checksums = memoryview(data), self._checksums
        crc32, unpack = zlib.crc32, _UINT32.unpack_from
        while at < size:
            if self._long is not None:
                at = yield from self._go_on(self._long, view, at, events)
                continue
            if len(events) >= _EVENTS_AT_ONCE:
                yield _handed(events)
            begin = at + HEADER_BYTES + 1  # of the event, behind the packet's status
            if size < begin:
                break
            length = unpack(data, at)[0] & MAX_PAYLOAD_BYTES
            end = at + HEADER_BYTES + length
            if end > size or length == MAX_PAYLOAD_BYTES:
                if length <= _WAITED_FOR or size < begin + EVENT_HEADER_BYTES:
                    break
                self._begin_long(data, begin, length)
                at = begin
                continue
            if data[begin - 1]:
                raise _no_event(data[begin - 1 : end])
            if length <= EVENT_HEADER_BYTES or unpack(data, begin + _LENGTH_AT)[0] != length - 1:
                raise ProtocolError("an event's length is not its packet's")
            kind = data[begin + 4]
            if checksums and kind != _FORMAT:
                last = end - CHECKSUM_BYTES
                if crc32(view[begin:last]) != unpack(data, last)[0]:
                    raise BinlogGap("an event's checksum is wrong")
            else:
                last = self._behind(kind, data, begin, end)
                checksums = self._checksums
            if kind in ROWS:
                append(Event(kind, data[begin : begin + ROWS_HEAD_BYTES]))
            elif kind == _PAYLOAD:
                payload = _Payload(self._longest)
                yield from payload.feed(data[begin + EVENT_HEADER_BYTES : last], events)
                append(payload.end(data[begin : begin + EVENT_HEADER_BYTES]))
            else:
                append(Event(kind, data[begin:last]))
            at = end
        self._rest = data[at:]
        yield events

    def _behind(self, kind: int, data: bytes, begin: int, end: int) -> int:
        """Where an event ends less its checksum, before it is known whether there are any, or where
        there are none; that is learnt from the log's format."""
        last = end - CHECKSUM_BYTES
        checked = _UINT32.unpack_from(data, last)[0]
        if kind == Kind.FORMAT_DESCRIPTION:
            event = bytearray(data[begin:last])
            event[17] &= ~_IN_USE
            self._checksums = event[-1] == _CRC32
            # Without any, a server that begins amid a file changes what it sends, and not this.
            if self._checksums and zlib.crc32(event) != checked:
                raise BinlogGap("the checksum of the log's format is wrong")
            return last
        if self._checksums is None:  # as of the first event, which names the file
            return last if zlib.crc32(data[begin:last]) == checked else end
        return end

    def _begin_long(self, data: bytes, begin: int, length: int) -> None:
        if data[begin - 1]:
            raise _no_event(data[begin - 1 : begin + EVENT_HEADER_BYTES])
        kind = data[begin + 4]
        kept = ROWS_HEAD_BYTES if kind in ROWS else self._longest
        if kind == Kind.TRANSACTION_PAYLOAD:
            kept = EVENT_HEADER_BYTES
            self._payload = _Payload(self._longest)
        size = _HEADER.unpack_from(data, begin)[3]
        if size < length - 1:
            raise ProtocolError("an event's length is not its packet's")
        self._long = _Long(kind, size, kept, bool(self._checksums))
        self._long.packet_left = length - 1
        self._long.goes_on = length == MAX_PAYLOAD_BYTES

    def _go_on(
        self, long: "_Long", view: memoryview, at: int, events: _Some
    ) -> Generator[_Some, None, int]:
        """Takes more of an event that is read as it comes; returns where what it took ends."""
        if not long.packet_left:
            at = self._next_packet(long, view, at)
            if not long.left and not long.goes_on:  # it filled its packets, an empty one ends it
                self._finish(long, events)
            return at
        taken = min(long.packet_left, len(view) - at)
        long.packet_left -= taken
        body = long.take(view[at : at + taken])
        if self._payload is not None and body:
            yield from self._payload.feed(body, events)
        if not long.packet_left and not long.goes_on:
            self._finish(long, events)
        return at + taken

    def _finish(self, long: "_Long", events: _Some) -> None:
        if long.left or long.packet_left:
            raise ProtocolError("an event's length is not its packets'")
        if long.is_wrong:
            raise BinlogGap("an event's checksum is wrong")
        if self._payload is not None:
            events.append(self._payload.end(bytes(long.kept)))
        else:
            whole = long.kind in ROWS or long.size == len(long.kept)
            events.append(Event(long.kind, bytes(long.kept), whole))
        self._long = self._payload = None

    def _next_packet(self, long: "_Long", view: memoryview, at: int) -> int:
        """Reads the header of the packet with which a long event goes on."""
        long.header += bytes(view[at : at + HEADER_BYTES - len(long.header)])
        read = len(long.header) - long.header_read
        long.header_read = len(long.header)
        if len(long.header) == HEADER_BYTES:
            length = payload_bytes(long.header)
            long.header, long.header_read = b"", 0
            long.packet_left, long.goes_on = length, length == MAX_PAYLOAD_BYTES
        return at + read


class _Long:
    """An event that is read as it comes: `kept` is its beginning, `left` what is still to come."""

    def __init__(self, kind: int, size: int, kept: int, checked: bool) -> None:
        self.kind = kind
        self.kept = bytearray()
        self.size = size - (CHECKSUM_BYTES if checked else 0)
        self.left = size
        self.packet_left = 0
        self.goes_on = False
        self.header = b""
        self.header_read = 0
        self._keeps = kept
        self._checked = checked
        self._crc = 0
        self._checksum = b""
        self._seen = 0

    def take(self, data: memoryview) -> bytes:
        """Takes the next bytes; returns those of them that are the body's, where it is not kept."""
        of_event = max(min(len(data), self.size - self._seen), 0)
        event, rest = data[:of_event], data[of_event:]
        if self._checked:
            self._crc = zlib.crc32(event, self._crc)
        self._checksum += bytes(rest)
        wanted = self._keeps - len(self.kept)
        if wanted > 0:
            self.kept += event[:wanted]
        behind = max(EVENT_HEADER_BYTES - self._seen, 0)
        self._seen += len(event)
        self.left -= len(data)
        if self.left < 0:
            raise ProtocolError("an event's length is not its packets'")
        return bytes(event[behind:]) if self.kind == Kind.TRANSACTION_PAYLOAD else b""

    @property
    def is_wrong(self) -> bool:
        """Whether it is not what was written."""
        return self._checked and self._crc != int.from_bytes(self._checksum, "little")


class _Payload:
    """The events of a compressed transaction, out of its body as it comes.

    Where they cannot be unpacked, what stands for them at the `end` says so.
    """

    def __init__(self, longest_bytes: int) -> None:
        self._longest = longest_bytes
        self._head: bytes | None = b""
        self._unpacker: Any = None
        self._rest = b""
        self._event: tuple[int, bytearray, int, int] | None = None  # kind, kept, to keep, left
        self._lost = False
        self._taken = 0  # since some were handed out last

    def feed(self, body: bytes, events: _Some) -> Iterator[_Some]:
        """Adds the events that these bytes complete, and hands them out where they are many."""
        if self._head is not None:
            self._head += body
            packed = self._behind_head(self._head)
            if packed is None:
                return
            self._head, body = None, packed
        if self._lost:
            return
        for start in range(0, len(body), _PIECE_BYTES):
            piece = body[start : start + _PIECE_BYTES]
            if self._unpacker is not None:
                try:
                    piece = self._unpacker.decompress(piece)
                except zstandard.ZstdError:
                    raise BinlogGap("a compressed transaction cannot be unpacked") from None
            yield from self._split(piece, events)

    def end(self, header: bytes) -> Event:
        """What stands in the log for all of them: not `whole` where they are not known."""
        if self._head is not None or self._rest or self._event is not None:
            self._lost = True
        return Event(Kind.TRANSACTION_PAYLOAD, header, whole=not self._lost)

    def _behind_head(self, head: bytes) -> bytes | None:
        """What follows the fields that describe the payload; None while these are not all there."""
        compression, at = _ZSTD, 0
        try:
            while head[at] != _END_MARK:
                field, at = read_lenenc(head, at)
                length, at = read_lenenc(head, at)
                if field == _COMPRESSION_FIELD:
                    compression, _ = read_lenenc(head, at)
                at += length
        except (IndexError, ProtocolError):
            return None if len(head) < _WAITED_FOR else b""
        if compression == _ZSTD and zstandard is not None:
            self._unpacker = zstandard.ZstdDecompressor().decompressobj()
        elif compression != _NONE:
            self._lost = True
        return head[at + 1 :]

    def _split(self, data: bytes, events: _Some) -> Iterator[_Some]:
        data, self._rest = self._rest + data, b""
        at, size = 0, len(data)
        while at < size:
            if self._taken >= _UNPACKED_AT_ONCE_BYTES or len(events) >= _EVENTS_AT_ONCE:
                self._taken = 0
                yield _handed(events)
            if self._event is None:
                if size - at < EVENT_HEADER_BYTES:
                    self._rest = data[at:]
                    return
                _, kind, _, length, _, _ = _HEADER.unpack_from(data, at)
                if length < EVENT_HEADER_BYTES:
                    raise BinlogGap("a compressed transaction cannot be read")
                kept = ROWS_HEAD_BYTES if kind in ROWS else self._longest
                self._event = kind, bytearray(), min(length, kept), length
            kind, begun, to_keep, left = self._event
            taken = min(left, size - at)
            begun += data[at : at + min(taken, to_keep - len(begun))]
            at += taken
            left -= taken
            self._taken += taken
            self._event = kind, begun, to_keep, left
            if not left:
                length = _HEADER.unpack_from(begun)[3]
                whole = kind in ROWS or length == len(begun)
                events.append(Event(kind, bytes(begun), whole, nested=True))
                self._event = None


def _handed(events: _Some) -> _Some:
    """Those, which are gathered no more."""
    handed = events.copy()
    events.clear()
    return handed


def _no_event(payload: bytes) -> Exception:
    """What the server says in place of an event."""
    if payload[0] == _EOF and len(payload) < _EOF_BYTES:
        return StreamEnded("the server ended the stream")
    if payload[0] == _ERR and len(payload) >= 3:
        code = payload[1] | payload[2] << 8
        text = payload[9:] if payload[3:4] == b"#" else payload[3:]
        return StreamRefused(code, text.decode("utf-8", "replace"))
    return ProtocolError(f"a packet that begins with {payload[0]:#x} is no event")
