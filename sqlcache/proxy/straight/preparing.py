"""Prepared statements' beginning and end on the straight path.

What others like it were prepared as is told at once where MySQL surely prepares it so: it hears of
it with what it has to see next, or never. Else it is sent.
"""

from functools import partial
from time import perf_counter

from sqlcache.cache.outcomes import Hit, Miss, Outcome, Packed
from sqlcache.cache.reads import Read, Template
from sqlcache.mysql.scan import columns_in, number_in, prepared_in, with_number
from sqlcache.plan.plans import LONGEST_PREPARED, Preparation
from sqlcache.proxy.handles import CLOSE, CLOSE_BYTES
from sqlcache.proxy.session_parts import SessionParts
from sqlcache.proxy.straight.course import callback
from sqlcache.proxy.straight.exchange import Exchange
from sqlcache.proxy.straight.inflight import InFlight, Stage
from sqlcache.proxy.straight.terms import Terms

_CLOSES_BYTES = 100 * CLOSE_BYTES  # in one go


class Preparing:
    """That of one session. `foretells`: whether anything is told before MySQL has said it."""

    __slots__ = ("_diagnostics", "_engine", "_exchange", "_foretells", "_handles", "_last",
                 "_meanings", "_metrics", "_terms", "_upstream", "course")  # fmt: skip

    def __init__(self, shared: SessionParts, terms: Terms, exchange: Exchange) -> None:
        self.course = shared.course
        self._terms = terms
        self._exchange = exchange
        self._upstream = shared.relay.upstream
        self._engine = shared.engine
        self._last = shared.last
        self._diagnostics = shared.diagnostics
        self._meanings = shared.meanings
        self._handles = shared.handles
        self._metrics = shared.metrics
        self._foretells = not shared.shadow

    def prepare(self, packet: bytes, plan: Preparation) -> bool:
        """Takes what prepares a statement, if others like it were prepared."""
        diagnostics = self._diagnostics
        owes = diagnostics.must_be_made_up_for or diagnostics.owes_warnings
        if owes or not self._upstream.is_free or not self._meanings.may_prepare(plan):
            return False
        self._last.asked_at = perf_counter()
        self._last.basis = ""
        like = self._foretold_by(plan)
        if like is not None and self._engine.is_as_defined(like):
            self._tell_ahead(packet, plan)
            return True
        self.course.now = InFlight(packet, plan)
        if like is None:
            self._send(packet, plan)
        else:
            self._engine.lookup(like, partial(self._looked_at_definitions, packet, plan))
        return True

    def _foretold_by(self, plan: Preparation) -> Read | None:
        """What executions of a statement are like that MySQL surely prepares as it did before, as
        long as its tables are as they were, and that may be hits; None for others."""
        terms = self._terms
        context = terms.context
        if context is None or plan.answered is None or plan.answered[0] != self._told_status:
            return None
        if not plan.accepted or self._diagnostics.warned or not self._foretells:
            return None
        if terms.view is not None:  # which MySQL could end, where it refuses to prepare it late
            return None
        reads = context.planned((context.fingerprint, plan.text))
        settled = terms.settled and self._handles.may_foretell
        if not isinstance(reads, Template) or not settled:
            return None
        return reads.like if terms.may_look_up(reads.like) else None

    @callback(None)
    def _looked_at_definitions(self, packet: bytes, plan: Preparation, outcome: Outcome) -> None:
        if self.course.closed:
            return
        if self._terms.context is None:  # there are no hits any more
            self.course.hand_over(Stage.MARKED, InFlight(packet, plan))
        elif type(outcome) in (Hit, Packed, Miss) and self._meanings.may_prepare(plan):
            self._tell_ahead(packet, plan)
            self.course.done()
        elif self._upstream.is_free:
            self._send(packet, plan)
        else:
            self.course.hand_over(Stage.MARKED, InFlight(packet, plan))

    def _tell_ahead(self, packet: bytes, plan: Preparation) -> None:
        """Tells that a statement is prepared, of which MySQL hears later."""
        assert plan.answered is not None
        answer = self._handles.prepare_ahead(packet, plan.answered[1])
        self._metrics.statements_ahead += 1
        self._remember(number_in(answer), plan, columns_in(answer))
        self._exchange.relay(answer)

    def _send(self, packet: bytes, plan: Preparation) -> None:
        """Has MySQL prepare it."""
        self._handles.close_others()
        self._exchange.write(packet, partial(self._prepared, packet, plan))

    @property
    def _told_status(self) -> int:
        """That which stands in what tells that a statement is prepared."""
        return 0 if self._terms.deprecate_eof else self._terms.status

    @callback(True)
    def _prepared(self, packet: bytes, plan: Preparation, answer: bytes) -> bool:
        found = prepared_in(answer, deprecate_eof=self._terms.deprecate_eof)
        context = self._terms.context
        plain = found is not None and found[2] == plan.parameters
        if found is None or context is None or not plain or not self._meanings.may_prepare(plan):
            self.course.give_up()
            return False
        self._exchange.answered()
        number = self._handles.prepared(found[0])
        self._remember(number, plan, found[1])
        told = self._told_status, with_number(answer, 0)
        if len(answer) <= LONGEST_PREPARED:
            context.remember_answer(packet, plan, told)
        self._exchange.relay(answer if number == found[0] else with_number(answer, number))
        self.course.done()
        return True

    def _remember(self, number: int, plan: Preparation, columns: int) -> None:
        context = self._terms.context
        assert context is not None
        like = context.fingerprint, context.schema, context.preparing
        self._meanings.prepare(number, plan, columns, *like)

    def close(self, packets: bytes) -> int:
        """Takes what tells that prepared statements are done with, to which no answer comes; not
        so many that others wait. How many bytes of the packets that is."""
        size = 0
        while packets.startswith(CLOSE, size) and size < _CLOSES_BYTES and self._upstream.is_free:
            number = number_in(packets[size : size + CLOSE_BYTES])
            prepared = self._meanings.prepared_as(number)
            if len(packets) < size + CLOSE_BYTES or prepared is None:
                break
            self._meanings.closed(number)
            self._handles.close(number, was_hit=prepared.last_hit is not None)
            self._metrics.statements_relayed += 1
            self._metrics.statements_planned += 1
            size += CLOSE_BYTES
        return size
