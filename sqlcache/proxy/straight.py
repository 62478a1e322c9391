"""The straight path of one session: what has a plan is served in the event loop's own callbacks.

A command that arrives whole is looked for among the plans of the session's context, and an
execution of a prepared statement by what others of it were. A `Read` is looked up in the cache, a
`Pass` is sent to MySQL, and the answer goes to the client, without a task that would have to be
switched to. Who has the lease of a missing answer fills it here; where rows are changed, or a
transaction that changed some ends, the fence is raised before and lifted behind it.

What turns out to be unusual is handed over to the long way, which goes on from where it is: a fill
of another's to be waited for, a definition that is another one by now, an answer that is an error
or comes in parts.

A callback that raises ends its session, see `failure`, and no other, whoever has called it.

Nothing is decided here. `open` is told under which context commands may be served so; what depends
on a text alone is in its plan.
"""

import math
from collections.abc import Callable
from functools import partial, wraps
from time import perf_counter
from typing import Concatenate, ParamSpec, TypeVar

from sqlcache.cache import entry
from sqlcache.cache.engine import Engine
from sqlcache.cache.leases import Lease
from sqlcache.cache.lookups import Waiter
from sqlcache.cache.marks import NO_MARKS, Marks
from sqlcache.cache.outcomes import DISTRUSTED, Bypass, Hit, Miss, Outcome, Packed
from sqlcache.cache.reads import Basis, Read, Template
from sqlcache.cache.worth import UNHIT
from sqlcache.kernel import scan
from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import Capability, Command, Status
from sqlcache.mysql.packets import (
    HEADER_BYTES,
    is_first_and_whole,
    out_of_order,
    payload_bytes,
    query_packet,
    with_flags,
)
from sqlcache.mysql.scan import Plain, columns_in, number_in, prepared_in, with_number
from sqlcache.mysql.tracking import commits_told, last_untracked
from sqlcache.plan.cacheability import NotCacheable
from sqlcache.plan.contexts import Context
from sqlcache.plan.meanings import ON_THE_LOOP_BYTES, Meanings
from sqlcache.plan.pins import Values, values_of_execution, values_of_text
from sqlcache.plan.plans import LONGEST_ACCEPTED, LONGEST_PREPARED, Pass, Plan, Preparation
from sqlcache.plan.prepared import Execution, Prepared
from sqlcache.proxy.checks import Checks
from sqlcache.proxy.diagnostics import Diagnostics
from sqlcache.proxy.handles import CLOSE, CLOSE_BYTES, Handles
from sqlcache.proxy.inflight import HandedOver, InFlight, Stage
from sqlcache.proxy.relay import UNSTORABLE_STATUS
from sqlcache.proxy.slow_reads import SlowReads
from sqlcache.proxy.transaction import OUT_OF_SNAPSHOT, TransactionView
from sqlcache.proxy.writes import Writes
from sqlcache.statements import UNCOUNTED, StatementCounts

_TELLS_OF_SESSION = entry.SESSION_STATUS | Status.DB_DROPPED
_READ = "read"
_CODE_AT = HEADER_BYTES
_NUMBER_AT = _AFFECTED_AT = HEADER_BYTES + 1
_EXECUTE, _CLOSES = bytes((Command.STMT_EXECUTE,)), CLOSE[_CODE_AT:]
IN_UNCACHEABLE_TRANSACTION = NotCacheable(
    "transaction", "in a transaction that has written, or has read past the cache"
)
_MOST_AHEAD = 16  # commands that MySQL has not been told of

P = ParamSpec("P")
R = TypeVar("R")
_Does = Callable[Concatenate["StraightPath", P], R]


