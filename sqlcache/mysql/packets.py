"""Packets: the four-byte header, length-encoded values, and the OK, EOF and ERR packets.

A packet is a three-byte length, a one-byte sequence id and the payload.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from sqlcache.errors import ProtocolError
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Capability, Command, Status

HEADER_BYTES = 4
_SEQUENCE_AT = 3

_STATUS = struct.Struct("<H")
_STATUS_WARNINGS = struct.Struct("<HH")
EOF_BYTES = 5  # and each OK is longer
_NO_ATTRIBUTES = b"\0\1"  # in one set
_MOST_ATTRIBUTES = 256  # of a query whose text is read
_UNSIGNED = 0x80
_WIDTHS = {1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 8: 8}
"""The bytes of a parameter's value, by its type."""
_COUNTED = frozenset({0, 7, 10, 11, 12, 15, 246, *range(249, 255)})
"""Types whose values tell how many bytes they have."""
_HOW_IT_WENT = Status.NO_GOOD_INDEX_USED | Status.NO_INDEX_USED | Status.QUERY_WAS_SLOW


def packet(sequence: int, payload: bytes) -> bytes:
    """One packet, header and payload. The payload is shorter than `MAX_PAYLOAD_BYTES`."""
    return len(payload).to_bytes(3, "little") + bytes((sequence & 0xFF,)) + payload


def payload_bytes(data: bytes, offset: int = 0) -> int:
    """The payload length in the header at `offset`."""
    return data[offset] | data[offset + 1] << 8 | data[offset + 2] << 16


def out_of_order(command: bytes) -> bool:
    """Whether a command's packet is not numbered as the first, which ends its connection. One that
    has not come so far may be."""
    return command[_SEQUENCE_AT:HEADER_BYTES] not in (b"", b"\0")


def is_first_and_whole(command: bytes) -> bool:
    """Whether a command's packet has come and is all of it, and is numbered as the first."""
    return int.from_bytes(command[:HEADER_BYTES], "little") == len(command) - HEADER_BYTES


def read_lenenc(data: bytes, offset: int) -> tuple[int, int]:
    """A length-encoded integer: its value and the offset behind it.

    Raises: ProtocolError where `data` ends too early or the first byte is none of the forms.
    """
    try:
        first = data[offset]
        if first < 0xFB:
            return first, offset + 1
        width = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    except (IndexError, KeyError):
        raise ProtocolError("a length-encoded integer is malformed") from None
    end = offset + 1 + width
    if end > len(data):
        raise ProtocolError("a length-encoded integer is cut short")
    return int.from_bytes(data[offset + 1 : end], "little"), end


def read_text(data: bytes, offset: int) -> tuple[bytes, int]:
    """A text with its length before it, and the offset behind it. Raises: ProtocolError where
    `data` ends too early."""
    size, start = read_lenenc(data, offset)
    if start + size > len(data):
        raise ProtocolError("a text is cut short")
    return data[start : start + size], start + size


def read_nul(data: bytes, offset: int) -> tuple[bytes, int]:
    """A NUL-terminated string and the offset behind its NUL.

    Raises: ProtocolError where no NUL follows.
    """
    end = data.find(b"\0", offset)
    if end < 0:
        raise ProtocolError("a NUL-terminated string has no end")
    return data[offset:end], end + 1


class End(NamedTuple):
    """What ends one statement's answer: an OK, EOF or ERR packet.

    `status` is None in an ERR packet, which carries none; `status_offset` counts from the start
    of the payload; `affected` are the rows that were written.
    """

    status: int | None
    warnings: int
    error_code: int = 0
    status_offset: int = 0
    affected: int = 0

    @property
    def more_results(self) -> bool:
        """Whether another statement's answer follows in the same response."""
        return self.status is not None and bool(self.status & Status.MORE_RESULTS_EXISTS)


def read_ok(payload: bytes) -> End:
    """An OK packet's end, also where its header byte is 0xFE. Raises: ProtocolError."""
    affected, offset = read_lenenc(payload, 1)
    _, offset = read_lenenc(payload, offset)
    if offset + 4 > len(payload):
        raise ProtocolError("an OK packet is cut short")
    status, warnings = _STATUS_WARNINGS.unpack_from(payload, offset)
    return End(status, warnings, status_offset=offset, affected=affected)


def status_of(ok: bytes) -> int:
    """The flags in an OK packet."""
    return read_ok(ok[HEADER_BYTES:]).status or 0


def packets_in(data: bytes) -> list[bytes]:
    """The packets that the data is made of, headers and all."""
    packets = []
    at = 0
    while at < len(data):
        end = at + HEADER_BYTES + payload_bytes(data, at)
        packets.append(data[at:end])
        at = end
    return packets


