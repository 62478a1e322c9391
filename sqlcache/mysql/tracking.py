"""What OK packets tell of their session to clients with the capability SESSION_TRACK: which commits
it has made, where the server is set to tell that.

Where sqlcache has that capability towards the server and the client has not, it is taken out of
each OK, which is then as the server would have sent it to that client.

Source: MySQL's source code documentation, "OK_Packet"; MariaDB's "OK_Packet".
"""

import re
from typing import Final

from sqlcache.errors import ProtocolError
from sqlcache.mysql.constants import Status
from sqlcache.mysql.packets import (
    EOF_BYTES,
    HEADER_BYTES,
    packet,
    packets_in,
    read_ok,
    read_text,
)

_SYSTEM_VARIABLES, _GTIDS = 0, 3
_OKS = b"\x00\xfe"
_SET = re.compile(rb"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([0-9:-]+)")
_INTERVAL = re.compile(rb"([0-9]{1,19})(?:-([0-9]{1,19}))?")
# What most tell of: one, at the beginning, with its length before it.
_ONE = re.compile(
    rb"(?s)(?:\x03.\x00|\x00.\x09last_gtid)(.)"
    rb"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}:[0-9]{1,19}|[0-9]{1,10}-[0-9]{1,10}-[0-9]{1,20})"
)
_MARIADB = re.compile(rb"[0-9]{1,10}-[0-9]{1,10}-[0-9]{1,20}")
MOST_COMMITS: Final = 32


def commits_told(ok: bytes, status_at: int) -> list[bytes]:
    """The GTIDs of commits that an OK tells of, the last ones of many. Those that have a tag, or
    cannot be read, are left out. `status_at`: where its status flags stand, which say that it tells
    of the session."""
    try:
        _, at = read_text(ok, status_at + 4)
        return _commits(read_text(ok, at)[0])[-MOST_COMMITS:]
    except ProtocolError:
        return []


def _commits(told: bytes) -> list[bytes]:
    one = _ONE.match(told)
    if one is not None and one[1][0] == len(one[2]):
        return [one[2]]
    commits: list[bytes] = []
    at = 0
    while at < len(told):
        kind = told[at]
        data, at = read_text(told, at + 1)
        if kind == _GTIDS:
            commits += _of_set(read_text(data, 1)[0])  # behind the form, of which there is one
        elif kind == _SYSTEM_VARIABLES:
            name, value_at = read_text(data, 0)
            value = read_text(data, value_at)[0]
            if name == b"last_gtid" and _MARIADB.fullmatch(value):
                commits.append(value)
    return commits


def _of_set(told: bytes) -> list[bytes]:
    """Those of MySQL's GTID set, one by one."""
    commits: list[bytes] = []
    for part in told.split(b","):
        known = _SET.fullmatch(part.strip().lower())
        for interval in known[2].split(b":") if known else ():
            if (numbers := _INTERVAL.fullmatch(interval)) is None:
                return []
            first, last = int(numbers[1]), int(numbers[2] or numbers[1])
            for number in range(max(first, last - MOST_COMMITS + 1), last + 1):
                commits.append(b"%b:%d" % (known[1] if known else b"", number))
    return commits


def untracked(told: bytes) -> bytes:
    """A packet, header and all, that ends a statement's answer, as a client without SESSION_TRACK
    is sent it. Raises: ProtocolError."""
    payload = told[HEADER_BYTES:]
    if payload[0] not in _OKS or len(payload) <= EOF_BYTES:
        return told
    end = read_ok(payload)
    if end.status is None or not end.status & Status.SESSION_STATE_CHANGED:
        return told
    return packet(told[3], _without_session(payload, end.status_offset))


def _without_session(payload: bytes, at: int) -> bytes:
    """An OK's payload, whose status flags stand there."""
    status = int.from_bytes(payload[at : at + 2], "little") & ~Status.SESSION_STATE_CHANGED
    info, behind = read_text(payload, at + 4) if len(payload) > at + 4 else (b"", at + 4)
    words = payload[at + 4 : behind] if info else b""
    return payload[:at] + status.to_bytes(2, "little") + payload[at + 2 : at + 4] + words


def last_untracked(answer: bytes, status_at: int) -> bytes:
    """The same of a whole answer to one statement, of which the last packet alone may be an OK, and
    has its status flags there. Raises: ProtocolError, IndexError."""
    if answer[HEADER_BYTES] == 0:
        return packet(answer[3], _without_session(answer[HEADER_BYTES:], status_at - HEADER_BYTES))
    *others, last = packets_in(answer)
    return b"".join([*others, untracked(last)])
