"""Entries that one memcached item cannot hold, or that are worth compressing.

    versions P …              an entry as it is
    versions Z …              what follows the versions is zlib's
    versions M count id       a manifest: the entry is cut in `count` parts, each `id` and a piece

The versions stay in front in clear, so that a look-up can compare them without the rest. The id is
new for every fill: parts of two fills never make one entry, and a missing part is a miss.
"""

import struct
import zlib
from collections.abc import Iterable

COMPRESSED, MANIFEST = b"Z", b"M"
FILL_ID_BYTES = 8

_COUNT = struct.Struct("<H")
_LEVEL = 1  # fast; most result sets shrink to a third with it
_MOST_PARTS = 2**16 - 1
_MOST_UNPACKED_BYTES = 1 << 25
"""Of what is compressed. Whoever writes to memcached could have much more made of few bytes, while
others wait."""
_MANIFEST_BYTES = len(MANIFEST) + _COUNT.size + FILL_ID_BYTES


def compressed(entry: bytes, versions_bytes: int, *, over_bytes: int) -> bytes:
    """The entry, or a shorter form of one of more than `over_bytes`; 0 compresses nothing, and what
    is very long stays as it is."""
    body_bytes = len(entry) - versions_bytes
    if not over_bytes or not over_bytes < body_bytes <= _MOST_UNPACKED_BYTES:
        return entry
    packed = COMPRESSED + zlib.compress(memoryview(entry)[versions_bytes:], _LEVEL)
    return min(entry, entry[:versions_bytes] + packed, key=len)


def cut(
    entry: bytes, versions_bytes: int, *, fill_id: bytes, max_item_bytes: int
) -> tuple[bytes, list[bytes]]:
    """The manifest of an entry, and the items of its parts, of at most so many bytes each. Raises:
    OverflowError where there would be more parts than a manifest can count."""
    versions, body = entry[:versions_bytes], entry[versions_bytes:]
    piece_bytes = max_item_bytes - FILL_ID_BYTES
    if len(body) > _MOST_PARTS * piece_bytes:
        raise OverflowError(f"an entry of {len(body)} bytes has too many parts")
    pieces = [body[at : at + piece_bytes] for at in range(0, len(body), piece_bytes)]
    manifest = MANIFEST + _COUNT.pack(len(pieces)) + fill_id
    return versions + manifest, [fill_id + piece for piece in pieces]


def parts_of(item: bytes, versions_bytes: int) -> tuple[int, bytes]:
    """How many parts an item's entry is in, and their fill's id; 0 for an undivided one."""
    body = item[versions_bytes:]
    if body[:1] != MANIFEST or len(body) != _MANIFEST_BYTES:
        return 0, b""
    return _COUNT.unpack_from(body, 1)[0], body[1 + _COUNT.size :]


def join(pieces: Iterable[bytes | None], fill_id: bytes) -> bytes | None:
    """The body the parts make together; None if one is missing or of another fill."""
    body = []
    for piece in pieces:
        if piece is None or not piece.startswith(fill_id):
            return None
        body.append(piece[FILL_ID_BYTES:])
    return b"".join(body)


def unpack(body: bytes) -> bytes | None:
    """The body of an entry as it is; None if it cannot be made, or is longer than any that `pack`
    compresses."""
    if body[:1] != COMPRESSED:
        return body
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(memoryview(body)[1:], _MOST_UNPACKED_BYTES + 1)
    except zlib.error:
        return None
    return unpacked if unpacker.eof and len(unpacked) <= _MOST_UNPACKED_BYTES else None
