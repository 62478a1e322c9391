"""What clients did and saw, checked against the guarantee while it happens.

A register is a row whose value every committed write makes larger by one. So the order of its
values is the order of its commits, whoever wrote and whatever became of the writer, and a write
whose outcome nobody knows needs no guess: it counts from when a read has shown it.

- A read is never older than a write that was acknowledged before it began.
- Nor is it older than what a read returned that had ended before it began.
- What one transaction reads, under REPEATABLE READ, is of one moment.
- A value that was rolled back, or that no write can have made yet, is never seen; nor is one half
  of a transaction.
- Registers that are written around sqlcache, too, may be older for a while than what was written so
  or read: for less than `Around.bound_s`. For how long they were is kept. What was written through
  sqlcache binds the next read as ever; of one moment they need not be.

Times are one clock's seconds. Events are told in the order in which they happened; telling of a
beginning early or of an end late only makes the check milder.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

ROLLED_BACK = 1_000_000_000
"""Transactions that will be rolled back add this to a value."""

_REMEMBERED = 4_096  # raises of one register's floor

Register = str
Group = tuple[Register, ...]
"""Registers whose values an answer gives as one sum; mostly it is a single one."""


@dataclass(frozen=True, slots=True)
class Raise:
    """From `at` on, a read of the register must return at least `value`; `by` is why."""

    value: int
    at: float
    by: str
    written: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """A read or write that has begun. `floors` are what its groups must at least return."""

    what: str
    begin: float
    groups: tuple[Group, ...]
    floors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Violation:
    """An answer that must not have been. `behind_s` is for how long it had been out of date."""

    kind: str
    group: Group
    returned: int
    expected: int
    operation: str
    begin: float
    end: float
    why: str
    behind_s: float = 0

    def __str__(self) -> str:
        return (
            f"{self.kind}: {self.operation} [{self.begin:.4f}, {self.end:.4f}] returned"
            f" {self.returned} for {'+'.join(self.group)}, not {self.expected}: {self.why}"
            f" ({self.behind_s * 1000:.1f} ms before)"
        )


class Around:
    """What is known of registers that are written around sqlcache, and when that must be seen."""

    def __init__(self, registers: Iterable[Register], bound_s: float) -> None:
        self.bound_s = bound_s
        self.late_s: dict[tuple[Group, int], tuple[float, float]] = {}
        """Of each such write: when it was acknowledged, and how long after that the last read began
        that did not show it; 0 where there was none."""
        self._registers = frozenset(registers)
        self._known: dict[Group, deque[Raise]] = {}
        self._written: dict[Group, deque[Raise]] = {}

    def __contains__(self, group: Group) -> bool:
        return not self._registers.isdisjoint(group)

    def add(self, group: Group, raised: Raise) -> None:
        """That is known; reads that begin `bound_s` later must show it."""
        _append(self._known, group, raised)
        if raised.written:
            _append(self._written, group, raised)
            self.late_s[group, raised.value] = raised.at, 0.0

    def due(self, group: Group, at: float) -> int:
        """What a read that begins then must at least return, by this alone."""
        known = self._known.get(group, ())
        seen = bisect_right(known, at - self.bound_s, key=lambda raised: raised.at)
        return known[seen - 1].value if seen else 0

    def note(self, group: Group, value: int, begin: float) -> None:
        """A read that began then returned this."""
        for raised in reversed(self._written.get(group, ())):
            if raised.value <= value:
                return
            if raised.at < begin:
                late_s = max(self.late_s[group, raised.value][1], begin - raised.at)
                self.late_s[group, raised.value] = raised.at, late_s

    def overdue(self, group: Group, value: int, at: float) -> Raise | None:
        """What should have shown to a read that began then that this is out of date."""
        newer = next((each for each in self._known.get(group, ()) if each.value > value), None)
        return newer if newer is not None and newer.at <= at - self.bound_s else None


class Checker:
    """Takes the events of all clients and finds the violations. `initial` has every register."""

    def __init__(self, initial: Mapping[Register, int], around: Around | None = None) -> None:
        self.violations: list[Violation] = []
        self._around = around or Around((), 0)
        self._begun = dict(initial)  # the highest value the writes begun so far can have made
        self._raises: dict[Group, deque[Raise]] = {}
        for register, value in initial.items():
            self._raise((register,), Raise(value, float("-inf"), "the beginning", written=True))

    def begin_read(self, what: str, groups: Sequence[Group], at: float) -> Operation:
        """A client is about to ask."""
        floors = (max(self._floor(group), self._due(group, at)) for group in groups)
        return Operation(what, at, tuple(groups), tuple(floors))

    def end_read(
        self, read: Operation, values: Sequence[int], at: float, *, alike: bool = False
    ) -> None:
        """The client has the whole answer: one value for each of the groups asked for.

        `alike`: all of them are written together only, so they are one value.
        """
        if alike and len(set(values)) > 1:
            self._blame("torn", read, read.groups[0], min(values), max(values), at, "one half")
        for group, floor, value in zip(read.groups, read.floors, values, strict=True):
            if value >= ROLLED_BACK:
                self._blame("rolled back", read, group, value, floor, at, "it was never committed")
            elif value > (highest := sum(self._begun[register] for register in group)):
                why = "no write had begun that makes it"
                self._blame("from nowhere", read, group, value, highest, at, why)
            else:
                self._end_read(read, group, floor, value, at)

    def is_of_moment(
        self,
        read: Operation,
        values: Mapping[Group, int],
        at: float,
        moment: dict[Group, int],
        least: Set[Group] = frozenset(),
    ) -> None:
        """Of a read that has ended in a transaction, which has read `moment` before; takes these
        in, but for those of which it has told no more than what they are at `least`."""
        for group, value in values.items():
            known = moment.get(group, value)
            if group not in least:
                moment[group] = known
            if value != known and group not in self._around:
                self._blame("of two moments", read, group, value, known, at, "it had read that")

    def begin_write(self, what: str, registers: Iterable[Register], at: float) -> Operation:
        """A client is about to send a write that adds one to each of the registers."""
        groups = tuple((register,) for register in registers)
        for (register,) in groups:
            self._begun[register] += 1
        return Operation(what, at, groups, ())

    def end_write(
        self, write: Operation, values: Sequence[int], at: float, *, around: bool = False
    ) -> None:
        """The client has its OK, and knows the values it made, or that they are at least these.
        `around`: it went straight to MySQL."""
        for group, value in zip(write.groups, values, strict=True):
            raised = Raise(value, at, write.what, written=True)
            if around:
                self._around.add(group, raised)
            else:
                self._raise(group, raised)

    def floor(self, register: Register) -> int:
        """What a read that begins now must at least return."""
        return self._floor((register,))

    def _floor(self, group: Group) -> int:
        known = self._raises.get(group)
        own = known[-1].value if known else 0
        if len(group) == 1:
            return own
        return max(own, sum(self._raises[(register,)][-1].value for register in group))

    def _due(self, group: Group, at: float) -> int:
        if group not in self._around:
            return 0
        each = (max(self._floor((r,)), self._around.due((r,), at)) for r in group)
        return max(self._around.due(group, at), sum(each))

    def _end_read(self, read: Operation, group: Group, floor: int, value: int, at: float) -> None:
        is_around = group in self._around
        if is_around:
            self._around.note(group, value, read.begin)
        if value < floor:
            self._blame_for_age(read, group, value, floor, at)
        elif is_around:  # perhaps it was written around sqlcache, and others see it later
            self._around.add(group, Raise(value, at, read.what, written=False))
        else:
            self._raise(group, Raise(value, at, read.what, written=False))

    def _raise(self, group: Group, raised: Raise) -> None:
        _append(self._raises, group, raised)

    def _blame(
        self,
        kind: str,
        read: Operation,
        group: Group,
        value: int,
        expected: int,
        at: float,
        why: str,
        behind_s: float = 0,
    ) -> None:
        self.violations.append(
            Violation(kind, group, value, expected, read.what, read.begin, at, why, behind_s)
        )

    def _blame_for_age(
        self, read: Operation, group: Group, value: int, floor: int, at: float
    ) -> None:
        newer = self._around.overdue(group, value, read.begin)
        newer = newer or self._first_newer(read, group, value)
        kind = "stale" if newer.written else "backwards"
        why = f"{newer.by} had {'written' if newer.written else 'read'} {newer.value}"
        self._blame(kind, read, group, value, floor, at, why, read.begin - newer.at)

    def _first_newer(self, read: Operation, group: Group, value: int) -> Raise:
        """What first showed, before the read began, that the value is out of date.

        Of a sum, where no answer with the same sum did: the last that showed one of its registers.
        """
        own = self._raises.get(group, ())
        at = bisect_right([raised.value for raised in own], value)
        if at < len(own) and own[at].at < read.begin:
            return own[at]
        raises = (raised for register in group for raised in self._raises[(register,)])
        return max((r for r in raises if r.at <= read.begin), key=lambda raised: raised.at)


def _append(raises: dict[Group, deque[Raise]], group: Group, raised: Raise) -> None:
    known = raises.get(group)
    if known is None:
        known = raises[group] = deque(maxlen=_REMEMBERED)
    if not known or raised.value > known[-1].value:
        known.append(raised)


def staleness(violations: Iterable[Violation]) -> tuple[float, float]:
    """For how long answers were out of date: at most for one of them, and in total.

    The total is, register by register, the time from when a newer value was known to the last
    answer without it.
    """
    longest = total = 0.0
    until: dict[Group, float] = {}
    for found in sorted(violations, key=lambda violation: violation.end):
        since = found.begin - found.behind_s
        longest = max(longest, found.end - since)
        covered = until.get(found.group, since)
        total += found.end - max(since, covered)
        until[found.group] = found.end
    return longest, total
