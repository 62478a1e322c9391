"""The protocol's compression as bytes: frames in, packets out, and the reverse, no I/O.

A frame is a three-byte length, a one-byte sequence id, the three-byte length of what is compressed
in it, and that; where the second length is 0 it holds its bytes as they are. Frames know nothing of
packets: a packet may span several, and a frame hold many.

Laws:

- What a peer sends is made longer a piece at a time, as it is taken. Nothing is kept of a frame
  but what its algorithm needs: zlib 32 KiB, zstd the frame's length, which is 16 MiB at the most.
- A frame has just the length that it claims. One that has not raises.
- What is written is compressed a piece at a time, too. A frame holds whole packets, or a part of
  one that is longer than a frame: some clients do not find a packet that spans three frames, nor
  one whose header spans two.

Source: MySQL's source code documentation, "Compressed Packet"; `net_serv.cc` for the sequence ids.
"""

import struct
import zlib
from collections import deque
from typing import Any, NamedTuple

from sqlcache.errors import ProtocolError
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Capability
from sqlcache.mysql.packets import HEADER_BYTES

try:
    import zstandard
except ImportError:  # then nobody is offered it
    zstandard = None  # type: ignore[assignment]

OFFERED = Capability.COMPRESS | (Capability.ZSTD_COMPRESSION_ALGORITHM if zstandard else 0)
"""What clients may be offered, where the server offers it."""

FRAME_HEADER_BYTES = 7
PIECE_BYTES = 65_536
"""What is compressed at once. Of zstd's a block more may come than is asked for."""

_LONGEST_FRAME_BYTES = MAX_PAYLOAD_BYTES
_HEADER_OF_FRAME = struct.Struct("<II")  # its length, with a byte put in; its id and the other one
_HEADER_OF_PACKET = struct.Struct("<I")
_LEAST_COMPRESSED_BYTES = 50  # MySQL's own
_ZLIB_LEVEL = 4  # a client has no say in it: MySQL's own 6 takes four times as long
_ZSTD_LEVELS = range(1, 23)
_MOST_ZSTD_LEVEL = 6  # those above take up to 200 times as long
_LONGEST_PACKED_BYTES = 1 << 23
_MOST_WINDOW_BYTES = 1 << 24
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class WrongLevel(Exception):
    """The client wants to be compressed for at a level that there is not."""


class NotOffered(Exception):
    """The client would compress in a way that it was not offered."""


class Algorithm(NamedTuple):
    """How a client compresses, and how hard it is compressed for."""

    name: str
    level: int


def agreed(claimed: int, offered: int, level: int) -> Algorithm | None:
    """What a client speaks after its login that claims to be capable of what it does; None where
    it does not compress. `level` is the last byte of its handshake response.

    zlib goes before zstd, as with MySQL. Raises: NotOffered, where it would send frames, which are
    not to be read as commands; WrongLevel.
    """
    both = claimed & offered
    if both & Capability.COMPRESS:
        return Algorithm("zlib", _ZLIB_LEVEL)
    if both & Capability.ZSTD_COMPRESSION_ALGORITHM:
        if level not in _ZSTD_LEVELS:
            raise WrongLevel
        return Algorithm("zstd", min(level, _MOST_ZSTD_LEVEL))
    if claimed & (Capability.COMPRESS | Capability.ZSTD_COMPRESSION_ALGORITHM):
        raise NotOffered
    return None