def _callback(when_it_raises: R) -> Callable[[_Does[P, R]], _Does[P, R]]:
    """For what is called by those who serve other sessions, too: its trouble is its session's.
    The two that every hit takes do so themselves, which costs nothing."""

    def guarded(does: _Does[P, R]) -> _Does[P, R]:
        @wraps(does)
        def called(self: "StraightPath", /, *args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return does(self, *args, **kwargs)
            except Exception as error:
                self.fail(error)
                return when_it_raises

        return called

    return guarded


def reason_of(plan: Plan) -> str:
    """Why a command that is passed on by its plan is answered by MySQL."""
    return plan.reason if isinstance(plan, Pass) else IN_UNCACHEABLE_TRANSACTION.label


def _changes_rows(plan: Pass, answer: bytes) -> bool:
    """Whether it changed some, and that is all it did."""
    return plan.changes and answer[_CODE_AT] == 0 and answer[_AFFECTED_AT] != 0


def _takes_nothing(_: bytes) -> bool:
    """While no answer is due but such as were foretold."""
    return False


def _nothing_turns(packet: bytes, plan: Plan | None, answer: bytes) -> bool:
    """Of a session that has ended."""
    return False


def _is_read_at_once(packet: bytes) -> bool:
    """Whether it may be asked on the event loop what a command means, as it is where its answer
    turns out to be unusual, and what an execution's parameters are."""
    return len(packet) <= ON_THE_LOOP_BYTES


class StraightPath:
    """See above. `client.intercept` is to be `received` while no command is served elsewhere."""

    __slots__ = (
        *("_capabilities", "_client", "_closed", "_context", "_deprecate_eof", "_diagnostics"),
        *("_embedded", "_engine", "_handles", "_idle", "_max_entry_bytes", "_metrics", "_now"),
        *("_settled", "_shadow", "_slow", "_status", "_switched_off", "_turned", "_upstream"),
        *("_view", "_writes", "asked_at", "at_once", "awaited", "basis", "begin_at_once"),
        *("counts", "failure", "had_hits", "handed_over", "look_up", "meanings", "sent_at", "why"),
    )

    def __init__(
        self,
        client: Channel,
        upstream: Channel,
        engine: Engine,
        metrics: Metrics,
        diagnostics: Diagnostics,
        meanings: Meanings,
        writes: Writes,
        handles: Handles,
        *,
        turned: Callable[[bytes, Plan | None, bytes], bool],
        slow: SlowReads,
        checks: Checks | None,
        max_entry_bytes: int,
        embedded: bool,
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._engine = engine
        self._slow = slow
        self._max_entry_bytes = max_entry_bytes
        self._metrics = metrics
        self._diagnostics = diagnostics
        self.meanings = meanings
        """What the session has prepared."""
        self._writes = writes
        self._handles = handles
        self._turned = turned
        self._idle = b""  # a command after which the session is as it was, again and again
        self._switched_off = b""  # what was told last that autocommit is no more on, of what waited
        self._embedded = embedded
        self._context: Context | None = None
        self._view: TransactionView | None = None
        self._status = 0
        self._settled = False
        self._capabilities = 0
        self._deprecate_eof = False
        self._now: InFlight | None = None
        self._closed = False
        self.counts = UNCOUNTED
        """The row of the last statement, wherever it was answered."""
        self.asked_at = 0.0
        """When the last command came, on `perf_counter`'s clock."""
        self.sent_at = 0.0
        """When the last that was sent to MySQL was."""
        self.why = ""
        """Why it was, for people, unless it was for an answer to be stored."""
        self.awaited = False
        """Whether its session waits for the command in flight to be over."""
        self.look_up: Callable[[Read, Waiter], None] = (checks or engine).lookup
        self.at_once: Callable[[Read], Hit | None] = (checks or engine).at_once
        self._shadow = checks is not None and checks.shadow
        self.handed_over: HandedOver | None = None
        """A command that the long way is to go on with; it sets this to None."""
        self.failure: Exception | None = None
        """What a callback raised: the session is to end."""
        self.begin_at_once: float = 0
        """How many transactions more MySQL is to be told of as they begin: the last of which it was
        not began with what could not be sent with that."""
        self.had_hits = False
        """Whether the server has run nothing for the client since its last hit."""
        self.basis: Basis | str = ""
        """Of an embedded client's last answer: see `Session.basis`."""

    @property
    def busy(self) -> bool:
        """Whether a command is in flight here."""
        return self._now is not None

    @property
    def awaits_mysql(self) -> bool:
        """Whether that was sent to MySQL."""
        return self._upstream.intercept is not None

    def open(
        self,
        context: Context | None,
        view: TransactionView | None,
        status: int,
        capabilities: int,
        *,
        settled: bool,
    ) -> None:
        """From here on commands may be served by the plans of this context, in a session with this
        status and open transaction. None shuts it. `settled`: the server has told all it has to
        tell of the session."""
        self._settled = settled
        self._idle = b""
        self._context = context
        self._view = view
        self._status = status
        if capabilities != self._capabilities:
            self._capabilities = capabilities
            self._deprecate_eof = bool(capabilities & Capability.DEPRECATE_EOF)

    def received(self, packet: bytes) -> bool:
        """Takes a command, if it has a plan that can be carried out here and now."""
        try:
            context = self._context
            if context is None or self._now is not None or self._client.congested:
                return False
            plan = context.plans.get(packet)
            if plan is None:
                if packet.startswith(_EXECUTE, _CODE_AT):
                    return self._takes_execution(packet, context)
                plan = context.planned(packet)
            if plan is None:
                if out_of_order(packet):
                    return False
                if packet.startswith(_CLOSES, _CODE_AT):
                    return self._closes(packet)
                return self._takes_by_shape(packet, context)
            if type(plan) is Pass:
                plain = plan.only_asks and self._view is None and self._may_send_now(packet)
                return self._ask(packet, plan) if plain else self._pass(packet, plan)
            if type(plan) is Preparation:
                return self._prepares(packet, plan)
            if type(plan) is not Read:
                return self._pass(packet, plan)
            if self._answers_at_once(packet, plan):
                return True
            if self._may_look_up(plan):
                self._begin(InFlight(packet, plan), plan)
                return True
            return self._pass(packet, plan)
        except Exception as error:
            self.fail(error)
            return True

    def takes_buffered(self) -> bool:
        """The same for the one command that has come while another was served elsewhere; or for
        one before it that has no answer."""
        packet = self._client.buffered
        if packet.startswith(CLOSE):
            packet = packet[:CLOSE_BYTES]
        if len(packet) - HEADER_BYTES != payload_bytes(packet) or not self.received(packet):
            return False
        self._client.take(len(packet))
        return True

    def give_up(self) -> None:
        """Hands over the command in flight, which was sent: its answer takes the long way."""
        assert self._now is not None
        self._upstream.intercept = None
        self._hand_over(Stage.SENT, self._now)

    def fail(self, error: Exception) -> None:
        """Nothing more is served here."""
        self.failure = error
        self._client.intercept = self._upstream.intercept = None
        self._client.wake()

    def close(self) -> None:
        """The session ends, whatever is in flight."""
        self._closed = True
        self._turned = _nothing_turns  # or both ways would keep each other from being freed
        last = self._now if self.handed_over is None else self.handed_over.command
        if last is not None and last.lease is not None:
            last.lease.release_soon()

    def _hand_over(self, stage: Stage, now: InFlight, outcome: Outcome | None = None) -> None:
        self.handed_over = HandedOver(stage, now, outcome)
        self._now = None
        self._client.intercept = None  # or one that comes now would be answered first
        self._client.wake()

    def _done(self) -> None:
        self._now = None
        if self._client.buffered or self.awaited or self._client.closed or self._upstream.closed:
            self._client.wake()

    # Reads.

    def _may_look_up(self, like: Read) -> bool:
        """Whether a read like this may be a hit, of which nothing has to be known but what a
        look-up tells."""
        view = self._view
        return view is None or (like.rolls_back and not (view.uncacheable or like.may_be_stale))

    def _begin(self, now: InFlight, read: Read, values: bytes = b"") -> None:
        """`values`: those that were found in its text."""
        self._now = now
        self.asked_at = perf_counter()
        if self._view is not None:
            self._engine.bind(read)  # what it hangs on may be older than what its table does
        why = OUT_OF_SNAPSHOT if self._view is not None and self._view.is_past(read) else None
        if values and not self._embedded and self._engine.worth.is_of_this_moment(read, values):
            why = why or UNHIT
        if why is None or not self._bypasses(now, why):
            self.look_up(read, partial(self._looked_up, now, read))

    def _takes_by_shape(self, packet: bytes, context: Context) -> bool:
        """Takes a query that differs from one with a plan in its literals alone."""
        found = context.planned_by_shape(packet)
        if found is None:
            return False
        plan, literals = found
        if type(plan) is Template and self._may_look_up(plan.like):
            read = plan.read(literals)
            self._begin(InFlight(packet, read, found_in=(context, packet)), read, literals)
            return True
        return self._pass(packet, plan)

    def _takes_execution(self, packet: bytes, context: Context) -> bool:
        """Takes an execution of a prepared statement, if there is a plan for these."""
        if not (_is_read_at_once(packet) and is_first_and_whole(packet)):
            return False
        prepared = self.meanings.prepared_as(number_in(packet))
        if prepared is None:
            return False
        if self._answers_execution_at_once(packet, prepared, context):
            return True
        plan = self.meanings.plan_for(prepared, context)
        if plan is None:
            return False
        template = plan if isinstance(plan, Template) and self._may_look_up(plan.like) else None
        marks = NO_MARKS if template is not None else self._marks_before(plan, prepared.lexed.text)
        if marks is None:
            return False
        execution = prepared.read(packet[HEADER_BYTES:], self._capabilities)
        known = execution.parameters if prepared.traceable else None
        if template is not None and known is not None:
            told = prepared.told(known)
            kept = context.read_for(told)
            read = kept or template.read(known)
            found_in = None if kept else (context, told)
            hit = None if kept is None else self._hit_at_once(kept)
            if hit is None or not self.answer(packet, read, hit, self._status, prepared, execution):
                now = InFlight(packet, read, prepared, execution, found_in=found_in)
                self._begin(now, read, b"" if kept else known)
            return True
        now = InFlight(packet, plan, prepared, execution, marks=marks)
        if template is not None or not now.is_plain:
            self._hand_over(Stage.UNPLANNED, now)
        else:
            self._go(now)
        return True

    def _prepares(self, packet: bytes, plan: Preparation) -> bool:
        """Sends what prepares a statement, if others like it were prepared."""
        diagnostics = self._diagnostics
        owes = diagnostics.must_be_made_up_for or diagnostics.owes_warnings
        if owes or not self._upstream_is_idle or not self.meanings.may_prepare(plan):
            return False
        self.asked_at = perf_counter()
        self.basis = ""
        self._now = InFlight(packet, plan)
        like = self._foretold_by(plan)
        if like is None:
            self._has_prepared(packet, plan)
        elif self._engine.is_as_defined(like):
            self._prepares_ahead(packet, plan)
        else:
            self._engine.lookup(like, partial(self._looked_at_definitions, packet, plan))
        return True

    def _foretold_by(self, plan: Preparation) -> Read | None:
        """What executions of a statement are like that MySQL surely prepares as it did before, as
        long as its tables are as they were, and that may be hits; None for others."""
        context = self._context
        if context is None or plan.answered is None or plan.answered[0] != self._told_status:
            return None
        if not plan.accepted or self._diagnostics.warned or self._shadow:
            return None
        if self._view is not None:  # which MySQL could end, where it refuses to prepare it late
            return None
        reads = context.planned((context.fingerprint, plan.text))
        settled = self._settled and self._handles.may_foretell
        if not isinstance(reads, Template) or not settled:
            return None
        return reads.like if self._may_look_up(reads.like) else None

    @_callback(None)
    def _looked_at_definitions(self, packet: bytes, plan: Preparation, outcome: Outcome) -> None:
        if self._closed:
            return
        if type(outcome) in (Hit, Packed, Miss) and self.meanings.may_prepare(plan):
            self._prepares_ahead(packet, plan)
        elif self._upstream_is_idle:
            self._has_prepared(packet, plan)
        else:
            self._hand_over(Stage.MARKED, InFlight(packet, plan))

    def _prepares_ahead(self, packet: bytes, plan: Preparation) -> None:
        """Tells that a statement is prepared. MySQL hears of it with what it has to see next, or
        never."""
        context = self._context
        assert context is not None
        assert plan.answered is not None
        answer = self._handles.prepare_ahead(packet, plan.answered[1])
        number = number_in(answer)
        self._metrics.statements_ahead += 1
        self.meanings.prepare(number, plan, columns_in(answer), context.fingerprint, context.schema)
        self._relay(answer)
        self._done()

    def _has_prepared(self, packet: bytes, plan: Preparation) -> None:
        """Has MySQL prepare it."""
        self._handles.close_others()
        self._write(packet, partial(self._prepared, packet, plan))

    @property
    def _told_status(self) -> int:
        """That which stands in what tells that a statement is prepared."""
        return 0 if self._deprecate_eof else self._status

    @_callback(True)
    def _prepared(self, packet: bytes, plan: Preparation, answer: bytes) -> bool:
        found = prepared_in(answer, deprecate_eof=self._deprecate_eof)
        context = self._context
        plain = found is not None and found[2] == plan.parameters
        if found is None or context is None or not plain or not self.meanings.may_prepare(plan):
            self.give_up()
            return False
        self._upstream.intercept = None
        number, columns = self._handles.prepared(found[0]), found[1]
        self.meanings.prepare(number, plan, columns, context.fingerprint, context.schema)
        told = self._told_status, with_number(answer, 0)
        if len(answer) <= LONGEST_PREPARED:
            context.remember_answer(packet, plan, told)
        self._relay(answer if number == found[0] else with_number(answer, number))
        self._done()
        return True

    def _closes(self, packets: bytes) -> bool:
        """Takes what tells that prepared statements are done with, to which no answer comes, and
        what came behind."""
        size = 0
        while packets.startswith(CLOSE, size) and self._upstream_is_idle:
            number = number_in(packets[size : size + CLOSE_BYTES])
            prepared = self.meanings.prepared_as(number)
            if len(packets) < size + CLOSE_BYTES or prepared is None:
                break
            self.meanings.closed(number)
            self._handles.close(number, was_hit=prepared.last_hit is not None)
            self._metrics.statements_relayed += 1
            self._metrics.statements_planned += 1
            size += CLOSE_BYTES
        rest = packets[size:]
        if size and rest and not self.received(rest):
            self._client.unread(rest)
            self._client.wake()
        return size > 0

    def _looked_up(self, now: InFlight, read: Read, outcome: Outcome) -> None:
        try:
            if not self._closed:
                self._go_by(now, read, outcome)
        except Exception as error:
            self.fail(error)

    def _go_by(self, now: InFlight, read: Read, outcome: Outcome) -> None:
        """What a look-up has found."""
        view = self._view
        if view is not None:
            outcome = view.part_of(read, outcome)
        if type(outcome) is Hit:
            served = self._serves_hit(now, read, outcome)
        elif type(outcome) is Miss and not self._skips_storing(read, outcome):
            served = self._takes_lease(now, read, outcome)
        else:
            outcome = UNHIT if type(outcome) is Miss else outcome
            served = type(outcome) is Bypass and self._bypasses(now, outcome)
        if not served:
            self._hand_over(Stage.UNDECIDED, now, outcome)

    def _serves_hit(self, now: InFlight, read: Read, hit: Hit) -> bool:
        view = self._view
        if view is not None and (view.awaits_snapshot or not self._status & Status.IN_TRANS):
            return self._opens_snapshot(now, read, view)
        if not self.answer(now.packet, read, hit, self._status, now.prepared, now.execution):
            return False
        if now.found_in is not None:  # it was asked before, and may be again
            context, told = now.found_in
            context.remember(told, read)
        self._done()
        return True

    def _opens_snapshot(self, now: InFlight, read: Read, view: TransactionView) -> bool:
        """Puts the server where a transaction's first hit puts its client; then it is looked up
        again: whether it was current still when the snapshot opened."""
        if not self._may_send_now(now.text):
            return False
        asked_at = self._engine.time()
        self._upstream.intercept = partial(self._opened, now, read, view, asked_at)
        self._upstream.write(query_packet(view.opening(), self._capabilities))
        return True

    @_callback(True)
    def _opened(
        self, now: InFlight, read: Read, view: TransactionView, asked_at: float, answer: bytes
    ) -> bool:
        self._upstream.intercept = None
        found = scan(answer, deprecate_eof=self._deprecate_eof)
        if found is not None and found[0] & Status.SESSION_STATE_CHANGED:
            answer, found = self._shown(answer, found)
        if found is not None and self._begins(found):
            self._turned(now.packet, None, answer)
        if found is None or self._turns(found):
            self._hand_over(Stage.OPENING, now)
            return False
        view.opened(asked_at)
        self.look_up(read, partial(self._looked_up, now, read))
        return True

    def _answers_at_once(self, packet: bytes, read: Read) -> bool:
        """Answers a query if nothing has to be asked first. Most hits are such: to nobody the
        session is busy meanwhile."""
        hit = self._hit_at_once(read)
        if hit is None:
            return False
        answer = entry.answer_of(hit.value, hit.versions_bytes, self._status)
        if answer is None:
            return False
        self._tell(read, hit, answer, packet, packet)
        return True

    def _answers_execution_at_once(
        self, packet: bytes, prepared: Prepared, context: Context
    ) -> bool:
        """The same for an execution that is like the statement's last one."""
        execution = prepared.like_last(packet[HEADER_BYTES:])
        if execution is None or execution.parameters is None:
            return False
        read = context.plans.get(prepared.told(execution.parameters))
        if type(read) is not Read or not self.meanings.is_current(prepared):
            return False
        hit = self._hit_at_once(read)
        return hit is not None and self.answer(packet, read, hit, self._status, prepared, execution)

    def _hit_at_once(self, read: Read) -> Hit | None:
        """The hit for which nothing has to be asked, if the session may have it as it is."""
        view = self._view
        if view is not None and not self._is_in_reach(view, read):
            return None
        self.asked_at = perf_counter()
        hit = self.at_once(read)
        return hit if view is None or hit is None or view.part_of(read, hit) is hit else None

    def _is_in_reach(self, view: TransactionView, read: Read) -> bool:
        """Whether the server is where a hit puts the client, so that it need not be told."""
        there = self._status & Status.IN_TRANS and not view.awaits_snapshot
        return bool(there) and self._may_look_up(read)

    def answer(
        self,
        packet: bytes,
        read: Read,
        hit: Hit,
        status: int,
        prepared: Prepared | None,
        execution: Execution | None,
    ) -> bool:
        """Answers a command from an entry, for a session with this status; False if it is packed.
        Here for the long way, too."""
        answer = entry.answer_of(hit.value, hit.versions_bytes, status)
        if answer is None:
            return False
        again = text = packet
        if prepared is not None:
            if prepared.recounts(entry.columns_of(answer[0])):
                flag = Status.METADATA_CHANGED
                answer = entry.answer_of(hit.value, hit.versions_bytes, status, also=flag)
                assert answer is not None
            if execution is not None:
                before = prepared.last_hit
                again = prepared.was_hit(packet, execution)
                if before is None or len(again) != len(before) or execution.new_way:
                    self.meanings.weigh(prepared)
                text = prepared.lexed.canonical
        self._tell(read, hit, answer, again, text)
        return True

    def _tell(
        self,
        read: Read,
        hit: Hit,
        answer: tuple[bytes | memoryview, int],
        again: bytes,
        text: bytes,
    ) -> None:
        """Answers by a hit. `again` and `text`: see `Diagnostics.hit`."""
        packets, rows = answer
        plain = read.proof_rows == 1
        self._diagnostics.hit(again, text, rows, plain=plain, parts=read.some_roll_back)
        self._client.write(packets)
        self.had_hits = True
        if self._embedded:
            self.basis = read.basis_of(hit)
        metrics = self._metrics
        metrics.near_hits += hit.near
        metrics.window_hits += hit.in_window
        read.tags.reads.hits += 1
        self.counts = counts = read.counts
        counts.hit(metrics, self.asked_at, len(packets))

    def note_time(self, counts: StatementCounts, schema: str | None, *, fills: bool) -> None:
        """MySQL has answered a command, in a session with this default schema, and not by an error:
        in what it cannot read a word may be a literal without its quotes, and no shape would hide
        it. `fills`: it was a miss. Here for the long way, too."""
        seconds = counts.seen_at - self.asked_at
        if fills:
            self._metrics.miss_seconds.observe(seconds)
        if seconds > self._slow.over_s and counts.kind == _READ:
            self._slow.tell(counts, seconds, schema, "miss" if fills else self.why)

    # Misses.

    def _skips_storing(self, read: Read, miss: Miss) -> bool:
        """Whether the answer is not worth it. What an embedded client makes of it may be."""
        return not self._embedded and self._engine.worth.skips(read, miss)

    def _takes_lease(self, now: InFlight, read: Read, miss: Miss) -> bool:
        plain = not (read.counts_all or self._embedded)
        return plain and self._engine.take_soon(read, miss, partial(self._leased, now))

    @_callback(None)
    def _leased(self, now: InFlight, lease: Lease | None) -> None:
        if self._closed:
            if lease is not None:
                lease.release_soon()
            return
        if lease is None:
            self._hand_over(Stage.UNDECIDED, now)
            return
        now.lease = lease
        if not self._may_ask_now(now):
            self._hand_over(Stage.LEASED, now)
            return
        now.plan.counts.missed(self._metrics)
        lease.read.tags.reads.misses += 1
        self._send(now)

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

    # To MySQL and back.

    def _bypasses(self, now: InFlight, outcome: Bypass) -> bool:
        """Sends a read to MySQL that cannot be answered from the cache now."""
        if outcome is DISTRUSTED or not self._may_ask_now(now):  # that may soon be over
            return False
        if not _is_read_at_once(now.packet):
            return False
        self.basis = self.why = outcome.reason
        now.plan.counts.went_past(self._metrics, self.basis)
        self._send(now)
        return True

    def _pass(self, packet: bytes, plan: Plan) -> bool:
        if type(plan) is Read and not _is_read_at_once(packet):
            return False
        marks = self._marks_before(plan, packet)
        if marks is None:
            return False
        if not self._answers_ahead(packet, plan):
            self._go(InFlight(packet, plan, marks=marks))
        return True

    def _ask(self, packet: bytes, plan: Pass) -> bool:
        """Sends a query, outside of a transaction, of which nothing has to be followed."""
        self.asked_at = self.sent_at = perf_counter()
        self.basis, self.why, self.counts = plan.reason, plan.why, plan.counts
        plan.counts.went_past(self._metrics, plan.reason, plan.why)
        self._now = InFlight(packet, plan)
        self._write(packet, partial(self._told, plan))
        return True

    def _told(self, plan: Pass, chunk: bytes) -> bool:
        """Passes on the answer to such a one, if that is plain as well."""
        found = scan(chunk, deprecate_eof=self._deprecate_eof)
        if found is None or self._turns(found) or found[0] & Status.SESSION_STATE_CHANGED:
            return self._answered(chunk)
        try:
            self._upstream.intercept = None
            plan.counts.took(self._metrics, self.sent_at, len(chunk))
            schema = None if self._context is None else self._context.schema
            self.note_time(plan.counts, schema, fills=False)
            self._relay(chunk)
            keeps = plan.keeps_found_rows
            self._diagnostics.passed(reads=plan.reads, keeps_found_rows=keeps, rows=found[3])
            self._done()
        except Exception as error:
            self.fail(error)
        return True

    def _relay(self, answer: bytes) -> None:
        metrics = self._metrics
        metrics.statements_relayed += 1
        metrics.statements_planned += 1
        metrics.bytes_to_clients += len(answer)
        self._client.write(answer)

    # What MySQL is told when there is more to tell.

    def _answers_ahead(self, packet: bytes, plan: Plan) -> bool:
        """Answers a command as MySQL has answered this very one in a session like this. It is sent
        with what MySQL has to see next; but once where it came several times and changed nothing.
        """
        if type(plan) is not Pass or plan.accepted is None or plan.accepted[0] != packet:
            return False
        answer = plan.accepted[1]
        found = scan(answer, deprecate_eof=self._deprecate_eof)
        room = self._upstream.ahead < _MOST_AHEAD
        if found is None or not self._may_foretell(plan, found) or not (room and self._settled):
            return False
        if plan.switches and (self.begin_at_once == math.inf or self._lets_go(found[0])):
            return False
        if plan.begins and self.begin_at_once:
            self.begin_at_once -= 1
            return False
        if self._idle != packet or self._upstream.newest_ahead != packet:
            self._upstream.write_ahead(packet, answer)
        if plan.switches:
            turns_off = self._status & ~found[0] & Status.AUTOCOMMIT
            self._switched_off = packet if turns_off else b""
        self.asked_at = perf_counter()
        self._metrics.statements_ahead += 1
        self.basis = plan.reason
        self.counts = plan.counts
        plan.counts.went_past(self._metrics, self.basis, plan.why)
        self._finish(InFlight(packet, plan), answer, found)
        return True

    def _may_foretell(self, plan: Pass, found: Plain) -> bool:
        """Whether the answer tells of the session as it is, but for a transaction that begins, or
        what becomes of the next ones while none is open."""
        turned = (found[0] ^ self._status) & _TELLS_OF_SESSION
        if plan.begins:
            return turned == Status.IN_TRANS and self._view is None and not found[1]
        if plan.switches:
            open_ = self._status & Status.IN_TRANS or self._writes.holds_back
            return not (open_ or found[1]) and turned in (0, Status.AUTOCOMMIT)
        return not turned

    def _lets_go(self, status: int) -> bool:
        """Whether others may wait for what the server lets go of when autocommit is what this
        status says: of tables that roll nothing back, where it is switched on; but not where it was
        switched off just before, of which the server has not heard either."""
        if not status & ~self._status & Status.AUTOCOMMIT:
            return False
        return not self._switched_off or self._upstream.newest_ahead != self._switched_off

    def _remember_accepted(self, plan: Pass, now: InFlight, answer: bytes, found: Plain) -> None:
        """From the second time on that it was the same answer: what is tracked may count."""
        small = len(now.packet) + len(answer) <= LONGEST_ACCEPTED and not self._shadow
        if small and now.prepared is None and self._settled and self._may_foretell(plan, found):
            same = plan.answered == (now.packet, answer)
            plan.accepted = plan.answered if same else None
            plan.answered = plan.accepted or (now.packet, answer)

    def _marks_before(self, plan: Plan, text: bytes) -> Marks | None:
        """What is to be marked and observed before it is sent; None where it is not to be sent so.
        The text is its statement's, or holds it."""
        is_query = type(plan) is not Pass or not plan.turns
        if not (self._may_send_now(text) if is_query else self._may_send_any):
            return None
        if type(plan) is Pass:
            if plan.meaning.writes and self._upstream.ahead:
                return None  # nothing is written by settings that MySQL may refuse
            if plan.may_count and self._diagnostics.in_doubt_after_none:
                return None
            if not plan.reason and self._diagnostics.owes_warnings:
                return None
            if plan.uses:
                return plan.observes
            return self._writes.marks(plan, in_transaction=self._view is not None)
        return NO_MARKS if self._view is not None and self._view.uncacheable else None

    def _go(self, now: InFlight) -> None:
        plan = now.plan
        self.asked_at = perf_counter()
        self.basis = reason_of(plan)
        if self.basis:
            self.why = plan.why if isinstance(plan, Pass) else IN_UNCACHEABLE_TRANSACTION.why
            plan.counts.went_past(self._metrics, self.basis, self.why)
        self._now = now
        if now.marks and type(plan) is Pass and not plan.uses:
            now.marks = self._writes.narrowed(plan, now.marks, partial(self._values_of, now))
            self._writes.begin_soon(plan, now.marks, partial(self._marked, now))
        else:
            self._send(now)

    def _values_of(self, now: InFlight) -> Values | None:
        """Those in its text, or its execution's, if they are known."""
        if now.prepared is not None and now.execution is not None:
            sent = now.prepared.values(now.packet[HEADER_BYTES:], now.execution)
            if sent is None or self._context is None:
                return None
            return values_of_execution(sent) if self._context.reads_as_sent(now.prepared) else None
        literals = None if self._context is None else self._context.literals_of(now.packet)
        return None if literals is None else values_of_text(literals)

    @_callback(None)
    def _marked(self, now: InFlight, ready: bool) -> None:
        if self._closed:
            return
        if ready and not (self._upstream.closed or self._upstream.buffered):
            self._send(now)
        else:
            self._hand_over(Stage.MARKED, now)

    def _may_ask_now(self, now: InFlight) -> bool:
        return now.is_plain and self._may_send_now(now.text)

    def _may_send_now(self, text: bytes) -> bool:
        """Whether a query may be sent."""
        return self._may_send_any and not self._diagnostics.keeps_debt(text)

    @property
    def _may_send_any(self) -> bool:
        """Whether what is no query may be: of that its plan says if it keeps FOUND_ROWS()."""
        return self._upstream_is_idle and not self._diagnostics.must_be_made_up_for

    @property
    def _upstream_is_idle(self) -> bool:
        upstream = self._upstream
        return not (upstream.buffered or upstream.closed or upstream.congested)

    def _send(self, now: InFlight) -> None:
        self.sent_at = perf_counter()
        view, plan = self._view, now.plan
        if now.prepared is not None and not self._is_prepared(now):
            return
        if plan.counts is not UNCOUNTED:
            self.counts = plan.counts
        if view is not None and view.needs_snapshot and not view.uncacheable and type(plan) is Read:
            now.opens = plan, self._engine.time()
        self._write(self._handles.for_server(now.for_server()), self._answered)

    def _is_prepared(self, now: InFlight) -> bool:
        """Whether the server has prepared the statement of an execution that is to be sent; else
        that is sent when it has."""
        if self._handles.all_prepared:
            return True
        if self._handles.refused(now.packet) is not None:
            self._hand_over(Stage.LEASED if now.lease is not None else Stage.UNPLANNED, now)
            return False
        if not self._handles.awaits(number_in(now.packet)):
            return True
        self._upstream.intercept = _takes_nothing
        self._handles.when_prepared(partial(self._send_prepared, now))
        return False

    @_callback(None)
    def _send_prepared(self, now: InFlight) -> None:
        if not self._closed:
            self._upstream.intercept = None
            self._send(now)

    def _write(self, data: bytes, takes: Callable[[bytes], bool]) -> None:
        """Sends a command whose answer is for `takes`."""
        self.had_hits = False
        self._upstream.intercept = takes
        self._upstream.write(data)
        if self._client.closed:
            self._client.wake()

    @_callback(True)
    def _answered(self, chunk: bytes) -> bool:
        now = self._now
        assert now is not None
        found = scan(chunk, deprecate_eof=self._deprecate_eof)
        if found is not None and found[0] & Status.SESSION_STATE_CHANGED:
            chunk, found = self._shown(chunk, found)
        if found is None or (not now.marks and self._turns_unasked(now, found)):
            self.give_up()
            return False
        self._upstream.intercept = None
        now.plan.counts.took(self._metrics, self.sent_at, len(chunk))
        schema = None if self._context is None else self._context.schema
        self.note_time(now.plan.counts, schema, fills=now.lease is not None)
        if now.marks:
            now.answer = chunk
            self._writes.end_soon(now.marks, partial(self._ended, now, found))
        else:
            if type(now.plan) is Pass and now.plan.may_wait:
                self._remember_accepted(now.plan, now, chunk, found)
            self._finish(now, chunk, found)
        return True

    def _shown(self, answer: bytes, found: Plain) -> tuple[bytes, Plain | None]:
        """What an answer that tells of the session is for the client; takes in what it tells of
        commits."""
        if self._engine.commits_from:
            self._writes.committed(commits_told(answer, found[5]))
        if not self._upstream.hides_tracking:
            return answer, found
        shown = last_untracked(answer, found[5])
        return shown, scan(shown, deprecate_eof=self._deprecate_eof)

    @_callback(None)
    def _ended(self, now: InFlight, found: Plain, ended: bool) -> None:
        """What was written is known to others, if `ended`: its answer may be told."""
        if self._closed:
            return
        if ended:
            self._finish(now, now.answer, found)
        else:
            self._upstream.unread(now.answer)
            self.give_up()

    def _turns(self, found: Plain) -> bool:
        """Whether the answer tells of another session than that of before, or of warnings."""
        return bool(found[1]) or self._tells_another(found)

    def _tells_another(self, found: Plain) -> bool:
        return bool((found[0] ^ self._status) & _TELLS_OF_SESSION)

    def _turns_unasked(self, now: InFlight, found: Plain) -> bool:
        """Whether the session is another one after what fills an answer, or reads from a snapshot;
        or whether a transaction that has written may have ended by what was not to end it."""
        asked = type(now.plan) is Pass and now.plan.meaning.rolls_back
        reads = now.lease is not None or now.opens is not None
        matters = reads or (self._writes.holds_back and not asked)
        return matters and self._turns(found) and not self._begins(found)

    def _begins(self, found: Plain) -> bool:
        """Whether all that it tells is that the transaction has begun that was awaited."""
        turned = (found[0] ^ self._status) & _TELLS_OF_SESSION
        awaited = self._view is not None and bool(found[0] & Status.IN_TRANS)
        return awaited and turned == Status.IN_TRANS and not found[1]

    def _finish(self, now: InFlight, chunk: bytes, found: Plain) -> None:
        """Tells the client, and follows what the command left behind."""
        plan = now.plan
        if now.prepared is None or not (found[2] and now.prepared.columns):
            self._relay(chunk)
        else:
            recounts = now.prepared.recounts(found[2])
            flag = Status.METADATA_CHANGED
            self._relay(with_flags(chunk, found[4:], flag, flag if recounts else 0))
        if now.lease is not None:
            self._fill(now.lease, chunk, found)
        if type(plan) is Read and self._begins(found):
            self._turned(now.packet, None, chunk)
        if self._turns(found):
            self._turn(now, plan, chunk)
        elif type(plan) is not Pass:
            self._diagnostics.passed(reads=True, keeps_found_rows=False, rows=found[3])
            if now.opens is not None and self._view is not None:
                self._view.has_read(*now.opens, found[3], self._entry_of(chunk, found, b""))
        elif plan.turns and now.packet != self._idle and not _changes_rows(plan, chunk):
            self._turn(now, plan, chunk)
        else:
            self._follow(now, plan, rows=found[3])
        self._done()

    def _turn(self, now: InFlight, plan: Plan, chunk: bytes) -> None:
        """The session is another one now, or may be."""
        if type(plan) is Pass and plan.changes:
            self._writes.may_have_changed(plan, partial(self._values_of, now))
        if self._turned(now.packet, plan, chunk) and type(plan) is Pass and plan.only_sets:
            self._idle = now.packet

    def _follow(self, now: InFlight, plan: Pass, rows: int) -> None:
        """What a command left behind, and did to its transaction."""
        if not plan.reason:
            self._diagnostics.passed_command()
        elif plan.changes:
            self._diagnostics.passed_change(keeps_found_rows=plan.keeps_found_rows)
            if self._view is not None:
                self._view.stop_caching()
                self._writes.changed(plan, partial(self._values_of, now))
        else:
            keeps = plan.keeps_found_rows
            self._diagnostics.passed(reads=plan.reads, keeps_found_rows=keeps, rows=rows)
        if self._view is not None and plan.ends_caching:
            self._view.stop_caching()
        elif self._view is not None and plan.reads:
            self._view.read_unseen()
