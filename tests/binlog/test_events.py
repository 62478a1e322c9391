import contextlib
import struct
import tracemalloc
from collections.abc import Iterable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.binlog import events as events_module
from sqlcache.binlog.events import Event, EventStream, Kind
from sqlcache.errors import BinlogGap, ProtocolError, StreamEnded, StreamRefused
from tests.binlog.logs import (
    begins,
    event,
    format_description,
    in_pieces,
    packets,
    query,
    rotate,
    rows,
    table,
    xid,
)


def stream() -> EventStream:
    return EventStream(longest_bytes=10_000)


def read(data: bytes, piece: int = 1 << 20) -> list[Event]:
    reader = stream()
    return [each for part in in_pieces(data, piece) for each in reader.feed(part)]


def kinds(events: Iterable[Event]) -> list[int]:
    return [each.kind for each in events]


TRANSACTION = packets(query("BEGIN"), table(7, "shop", "t"), rows(7), xid())


@pytest.mark.parametrize("checked", [True, False])
def test_events_come_out_as_they_went_in(checked: bool) -> None:
    sent = begins(checked=checked) + packets(table(7, "shop", "t", checked=checked))
    named, format_, last = read(sent)
    assert named.body == struct.pack("<Q", 4) + b"binlog.000001"
    assert format_.kind == Kind.FORMAT_DESCRIPTION
    assert last.body == table(7, "shop", "t", checked=False)[19:]
    assert (last.end_and_flags, last.seconds) == ((100, 0), 1)


@given(st.integers(1, 300))
def test_where_the_bytes_are_cut_does_not_matter(piece: int) -> None:
    sent = begins() + TRANSACTION + TRANSACTION
    assert read(sent, piece) == read(sent)


def test_of_rows_the_number_of_their_table_is_kept() -> None:
    changed = read(begins() + packets(rows(7, Kind.UPDATE_ROWS, bytes(1000))))[-1]
    assert changed.data[-6:] == (7).to_bytes(6, "little")
    assert len(changed.data) == 25
    assert changed.whole


@pytest.mark.parametrize("piece", [999, 65_536, 1 << 24])
def test_an_event_of_several_packets_is_one(piece: int) -> None:
    long = rows(7, data=bytes(40_000_000))
    sent = begins() + packets(long, xid())
    assert kinds(read(sent, piece))[2:] == [Kind.WRITE_ROWS, Kind.XID]


@pytest.mark.parametrize("size", [0xFFFFFF - 1 - 19 - 4 - 10, 0xFFFFFF - 1 - 19 - 4 - 9])
def test_an_event_that_just_fills_its_packet_is_one(size: int) -> None:
    sent = begins() + packets(rows(7, data=bytes(size)), xid())
    assert kinds(read(sent, 65_536))[2:] == [Kind.WRITE_ROWS, Kind.XID]


def test_the_memory_for_a_large_event_is_bounded() -> None:
    sent = begins() + packets(rows(7, data=bytes(60_000_000)), xid())
    reader = stream()
    tracemalloc.start()
    try:
        found = [kind for part in in_pieces(sent, 65_536) for kind in kinds(reader.feed(part))]
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert found[2:] == [Kind.WRITE_ROWS, Kind.XID]


def test_a_text_longer_than_is_read_is_not_whole() -> None:
    long = read(begins() + packets(query("x" * 100_000), xid()), 4_096)[2]
    assert not long.whole
    assert len(long.data) == 10_000


def test_a_text_that_is_long_and_read_is_whole() -> None:
    reader = EventStream(longest_bytes=1_000_000)
    sent = begins() + packets(query("x" * 100_000))
    told = [each for part in in_pieces(sent, 4_096) for each in reader.feed(part)][-1]
    assert told.whole
    assert told.data.endswith(b"x" * 100_000)


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_checksum_that_is_wrong_is_a_gap(size: int) -> None:
    wrong = bytearray(packets(rows(7, data=bytes(size))))
    wrong[30] ^= 1
    with pytest.raises(BinlogGap, match="checksum"):
        read(begins() + bytes(wrong), 4_096)


def test_a_format_whose_checksum_is_wrong_is_a_gap() -> None:
    wrong = bytearray(packets(format_description()))
    wrong[40] ^= 1
    with pytest.raises(BinlogGap, match="format"):
        read(packets(rotate()) + bytes(wrong))


def test_where_there_are_no_checksums_that_of_the_format_need_not_be_right() -> None:
    """The server changes what it sends, where it begins amid a file, and then counts no other."""
    sent = bytearray(format_description(checked=False))
    sent[19 + 52] ^= 1  # when the file was begun
    told = read(packets(rotate(checked=False), bytes(sent), xid(checked=False)))
    assert kinds(told)[-1] == Kind.XID


