"""What a body reads: every tag, under the version it had first."""

from __future__ import annotations

import asyncio

import pytest

from sqlcache.api.collect import Collected, Part, collect_into, collecting, refuse_write
from sqlcache.cache.reads import Basis, Freshness, Read, TagSet
from sqlcache.cache.tags import BUCKET_BYTES, ROOT, SLOT_BYTES, Pin, Tag
from sqlcache.errors import UsageError

ORDERS, LINES = Tag("shop", "orders"), Tag("shop", "lines")
ONE, TWO = b"1" * 8, b"2" * 8
SLOT, BUCKET = b"s" * SLOT_BYTES, b"b" * BUCKET_BYTES
_REQUESTS = ((b"lines", b"mg"), (b"root", b"mg"))


def basis(versions: bytes, whole: bytes | None) -> Basis:
    """Of an answer that pins a row of the lines, and hangs on the root."""
    tags = TagSet((LINES, ROOT.on("a")), _REQUESTS, (), None, (Pin(SLOT, (BUCKET,)),))
    return Basis(Read(b"key", tags, b"", Freshness(60), rolls_back=False), tags, versions, whole)


def test_what_is_pinned_is_captured_and_what_would_do_instead() -> None:
    collected = Collected("f")
    collected.read(basis(ONE + TWO + ONE, TWO + ONE))
    row = Part(LINES, SLOT, BUCKET)
    assert collected.used == {Part(LINES, SLOT), row, ROOT}
    assert collected.captured == {Part(LINES, SLOT): ONE, row: TWO, ROOT.on("a"): ONE}
    assert collected.instead == {LINES: TWO}
    collected.read(basis(ONE + TWO + ONE, TWO + ONE))
    assert (collected.instead, collected.torn) == ({LINES: TWO}, False)
    collected.read(basis(ONE + ONE + ONE, TWO + ONE))
    assert collected.torn


@pytest.mark.parametrize("whole", [None, ONE + ONE])
def test_nothing_would_do_instead_where_that_was_two_or_is_not_known(whole: bytes | None) -> None:
    for first, second in ((whole, TWO + ONE), (TWO + ONE, whole)):
        one, other = Collected("f"), Collected("g")
        one.read(basis(ONE + TWO + ONE, first))
        other.read(basis(ONE + TWO + ONE, second))
        one.include(other)
        assert one.instead == {LINES: b""}


def test_it_is_not_followed_while_a_slot_that_it_pins_is_not_in_use() -> None:
    collected = Collected("f")
    collected.read(basis(ONE + ONE, ONE + ONE))
    assert collected.unfollowed_now
    assert not collected.captured


def test_a_tag_seen_under_two_versions_tears_the_value() -> None:
    collected = Collected("f")
    collected.capture([ORDERS, LINES], [ONE, ONE])
    collected.capture([ORDERS], [ONE])
    assert not collected.torn
    collected.capture([LINES], [TWO])
    assert collected.torn
    assert collected.captured[LINES] == ONE


def test_it_hangs_on_all_that_a_value_it_includes_hangs_on() -> None:
    inner, outer = Collected("inner"), Collected("outer")
    inner.hang_on({ORDERS, ROOT}, ttl_s=5)
    inner.capture([ORDERS], [ONE])
    inner.cannot_follow("not cacheable")
    outer.capture([ORDERS], [TWO])
    outer.include(inner)
    assert outer.used == {ORDERS, ROOT}
    assert (outer.torn, outer.unfollowed, outer.ttl_s) == (True, {"not cacheable"}, 5)


def test_what_may_be_followed_the_next_time_is_told_from_what_never_is() -> None:
    collected = Collected("f")
    collected.cannot_follow("not cacheable")
    assert not collected.unfollowed_now
    collected.cannot_follow("a write is in flight")
    assert collected.unfollowed_now


def test_what_comes_after_its_end_is_no_part_of_it() -> None:
    collected = Collected("f")
    collected.closed = True
    collected.read_on("not cacheable", 60)
    collected.include(Collected("g"))
    assert not collected.unfollowed


async def test_tasks_of_the_body_gather_into_it_and_no_others() -> None:
    assert collecting() is None
    collected = Collected("f")

    async def body() -> Collected | None:
        collect_into(collected)
        return await asyncio.create_task(inner())

    async def inner() -> Collected | None:
        return collecting()

    assert await asyncio.create_task(body()) is collected
    assert collecting() is None


async def test_a_write_is_refused_inside_and_allowed_after_the_end() -> None:
    async def body() -> None:
        collected = Collected("shop.f")
        collect_into(collected)
        with pytest.raises(UsageError, match=r"shop.f is cached and may not write"):
            refuse_write("cache.execute()")
        collected.closed = True
        refuse_write("cache.execute()")

    await asyncio.create_task(body())
