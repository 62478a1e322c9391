"""The transaction of one session: how it goes, and what of the cache it may have."""

from collections.abc import Callable, Sequence

from sqlcache.cache.engine import Engine
from sqlcache.cache.leases import Lease
from sqlcache.cache.outcomes import Bypass, Hit, Outdated
from sqlcache.cache.reads import Read
from sqlcache.mysql.constants import Status
from sqlcache.mysql.response import ResponseTracker
from sqlcache.plan.commands import Meaning
from sqlcache.plan.state import SessionState, level_for_next
from sqlcache.plan.variables import OF_TRANSACTIONS
from sqlcache.proxy.copies import ResponseCopy
from sqlcache.proxy.questions import Questions
from sqlcache.proxy.room import Room
from sqlcache.proxy.transaction import OUT_OF_SNAPSHOT, READ_COMMITTED, TransactionView
from sqlcache.sql.statement import ENDS, Statement, Transaction

_SHOWS = frozenset({"SHOW", "HELP"})


class OwnTransaction:
    """See above. `view` is None outside a transaction, and `room` is for what views remember.
    `has_one_snapshot`: see `Server`."""

    def __init__(
        self,
        engine: Engine,
        state: SessionState,
        questions: Questions,
        has_one_snapshot: Callable[[], bool],
        room: Room,
    ) -> None:
        self._engine = engine
        self._has_one_snapshot = has_one_snapshot
        self._room = room
        self._state = state
        self._questions = questions
        self.view: TransactionView | None = None

    async def serve(
        self, view: TransactionView, read: Read, got: Hit | Lease | Outdated | Bypass
    ) -> Hit | Lease | Outdated | Bypass:
        """What the transaction may have of what the cache has for it."""
        hit = got if read.rolls_back and isinstance(got, Hit) else None
        if hit is not None and view.opens_too_early(read, hit):
            return OUT_OF_SNAPSHOT
        if hit is not None and await self._puts_server_in(view):
            seen = hit.value[: hit.versions_bytes]
            # Was it still current when the snapshot opened? By now it is open: see `Leases`.
            got = await self._engine.obtain(read.without_staleness())
            if isinstance(got, Hit) and got.value[: got.versions_bytes] != seen:
                return OUT_OF_SNAPSHOT
        # A table that does not roll back is part of no snapshot, nor does reading it open one; and
        # a transaction that has read one of some engines can set no savepoint.
        may = read.rolls_back and not view.uncacheable
        if isinstance(got, Hit | Lease) and not (may and view.holds(got.since)):
            if isinstance(got, Lease):
                await got.release()
            return OUT_OF_SNAPSHOT
        return got

    async def _puts_server_in(self, view: TransactionView) -> bool:
        """Puts the server where a hit puts its client: in the transaction, its snapshot open.

        Whether that was still to be done.
        """
        in_transaction = bool(self._state.status & Status.IN_TRANS)
        if view.opened_at is not None or (in_transaction and not view.needs_snapshot):
            return False
        asked_at = self._engine.time()
        if await self._questions.open(view) and self._state.status & Status.IN_TRANS:
            view.opened(asked_at)
        else:  # the server did not do as it was told
            view.stop_caching()
        return True

    def follow(
        self, meaning: Meaning, failed: bool, next_was_set: bool, next_level: str | None
    ) -> None:
        """Keeps `view` in step with a command that was answered. Before it something was set for
        the next transaction, or no more than the level; see `SessionState`."""
        may_end = meaning.may_commit or meaning.rolls_back
        in_transaction = bool(self._state.status & Status.IN_TRANS)
        ends = meaning.commits or meaning.rolls_back or not in_transaction
        ended = may_end and ends and not failed
        sets = any(map(_may_set_isolation_or_access, meaning.statements))
        if self.view is None and _sets_and_begins(meaning.statements):
            sets = False  # the one that begins has it, as if the SET had come by itself
        if sets and self._is_for_next(meaning, in_transaction):
            # The running one has what it began with, and so may those that follow where it ends by
            # itself: what they have no variable tells, until one is ended by name.
            self._state.next_transaction_set = True
        before = self.view
        if ended:
            own = before is not None and (before.has_own_access or before.has_own_level)
            if own and any(map(_may_set_autocommit, meaning.statements)):
                # The server forgets that with a COMMIT, or the next read: which may be a hit.
                self._state.next_transaction_set = True
            self.leave()
        self.enter()
        if self.view is None:
            return
        if ended and not in_transaction and all(s.transaction in ENDS for s in meaning.statements):
            return  # with autocommit off the next one begins with the next statement
        # It may be the transaction of before, with all that happened in it, or another.
        self.view.uncacheable |= may_end and not ended
        if ended and before is not None:
            self.view.follow(before)
        level = None if failed else _level_begun_with(meaning.statements, next_was_set, next_level)
        if level is None or not self._begin_with(level):
            # With settings of its own it has another isolation level than the session.
            self.view.uncacheable |= next_was_set and not self._state.next_transaction_set
        # Begun anew, for a hit, it would have what was set for those after it.
        self.view.uncacheable |= sets and in_transaction and self.view.awaits_snapshot
        # An error may have ended it and another may begin, as after a deadlock over definitions; or
        # the read that failed has opened its snapshot all the same.
        self.view.uncacheable |= failed
        if meaning.writes and not meaning.statements:  # functions that what it prepared has called
            self.view.stop_caching()
        for statement in meaning.statements:
            self.view.ran(statement)

    def turned(self, statement: Statement) -> None:
        """The same for one that has begun a transaction like others of its session where none was
        open, or has ended the one that was."""
        self.leave()
        self.enter()
        if self.view is not None:
            self.view.ran(statement)

    def _begin_with(self, level: str) -> bool:
        """The transaction has begun with this level, which was set for it alone; whether it may
        have hits. Those of another level than its session's, where they open its snapshot, may not:
        begun anew it would have the session's."""
        if level not in (READ_COMMITTED, self._level):
            return False
        self._state.next_transaction_set = False  # it is used up
        if level != self._level:
            self.leave()
            self.view = TransactionView(level, self._room, has_own_level=True)
        return True

    def _is_for_next(self, meaning: Meaning, in_transaction: bool) -> bool:
        """Whether what it may have set is, amid a transaction, for those that begin later."""
        statements = meaning.statements
        if in_transaction or self._state.transaction_unsure:
            return True
        was_in_one = self.view is not None
        if len(statements) > 1:
            was_in_one |= any(each.verb != "SET" or each.reads for each in statements)
        return was_in_one and meaning.may_commit

    def enter(self) -> None:
        """The session may be in a transaction by now, or in none any more."""
        if not self._state.in_transaction:
            self.leave()
            return
        # With autocommit off one is awaited, which takes the level the session has by then.
        awaited = not self._state.status & Status.IN_TRANS and not self._state.transaction_unsure
        if self.view is not None and not awaited:
            return
        if self.view is None or self.view.isolation != self._level:
            self.leave()
            self.view = TransactionView(self._level, self._room)
            self.view.uncacheable |= self.view.needs_snapshot and not self._has_one_snapshot()

    @property
    def _level(self) -> str:
        """The isolation level that the session's transactions begin with."""
        return self._state.variables.setting("transaction_isolation").lower().replace(" ", "-")

    def leave(self) -> None:
        """The session is in none any more."""
        if self.view is not None:
            self.view.end()
            self.view = None

    def may_have_opened_snapshot(self, meaning: Meaning) -> None:
        """The server ran what may be a read, and nobody saw what it found."""
        if self.view is not None and any(map(_may_open_snapshot, meaning.statements)):
            self.view.read_unseen()

    def remember(
        self, read: Read, kept: ResponseCopy, tracker: ResponseTracker, asked_at: float
    ) -> None:
        """What the transaction has read from its snapshot it will read again the same."""
        if self.view is not None and not tracker.failed:
            self.view.has_read(read, asked_at, tracker.rows, kept.entry(b"", tracker))