class FrameReader:
    """Frames in, packets out."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._zstd = algorithm.name == "zstd"
        self._data = memoryview(b"")
        self._left = 0  # bytes of the frame, as they come
        self._claimed = 0  # bytes that these are still to become; 0 where they are what they are
        self._unpacker: _Unzlib | _Unzstd | None = None
        self._position = 0  # in what was taken
        self._next_number = self._next_answered = 0
        self._answered: int | None = None
        self._is_first = False  # packet of its frame
        self._number = 0
        self._head = b""  # of a packet
        self._body = 0  # bytes that are to come of it
        self._shift = 0
        self._begun: deque[int] = deque()

    def put(self, data: bytes) -> None:
        """Adds what has come. The less at once, the less is copied."""
        self._data = memoryview(b"".join((self._data, data)) if self._data else data)

    def answered(self, next_number: int, packet_id: int) -> None:
        """A frame was sent, the last packet in which has that id, and the next would be that."""
        self._next_answered, self._answered = next_number, packet_id

    def take(self, at_most: int = PIECE_BYTES) -> bytes | None:
        """The next bytes of packets, by one step, which may be none: a frame can be empty, and so
        can a part of one. None where more has to come.

        Raises: ProtocolError for a frame that is none.
        """
        if not (self._left or self._unpacker is not None or self._begin()):
            return None
        if self._unpacker is not None:
            had = len(self._data)
            plain = self._unpacked(self._unpacker, at_most)
            stuck = not plain and len(self._data) == had and self._unpacker is not None
        else:
            plain = bytes(self._data[: min(self._left, at_most)])
            self._use(len(plain))
            stuck = bool(self._left) and not plain
        return None if stuck else self._renumbered(plain)

    def forget(self, taken: int) -> None:
        """So many bytes of what came were taken: of the frames before only the last may be asked
        for."""
        while len(self._begun) > 1 and self._begun[1] >> 8 < taken:
            self._begun.popleft()

    def last_number(self, taken: int) -> int | None:
        """The sequence id of the last frame of which any of so many bytes came that were taken, if
        there was one since that was asked for last."""
        found = None
        while self._begun and self._begun[0] >> 8 < taken:
            found = self._begun.popleft() & 0xFF
        return found

    def _begin(self) -> bool:
        """Begins with the next frame, if its header is there."""
        if len(self._data) < FRAME_HEADER_BYTES:
            return False
        length, rest = _HEADER_OF_FRAME.unpack(bytes(self._data[:3]) + b"\0" + self._data[3:7])
        self._use(FRAME_HEADER_BYTES)
        self._left, self._number, self._claimed = length, rest & 0xFF, rest >> 8
        self._check_order()
        self._next_number = self._number + 1 & 0xFF
        self._is_first = True
        if self._claimed:
            self._unpacker = _Unzstd() if self._zstd else _Unzlib()
        entry, begun = self._position << 8 | self._number, self._begun
        runs_on = bool(self._number and begun and begun[-1] & 0xFF == self._number - 1)
        if begun and (runs_on or begun[-1] >> 8 == self._position):
            entry = begun.pop() >> 8 << 8 | self._number
        begun.append(entry)
        return True

    def _check_order(self) -> None:
        if self._number == self._next_number:
            return
        amid_packet = self._body or self._head
        if amid_packet or self._number not in (0, self._next_answered):
            raise ProtocolError("a compressed frame is out of order")

    def _use(self, size: int) -> None:
        self._data = self._data[size:]
        if self._left:
            self._left -= size

    def _unpacked(self, unpacker: "_Unzlib | _Unzstd", at_most: int) -> bytes:
        here = self._data[: self._left]
        plain, used = unpacker.feed(here, at_most)
        self._use(used)
        self._claimed -= len(plain)
        if self._claimed < 0:
            raise ProtocolError("a compressed frame holds more than it says")
        if unpacker.ended:
            if self._left or self._claimed:
                raise ProtocolError("a compressed frame holds something else than it says")
            self._unpacker = None
        elif not plain and not self._left:
            raise ProtocolError("a compressed frame holds less than it says")
        return plain

    def _renumbered(self, plain: bytes) -> bytes:
        """The same as it would have come without frames: packets in them are numbered after the
        frames before, of which there may be fewer than of packets."""
        self._position += len(plain)
        changed: bytearray | None = None
        at, size = 0, len(plain)
        while at < size:
            if self._body:
                step = min(self._body, size - at)
                self._body -= step
                at += step
                continue
            step = min(HEADER_BYTES - len(self._head), size - at)
            self._head += plain[at : at + step]
            at += step
            if len(self._head) < HEADER_BYTES:
                break
            (header,) = _HEADER_OF_PACKET.unpack(self._head)
            self._body, self._head = header & MAX_PAYLOAD_BYTES, b""
            self._follow(header >> 24)
            if self._shift:
                changed = changed or bytearray(plain)
                changed[at - 1] = changed[at - 1] + self._shift & 0xFF
        return plain if changed is None else bytes(changed)

    def _follow(self, packet_id: int) -> None:
        """A packet has begun."""
        if self._is_first and not self._number:
            self._shift = 0
        elif self._is_first and self._answered is not None:
            self._shift = self._answered + 1 - packet_id & 0xFF
        self._is_first, self._answered = False, None


class _Unzlib:
    """One frame of zlib's."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj()
        self.ended = False

    def feed(self, data: memoryview, at_most: int) -> tuple[bytes, int]:
        """What that makes, and how much of it was used. Raises: ProtocolError."""
        try:
            plain = self._unpacker.decompress(data, at_most)
        except zlib.error:
            raise ProtocolError("a compressed frame cannot be decompressed") from None
        self.ended = self._unpacker.eof
        left = len(self._unpacker.unconsumed_tail) + len(self._unpacker.unused_data)
        return plain, len(data) - left


