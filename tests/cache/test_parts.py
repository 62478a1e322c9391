import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.cache.entry import encode
from sqlcache.cache.parts import COMPRESSED, compressed, cut, join, parts_of, unpack

VERSIONS = b"v" * 24
ID = b"12345678"


def packed(entry: bytes, max_item_bytes: int = 100, compress: int = 0) -> tuple[bytes, list[bytes]]:
    item = compressed(entry, len(VERSIONS), over_bytes=compress)
    if len(item) <= max_item_bytes:
        return item, []
    return cut(item, len(VERSIONS), fill_id=ID, max_item_bytes=max_item_bytes)


def unpacked(item: bytes, pieces: list[bytes]) -> bytes | None:
    count, fill_id = parts_of(item, len(VERSIONS))
    assert count == len(pieces)
    body = join(list(pieces), fill_id) if count else item[len(VERSIONS) :]
    body = None if body is None else unpack(body)
    return None if body is None else VERSIONS + body


@given(st.binary(max_size=2_000), st.integers(60, 400), st.sampled_from([0, 1, 300]))
def test_what_is_packed_is_unpacked(packets: bytes, max_item_bytes: int, compress: int) -> None:
    entry = encode(VERSIONS, 2, [3], packets)
    item, pieces = packed(entry, max_item_bytes, compress)
    assert item.startswith(VERSIONS)
    assert all(len(value) <= max_item_bytes for value in (item, *pieces))
    assert unpacked(item, pieces) == entry


def test_an_entry_that_fits_is_stored_as_it_is() -> None:
    entry = encode(VERSIONS, 2, [3], b"rows")
    item, pieces = packed(entry)
    assert item is entry  # it may be long
    assert pieces == []


def test_what_compression_does_not_shorten_stays_as_it_is() -> None:
    entry = encode(VERSIONS, 2, [3], bytes(range(40)))
    assert packed(entry, compress=1) == (entry, [])


@pytest.mark.parametrize("lost", range(3))
def test_without_one_part_there_is_no_entry(lost: int) -> None:
    item, pieces = packed(encode(VERSIONS, 2, [3], bytes(250)))
    assert len(pieces) == 3
    _, fill_id = parts_of(item, len(VERSIONS))
    held: list[bytes | None] = list(pieces)
    held[lost] = None
    assert join(held, fill_id) is None


def test_more_parts_than_a_manifest_counts_are_refused() -> None:
    room = 100 - len(ID)
    _, pieces = packed(VERSIONS + bytes(65_535 * room))
    assert len(pieces) == 65_535
    with pytest.raises(OverflowError, match="too many parts"):
        packed(VERSIONS + bytes(65_535 * room + 1))


def test_a_part_of_another_fill_makes_no_entry() -> None:
    item, pieces = packed(encode(VERSIONS, 2, [3], bytes(250)))
    _, fill_id = parts_of(item, len(VERSIONS))
    assert join([pieces[0], b"87654321" + pieces[1][8:], pieces[2]], fill_id) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_an_entry_or_none(body: bytes) -> None:
    parts_of(VERSIONS + body, len(VERSIONS))
    unpack(body)


def test_what_is_compressed_is_never_made_longer_than_what_is_stored_so() -> None:
    """Few bytes of a stranger's may stand for very many."""
    longest = bytes(1 << 25)
    item, _ = packed(VERSIONS + longest, max_item_bytes=1 << 30, compress=1)
    assert unpacked(item, []) == VERSIONS + longest
    longer = longest + b"0"
    item, _ = packed(VERSIONS + longer, max_item_bytes=1 << 30, compress=1)
    assert item == VERSIONS + longer
    assert unpack(COMPRESSED + zlib.compress(longer)) is None


def test_what_is_cut_short_makes_no_entry() -> None:
    item, _ = packed(VERSIONS + bytes(1_000), compress=1)
    assert unpacked(item, []) is not None
    assert unpacked(item[:-1], []) is None
