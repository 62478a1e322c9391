"""What one walk says of a response is what the tracker says, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.errors import ProtocolError
from sqlcache.mysql.constants import Capability, Command
from sqlcache.mysql.packets import packet
from sqlcache.mysql.response import ResponseTracker
from sqlcache.mysql.scan import Plain, scan
from tests.mysql.test_response import MORE, NEW, OLD, RESPONSES, eof, err, ok, result_set, stream


def told_by_tracker(data: bytes, capabilities: Capability) -> Plain | None:
    """The same from the tracker, where it is one answer, whole and no error."""
    tracker = ResponseTracker(Command.QUERY, capabilities)
    try:
        used = tracker.feed(data)
    except ProtocolError:
        return None
    if not tracker.done or used < len(data) or len(tracker.ends) != 1 or tracker.failed:
        return None
    (end,) = tracker.ends
    first, last = tracker.status_offsets[:-1], tracker.status_offsets[-1]
    status = int(end.status or 0)
    return status, end.warnings, tracker.columns, tracker.rows, first[0] if first else -1, last


def scanned(data: bytes, capabilities: Capability) -> Plain | None:
    return scan(data, deprecate_eof=bool(capabilities & Capability.DEPRECATE_EOF))


PLAIN = {
    "ok": (OLD, (ok(warnings=3),)),
    "ok with numbers and words": (
        NEW,
        (b"\x00\xfc\x00\x01\xfd\x00\x00\x01\x02\x00\x00\x00\x03abc",),
    ),
    "no rows": (OLD, result_set(OLD)),
    "no rows, new": (NEW, result_set(NEW)),
    "rows": (OLD, result_set(OLD, b"\x01a\x01b", b"\xfb\xfb", b"", b"\xfc" + bytes(300))),
    "rows, new": (NEW, result_set(NEW, b"\x01a\x01b", b"\x00\x00\x01a", b"\xfb\xfb")),
    "a row of long values": (NEW, result_set(NEW, b"\xfd\x00\x00\x02" + bytes(0x20000))),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_response_is_read_as_the_tracker_reads_it(name: str) -> None:
    capabilities, payloads = PLAIN[name]
    data = stream(*payloads)
    assert scanned(data, capabilities) == told_by_tracker(data, capabilities) is not None


@pytest.mark.parametrize("name", PLAIN)
def test_a_part_of_one_or_more_than_one_is_not_plain(name: str) -> None:
    capabilities, payloads = PLAIN[name]
    data = stream(*payloads)
    for size in {*range(min(len(data), 400)), *range(max(len(data) - 400, 0), len(data))}:
        assert scanned(data[:size], capabilities) is None
    assert scanned(data + b"\x00", capabilities) is None
    assert scanned(data + stream(ok()), capabilities) is None


@pytest.mark.parametrize(
    "payloads",
    [
        (err(),),
        (err(0xFFFF), ok()),
        (ok(MORE), ok()),
        (ok(MORE),),
        (*result_set(OLD, status=MORE), ok()),
        (*result_set(OLD, b"\x01a\x01b")[:-1], err(1317)),
        (b"\xfbfile.csv",),
        (b"\x01", b"\x03def", eof(0x42)),
        (b"\xfc\xfb\x00", *[b"\x03def"] * 251, eof(), eof()),
        (b"",),
    ],
)
def test_all_else_is_for_the_tracker(payloads: tuple[bytes, ...]) -> None:
    assert scanned(stream(*payloads), OLD) is None


@given(
    name=st.sampled_from(sorted(RESPONSES)),
    changes=st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=4),
    new=st.booleans(),
)
def test_any_bytes_are_read_as_the_tracker_reads_them_or_not_at_all(
    name: str, changes: list[tuple[int, int]], new: bool
) -> None:
    data = bytearray(stream(*RESPONSES[name][2]))
    for place, byte in changes:
        data[place % len(data)] = byte
    capabilities = NEW if new else OLD
    found = scanned(bytes(data), capabilities)
    assert found is None or found == told_by_tracker(bytes(data), capabilities)


def test_a_row_that_goes_on_in_the_next_packet_is_for_the_tracker() -> None:
    row = packet(4, bytes(0xFFFFFF)) + packet(5, b"")
    data = stream(*result_set(NEW)[:3]) + row + packet(6, ok(header=0xFE))
    assert told_by_tracker(data, NEW) is not None
    assert scanned(data, NEW) is None
