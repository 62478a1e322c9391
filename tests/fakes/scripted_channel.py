"""A channel whose peer says what it is told to, a packet each time something was written to it."""

import asyncio
from collections.abc import Iterable

from sqlcache.mysql.connection import Channel


class ScriptedChannel(Channel):
    """What is written to it is kept in `written`."""

    def __init__(self, packets: Iterable[bytes]) -> None:
        super().__init__(buffer_bytes=1 << 16)
        self._script = list(packets)
        self.written: list[bytes] = []
        self._say()

    def write(self, data: bytes | memoryview) -> None:
        self.written.append(bytes(data))
        asyncio.get_running_loop().call_soon(self._say)

    def _say(self) -> None:
        if self._script:
            self.data_received(self._script.pop(0))
