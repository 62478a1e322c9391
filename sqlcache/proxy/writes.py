"""A session's writes, so that no one is given from the cache what they make outdated.

A write's tags are fenced before it is sent, and bumped after MySQL answered and before the client
hears of it. What a transaction writes is gathered, see `held_back`, and its COMMIT is the write.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from sqlcache.cache.engine import Engine
from sqlcache.cache.fence import Fence, IsOver
from sqlcache.cache.keys import commit_id
from sqlcache.cache.log_records import TagState
from sqlcache.cache.marks import NO_MARKS, Logs, Marks
from sqlcache.cache.tags import ROOT, Cover, Tag
from sqlcache.errors import WriteRefused
from sqlcache.mysql.response import ResponseTracker
from sqlcache.plan.cacheability import CATALOG_UNKNOWN
from sqlcache.plan.commands import NO_STATEMENT, Meaning
from sqlcache.plan.confirmations import Known
from sqlcache.plan.meanings import under_the_catalog
from sqlcache.plan.pins import Values
from sqlcache.plan.planner import Planner
from sqlcache.plan.plans import Pass
from sqlcache.plan.probes import Probe
from sqlcache.plan.refusals import proved_by
from sqlcache.plan.state import SessionState
from sqlcache.plan.writeset import EVERYTHING, NOTHING, WriteSet
from sqlcache.proxy.held_back import HeldBack, ended_transaction
from sqlcache.proxy.row_changes import Ask, RowChange, change_of, tell_of_columns
from sqlcache.proxy.still_to_come import StillToCome
from sqlcache.service.pipeline import Rows
from sqlcache.sql.statement import Locks

_MOST_BUMPED = 10_000
"""Of tags, by one command, while some of its statements are still to come: after each all of them
are bumped. Where that is more it counts as writing everything, which is one tag."""
_BUMPS_TOO_MUCH = "a text of many statements, which reach many tables"


class Writes:
    """Those of one session: the one in flight, and what its open transaction holds back.

    On the long way: `raise_fence`, then `publish` with each part of the answer, or `withdraw`. On
    the straight path, where all is as it was planned, `begin_soon` and `end_soon` do the same in
    callbacks.
    """

    _state: SessionState  # as of the command in flight

    def __init__(self, engine: Engine, planner: Planner, ask: Ask | None = None) -> None:
        """`ask` asks the server what rows are like that are written, where that is of use."""
        self._engine = engine
        self._planner = planner
        self._ask = ask
        self._change: RowChange | None = None  # that of the write in flight, if it is of rows
        self._fence: Fence | None = None
        self._unseen: list[Fence] = []  # of what others see when its tables are unlocked
        self._fenced = NOTHING
        self._fenced_tags: frozenset[Tag] = frozenset()
        self._still_to_come = StillToCome(planner)
        self._lifted = False  # after all of the command's statements that write
        self.held_back = HeldBack(engine, planner, ask)
        """By the open transaction."""
        self._unsure = False  # whether all the command in flight writes is held back
        self._known: Mapping[Tag, bytes | None] = {}  # definitions, at the latest when it was sent
        self._told_for = engine.commits_from  # when MySQL told of commits last
        self._told: Sequence[bytes] = ()  # of these
        self.under_way = False
        """From before the fence is raised to the write's end."""

    async def raise_fence(self, meaning: Meaning, state: SessionState) -> Meaning:
        """Fences what a command may make visible. Returns what it means by the catalog of now.

        Raises: WriteRefused, and then the command is not to be sent.
        """
        self.go_on(state)
        self._unsure = False
        visible = self._made_visible(meaning)
        if meaning.writes and not visible:
            meaning = await self._held_back_for_sure(meaning)
            visible = self._made_visible(meaning)
        if not visible:
            self._known = self._planner.keeper.versions
            return meaning
        self.under_way = True
        try:
            tags = self._planner.tagging.tags(visible)
            bumps_too_much = len(tags) * self._still_to_come.ends_amid(meaning) > _MOST_BUMPED
            if bumps_too_much:
                visible, tags = EVERYTHING, frozenset({ROOT})
            asked = self._planner.tagging.definitions(visible)
            if self._fence is None:
                self._fence = await self._engine.fence(tags, asked)
            else:  # begun by `begin_soon`
                tags = self._fenced_tags
                await self._fence.mark(asked)
            told = asked, self._fence.observed
            meaning, visible = await self._exactly(meaning, visible, told)
            if bumps_too_much:  # and so does its transaction: nobody has asked what it writes now
                meaning = replace(meaning, writes=EVERYTHING)
            if missed := self._planner.tagging.tags(visible) - tags:
                await self._fence.extend(missed)
                tags |= missed
            if visible.everything or ROOT in tags:
                cause = _BUMPS_TOO_MUCH if bumps_too_much else self._cause_of_everything(meaning)
                self._engine.tell_of_everything(cause)
            await self._fence.renew()
            self._fenced, self._fenced_tags = visible, tags
            self._known = self._planner.keeper.versions
        except WriteRefused:
            self._end()
            raise
        return meaning

    def _cause_of_everything(self, meaning: Meaning) -> str:
        """Why a command may write anything, for people."""
        for statement in meaning.statements:
            if statement.writes_everything:
                return f"{statement.verb}: {statement.reason}".strip(": ")
        if self._planner.keeper.catalog is None:
            return f"{CATALOG_UNKNOWN.why}, and there was a write"
        if self._planner.keeper.lacks:
            return "the service account lacks rights, and there was a write"
        return "a write of which it is not known what it changes"

    def go_on(self, state: SessionState) -> None:
        """A command was sent, or is about to be: its answer is for `publish`."""
        self._still_to_come.begin()
        self._lifted = False
        self._state = state

    # The straight path.

    def marks(self, plan: Pass, *, in_transaction: bool) -> Marks | None:
        """What is to be marked and observed for a command; None where that is still to be found
        out."""
        if not in_transaction:
            return plan.marks
        if plan.writes:
            known = plan.meaning.writes.rows_within(self.held_back.locked)
            return None if not plan.rolls_back else NO_MARKS if known else plan.observes
        held_back = self.held_back.writes
        if held_back and plan.meaning.may_commit:
            return self._planner.tagging.marks(held_back)
        return NO_MARKS

    def narrowed(self, plan: Pass, marks: Marks, values: Callable[[], Values | None]) -> Marks:
        """The marks of a command that touches but some rows, as far as its `values` tell; they are
        asked for where that is of use."""
        tell_of_columns(plan)
        self._change = None
        if not marks.has_slots:
            return marks
        touched: Mapping[Tag, Cover] | None
        if plan.writes:
            probes = self._ask is not None
            self._change = change = change_of(plan, marks, values, probes=probes)
            touched = None
            if change is not None:
                touched = dict.fromkeys(marks.tags, change.cover) if change.tells else {}
        else:  # it ends a transaction
            touched = self.held_back.touched(marks.tags)
        return self._engine.narrowed(marks, touched)

    def begin_soon(self, plan: Pass, marks: Marks, done: Callable[[bool], None]) -> None:
        """Marks and observes. Tells soon whether the command may be sent: if not, `raise_fence`
        goes on with it, and if so, `end_soon` is to be called when it was answered."""
        confirmations = self._planner.confirmations
        self._unsure = not marks.tags
        self._known = self._planner.keeper.versions

        if self._unsure:
            confirmations.confirm_soon(marks, done)
            return

        def marked(logs: Logs | None) -> None:
            ready = logs is not None and confirmations.confirms(marks.like or marks, logs)
            narrow = ready and self._fence is not None and self._fence.narrow_in
            probe = self._change.probe if narrow and self._change is not None else None
            if probe is None or self._ask is None:
                done(ready)
            else:
                self._ask_meanwhile(probe, self._ask, done)

        self.under_way = True
        self._fenced = plan.meaning.writes or self.held_back.writes
        self._fenced_tags = marks.tags
        self._fence = self._engine.join_fence(marks)
        self._engine.fence_soon(self._fence, marks, marked)

    def _ask_meanwhile(self, probe: Probe, ask: Ask, done: Callable[[bool], None]) -> None:
        """Asks what more the write in flight touches, while its fence stands. Tells that it may be
        sent, at once or when that is known."""
        change = self._change
        assert change is not None

        def answered(rows: Rows | None) -> None:
            change.answered(rows)
            if probe.before:  # amid that this process may have been stopped
                done(self._fence is not None and self._engine.still_stands(self._fence))

        ask(probe.statement, answered)
        if not probe.before:
            done(True)

    def committed(self, gtids: Sequence[bytes]) -> None:
        """MySQL has told of these commits: whoever reads of them in the binary log is to know that
        the write in flight ends what they made outdated. An answer may be read twice, on the
        straight path and then the long way, and tells of them once.

        By the same names a reading of the log that began later may tell of others, where a crash
        has lost some, or the log was begun anew. So they are named for one that was known when
        MySQL told of commits the time before, and was then under way.
        """
        if not gtids or gtids == self._told:
            return
        self._told = gtids
        known, self._told_for = self._told_for, self._engine.commits_from
        if self._fence is not None and known and known == self._told_for:
            self._fence.committed([commit_id(known, each) for each in gtids])

    def end_soon(self, marks: Marks, done: Callable[[bool], None]) -> None:
        """Ends the write. Tells soon whether it could be: if not, that is for `publish` to do."""

        def ended(confirmed: bool) -> None:
            if confirmed:
                self._end()
                self._unsure = False
            done(confirmed)

        def lifted(logs: Logs | None) -> None:
            like = marks.like or marks
            ended(logs is not None and self._planner.confirmations.confirms(like, logs))

        if self._fence is None:
            self._planner.confirmations.confirm_soon(marks, ended)
            return
        if self._change is not None:
            touched = dict.fromkeys(marks.tags, self._change.cover)
            self._engine.narrow_further(self._fence, marks, touched)
        self._engine.lift_soon(self._fence, marks, lifted)

    async def _exactly(
        self,
        meaning: Meaning,
        writes: WriteSet,
        told: tuple[Iterable[Tag], Mapping[Tag, TagState]] | None = None,
    ) -> tuple[Meaning, WriteSet]:
        """What a command means and writes by the definitions of now. `told`: the tags that were
        asked, and what they say. Those of schemas that come in by what is read are asked, too."""
        known: set[Tag] = set()
        while True:
            if told is None:
                asked = set(self._planner.tagging.definitions(writes)) - known
                told = asked, await self._engine.states(asked, self._fence)
            known.update(told[0])
            caught = await self._planner.confirmations.catch_up(writes, *told)
            if caught is Known.UNKNOWN:
                return replace(meaning, writes=EVERYTHING), EVERYTHING
            if meaning.edition != self._planner.keeper.edition:
                meaning = under_the_catalog(meaning, self._planner, self._state)
                writes |= self._made_visible(meaning) if self._fence else meaning.writes
            if known.issuperset(self._planner.tagging.definitions(writes)):
                return meaning, writes
            told = None

    async def _held_back_for_sure(self, meaning: Meaning) -> Meaning:
        """What a command that its transaction is thought to hold back means by the catalog of now:
        through another proxy its tables may have got an engine that does not roll back, or
        triggers. Those that the server has locked for it cannot change."""
        known = meaning.writes.rows_within(self.held_back.locked)
        self._unsure = not known or bool(meaning.writes.defined_in)
        return (await self._exactly(meaning, meaning.writes))[0] if self._unsure else meaning

    def _made_visible(self, meaning: Meaning) -> WriteSet:
        """All of its own writes unless a transaction holds them back, and the transaction's when it
        may end it."""
        if meaning.may_commit:
            return meaning.writes | self.held_back.writes
        # What stands behind a ROLLBACK, in the same text, no transaction holds back.
        state = self._state
        if meaning.rolls_back or state.transaction_unsure or not state.in_transaction:
            return meaning.writes
        return self._planner.tagging.non_transactional(meaning.writes)

    async def publish(self, tracker: ResponseTracker, meaning: Meaning) -> None:
        """Bumps what the command's statements that have ended wrote."""
        self._still_to_come.ended(len(tracker.ends))
        if self._unseen and tracker.done and self._unlocked(meaning):
            unseen, self._unseen = self._unseen, []
            await asyncio.gather(*(fence.lift() for fence in unseen))
        if self._fence is not None:
            if not tracker.done and self._more_to_come(meaning):
                await self._fence.publish()
                return
            await self._lift(self._fence, meaning)
            self._end()
            self._lifted = True
            if meaning.redefines and self._fenced.everything:
                return  # all has just been read again
        elif self._lifted:
            return
        elif tracker.done and not meaning.rolls_back and ended_transaction(tracker.ends):
            # No statement we know of ended it, and yet it is over: late is better than never.
            wrote = self.held_back.writes | meaning.writes
            await self._engine.bump(self._planner.tagging.tags(wrote))
        elif tracker.done and self._unsure:
            self._unsure = False
            asked = self._planner.tagging.definitions(meaning.writes)
            if meaning.writes.defined_in and await self._are_others(
                meaning.writes, asked, await self._engine.states(asked)
            ):
                self.held_back.writes |= EVERYTHING
            meaning, _ = await self._exactly(meaning, meaning.writes)
            await self._engine.bump(self._planner.tagging.tags(self._made_visible(meaning)))
        if any(statement.changes_globals for statement in meaning.statements):
            await self._planner.keeper.refresh()

    @property
    def fence(self) -> Fence | None:
        """That of the command in flight, if it has one."""
        return self._fence

    async def changed_nothing(self, code: int, meaning: Meaning) -> bool:
        """Whether this error, which is all that the server answered, proves that the command in
        flight changed nothing, by definitions that are and were as the catalog has them."""
        if self._fence is None and not meaning.writes:
            return False  # nor would it have
        needed = proved_by(code, meaning, self._planner)
        if needed is None or needed == NOTHING:
            return needed is not None
        asked = {ROOT, *self._planner.tagging.definitions(needed)}
        confirmations = self._planner.confirmations
        return await confirmations.stood_still(needed, asked, self._known, self._fence)

    async def withdraw(self, meaning: Meaning) -> None:
        """The server refused the command: of what it meant no more is left than this, which writes
        nothing itself. It may have committed what was held back."""
        if self._fence is None:
            return
        if meaning.may_commit and self.held_back.writes:
            self._fenced = self.held_back.writes
            self._fenced_tags &= self._planner.tagging.tags(self._fenced)
            await self._fence.keep(self._fenced_tags)
            await self._lift(self._fence, NO_STATEMENT)
        else:
            await self._fence.undo()
        self._end()

    def _more_to_come(self, meaning: Meaning) -> bool:
        """Whether those of its statements that have not ended yet may write, or commit."""
        return self._fenced.everything or self._still_to_come.may_write(meaning)

    async def _lift(self, fence: Fence, meaning: Meaning) -> None:
        """Ends the write. While it waited for its tables others may have given them triggers or
        foreign keys: then it wrote more than was fenced. A definition writes nothing by them."""
        fenced = self._fenced
        if fenced.everything or fenced.schemas or not (fenced.tables or fenced.defined_in):
            await self._let_go(fence, meaning)
        else:
            asked = self._planner.tagging.definitions(fenced)
            _, states = await asyncio.gather(
                self._let_go(fence, meaning), self._engine.states(asked, fence)
            )
            if fenced.defined_in and await self._are_others(fenced, asked, states):
                await self._engine.bump({ROOT}, cause="routines were changed while they ran")
            else:
                _, wrote = await self._exactly(meaning, fenced, (asked, states))
                if missed := self._planner.tagging.tags(wrote) - self._fenced_tags:
                    await self._engine.bump(missed)
        if meaning.redefines:
            await self._planner.keeper.redefined(fenced, fence.steps)

    async def _let_go(self, fence: Fence, meaning: Meaning) -> None:
        """Lifts the fence; but nobody tells when the rows of an INSERT DELAYED are there, and what
        is written under a lock with which others read on is there when that ends."""
        if self._planner.keeper.is_mariadb and any(each.delays for each in meaning.statements):
            fence.abandon()
        elif self._locks_concurrently(meaning) and not self._is_unseen(fence.tags):
            self._unseen.append(fence)
        else:
            await fence.lift()

    def _locks_concurrently(self, meaning: Meaning) -> bool:
        locks = any(each.locks is Locks.CONCURRENT for each in meaning.statements)
        return locks or self._state.locks_concurrently

    def _is_unseen(self, tags: frozenset[Tag]) -> bool:
        return tags <= {tag for fence in self._unseen for tag in fence.tags}

    def _unlocked(self, meaning: Meaning) -> bool:
        """Whether what this session had locked is unlocked."""
        unlocks = any(statement.locks is not None for statement in meaning.statements)
        return unlocks or not self._state.locks_concurrently

    async def _are_others(
        self, writes: WriteSet, asked: Iterable[Tag], states: Mapping[Tag, TagState]
    ) -> bool:
        """Whether other routines may have run than those whose writes are known."""
        known = await self._planner.confirmations.catch_up(writes, asked, states)
        return known is not Known.CONFIRMED

    def abandon(self, is_over: IsOver) -> None:
        """The session ends, amid a write or not: what MySQL still does for it."""
        for fence in self._unseen:
            fence.abandon(is_over)
        if self._fence is not None:
            self._fence.abandon(is_over)

    def _end(self) -> None:
        self._fence = self._change = None
        self.under_way = False
