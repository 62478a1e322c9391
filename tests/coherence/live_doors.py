"""The doors of a live run, and sessions at them.

A door is a process that can be killed, frozen and cut off: a proxy, or an app that uses sqlcache as
a library. Clients of a proxy speak MySQL's protocol to it; those of a library tell the app what it
is to do, see `live_library`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import aiomysql

from sqlcache.demo.servers import HOST, PrivateSqlcache, PrivateSqlServer
from tests.coherence.live_links import MARK
from tests.processes import workers_of

FETCH, FUNCTION, NESTED, PARTS, TRANSACTION = "fetch", "function", "nested", "parts", "transaction"
"""Ways an app can read."""

_TRACEBACK_CHARACTERS = 3_000


class Session(Protocol):
    """A client's session at a door.

    Its statements raise aiomysql.MySQLError, or OSError where the door is gone.
    """

    @property
    def ways(self) -> Sequence[str]:
        """In which it can read."""

    async def read(self, sql: str, way: str, parts: Sequence[str] = ()) -> list[int]:
        """The answer's values, row by row. `parts` are queries that have one value each of it."""

    async def run(self, sql: str) -> int:
        """Runs a statement; returns the LAST_INSERT_ID of its OK."""

    def close(self) -> None:
        """Leaves, amid whatever it does."""


class Door(PrivateSqlcache):
    """sqlcache's process and its workers, which are killed, frozen and thawed together.

    `mark` is its name to the forwarders; `program` are the interpreter's arguments that run it.
    """

    kind: str

    def __init__(
        self,
        mark: str,
        program: Sequence[str],
        *arguments: Any,
        **settings: Any,
    ) -> None:
        super().__init__(*arguments, **settings)
        self.mark = mark
        self.program = program
        self.tracebacks = ""

    @abstractmethod
    async def open(self, server: PrivateSqlServer, schema: str) -> Session:
        """A session that waits for row locks a second only: much less than a write's deadline."""

    def kill(self) -> None:
        self.keep_traceback()
        self._signal(signal.SIGKILL)
        super().kill()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def workers(self) -> list[int]:
        """The processes that serve its clients, where the first does not do it itself."""
        return sorted(workers_of(self.pid))

    def keep_traceback(self) -> None:
        """Looks for the first one in the log, which the next start empties."""
        _, found, rest = self.log_text().partition("Traceback")
        self.tracebacks += found + rest[:_TRACEBACK_CHARACTERS]

    def hits(self) -> float:
        """Reads, and calls of functions, that it has answered from the cache."""
        metrics = self.metrics()
        return metrics["sqlcache_hits_total"] + metrics["sqlcache_function_hits_total"]

    def _signal(self, number: signal.Signals) -> None:
        os.killpg(self.pid, number)

    def _environment(self) -> Mapping[str, str]:
        repository = str(Path(__file__).parents[2])
        return {**super()._environment(), MARK: self.mark, "PYTHONPATH": repository}


class Proxy(Door):
    """`sqlcache serve`."""

    kind = "proxy"

    def command(self) -> list[str]:
        interpreter, _, _, *options = super().command()
        return [interpreter, *self.program, *options]

    async def open(self, server: PrivateSqlServer, schema: str) -> Session:
        return await open_wire(server, self.port, schema)


class Library(Door):
    """An app on `sqlcache.connect(url)`."""

    kind = "library"
    url: str

    def command(self) -> list[str]:
        options = {
            "url": self.url,
            "service_url": self.upstream_url,
            "memcached": list(self.nodes),
            "session": {"innodb_lock_wait_timeout": 1},
            "settings": {path.replace("__", "."): each for path, each in self.settings.items()},
        }
        ports = [str(self.port), str(self.admin_port)]
        return [sys.executable, *self.program, *ports, json.dumps(options)]

    async def open(self, server: PrivateSqlServer, schema: str) -> Session:
        return await _Told.open(self.port)


class Direct:
    """No door at all: MySQL itself."""

    kind = "direct"

    async def open(self, server: PrivateSqlServer, schema: str) -> Session:
        return await open_wire(server, server.port, schema)


async def open_wire(server: PrivateSqlServer, port: int, schema: str) -> Session:
    """A session at a proxy, or at MySQL itself."""
    connection = await aiomysql.connect(
        host=HOST,
        port=port,
        user=server.user,
        password=server.password,
        db=schema,
        autocommit=True,
    )
    session = _Wire(connection)
    await session.run("SET SESSION innodb_lock_wait_timeout = 1")
    return session


class _Wire:
    """A session in MySQL's protocol."""

    ways = (FETCH,)

    def __init__(self, connection: aiomysql.Connection) -> None:
        self._connection = connection

    async def read(self, sql: str, way: str, parts: Sequence[str] = ()) -> list[int]:
        async with self._connection.cursor() as cursor:
            await cursor.execute(sql)
            return [int(value) for row in await cursor.fetchall() for value in row]

    async def run(self, sql: str) -> int:
        async with self._connection.cursor() as cursor:
            await cursor.execute(sql)
            made: int = cursor.lastrowid
            return made

    def close(self) -> None:
        self._connection.close()


class _Told:
    """A session at an app that does what it is told, line by line."""

    ways = (FETCH, FUNCTION, NESTED, PARTS, TRANSACTION)

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection(HOST, port))

    async def read(self, sql: str, way: str, parts: Sequence[str] = ()) -> list[int]:
        values: list[int] = await self._tell({"read": sql, "way": way, "parts": [*parts]})
        return values

    async def run(self, sql: str) -> int:
        made: int = await self._tell({"run": sql})
        return made

    async def _tell(self, what: Mapping[str, Any]) -> Any:
        if self._writer.is_closing():  # uvloop would raise what is no OSError
            raise ConnectionResetError("the app has gone")
        self._writer.write(json.dumps(what).encode() + b"\n")
        line = await self._reader.readline()
        if not line:
            raise ConnectionResetError("the app has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise aiomysql.MySQLError(*answer["error"])
        return answer["value"]

    def close(self) -> None:
        self._writer.transport.abort()
