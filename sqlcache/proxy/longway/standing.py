"""How a session stands: what is known of it since it logged in, and of its transaction, and where
the plans of its reads are. Kept in step with what its commands did."""

import math
import secrets
from collections.abc import Callable
from time import perf_counter

from sqlcache.mysql.constants import Command, Status
from sqlcache.mysql.handshake import Login
from sqlcache.mysql.packets import HEADER_BYTES
from sqlcache.mysql.response import ResponseTracker, followed
from sqlcache.plan.cacheability import (
    BINLOG_LAGS,
    CATALOG_UNKNOWN,
    KILLED,
    REWRITTEN,
    SWITCHED_OFF,
    NotCacheable,
)
from sqlcache.plan.commands import UNKNOWN, WRITES_NOTHING, ClientCommand, Meaning
from sqlcache.plan.contexts import Context
from sqlcache.plan.plans import Pass, Plan
from sqlcache.plan.state import SessionState
from sqlcache.proxy.own_transaction import OwnTransaction
from sqlcache.proxy.questions import Questions
from sqlcache.proxy.session_parts import SessionParts
from sqlcache.proxy.straight.path import StraightPath
from sqlcache.sql.lexer import word_set
from sqlcache.sql.statement import Transaction

_NONE = -1
"""No generation of the globals: they are those of the server of before, perhaps, and a session that
begins by them has to ask for its own."""
_EXPLAINS = word_set("EXPLAIN DESCRIBE DESC")
_OF_TRANSACTIONS = Status.IN_TRANS | Status.AUTOCOMMIT
"""What a session's status tells of its transactions."""


def _nobody_asks(_: float) -> None:
    """While nobody wants to know."""


