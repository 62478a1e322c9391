"""The straight path of one session: what has a plan is served in the event loop's own callbacks.

A command that arrives whole is looked for among the plans of the session's context, and an
execution of a prepared statement by what others of it were. A `Read` is looked up in the cache, a
`Pass` is sent to MySQL, and the answer goes to the client, without a task that would have to be
switched to. What turns out to be unusual is handed over to the long way, which goes on from where
it is: a miss, an answer that is an error or comes in parts.

Nothing is decided here. `open` is told under which context commands may be served so; what depends
on a text alone is in its plan.
"""

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

from sqlcache.cache import entry
from sqlcache.cache.engine import Engine
from sqlcache.cache.lookups import Hit, Outcome, Read, Template, Waiter
from sqlcache.errors import ProtocolError
from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import Capability, Command, Status
from sqlcache.mysql.packets import HEADER_BYTES, payload_bytes
from sqlcache.mysql.scan import scan
from sqlcache.proxy.contexts import Context
from sqlcache.proxy.diagnostics import Diagnostics
from sqlcache.proxy.meanings import ON_THE_LOOP_BYTES, Meanings
from sqlcache.proxy.plans import Pass, Plan
from sqlcache.proxy.prepared import Execution, Prepared
from sqlcache.proxy.transaction import TransactionView
from sqlcache.proxy.writes import Writes

_TELLS_OF_SESSION = entry.SESSION_STATUS | int(Status.DB_DROPPED)
_EXECUTE = bytes((Command.STMT_EXECUTE,))
_CODE_AT = HEADER_BYTES
_NUMBER_AT = HEADER_BYTES + 1
IN_SPOILT_TRANSACTION = "transaction"


class Undecided(NamedTuple):
    """A command that was looked up, and is no hit."""

    packet: bytes
    read: Read
    outcome: Outcome
    execution: Execution | None


class Unplanned(NamedTuple):
    """An execution of a prepared statement that has turned out to be like none before."""

    packet: bytes
    execution: Execution


class Sent(NamedTuple):
    """A command that was sent to MySQL, whose answer is still to be read. `plan`: no `Pass` where
    its transaction can have no hits."""

    packet: bytes
    plan: Plan
    execution: None = None


HandedOver = Undecided | Unplanned | Sent


def reason_of(plan: Plan) -> str:
    """Why a command that is passed on by its plan is answered by MySQL."""
    return plan.reason if isinstance(plan, Pass) else IN_SPOILT_TRANSACTION


