"""What an open transaction has written, and holds back until it ends: its COMMIT is the write that
makes it visible."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from sqlcache.cache.engine import Engine
from sqlcache.cache.tags import Cover, Tag
from sqlcache.mysql.constants import Status
from sqlcache.mysql.packets import End
from sqlcache.mysql.response import ResponseTracker
from sqlcache.plan.commands import Meaning
from sqlcache.plan.pins import Values
from sqlcache.plan.planner import Planner
from sqlcache.plan.plans import Pass
from sqlcache.plan.writeset import EVERYTHING, NOTHING, WriteSet
from sqlcache.proxy.row_changes import Ask, RowChange, RowChanges, change_of, tell_of_columns
from sqlcache.sql.analysis.texts import MOST_NAMES

_NO_EDITION = -1


class HeldBack:
    """By the open transaction of one session. `ask`: see `Writes`.

    It is told of each command that was answered: by `changed`, or by `took_effect`, before which
    comes `may_have_changed` where it was planned as a change of rows.
    """

    __slots__ = ("_ask", "_engine", "_may_touch", "_planner", "_touched", "_touched_under",
                 "locked", "writes")  # fmt: skip

    def __init__(self, engine: Engine, planner: Planner, ask: Ask | None) -> None:
        self._engine = engine
        self._planner = planner
        self._ask = ask
        self.writes = NOTHING
        """All of it."""
        self.locked = NOTHING
        """Of it, what the server has locked for the transaction, for sure, until that ends: its
        definitions cannot change."""
        self._touched: dict[Tag, RowChanges] = {}  # of the tables of which rows were changed
        self._touched_under = 0  # the catalog's edition under which all of that is so
        self._may_touch: tuple[Pass, RowChange | None] | None = None  # the last command

    def touched(self, tags: frozenset[Tag]) -> Mapping[Tag, Cover] | None:
        """Which rows of these tables were changed, of each of which some are known; None where that
        is not known of any."""
        certain = self._touched_under == self._planner.keeper.edition
        gathered = {tag: self._touched[tag].cover for tag in tags & self._touched.keys()}
        known = {tag: cover for tag, cover in gathered.items() if cover}
        return (known or None) if certain else None

    def took_effect(self, meaning: Meaning, tracker: ResponseTracker) -> None:
        """The command was answered: gathers what it wrote while the transaction is open."""
        may_touch, self._may_touch = self._may_touch, None
        if ended_transaction(tracker.ends):
            self.forget()
            return
        # What fails or is taken back may have unlocked its tables, or all.
        keeps_locks = not (tracker.failed or meaning.takes_back or meaning.may_commit)
        locked = self.locked | meaning.writes.rows if keeps_locks else NOTHING
        if meaning.commits and not tracker.failed:
            self.forget()  # else it is open, perhaps still
        if meaning.writes:
            self._add(meaning.writes)
            if may_touch is not None and may_touch[0].meaning.writes == meaning.writes:
                self._touch(may_touch[0].marks.tags, may_touch[1])
            elif self._engine.limits.row_tags:
                self._touch(self._planner.tagging.tags(meaning.writes))
        self._lock(locked)

    def may_have_changed(self, plan: Pass, values: Callable[[], Values | None]) -> None:
        """A change of rows was answered: `took_effect` follows, and with it comes all else that it
        did, as that its transaction begins."""
        if self._engine.limits.row_tags:
            self._may_touch = plan, self._change_in_it(plan, values)

    def changed(self, plan: Pass, values: Callable[[], Values | None]) -> None:
        """The same for a change of rows that was answered and is all that a command did, in an open
        transaction."""
        self._add(plan.meaning.writes)
        tell_of_columns(plan)
        if self._engine.limits.row_tags:
            self._touch(plan.marks.tags, self._change_in_it(plan, values))
        self._lock(self.locked | plan.meaning.writes.rows)

    def forget(self) -> None:
        """The transaction is over, as where the session begins anew."""
        self.writes, self._touched = NOTHING, {}
        self.locked = NOTHING

    def _change_in_it(self, plan: Pass, values: Callable[[], Values | None]) -> RowChange | None:
        """A change in a transaction, if any of its table's answers are told apart."""
        if not plan.marks.has_slots:
            return None
        return change_of(plan, plan.marks, values, probes=self._ask is not None)

    def _add(self, writes: WriteSet) -> None:
        written = replace(writes, reads=frozenset()) | self.writes
        self.writes = written if _names(written) <= MOST_NAMES else EVERYTHING

    def _lock(self, rows: WriteSet) -> None:
        self.locked = rows if _names(rows) <= MOST_NAMES else NOTHING

    def _touch(self, tags: Iterable[Tag], change: RowChange | None = None) -> None:
        """Adds a change of these tables, by the definitions of now: one that is left out would
        leave its table to what others touch. None is one that may touch anything."""
        if self.writes.everything:
            self._touched = {}
            return
        edition = self._planner.keeper.edition
        if self._touched and self._touched_under != edition:
            edition = _NO_EDITION  # what was touched may have led elsewhere since
        self._touched_under = edition
        for tag in tags:
            self._touched.setdefault(tag, RowChanges()).add(change or RowChange({}), self._ask)


def ended_transaction(ends: Sequence[End]) -> bool:
    """Whether the server has no transaction open at the end of these answers."""
    status = ends[-1].status if ends else None
    return status is not None and not status & Status.IN_TRANS


def _names(writes: WriteSet) -> int:
    """How much a transaction has named: each statement in it may name more, also what there is not,
    and each is gathered with all before it."""
    return len(writes.tables) + len(writes.schemas) + len(writes.redefined)
