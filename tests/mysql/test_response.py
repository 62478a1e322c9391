"""Where a response ends, for every command, with and without DEPRECATE_EOF, cut anywhere."""

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.errors import ProtocolError
from sqlcache.mysql import response
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Capability, Command, Status
from sqlcache.mysql.packets import packet
from sqlcache.mysql.response import ResponseTracker
from tests.kernels import Kernel

OLD = Capability.PROTOCOL_41
NEW = Capability.PROTOCOL_41 | Capability.DEPRECATE_EOF
TOLD_HOW_FAR = OLD | Capability.MARIADB_PROGRESS


@pytest.fixture(scope="module", autouse=True)
def _each_kernel(kernel: Kernel) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(response, "step_over_rows", kernel.step_over_rows)
        yield


def ok(status: int = 2, warnings: int = 0, header: int = 0) -> bytes:
    flags = status.to_bytes(2, "little") + warnings.to_bytes(2, "little")
    return bytes((header, 0, 0)) + flags


def eof(status: int = 2, warnings: int = 0) -> bytes:
    return b"\xfe" + warnings.to_bytes(2, "little") + status.to_bytes(2, "little")


def err(code: int = 1064) -> bytes:
    return b"\xff" + code.to_bytes(2, "little") + b"#42000no"


def stream(*payloads: bytes) -> bytes:
    return b"".join(packet(number + 1, payload) for number, payload in enumerate(payloads))


def result_set(capabilities: int, *rows: bytes, status: int = 2) -> tuple[bytes, ...]:
    columns = (b"\x02", b"\x03def-a", b"\x03def-b")
    if capabilities & Capability.DEPRECATE_EOF:
        return (*columns, *rows, ok(status, header=0xFE))
    return (*columns, eof(status & ~Status.MORE_RESULTS_EXISTS), *rows, eof(status))


MORE = Status.AUTOCOMMIT | Status.MORE_RESULTS_EXISTS
CURSOR = Status.AUTOCOMMIT | Status.CURSOR_EXISTS
PREPARED = b"\x00\x07\x00\x00\x00\x01\x00\x02\x00\x00\x00\x00"  # one column, two parameters

RESPONSES = {
    "ok": (Command.QUERY, OLD, (ok(),)),
    "error": (Command.QUERY, OLD, (err(),)),
    "rows": (Command.QUERY, OLD, result_set(OLD, b"\x01a\x01b", b"\xfb\xfb")),
    "rows, new": (Command.QUERY, NEW, result_set(NEW, b"\x01a\x01b", b"\xfb\xfb")),
    "no rows": (Command.QUERY, OLD, result_set(OLD)),
    "no rows, new": (Command.QUERY, NEW, result_set(NEW)),
    "error among rows": (Command.QUERY, OLD, (*result_set(OLD, b"\x01a\x01b")[:-1], err(1317))),
    "no rows of a cursor any more": (Command.STMT_EXECUTE, OLD, (*result_set(OLD)[:3], ok())),
    "two results": (Command.QUERY, OLD, (*result_set(OLD, status=MORE), ok())),
    "ok, then rows": (Command.QUERY, NEW, (ok(MORE), *result_set(NEW, b"\x00\x00"))),
    "ok, then error": (Command.QUERY, NEW, (ok(MORE), err())),
    "progress": (Command.QUERY, TOLD_HOW_FAR, (err(0xFFFF), err(0xFFFF), ok())),
    "an error like it": (Command.QUERY, OLD, (err(0xFFFF),)),
    "cursor": (Command.STMT_EXECUTE, OLD, (b"\x01", b"\x03def", eof(CURSOR))),
    "cursor, new": (Command.STMT_EXECUTE, NEW, (b"\x01", b"\x03def", ok(CURSOR, header=0xFE))),
    "a cursor of a procedure's": (
        Command.STMT_EXECUTE,
        OLD,
        (b"\x01", b"\x03def", eof(CURSOR | MORE), b"\x00\x00\x01", eof(MORE), ok()),
    ),
    "a cursor of a procedure's, in a text": (
        Command.QUERY,
        OLD,
        (b"\x01", b"\x03def", eof(CURSOR), b"\x01a", eof(MORE), ok()),
    ),
    "a procedure's parameters": (
        Command.STMT_EXECUTE,
        OLD,
        (b"\x01", b"\x03def", eof(MORE | Status.PS_OUT_PARAMS), b"\x00\x00\x01", eof(), ok()),
    ),
    "none of a procedure's parameters": (
        Command.STMT_EXECUTE,
        OLD,
        (b"\x01", b"\x03def", eof(MORE | Status.PS_OUT_PARAMS), err()),
    ),
    "binary rows": (Command.STMT_EXECUTE, OLD, result_set(OLD, b"\x00\x00\x01a")),
    "fetch": (Command.STMT_FETCH, OLD, (b"\x00\x00\x01", b"\x00\x00\x02", eof(0x82))),
    "prepare": (
        Command.STMT_PREPARE,
        OLD,
        (PREPARED, b"\x03p1", b"\x03p2", eof(), b"\x03c", eof()),
    ),
    "prepare, new": (Command.STMT_PREPARE, NEW, (PREPARED, b"\x03p1", b"\x03p2", b"\x03c")),
    "prepare nothing": (Command.STMT_PREPARE, OLD, (b"\x00\x07" + bytes(10),)),
    "prepare fails": (Command.STMT_PREPARE, OLD, (err(),)),
    "field list": (Command.FIELD_LIST, OLD, (b"\x03def-a", b"\x03def-b", eof())),
    "statistics": (Command.STATISTICS, OLD, (b"Uptime: 1",)),
    "set option": (Command.SET_OPTION, OLD, (eof(),)),
    "ping": (Command.PING, NEW, (ok(),)),
}


