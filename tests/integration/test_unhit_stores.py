"""Statements whose answers are never hit, through a proxy in the loop of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiomysql
import pytest

from sqlcache.app import App
from sqlcache.cache.worth import OLD_S, ONE_OF, UNHIT
from sqlcache.demo.servers import PrivateMemcached, PrivateSqlServer
from sqlcache.settings.sources import from_arguments
from tests.api.conftest import BY_PATH

MANY = 120
READ = "SELECT data FROM sessions WHERE id = 1 AND expires > '2026-11-24 04:35:00.%06d'"


class Clock:
    """Its own, and how far the test has turned it on."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead_s


@asynccontextmanager
async def proxied(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, schema: str, *, straight: bool
) -> AsyncIterator[tuple[App, Clock, Callable[[str], Awaitable[object]]]]:
    settings = from_arguments(
        {
            **BY_PATH,
            "upstream.url": upstream.service_url,
            "memcached.nodes": memcached.address,
            "proxy.listen": "127.0.0.1:0",
            "proxy.straight_path": straight,
        }
    )
    app = App(settings)
    clock = app.engine.worth.clock = Clock()
    port = await app.listen()
    await app.get_ready()
    connection = await aiomysql.connect(
        host="127.0.0.1",
        port=port,
        user=upstream.user,
        password=upstream.password,
        db=schema,
        autocommit=True,
    )

    async def ask(text: str) -> object:
        async with connection.cursor() as cursor:
            await cursor.execute(text)
            return await cursor.fetchall()

    try:
        yield app, clock, ask
    finally:
        connection.close()
        await app.stop()


@pytest.mark.parametrize("straight", [True, False], ids=["straight", "the long way"])
async def test_they_are_judged_passed_and_come_back(
    mariadb: PrivateSqlServer, memcached: PrivateMemcached, schema: str, *, straight: bool
) -> None:
    mariadb.sql("CREATE TABLE sessions (id INT PRIMARY KEY, expires DATETIME(6), data INT)", schema)
    mariadb.sql("INSERT INTO sessions VALUES (1, '2030-01-01', 7)", schema)
    async with proxied(mariadb, memcached, schema, straight=straight) as (app, clock, ask):
        number = 0

        async def ask_new(times: int) -> range:
            nonlocal number
            number += times
            asked = range(number - times, number)
            for each in asked:
                assert await ask(READ % each) == ((7,),)
            return asked

        async def explained() -> object:
            told = await app.operations.explain(READ % 0, schema, mariadb.user)
            assert isinstance(told, list)
            return told[0]["stored"]

        await ask_new(MANY)
        assert app.metrics.misses == MANY
        clock.ahead_s += OLD_S
        await ask_new(2)
        before = app.metrics.misses
        sampled = await ask_new(10 * ONE_OF)
        assert app.metrics.misses - before == 10
        assert app.metrics.fills_skipped >= 9 * ONE_OF
        assert app.metrics.bypasses[UNHIT.reason] == app.metrics.fills_skipped
        assert await explained() == "sample"

        hits = app.metrics.hits
        for each in sampled:
            await ask(READ % each)
        assert app.metrics.hits - hits == 10
        clock.ahead_s += OLD_S
        await ask_new(2)
        before = app.metrics.misses
        await ask_new(MANY)
        assert app.metrics.misses - before == MANY
        assert await explained() == "all"


async def test_what_names_the_moment_is_not_even_looked_up_until_some_is_hit(
    mariadb: PrivateSqlServer, memcached: PrivateMemcached, schema: str
) -> None:
    mariadb.sql("CREATE TABLE sessions (id INT PRIMARY KEY, expires DATETIME(6), data INT)", schema)
    mariadb.sql("INSERT INTO sessions VALUES (1, '2030-01-01', 7)", schema)
    read = "SELECT data FROM sessions WHERE id = 1 AND expires > '%s'"
    async with proxied(mariadb, memcached, schema, straight=True) as (app, _, ask):
        for each in range(3):
            await ask(READ % each)
        misses, gets = app.metrics.misses, int(memcached.stats()["cmd_get"])
        for passed in range(1, MANY):
            assert await ask(read % datetime.now(UTC).replace(tzinfo=None)) == ((7,),)
            assert app.metrics.bypasses[UNHIT.reason] == app.metrics.fills_skipped == passed
        assert app.metrics.misses == misses
        assert int(memcached.stats()["cmd_get"]) < gets + MANY
        for _ in range(3):
            await ask(READ % 1)
        assert app.metrics.hits
        await ask(read % datetime.now(UTC).replace(tzinfo=None))
        assert app.metrics.misses == misses + 1
