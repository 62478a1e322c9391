"""The protocol's compression as bytes: what one side writes the other reads, and no lie is read."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlcache.errors import ProtocolError
from sqlcache.mysql import frames
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Capability
from sqlcache.mysql.frames import (
    PIECE_BYTES,
    Algorithm,
    FrameReader,
    FrameWriter,
    NotOffered,
    WrongLevel,
    agreed,
)
from sqlcache.mysql.packets import packet
from tests.costs import grows_linearly
from tests.fakes.frames import deflated, frame, frames_in, plain_of

ZLIB, ZSTD = Algorithm("zlib", 4), Algorithm("zstd", 3)
ALGORITHMS = pytest.mark.parametrize("algorithm", [ZLIB, ZSTD], ids=lambda each: each.name)
LONGEST = 262_144
BOTH = Capability.COMPRESS | Capability.ZSTD_COMPRESSION_ALGORITHM


def read(reader: FrameReader, data: bytes, at_most: int = PIECE_BYTES) -> bytes:
    """All packets that these bytes complete, or begin."""
    reader.put(data)
    parts = []
    while (plain := reader.take(at_most)) is not None:
        parts.append(plain)
    return b"".join(parts)


def written(algorithm: Algorithm, *pieces: bytes) -> bytes:
    """The frames that hold these packets, put a piece after the other."""
    writer = FrameWriter(algorithm, longest_bytes=LONGEST)
    parts = []
    for piece in pieces:
        writer.put(piece, None)
        while (part := writer.take()) is not None:
            parts.append(part)
    return b"".join(parts)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in pieces; each place is one in as many parts as there are bytes."""
    at = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(at)]


payloads = st.lists(
    st.one_of(
        st.binary(max_size=100),
        st.builds(lambda unit, times: unit * times, st.binary(max_size=9), st.integers(0, 12_000)),
    ),
    max_size=8,
)
places = st.lists(st.integers(0, 1 << 20), max_size=8)


@ALGORITHMS
@settings(deadline=None)
@given(sent=payloads, puts=places, comes=places, at_most=st.integers(1, 100_000))
def test_what_is_written_is_read_however_it_is_cut(
    algorithm: Algorithm, sent: list[bytes], puts: list[int], comes: list[int], at_most: int
) -> None:
    data = b"".join(packet(place, each) for place, each in enumerate(sent))
    coded = written(algorithm, *cut(data, puts))
    reader = FrameReader(algorithm)
    assert b"".join(read(reader, piece, at_most) for piece in cut(coded, comes)) == data


@ALGORITHMS
@settings(deadline=None)
@given(sent=payloads, puts=places, comes=places, at_most=st.integers(1, 100_000))
def test_what_others_write_is_read_wherever_frames_are_cut(
    algorithm: Algorithm, sent: list[bytes], puts: list[int], comes: list[int], at_most: int
) -> None:
    """They may be cut anywhere: amid a header, too."""
    data = b"".join(packet(place, each) for place, each in enumerate(sent))
    pieces = enumerate(cut(data, puts))
    coded = b"".join(frame(each, place, algorithm.name, len(each) > 50) for place, each in pieces)
    reader = FrameReader(algorithm)
    assert b"".join(read(reader, piece, at_most) for piece in cut(coded, comes)) == data


@ALGORITHMS
@settings(deadline=None)
@given(sent=payloads, puts=places)
def test_a_frame_holds_whole_packets(
    algorithm: Algorithm, sent: list[bytes], puts: list[int]
) -> None:
    data = b"".join(packet(place, each) for place, each in enumerate(sent))
    coded = written(algorithm, *cut(data, puts))
    for _, length, claimed, plain in frames_in(coded, algorithm.name):
        at = 0
        while at < len(plain):
            at += 4 + int.from_bytes(plain[at : at + 3], "little")
        assert at == len(plain)
        assert (claimed == 0) == (length == len(plain))
    assert plain_of(coded, algorithm.name) == data


@ALGORITHMS
@pytest.mark.parametrize("size", [LONGEST, MAX_PAYLOAD_BYTES - 3, MAX_PAYLOAD_BYTES])
def test_a_packet_that_is_too_long_to_be_kept_is_sent_as_it_is(
    algorithm: Algorithm, size: int
) -> None:
    """No more than a piece of it is kept; it spans two frames at the most."""
    payload = bytes(size)
    data = len(payload).to_bytes(3, "little") + b"\1" + payload + packet(2, b"behind")
    writer, parts = FrameWriter(algorithm, longest_bytes=LONGEST), []
    for at in range(0, len(data), 50_000):
        writer.put(data[at : at + 50_000], None)
        while (part := writer.take()) is not None:
            parts.append(part)
        assert not writer.waiting_bytes
    told = frames_in(b"".join(parts), algorithm.name)
    assert b"".join(plain for *_, plain in told) == data
    assert [claimed for _, _, claimed, _ in told] == [0] * (2 + (size + 4 > MAX_PAYLOAD_BYTES))


