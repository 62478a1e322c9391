"""Whose turn it is to follow the log, of all processes that share the memcached nodes; and where
the last one was.

- The turn is an item with a short TTL on the first node, in the order of their names, that answers.
  Its holder renews it; where it is gone, the first to add it is the next. Two at once, as while a
  node is cut off from some, bump twice: that costs, and harms nobody.
- The place is on every node. It is written when all up to it has been bumped, by whomever, so an
  older one is as right as a newer one. It lapses: a log of hours is not worth reading again.
"""

import secrets
from dataclasses import dataclass
from typing import Final

from sqlcache.binlog.transactions import Place
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.placement import TagPlacement
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.protocol import STORED, Reply, flag_of, meta_delete, meta_get, meta_set

TURN_TTL_S: Final = 3
RENEWED_EVERY_S: Final = 0.5
_PLACE_TTL_S: Final = 3_600
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


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose turn it is. `lag_s` is what its holder says; None where nobody has it, or is known
    to. `reading` tells what its holder reads now from all else that is read of any log; empty where
    it reads nothing."""

    own: bool
    lag_s: float | None
    reading: bytes = b""


class Turns:
    """One process's part in that."""

    def __init__(self, cluster: Cluster, keyspace: Keyspace) -> None:
        self._cluster = cluster
        self._placement = TagPlacement(cluster, keyspace)
        self._turn, self._place = keyspace.binlog(turn=True), keyspace.binlog(turn=False)
        self._id = secrets.token_hex(8).encode()
        self._readings = 0
        self.reading = b""
        """See `Turn`: that of this process, while it has the turn."""
        self._names = sorted(cluster.nodes)

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
            if whose != self._id:
                told_s = int(told) / 1000 if told.isdigit() else None
                return Turn(own=False, lag_s=told_s, reading=holder if reads else b"")
            cas = int(flag_of(found[2], b"c") or 0)
            renewed = meta_set(self._turn, said, ttl_s=TURN_TTL_S, cas=cas)
            (reply,) = await self._ask(name, renewed)
            own = reply is None or reply[0] == STORED
            return Turn(own=own, lag_s=lag_s if own else None, reading=self.reading if own else b"")
        return Turn(own=wants, lag_s=None)  # no node answers: there is nobody to agree with

    def begin_reading(self) -> None:
        """A connection on which the log comes has begun: what is committed from here on comes on
        it, as long as it lasts."""
        self._readings += 1
        self.reading = b"%b%b%d" % (self._id, _READS, self._readings)

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

    async def remember(self, remembered: Remembered) -> None:
        """All up to there has been bumped."""
        item = meta_set(self._place, bytes(remembered), ttl_s=_PLACE_TTL_S)
        routes = map(self._placement.root_key, self._names)
        await self._cluster.ask([(route, item) for route in routes])

    async def remembered(self) -> list[Remembered]:
        """What the nodes that answer have."""
        routes = map(self._placement.root_key, self._names)
        replies = await self._cluster.ask([(route, meta_get(self._place)) for route in routes])
        told = [Remembered.read(r[1][:_LONGEST_BYTES]) for r in replies if r and r[1]]
        return [each for each in told if each is not None]

    async def _ask(self, name: str, *requests: bytes) -> list[Reply | None]:
        route = self._placement.root_key(name)
        return await self._cluster.ask([(route, request) for request in requests])
