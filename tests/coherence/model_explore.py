"""Goes through every interleaving of a small case, or through some of a large one.

A move is one batch that a node carries out and whose replies arrive, or one statement that MySQL
carries out. That a reply arrives later than that makes no difference: until then its session does
nothing, and what it does next can itself come later.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.coherence.model_search import Violation, run
from tests.coherence.model_world import PLAIN, Action, Shape, World

Script = tuple[Action, ...]
"""What one session does, one after another: reads and writes."""


@dataclass(frozen=True, slots=True)
class Case:
    """Sessions side by side, after `before`. One of `faults` may happen at any point, once.

    With `finely` each request to a node is a move of its own. `ticks` are times that pass at any
    points, in order.
    """

    sessions: tuple[Script, ...]
    before: Script = ()
    faults: Script = ()
    after: Script = ()
    shape: Shape = PLAIN
    finely: bool = False
    ticks: tuple[float, ...] = ()


def explore(case: Case, *, most: int) -> tuple[int, Violation | None]:
    """How many interleavings there are, and the first that breaks a promise. Raises:
    AssertionError if there are more than `most`."""
    path: list[int] = []
    for number in range(1, most + 1):
        walk = _Walk(case, path)
        violation = run(case.shape, walk.actions)
        if violation is not None:
            return number, violation
        path = walk.next_path()
        if not path:
            return number, None
    raise AssertionError(f"more than {most} interleavings")


def draw(case: Case, *, times: int, seed: int) -> Violation | None:
    """The first of so many interleavings, drawn by chance, that breaks a promise."""
    chance = random.Random(seed)
    for _ in range(times):
        violation = run(case.shape, _Walk(case, [], chance).actions)
        if violation is not None:
            return violation
    return None


class _Session:
    """Begins each of its operations when the one before has ended."""

    def __init__(self, script: Script) -> None:
        self._script = iter(script)
        self._current: str | None = None

    def due(self, world: World) -> Iterator[Action]:
        while self._current not in world.open and (action := next(self._script, None)):
            self._current = str(action[-1])
            yield action


class _Walk:
    """One interleaving: takes the choices of `path`, and from its end on the first, or any."""

    def __init__(self, case: Case, path: list[int], chance: random.Random | None = None) -> None:
        self._case = case
        self._path = path
        self._chance = chance
        self._taken: list[tuple[int, int]] = []  # choice, and of how many

    def actions(self, world: World) -> Iterator[Action]:
        yield from self._case.before
        sessions = [_Session(script) for script in self._case.sessions]
        faults = list(self._case.faults)
        ticks: list[Action] = [("tick", seconds) for seconds in self._case.ticks]
        while True:
            for session in sessions:
                yield from session.due(world)
            moves = world.moves(1 if self._case.finely else 1_000)
            if not (moves or ticks):
                break
            chosen = self._choose([*moves, *faults, *ticks[:1]])
            yield chosen
            if chosen in faults:
                faults.clear()
            elif chosen in ticks:
                ticks.pop(0)
        yield from self._case.after

    def _choose(self, moves: list[Action]) -> Action:
        place = len(self._taken)
        if place < len(self._path):
            choice = self._path[place]
        else:
            choice = self._chance.randrange(len(moves)) if self._chance else 0
        self._taken.append((choice, len(moves)))
        return moves[choice]

    def next_path(self) -> list[int]:
        """The choices of the next interleaving; none after the last."""
        taken = self._taken
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        return [choice for choice, _ in taken[:-1]] + [taken[-1][0] + 1] if taken else []
