"""An entry: a stored response, and the tag versions it was read under.

    versions | form | session status | two status offsets | rows | packets

The versions stand first and in the order of the answer's tags, so that one comparison of the first
bytes tells whether an entry is current. The form is `P` for an entry as it is; `parts` has others.
The packets are MySQL's own, ready to be sent: only the status flags in their one or two EOF or OK
packets depend on the session that reads them. The number of rows is what FOUND_ROWS() tells
afterwards: with those that a LIMIT left out, and marked `COUNTED`, where the statement counts them.
"""

import struct
from collections.abc import Sequence

from sqlcache.mysql.constants import Status
from sqlcache.mysql.packets import HEADER_BYTES as PACKET_HEADER_BYTES
from sqlcache.mysql.packets import read_lenenc, with_flags

PLAIN = b"P"[0]

SESSION_STATUS = (
    Status.IN_TRANS | Status.AUTOCOMMIT | Status.NO_BACKSLASH_ESCAPES | Status.IN_TRANS_READONLY
)
"""The flags that tell of the session; all others tell of the statement and are kept."""

_HEADER = struct.Struct("<BHIII")
_ROWS = struct.Struct("<I")
_NO_OFFSET = 0xFFFFFFFF
COUNTED = 1 << 31
"""Marks a number of rows that a statement has counted, whether or not it answers them."""
HEADER_BYTES = _HEADER.size
_LONG_COUNT = 0xFB  # and above: it takes more bytes than this one
_LONGEST_COUNT_BYTES = PACKET_HEADER_BYTES + 9
_COPIED_BYTES = 4_096  # to copy fewer costs less than a view of them


def encode(
    versions: bytes, status: int, offsets: Sequence[int], packets: bytes, rows: int = 0
) -> bytes:
    """An entry of a response whose status flags, `status`, stand at the `offsets`, at most two.

    That this one time it was slow is not part of the answer.
    """
    if status & Status.QUERY_WAS_SLOW:
        packets = with_flags(packets, offsets, Status.QUERY_WAS_SLOW, 0)
    first, second = (*offsets, _NO_OFFSET, _NO_OFFSET)[:2]
    return versions + _HEADER.pack(PLAIN, status & SESSION_STATUS, first, second, rows) + packets


def answer_of(
    value: bytes, versions_bytes: int, status: int, *, also: int = 0
) -> tuple[bytes | memoryview, int] | None:
    """The packets of an entry for a session with these status flags, with flags that `also` stand
    there; and see `rows_of`. Many bytes are a view of the entry, and not copied.

    `versions_bytes` is the length of the versions at its start. None if it has another form.
    """
    if len(value) < versions_bytes + HEADER_BYTES:
        return None
    form, stored, first, second, rows = _HEADER.unpack_from(value, versions_bytes)
    if form != PLAIN:
        return None
    whole = value if len(value) < _COPIED_BYTES else memoryview(value)
    packets = whole[versions_bytes + HEADER_BYTES :]
    wanted = status & SESSION_STATUS
    if stored != wanted or also:
        offsets = (each for each in (first, second) if each != _NO_OFFSET)
        packets = with_flags(packets, offsets, SESSION_STATUS, wanted | also)
    return packets, rows


def packets_for(value: bytes, versions_bytes: int, status: int) -> bytes | None:
    """The packets of `answer_of` alone."""
    answer = answer_of(value, versions_bytes, status)
    return None if answer is None else bytes(answer[0])


def columns_of(packets: bytes | memoryview) -> int:
    """How many columns there are in the packets of a result set."""
    first = packets[PACKET_HEADER_BYTES]
    if first < _LONG_COUNT:
        return first
    return read_lenenc(bytes(packets[:_LONGEST_COUNT_BYTES]), PACKET_HEADER_BYTES)[0]


def rows_of(value: bytes, versions_bytes: int) -> int:
    """How many rows the response in an entry has, or how many there are, and `COUNTED`."""
    rows: int = _ROWS.unpack_from(value, versions_bytes + HEADER_BYTES - _ROWS.size)[0]
    return rows
