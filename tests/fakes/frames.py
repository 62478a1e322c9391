"""Frames of the protocol's compression, made and read by the libraries' simplest calls. So it is a
witness independent of `sqlcache.mysql.frames`."""

from __future__ import annotations

import zlib

import zstandard

from sqlcache.mysql.constants import Capability
from sqlcache.mysql.packets import packets_in
from tests.fakes.raw_client import COLLATION, MAX_PAYLOAD, Address, RawClient


def _packed(plain: bytes, name: str) -> bytes:
    return zlib.compress(plain) if name == "zlib" else zstandard.ZstdCompressor().compress(plain)


def frame(
    plain: bytes, number: int, name: str, compressed: bool = True, *, claimed: int | None = None
) -> bytes:
    """One frame; `claimed` is how long it says that its content is."""
    if not compressed or not plain:
        return len(plain).to_bytes(3, "little") + bytes((number & 0xFF, 0, 0, 0)) + plain
    packed = _packed(plain, name)
    size = len(plain) if claimed is None else claimed
    head = len(packed).to_bytes(3, "little") + bytes((number & 0xFF,)) + size.to_bytes(3, "little")
    return head + packed


def deflated(plain: bytes, name: str, *, cut: int | None = None, behind: bytes = b"") -> bytes:
    """One whose compressed bytes are cut, or have something behind them."""
    packed = _packed(plain, name)[:cut] + behind
    return len(packed).to_bytes(3, "little") + b"\0" + len(plain).to_bytes(3, "little") + packed


def frames_in(coded: bytes, name: str) -> list[tuple[int, int, int, bytes]]:
    """Each frame's number, length, claimed length and content."""
    found, at = list[tuple[int, int, int, bytes]](), 0
    while at < len(coded):
        length = int.from_bytes(coded[at : at + 3], "little")
        claimed = int.from_bytes(coded[at + 4 : at + 7], "little")
        plain = coded[at + 7 : at + 7 + length]
        assert len(plain) == length
        found.append((coded[at + 3], length, claimed, unpacked(plain, claimed, name)))
        at += 7 + length
    return found


def unpacked(packed: bytes, claimed: int, name: str) -> bytes:
    """A frame's content."""
    if not claimed:
        return packed
    if name == "zlib":
        plain = zlib.decompress(packed)
    else:
        plain = zstandard.ZstdDecompressor().decompress(packed, max_output_size=claimed)
    assert len(plain) == claimed
    return plain


def plain_of(coded: bytes, name: str) -> bytes:
    """The packets in frames."""
    return b"".join(plain for *_, plain in frames_in(coded, name))


class CompressingClient(RawClient):
    """A client that compresses after its login, and holds the numbers of frames against each other
    as MySQL's own does."""

    algorithm = "zlib"
    level = 3

    def __init__(self, address: Address, *, deadline_s: float = 30.0) -> None:
        super().__init__(address, deadline_s=deadline_s)
        self.compresses = False
        self.one_frame = False
        """Whether all commands that are sent at once are."""
        self.numbers: list[int] = []
        """Of the frames that came."""
        self.wire_bytes = 0
        """That came, since it compresses."""
        self._came = b""
        self._number = 0

    def response(
        self,
        user: str | bytes,
        password: str,
        schema: str,
        capabilities: int,
        collation: int = COLLATION,
    ) -> bytes:
        zstd = self.algorithm == "zstd"
        flag = Capability.ZSTD_COMPRESSION_ALGORITHM if zstd else Capability.COMPRESS
        made = super().response(user, password, schema, capabilities | flag, collation)
        return made + bytes((self.level,)) * zstd

    def authenticate(self, password: str) -> bytes:
        ok = super().authenticate(password)
        self.compresses = True
        self._came, self._unread, self._at = self._unread[self._at :], b"", 0
        return ok

    def send(self, data: bytes) -> None:
        if not self.compresses:
            super().send(data)
            return
        packets = [data] if self.one_frame else packets_in(data)
        for each in packets:
            for at in range(0, len(each), MAX_PAYLOAD):
                piece = each[at : at + MAX_PAYLOAD]
                self._number = 0 if not at and not each[3] else self._number + 1
                super().send(frame(piece, self._number, self.algorithm, len(piece) >= 50))

    def _receive(self) -> bytes:
        if not self.compresses:
            return super()._receive()
        while len(self._came) < 7 or len(self._came) < 7 + int.from_bytes(self._came[:3], "little"):
            more = super()._receive()
            if not more:
                return b""
            self.wire_bytes += len(more)
            self._came += more
        end = 7 + int.from_bytes(self._came[:3], "little")
        ((number, _, _, plain),) = frames_in(self._came[:end], self.algorithm)
        self._came = self._came[end:]
        self.numbers.append(number)
        self._number = number
        return plain


class ZstdClient(CompressingClient):
    """One that does so by zstd."""

    algorithm = "zstd"
