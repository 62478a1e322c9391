"""A memcached that misbehaves on purpose; the real one is the `memcached` fixture."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class ScriptedNode:
    """Answers each connection's first no-op as memcached does, then runs `script` on it.

    When the script returns the connection is closed. `connections` counts them.
    """

    def __init__(self) -> None:
        self.connections = 0
        self.port = 0
        self._script: Script | None = None
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def start(self, script: Script) -> None:
        self._script = script
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._serving[writer] = asyncio.current_task()
        assert self._script is not None
        try:
            assert await reader.readuntil(b"\r\n") == b"mn\r\n"
            writer.write(b"MN\r\n")
            await self._script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            del self._serving[writer]
            writer.close()

    async def stop(self) -> None:
        """Close every connection, and return when their scripts have seen it."""
        if self._server is not None:
            self._server.close()
        for writer in self._serving:
            writer.close()
        await asyncio.gather(*filter(None, self._serving.values()))


@pytest.fixture
async def scripted_node() -> AsyncIterator[ScriptedNode]:
    """A server that follows a script from its second request on."""
    node = ScriptedNode()
    yield node
    await node.stop()