def tells_the_same(answer: bytes, other: bytes) -> bool:
    """Whether a packet, header and all, tells a client the same as that `other` one, which is an
    OK or an EOF, but for how MySQL went about it."""
    payload = other[HEADER_BYTES:]
    end = read_eof(payload) if len(payload) == EOF_BYTES else read_ok(payload)
    at = HEADER_BYTES + end.status_offset
    how, rest = answer[at : at + 2], (answer[:at], answer[at + 2 :])
    if rest != (other[:at], other[at + 2 :]):
        return False
    differ = int.from_bytes(how, "little") ^ int.from_bytes(other[at : at + 2], "little")
    return not differ & ~_HOW_IT_WENT


def with_flags(data: bytes | memoryview, offsets: Iterable[int], clear: int, put: int) -> bytes:
    """The same where of the status flags at these offsets some are cleared, and then some are put.
    An offset before it is none."""
    changed: bytearray | None = None
    for at in offsets:
        if at < 0:
            continue
        (flags,) = _STATUS.unpack_from(data, at)
        if (wanted := flags & ~clear | put) != flags:
            changed = changed or bytearray(data)
            _STATUS.pack_into(changed, at, wanted)
    return bytes(data if changed is None else changed)


def read_eof(payload: bytes) -> End:
    """An EOF packet's end. Raises: ProtocolError."""
    if len(payload) < EOF_BYTES:
        raise ProtocolError("an EOF packet is cut short")
    warnings, status = _STATUS_WARNINGS.unpack_from(payload, 1)
    return End(status, warnings, status_offset=3)


def read_err(payload: bytes) -> End:
    """An ERR packet's end. Raises: ProtocolError."""
    if len(payload) < 3:
        raise ProtocolError("an ERR packet is cut short")
    return End(None, 0, error_code=payload[1] | payload[2] << 8)


def err_packet(sequence: int, code: int, message: str, sqlstate: str = "") -> bytes:
    """An ERR packet; clients show `message` to a person. Before the login it has no SQL state."""
    state = f"#{sqlstate}" if sqlstate else ""
    text = (state + message).encode("utf-8", "replace")[:512]
    return packet(sequence, struct.pack("<BH", 0xFF, code) + text)


def query_packet(statement: bytes, capabilities: int) -> bytes:
    """A COM_QUERY packet of sqlcache's own. The statement is short."""
    attributes = _NO_ATTRIBUTES if capabilities & Capability.QUERY_ATTRIBUTES else b""
    return packet(0, bytes((Command.QUERY,)) + attributes + statement)


def query_text(payload: bytes, capabilities: int) -> bytes | None:
    """The statement in a COM_QUERY payload, behind its query attributes if it has any; None where
    these cannot be read.

    Source: MySQL's COM_QUERY: with QUERY_ATTRIBUTES, a parameter count and a parameter set count
    stand before the text, and between them the parameters.
    """
    if not capabilities & Capability.QUERY_ATTRIBUTES:
        return payload[1:]
    try:
        return payload[_behind_attributes(payload) :]
    except ProtocolError:
        return None


def has_attributes(payload: bytes, capabilities: int) -> bool:
    """Whether a COM_QUERY payload may come with query attributes: it does not say as all others do
    that there are none."""
    counted = bool(capabilities & Capability.QUERY_ATTRIBUTES)
    return counted and not payload.startswith(_NO_ATTRIBUTES, 1)


def _behind_attributes(payload: bytes) -> int:
    """Where the statement begins. Raises: ProtocolError for what no client sends, too: the server
    may find the text elsewhere then."""
    count, offset = read_lenenc(payload, 1)
    sets, offset = read_lenenc(payload, offset)
    if count > _MOST_ATTRIBUTES or sets != 1:
        raise ProtocolError("there are too many query attributes")
    if not count:
        return offset
    nulls = payload[offset : offset + (count + 7) // 8]
    offset += len(nulls)
    if payload[offset : offset + 1] != b"\1":
        raise ProtocolError("query attributes come without their types")
    offset += 1
    codes = []
    for _ in range(count):
        type_ = payload[offset : offset + 2]
        if len(type_) < 2 or type_[1] & ~_UNSIGNED:
            raise ProtocolError("a query attribute's type is malformed")
        codes.append(type_[0])
        length, offset = read_lenenc(payload, offset + 2)
        offset += length
    for place, code in enumerate(codes):
        if nulls[place // 8] >> place % 8 & 1:
            continue
        width = _WIDTHS.get(code)
        if width is None:
            if code not in _COUNTED:
                raise ProtocolError("a query attribute's type is not known")
            width, offset = read_lenenc(payload, offset)
        offset += width
    if offset > len(payload):
        raise ProtocolError("query attributes are cut short")
    return offset


def is_continued(payload_length: int) -> bool:
    """Whether a packet of this length is followed by more of the same payload."""
    return payload_length == MAX_PAYLOAD_BYTES
