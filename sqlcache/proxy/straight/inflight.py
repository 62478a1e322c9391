"""A command on the straight path, and how far it had got where the long way goes on with it."""

from enum import Enum
from typing import NamedTuple

from sqlcache.cache.leases import Lease
from sqlcache.cache.marks import NO_MARKS, Marks
from sqlcache.cache.outcomes import Outcome
from sqlcache.cache.reads import Read
from sqlcache.plan.contexts import CommandKey, Context
from sqlcache.plan.executions import Execution
from sqlcache.plan.plans import Plan
from sqlcache.plan.prepared import Prepared
from sqlcache.proxy.copies import ResponseCopy
from sqlcache.proxy.straight.parts import Parts


class InFlight:
    """One command, by its plan. `found_in`: where that was made of what others like it are, the
    context, and what it may be remembered by there."""

    __slots__ = ("answer", "copy", "execution", "found_in", "lease", "marks", "opens", "packet",
                 "parts", "plan", "prepared")  # fmt: skip

    def __init__(
        self,
        packet: bytes,
        plan: Plan,
        prepared: Prepared | None = None,
        execution: Execution | None = None,
        *,
        marks: Marks = NO_MARKS,
        found_in: tuple[Context, CommandKey] | None = None,
    ) -> None:
        self.packet = packet
        self.plan = plan
        self.prepared = prepared
        self.execution = execution
        self.marks = marks
        self.found_in = found_in
        self.lease: Lease | None = None
        """The right to fill its answer."""
        self.opens: tuple[Read, float] | None = None
        """Of a transaction's read that was sent and may have opened its snapshot, or reads from it:
        the read, and when it was sent, at the latest, on the event loop's clock."""
        self.answer = b""
        """That of a change whose fence is being lifted."""
        self.parts: Parts | None = None
        """Those that have come of its answer, where that did not come at once."""
        self.copy: ResponseCopy | None = None
        """What has come of one that is to be stored and does not come at once."""

    @property
    def text(self) -> bytes:
        """Its statement's, or what holds it."""
        return self.packet if self.prepared is None else self.prepared.lexed.text

    @property
    def is_plain(self) -> bool:
        """Whether the server need be shown nothing else before it."""
        prepared, execution = self.prepared, self.execution
        return prepared is None or execution is None or prepared.is_plain(execution)

    def for_server(self) -> bytes:
        """What is to be sent for it, which `is_plain`."""
        if self.prepared is None or self.execution is None:
            return self.packet
        self.prepared.unseen_before(self.packet, self.execution)  # it is seen from now on
        return self.prepared.for_server(self.packet, self.execution)


class Stage(Enum):
    """How far a command had got."""

    UNPLANNED = "an execution has turned out to be like none before"
    UNDECIDED = "a read is no hit"
    OPENING = "what was to open the snapshot for a hit has an answer that is not plain"
    LEASED = "a read is to fill its answer, and not ready to be sent"
    MARKED = "a change, or what prepares a statement, is not ready to be sent"
    SENT = "the answer is still to be read"


class HandedOver(NamedTuple):
    """A command that the long way is to go on with. `outcome`: of an undecided one's look-up, if
    that is still so."""

    stage: Stage
    command: InFlight
    outcome: Outcome | None = None