class Standing:
    """See above. `begin` is to be called first, when the client has logged in, and before that
    `note_globals`."""

    state: SessionState
    questions: Questions
    own: OwnTransaction
    straight: StraightPath
    """Which is told of each change."""

    __slots__ = ("_diagnostics", "_doubted_at", "_engine", "_generation", "_globals", "_handles",
                 "_held_back", "_last", "_longest_silence_s", "_meanings", "_options", "_planner",
                 "_relay", "allowed", "attends", "context", "has_begun", "may_be_silent_for", "own",
                 "questions", "state", "straight")  # fmt: skip

    def __init__(self, shared: SessionParts) -> None:
        self._relay = shared.relay
        self._engine = shared.engine
        self._planner = shared.planner
        self._options = shared.options
        self._last = shared.last
        self._diagnostics = shared.diagnostics
        self._meanings = shared.meanings
        self._held_back = shared.writes.held_back
        self._handles = shared.handles
        self.context: Context | None = None
        """Where its plans are; None while no read may be a hit."""
        self.allowed = True
        """Whether hits are wanted."""
        self.attends = False
        """Whether the next hit is to be told of at once, so takes the long way."""
        self.may_be_silent_for: Callable[[float], None] = _nobody_asks
        """Is told when the server ends the session, from now on, after another time in which it is
        asked nothing."""
        self._longest_silence_s = math.inf
        self._doubted_at = 0.0
        self.has_begun = False
        """Whether the client has logged in."""

    def begin(self, login: Login, status: int) -> None:
        """The client has logged in."""
        self.has_begun = True
        self.state = SessionState(
            login, self._globals, status, secrets.token_hex, self._relay.upstream.route
        )
        self.questions = Questions(
            self._relay, self._planner, self._diagnostics, self.state, self._generation
        )
        keeper = self._planner.keeper
        self.own = OwnTransaction(
            self._engine,
            self.state,
            self.questions,
            lambda: keeper.has_one_snapshot,
            self._options.for_transactions,
        )

    def changed_user(self, login: Login, status: int) -> None:
        """The client has logged in anew."""
        self.state.log_in(login, self._globals, status)
        self._begin_anew()

    def lost_user(self) -> None:
        """It was refused that, and goes on with its old user and all else anew."""
        self.state.settings_unknown = True
        self.state.reset(self._globals, is_mariadb=self._planner.keeper.is_mariadb)
        self._begin_anew()

    @property
    def in_transaction(self) -> bool:
        """Whether the server has a transaction open for it, as far as is known."""
        return bool(self.state.status & Status.IN_TRANS) or self.state.transaction_unsure

    @property
    def hindrance(self) -> NotCacheable:
        """Why a session without a context has no hits. Until the catalog was read, the settings
        that sessions begin with are not known either."""
        if not self._planner.keeper.enabled:
            return SWITCHED_OFF
        if self._planner.keeper.held_up:
            return BINLOG_LAGS
        if self._planner.keeper.is_rewritten:
            return REWRITTEN
        if self._doubted_at:
            return KILLED
        reason = self.state.bypass_reason()
        if reason is None or self._planner.keeper.catalog is None:
            return CATALOG_UNKNOWN
        return NotCacheable.since(reason)

    def note_globals(self) -> None:
        """A command is about to be sent, or a login."""
        keeper = self._planner.keeper
        self._globals = keeper.globals
        self._generation = keeper.generation if keeper.is_met else _NONE

    def _begin_anew(self) -> None:
        self._diagnostics.states.forget()
        self._handles.forget()
        self._meanings.forget()
        self._held_back.forget()
        self.own.leave()
        # Or they may be others than the server took.
        self.questions.generation = self._generation

    def took_effect(
        self, command: ClientCommand, meaning: Meaning, tracker: ResponseTracker
    ) -> None:
        """Follows what the command changed in the session."""
        several = len(tracker.status_offsets) + tracker.failed > 1
        if command.code == Command.QUERY and not command.whole and several:
            meaning = UNKNOWN  # it was more than the one statement whose head is known
        if any(each.transaction is Transaction.XA for each in meaning.statements):
            # What was prepared allows no other to begin.
            self.straight.ahead.begin_at_once(math.inf)
        next_was_set, next_level = self.state.next_transaction_set, self.state.next_level
        self.state.ran(meaning.statements, failed=tracker.failed, schema=meaning.schema)
        if self.state.variables.tells_of_transactions:
            self._diagnostics.states.forget()
        self._note_rights(meaning, failed=tracker.failed)
        if tracker.columns and command.code != Command.STMT_PREPARE:
            self.state.expired = False
        if any(each.verb == "ALTER" and each.changes_globals for each in meaning.statements):
            self.state.expired = True  # by MySQL, which looks at the session's own at once
        if command.code not in WRITES_NOTHING or meaning.writes or tracker.failed:
            self.own.follow(meaning, tracker.failed, next_was_set, next_level)
        if not tracker.failed and self._last.sent_at > self._doubted_at:
            self._doubted_at = 0.0
        self._diagnostics.ran(command, meaning, tracker)
        self._last.had_hits = False
        self._note_mixing(meaning)
        self._held_back.took_effect(meaning, tracker)
        self._meanings.by_name.ran(meaning.statements, self.state, failed=tracker.failed)
        made = self._meanings.took_effect(command, tracker, self.state, command.number)
        if made is not None and self.context is not None and self.may_plan(command):
            self._planner.remember_preparation(command.data, self.context, made)
        if tracker.ends and tracker.ends[-1].status is None:
            return
        match command.code:
            case Command.INIT_DB:
                self.state.use_named(command.payload[1:])
                self.state.rights.read_on_schema(self._globals)
            case Command.SET_OPTION:
                # MariaDB takes one that is cut short for a 0.
                self.state.multi_statements = not command.payload.startswith(b"\1", 1)
            case Command.RESET_CONNECTION:
                self.state.reset(self._globals, is_mariadb=self._planner.keeper.is_mariadb)
                self._begin_anew()

    def _note_rights(self, meaning: Meaning, *, failed: bool) -> None:
        """Follows when the server has read the session's rights."""
        may_read = meaning.opaque_session or meaning.goes_elsewhere
        if meaning.sets_role and not failed:
            self.state.rights.set_role(self._globals)
        elif may_read or (meaning.names_schema and failed):
            self.state.rights.may_have_been_read(self._globals)
        elif meaning.names_schema:
            self.state.rights.read_on_schema(self._globals)

    def _note_mixing(self, meaning: Meaning) -> None:
        diagnostics = self._diagnostics
        if diagnostics.wrote or diagnostics.mariadb:
            return
        if any(each.verb in _EXPLAINS for each in meaning.statements):
            diagnostics.mixes = True  # as after the change that it may explain
        elif meaning.writes:
            lasting = self._planner.tagging.non_transactional(meaning.writes)
            diagnostics.mixes |= lasting.everything or bool(lasting.tables)

    def turned(self, packet: bytes, plan: Plan | None, answer: bytes) -> bool:
        """Follows what a command that went the straight path changed, by its whole answer. Without
        a plan it is no more than that a transaction has begun. Whether the session is as it was,
        and in no transaction."""
        command = ClientCommand(packet[HEADER_BYTES], packet, whole=True)
        tracker = followed(command.code, self.state.capabilities, answer)
        before = self.state.status, self.own.view
        was = self.context, self.state.variables
        self.state.answered(tracker.ends)
        if plan is None:
            self.refresh_context()
            return False
        if isinstance(plan, Pass) and self._turned_plainly(plan, command, tracker):
            return False
        self.note_globals()  # as when it was sent: else `confirms` had not let it come here
        meaning = self.meaning_under(plan, command)
        self.took_effect(command, meaning, tracker)
        if isinstance(plan, Pass) and plan.uses:
            self.state.rights.confirm(self._globals)
        self.own.may_have_opened_snapshot(meaning)
        if not meaning.writes or before != (self.state.status, self.own.view):
            self.refresh_context()
        alike = was == (self.context, self.state.variables) and before[0] == self.state.status
        return alike and self.context is not None and self.own.view is None

    def _turned_plainly(self, plan: Pass, command: ClientCommand, tracker: ResponseTracker) -> bool:
        """The same where all that has changed is that a transaction like others of its session has
        begun, where none was open, or has ended, and none is open: most turns are such. Whether
        this was one."""
        state, own, begun = self.state, self.own, self.state.status & _OF_TRANSACTIONS
        if not plan.only_turns or command.code != Command.QUERY or tracker.ends[-1].warnings:
            return False
        if begun != (_OF_TRANSACTIONS if plan.begins else Status.AUTOCOMMIT):
            return False
        # Where anything is set for the next transaction there is no context.
        if self.context is None or (plan.begins and own.view is not None):
            return False
        own.turned(plan.meaning.statements[0])
        self._diagnostics.passed(reads=False, keeps_found_rows=True, rows=0)
        self._last.had_hits = False
        self._held_back.forget()  # nothing is held back but by one that was open
        self.straight.open(self.context, own.view, state)
        return True

    def meaning_under(self, plan: Plan, command: ClientCommand) -> Meaning:
        """What a command meant that was begun by this plan."""
        if isinstance(plan, Pass):
            return plan.meaning
        return self._meanings.of(command, self.state)

    def may_plan(self, command: ClientCommand) -> bool:
        """Whether a plan can be kept for it, and none is."""
        return self.context is not None and command.whole and not self.context.planned(command.data)

    @property
    def _knows_globals(self) -> bool:
        """Whether its own are those of now, and the catalog is known."""
        keeper = self._planner.keeper
        return self.questions.generation == keeper.generation and keeper.ready

    def context_beside_temporary(self) -> Context | None:
        """Where the plans are of those of its reads that have nothing to do with its temporary
        tables. In a transaction there is none, and no plan of another command goes by it: what that
        does may depend on these."""
        knows_all = self._knows_globals and not self._doubted_at
        if not knows_all or self.state.in_transaction or self.own.view is not None:
            return None
        reason = self.state.bypass_reason(beside_temporary=True)
        return self._planner.context(self.state) if reason is None else None

    def doubt(self) -> None:
        """A KILL may have ended the session: see `kills`."""
        self._doubted_at = perf_counter()
        self.context = None
        if self.has_begun:
            self.straight.open(None, self.own.view, self.state)

    def attend(self) -> None:
        """See `attends`. No command is in flight."""
        self.attends = True
        self.straight.open(None, self.own.view, self.state)

    def attend_no_more(self) -> None:
        """Hits may go the straight path again."""
        self.attends = False
        self.refresh_context()

    def forget_who_asks(self) -> None:
        """Nobody is to be told any more of what the session may do in silence."""
        self.may_be_silent_for = _nobody_asks

    def refresh_context(self) -> None:
        """Finds out whether reads may be hits now, and under which fingerprint."""
        self.own.enter()
        self._diagnostics.mariadb = self._planner.keeper.is_mariadb
        known = self._knows_globals and not self._doubted_at
        if known and self.state.bypass_reason() is None:
            self.context = self._planner.context(self.state)
        else:
            self.context = None
        if self._longest_silence_s != (longest_s := self.state.longest_silence_s):
            self._longest_silence_s = longest_s
            self.may_be_silent_for(longest_s)
        serves = self._options.straight and self.allowed and not self.state.transaction_unsure
        serves = serves and not (self.attends or self._doubted_at)
        self.straight.open(self.context if serves else None, self.own.view, self.state)
