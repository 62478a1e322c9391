"""An app on `sqlcache.connect()` that does what its clients tell it.

python -m tests.coherence.live_library PORT ADMIN_PORT OPTIONS

OPTIONS are those of `connect`, in JSON. A client sends one line of JSON after another, and gets one
for each:

    {"read": SQL, "way": WAY, "parts": [SQL, ...]}   {"value": [NUMBER, ...]}
    {"run": SQL}                                     {"value": LAST_INSERT_ID}
                                                     {"error": [CODE, MESSAGE]}

BEGIN, COMMIT and ROLLBACK are the beginning and the ends of a `cache.transaction()`. A client that
goes away has what it asked for cancelled, as in an app that is asked over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiomysql
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import sqlcache
from sqlcache.admin.http import AdminServer
from sqlcache.demo.servers import HOST
from sqlcache.errors import ConfigError
from sqlcache.process import logs
from sqlcache.settings import HostPort
from tests.coherence.live_doors import FETCH, FUNCTION, NESTED, PARTS, TRANSACTION

log = logging.getLogger(__name__)

_AGAIN_AFTER_S = 0.2

Read = Callable[[str, Sequence[str]], Awaitable[list[int]]]


def reads(cache: sqlcache.Cache) -> dict[str, Read]:
    """The ways to read."""

    async def fetch(sql: str, parts: Sequence[str] = ()) -> list[int]:
        return _values(await cache.fetch_all(sql))

    async def transaction(sql: str, parts: Sequence[str]) -> list[int]:
        async with cache.transaction() as tx:
            return _values(await tx.fetch_all(sql))

    @cache.cached()
    async def function(sql: str) -> list[int]:
        return await fetch(sql)

    @cache.cached()
    async def nested(sql: str) -> list[int]:
        return await function(sql)

    @cache.cached()
    async def gathered(parts: tuple[str, ...]) -> list[int]:
        values = await asyncio.gather(*map(cache.fetch_value, parts))
        return [int(value) for value in values]

    return {
        FETCH: fetch,
        FUNCTION: lambda sql, _: function(sql),
        NESTED: lambda sql, _: nested(sql),
        PARTS: lambda _, parts: gathered(tuple(parts)),
        TRANSACTION: transaction,
    }


def _values(rows: Sequence[tuple[Any, ...]]) -> list[int]:
    return [int(value) for row in rows for value in row]


class _RolledBack(Exception):
    """What ends a transaction that is not to be committed."""


class _Client:
    """One client's requests, in order."""

    def __init__(self, cache: sqlcache.Cache, ways: dict[str, Read]) -> None:
        self._cache = cache
        self._ways = ways
        self._open = AsyncExitStack()
        self._tx: sqlcache.Transaction | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until it goes away."""
        try:
            line = await reader.readline()
            while line:
                doing = asyncio.create_task(self._answer(json.loads(line)))
                following = asyncio.create_task(reader.readline())
                await asyncio.wait([doing, following], return_when=asyncio.FIRST_COMPLETED)
                if following.done():  # it waits for each answer, so it is gone
                    doing.cancel()
                    await asyncio.gather(doing, return_exceptions=True)
                    break
                writer.write(json.dumps(doing.result()).encode() + b"\n")
                line = await following
        except OSError:
            pass  # it is gone
        finally:
            writer.transport.abort()
            await self._roll_back()

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if "run" in request:
                return {"value": await self._run(request["run"])}
            return {"value": await self._ways[request["way"]](request["read"], request["parts"])}
        except aiomysql.MySQLError as error:
            return {"error": [*error.args]}
        except Exception:
            log.exception("no error of MySQL's")
            raise

    async def _run(self, sql: str) -> int:
        if sql == "ROLLBACK":
            await self._roll_back()
        elif sql == "COMMIT":
            await self._commit()
        elif sql == "BEGIN":  # which commits a transaction that is open
            await self._commit()
            self._tx = await self._open.enter_async_context(self._cache.transaction())
        else:
            return (await (self._tx or self._cache).execute(sql)).lastrowid
        return 0

    async def _commit(self) -> None:
        self._tx, ended = None, self._open.pop_all()
        await ended.aclose()

    async def _roll_back(self) -> None:
        self._tx, ended = None, self._open.pop_all()
        rolled_back = _RolledBack()
        await ended.__aexit__(_RolledBack, rolled_back, None)


@asynccontextmanager
async def _opened(cache: sqlcache.Cache) -> AsyncIterator[None]:
    """As soon as it can be: another fault may have cut MySQL off just when the app begins."""
    async with AsyncExitStack() as stack:
        while True:
            try:
                await stack.enter_async_context(cache)
                break
            except (aiomysql.MySQLError, ConfigError) as error:
                log.warning("not opened, trying again error=%s", error)
                await asyncio.sleep(_AGAIN_AFTER_S)
        yield


async def _serve(port: int, admin_port: int, options: dict[str, Any]) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    cache = sqlcache.connect(**options)
    ways = reads(cache)

    def page(request: Request) -> Response:
        return Response(cache.metrics.render())

    async with _opened(cache):
        admin = AdminServer(HostPort(HOST, admin_port), Starlette(routes=[Route("/metrics", page)]))
        await admin.start()
        server = await asyncio.start_server(
            lambda *streams: _Client(cache, ways).serve(*streams), HOST, port
        )
        print("ready", flush=True)
        await stopped.wait()
        server.close()
        await admin.stop()


def main(arguments: Sequence[str]) -> int:
    """Runs the app until SIGTERM."""
    port, admin_port, options = arguments
    logs.configure("info")
    uvloop.run(_serve(int(port), int(admin_port), json.loads(options)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