@ALGORITHMS
def test_one_that_is_not_is_compressed_as_it_comes(algorithm: Algorithm) -> None:
    data = packet(1, bytes(range(256)) * 1_000)
    writer, parts = FrameWriter(algorithm, longest_bytes=LONGEST), []
    for at in range(0, len(data), 1_000):
        writer.put(data[at : at + 1_000], None)
        while (part := writer.take()) is not None:
            parts.append(part)
        assert not writer.waiting_bytes
    ((_, length, claimed, plain),) = frames_in(b"".join(parts), algorithm.name)
    assert plain == data
    assert length < claimed // 10


@ALGORITHMS
def test_frames_are_numbered_on_and_anew(algorithm: Algorithm) -> None:
    writer = FrameWriter(algorithm, longest_bytes=LONGEST)
    writer.put(packet(1, bytes(60_000)) * 3, 1)
    writer.put(packet(1, b"another answer"), 1)
    writer.put(packet(2, b"its rest"), None)
    coded = b""
    while (part := writer.take()) is not None:
        coded += part
    assert [number for number, *_ in frames_in(coded, algorithm.name)] == [1, 2, 3, 1, 2]


def test_what_is_said_unasked_is_numbered_as_its_packet() -> None:
    writer = FrameWriter(ZLIB, longest_bytes=LONGEST)
    writer.put(packet(1, b"an answer"), 1)
    writer.put(packet(0, b"an error"), None)
    coded = b""
    while (part := writer.take()) is not None:
        coded += part
    assert [number for number, *_ in frames_in(coded, "zlib")] == [1, 0]


@ALGORITHMS
def test_the_last_frame_of_a_command_that_was_taken_is_told(algorithm: Algorithm) -> None:
    reader = FrameReader(algorithm)
    first, second = packet(0, bytes(100)), packet(0, b"second")
    name = algorithm.name
    coded = frame(first[:60], 0, name) + frame(first[60:], 1, name) + frame(second, 0, name, False)
    assert read(reader, coded) == first + second
    assert reader.last_number(0) is None
    assert reader.last_number(len(first)) == 1
    assert reader.last_number(len(first)) is None
    assert reader.last_number(len(first) + 1) == 0


@pytest.mark.parametrize("numbers", [(1,), (0, 2), (0, 1, 3)])
def test_a_frame_out_of_order_is_refused(numbers: tuple[int, ...]) -> None:
    data = packet(0, bytes(20))
    pieces = [data[:5], data[5:6], data[6:7]]
    coded = [frame(pieces[at], number, "zlib", False) for at, number in enumerate(numbers)]
    reader = FrameReader(ZLIB)
    for each in coded[:-1]:
        read(reader, each)
    with pytest.raises(ProtocolError, match="out of order"):
        read(reader, coded[-1])


def test_one_that_goes_on_after_an_answer_is_not() -> None:
    reader = FrameReader(ZLIB)
    read(reader, frame(packet(0, b"LOAD"), 0, "zlib", False))
    reader.answered(5, 9)
    assert read(reader, frame(packet(5, b"file"), 5, "zlib", False)) == packet(10, b"file")
    assert read(reader, frame(packet(6, b""), 6, "zlib", False)) == packet(11, b"")
    assert read(reader, frame(packet(0, b"next"), 0, "zlib", False)) == packet(0, b"next")


TEXT = packet(0, b"\3SELECT 1" + b" " * 100)


@ALGORITHMS
@pytest.mark.parametrize(
    "lie",
    {
        "less": lambda name: frame(TEXT, 0, name, claimed=len(TEXT) - 1),
        "more": lambda name: frame(TEXT, 0, name, claimed=len(TEXT) + 1),
        "much more": lambda name: frame(TEXT, 0, name, claimed=MAX_PAYLOAD_BYTES),
        "nothing in it": lambda _: b"\0\0\0\0\1\0\0",
        "cut short": lambda name: deflated(TEXT, name, cut=-1),
        "something behind": lambda name: deflated(TEXT, name, behind=b"x"),
        "two of them": lambda name: deflated(TEXT, name, behind=deflated(TEXT, name)[7:]),
        "garbage": lambda _: b"\x20\0\0\0\x30\0\0" + b"garbage!" * 4,
        "the other": lambda name: frame(TEXT, 0, {"zlib": "zstd", "zstd": "zlib"}[name]),
        "a bomb": lambda name: frame(bytes(1 << 24), 0, name, claimed=1_000),
    }.items(),
    ids=lambda each: each[0],
)
def test_a_frame_that_lies_is_refused(algorithm: Algorithm, lie: tuple[str, object]) -> None:
    make = lie[1]
    assert callable(make)
    reader, most = FrameReader(algorithm), 0
    coded = make(algorithm.name)

    def comes() -> None:
        nonlocal most
        for at in range(len(coded)):
            reader.put(coded[at : at + 1])
            while (plain := reader.take(100)) is not None:
                most = max(most, len(plain))

    with pytest.raises(ProtocolError):
        comes()
    assert most <= 1 << 17


@ALGORITHMS
def test_what_grows_a_thousandfold_comes_in_pieces(algorithm: Algorithm) -> None:
    data = packet(0, bytes(16_000_000))
    reader = FrameReader(algorithm)
    reader.put(frame(data, 0, algorithm.name))
    sizes = []
    while (plain := reader.take()) is not None:
        sizes.append(len(plain))
    assert sum(sizes) == len(data)
    assert max(sizes) <= 1 << 17