def test_a_file_that_is_written_to_has_the_checksum_of_one_that_is_not() -> None:
    used = bytearray(format_description())
    used[17] |= 1
    assert kinds(read(packets(rotate(), bytes(used), xid())))[-1] == Kind.XID


def test_what_the_server_says_in_place_of_an_event_is_told() -> None:
    refusal = b"\xff\xd4\x04#HY000Could not find first log file name"
    with pytest.raises(StreamRefused, match="Could not find") as refused:
        read(begins() + len(refusal).to_bytes(3, "little") + b"\x05" + refusal)
    assert refused.value.code == 1236
    with pytest.raises(StreamEnded):
        read(begins() + b"\x05\0\0\x05\xfe\0\0\0\0")


@pytest.mark.parametrize(
    "odd",
    [
        b"\x05\0\0\x01\x07abcd",
        packets(xid()[:-1]),
        packets(xid() + b"more"),
        packets(b""),
        packets(event(Kind.XID, bytes(80_000))[:-5]),
    ],
)
def test_odd_packets_are_refused(odd: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(begins() + odd + TRANSACTION * 3000, 4_096)


@given(st.binary(max_size=400), st.integers(1, 50))
def test_any_bytes_are_read_or_refused(data: bytes, piece: int) -> None:
    with contextlib.suppress(ProtocolError, BinlogGap, StreamRefused, StreamEnded):
        read(begins() + data, piece)


# Compressed transactions.


def payload(inside: bytes, compression: int = 0) -> bytes:
    packed = zstandard.compress(inside) if compression == 0 else inside
    fields = b"\x02\x03\xfc" + compression.to_bytes(2, "little")
    fields += b"\x03\x05\xfe" + len(inside).to_bytes(4, "little")
    return event(Kind.TRANSACTION_PAYLOAD, fields + b"\0" + packed)


def inside(data: bytes = b"rows") -> bytes:
    parts = table(7, "shop", "t", checked=False), rows(7, data=data, checked=False)
    return b"".join(parts) + event(Kind.XID, bytes(8), checked=False)


IN_IT = [Kind.TABLE_MAP, Kind.WRITE_ROWS, Kind.XID, Kind.TRANSACTION_PAYLOAD]


@pytest.mark.parametrize("compression", [0, 255])
@pytest.mark.parametrize("piece", [1, 7, 100_000])
def test_a_compressed_transaction_is_unpacked(compression: int, piece: int) -> None:
    found = read(begins() + packets(payload(inside(), compression)), piece)[2:]
    assert kinds(found) == IN_IT
    assert [each.nested for each in found] == [True, True, True, False]
    assert all(each.whole for each in found)


def test_a_large_one_is_unpacked_in_bounded_memory() -> None:
    many = bytes(range(256)) * 4
    sent = begins() + packets(payload(inside(many * 60_000)))
    reader = stream()
    tracemalloc.start()
    try:
        found = [kind for part in in_pieces(sent, 65_536) for kind in kinds(reader.feed(part))]
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert found[2:] == IN_IT


def test_many_events_of_one_are_handed_out_some_at_a_time() -> None:
    sent = begins() + packets(payload(rows(7, checked=False) * 50_000))
    assert len(sent) < 20_000
    tracemalloc.start()
    try:
        counts = [len(some) for some in stream().pieces(sent)]
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert (sum(counts), max(counts)) == (50_003, 1_000)


def test_a_large_event_of_one_is_unpacked_in_turns() -> None:
    sent = begins() + packets(payload(rows(7, data=bytes(100_000_000), checked=False)))
    assert len(sent) < 20_000
    pieces = list(stream().pieces(sent))
    assert len(pieces) > 10
    assert sum(map(len, pieces)) == 4


@pytest.mark.parametrize("broken", [payload(inside()[:-3]), payload(inside(), 3)])
def test_one_that_cannot_be_read_is_not_whole(broken: bytes) -> None:
    assert not read(begins() + packets(broken))[-1].whole


def test_one_that_is_no_zstd_is_a_gap() -> None:
    fields = bytes((2, 1, 0, 0))
    with pytest.raises(BinlogGap):
        read(begins() + packets(event(Kind.TRANSACTION_PAYLOAD, fields + b"nonsense" * 9)))


def test_without_zstandard_it_is_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "zstandard", None)
    assert [e.whole for e in read(begins() + packets(payload(inside())))[2:]] == [False]
