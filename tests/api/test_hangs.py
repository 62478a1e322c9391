"""On what values hang, as it is written down and read again."""

from __future__ import annotations

import pytest

from sqlcache.api.collect import Part
from sqlcache.api.hangs import Hang, hang_on, read_hang
from sqlcache.cache.tags import BUCKET_BYTES, ROOT, SLOT_BYTES, Pin, Tag

ORDERS, LINES, OWN = Tag("shop", "orders"), Tag("shop", "lines"), Tag("", "f#1")
BY_ID, BY_SHELF = b"\0" * SLOT_BYTES, b"\n" * SLOT_BYTES
ONE, TWO = b"\0" * BUCKET_BYTES, b"\n" * BUCKET_BYTES


def test_each_slot_is_pinned_by_itself_and_the_whole_besides() -> None:
    hang = hang_on(
        [
            *(Part(ORDERS, BY_ID), Part(ORDERS, BY_ID, TWO), Part(ORDERS, BY_ID, ONE)),
            *(Part(ORDERS, BY_SHELF), Part(LINES, BY_ID), ORDERS, OWN),
        ]
    )
    assert hang == Hang(
        (LINES, ORDERS, ORDERS, ROOT, OWN, ORDERS),
        (Pin(BY_ID, ()), Pin(BY_ID, (ONE, TWO)), Pin(BY_SHELF, ())),
    )


def test_what_was_written_is_read_the_same() -> None:
    of_rows = Part(LINES, BY_SHELF), Part(LINES, BY_SHELF, TWO), Part(ORDERS, BY_ID)
    for hang in (hang_on([ORDERS, OWN]), hang_on([ORDERS, OWN, *of_rows])):
        assert read_hang(hang.written().decode().split("\n")) == hang


@pytest.mark.parametrize(
    "lines", ["shop", "shop\0orders\0no", "shop\0lines\nshop\0orders\0" + BY_ID.hex()]
)
def test_what_was_not_written_so_is_none(lines: str) -> None:
    with pytest.raises(ValueError, match=r"unpack|hexadecimal|first"):
        read_hang(lines.split("\n"))