def test_a_window_longer_than_a_frame_is_refused() -> None:
    head = b"\x28\xb5\x2f\xfd" + bytes((0x00, (17 << 3)))  # 128 MiB, and nothing of its content
    packed = head + b"\x01\0\0"
    reader = FrameReader(ZSTD)
    with pytest.raises(ProtocolError):
        read(reader, len(packed).to_bytes(3, "little") + b"\0\1\0\0" + packed)


def read_all(coded: bytes) -> None:
    reader = FrameReader(ZLIB)
    for at in range(0, len(coded), 16_384):
        read(reader, coded[at : at + 16_384])


@pytest.mark.parametrize(
    "make",
    [
        lambda n: b"\0\0\0\0\0\0\0" * n,
        lambda n: frame(b"\0\0\0\0", 0, "zlib", False) * n,
        lambda n: frame(b"\1\0\0\0\1", 0, "zlib", False) * n,
    ],
    ids=["empty", "empty packets", "short"],
)
def test_frames_of_nothing_cost_no_more_the_more_they_are(make: object) -> None:
    assert callable(make)
    assert grows_linearly(make, read_all)


def write_in_pieces(data: bytes) -> None:
    written(ZLIB, *(data[at : at + 1] for at in range(len(data))))


def test_nor_does_what_is_written_in_small_pieces() -> None:
    assert grows_linearly(lambda n: packet(0, bytes(n)), write_in_pieces)


def test_what_is_agreed_is_what_both_can_with_zlib_first() -> None:
    assert agreed(0, BOTH, 0) is None
    assert agreed(BOTH, BOTH, 0) == Algorithm("zlib", 4)
    assert agreed(Capability.COMPRESS, BOTH, 0) == Algorithm("zlib", 4)
    assert agreed(BOTH, Capability.ZSTD_COMPRESSION_ALGORITHM, 3) == Algorithm("zstd", 3)
    assert agreed(Capability.ZSTD_COMPRESSION_ALGORITHM, BOTH, 22) == Algorithm("zstd", 6)
    for level in (0, 23, 255):
        with pytest.raises(WrongLevel):
            agreed(Capability.ZSTD_COMPRESSION_ALGORITHM, BOTH, level)
    for claimed, offered in ((Capability.COMPRESS, 0), (BOTH, 0)):
        with pytest.raises(NotOffered):
            agreed(claimed, offered, 3)
    with pytest.raises(NotOffered):
        agreed(Capability.ZSTD_COMPRESSION_ALGORITHM, Capability.COMPRESS, 3)


@ALGORITHMS
@settings(deadline=None)
@given(
    at=st.integers(0, 10_000),
    byte=st.integers(0, 255),
    noise=st.binary(max_size=40),
    behind=st.integers(0, 7),
)
def test_whatever_comes_is_read_or_refused(
    algorithm: Algorithm, at: int, byte: int, noise: bytes, behind: int
) -> None:
    coded = bytearray(frame(TEXT, 0, algorithm.name) + frame(TEXT, 0, algorithm.name) + noise)
    coded[at % len(coded)] = byte
    for data in (bytes(coded), bytes(coded[behind:]), noise):
        reader = FrameReader(algorithm)
        with suppress(ProtocolError):
            assert len(read(reader, data)) <= len(data) + 2 * len(TEXT) + (1 << 17)


def test_without_zstandard_zlib_alone_is_offered() -> None:
    told = "import sys; sys.modules['zstandard'] = None; from sqlcache.mysql import frames"
    told += "; print(frames.OFFERED)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert int(done.stdout) == Capability.COMPRESS


def test_both_are_offered_here() -> None:
    assert frames.OFFERED == BOTH


def test_what_yields_nothing_is_taken_a_frame_at_a_time() -> None:
    reader = FrameReader(Algorithm("zlib", 4))
    reader.put(frame(b"", 0, "zlib") * 1_000)
    assert [reader.take() for _ in range(1_001)] == [b""] * 1_000 + [None]


def test_and_a_block_at_a_time() -> None:
    blocks = 1_000
    head = b"\x28\xb5\x2f\xfd" + bytes((0x00, 0x50))
    packed = head + b"\x00\x00\x00" * blocks
    reader = FrameReader(Algorithm("zstd", 3))
    reader.put(len(packed).to_bytes(3, "little") + b"\0" + (1).to_bytes(3, "little") + packed[:-1])
    took = [reader.take() for _ in range(blocks - 1)]
    assert took == [b""] * (blocks - 1)


def test_of_frames_before_what_was_taken_the_last_is_kept() -> None:
    reader = FrameReader(Algorithm("zlib", 4))
    one = packet(0, b"\x0e")
    for number in range(1_000):
        reader.put(frame(one, 0, "zlib"))
        read(reader, b"", 100)
        reader.forget(number * len(one))
    assert len(reader._begun) <= 2
    assert reader.last_number(1_000 * len(one)) == 0
