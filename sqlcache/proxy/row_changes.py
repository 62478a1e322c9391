"""What the writes under one fence touch of a table's slots: as far as their texts tell, and as far
as the server tells while the fence stands, see `plan.probes`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial, reduce

from sqlcache.cache.slots import both
from sqlcache.cache.tags import Cover, Tag
from sqlcache.pipeline import Done, Rows
from sqlcache.plan.probes import Probe

_MOST_PROBES = 8
"""Of the writes of one transaction to a table; where there would be more, none is asked."""

Ask = Callable[[bytes, Done], object]
"""Asks the server; see `Prober.ask`."""


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Those of one table. `cover` is what the texts of all of them tell, `certain` of those of
    which no more is to be told, if there are any, and `probed` of each of the others, with what
    tells more."""

    cover: Cover
    certain: Cover | None = None
    probed: tuple[tuple[Cover, Probe], ...] = ()

    @property
    def known(self) -> bool:
        """Whether they touch no more than some rows, as far as is known now."""
        return bool(self.cover or self.probed)

    def together(self, others: "RowChanges") -> "RowChanges":
        """These and those."""
        cover = both(self.cover, others.cover)
        known = [each.certain for each in (self, others) if each.certain is not None]
        certain = reduce(both, known) if known else None
        probed = self.probed + others.probed
        if len(probed) > _MOST_PROBES or (known and not certain):
            return changes(cover)
        return RowChanges(cover, certain, probed)

    def told(self, answers: Iterable[Rows | None]) -> Cover:
        """What they touch by the answers to the probes, of which some may be missing."""
        covers = [] if self.certain is None else [self.certain]
        for (cover, probe), rows in zip(self.probed, answers, strict=True):
            covers.append({**probe.touches(rows), **cover} if rows is not None else cover)
        return reduce(both, covers)


def changes(cover: Cover, probe: Probe | None = None) -> RowChanges:
    """Those of one write."""
    return RowChanges(cover, cover) if probe is None else RowChanges(cover, None, ((cover, probe),))


class Asking:
    """The probes of the writes under a fence, as they are asked."""

    def __init__(self, touched: Mapping[Tag, RowChanges]) -> None:
        self._touched = touched
        self._left = 0
        self._done: Callable[[], object] | None = None
        self._answers: dict[Tag, list[Rows | None]] = {}

    def begin(self, ask: Ask, done: Callable[[], object]) -> None:
        """Asks all of them. Calls `done`, once, when the write may be carried out: at once, or in a
        later turn where an answer has to be from before that."""
        probes = [
            (tag, at, probe)
            for tag, each in self._touched.items()
            for at, (_, probe) in enumerate(each.probed)
        ]
        self._left = len(probes)
        waits = any(probe.before for _, _, probe in probes)
        self._done = done if waits else None
        for tag, at, probe in probes:
            self._answers.setdefault(tag, [None] * len(self._touched[tag].probed))
            ask(probe.statement, partial(self._answered, tag, at))
        if not waits:
            done()

    def _answered(self, tag: Tag, at: int, rows: Rows | None) -> None:
        self._answers[tag][at] = rows
        self._left -= 1
        if not self._left and self._done is not None:
            self._done()

    def found(self) -> Mapping[Tag, Cover]:
        """What the writes touch by the answers that have come."""
        return {tag: self._touched[tag].told(answers) for tag, answers in self._answers.items()}