class StraightPath:
    """See above. `client.intercept` is to be `received` while no command is served elsewhere."""

    __slots__ = (
        *("_capabilities", "_client", "_context", "_deprecate_eof", "_diagnostics", "_embedded"),
        *("_execution", "_metrics", "_on_answer", "_on_outcome", "_packet", "_plan", "_prepared"),
        *("_status", "_turned", "_upstream", "_view", "_writes", "asked_at", "basis", "draining"),
        *("_planned_in", "had_hits", "handed_over", "look_up", "meanings"),
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
        *,
        turned: Callable[[bytes, Plan, bytes], None],
        embedded: bool,
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._metrics = metrics
        self._diagnostics = diagnostics
        self.meanings = meanings
        """What the session has prepared."""
        self._writes = writes
        self._turned = turned
        self._embedded = embedded
        self._on_outcome = self._looked_up
        self._on_answer = self._answered
        self._context: Context | None = None
        self._view: TransactionView | None = None
        self._status = 0
        self._capabilities = Capability(0)
        self._deprecate_eof = False
        # Of the command in flight.
        self._plan: Plan | None = None
        self._planned_in: Context | None = None  # by its shape
        self._packet = b""
        self._prepared: Prepared | None = None
        self._execution: Execution | None = None
        self.asked_at = 0.0
        """When the last command came, on `perf_counter`'s clock."""
        self.draining = False
        """Whether its session waits for the command in flight, to end."""
        self.look_up: Callable[[Read, Waiter], None] = engine.lookup
        self.handed_over: HandedOver | None = None
        """A command that the long way is to go on with; it sets this to None."""
        self.had_hits = False
        """Whether the server knows nothing of what the client did last."""
        self.basis: tuple[Read, bytes, int] | str = ""
        """Of an embedded client's last answer: see `Session.basis`."""

    @property
    def busy(self) -> bool:
        """Whether a command is in flight here."""
        return self._plan is not None

    @property
    def awaits_mysql(self) -> bool:
        """Whether that was sent to MySQL."""
        return self._upstream.intercept is not None

    def open(
        self,
        context: Context | None,
        view: TransactionView | None,
        status: int,
        capabilities: Capability,
    ) -> None:
        """From here on commands may be served by the plans of this context, in a session with this
        status and open transaction. None shuts it."""
        self._context = context
        self._view = view
        self._status = status
        if capabilities != self._capabilities:
            self._capabilities = capabilities
            self._deprecate_eof = bool(capabilities & Capability.DEPRECATE_EOF)

    def received(self, packet: bytes) -> bool:
        """Takes a command, if it has a plan that can be carried out here and now."""
        context = self._context
        if context is None or self._plan is not None or self._client.congested:
            return False
        plan = context.plans.get(packet) or context.planned(packet)
        if plan is None:
            executes = packet[_CODE_AT:_NUMBER_AT] == _EXECUTE
            take = self._takes_execution if executes else self._takes_by_shape
            return take(packet, context)
        if type(plan) is Read and self._view is None:
            self._begin(packet, plan)
            return True
        return self._pass(packet, plan)

    def takes_buffered(self) -> bool:
        """The same for the one command that has come while another was served elsewhere."""
        packet = self._client.buffered
        if len(packet) - HEADER_BYTES != payload_bytes(packet) or not self.received(packet):
            return False
        self._client.take(len(packet))
        return True

    def give_up(self) -> None:
        """Hands over the command in flight, which was sent: its answer takes the long way."""
        assert self._plan is not None
        self._upstream.intercept = None
        self._hand_over(Sent(self._packet, self._plan))

    def _hand_over(self, command: HandedOver) -> None:
        self.handed_over = command
        self._plan = self._planned_in = self._prepared = self._execution = None
        self._client.intercept = None  # or one that comes now would be answered first
        self._client.wake()

    def _done(self) -> None:
        self._plan = self._planned_in = self._prepared = self._execution = None
        if self._client.buffered or self.draining:
            self._client.wake()

    # Reads.

    def _begin(self, packet: bytes, read: Read) -> None:
        self._plan = read
        self._packet = packet
        self.asked_at = perf_counter()
        self.look_up(read, self._on_outcome)

    def _takes_by_shape(self, packet: bytes, context: Context) -> bool:
        """Takes a query that differs from one with a plan in its literals alone."""
        found = context.planned_by_shape(packet)
        if found is None:
            return False
        plan, literals = found
        if type(plan) is Template and self._view is None:
            self._planned_in = context
            self._begin(packet, plan.read(literals))
            return True
        return self._pass(packet, plan)

    def _takes_execution(self, packet: bytes, context: Context) -> bool:
        """Takes an execution of a prepared statement, if there is a plan for these."""
        whole = len(packet) - HEADER_BYTES == payload_bytes(packet)
        if not whole or len(packet) > ON_THE_LOOP_BYTES:
            return False
        number = int.from_bytes(packet[_NUMBER_AT : _NUMBER_AT + 4], "little")
        prepared = self.meanings.prepared_as(number)
        plan = None if prepared is None else prepared.planned_under(context)
        if prepared is None or not isinstance(plan, Template | Pass):
            return False
        template = plan if isinstance(plan, Template) and self._view is None else None
        if template is None and (prepared.has_unseen or not self._may_send(plan)):
            return False
        try:
            execution = prepared.read(packet[HEADER_BYTES:], self._capabilities)
        except ProtocolError:
            return False
        known = execution.parameters if prepared.traceable else None
        if template is not None and known is not None:
            self._prepared = prepared
            self._execution = execution
            self._begin(packet, template.read(known))
        elif template is not None or execution.cursor:
            self._hand_over(Unplanned(packet, execution))
        else:
            self._send(prepared.for_server(packet, execution), plan)
        return True

    def _looked_up(self, outcome: Outcome) -> None:
        read = self._plan
        assert type(read) is Read
        packet = self._packet
        if type(outcome) is Hit:
            value, versions_bytes = outcome.value, outcome.versions_bytes
            packets = entry.packets_for(value, versions_bytes, self._status)
            if packets is not None:
                self._metrics.hits += 1
                self.had_hits = True
                if self._planned_in is not None:  # it was asked before, and may be again
                    self._planned_in.remember(packet, read)
                again = text = packet
                if self._prepared is not None and self._execution is not None:
                    again = self._prepared.was_hit(packet, self._execution)
                    self.meanings.weigh(self._prepared)
                    text = self._prepared.lexed.canonical
                self._diagnostics.hit(again, text, entry.rows_of(value, versions_bytes))
                if self._embedded:
                    self.basis = read, value, versions_bytes
                self._client.write(packets)
                self._metrics.hit_seconds.observe(perf_counter() - self.asked_at)
                self._done()
                return
        self._hand_over(Undecided(packet, read, outcome, self._execution))

    # To MySQL and back.

    def _pass(self, packet: bytes, plan: Plan) -> bool:
        if not self._may_send(plan):
            return False
        self._send(packet, plan)
        return True

    def _may_send(self, plan: Plan) -> bool:
        """Whether nothing has to be done before."""
        if type(plan) is not Pass:
            if self._view is None or not self._view.spoilt:
                return False
        elif plan.turns and self._writes.holds_back:
            return False
        upstream = self._upstream
        idle = not (upstream.buffered or upstream.closed or upstream.congested)
        return idle and not self._diagnostics.must_be_made_up_for

    def _send(self, packet: bytes, plan: Plan) -> None:
        self._plan = plan
        self._packet = packet
        self.basis = reason_of(plan)
        self._metrics.bypasses[self.basis] += 1
        self.asked_at = perf_counter()
        self._upstream.intercept = self._on_answer
        self._upstream.write(packet)

    def _answered(self, chunk: bytes) -> bool:
        plan = self._plan
        assert plan is not None
        found = scan(chunk, deprecate_eof=self._deprecate_eof)
        if found is None:
            self.give_up()
            return False
        turned = found[1] or (found[0] ^ self._status) & _TELLS_OF_SESSION
        if turned and self._writes.holds_back:
            self.give_up()
            return False
        self._upstream.intercept = None
        self._metrics.upstream_seconds.observe(perf_counter() - self.asked_at)
        self._metrics.statements_relayed += 1
        self._metrics.statements_planned += 1
        self._metrics.bytes_to_clients += len(chunk)
        self._client.write(chunk)
        if turned or (type(plan) is Pass and plan.turns):
            self._turned(self._packet, plan, chunk)
        else:
            self._follow(plan, rows=found[3])
        self._done()
        return True

    def _follow(self, plan: Plan, rows: int) -> None:
        """What the query left behind, and did to its transaction."""
        if type(plan) is not Pass:
            self._diagnostics.passed(reads=True, keeps_found_rows=False, rows=rows)
            return
        keeps = plan.keeps_found_rows
        self._diagnostics.passed(reads=plan.reads, keeps_found_rows=keeps, rows=rows)
        if self._view is not None and plan.spoils:
            self._view.spoil()
        elif self._view is not None and plan.reads:
            self._view.read_unseen()