class _Unzstd:
    """One frame of zstd's, a block at a time: each makes 128 KiB at the most, of four bytes."""

    def __init__(self) -> None:
        self._unpacker = zstandard.ZstdDecompressor(
            max_window_size=_MOST_WINDOW_BYTES
        ).decompressobj()
        self._needed = len(_ZSTD_MAGIC) + 1
        self._head = b""
        self._left = 0  # bytes of a block
        self._is_last = self._has_header = self._has_checksum = False
        self.ended = False

    def feed(self, data: memoryview, _at_most: int) -> tuple[bytes, int]:
        """What the next of that makes, and how much of it was used. Raises: ProtocolError."""
        if self._left:
            piece = bytes(data[: self._left])
            self._left -= len(piece)
        else:
            piece = bytes(data[: self._needed - len(self._head)])
            self._head += piece
            if len(self._head) == self._needed:
                self._read_head()
        try:
            plain = self._unpacker.decompress(piece)
        except (zstandard.ZstdError, MemoryError):
            raise ProtocolError("a compressed frame cannot be decompressed") from None
        self.ended = self._unpacker.eof
        return plain, len(piece)

    def _read_head(self) -> None:
        """Source: RFC 8878, 3.1.1, of the lengths of what follows."""
        head = self._head
        if self._has_header:
            header = int.from_bytes(head, "little")
            kind, size = header >> 1 & 3, header >> 3
            self._is_last = bool(header & 1)
            self._left = 1 if kind == 1 else size
            self._left += 4 if self._is_last and self._has_checksum else 0
            self._head = b""
            return
        if not head.startswith(_ZSTD_MAGIC):
            raise ProtocolError("a compressed frame cannot be decompressed")
        about = head[len(_ZSTD_MAGIC)]
        single, content = bool(about & 0x20), about >> 6
        self._has_checksum = bool(about & 4)
        size = (not single) + (0, 1, 2, 4)[about & 3] + (int(single), 2, 4, 8)[content]
        if len(head) == self._needed == len(_ZSTD_MAGIC) + 1 and size:
            self._needed += size
            return
        self._has_header, self._head, self._needed = True, b"", 3


