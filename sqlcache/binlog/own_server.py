"""Whether the log that others follow is that of this process's server: what it tells is of no use
else. Servers share memcached nodes only by mistake."""

import asyncio
from contextlib import suppress
from typing import Final

from sqlcache.binlog.source import Connect, Source
from sqlcache.binlog.turns import Turns
from sqlcache.errors import UpstreamError

_ASK_AGAIN_S: Final = 5.0


class OwnServer:
    """One process's. `stand_in`: servers stand in for one another, and the log of any tells of
    all."""

    def __init__(self, connect: Connect, turns: Turns, *, stand_in: bool) -> None:
        self._connect = connect
        self._turns = turns
        self._stand_in = stand_in
        self._loop = asyncio.get_running_loop()
        self._identity = ""  # as it was asked for last
        self._asked_at = float("-inf")

    async def is_not_followed(self) -> bool:
        """Whether who has the turn follows another server's log, as far as is known."""
        kept = (await self._turns.kept()).values()
        followed = {had.place.server for had in kept if had.place is not None}
        if self._stand_in or not followed or self._identity in followed:
            return False
        if self._loop.time() - self._asked_at > _ASK_AGAIN_S:
            self._asked_at = self._loop.time()
            with suppress(UpstreamError):
                source = await Source.open(self._connect)
                self._identity = source.identity
                source.close()
        return bool(self._identity) and self._identity not in followed
