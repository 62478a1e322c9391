"""Passes on answers that come in parts, as they come, where of a command nothing has to be followed
but how its answer ends, and what of it is to be stored."""

from collections.abc import Callable
from functools import partial

from sqlcache.mysql.constants import Status
from sqlcache.mysql.packets import with_flags
from sqlcache.mysql.scan import Plain
from sqlcache.plan.plans import Pass
from sqlcache.proxy.session_parts import SessionParts
from sqlcache.proxy.straight.course import callback
from sqlcache.proxy.straight.inflight import InFlight
from sqlcache.proxy.straight.parts import Parts
from sqlcache.proxy.straight.terms import Terms

Passed = Callable[[InFlight, Plain, int], None]
"""Told what an answer was that was passed on, and of how many bytes."""

_RECOUNTED = Status.METADATA_CHANGED
_TELLS_MORE = Status.SESSION_STATE_CHANGED


class LongAnswers:
    """Those of one session. What turns out not to be plain goes on the long way from there, and so
    does what a client is slow to take: it waits there."""

    __slots__ = ("_client", "_copies", "_diagnostics", "_metrics", "_terms", "_upstream", "course")

    def __init__(self, shared: SessionParts, terms: Terms) -> None:
        self.course = shared.course
        self._terms = terms
        self._client = shared.relay.client
        self._upstream = shared.relay.upstream
        self._diagnostics = shared.diagnostics
        self._metrics = shared.metrics
        self._copies = shared.copies

    def take(self, now: InFlight, chunk: bytes, passed: Passed) -> bool:
        """Takes the first part of an answer, if it is one such."""
        if self._is_followed(now):
            return False
        begun = Parts.begun(chunk, deprecate_eof=self._terms.deprecate_eof)
        if begun is None:
            return False
        now.parts, whole = begun
        if now.prepared is not None and now.prepared.columns:
            now.parts.recounts = now.prepared.recounts(now.parts.columns)
        if now.lease is not None:
            now.copy = self._copies.begin(0, now.lease)
        self._upstream.intercept = partial(self._comes_on, now, now.parts, passed)
        self._pass_on(now, now.parts, whole, now.parts.flags_at)
        return True

    def _is_followed(self, now: InFlight) -> bool:
        """Whether more has to be known than how it ends."""
        plan = now.plan
        if type(plan) is Pass and (plan.turns or plan.may_wait or plan.changes):
            return True
        followed = now.marks.any or now.opens is not None
        return followed or self._upstream.hides_tracking or self._diagnostics.states.differ

    @callback(True)
    def _comes_on(self, now: InFlight, parts: Parts, passed: Passed, chunk: bytes) -> bool:
        begins = parts.passed_bytes
        whole = parts.take(chunk)
        found = None if parts.goes_on else parts.end
        if found is None or self._terms.turned_by(found) or found[0] & _TELLS_MORE:
            self._pass_on(now, parts, whole)
            if not parts.goes_on:
                self._leave(parts)
            return True
        self._upstream.intercept = None
        last = whole + parts.held
        self._pass_on(now, parts, last, found[5] - begins)
        passed(now, found, begins + len(last))
        return True

    def _pass_on(self, now: InFlight, parts: Parts, packets: bytes, flags_at: int = -1) -> None:
        if now.copy is not None:
            now.copy.add(packets)
        if parts.recounts is not None:
            put = _RECOUNTED if parts.recounts else 0
            packets = with_flags(packets, (flags_at,), _RECOUNTED, put)
        self._metrics.bytes_to_clients += len(packets)
        self._client.write(packets)
        if self._client.congested:
            self._leave(parts)

    def _leave(self, parts: Parts) -> None:
        """The long way goes on with what is held, unless that was the end."""
        if self._upstream.intercept is not None:
            self._upstream.unread(parts.held)
            self.course.give_up()
