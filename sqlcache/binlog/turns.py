"""Whose turn it is to follow the log, of all processes that share the memcached nodes; and where
the last one was.

- The turn is an item with a short TTL on the first node, in the order of their names, that answers.
  Its holder renews it; where it is gone, the first to add it is the next. Two at once, as while a
  node is cut off from some, bump twice: that costs, and harms nobody.
- The place is on every node. It is written when all up to it has been bumped there, by whomever, so
  an older one is as right as a newer one; see `places`. It lapses: a log of days is not worth
  reading again.
"""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlcache.binlog.change import Place
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.placement import TagPlacement
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.protocol import (
    FOUND,
    MAX_TTL_S,
    STORED,
    Reply,
    flag_of,
    meta_delete,
    meta_get,
    meta_set,
)

TURN_TTL_S: Final = 3
RENEWED_EVERY_S: Final = 0.5
_SURELY_OVER_S: Final = 2 * TURN_TTL_S
"""When a turn that nobody renews is over even if its item lives: a clock was set back."""
_PLACE_TTL_S: Final = 86_400
_LONGEST_BYTES: Final = 1_024
_READS: Final = b"."  # stands before the number of its reading in what the holder says of itself


@dataclass(frozen=True, slots=True)
class Remembered:
    """A place in the log of a server, with when its file was begun by that server's clock."""

    server: str
    place: Place
    made: int

    def __bytes__(self) -> bytes:
        file, at = self.place
        return "\t".join((self.server, file, str(at), str(self.made))).encode()

    @classmethod
    def read(cls, told: bytes) -> "Remembered | None":
        """None for what is none."""
        try:
            server, file, at, made = told.decode().split("\t")
            return cls(server, (file, int(at)), int(made))
        except ValueError:
            return None