@pytest.mark.parametrize("name", RESPONSES)
@given(data=st.data())
def test_a_response_ends_at_its_last_byte_however_it_is_cut(name: str, data: st.DataObject) -> None:
    command, capabilities, payloads = RESPONSES[name]
    whole = stream(*payloads)
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(whole) - 1)), max_size=12)))
    tracker = ResponseTracker(command, capabilities)
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        assert not tracker.done
        assert tracker.feed(whole[start:end]) == end - start
    assert tracker.done


@pytest.mark.parametrize("name", RESPONSES)
def test_what_follows_a_response_is_left(name: str) -> None:
    command, capabilities, payloads = RESPONSES[name]
    whole = stream(*payloads)
    tracker = ResponseTracker(command, capabilities)
    assert tracker.feed(whole + stream(ok())) == len(whole)
    assert tracker.done


@pytest.mark.parametrize("capabilities", [OLD, NEW])
def test_status_offsets_point_at_the_flags_wherever_the_stream_is_cut(
    capabilities: int,
) -> None:
    whole = stream(*result_set(capabilities, b"\x01a\x01b", status=0x22))
    for cut in range(len(whole)):
        tracker = ResponseTracker(Command.QUERY, capabilities)
        tracker.feed(whole[:cut])
        tracker.feed(whole[cut:])
        flags = [whole[at : at + 2] for at in tracker.status_offsets]
        assert flags == [b"\x22\x00"] * (1 if capabilities & Capability.DEPRECATE_EOF else 2)


@pytest.mark.parametrize("capabilities", [OLD, NEW])
def test_rows_are_counted_wherever_the_stream_is_cut(capabilities: int) -> None:
    whole = stream(*result_set(capabilities, b"\x01a\x01b", b"\xfb\xfb", b"\x00\x00"))
    for cut in range(len(whole)):
        tracker = ResponseTracker(Command.QUERY, capabilities)
        tracker.feed(whole[:cut])
        tracker.feed(whole[cut:])
        assert tracker.rows == 3


def test_a_row_of_sixteen_megabytes_is_no_end() -> None:
    long_value = b"\xfe" + (MAX_PAYLOAD_BYTES).to_bytes(8, "little")
    first = long_value + bytes(MAX_PAYLOAD_BYTES - len(long_value))
    rest = b"\xfe" + bytes(8)  # looks like an EOF packet, and is the value's tail
    head = stream(*result_set(OLD)[:-1])
    tracker = ResponseTracker(Command.QUERY, OLD)
    for chunk in (head, packet(5, first), packet(6, rest)):
        assert tracker.feed(chunk) == len(chunk)
        assert not tracker.done
    tracker.feed(packet(7, eof()))
    assert tracker.done
    assert tracker.rows == 1


def test_a_row_of_exactly_the_limit_is_followed_by_an_empty_packet() -> None:
    long_value = b"\xfd" + (MAX_PAYLOAD_BYTES - 4).to_bytes(3, "little")
    tracker = ResponseTracker(Command.QUERY, OLD)
    tracker.feed(stream(*result_set(OLD)[:-1]))
    tracker.feed(packet(5, long_value + bytes(MAX_PAYLOAD_BYTES - 4)))
    assert tracker.feed(packet(6, b"")) == 4
    tracker.feed(packet(7, eof()))
    assert tracker.done
    assert tracker.rows == 1


def test_nothing_is_remembered_of_each_of_many_result_sets() -> None:
    """A procedure's answer may have no end."""
    tracker = ResponseTracker(Command.QUERY, OLD)
    more = ok(Status.MORE_RESULTS_EXISTS)
    for _ in range(1_000):
        tracker.feed(packet(1, more))
    assert not tracker.done
    assert len(tracker.status_offsets) < 10


def test_a_request_for_a_file_pauses_the_response() -> None:
    tracker = ResponseTracker(Command.QUERY, OLD)
    request = stream(b"\xfb/tmp/rows.csv")
    assert tracker.feed(request) == len(request)
    assert tracker.wants_file
    tracker.file_sent()
    tracker.feed(packet(4, ok()))
    assert tracker.done


def test_a_prepared_statement_tells_its_id() -> None:
    command, capabilities, payloads = RESPONSES["prepare"]
    tracker = ResponseTracker(command, capabilities)
    tracker.feed(stream(*payloads))
    assert tracker.prepared is not None
    assert tracker.prepared.number == 7


@given(st.binary(max_size=200), st.sampled_from(list(Command)), st.sampled_from([OLD, NEW]))
def test_any_bytes_are_taken_or_refused(data: bytes, command: Command, capabilities: int) -> None:
    tracker = ResponseTracker(command, capabilities)
    with contextlib.suppress(ProtocolError):
        assert 0 <= tracker.feed(data) <= len(data)
