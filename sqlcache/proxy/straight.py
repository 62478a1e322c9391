"""The straight path of one session: what has a plan is served in the event loop's own callbacks.

A command that arrives whole is looked for among the plans of the session's context. A `Read` is
looked up in the cache, a `Pass` is sent to MySQL, and the answer goes to the client, without a
task that would have to be switched to. What turns out to be unusual is handed over to the long
way, which goes on from where it is: a miss, an answer that is an error, comes in parts, gives
warnings or tells that the session is another.

Nothing is decided here. `open` is told under which context commands may be served so; what depends
on a text alone is in its plan.
"""

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

from sqlcache.cache import entry
from sqlcache.cache.engine import Engine
from sqlcache.cache.lookups import Hit, Outcome, Read, Waiter
from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import Status
from sqlcache.mysql.packets import HEADER_BYTES, payload_bytes
from sqlcache.mysql.scan import scan
from sqlcache.proxy.contexts import Context
from sqlcache.proxy.diagnostics import Diagnostics
from sqlcache.proxy.plans import Pass
from sqlcache.proxy.transaction import TransactionView

_TELLS_OF_SESSION = entry.SESSION_STATUS | int(Status.DB_DROPPED)
IN_SPOILT_TRANSACTION = "transaction"


class Undecided(NamedTuple):
    """A command that was looked up, and is no hit."""

    packet: bytes
    read: Read
    outcome: Outcome


class Sent(NamedTuple):
    """A command that was sent to MySQL, whose answer is still to be read. `plan`: a `Read` where
    its transaction can have no hits."""

    packet: bytes
    plan: Read | Pass


class StraightPath:
    """See above. `client.intercept` is to be `received` while no command is served elsewhere."""

    __slots__ = (
        *("_client", "_context", "_deprecate_eof", "_diagnostics", "_embedded", "_metrics"),
        *("_on_answer", "_on_outcome", "_packet", "_plan", "_status", "_upstream", "_view"),
        *("asked_at", "basis", "draining", "had_hits", "handed_over", "look_up"),
    )

    def __init__(
        self,
        client: Channel,
        upstream: Channel,
        engine: Engine,
        metrics: Metrics,
        diagnostics: Diagnostics,
        *,
        embedded: bool,
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._metrics = metrics
        self._diagnostics = diagnostics
        self._embedded = embedded
        self._on_outcome = self._looked_up
        self._on_answer = self._answered
        self._context: Context | None = None
        self._view: TransactionView | None = None
        self._status = 0
        self._deprecate_eof = False
        self._plan: Read | Pass | None = None  # of the command in flight
        self._packet = b""
        self.asked_at = 0.0
        """When the last command came, on `perf_counter`'s clock."""
        self.draining = False
        """Whether its session waits for the command in flight, to end."""
        self.look_up: Callable[[Read, Waiter], None] = engine.lookup
        self.handed_over: Undecided | Sent | None = None
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
        *,
        deprecate_eof: bool,
    ) -> None:
        """From here on commands may be served by the plans of this context, in a session with this
        status and open transaction. None shuts it."""
        self._context = context
        self._view = view
        self._status = status
        self._deprecate_eof = deprecate_eof

    def received(self, packet: bytes) -> bool:
        """Takes a command, if it has a plan that can be carried out here and now."""
        context = self._context
        if context is None or self._plan is not None or self._client.congested:
            return False
        plan = context.plans.get(packet)
        if plan is None:
            return False
        if type(plan) is Read and self._view is None:
            self._plan = plan
            self._packet = packet
            self.asked_at = perf_counter()
            self.look_up(plan, self._on_outcome)
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

    def _hand_over(self, command: Undecided | Sent) -> None:
        self.handed_over = command
        self._plan = None
        self._client.intercept = None  # or one that comes now would be answered first
        self._client.wake()

    def _done(self) -> None:
        self._plan = None
        if self._client.buffered or self.draining:
            self._client.wake()

    # Reads.

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
                self._diagnostics.hit(packet, packet, entry.rows_of(value, versions_bytes))
                if self._embedded:
                    self.basis = read, value, versions_bytes
                self._client.write(packets)
                self._metrics.hit_seconds.observe(perf_counter() - self.asked_at)
                self._done()
                return
        self._hand_over(Undecided(packet, read, outcome))

    # To MySQL and back.

    def _pass(self, packet: bytes, plan: Read | Pass) -> bool:
        if type(plan) is Pass:
            reason = plan.reason
        elif self._view is not None and self._view.spoilt:
            reason = IN_SPOILT_TRANSACTION
        else:
            return False
        upstream = self._upstream
        if upstream.buffered or upstream.closed or self._diagnostics.must_be_made_up_for:
            return False
        self._plan = plan
        self._packet = packet
        self._metrics.bypasses[reason] += 1
        self.basis = reason
        self.asked_at = perf_counter()
        upstream.intercept = self._on_answer
        upstream.write(packet)
        return True

    def _answered(self, chunk: bytes) -> bool:
        plan = self._plan
        assert plan is not None
        found = scan(chunk, deprecate_eof=self._deprecate_eof)
        if found is None or found[1] or (found[0] ^ self._status) & _TELLS_OF_SESSION:
            self.give_up()
            return False
        self._upstream.intercept = None
        self._metrics.upstream_seconds.observe(perf_counter() - self.asked_at)
        self._metrics.statements_relayed += 1
        self._metrics.bytes_to_clients += len(chunk)
        self._client.write(chunk)
        self._follow(plan, rows=found[3])
        self._done()
        return True

    def _follow(self, plan: Read | Pass, rows: int) -> None:
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
