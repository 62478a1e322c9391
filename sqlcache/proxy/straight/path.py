"""What comes to the straight path, and by what it is served."""

from functools import partial
from time import perf_counter

from sqlcache.cache.leases import Lease
from sqlcache.cache.marks import NO_MARKS
from sqlcache.cache.outcomes import Bypass, Hit, Miss, Outcome
from sqlcache.cache.reads import Read, Template
from sqlcache.cache.worth import UNHIT
from sqlcache.kernel import scan
from sqlcache.mysql.constants import Command, Status
from sqlcache.mysql.packets import (
    HEADER_BYTES,
    is_first_and_whole,
    payload_bytes,
)
from sqlcache.mysql.scan import number_in
from sqlcache.plan.contexts import Context
from sqlcache.plan.plans import Preparation
from sqlcache.plan.prepared import Prepared
from sqlcache.plan.state import SessionState
from sqlcache.proxy.handles import CLOSE, CLOSE_BYTES
from sqlcache.proxy.session_parts import SessionParts
from sqlcache.proxy.straight.ahead import Ahead
from sqlcache.proxy.straight.course import callback
from sqlcache.proxy.straight.exchange import Exchange, Turned, is_read_at_once
from sqlcache.proxy.straight.hits import Hits
from sqlcache.proxy.straight.inflight import InFlight, Stage
from sqlcache.proxy.straight.preparing import Preparing
from sqlcache.proxy.straight.terms import Terms
from sqlcache.proxy.transaction import OUT_OF_SNAPSHOT, TransactionView

_CODE_AT = HEADER_BYTES
_EXECUTE = bytes((Command.STMT_EXECUTE,))


