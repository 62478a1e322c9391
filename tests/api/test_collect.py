"""What a body reads: every tag, under the version it had first."""

from __future__ import annotations

import asyncio

import pytest

from sqlcache.api.collect import Collected, collect_into, collecting, refuse_write
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.errors import UsageError

ORDERS, LINES = Tag("shop", "orders"), Tag("shop", "lines")
ONE, TWO = b"1" * 8, b"2" * 8


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
