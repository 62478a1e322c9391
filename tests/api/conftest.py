"""A table `product`, and caches to read it with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import uvloop

import sqlcache
from sqlcache.api.cache import Cache
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlServer
from tests.servers import PATIENT

Open = Callable[..., Any]

BY_PATH = {path.replace("__", "."): value for path, value in PATIENT.items()}
"""Settings of a cache that bears with a busy machine."""


IN_EACH_LOOP = pytest.mark.asyncio(loop_factories=("asyncio", "uvloop"))
"""For tests of what the pool does: what is written arrives sooner in one of the event loops than in
the other."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Any]:
    """All that a test is marked for; of others the first alone."""
    loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    marks = [mark for mark in item.iter_markers("asyncio") if "loop_factories" in mark.kwargs]
    return loops if marks else {"asyncio": loops["asyncio"]}


def url_of(server: PrivateSqlServer, schema: str) -> str:
    return f"mysql://{server.user}:{server.password}@{server.address}/{schema}"


def is_run(server: PrivateSqlServer, statement: str) -> bool:
    """Whether the server is at work at it."""
    return statement in {row[7] for row in server.sql("SHOW FULL PROCESSLIST")}


@pytest.fixture
def shop(mariadb: PrivateMariaDB, schema: str) -> str:
    """A schema with `product`: ten rows on three shelves."""
    mariadb.sql("CREATE TABLE product (id INT PRIMARY KEY, name VARCHAR(20), shelf INT)", schema)
    rows = ",".join(f"({number}, 'p{number}', {number % 3})" for number in range(10))
    mariadb.sql(f"INSERT INTO product VALUES {rows}", schema)
    return schema


@pytest.fixture
async def open_cache(mariadb: PrivateMariaDB, schema: str) -> AsyncIterator[Open]:
    """`await open_cache(**options)` is an open cache on the schema, in memory unless told."""
    async with AsyncExitStack() as stack:

        async def opened(**options: Any) -> Cache:
            url = options.pop("url", None) or url_of(mariadb, schema)
            settings = {"binlog.follow": "off", **options.pop("settings", {})}
            options = {"memcached": "memory", "settings": settings, **options}
            return await stack.enter_async_context(sqlcache.connect(url, **options))

        yield opened


@pytest.fixture
async def cache(open_cache: Open, shop: str) -> Cache:
    """A cache with its store in memory."""
    opened: Cache = await open_cache()
    return opened


@pytest.fixture
async def pair(open_cache: Open, shop: str, memcached: PrivateMemcached) -> tuple[Cache, Cache]:
    """Two caches, such as two processes have, on one memcached."""
    options = {"memcached": memcached.address, "settings": BY_PATH}
    return await open_cache(**options), await open_cache(**options)
