"""Up to where a process has followed the log, and when the nodes are told of it."""

import asyncio
from typing import Final

from sqlcache.binlog.change import Place
from sqlcache.binlog.places import Places
from sqlcache.binlog.source import Source, order
from sqlcache.binlog.turns import Remembered
from sqlcache.errors import BinlogGap

_REMEMBER_EVERY_S: Final = 0.1
_REMEMBER_AGAIN_S: Final = 0.5
"""The same place: a node may be back, and who has just started waits for it to be written."""


class NodeIsBehind(Exception):
    """A node is back which is to be told again of what comes before."""


class Bookmark:
    """One process's."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._loop = asyncio.get_running_loop()
        self.known: Remembered | None = None
        """All before that has been bumped; None where it is still to be asked from where on."""
        self._lost = ""  # why, where it has to be followed from its end
        self._told: Remembered | None = None  # the nodes
        self._told_at = float("-inf")

    @property
    def place(self) -> tuple[int, int]:
        """The number of the file up to which the log was followed, and where in that."""
        return order(self.known.place) if self.known is not None else (0, 0)

    def look_up(self) -> None:
        """The nodes are to be asked: another may have followed the log meanwhile."""
        self.known = None

    def lose(self, cause: str) -> None:
        """It is not known from where on to go on, for that `cause`."""
        self.known, self._lost = None, cause

    async def whence(self, source: Source) -> tuple[Remembered, str]:
        """Where to go on; and where that is the log's end, why."""
        known, cause = self.known, self._lost
        if known is None and not cause:
            known = await self._places.earliest(source.identity)
        if known is not None and known.server != source.identity:
            known, cause = None, "the server is another one"
        if known is None:
            known = Remembered(source.identity, await source.place(), 0)
            cause = cause or "it was not followed until now"
        return known, cause

    def begin(self, known: Remembered, *, forgotten: bool) -> None:
        """The log is sent from there on. `forgotten`: everything from before is."""
        if forgotten:
            self._places.begin(None)
        elif self.known is None:
            self._places.begin(known)
        self.known, self._lost = known, ""

    def compare(self, file: str, made: int) -> None:
        """The log goes on in this file, which was made then. Raises: BinlogGap where it is another
        one of the same name."""
        known = self.known
        if known is None or not known.made:
            return
        if known.place[0] == file and known.made != made:
            raise BinlogGap("the server has begun its log anew")

    def move(self, place: Place, made: int) -> bool:
        """All before that has been bumped, in a file that was made then; whether both are known by
        now."""
        if not place[0] or self.known is None or not made:
            return False
        self.known = Remembered(self.known.server, place, made)
        return True

    async def tell_nodes(self, done: Remembered | None) -> None:
        """Where whoever goes on is to begin, every so often. Raises: NodeIsBehind."""
        if self.known is None or done is None or not done.made:
            return
        now = self._loop.time()
        every_s = _REMEMBER_AGAIN_S if done == self._told else _REMEMBER_EVERY_S
        if now - self._told_at < every_s:
            return
        self._told, self._told_at = done, now
        if not await self._places.remember(done):
            raise NodeIsBehind
