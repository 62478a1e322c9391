"""What OKs tell of the session: read, and taken out. The bytes are those of real servers."""

from __future__ import annotations

import pytest

from sqlcache.errors import ProtocolError
from sqlcache.mysql.constants import Capability, Command, Status
from sqlcache.mysql.packets import packet, packets_in
from sqlcache.mysql.response import ResponseTracker
from sqlcache.mysql.scan import scan
from sqlcache.mysql.tracking import MOST_COMMITS, commits_told, last_untracked, untracked
from sqlcache.mysql.untracked import Untracked
from tests.fakes.raw_client import NEW, OLD

UUID = b"2d56ebf1-e832-11f1-b039-02fc00000001"
ONE_ROW = (
    b"\x01\x00\x00\x01\x01\x17\x00\x00\x02\x03def\x00\x00\x00\x011\x00\x0c?\x00\x01\x00\x00\x00"
    b"\x03\x81\x00\x00\x00\x00\x02\x00\x00\x03\x011"
)


def ok(session: bytes = b"", *, info: bytes = b"", more: bool = False, head: int = 0) -> bytes:
    """An OK packet, header and all, in autocommit mode."""
    status = 2 | 8 * more | 0x4000 * bool(session)
    told = bytes((head, 1, 0)) + status.to_bytes(2, "little") + b"\0\0"
    if info or session:
        told += bytes((len(info),)) + info
    return packet(5, told + session)


def gtids(told: bytes) -> bytes:
    """MySQL's word of its session's commits."""
    text = b"\0" + bytes((len(told),)) + told
    return bytes((len(text) + 2, 3, len(text))) + text


def last_gtid(told: bytes) -> bytes:
    """MariaDB's."""
    text = b"\x09last_gtid" + bytes((len(told),)) + told
    return bytes((len(text) + 2, 0, len(text))) + text


def commits_in(answer: bytes) -> list[bytes]:
    """Those that an answer tells of that tells of the session."""
    found = scan(answer, deprecate_eof=True)
    assert found is not None
    assert found[0] & Status.SESSION_STATE_CHANGED
    return commits_told(answer, found[5])


@pytest.mark.parametrize(
    ("session", "commits"),
    [
        (gtids(UUID + b":25"), [UUID + b":25"]),
        (gtids(UUID + b":25-27"), [UUID + b":%d" % number for number in (25, 26, 27)]),
        (gtids(UUID + b":1:5-6"), [UUID + b":%d" % number for number in (1, 5, 6)]),
        (gtids(UUID + b":7,\n" + UUID[::-1] + b":8"), [UUID + b":7"]),
        (gtids(UUID.upper() + b":25"), [UUID + b":25"]),
        (gtids(UUID + b":tag:5"), []),
        (gtids(UUID + b":3:tag:5"), []),
        (gtids(b""), []),
        (gtids(b"nonsense"), []),
        (last_gtid(b"0-1-29"), [b"0-1-29"]),
        (last_gtid(b""), []),
        (last_gtid(b"0-1-29,1-1-3"), []),
        (b"\x04\x01\x02\x01d", []),
        (b"\x0b\x05\x09\x08T_______", []),
        (b"\x00", []),
        (b"\x36\x03\x29\x00\x27" + UUID + b":26\x05\x09\x08________", [UUID + b":26"]),
    ],
)
def test_commits_are_read_one_by_one(session: bytes, commits: list[bytes]) -> None:
    assert commits_in(ok(session)) == commits
    assert commits_in(ok(session, info=b"Rows matched: 1")) == commits


def test_of_many_commits_the_last_are_read() -> None:
    told = commits_in(ok(gtids(UUID + b":1-999999999999")))
    assert len(told) == MOST_COMMITS
    assert told[-1] == UUID + b":999999999999"


def test_what_is_cut_short_tells_of_no_commit() -> None:
    for session in (gtids(UUID + b":25"), gtids(UUID + b":25-27"), last_gtid(b"0-1-29")):
        whole = ok(session)
        assert commits_told(whole, 7) != []
        for size in range(7, len(whole)):
            assert commits_told(whole[:size], 7) == []