class Kept(NamedTuple):
    """The place that a node has, None if it has none, and which of its writings that is."""

    place: Remembered | None
    cas: int


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose turn it is. `lag_s` is what its holder says; None where nobody has it, or is known
    to. `renewed`: its holder has renewed it since this process looked first. `reading` tells what
    its holder reads now from all else that is read of any log; empty where it reads nothing."""

    own: bool
    lag_s: float | None
    renewed: bool = False
    reading: bytes = b""


class Turns:
    """One process's part in that."""

    def __init__(self, cluster: Cluster, keyspace: Keyspace) -> None:
        self._cluster = cluster
        self._placement = TagPlacement(cluster, keyspace)
        self._turn, self._place = keyspace.binlog(turn=True), keyspace.binlog(turn=False)
        self._unlogged = keyspace.unlogged()
        self._id = secrets.token_hex(8).encode()
        self._readings = 0
        self.reading = b""
        """See `Turn`: that of this process, while it has the turn."""
        self._names = sorted(cluster.nodes)
        self._loop = asyncio.get_running_loop()
        self._other = _Holder(b"", 0, self._loop.time(), renewed=False)

    async def look(self, lag_s: float | None, *, wants: bool) -> Turn:
        """Renews the own turn, or takes it where nobody has it and this process `wants` it. `lag_s`
        is how far it is behind; None where it does not follow the log yet."""
        said = self.reading or self._id
        if lag_s is not None:
            said = b"%b %d" % (said, int(lag_s * 1000))
        for name in self._names:
            (found,) = await self._ask(name, meta_get(self._turn, b"v c"))
            if found is None:
                continue
            if found[1] is None:
                return await self._take(name, said) if wants else Turn(own=False, lag_s=None)
            holder, _, told = found[1][:_LONGEST_BYTES].partition(b" ")
            whose, reads, _ = holder.partition(_READS)
            cas = int(flag_of(found[2], b"c") or 0)
            if whose != self._id:
                other = self._watched(whose, cas)
                if not wants or self._loop.time() - other.since < _SURELY_OVER_S:
                    lag_s = int(told) / 1000 if told.isdigit() else None
                    reading = holder if reads else b""
                    return Turn(own=False, lag_s=lag_s, renewed=other.renewed, reading=reading)
            renews = meta_set(self._turn, said, ttl_s=TURN_TTL_S, cas=cas)
            (reply,) = await self._ask(name, renews)
            own = reply is None or reply[0] == STORED
            return Turn(own=own, lag_s=lag_s if own else None, reading=self.reading if own else b"")
        return Turn(own=wants, lag_s=None)  # no node answers: there is nobody to agree with

    def begin_reading(self) -> None:
        """A connection on which the log comes has begun: what is committed from here on comes on
        it, as long as it lasts."""
        self._readings += 1
        self.reading = b"%b%b%d" % (self._id, _READS, self._readings)

    def _watched(self, id: bytes, cas: int) -> "_Holder":
        """Another's turn as it was seen to be renewed."""
        before = self._other
        if (id, cas) != before[:2]:
            renewed = id == before.id
            self._other = _Holder(id, cas, self._loop.time(), renewed=renewed)
        return self._other

    async def _take(self, name: str, said: bytes) -> Turn:
        claim = meta_set(self._turn, said, mode=b"E", ttl_s=TURN_TTL_S)
        (reply,) = await self._ask(name, claim)
        return Turn(own=reply is not None and reply[0] == STORED, lag_s=None)

    async def leave(self) -> None:
        """Lets another have the turn at once, if this process has it."""
        for name in self._names:
            (found,) = await self._ask(name, meta_get(self._turn, b"v c"))
            if found is not None and found[1] is not None and found[1].startswith(self._id):
                cas = int(flag_of(found[2], b"c") or 0)
                await self._ask(name, meta_delete(self._turn, cas=cas))

    async def kept(self) -> dict[str, Kept]:
        """The places on the nodes that answer."""
        look = meta_get(self._place, b"v c")
        replies = await self._cluster.ask([(self._route(name), look) for name in self._names])
        return {
            name: _kept(reply)
            for name, reply in zip(self._names, replies, strict=True)
            if reply is not None
        }

    async def keep(self, place: Remembered, over: Mapping[str, Kept]) -> list[str]:
        """All up to there has been bumped on these nodes, which have had these places until now.
        Returns those that have taken it."""
        requests = [
            (
                self._route(name),
                meta_set(self._place, bytes(place), ttl_s=_PLACE_TTL_S, cas=had.cas)
                if had.cas
                else meta_set(self._place, bytes(place), ttl_s=_PLACE_TTL_S, mode=b"E"),
            )
            for name, had in over.items()
        ]
        replies = await self._cluster.ask(requests)
        told = zip(over, replies, strict=True)
        return [name for name, reply in told if reply is not None and reply[0] == STORED]

    async def mark_unlogged(self) -> None:
        """From here on clients may write what is not in the log: says so on the nodes."""
        item = meta_set(self._unlogged, b"", ttl_s=MAX_TTL_S)
        await self._cluster.ask([(self._route(name), item) for name in self._names])

    async def any_unlogged(self) -> bool:
        """Whether some node that answers says so."""
        look = meta_get(self._unlogged, b"")
        replies = await self._cluster.ask([(self._route(name), look) for name in self._names])
        return any(reply is not None and reply[0] == FOUND for reply in replies)

    def _route(self, name: str) -> bytes:
        return self._placement.root_key(name)

    async def _ask(self, name: str, *requests: bytes) -> list[Reply | None]:
        return await self._cluster.ask([(self._route(name), request) for request in requests])


class _Holder(NamedTuple):
    """Who has the turn, as it was written last, and when; `renewed` by that."""

    id: bytes
    cas: int
    since: float
    renewed: bool


def _kept(reply: Reply) -> Kept:
    if reply[1] is None:
        return Kept(None, 0)
    return Kept(Remembered.read(reply[1][:_LONGEST_BYTES]), int(flag_of(reply[2], b"c") or 0))
