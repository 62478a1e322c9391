"""To MySQL and back: what is sent of the straight path's commands, and what becomes of an answer.

Where rows are changed, or a transaction that changed some ends, the fence is raised before and
lifted behind it. Who has the lease of a missing answer fills it here.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter

from sqlcache.cache import entry
from sqlcache.cache.leases import Lease
from sqlcache.cache.marks import NO_MARKS, Marks
from sqlcache.cache.outcomes import DISTRUSTED, Bypass
from sqlcache.cache.reads import Read
from sqlcache.kernel import scan
from sqlcache.mysql.constants import Status
from sqlcache.mysql.packets import HEADER_BYTES, query_packet, with_flags
from sqlcache.mysql.scan import Plain, number_in
from sqlcache.mysql.tracking import commits_told, last_untracked
from sqlcache.plan.cacheability import NotCacheable
from sqlcache.plan.pins import Values, values_of_execution, values_of_text
from sqlcache.plan.plans import Pass, Plan
from sqlcache.plan.reader import ON_THE_LOOP_BYTES
from sqlcache.proxy.copies import UNSTORABLE_STATUS
from sqlcache.proxy.session_parts import SessionParts
from sqlcache.proxy.straight.ahead import Ahead
from sqlcache.proxy.straight.course import callback
from sqlcache.proxy.straight.inflight import InFlight, Stage
from sqlcache.proxy.straight.long_answers import LongAnswers
from sqlcache.proxy.straight.terms import Terms
from sqlcache.proxy.transaction import TransactionView
from sqlcache.statement_counts import UNCOUNTED

Turned = Callable[[bytes, Plan | None, bytes], bool]
"""Follows what a command changed in the session; see `Standing.turned`."""

IN_UNCACHEABLE_TRANSACTION = NotCacheable(
    "transaction", "in a transaction that has written, or has read past the cache"
)

_CODE_AT = HEADER_BYTES
_AFFECTED_AT = HEADER_BYTES + 1


def cause_of(plan: Plan) -> tuple[str, str]:
    """Why a command that is passed on by its plan is answered by MySQL, for metrics and for
    people."""
    cause = IN_UNCACHEABLE_TRANSACTION
    return (plan.reason, plan.why) if type(plan) is Pass else (cause.label, cause.why)


def is_read_at_once(packet: bytes) -> bool:
    """Whether it may be asked on the event loop what a command means, as it is where its answer
    turns out to be unusual, and what an execution's parameters are."""
    return len(packet) <= ON_THE_LOOP_BYTES


def _changes_rows(plan: Pass, answer: bytes) -> bool:
    """Whether it changed some, and that is all it did."""
    return plan.changes and answer[_CODE_AT] == 0 and answer[_AFFECTED_AT] != 0


def _takes_nothing(_: bytes) -> bool:
    """While no answer is due but such as were foretold."""
    return False


def _nothing_turns(packet: bytes, plan: Plan | None, answer: bytes) -> bool:
    """Of a session that has ended."""
    return False


