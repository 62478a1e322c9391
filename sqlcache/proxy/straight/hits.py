"""Hits: commands that are answered from the cache."""

import asyncio
from collections.abc import Callable
from functools import partial
from time import perf_counter

from sqlcache.cache import entry
from sqlcache.cache.lookups import Waiter
from sqlcache.cache.outcomes import Hit
from sqlcache.cache.reads import Read
from sqlcache.mysql.constants import Status
from sqlcache.mysql.scan import number_in
from sqlcache.plan.executions import Execution
from sqlcache.plan.prepared import Prepared
from sqlcache.proxy.session_parts import SessionParts
from sqlcache.proxy.straight.terms import Terms
from sqlcache.proxy.transaction import TransactionView


class Hits:
    """Those of one session, whichever way they are found. `meanings`: what it has prepared. `room`
    is for what clients have not read of long ones."""

    __slots__ = ("_client", "_diagnostics", "_embedded", "_handles", "_last", "_meanings",
                 "_metrics", "_room", "_terms", "find_at_once", "look_up")  # fmt: skip

    def __init__(self, shared: SessionParts, terms: Terms) -> None:
        self._client = shared.relay.client
        self._terms = terms
        self._last = shared.last
        self._diagnostics = shared.diagnostics
        self._meanings = shared.meanings
        self._handles = shared.handles
        self._metrics = shared.metrics
        self._room = shared.options.for_hits
        self._embedded = shared.embedded
        asked = shared.checks or shared.engine
        self.look_up: Callable[[Read, Waiter], None] = asked.lookup
        self.find_at_once: Callable[[Read], Hit | None] = asked.at_once

    def answer_at_once(self, packet: bytes, read: Read) -> bool:
        """Answers a query if nothing has to be asked first. Most hits are such: to nobody the
        session is busy meanwhile."""
        hit = self.at_once(read)
        if hit is None:
            return False
        answer = entry.answer_of(hit.value, hit.versions_bytes, self._terms.status)
        if answer is None:
            return False
        if len(answer[0]) > self._client.buffer_bytes and not self._has_room_for(answer[0]):
            return False
        self._tell(read, hit, answer, packet, packet)
        return True

    def at_once(self, read: Read) -> Hit | None:
        """The hit for which nothing has to be asked, if the session may have it as it is."""
        view = self._terms.view
        if view is not None and not self._is_in_reach(view, read):
            return None
        self._last.asked_at = perf_counter()
        hit = self.find_at_once(read)
        return hit if view is None or hit is None or view.part_of(read, hit) is hit else None

    def _is_in_reach(self, view: TransactionView, read: Read) -> bool:
        """Whether the server is where a hit puts the client, so that it need not be told."""
        there = self._terms.status & Status.IN_TRANS and not view.awaits_snapshot
        return bool(there) and self._terms.may_look_up(read)

    def answer(
        self,
        packet: bytes,
        read: Read,
        hit: Hit,
        status: int,
        prepared: Prepared | None,
        execution: Execution | None,
    ) -> bool:
        """Answers a command from an entry, for a session with this status; False if it is
        packed, or there is no room for an answer that its client takes its time to read."""
        answer = entry.answer_of(hit.value, hit.versions_bytes, status)
        if answer is None:
            return False
        columns = 0 if prepared is None else entry.columns_of(answer[0])
        if prepared is not None and prepared.columns != columns:
            flag = Status.METADATA_CHANGED
            answer = entry.answer_of(hit.value, hit.versions_bytes, status, also=flag)
            assert answer is not None
        if len(answer[0]) > self._client.buffer_bytes and not self._has_room_for(answer[0]):
            return False
        if prepared is not None:
            prepared.columns = columns
        again = text = packet
        if prepared is not None and execution is not None:
            before = prepared.last_hit
            again = prepared.was_hit(packet, execution)
            if before is None or len(again) != len(before) or execution.new_way:
                self._meanings.weigh(prepared)
            if execution.new_way:
                self._handles.was_hit_anew(number_in(packet), prepared)
            text = prepared.lexed.canonical
        self._tell(read, hit, answer, again, text)
        return True

    def _has_room_for(self, packets: bytes | memoryview) -> bool:
        """Whether these, which are long, may be written in this turn of the event loop, though the
        client may not read them."""
        client, size = self._client, len(packets)
        kept: object = packets.obj if isinstance(packets, memoryview) else packets
        if client.encrypts:
            kept = object()
        if not self._room.take_for(kept, size):
            return False
        read = partial(self._room.give_back_of, kept, size)
        asyncio.get_running_loop().call_soon(client.when_caught_up, read)
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
        last = self._last
        last.had_hits = True
        if self._embedded:
            last.basis = read.basis_of(hit)
        metrics = self._metrics
        metrics.near_hits += hit.near
        metrics.window_hits += hit.in_window
        read.tags.reads.hits += 1
        last.counts = counts = read.counts
        counts.hit(metrics, last.asked_at, len(packets))
