"""What writes touch of a table's slots: as far as their texts tell, and as far as the server tells
when it is asked, see `plan.probes`."""

from collections.abc import Callable
from functools import reduce

from sqlcache.cache.marks import Marks
from sqlcache.cache.slots import both
from sqlcache.cache.tags import Cover
from sqlcache.plan.pins import Values
from sqlcache.plan.plans import Pass
from sqlcache.plan.probes import Probe
from sqlcache.service.pipeline import Done, Rows

_MOST_CHANGES = 8
"""Of a transaction to a table, of which more may be told yet."""

Ask = Callable[[bytes, Done], object]
"""Asks the server; see `Prober.ask`."""


class RowChange:
    """That of one write. `cover` is what it touches, as far as that is known by now."""

    __slots__ = ("cover", "probe")

    def __init__(self, cover: Cover, probe: Probe | None = None) -> None:
        self.cover = cover
        self.probe = probe
        """What tells more."""

    @property
    def tells(self) -> bool:
        """Whether it touches no more than some rows, as far as is known."""
        return bool(self.cover) or self.probe is not None

    def answered(self, rows: Rows | None) -> None:
        """The probe's answer has come, or none will."""
        probe, self.probe = self.probe, None
        if probe is not None and rows is not None:
            self.cover = {**probe.touches(rows), **self.cover}


class RowChanges:
    """Those of a transaction to one table.

    The rows are locked from each write's answer to the end of the transaction, and others see them
    as they were: so the server may be asked at any time between, and without a fence.
    """

    __slots__ = ("_changes",)

    def __init__(self) -> None:
        self._changes: list[RowChange] = []

    def add(self, change: RowChange, ask: Ask | None) -> None:
        """One more, of which the server is asked if that is of any use."""
        if change.probe is not None and ask is not None and self._tell:
            ask(change.probe.statement, change.answered)
        self._changes.append(change)
        if not self._tell:
            self._changes = [RowChange({})]
        elif len(self._changes) > _MOST_CHANGES:
            first, second, *others = self._changes
            self._changes = [RowChange(both(first.cover, second.cover)), *others]

    @property
    def _tell(self) -> bool:
        """Whether they may touch some rows alone, as far as is known."""
        return all(each.tells for each in self._changes)

    @property
    def cover(self) -> Cover:
        """What all of them touch."""
        return reduce(both, [each.cover for each in self._changes])


def change_of(
    plan: Pass, marks: Marks, values: Callable[[], Values | None], *, probes: bool
) -> RowChange | None:
    """What a change touches of the slots of the one table that it marks, by its `values`; None
    where that is not to be told from any. `probes`: the server may be asked for more."""
    if plan.pins is None or len(marks.tags) != 1:
        return None
    (tag,) = marks.tags
    told = values()
    if told is None:
        return RowChange({})
    in_use = marks.slots[tag].in_use
    cover = plan.pins.touches(in_use, told)
    return RowChange(cover, plan.pins.probe(in_use, cover, told) if probes else None)


def tell_of_columns(plan: Pass) -> None:
    """Of a change of columns that some answers do not read."""
    if plan.pins is not None and plan.pins.spared is not None:
        for slots in plan.marks.slots.values():
            slots.was_spared(plan.pins.spared)