class StraightPath:
    """See the package. `client.intercept` is to be `received` while no command is served
    elsewhere."""

    __slots__ = ("_client", "_embedded", "_engine", "_exchange", "_last", "_meanings", "_preparing",
                 "_terms", "ahead", "course", "hits")  # fmt: skip

    def __init__(self, shared: SessionParts, turned: Turned) -> None:
        self._client = shared.relay.client
        self._engine = shared.engine
        self._meanings = shared.meanings
        self._last = shared.last
        self._embedded = shared.embedded
        self._terms = terms = Terms()
        self.course = shared.course
        self.ahead = Ahead(shared, terms)
        self.hits = Hits(shared, terms)
        self._exchange = Exchange(shared, terms, self.ahead, turned)
        self._preparing = Preparing(shared, terms, self._exchange)

    def open(
        self, context: Context | None, view: TransactionView | None, state: SessionState
    ) -> None:
        """From here on commands may be served under these terms, see `Terms.set`. Without a context
        none is."""
        self._terms.set(context, view, state)
        self.ahead.note_idle(b"")

    def close(self) -> None:
        """The session ends, whatever is in flight."""
        self.course.close()
        self._exchange.close()

    def received(self, packet: bytes) -> bool:
        """Takes a command, if it has a plan that can be carried out here and now."""
        try:
            context = self._terms.context
            if context is None or self.course.now is not None or self._client.congested:
                return False
            plan = context.plans.get(packet)
            if plan is None:
                if packet.startswith(_EXECUTE, _CODE_AT):
                    return self._takes_execution(packet, context)
                if packet.startswith(CLOSE):
                    return self._takes_closes(packet)
                plan = context.planned(packet)
            if plan is None:
                return self._takes_by_shape(packet, context)
            if type(plan) is Preparation:
                return self._preparing.prepare(packet, plan)
            if type(plan) is not Read:
                return self._exchange.pass_on(packet, plan)
            if self.hits.answer_at_once(packet, plan):
                return True
            if self._terms.may_look_up(plan):
                self._begin(InFlight(packet, plan), plan)
                return True
            return self._exchange.pass_on(packet, plan)
        except Exception as error:
            self.course.fail(error)
            return True

    def takes_buffered(self) -> bool:
        """The same for the one command that has come while another was served elsewhere; or for
        one before it that has no answer."""
        client = self._client
        packet = client.head(CLOSE_BYTES)
        closes = packet.startswith(CLOSE)
        size = len(packet) if closes else client.buffered_bytes
        if size - HEADER_BYTES != payload_bytes(packet):
            return False
        taken = client.take(size)  # before it is answered: see `Compression`
        if not self.received(taken):
            client.unread(taken)
            return False
        return True

    def _takes_closes(self, packets: bytes) -> bool:
        """Takes the ends of prepared statements, and what came behind."""
        size = self._preparing.close(packets)
        rest = packets[size:]
        if size and rest and (rest.startswith(CLOSE) or not self.received(rest)):
            self._client.unread(rest)
            self._client.wake()
        return size > 0

    def _takes_by_shape(self, packet: bytes, context: Context) -> bool:
        """Takes a query that differs from one with a plan in its literals alone."""
        found = context.planned_by_shape(packet)
        if found is None:
            return False
        plan, literals = found
        if type(plan) is Template and self._terms.may_look_up(plan.like):
            read = plan.read(literals)
            self._begin(InFlight(packet, read, found_in=(context, packet)), read, literals)
            return True
        return self._exchange.pass_on(packet, plan)

    def _takes_execution(self, packet: bytes, context: Context) -> bool:
        """Takes an execution of a prepared statement, if there is a plan for these."""
        prepared = self._meanings.prepared_as(number_in(packet))
        if prepared is None:
            return False
        if prepared.cacheable and self._takes_like_last(packet, prepared, context):
            return True
        if not (is_read_at_once(packet) and is_first_and_whole(packet)):
            return False
        plan = self._meanings.plan_for(prepared, context)
        if plan is None:
            return False
        terms, exchange = self._terms, self._exchange
        template = plan if isinstance(plan, Template) and terms.may_look_up(plan.like) else None
        marks = NO_MARKS
        if template is None:
            found = exchange.marks_before(plan, prepared.lexed.text)
            if found is None:
                return False
            marks = found
        execution = prepared.read(packet[HEADER_BYTES:], terms.capabilities)
        known = execution.parameters if prepared.traceable else None
        if template is not None and known is not None:
            told = prepared.told(known)
            kept = context.read_for(told)
            read = kept or template.read(known)
            found_in = None if kept else (context, told)
            hit = None if kept is None else self.hits.at_once(kept)
            answer = self.hits.answer
            if hit is None or not answer(packet, read, hit, terms.status, prepared, execution):
                now = InFlight(packet, read, prepared, execution, found_in=found_in)
                self._begin(now, read, b"" if kept else known)
            return True
        now = InFlight(packet, plan, prepared, execution, marks=marks)
        if template is not None or not now.is_plain:
            self.course.hand_over(Stage.UNPLANNED, now)
        else:
            exchange.go(now)
        return True

    def _takes_like_last(self, packet: bytes, prepared: Prepared, context: Context) -> bool:
        """Takes an execution that is like the statement's last one, if its read is known."""
        like = prepared.like_last(packet)
        if like is None:
            return False
        told, execution = like
        read, terms = context.plans.get(told), self._terms
        if type(read) is not Read or not self._meanings.is_current(prepared):
            return False
        hit = self.hits.at_once(read)
        if hit and self.hits.answer(packet, read, hit, terms.status, prepared, execution):
            return True
        # The server may have to see it.
        sent_alike = prepared.preparing == context.preparing and is_read_at_once(packet)
        if not (sent_alike and terms.may_look_up(read)):
            return False
        self._begin(InFlight(packet, read, prepared, execution.with_parameters(told[-1])), read)
        return True

    # Reads that are looked up.

    def _begin(self, now: InFlight, read: Read, values: bytes = b"") -> None:
        """`values`: those that were found in its text."""
        self.course.now = now
        self._last.asked_at = perf_counter()
        view, engine = self._terms.view, self._engine
        if view is not None:
            engine.bind(read)  # what it hangs on may be older than what its table does
        why = OUT_OF_SNAPSHOT if view is not None and view.is_past(read) else None
        if values and not self._embedded and engine.worth.is_of_this_moment(read, values):
            why = why or UNHIT
        if why is None or not self._exchange.bypass(now, why):
            self.hits.look_up(read, partial(self._looked_up, now, read))

    def _looked_up(self, now: InFlight, read: Read, outcome: Outcome) -> None:
        try:
            if not self.course.closed:
                self._go_by(now, read, outcome)
        except Exception as error:
            self.course.fail(error)

    def _go_by(self, now: InFlight, read: Read, outcome: Outcome) -> None:
        """What a look-up has found."""
        view = self._terms.view
        if view is not None:
            outcome = view.part_of(read, outcome)
        if type(outcome) is Hit:
            served = self._serves_hit(now, read, outcome)
        elif type(outcome) is Miss and not self._skips_storing(read, outcome):
            served = self._takes_lease(now, read, outcome)
        else:
            outcome = UNHIT if type(outcome) is Miss else outcome
            served = type(outcome) is Bypass and self._exchange.bypass(now, outcome)
        if not served:
            self.course.hand_over(Stage.UNDECIDED, now, outcome)

    def _serves_hit(self, now: InFlight, read: Read, hit: Hit) -> bool:
        view, status = self._terms.view, self._terms.status
        if view is not None and (view.awaits_snapshot or not status & Status.IN_TRANS):
            return self._opens_snapshot(now, read, view)
        if not self.hits.answer(now.packet, read, hit, status, now.prepared, now.execution):
            return False
        if now.found_in is not None:  # it was asked before, and may be again
            context, told = now.found_in
            context.remember(told, read)
        self.course.done()
        return True

    def _opens_snapshot(self, now: InFlight, read: Read, view: TransactionView) -> bool:
        """Puts the server where a transaction's first hit puts its client; then it is looked up
        again: whether it was current still when the snapshot opened."""
        if not self._exchange.may_send_now(now.text):
            return False
        asked_at = self._engine.time()
        self._exchange.open(view, partial(self._opened, now, read, view, asked_at))
        return True

    @callback(True)
    def _opened(
        self, now: InFlight, read: Read, view: TransactionView, asked_at: float, answer: bytes
    ) -> bool:
        self._exchange.answered()
        found = scan(answer, deprecate_eof=self._terms.deprecate_eof)
        if found is not None and found[0] & Status.SESSION_STATE_CHANGED:
            answer, found = self._exchange.shown(answer, found)
        if found is not None and self._terms.begun_by(found):
            self._exchange.begun(now, answer)
        if found is None or self._terms.turned_by(found):
            self.course.hand_over(Stage.OPENING, now)
            return False
        view.opened(asked_at)
        self.hits.look_up(read, partial(self._looked_up, now, read))
        return True

    # Misses.

    def _skips_storing(self, read: Read, miss: Miss) -> bool:
        """Whether the answer is not worth it. What an embedded client makes of it may be."""
        return not self._embedded and self._engine.worth.skips(read, miss)

    def _takes_lease(self, now: InFlight, read: Read, miss: Miss) -> bool:
        plain = not (read.counts_all or self._embedded)
        return plain and self._engine.take_soon(read, miss, partial(self._leased, now))

    @callback(None)
    def _leased(self, now: InFlight, lease: Lease | None) -> None:
        if self.course.closed:
            if lease is not None:
                lease.release_soon()
            return
        if lease is None:
            self.course.hand_over(Stage.UNDECIDED, now)
            return
        now.lease = lease
        if not self._exchange.may_ask_now(now):
            self.course.hand_over(Stage.LEASED, now)
            return
        self._exchange.ask_missing(now, lease)
