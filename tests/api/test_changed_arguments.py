"""Arguments, and what a function captures, that change while it runs."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from sqlcache import MISSING
from sqlcache.api.cache import Cache

NAMES = "SELECT name FROM product WHERE id BETWEEN 1 AND %s ORDER BY id"


class Gate:
    """Lets a function's first run go on when it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def passed(self) -> None:
        self.reached.set()
        await self.opened.wait()


GATE: list[Gate] = []


@pytest.fixture(autouse=True)
async def gate() -> None:
    """A new one, which is no part of keys: globals are taken for constants."""
    GATE[:] = [Gate()]


async def test_a_value_of_other_arguments_by_the_end_is_its_callers_alone(
    cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    @cache.cached()
    async def names(ids: list[int]) -> list[Any]:
        await GATE[0].passed()
        return [name for (name,) in await cache.fetch_all(NAMES, (len(ids),))]

    changing = [1, 2]
    first = asyncio.create_task(names(changing))
    await GATE[0].reached.wait()
    others = [asyncio.create_task(names([1, 2])) for _ in range(5)]
    await asyncio.sleep(0.05)
    changing.append(3)
    GATE[0].opened.set()
    assert await first == ["p1", "p2", "p3"]
    assert await asyncio.gather(*others) == [["p1", "p2"]] * 5
    assert await names([1, 2]) == ["p1", "p2"]
    assert cache.metrics.function_runs == 2
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert [each.partition("reason=")[2] for each in said] == ['"an argument changed while it ran"']


async def test_nor_is_one_kept_if_what_key_returns_is_another(cache: Cache) -> None:
    class Basket:
        def __init__(self) -> None:
            self.ids = [1]

    @cache.cached(key=lambda basket: basket.ids)
    async def names(basket: Basket) -> list[Any]:
        basket.ids.append(2)
        return [name for (name,) in await cache.fetch_all(NAMES, (len(basket.ids),))]

    assert await names(Basket()) == ["p1", "p2"]
    assert await names.peek(Basket()) is MISSING


async def test_nor_if_what_the_function_captures_is_another(cache: Cache) -> None:
    least = [4]

    @cache.cached()
    async def number() -> int:
        await GATE[0].passed()
        query = "SELECT COUNT(*) FROM product WHERE id >= %s"
        return int(await cache.fetch_value(query, (least[0],)))

    first = asyncio.create_task(number())
    await GATE[0].reached.wait()
    least[0] = 9
    GATE[0].opened.set()
    assert await first == 1
    assert await number() == 1
    least[0] = 4
    assert await number() == 6
