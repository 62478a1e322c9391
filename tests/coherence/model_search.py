"""Searches for a history that breaks the law: by chance, one after another, and then cut down.

A schedule is found by drawing each action from those that make sense at its point; running it again
takes the same actions in order, and skips what makes no sense any more. So any part of a schedule
is a schedule, and the shortest one that still breaks the law is easy to read.
"""

import gc
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from zlib import crc32

import pytest

from sqlcache.cache.fence import Fence
from sqlcache.cache.reads import TagSet
from sqlcache.cache.tags import Tag
from sqlcache.memcache import connection
from tests.coherence import model_rows
from tests.coherence.model_mysql import EVERYTHING, QUERIES
from tests.coherence.model_network import Lameness
from tests.coherence.model_rows import NUMBERING, WRITES
from tests.coherence.model_sessions import ALL_PROBED, LATE, NARROW, PROBED, STYLES
from tests.coherence.model_world import (
    LONGEST_WAIT_S,
    WITNESS,
    Action,
    Shape,
    Stale,
    World,
)

_TIMES = {False: (0, 0, 1, 2), True: (3, 5)}

Schedule = Sequence[Action]


@dataclass(frozen=True, slots=True)
class Profile:
    """What is drawn.

    `shapes` are tried in turn. `faults` of an example are a few of these, drawn for each.
    """

    shapes: tuple[Shape, ...]
    faults: tuple[str, ...] = ()
    steps: int = 60
    slow: bool = False
    """Network and database rest more often, and time passes: for what takes seconds."""

    @property
    def rows(self) -> bool:
        """Whether it is about tables of rows."""
        return any(shape.rows for shape in self.shapes)

    @property
    def leases(self) -> bool:
        """Whether there are read leases, for which moments matter."""
        return any(shape.read_lease_s for shape in self.shapes)


