"""Up to where each node has been told of what the log says.

A node has a place only where all that the log tells up to there has been bumped on it. So the place
that is on a node when it is back, whatever became of it and of all processes meanwhile, says what
it may have missed:

- It is written to a node that is owed no bump by this process, and that has the place which this
  process wrote there last, or a later one; or, as it wrote none yet, the one from which it goes on.
- A node with an older place was away while others followed the log, or has the memory of an earlier
  time: the log is followed again from there.
- A node with none, or one of another log, is disowned first.
"""

import logging
from typing import Protocol

from sqlcache.binlog.source import order
from sqlcache.binlog.turns import Kept, Remembered, Turns
from sqlcache.metrics import Metrics

log = logging.getLogger(__name__)


class Nodes(Protocol):
    """What is to be known of the nodes, and done to them."""

    def owes(self, node: str) -> bool:
        """Whether this process has something to tell the node yet."""

    async def disown(self, node: str) -> bool:
        """Forgets all that the node remembers; whether that could be done."""


class Places:
    """One process's part in that."""

    def __init__(self, turns: Turns, nodes: Nodes, metrics: Metrics) -> None:
        self._turns = turns
        self._nodes = nodes
        self._metrics = metrics
        self._from: Remembered | None = None
        self._written: dict[str, Remembered] = {}

    async def earliest(self, server: str) -> Remembered | None:
        """From where on nothing is missing on any node that answers and has a place in the log of
        this server."""
        kept = await self._turns.kept()
        found = [had.place for had in kept.values() if had.place and had.place.server == server]
        return min(found, key=lambda each: order(each.place), default=None)

    def begin(self, start: Remembered | None) -> None:
        """From there on this process bumps all; None where everything is forgotten: all nodes have
        been told, or this process owes it to them."""
        self._from = start
        self._written.clear()

    async def remember(self, place: Remembered) -> bool:
        """All up to there has been bumped, or is owed. False where a node is to be told again of
        what comes before."""
        kept = await self._turns.kept()
        told: dict[str, Kept] = {}
        for name, had in kept.items():
            if self._nodes.owes(name):
                continue
            base = self._written.get(name, self._from)
            if base is not None and not _reaches(had.place, base):
                if had.place is not None and not _is_of_another_log(had.place, base):
                    log.warning("a memcached node knows less of the binary log node=%s", name)
                    return False
                if not await self._disown(name):
                    continue
            told[name] = had
        for name in await self._turns.keep(place, told):
            self._written[name] = place
        return True

    async def _disown(self, name: str) -> bool:
        done = await self._nodes.disown(name)
        if done:
            self._metrics.binlog_nodes_disowned += 1
            log.warning("disowned: how much of the log it knows is not known node=%s", name)
        return done


def _reaches(place: Remembered | None, base: Remembered) -> bool:
    """Whether all up to `base` has been bumped where this is the place."""
    if place is None or _is_of_another_log(place, base):
        return False
    return order(place.place) >= order(base.place)


def _is_of_another_log(place: Remembered, base: Remembered) -> bool:
    """Whether no log has both: a file of a log is begun when the one before it ends."""
    if place.server != base.server:
        return True
    (file, _), (other, _) = order(place.place), order(base.place)
    if file == other and place.place[0] != base.place[0]:
        return True
    if not (place.made and base.made):
        return False
    later = (place.made > base.made) - (place.made < base.made)
    if file == other:
        return later != 0
    return later == (-1 if file > other else 1)
