"""What one walk says of a response is what the tracker says, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.errors import ProtocolError
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Capability, Command
from sqlcache.mysql.packets import packet
from sqlcache.mysql.response import ResponseTracker
from sqlcache.mysql.scan import OLD_END_BYTES, Plain, prepared_in
from tests.kernels import Kernel
from tests.mysql.test_response import MORE, NEW, OLD, RESPONSES, eof, err, ok, result_set, stream


def told_by_tracker(data: bytes, capabilities: int) -> Plain | None:
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


def scanned(kernel: Kernel, data: bytes, capabilities: int) -> Plain | None:
    return kernel.scan(data, deprecate_eof=bool(capabilities & Capability.DEPRECATE_EOF))


PLAIN = {
    "ok": (OLD, (ok(warnings=3),)),
    "ok with numbers and words": (
        NEW,
        (b"\x00\xfc\x00\x01\xfd\x00\x00\x01\x02\x00\x00\x00\x03abc",),
    ),
    "ok with words of no length": (OLD, (ok() + b"\xfb\x00",)),
    "no rows": (OLD, result_set(OLD)),
    "no rows, new": (NEW, result_set(NEW)),
    "rows": (OLD, result_set(OLD, b"\x01a\x01b", b"\xfb\xfb", b"", b"\xfc" + bytes(300))),
    "rows, new": (NEW, result_set(NEW, b"\x01a\x01b", b"\x00\x00\x01a", b"\xfb\xfb")),
    "a row of long values": (NEW, result_set(NEW, b"\xfd\x00\x00\x02" + bytes(0x20000))),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_response_is_read_as_the_tracker_reads_it(kernel: Kernel, name: str) -> None:
    capabilities, payloads = PLAIN[name]
    data = stream(*payloads)
    assert scanned(kernel, data, capabilities) == told_by_tracker(data, capabilities) is not None


@pytest.mark.parametrize("name", PLAIN)
def test_a_part_of_one_or_more_than_one_is_not_plain(kernel: Kernel, name: str) -> None:
    capabilities, payloads = PLAIN[name]
    data = stream(*payloads)
    for size in {*range(min(len(data), 400)), *range(max(len(data) - 400, 0), len(data))}:
        assert scanned(kernel, data[:size], capabilities) is None
    assert scanned(kernel, data + b"\x00", capabilities) is None
    assert scanned(kernel, data + stream(ok()), capabilities) is None


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
def test_all_else_is_for_the_tracker(kernel: Kernel, payloads: tuple[bytes, ...]) -> None:
    assert scanned(kernel, stream(*payloads), OLD) is None


@given(
    name=st.sampled_from(sorted(RESPONSES)),
    changes=st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=4),
    new=st.booleans(),
)
def test_any_bytes_are_read_as_the_tracker_reads_them_or_not_at_all(
    kernel: Kernel, name: str, changes: list[tuple[int, int]], new: bool
) -> None:
    data = bytearray(stream(*RESPONSES[name][2]))
    for place, byte in changes:
        data[place % len(data)] = byte
    capabilities = NEW if new else OLD
    found = scanned(kernel, bytes(data), capabilities)
    assert found is None or found == told_by_tracker(bytes(data), capabilities)


def told_of_preparing(data: bytes, capabilities: int) -> tuple[int, int, int] | None:
    """The number, columns and parameters that the tracker finds in a whole answer without
    warnings."""
    tracker = ResponseTracker(Command.STMT_PREPARE, capabilities)
    try:
        used = tracker.feed(data)
    except ProtocolError:
        return None
    made, columns = tracker.prepared, tracker.columns
    if not tracker.done or used < len(data) or made is None or made.warnings:
        return None
    return made.number, columns, made.parameters


@given(
    name=st.sampled_from([name for name in RESPONSES if name.startswith("prepare")]),
    changes=st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=2),
    cut=st.integers(0, 5),
)
def test_what_was_prepared_is_read_as_the_tracker_reads_it(
    name: str, changes: list[tuple[int, int]], cut: int
) -> None:
    _, capabilities, payloads = RESPONSES[name]
    whole = stream(*payloads)
    new = bool(capabilities & Capability.DEPRECATE_EOF)
    told = told_of_preparing(whole, capabilities)
    assert prepared_in(whole, deprecate_eof=new) == told
    data = bytearray(whole)
    for place, byte in changes:
        data[place % len(data)] = byte
    odd = bytes(data[: len(data) - cut])
    found = prepared_in(odd, deprecate_eof=new)
    assert found is None or found == told_of_preparing(odd, capabilities)


def test_a_row_that_goes_on_in_the_next_packet_is_for_the_tracker(kernel: Kernel) -> None:
    row = packet(4, bytes(0xFFFFFF)) + packet(5, b"")
    data = stream(*result_set(NEW)[:3]) + row + packet(6, ok(header=0xFE))
    assert told_by_tracker(data, NEW) is not None
    assert scanned(kernel, data, NEW) is None


def test_a_row_of_many_bytes_is_no_end(kernel: Kernel) -> None:
    row = packet(4, b"\xfe" + bytes(0xFFFFFE))
    data = stream(*result_set(OLD)[:4]) + row
    assert told_by_tracker(data, OLD) is None
    assert scanned(kernel, data, OLD) is None


def test_rows_are_stepped_over_as_far_as_they_are_whole(kernel: Kernel) -> None:
    rows = stream(b"\x01a", b"\xfe" + bytes(20), b"", b"\xfb")
    for size in range(len(rows) - 4, len(rows)):
        assert kernel.step_over_rows(rows[:size], 0, OLD_END_BYTES) == (3, len(rows) - 5)
    assert kernel.step_over_rows(rows, 0, OLD_END_BYTES) == (4, len(rows))
    assert kernel.step_over_rows(rows, 6, OLD_END_BYTES) == (3, len(rows))
    assert kernel.step_over_rows(rows, len(rows) + 1, OLD_END_BYTES) == (0, len(rows) + 1)


@pytest.mark.parametrize("last", [eof(), err(), ok(header=0xFE), bytes(MAX_PAYLOAD_BYTES)])
def test_what_is_no_whole_row_is_not_stepped_over(kernel: Kernel, last: bytes) -> None:
    rows = stream(b"\x01a", b"\x01b")
    found = kernel.step_over_rows(rows + stream(last), 0, OLD_END_BYTES)
    assert found == (2, len(rows))
