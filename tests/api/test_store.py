"""Where values are kept: found by any process, and by none that may not."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest

from sqlcache.api.cache import Cache
from sqlcache.demo.servers import PrivateMemcached
from sqlcache.sql.names import TableRef
from tests.api.conftest import BY_PATH, Open


def total_of(cache: Cache, runs: list[int]) -> Any:
    @cache.cached(ttl_s=60, key=lambda shelf: shelf)
    async def total(shelf: int) -> int:
        runs.append(shelf)
        read = "SELECT COUNT(*) FROM product WHERE shelf = %s"
        return int(await cache.fetch_value(read, (shelf,)))

    return total


async def test_a_process_that_never_ran_it_finds_the_value(pair: tuple[Cache, Cache]) -> None:
    runs: list[int] = []
    first, second = (total_of(cache, runs) for cache in pair)
    assert await first(0) == 4
    assert await second.peek(0) == 4
    assert await second(0) == 4
    assert runs == [0]


async def test_so_it_does_where_a_rule_bounds_the_values_life(
    open_cache: Open, shop: str, memcached: PrivateMemcached
) -> None:
    rules = [{"schema": shop, "ttl_s": 30}]
    runs: list[int] = []
    for _ in range(2):
        cache: Cache = await open_cache(memcached=memcached.address, settings=BY_PATH, rules=rules)
        assert await total_of(cache, runs)(0) == 4
    assert runs == [0]


async def test_an_index_that_is_lost_costs_a_run_and_nothing_else(
    pair: tuple[Cache, Cache],
) -> None:
    runs: list[int] = []
    first, second = (total_of(cache, runs) for cache in pair)
    await first(0)
    await pair[0].bump("product")
    await pair[0].execute("DELETE FROM product WHERE shelf = 0 AND id = 9")
    assert [await second(0), await first(0)] == [3, 3]
    assert runs == [0, 0]


async def test_why_it_is_never_kept_is_said_once(
    cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    @cache.cached()
    async def chance() -> float:
        return float(await cache.fetch_value("SELECT RAND() FROM product WHERE id = 1"))

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await chance()
    said = [record.getMessage() for record in caplog.records if "chance" in record.getMessage()]
    assert len(said) == 1
    assert "not cacheable, and no tags= are given" in said[0]


async def test_tables_are_named_with_or_without_their_schema(cache: Cache, shop: str) -> None:
    planner = cache._app.planner
    assert planner.names([TableRef(None, "product")], shop) == planner.names(
        [TableRef(shop, "product")], None
    )
    with pytest.raises(LookupError, match="without its schema"):
        planner.names([TableRef(None, "product")], None)


async def test_a_value_longer_than_an_answer_may_be_is_not_kept(
    open_cache: Open, shop: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache: Cache = await open_cache(settings={"cache.max_entry_bytes": 1_000})

    @cache.cached(tags=["product"])
    async def repeated(times: int) -> bytes:
        return b"x" * times

    for times in (100, 2_000, 3_000):
        assert [len(await repeated(times)), len(await repeated(times))] == [times, times]
    assert cache.metrics.function_runs == 5
    said = [record for record in caplog.records if "value not stored" in record.getMessage()]
    assert ["longer than cache.max_entry_bytes" in each.getMessage() for each in said] == [True]


@dataclass
class Both:
    """A cache, and another that its functions know as a global."""

    one: Cache
    other: Cache


BOTH: list[Both] = []


def read_through_the_other(cache: Cache, how: str, tags: list[str]) -> Any:
    @cache.cached(key=lambda: how, tags=tags)
    async def name() -> Any:
        if how == "a function":
            return await read_through_the_other(BOTH[-1].other, "a statement", [])()
        return await BOTH[-1].other.fetch_value("SELECT name FROM product WHERE id = 1")

    return name


@pytest.mark.parametrize("how", ["a statement", "a function"])
async def test_what_is_read_through_a_cache_with_another_store_is_not_kept_and_that_is_said(
    open_cache: Open, shop: str, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    one: Cache = await open_cache()
    other: Cache = await open_cache()
    BOTH.append(Both(one, other))
    name = read_through_the_other(one, how, [])
    assert [await name() for _ in range(3)] == ["p1"] * 3
    assert one.metrics.function_runs == 3
    assert caplog.text.count("read through another cache, whose store is another") == 1
    tagged = read_through_the_other(one, how, ["product"])
    assert [await tagged() for _ in range(3)] == ["p1"] * 3
    assert one.metrics.function_runs == 4


async def test_what_is_read_through_another_cache_of_one_store_is_kept(
    pair: tuple[Cache, Cache],
) -> None:
    one, other = pair
    BOTH.append(Both(one, other))
    name = read_through_the_other(one, "a statement", [])
    assert [await name() for _ in range(3)] == ["p1"] * 3
    assert one.metrics.function_runs == 1
    await other.execute("UPDATE product SET name = 'new' WHERE id = 1")
    assert await name() == "new"