class Exchange:
    """That of one session. `turned` is told of what may have changed it."""

    __slots__ = ("_client", "_diagnostics", "_engine", "_handles", "_held_back", "_last",
                 "_long_answers", "_max_entry_bytes", "_metrics", "_terms", "_turned", "_upstream",
                 "_writes", "ahead", "course")  # fmt: skip

    def __init__(self, shared: SessionParts, terms: Terms, ahead: Ahead, turned: Turned) -> None:
        self.course = shared.course
        self.ahead = ahead
        self._terms = terms
        self._client = shared.relay.client
        self._upstream = shared.relay.upstream
        self._engine = shared.engine
        self._last = shared.last
        self._diagnostics = shared.diagnostics
        self._writes = shared.writes
        self._held_back = shared.writes.held_back
        self._handles = shared.handles
        self._metrics = shared.metrics
        self._turned = turned
        self._max_entry_bytes = shared.options.max_entry_bytes
        self._long_answers = LongAnswers(shared, terms)

    def close(self) -> None:
        """The session ends."""
        self._turned = _nothing_turns  # or both ways would keep each other from being freed

    # What may be sent.

    def pass_on(self, packet: bytes, plan: Plan) -> bool:
        """Sends a query by its plan, if that can be done here and now; or answers it ahead."""
        if type(plan) is Read and not is_read_at_once(packet):
            return False
        marks = self.marks_before(plan, packet)
        if marks is None:
            return False
        if type(plan) is Pass and plan.only_asks and self._terms.view is None:
            self._ask(packet, plan)
        elif type(plan) is not Pass or not (plan.accepted and self._answers_ahead(packet, plan)):
            self.go(InFlight(packet, plan, marks=marks))
        return True

    def _ask(self, packet: bytes, plan: Pass) -> None:
        """Sends a query, outside of a transaction, of which nothing has to be followed."""
        last = self._last
        last.asked_at = last.sent_at = perf_counter()
        last.counts = plan.counts
        last.went_past(plan.counts, plan.reason, plan.why)
        self.course.now = InFlight(packet, plan)
        self.write(packet, partial(self._told, plan))

    def bypass(self, now: InFlight, outcome: Bypass) -> bool:
        """Sends a read to MySQL that cannot be answered from the cache now, if that can be done
        here."""
        if outcome is DISTRUSTED or not self.may_ask_now(now):  # that may soon be over
            return False
        if not is_read_at_once(now.packet):
            return False
        self._last.went_past(now.plan.counts, outcome.reason, outcome.reason)
        self.send(now)
        return True

    def ask_missing(self, now: InFlight, lease: Lease) -> None:
        """Sends a read whose answer is to be stored."""
        now.plan.counts.missed(self._metrics)
        lease.read.tags.reads.misses += 1
        self.send(now)

    def marks_before(self, plan: Plan, text: bytes) -> Marks | None:
        """What is to be marked and observed before it is sent; None where it is not to be sent so.
        The text is its statement's, or holds it."""
        is_query = type(plan) is not Pass or not plan.turns
        if not (self.may_send_now(text) if is_query else self._may_send_any):
            return None
        view = self._terms.view
        if type(plan) is Pass:
            if plan.only_asks and view is None:
                return NO_MARKS
            if plan.writes and self._upstream.unsettled:
                return None  # nothing is written by settings that MySQL may refuse
            if plan.may_count and self._diagnostics.in_doubt_after_none:
                return None
            if not plan.reason and self._diagnostics.owes_warnings:
                return None
            if plan.meaning.prepares_transaction and self._diagnostics.owes_reads:
                return None
            if plan.meaning.prepares_otherwise and self._handles.some_unseen:
                return None
            if plan.uses:
                return plan.observes
            return self._writes.marks(plan, in_transaction=view is not None)
        return NO_MARKS if view is not None and view.uncacheable else None

    def may_ask_now(self, now: InFlight) -> bool:
        """Whether a read may be sent, as it is."""
        return now.is_plain and self.may_send_now(now.text)

    def may_send_now(self, text: bytes) -> bool:
        """Whether a query may be sent."""
        return self._may_send_any and not self._diagnostics.keeps_debt(text)

    @property
    def _may_send_any(self) -> bool:
        """Whether what is no query may be: of that its plan says if it keeps FOUND_ROWS()."""
        return self._upstream.is_free and not self._diagnostics.must_be_made_up_for

    # On the way.

    def go(self, now: InFlight) -> None:
        """Sends a command by its plan, its marks made before."""
        plan, last = now.plan, self._last
        last.asked_at = perf_counter()
        reason, why = cause_of(plan)
        last.basis = reason
        if reason:
            last.went_past(plan.counts, reason, why)
        self.course.now = now
        if now.marks.any and type(plan) is Pass and not plan.uses:
            now.marks = self._writes.narrowed(plan, now.marks, partial(self._values_of, now))
            self._writes.begin_soon(plan, now.marks, partial(self._marked, now))
        else:
            self.send(now)

    def _answers_ahead(self, packet: bytes, plan: Pass) -> bool:
        told = self.ahead.answer(packet, plan)
        if told is None:
            return False
        self._last.asked_at = perf_counter()
        self._metrics.statements_ahead += 1
        self._last.counts = plan.counts
        self._last.went_past(plan.counts, plan.reason, plan.why)
        self._finish(InFlight(packet, plan), *told)
        return True

    def _values_of(self, now: InFlight) -> Values | None:
        """Those in its text, or its execution's, if they are known."""
        context = self._terms.context
        if now.prepared is not None and now.execution is not None:
            sent = now.prepared.values(now.packet[HEADER_BYTES:], now.execution)
            if sent is None or context is None:
                return None
            return values_of_execution(sent) if context.reads_as_sent(now.prepared) else None
        literals = None if context is None else context.literals_of(now.packet)
        return None if literals is None else values_of_text(literals)

    @callback(None)
    def _marked(self, now: InFlight, ready: bool) -> None:
        if self.course.closed:
            return
        if ready and not (self._upstream.closed or self._upstream.has_some):
            self.send(now)
        else:
            self.course.hand_over(Stage.MARKED, now)

    def send(self, now: InFlight) -> None:
        """Sends a command, whose answer is then followed."""
        self._last.sent_at = perf_counter()
        view, plan, packet = self._terms.view, now.plan, now.packet
        if now.prepared is not None:
            if not self._is_prepared(now):
                return
            packet = self._handles.for_server(now.for_server())
        if plan.counts is not UNCOUNTED:
            self._last.counts = plan.counts
        if view is not None and view.needs_snapshot and not view.uncacheable and type(plan) is Read:
            now.opens = plan, self._engine.time()
        self.write(packet, self._answered)

    def _is_prepared(self, now: InFlight) -> bool:
        """Whether the server has prepared the statement of an execution that is to be sent; else
        that is sent when it has."""
        if self._handles.all_prepared:
            return True
        if self._handles.refused(now.packet) is not None:
            self.course.hand_over(Stage.LEASED if now.lease is not None else Stage.UNPLANNED, now)
            return False
        if not self._handles.awaits(number_in(now.packet)):
            return True
        self._upstream.intercept = _takes_nothing
        self._handles.when_prepared(partial(self._send_prepared, now))
        return False

    @callback(None)
    def _send_prepared(self, now: InFlight) -> None:
        if not self.course.closed:
            self._upstream.intercept = None
            self.send(now)

    def write(self, data: bytes, takes: Callable[[bytes], bool]) -> None:
        """Sends a command whose answer is for `takes`."""
        self._last.had_hits = False
        self._upstream.intercept = takes
        self._upstream.write(data)
        if self._client.closed:
            self._client.wake()

    # And back.

    def answered(self) -> None:
        """What was written has its whole answer."""
        self._upstream.intercept = None

    def _told(self, plan: Pass, chunk: bytes) -> bool:
        """Passes on the answer to what was asked, if that is plain as well."""
        terms = self._terms
        found = scan(chunk, deprecate_eof=terms.deprecate_eof)
        if found is None or terms.turned_by(found) or found[0] & Status.SESSION_STATE_CHANGED:
            return self._answered(chunk)
        try:
            self._upstream.intercept = None
            plan.counts.took(self._metrics, self._last.sent_at, len(chunk))
            self._last.note_time(plan.counts, terms.schema, fills=False)
            self.relay(chunk)
            keeps = plan.keeps_found_rows
            self._diagnostics.passed(reads=plan.reads, keeps_found_rows=keeps, rows=found[3])
            self.course.done()
        except Exception as error:
            self.course.fail(error)
        return True

    def relay(self, answer: bytes) -> None:
        """Passes an answer on, which is whole."""
        self._count()
        self._metrics.bytes_to_clients += len(answer)
        self._client.write(answer)

    def _count(self) -> None:
        """MySQL has answered one by its plan."""
        self._metrics.statements_relayed += 1
        self._metrics.statements_planned += 1

    def _came(self, now: InFlight, size: int) -> None:
        """The answer has come whole, of so many bytes."""
        counts = now.plan.counts
        counts.took(self._metrics, self._last.sent_at, size)
        self._last.note_time(counts, self._terms.schema, fills=now.lease is not None)

    @callback(True)
    def _answered(self, chunk: bytes) -> bool:
        now, terms = self.course.now, self._terms
        assert now is not None
        found = scan(chunk, deprecate_eof=terms.deprecate_eof)
        if found is None and self._long_answers.take(now, chunk, self._passed):
            return True
        if found is not None and found[0] & Status.SESSION_STATE_CHANGED:
            chunk, found = self.shown(chunk, found, now.plan)
        if found is None or (not now.marks.any and self._turns_unasked(now, found)):
            self.course.give_up()
            return False
        self._upstream.intercept = None
        self._came(now, len(chunk))
        if now.marks.any:
            now.answer = chunk
            self._writes.end_soon(now.marks, partial(self._ended, now, found))
        else:
            if type(now.plan) is Pass and now.plan.may_wait:
                self.ahead.remember(now.plan, now, chunk, found)
            self._finish(now, chunk, found)
        return True

    def _passed(self, now: InFlight, found: Plain, size: int) -> None:
        """A long answer has gone by, which tells of no other session."""
        plan, rows = now.plan, found[3]
        self._came(now, size)
        self._count()
        if now.copy is not None:
            lease = now.copy.take_lease()  # it has ended where the answer was found to be too long
            if lease is not None:
                self._fill(lease, now.copy.packets, found)
            now.copy.give_back()
        if type(plan) is Pass:
            self._follow(now, plan, rows)
        else:
            self._diagnostics.passed(reads=True, keeps_found_rows=False, rows=rows)
        self.course.done()

    def open(self, view: TransactionView, takes: Callable[[bytes], bool]) -> None:
        """Has the server begin what a transaction's first hit has begun for its client."""
        capabilities = self._terms.capabilities
        self._diagnostics.opened(view, self._terms.status, capabilities)
        self.write(query_packet(view.opening(), capabilities), takes)

    def shown(
        self, answer: bytes, found: Plain, plan: Plan | None = None
    ) -> tuple[bytes, Plain | None]:
        """What an answer that tells of the session is for the client, if this was planned for it;
        takes in what it tells of commits."""
        if self._engine.commits_from and self._terms.names_commits:
            self._writes.committed(commits_told(answer, found[5]))
        states = self._diagnostics.states
        if self._upstream.hides_tracking:
            shown = last_untracked(answer, found[5])
        elif states.differ and plan is not None:
            turns = type(plan) is Pass and plan.meaning.turns_transaction
            shown = states.in_last(answer, turns=turns)
        else:
            return answer, found
        return shown, scan(shown, deprecate_eof=self._terms.deprecate_eof)

    @callback(None)
    def _ended(self, now: InFlight, found: Plain, ended: bool) -> None:
        """What was written is known to others, if `ended`: its answer may be told."""
        if self.course.closed:
            return
        if ended:
            self._finish(now, now.answer, found)
        else:
            self._upstream.unread(now.answer)
            self.course.give_up()

    def _turns_unasked(self, now: InFlight, found: Plain) -> bool:
        """Whether the session is another one after what fills an answer, or reads from a snapshot;
        or whether a transaction that has written may have ended by what was not to end it."""
        if not self._terms.turned_by(found):
            return False
        asked = type(now.plan) is Pass and now.plan.meaning.rolls_back
        reads = now.lease is not None or now.opens is not None
        matters = reads or (not asked and bool(self._held_back.writes))
        return matters and not self._terms.begun_by(found)

    def _finish(self, now: InFlight, chunk: bytes, found: Plain) -> None:
        """Tells the client, and follows what the command left behind."""
        plan = now.plan
        if now.prepared is None or not (found[2] and now.prepared.columns):
            self.relay(chunk)
        else:
            recounts = now.prepared.recounts(found[2])
            flag = Status.METADATA_CHANGED
            self.relay(with_flags(chunk, found[4:], flag, flag if recounts else 0))
        if now.lease is not None:
            self._fill(now.lease, chunk, found)
        if type(plan) is Read and self._terms.begun_by(found):
            self.begun(now, chunk)
        if self._terms.turned_by(found):
            self._turn(now, plan, chunk)
        elif type(plan) is not Pass:
            self._diagnostics.passed(reads=True, keeps_found_rows=False, rows=found[3])
            view = self._terms.view
            if now.opens is not None and view is not None:
                view.has_read(*now.opens, found[3], self._entry_of(chunk, found, b""))
        elif plan.turns and not (self.ahead.is_idle(now.packet) or _changes_rows(plan, chunk)):
            self._turn(now, plan, chunk)
        else:
            self._follow(now, plan, rows=found[3])
        self.course.done()

    def begun(self, now: InFlight, answer: bytes) -> None:
        """The transaction that was awaited has begun, as the answer tells."""
        self._turned(now.packet, None, answer)

    def _turn(self, now: InFlight, plan: Plan, chunk: bytes) -> None:
        """The session is another one now, or may be."""
        if type(plan) is Pass and plan.changes:
            self._held_back.may_have_changed(plan, partial(self._values_of, now))
        if self._turned(now.packet, plan, chunk) and type(plan) is Pass and plan.only_sets:
            self.ahead.note_idle(now.packet)

    def _follow(self, now: InFlight, plan: Pass, rows: int) -> None:
        """What a command left behind, and did to its transaction."""
        view = self._terms.view
        if not plan.reason:
            self._diagnostics.passed_command()
        elif plan.changes:
            self._diagnostics.passed_change(keeps_found_rows=plan.keeps_found_rows)
            if view is not None:
                view.stop_caching()
                self._held_back.changed(plan, partial(self._values_of, now))
        else:
            keeps = plan.keeps_found_rows
            self._diagnostics.passed(reads=plan.reads, keeps_found_rows=keeps, rows=rows)
        if view is not None and plan.ends_caching:
            view.stop_caching()
        elif view is not None and plan.reads:
            view.read_unseen()

    # What is stored.

    def _fill(self, lease: Lease, answer: bytes, found: Plain) -> None:
        """Stores the answer to a miss, which has come whole."""
        made = self._entry_of(answer, found, lease.versions)
        if made is not None and self._engine.may_keep(lease, found[3]):
            lease.fill_soon(made)
        else:
            lease.decline_soon(lasting=made is None)

    def _entry_of(self, answer: bytes, found: Plain, versions: bytes) -> bytes | None:
        status, warnings, columns, rows, *offsets = found
        storable = columns and not warnings and not status & UNSTORABLE_STATUS
        if not storable or len(answer) > self._max_entry_bytes:
            return None
        known = [offset for offset in offsets if offset >= 0]
        return entry.encode(versions, status, known, answer, rows)
