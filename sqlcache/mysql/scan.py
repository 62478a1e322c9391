"""Reads a response in one walk, where it has come whole and is as plain as most are.

What is not plain, an error among it, is for `response.ResponseTracker`, which knows all forms.
"""

import struct

from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Status
from sqlcache.mysql.packets import HEADER_BYTES

Plain = tuple[int, int, int, int, int, int]
"""Status flags, warnings, columns (0: an OK packet), rows, and where the flags stand: the offset of
those behind the column definitions, or -1, and of the last."""

_HEADER_AND_FIRST = struct.Struct("<IB").unpack_from
_PREPARED = struct.Struct("<IBIHHBH").unpack_from
_PREPARED_BYTES = 16
_ERR = b"\xff"
_STATUS_WARNINGS = struct.Struct("<HH").unpack_from
_MORE_RESULTS = Status.MORE_RESULTS_EXISTS
_NO_ROWS_YET = Status.CURSOR_EXISTS | _MORE_RESULTS
OLD_END_BYTES = 9
"""The end of rows is shorter than that, where it is no OK packet (without DEPRECATE_EOF)."""
_MOST_COLUMNS = 0xFA  # a count in one byte; 0xFB asks for a file
_WIDTHS = {0xFC: 3, 0xFD: 4, 0xFE: 9}


def scan(data: bytes, *, deprecate_eof: bool) -> Plain | None:
    """What a response says that these bytes are: one OK packet, or one result set.

    None for all else: an error, several results, a cursor, a file that is wanted, a part, or more
    than a response. Not for the answer to a COM_STMT_PREPARE, and its like.
    """
    try:
        header, first = _HEADER_AND_FIRST(data)
        if first == 0:
            whole = HEADER_BYTES + (header & MAX_PAYLOAD_BYTES) == len(data)
            return _ended(data, 0, 0, -1, HEADER_BYTES) if whole else None
        defined = _defined(data, deprecate_eof)
        if defined is None:
            return None
        columns, behind, at = defined
        rows, at = step_over_rows(data, at, end_bytes(deprecate_eof=deprecate_eof))
        return _end_of_rows(data, at, columns, rows, behind, deprecate_eof)
    except (struct.error, IndexError, KeyError):
        return None


def rows_begin(data: bytes, *, deprecate_eof: bool) -> tuple[int, int, int] | None:
    """Of the first part of a response: how many columns its rows have, where the flags stand behind
    their definitions, or -1, and where the rows begin. None where that is not there whole, or not
    as plain as `scan` wants it."""
    try:
        return _defined(data, deprecate_eof)
    except struct.error:
        return None


def rows_end(packet: bytes, *, deprecate_eof: bool) -> tuple[int, int, int] | None:
    """The status flags and warnings that the last packet of rows tells of, and where in it the
    flags stand; None where it is not as plain as `scan` wants it, or more than that."""
    try:
        found = _end_of_rows(packet, 0, 1, 0, -1, deprecate_eof)
    except (struct.error, IndexError, KeyError):
        return None
    return None if found is None else (found[0], found[1], found[5])


def end_bytes(*, deprecate_eof: bool) -> int:
    """What ends rows is shorter than that."""
    return MAX_PAYLOAD_BYTES if deprecate_eof else OLD_END_BYTES


def _defined(data: bytes, deprecate_eof: bool) -> tuple[int, int, int] | None:
    header, columns = _HEADER_AND_FIRST(data)
    if not 0 < columns <= _MOST_COLUMNS:
        return None
    at = HEADER_BYTES + (header & MAX_PAYLOAD_BYTES)
    for _ in range(columns):
        at += HEADER_BYTES + (_HEADER_AND_FIRST(data, at)[0] & MAX_PAYLOAD_BYTES)
    if deprecate_eof:
        return (columns, -1, at) if at <= len(data) else None
    header, mark = _HEADER_AND_FIRST(data, at)
    behind, at = at + 7, at + 9
    if mark != 0xFE or header & MAX_PAYLOAD_BYTES != 5 or len(data) < at:
        return None
    return None if data[behind] & _NO_ROWS_YET else (columns, behind, at)


