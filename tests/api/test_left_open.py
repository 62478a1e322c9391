"""A cache that nobody closed: in an event loop that has ended, in a process that was forked off."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import sqlcache
from sqlcache.api.cache import Cache
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached
from sqlcache.errors import UsageError
from tests.api.conftest import BY_PATH, url_of

FORKS = """
import asyncio, os, sys, uvloop
import sqlcache

url, memcached, kind = sys.argv[1:]
settings = {"binlog.follow": "off"}
cache = sqlcache.connect(url, memcached=memcached, settings=settings)
loop = {"asyncio": asyncio, "uvloop": uvloop}[kind].new_event_loop()
asyncio.set_event_loop(loop)

@cache.cached()
async def name():
    return await cache.fetch_value("SELECT name FROM product WHERE id = 7")

async def read(who):
    await cache.execute("UPDATE product SET shelf = shelf + 1 WHERE id = 1")
    for number in range(100):
        said = await cache.fetch_value(f"SELECT SQL_NO_CACHE '{who}{number}' FROM product LIMIT 1")
        assert said == f"{who}{number}", said
        assert await name() == "p7"

async def child():
    for use in (cache.fetch_value("SELECT 1"), name(), cache.execute("DO 0")):
        try:
            print("not refused:", await use)
        except sqlcache.errors.UsageError as error:
            assert "forked off" in str(error)
    await asyncio.sleep(0.5)  # while what its event loop had to do goes on

async def anew():
    async with cache:
        await read("anew")

loop.run_until_complete(cache.__aenter__())
loop.run_until_complete(read("before"))
number = os.fork()
if not number:
    try:
        loop.run_until_complete(child())
        asyncio.run(anew())
        print("as it should be", flush=True)
    finally:
        os._exit(0)
loop.run_until_complete(read("beside"))
os.wait()
loop.run_until_complete(read("after"))
loop.run_until_complete(cache.close())
print("as it should be")
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_processes_that_a_fork_has_made_of_one_have_no_connection_in_common(
    shop: str, mariadb: PrivateMariaDB, memcached: PrivateMemcached, loop: str
) -> None:
    """Else each would get answers to the other's questions."""
    given = [url_of(mariadb, shop), memcached.address, loop]
    done = subprocess.run(
        [sys.executable, "-c", FORKS, *given], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines() == ["as it should be"] * 2, done.stdout + done.stderr


Use = Callable[[], Awaitable[Any]]


def test_where_its_event_loop_has_ended_it_says_so_and_can_be_opened_again(
    shop: str, mariadb: PrivateMariaDB
) -> None:
    cache = sqlcache.connect(url_of(mariadb, shop), memcached="memory", settings=BY_PATH)

    @cache.cached()
    async def name() -> Any:
        return await cache.fetch_value("SELECT name FROM product WHERE id = 7")

    async def leave_open() -> None:
        await cache.__aenter__()
        assert await name() == "p7"

    async def use() -> None:
        uses: list[Use] = [name, name.invalidate, lambda: cache.fetch_value("SELECT 1")]
        for each in uses:
            with pytest.raises(UsageError, match="event loop that has ended"):
                await each()

    async def open_again(cache: Cache) -> None:
        async with cache:
            for _ in range(2):
                assert await name() == "p7"
            assert cache.metrics.function_hits == 1

    for _ in range(2):
        asyncio.run(leave_open())
        asyncio.run(use())
        asyncio.run(open_again(cache))
    asyncio.run(leave_open())
    asyncio.run(cache.close())
    asyncio.run(open_again(cache))