def _may_set_isolation_or_access(statement: Statement) -> bool:
    """Whether the session's transactions may be others from the next one on."""
    return statement.opaque_session or any(
        name in OF_TRANSACTIONS for name, _ in statement.settings
    )


def _sets_and_begins(statements: Sequence[Statement]) -> bool:
    """Whether they are SETs that end nothing, and then one that begins a transaction: .NET's
    MySqlConnector begins each so."""
    match statements:
        case (*sets, begins) if begins.transaction is Transaction.START:
            return all(
                each.verb == "SET" and not (each.may_commit or each.reads or each.opaque_session)
                for each in sets
            )
    return False


def _level_begun_with(
    statements: Sequence[Statement], next_was_set: bool, next_level: str | None
) -> str | None:
    """The isolation level that was set for the transaction which they begin, right before that: as
    by Go's TxOptions and Rails' `isolation:`, or in the same text."""
    match statements:
        case (begins,):
            level = next_level
        case (sets, begins) if not next_was_set:
            level = level_for_next(sets)
        case _:
            return None
    return level if begins.transaction is Transaction.START and not begins.opens_snapshot else None


def _may_set_autocommit(statement: Statement) -> bool:
    """Whether it may switch it on, by which the server ends a transaction as by nothing else: the
    next one is READ ONLY where that one was."""
    return statement.verb == "SET" and statement.may_commit


def _may_open_snapshot(statement: Statement) -> bool:
    """Whether it may be a consistent read. MySQL's SHOW reads tables of its dictionary."""
    return bool(statement.reads) or (statement.verb in _SHOWS and not statement.diagnostic)