class FrameWriter:
    """Packets in, frames out. A packet of more than `longest_bytes` is sent as it is, for it would
    have to be kept until its compressed length is known."""

    def __init__(self, algorithm: Algorithm, *, longest_bytes: int) -> None:
        self._algorithm = algorithm
        self._longest = min(max(longest_bytes, PIECE_BYTES), _LONGEST_PACKED_BYTES)
        self._waiting: deque[memoryview] = deque()
        self._put = self._cut_off = 0  # bytes, ever
        self._starved = True
        self._restarts: deque[tuple[int, int]] = deque()
        self._packer: Any = None
        self._parts: list[bytes] = []
        self._size = self._left = 0  # bytes of the frame under way, before they are compressed
        self._as_it_is = self._then = 0  # bytes of frames that are not compressed
        self.number = 0
        """The sequence id of the next frame."""
        self.packet_id = 0
        """That of the last packet in those that were begun."""

    @property
    def waiting_bytes(self) -> int:
        """How much can be sent already."""
        return 0 if self._starved else self._put - self._cut_off

    def put(self, data: bytes | memoryview, number: int | None) -> None:
        """Adds packets, or parts of them. `number`: the next frame has that sequence id."""
        if number is not None:
            self._restarts.append((self._put, number))
        self._waiting.append(memoryview(data))
        self._put += len(data)
        self._starved = False

    def clear(self) -> None:
        """Nothing is sent any more."""
        self._waiting.clear()
        self._cut_off = self._put
        self._starved = True

    def take(self) -> bytes | None:
        """Goes on by one piece: what is to be sent by now, which may be nothing. None where more
        has to be put first."""
        if self._as_it_is:
            return self._more_as_it_is()
        if self._packer is None:
            ready = self._begin()
            if ready is None or ready:
                self._starved = ready is None
                return ready
        piece = self._cut(min(self._left, PIECE_BYTES))
        if not piece:
            self._starved = True
            return None
        self._left -= len(piece)
        self._parts.append(self._packer.compress(piece))
        if self._left:
            return b""
        self._parts.append(self._packer.flush())
        packed, self._parts, self._packer = b"".join(self._parts), [], None
        return self._header(len(packed), self._size) + packed

    def _begin(self) -> bytes | None:
        """The next frame, where it is done at once; nothing where that was begun."""
        size = self._next_size()
        if not size:
            return None
        if size > self._longest:
            self._as_it_is = min(size, _LONGEST_FRAME_BYTES)
            self._then = size - self._as_it_is
            return self._header(self._as_it_is, 0)
        if size <= PIECE_BYTES:
            plain = self._cut(size)
            packed = self._packed(plain)
            if packed is not None:
                return self._header(len(packed), size) + packed
            return self._header(size, 0) + bytes(plain)
        self._packer, self._size, self._left = self._new_packer(size), size, size
        return b""

    def _packed(self, plain: memoryview) -> bytes | None:
        """None where that would not be shorter."""
        if len(plain) < _LEAST_COMPRESSED_BYTES:
            return None
        packer = self._new_packer(len(plain))
        packed: bytes = packer.compress(plain) + packer.flush()
        return packed if len(packed) < len(plain) else None

    def _new_packer(self, size: int) -> Any:
        name, level = self._algorithm
        if name == "zlib":
            return zlib.compressobj(level)
        return zstandard.ZstdCompressor(level=level).compressobj(size=size)

    def _more_as_it_is(self) -> bytes | None:
        piece = self._cut(min(self._as_it_is, PIECE_BYTES))
        if not piece:
            self._starved = True
            return None
        self._as_it_is -= len(piece)
        if not self._as_it_is and self._then:
            self._as_it_is, self._then = self._then, 0
            return bytes(piece) + self._header(self._as_it_is, 0)
        return bytes(piece)

    def _header(self, length: int, plain: int) -> bytes:
        number, self.number = self.number, self.number + 1 & 0xFF
        return (length | number << 24 | plain << 32).to_bytes(FRAME_HEADER_BYTES, "little")

    def _next_size(self) -> int:
        """How long the packets are that the next frame has, or the packet that it begins with; 0
        where that has not been put so far."""
        while self._restarts and self._restarts[0][0] <= self._cut_off:
            self.number = self._restarts.popleft()[1]
        if not self._gather(HEADER_BYTES):
            return 0
        (header,) = _HEADER_OF_PACKET.unpack_from(self._waiting[0])
        size: int = HEADER_BYTES + (header & MAX_PAYLOAD_BYTES)
        if not header >> 24 and self.packet_id != 0xFF:  # no answer, as to who was idle too long
            self.number = 0
        if size > PIECE_BYTES:
            self.packet_id = header >> 24
            return size
        if not self._gather(size):
            return 0
        here, at = self._waiting[0], 0
        end = min(len(here), PIECE_BYTES)
        if self._restarts:
            end = min(end, self._restarts[0][0] - self._cut_off)
        while True:
            self.packet_id = header >> 24
            at += size
            if end - at < HEADER_BYTES:
                return at
            (header,) = _HEADER_OF_PACKET.unpack_from(here, at)
            size = HEADER_BYTES + (header & MAX_PAYLOAD_BYTES)
            if at + size > end:
                return at

    def _gather(self, size: int) -> bool:
        """Whether so many bytes wait. If they do, they are the first of one piece."""
        if self._put - self._cut_off < size:
            return False
        if len(self._waiting[0]) < size:
            parts, have = list[memoryview](), 0
            while have < size:
                part = self._waiting.popleft()
                if len(part) > size - have:
                    self._waiting.appendleft(part[size - have :])
                    part = part[: size - have]
                parts.append(part)
                have += len(part)
            self._waiting.appendleft(memoryview(b"".join(parts)))
        return True

    def _cut(self, size: int) -> memoryview:
        """The next bytes, so many at the most."""
        if not self._waiting:
            return memoryview(b"")
        first = self._waiting[0]
        if len(first) <= size:
            self._waiting.popleft()
        else:
            self._waiting[0] = first[size:]
            first = first[:size]
        self._cut_off += len(first)
        return first
