"""Faults, drawn from a seed, two at a time: what breaks, for how long, and when.

Those of `EVERYWHERE` every door sees alike; those of `ONE_SIDED` are cuts that one alone sees.
`FOLLOWERS` are about the door that follows the binary log, `OF_THE_LOG` about that and its server.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote_to_bytes

from sqlcache.cache.keys import FORMAT
from sqlcache.cache.log_records import read_log
from sqlcache.demo.servers import PrivateMemcached, PrivateSqlServer
from tests.coherence.live_doors import Door
from tests.coherence.live_links import Links, State
from tests.servers import begins_log_anew, purge_log

_AT_ONCE = 2
_UNTIL_OUT_S = 10.0  # for one that is reached again and again
_LENGTHS_S = (0.1, 0.5, 1.0, 3.0, 8.0)  # a fault lasts some part of one of these
_PAUSES_S = (0.1, 1.0, 10.0)  # likewise
_LOG_LINES = 40


class Kind(StrEnum):
    """What breaks."""

    KILLED = "killed"
    WORKER_KILLED = "worker killed"
    FROZEN = "frozen"
    NODE_KILLED = "node killed"
    NODE_FROZEN = "node frozen"
    FLUSHED = "node forgets all"
    EVICTED = "node evicts tags"
    REFUSED = "node refuses all"
    SILENT = "node silent to all"
    DEAF = "node answers none"
    LAME = "node answers no-ops alone"
    CUT = "connections to node cut"
    ONE_SLOW = "node slow to one"
    ONE_REFUSED = "node refuses one"
    ONE_SILENT = "node silent to one"
    ONE_DEAF = "node does not answer one"
    FOLLOWER_KILLED = "follower killed"
    FOLLOWER_FROZEN = "follower frozen"
    FOLLOWER_REFUSED = "MySQL refuses the follower"
    FOLLOWER_SILENT = "MySQL silent to the follower"
    FOLLOWER_ALONE = "all nodes silent to the follower"
    PURGED = "log purged under the follower"
    BEGUN_ANEW = "log begun anew"
    RESTARTED = "MySQL restarted"


ONE_SIDED = (Kind.ONE_REFUSED, Kind.ONE_SILENT, Kind.ONE_DEAF)
FOLLOWERS = (
    *(Kind.FOLLOWER_KILLED, Kind.FOLLOWER_FROZEN, Kind.FOLLOWER_REFUSED, Kind.FOLLOWER_SILENT),
)
OF_THE_LOG = (Kind.PURGED, Kind.BEGUN_ANEW, Kind.RESTARTED)
_AROUND = (*FOLLOWERS, Kind.FOLLOWER_ALONE, *OF_THE_LOG)
EVERYWHERE = tuple(kind for kind in Kind if kind not in ONE_SIDED and kind not in _AROUND)
FOLLOW = "binlog__follow"
"""The setting by which doors follow the log, all or none."""

_FREEZES = frozenset({Kind.FROZEN, Kind.NODE_FROZEN, Kind.FOLLOWER_FROZEN})
_OF_FOLLOWERS = frozenset({*FOLLOWERS, Kind.FOLLOWER_ALONE, Kind.PURGED})
_OF_MYSQL = frozenset({*OF_THE_LOG, Kind.FOLLOWER_REFUSED, Kind.FOLLOWER_SILENT})
_OF_DOORS = frozenset(
    {Kind.KILLED, Kind.WORKER_KILLED, Kind.FROZEN, Kind.FOLLOWER_KILLED, Kind.FOLLOWER_FROZEN}
)
_WAYS = {
    Kind.REFUSED: State.REFUSED,
    Kind.SILENT: State.SILENT,
    Kind.DEAF: State.DEAF,
    Kind.LAME: State.LAME,
    Kind.CUT: State.OPEN,
    Kind.ONE_SLOW: State.SLOW,
    Kind.ONE_REFUSED: State.REFUSED,
    Kind.ONE_SILENT: State.SILENT,
    Kind.ONE_DEAF: State.DEAF,
    Kind.FOLLOWER_REFUSED: State.REFUSED,
    Kind.FOLLOWER_SILENT: State.SILENT,
    Kind.FOLLOWER_ALONE: State.SILENT,
}


@dataclass(frozen=True, slots=True)
class _Fault:
    """`door` and `node` are what it is about; without a door, all of them.

    `loses`: what a broken way has held back is lost when it is mended.
    """

    kind: Kind
    door: int | None
    node: int | None
    length_s: float
    loses: bool

    @property
    def targets(self) -> set[tuple[str, int | None]]:
        """What no other fault may touch meanwhile."""
        return {(kind, n) for kind, n in (("d", self.door), ("n", self.node)) if n is not None}

    def __str__(self) -> str:
        numbers = {"door": self.door, "node": self.node}
        what = " ".join(f"{name} {n}" for name, n in numbers.items() if n is not None)
        return f"{self.kind}: {what} for {self.length_s:.1f} s"


class Faults:
    """Breaks things until it is told to stop, and then mends them."""

    def __init__(
        self,
        doors: Sequence[Door],
        nodes: Sequence[PrivateMemcached],
        links: Links,
        kinds: Sequence[Kind],
        seed: int,
        server: PrivateSqlServer,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.longest_s = 0.0
        self.log: deque[tuple[float, str]] = deque(maxlen=_LOG_LINES)
        """The latest: when each was over, and what it was."""
        self._doors = doors
        self._nodes = nodes
        self._links = links
        self._server = server
        self._kinds = kinds
        self._choose = random.Random(f"{seed} faults")
        self._with_workers = [
            number for number, door in enumerate(doors) if "proxy__workers" in door.settings
        ]
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Draws no more; `run` returns when all is mended."""
        self._stopped.set()

    async def run(self) -> None:
        """Breaks things and mends them again."""
        going_on: dict[asyncio.Task[None], _Fault] = {}
        while not self._stopped.is_set():
            fault = await self._draw()
            busy = set[tuple[str, int | None]]().union(*(f.targets for f in going_on.values()))
            if not fault.targets & busy:
                going_on[asyncio.create_task(self._make(fault))] = fault
            if len(going_on) >= _AT_ONCE:
                await asyncio.wait(going_on, return_when=asyncio.FIRST_COMPLETED)
            await self._sleep(self._choose.choice(_PAUSES_S) * self._choose.random())
            for task in [task for task in going_on if task.done()]:
                del going_on[task]
                task.result()
        await asyncio.gather(*going_on)

    async def _draw(self) -> _Fault:
        kind = self._choose.choice(self._kinds)
        doors = self._with_workers if kind is Kind.WORKER_KILLED else range(len(self._doors))
        door = self._choose.choice(doors)
        node = self._choose.randrange(len(self._nodes))
        # Mostly short: what matters happens at the beginning and at the end.
        length_s = self._choose.choice(_LENGTHS_S) * self._choose.random()
        if kind is Kind.LAME and self._choose.random() < 0.5:
            length_s += _UNTIL_OUT_S
        of_one = kind in _OF_DOORS or kind in ONE_SIDED or kind is Kind.ONE_SLOW
        if kind in _OF_FOLLOWERS:
            of_one, door = True, await self._follower()
        return _Fault(
            kind,
            door if of_one else None,
            # Behind the nodes is MySQL.
            None if kind in _OF_DOORS else len(self._nodes) if kind in _OF_MYSQL else node,
            length_s,
            loses=self._choose.random() < 0.5,
        )

    async def _follower(self) -> int:
        """The number of the door that follows the log, or of any."""
        told = await asyncio.gather(
            *(asyncio.to_thread(door.metrics) for door in self._doors), return_exceptions=True
        )
        does = [
            number
            for number, metrics in enumerate(told)
            if isinstance(metrics, dict) and metrics["sqlcache_binlog_following"]
        ]
        return self._choose.choice(does or range(len(self._doors)))

    async def _make(self, fault: _Fault) -> None:
        began = time.monotonic()
        if fault.node is None:
            assert fault.door is not None
            await self._break_door(fault, self._doors[fault.door])
        elif fault.kind in _WAYS:
            await self._break_way(fault, fault.node)
        elif fault.kind in OF_THE_LOG:
            await self._break_log(fault)
        elif fault.kind is Kind.FLUSHED:
            await asyncio.to_thread(self._nodes[fault.node].flush)
        elif fault.kind is Kind.EVICTED:
            await asyncio.to_thread(evict_tags, self._nodes[fault.node])
        else:
            await self._break_server(fault, self._nodes[fault.node])
        ended = time.monotonic()
        self.counts[self._name(fault)] += 1
        self.longest_s = max(self.longest_s, ended - began)
        self.log.append((ended, f"[{began:.3f}, {ended:.3f}] {fault}"))

    def _name(self, fault: _Fault) -> str:
        """What it is counted as."""
        if fault.door is None or fault.node is not None:
            return fault.kind
        return f"{self._doors[fault.door].kind} {fault.kind}"

    async def _break_door(self, fault: _Fault, door: Door) -> None:
        if fault.kind is Kind.WORKER_KILLED:
            for worker in door.workers()[:1]:
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(worker, signal.SIGKILL)
        else:
            await self._break_server(fault, door)

    async def _break_server(self, fault: _Fault, server: Door | PrivateMemcached) -> None:
        if fault.kind in _FREEZES:
            await self._for(fault.length_s, server.freeze, server.thaw)
        else:
            await asyncio.to_thread(server.kill)
            await self._sleep(fault.length_s)
            await asyncio.to_thread(server.restart)

    async def _break_way(self, fault: _Fault, node: int) -> None:
        broken = self._doors if fault.door is None else [self._doors[fault.door]]
        marks = [door.mark for door in broken]
        state = _WAYS[fault.kind]
        nodes = range(len(self._nodes)) if fault.kind is Kind.FOLLOWER_ALONE else [node]
        if state is State.OPEN:
            self._links.put(State.OPEN, marks, nodes, cut=True)
            return
        await self._for(
            fault.length_s,
            lambda: self._links.put(state, marks, nodes),
            lambda: self._links.put(State.OPEN, marks, nodes, cut=fault.loses),
        )

    async def _break_log(self, fault: _Fault) -> None:
        server = self._server
        if fault.kind is Kind.RESTARTED:  # in order: a crash may lose what was acknowledged
            await asyncio.to_thread(server.stop)
            await self._sleep(fault.length_s)
            await asyncio.to_thread(server.restart)
        elif fault.kind is Kind.BEGUN_ANEW:
            await asyncio.to_thread(server.sql, begins_log_anew(server))
        elif fault.door is not None:
            door = self._doors[fault.door]
            door.freeze()
            try:
                await asyncio.to_thread(purge_log, server)
                await self._sleep(fault.length_s)
            finally:
                door.thaw()

    async def _for(
        self, length_s: float, begin: Callable[[], None], end: Callable[[], None]
    ) -> None:
        begin()
        try:
            await self._sleep(length_s)
        finally:
            end()

    async def _sleep(self, length_s: float) -> None:
        """Or until it is told to stop."""
        try:
            async with asyncio.timeout(length_s):
                await self._stopped.wait()
        except TimeoutError:
            pass


def evict_tags(node: PrivateMemcached) -> int:
    """Makes it forget the tags of all tables that are not fenced; how many. What is promised where
    it forgets a fence, the model test knows."""
    listed = node.ask(b"lru_crawler metadump all\r\n", b"END\r\n").split()
    keys = [unquote_to_bytes(each[4:]) for each in listed if each.startswith(b"key=")]
    return sum(_evict_unless_fenced(node, key) for key in keys if b":t%d:" % FORMAT in key)


def _evict_unless_fenced(node: PrivateMemcached, key: bytes) -> bool:
    head, _, rest = node.ask(b"mg %b v c\r\nmn\r\n" % key, b"MN\r\n").partition(b"\r\n")
    kind, *told = head.split()
    if kind != b"VA" or read_log(rest[: int(told[0])]).fences:
        return False
    # Of what has changed since, as by a write that begins, it forgets nothing.
    return node.ask(b"md %b C%b\r\n" % (key, told[1][1:]), b"\r\n").startswith(b"HD")
