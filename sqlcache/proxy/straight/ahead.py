"""Answers to what MySQL has not been told yet: as it has answered the same command before, in a
session like this. It hears of it with what it has to see next."""

import math

from sqlcache.kernel import scan
from sqlcache.mysql.constants import Status
from sqlcache.mysql.scan import Plain
from sqlcache.plan.plans import LONGEST_ACCEPTED, Pass
from sqlcache.proxy.session_parts import SessionParts
from sqlcache.proxy.straight.inflight import InFlight
from sqlcache.proxy.straight.terms import Terms

_MOST_AHEAD = 16  # commands that MySQL has not answered


class Ahead:
    """Those of one session. `shadow`: there are none."""

    __slots__ = ("_at_once", "_held_back", "_idle", "_shadow", "_switched_off", "_terms",
                 "_upstream")  # fmt: skip

    def __init__(self, shared: SessionParts, terms: Terms) -> None:
        self._upstream = shared.relay.upstream
        self._terms = terms
        self._held_back = shared.writes.held_back
        self._shadow = shared.shadow
        self._idle = b""  # a command after which the session is as it was, again and again
        self._switched_off = b""  # what was told last that autocommit is no more on, of what waited
        self._at_once: float = 0  # so many of the next transactions begin at MySQL as here

    def answer(self, packet: bytes, plan: Pass) -> tuple[bytes, Plain] | None:
        """What MySQL would say to a command, of which it hears later; but once where it came
        several times and changed nothing. None where that is not known, or not to be told."""
        if plan.accepted is None or plan.accepted[0] != packet:
            return None
        if not self._terms.settled or self._upstream.unsettled >= _MOST_AHEAD:
            return None
        answer = plan.accepted[1]
        found = scan(answer, deprecate_eof=self._terms.deprecate_eof)
        if found is None or not self._may_foretell(plan, found):
            return None
        if plan.switches and (self._at_once == math.inf or self._lets_go(found[0])):
            return None
        if plan.begins and self._at_once:
            self._at_once -= 1
            return None
        if not (self.is_idle(packet) and self._upstream.newest_ahead == packet):
            self._upstream.write_ahead(packet, answer)
        if plan.switches:
            turns_off = self._terms.status & ~found[0] & Status.AUTOCOMMIT
            self._switched_off = packet if turns_off else b""
        return answer, found

    def begin_at_once(self, transactions: float) -> None:
        """MySQL is to be told of so many of the next ones as they begin, at the least."""
        self._at_once = max(self._at_once, transactions)

    def remember(self, plan: Pass, now: InFlight, answer: bytes, found: Plain) -> None:
        """MySQL has answered a command. From the second time on that it was the same answer: what
        is tracked may count."""
        small = len(now.packet) + len(answer) <= LONGEST_ACCEPTED and not self._shadow
        may = small and now.prepared is None and self._terms.settled
        if may and self._may_foretell(plan, found):
            same = plan.answered == (now.packet, answer)
            plan.accepted = plan.answered if same else None
            plan.answered = plan.accepted or (now.packet, answer)

    def is_idle(self, packet: bytes) -> bool:
        """Whether the session was as it is after this very command, and had it before."""
        return packet == self._idle

    def note_idle(self, packet: bytes) -> None:
        """The session is as it was before this command."""
        self._idle = packet

    def _may_foretell(self, plan: Pass, found: Plain) -> bool:
        """Whether the answer tells of the session as it is, but for a transaction that begins, or
        what becomes of the next ones while none is open."""
        turned = self._terms.changed_by(found[0])
        if plan.begins:
            return turned == Status.IN_TRANS and self._terms.view is None and not found[1]
        if plan.switches:
            open_ = self._terms.status & Status.IN_TRANS or self._held_back.writes
            return not (open_ or found[1]) and turned in (0, Status.AUTOCOMMIT)
        return not turned

    def _lets_go(self, status: int) -> bool:
        """Whether others may wait for what the server lets go of when autocommit is what this
        status says: of tables that roll nothing back, where it is switched on; but not where it was
        switched off just before, of which the server has not heard either."""
        if not status & ~self._terms.status & Status.AUTOCOMMIT:
            return False
        return not self._switched_off or self._upstream.newest_ahead != self._switched_off