def _end_of_rows(
    data: bytes, at: int, columns: int, rows: int, behind: int, deprecate_eof: bool
) -> Plain | None:
    header, mark = _HEADER_AND_FIRST(data, at)
    length = header & MAX_PAYLOAD_BYTES
    longest = end_bytes(deprecate_eof=deprecate_eof)
    if mark != 0xFE or length >= longest or at + HEADER_BYTES + length != len(data):
        return None
    if deprecate_eof:
        return _ended(data, columns, rows, -1, at + HEADER_BYTES)
    warnings, status = _STATUS_WARNINGS(data, at + 5)
    plain = status, warnings, columns, rows, behind, at + 7
    return None if status & _MORE_RESULTS else plain


def prepared_in(data: bytes, *, deprecate_eof: bool) -> tuple[int, int, int] | None:
    """The number that the server gives to a statement that it has prepared, and how many columns
    and parameters that has. None for all that is not just the whole answer to a COM_STMT_PREPARE,
    or has warnings."""
    try:
        header, first, number, columns, parameters, _, warnings = _PREPARED(data)
        at = HEADER_BYTES + (header & MAX_PAYLOAD_BYTES)
        if first or warnings or at != _PREPARED_BYTES:
            return None
        for definitions in (parameters, columns):
            ends = bool(definitions) and not deprecate_eof
            for _ in range(definitions + ends):
                at += HEADER_BYTES + (_HEADER_AND_FIRST(data, at)[0] & MAX_PAYLOAD_BYTES)
        return (number, columns, parameters) if at == len(data) else None
    except struct.error:
        return None


def with_number(packets: bytes, number: int) -> bytes:
    """A command that names a prepared statement, or the answer to a COM_STMT_PREPARE, as for one
    that has this number."""
    at = HEADER_BYTES + 1
    return packets[:at] + number.to_bytes(4, "little") + packets[at + 4 :]


def number_in(packets: bytes) -> int:
    """That which stands in one of these."""
    at = HEADER_BYTES + 1
    return int.from_bytes(packets[at : at + 4], "little")


def columns_in(answer: bytes) -> int:
    """How many columns a statement has, by the answer to its COM_STMT_PREPARE."""
    columns: int = _PREPARED(answer)[3]
    return columns


def definitions_behind(answer: bytes, foretold: bytes, definitions: int) -> int | None:
    """How many definitions come behind the first packet of the answer to a COM_STMT_PREPARE, where
    so many were foretold behind that. None for what is no such answer, nor an error, or tells of
    other parameters."""
    if answer[HEADER_BYTES : HEADER_BYTES + 1] == _ERR:
        return 0
    try:
        *_, first, _, columns, parameters, _, _ = _PREPARED(answer)
        *_, before, parameters_before, _, _ = _PREPARED(foretold)
    except struct.error:
        return None
    alike = not first and parameters == parameters_before and columns and before
    return definitions + columns - before if alike else None


def step_over_rows(data: bytes, at: int, end_bytes: int) -> tuple[int, int]:
    """How many rows stand whole from the packet at an offset on, and where what is none begins.

    That is the end of the data, a part of a row, a row that goes on in the next packet, an error,
    or the end of the rows: as a row may begin with 0xFE, too, an end is shorter than `end_bytes`.
    """
    rows = 0
    size = len(data)
    unpack = _HEADER_AND_FIRST
    try:
        while True:
            header, first = unpack(data, at)
            length = header & MAX_PAYLOAD_BYTES
            end = at + 4 + length
            if first >= 0xFE and (first == 0xFF or length < end_bytes):
                return rows, at
            if end > size or length == MAX_PAYLOAD_BYTES:
                return rows, at
            rows += 1
            at = end
    except struct.error:
        return rows, at


def _ended(data: bytes, columns: int, rows: int, offset: int, at: int) -> Plain | None:
    """By the OK packet whose payload stands at an offset, and which is the last."""
    at += 1
    for _ in ("affected rows", "last insert id"):
        first = data[at]
        at += 1 if first < 0xFB else _WIDTHS[first]
    status, warnings = _STATUS_WARNINGS(data, at)
    return None if status & _MORE_RESULTS else (status, warnings, columns, rows, offset, at)
