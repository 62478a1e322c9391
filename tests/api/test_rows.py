"""Stored result sets decoded as aiomysql decodes what it receives."""

from __future__ import annotations

import pytest

from sqlcache.api import rows
from sqlcache.api.cache import Cache

READ = "SELECT id, name FROM product WHERE shelf = 0 ORDER BY id"


async def test_the_rows_of_an_entry_that_is_near_are_decoded_once(cache: Cache) -> None:
    await cache.fetch_all(READ)
    first, second = await cache.fetch_all(READ), await cache.fetch_all(READ)
    assert first is not second
    assert first[0] is second[0]
    first.clear()
    assert len(await cache.fetch_all(READ)) == 4


async def test_a_new_entry_is_decoded_anew(cache: Cache) -> None:
    for name in ("a", "b", "c"):
        await cache.execute("UPDATE product SET name = %s WHERE id = 0", (name,))
        for _ in range(3):
            assert (await cache.fetch_all(READ))[0] == (0, name)


async def test_a_result_without_rows_has_its_columns(cache: Cache) -> None:
    for _ in range(2):
        assert await cache.fetch_all("SELECT id FROM product WHERE id > 99", into=dict) == []


async def test_no_number_of_columns_takes_more_memory_than_a_bound(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_LAYOUTS_BYTES", 2_000)
    wide = ", ".join(f"id AS a{number}" for number in range(100))
    for columns in ("id AS a", "id AS b", wide, "id AS c", *(f"id AS d{n}" for n in range(100))):
        for _ in range(2):
            assert len(await cache.fetch_all(f"SELECT {columns} FROM product")) == 10
    assert cache._reads.home is not None
    layouts = cache._reads.home.decoder._layouts
    assert 0 < sum(map(len, layouts)) <= 2_000