@dataclass(frozen=True, slots=True)
class Violation:
    """A schedule that breaks a promise, and what happened in it."""

    shape: Shape
    schedule: Schedule
    reason: str
    history: tuple[str, ...]
    seed: int | None = None

    def __str__(self) -> str:
        actions = "\n".join(f"    {action}," for action in self.schedule)
        found = f"seed {self.seed}: " if self.seed is not None else ""
        return f"{found}{self.reason}\n{self.shape}\n{actions}\n" + "\n".join(self.history)


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """What is drawn by chance, and the order of sets, is the same in every run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", random.Random(seed).randbytes)
        patch.setattr(connection, "random", random.Random(seed))
        patch.setattr(Tag, "__hash__", lambda tag: _hash(tag.schema, tag.table, tag.node))
        patch.setattr(TagSet, "__hash__", lambda tag_set: hash(tag_set.tags))
        patch.setattr(Fence, "__hash__", lambda fence: int.from_bytes(fence.id))
        yield


@cache
def _hash(*names: str) -> int:
    return crc32("/".join(names).encode())


def search(profile: Profile, seeds: Iterable[int]) -> Violation | None:
    """The first violation, as it was found; None if no seed brings one."""
    for seed in seeds:
        shape = profile.shapes[seed % len(profile.shapes)]
        drawing = _Drawing(profile, random.Random(seed))
        violation = run(shape, drawing.actions, seed=seed)
        if seed % 20 == 0:
            gc.collect()  # worlds are full of cycles
        if violation is not None:
            return violation
    return None


def run(
    shape: Shape, actions: Callable[[World], Iterable[Action]], *, seed: int | None = None
) -> Violation | None:
    """Runs a world; what it broke."""
    taken: list[Action] = []
    reason: str | None = None
    with reproducible(0):
        world = World(shape)
        try:
            for action in actions(world):
                # Before it is known to make sense: what raises must be in the schedule.
                taken.append(action)
                if not world.do(action):
                    taken.pop()
        except Stale as stale:
            reason = str(stale)
        finally:
            reason = reason or "; ".join(world.problems())
            world.close()
    return Violation(shape, taken, reason, tuple(world.history), seed) if reason else None


def replay(shape: Shape, schedule: Schedule) -> Violation | None:
    """Runs a schedule."""
    return run(shape, lambda _: schedule)


def shortest(found: Violation) -> Violation:
    """The schedule without all it needs not to break the law."""
    size = max(len(found.schedule) // 2, 1)
    while True:
        smaller = _without_some(found, size)
        if smaller is not None:
            found = smaller
        elif size == 1:
            return found
        else:
            size //= 2


def _without_some(found: Violation, size: int) -> Violation | None:
    for at in range(0, len(found.schedule), size):
        rest = [*found.schedule[:at], *found.schedule[at + size :]]
        smaller = replay(found.shape, rest)
        if smaller is not None and len(smaller.schedule) < len(found.schedule):
            return smaller
    return None


class _Drawing:
    """Draws a schedule. Each has its own habits: how many faults, how lively, how hasty."""

    def __init__(self, profile: Profile, chance: random.Random) -> None:
        self._chance = chance
        self._steps = profile.steps
        self._number = 0
        self._probes = chance.choice((0, 6, 12)) if profile.rows else 0
        self._knows_logs = profile.rows and chance.random() < 0.8
        self._probed = chance.choice((PROBED, ALL_PROBED))
        # Each example has few kinds of faults: with all at once nothing ever works.
        count = chance.randint(min(1, len(profile.faults)), min(3, len(profile.faults)))
        self._faults = chance.sample(profile.faults, count)
        self._weights = {
            self._motion: 1 if profile.slow else chance.choice((6, 12, 24)),
            self._rest: 2 if profile.slow else chance.choice((0, 0, 1)),
            self._time: chance.choice(_TIMES[profile.leases or profile.slow]),
            self._fills: chance.choice((1, 2)),
            self._reads: chance.choice((1, 2)),
            self._writes: chance.choice((1, 2, 4)),
            self._fault: chance.choice((1, 3)) if self._faults else 0,
            self._slots: 1 if profile.rows else 0,
            self._compactions: 1 if profile.rows else 0,
        }

    def actions(self, world: World) -> Iterator[Action]:
        self._world = world
        self._processes = [name for name in world.processes if name != WITNESS]
        yield from self._slots()
        if self._knows_logs:
            yield from self._known_logs()
        yield from self._fills()
        kinds, weights = list(self._weights), list(self._weights.values())
        for _ in range(self._chance.randint(5, self._steps)):
            yield from self._chance.choices(kinds, weights)[0]()
        yield ("finish",)

    def _fills(self) -> Iterator[Action]:
        yield "hurry", *self._read()

    def _reads(self) -> Iterator[Action]:
        yield self._read()

    def _read(self) -> Action:
        process = self._process()
        query = self._chance.choices(QUERIES, (8, 2, 1))[0]
        if self._world.shape.rows:
            query = self._chance.choices(model_rows.QUERIES, (2, *8 * (4,)))[0]
        return "read", process, query, self._name(process)

    def _writes(self) -> Iterator[Action]:
        hurry = ("hurry",) if self._chance.random() < 0.3 else ()
        yield *hurry, *self._write()

    def _write(self) -> Action:
        process = self._process()
        if self._world.shape.rows:
            shape = self._world.shape
            probed = 0 if shape.loses_fences and shape.outlived else self._probes
            styles = (NARROW, self._probed, "plain", "straight", "undo")
            style = self._chance.choices(styles, (12 - probed, probed, 1, 1, 1))[0]
            write = self._chance.choice(WRITES)
            if self._probed == ALL_PROBED and write == NUMBERING:
                write = "set k0"
            return "write", process, write, style, self._name(process)
        late = int(self._world.shape.loses_fences)
        style = self._chance.choices((*STYLES, LATE), (4, 1, 2, 6, 1, late))[0]
        what = self._chance.choices([*QUERIES, EVERYTHING], (8, 1, 1, 1))[0]
        return "write", process, what, style, self._name(process)

    def _slots(self) -> Iterator[Action]:
        if self._world.shape.rows:
            for letter in self._chance.sample("ikuj", self._chance.randint(1, 4)):
                yield "slot", self._process(), letter
                yield ("settle",)

    def _known_logs(self) -> Iterator[Action]:
        """All have known the tables' logs for long, as narrow writes ask for."""
        for process in self._processes:
            for query in (model_rows.TABLE, model_rows.JOINS[0]):
                yield "hurry", "read", process, query, self._name(process)
        yield ("know",)

    def _compactions(self) -> Iterator[Action]:
        yield "compact", self._process(), self._chance.choice("ij")

    def _process(self) -> str:
        return self._chance.choice(self._processes)

    def _name(self, process: str) -> str:
        self._number += 1
        return f"{process}:{self._number}"

    def _rest(self) -> Iterator[Action]:
        yield ("settle",)

    def _time(self) -> Iterator[Action]:
        lease_s = self._world.shape.read_lease_s
        if lease_s and self._chance.random() < 0.8:
            yield "tick", lease_s * self._chance.choice((0.3, 0.6, 1.05, 1.3))
        else:
            yield "pass", self._chance.choice((0.02, 0.3, 1.0))

    def _motion(self) -> Iterator[Action]:
        """Some requests, replies or a statement go on."""
        statements = list(self._world.database.statements)
        wires = [wire for wire in self._world.wires.values() if wire.requests or wire.replies]
        if statements and self._chance.random() < (0.3 if wires else 1):
            kind = self._chance.choices(("commit", "fail"), (5, 1))[0]
            yield kind, self._chance.choice(statements)
        elif wires:
            wire = self._chance.choice(wires)
            if wire.requests:
                yield "execute", wire.name, self._chance.choice((1_000, 1_000, 1))
            if wire.replies and self._chance.random() < 0.7:
                yield "deliver", wire.name
        else:
            yield from self._chance.choice((self._reads, self._writes))()

    def _fault(self) -> Iterator[Action]:
        """A fault, or the end of one of the same kind."""
        world, chance = self._world, self._chance
        node = chance.choice(list(world.nodes))
        process = self._process()
        fault = chance.choice(self._faults)
        match fault:
            case "evict":
                yield "evict", chance.choice(world.evictable() or ["leases"])
            case "kill" | "stop":
                yield "start" if world.processes[process].dead else fault, process
            case "freeze":
                yield "thaw" if world.processes[process].frozen else "freeze", process
            case "stall" | "down":
                end = "up" if fault == "down" else chance.choice(("resume", "rejoin"))
                yield from self._outage(node, fault, end)
            case "lame":
                yield from self._lameness(node)
            case "restart":
                yield "restart", node
            case "cut":
                yield "heal" if (process, node) in world.silent else "cut", process, node
            case "break" | "discard":
                yield fault, chance.choice(list(world.wires) or ["none"])
            case "late":
                yield from self._lateness()
            case "lose":
                yield "lose", chance.choice(list(world.database.statements) or ["none"])
            case _:
                raise ValueError(fault)

    def _lateness(self) -> Iterator[Action]:
        """No process gets a processor, at times while a node is silent, too."""
        node = self._chance.choice((*self._world.nodes, None))
        if node is not None:
            yield "stall", node
            yield from self._writes()
            yield "pass", self._chance.choice((0.02, 1.2, 2.6))
        processes = self._chance.sample(self._processes, self._chance.randint(1, 2))
        for process in processes:
            yield "freeze", process
        yield "pass", self._chance.choice((0.3, 1.6, 2.6, 6.0))
        if node is not None:
            yield self._chance.choice(("resume", "rejoin")), node
        for process in processes:
            yield "thaw", process
            yield "pass", self._chance.choice((0.0, 0.3, 1.0))
        yield from self._fills()
        yield "pass", self._chance.choice((0.3, 1.0))
        yield from self._fills()

    def _lameness(self, node: str) -> Iterator[Action]:
        """Often long enough that writes go on without the node, and often amid others' moves."""
        chance = self._chance
        end = chance.choice(("well", "rejoin"))
        if not self._world.nodes[node].is_well:
            yield end, node
            return
        yield "lame", node, chance.choice([each.name for each in Lameness])
        if chance.random() < 0.3:
            return
        yield "pass", chance.choice((0.02, 0.3, 1.2))
        write = self._write()
        yield write
        yield "pass", chance.choice((0.6, 2.6, *3 * (LONGEST_WAIT_S + 0.5,)))
        if chance.random() < 0.6:
            yield from self._writes()
            yield ("settle",)
        if chance.random() < 0.3:
            yield chance.choice(("kill", "freeze")), write[1]
        yield end, node
        yield "pass", chance.choice((0.02, 0.1, 0.5, 1.2, 4.5))
        yield from self._fills()
        yield ("settle",)
        yield from self._fills()

    def _outage(self, node: str, fault: str, end: str) -> Iterator[Action]:
        """Often long enough that a write goes on without the node, for that is what is delicate."""
        if not self._world.nodes[node].works:
            yield end, node
            return
        yield fault, node
        if self._chance.random() < 0.3:
            return
        yield "pass", self._chance.choice((0.02, 0.3, 0.6))
        write = self._write()
        yield write
        yield "pass", self._chance.choice((0.3, 1.2, 2.6, 2.6))
        if self._chance.random() < 0.6:
            yield ("settle",)
        if self._chance.random() < 0.3:
            yield self._chance.choice(("kill", "freeze")), write[1]
        yield end, node
        yield "pass", self._chance.choice((0.02, 0.1, 0.5, 1.2, 4.5))
        yield from self._fills()
        yield ("settle",)
        yield from self._fills()
