"""Reads a whole text result set, for the few small ones that sqlcache asks for itself."""

from typing import NamedTuple

from sqlcache.errors import ProtocolError
from sqlcache.mysql.constants import Capability
from sqlcache.mysql.packets import HEADER_BYTES, packet, payload_bytes, read_lenenc

Row = tuple[bytes | None, ...]

_NULL = 0xFB
_FIXED_BYTES = 12  # collation, length, type, flags, decimals and two of nothing
_TYPE_AT = 6  # in these
_NAMES = 6


def read_text_rows(response: bytes, capabilities: int) -> list[Row]:
    """The rows of one complete response; none if it is no result set.

    Raises: ProtocolError.
    """
    packets = _packets(response)
    if packets[0][:1] in (b"\x00", b"\xff", b"\xfb"):
        return []
    columns, _ = read_lenenc(packets[0], 0)
    first = 1 + columns + (0 if capabilities & Capability.DEPRECATE_EOF else 1)
    return [cells(payload, columns) for payload in packets[first:-1]]


class Column(NamedTuple):
    """What the definition of a result set's column says, but for what may differ from one execution
    to the next, as its length and its flags."""

    names: bytes
    """The names of its schema, its table and itself, as they came."""
    collation: bytes
    type: int

    @property
    def name(self) -> bytes:
        """As the client sees it."""
        return self._names()[4]

    def is_called(self, table: bytes, name: bytes) -> bool:
        """Whether it is just that column of a table that the query calls so, in lower case."""
        _, _, its_table, _, its_name, in_table = (each.lower() for each in self._names())
        return (its_table, its_name, in_table) == (table, name, name)

    def _names(self) -> list[bytes]:
        found = []
        offset = 0
        for _ in range(_NAMES):
            length, offset = read_lenenc(self.names, offset)
            found.append(self.names[offset : offset + length])
            offset += length
        return found


def has_more_values(response: bytes, most: int) -> bool:
    """Whether a result set may have more than so many values, its columns' definitions being some.
    Raises: ProtocolError."""
    columns, _ = read_lenenc(response, HEADER_BYTES)
    offset = values = 0
    while values <= most and offset + HEADER_BYTES <= len(response):
        offset += HEADER_BYTES + payload_bytes(response, offset)
        values += columns
    return values > most


def apart(response: bytes, *, deprecate_eof: bool) -> tuple[list[Column], list[bytes]]:
    """The columns and the rows, as they came, of one complete result set. Raises: ProtocolError."""
    packets = _packets(response)
    columns, _ = read_lenenc(packets[0], 0)
    first = 1 + columns + (0 if deprecate_eof else 1)
    return [_column(packet) for packet in packets[1 : 1 + columns]], packets[first:-1]


def _column(definition: bytes) -> Column:
    numbers = definition[-_FIXED_BYTES:]
    if len(numbers) < _FIXED_BYTES:
        raise ProtocolError("the definition of a column is cut short")
    return Column(definition[:-_FIXED_BYTES], numbers[:2], numbers[_TYPE_AT])


def collation_of(response: bytes) -> int:
    """The collation's number in the definition of a result set's first column; 0 for what is no
    result set. Raises: ProtocolError."""
    packets = _packets(response)
    if packets[0][:1] in (b"\x00", b"\xff", b"\xfb") or len(packets[1]) < _FIXED_BYTES:
        return 0
    # Before the end stand the numbers of the column, the first of them its collation's.
    return int.from_bytes(packets[1][-_FIXED_BYTES:][:2], "little")


def with_last_row(response: bytes, value: bytes) -> bytes:
    """A result set of one column with another value, shorter than 251 bytes, in its last row.

    Raises: ProtocolError.
    """
    return _with_last_row(response, bytes((len(value),)) + value)


def with_last_number(response: bytes, number: int) -> bytes:
    """A binary result set of one column, of BIGINT, with this in its last row. Raises:
    ProtocolError."""
    return _with_last_row(response, bytes(2) + number.to_bytes(8, "little"))


def _with_last_row(response: bytes, row: bytes) -> bytes:
    packets = _packets(response)
    packets[-2] = row
    return b"".join(packet(1 + place, payload) for place, payload in enumerate(packets))


def _packets(response: bytes) -> list[bytes]:
    packets = []
    offset = 0
    while offset + HEADER_BYTES <= len(response):
        end = offset + HEADER_BYTES + payload_bytes(response, offset)
        packets.append(response[offset + HEADER_BYTES : end])
        offset = end
    if not packets or offset != len(response):
        raise ProtocolError("a result set is cut short")
    return packets


def cells(payload: bytes, columns: int) -> Row:
    """The values of one row of a text result set. Raises: ProtocolError."""
    values: list[bytes | None] = []
    offset = 0
    for _ in range(columns):
        if payload[offset : offset + 1] == bytes((_NULL,)):
            values.append(None)
            offset += 1
        else:
            length, offset = read_lenenc(payload, offset)
            values.append(payload[offset : offset + length])
            offset += length
    if offset != len(payload):
        raise ProtocolError("a row is cut short, or too long")
    return tuple(values)