@pytest.mark.parametrize("head", [0, 0xFE])
@pytest.mark.parametrize("info", [b"", b"Rows matched: 1"])
@pytest.mark.parametrize("session", [b"\0", last_gtid(b"0-1-29"), gtids(UUID + b":25")])
def test_without_what_it_tells_it_is_what_others_are_sent(
    session: bytes, info: bytes, head: int
) -> None:
    assert untracked(ok(session, info=info, head=head)) == ok(info=info, head=head)
    assert untracked(ok(info=info, head=head)) == ok(info=info, head=head)


@pytest.mark.parametrize(
    "told", [b"\xfe\x00\x00\x02\x40", b"\xff\x26\x04#23000Duplicate entry", b"\xff\x26\x04"]
)
def test_what_is_no_ok_stays(told: bytes) -> None:
    assert untracked(packet(1, told)) == packet(1, told)


def test_an_ok_that_is_cut_short_is_an_error() -> None:
    with pytest.raises(ProtocolError):
        untracked(ok(last_gtid(b"0-1-29"))[:10])


def test_rows_stay() -> None:
    for answer, shown in (
        (ONE_ROW + ok(last_gtid(b"0-1-29"), head=0xFE), ONE_ROW + ok(head=0xFE)),
        (ok(gtids(UUID + b":25"), info=b"Rows matched: 1"), ok(info=b"Rows matched: 1")),
    ):
        found = scan(answer, deprecate_eof=True)
        assert found is not None
        assert last_untracked(answer, found[5]) == shown


CAME = b"".join(
    [
        *(ok(gtids(UUID + b":1"), info=b"Rows matched: 1", more=True), ONE_ROW),
        *(ok(last_gtid(b"0-1-30"), head=0xFE, more=True), ok(more=True), ok(gtids(UUID + b":2"))),
    ]
)
SHOWN = b"".join(
    [
        *(ok(info=b"Rows matched: 1", more=True), ONE_ROW, ok(head=0xFE, more=True)),
        *(ok(more=True), ok()),
    ]
)
NEXT = b"the next"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 11, 40, 1000])
def test_a_response_in_pieces_is_shown_without(size: int) -> None:
    shown = ResponseTracker(Command.QUERY, OLD | Capability.DEPRECATE_EOF)
    hidden = Untracked(shown)
    data, told, seen, used = CAME + NEXT, [], b"", 0
    while not shown.done:
        part, taken = hidden.feed(data[used : min(used + size, len(data))])
        told += hidden.commits
        used += taken
        seen += part
        assert shown.feed(part) == len(part)
        assert used - len(seen) < len(CAME), "no more is held than a packet"
    assert seen == SHOWN
    assert data[used:] == NEXT
    assert told == [UUID + b":1", b"0-1-30", UUID + b":2"]


def test_a_file_that_is_wanted_is_waited_for() -> None:
    shown = ResponseTracker(Command.QUERY, OLD)
    hidden = Untracked(shown)
    wanted = packet(1, b"\xfbfile")
    assert hidden.feed(wanted) == (wanted, len(wanted))
    shown.feed(wanted)
    assert shown.wants_file
    shown.file_sent()
    assert hidden.feed(ok(last_gtid(b"0-1-4")))[0] == ok()


def test_the_tracker_tells_which_packets_tell_of_the_session() -> None:
    tracker = ResponseTracker(Command.QUERY, NEW)
    tracker.feed(CAME)
    packets = packets_in(CAME)
    assert [CAME[at:end] for at, end in tracker.told] == [packets[each] for each in (0, 4, 6)]
    assert tracker.commits == [UUID + b":1", b"0-1-30", UUID + b":2"]
    tracker = ResponseTracker(Command.QUERY, OLD | Capability.DEPRECATE_EOF)
    tracker.feed(CAME)
    assert tracker.told == []
    assert tracker.commits == []
