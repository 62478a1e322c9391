"""Copies of answers that go by, for entries."""

import asyncio

from sqlcache.cache import entry
from sqlcache.cache.leases import Lease
from sqlcache.mysql.constants import Status
from sqlcache.mysql.response import ResponseTracker
from sqlcache.proxy.relay import Relay
from sqlcache.proxy.room import Room

_LEAST_KEPT_BYTES = 65_536  # of an answer that is to be stored: no client can take that from others
_LEASE_WAITS_S = 1.0  # for a client that fills, where there is no room to read ahead of it
UNSTORABLE_STATUS = (
    Status.SESSION_STATE_CHANGED
    | Status.CURSOR_EXISTS
    | Status.PS_OUT_PARAMS
    | Status.METADATA_CHANGED  # since this session's last execution of the statement
)
"""Flags of an answer that is not to be stored."""


class ResponseCopy:
    """A bounded copy of a response that goes by, for an entry. Ended by `give_back`.

    `warnings`: how many its statement gives every time. `lease`: the right to fill the entry, which
    ends when it turns out that there will be none: others who want it wait no longer.
    """

    def __init__(
        self, max_bytes: int, room: Room, warnings: int = 0, lease: Lease | None = None
    ) -> None:
        self._max_bytes = max_bytes
        self._room = room
        self._taken = 0  # of the room
        self._warnings = warnings
        self._lease = lease
        self._wait_until: float | None = None
        self.rows: int | None = 0
        """What FOUND_ROWS() tells, if it is not the number of rows; None where it is not known."""
        self._chunks: list[bytes] = []
        self._size = 0
        self.crowded = False
        """Whether there was no room for it: another time there may be."""

    @property
    def fits(self) -> bool:
        """Whether it is not too long yet."""
        return self._size <= self._max_bytes and not self.crowded

    def add(self, chunk: bytes) -> None:
        """Keeps the next part, unless the whole is too long."""
        if not self.fits:
            return
        self._size += len(chunk)
        more = max(self._size - _LEAST_KEPT_BYTES - self._taken, 0)
        if self._room.take(more):
            self._taken += more
        else:
            self.crowded = True
        if self.fits:
            self._chunks.append(chunk)
            return
        self.give_back()
        if lease := self.take_lease():
            lease.decline_soon(lasting=not self.crowded)

    @property
    def packets(self) -> bytes:
        """What of it is kept: all, if it `fits`."""
        return b"".join(self._chunks)

    @property
    def is_waited_for(self) -> bool:
        """Whether others wait for what becomes of it."""
        return self._lease is not None

    def take_lease(self) -> Lease | None:
        """The lease, if it has not ended yet, for who ends it."""
        lease, self._lease = self._lease, None
        return lease

    async def wait_for_client(self, relay: Relay) -> None:
        """There is no room to read ahead of the client: gives up soon if it is slow. One of those
        who wait takes over."""
        now = asyncio.get_running_loop().time()
        self._wait_until = self._wait_until or now + _LEASE_WAITS_S
        if self.fits and not await relay.let_client_catch_up(max(self._wait_until - now, 0)):
            self.crowded = True
            self.give_back()
            if lease := self.take_lease():
                lease.release_soon()

    def give_back(self) -> None:
        """Keeps nothing any more."""
        self._chunks.clear()
        self._room.give_back(self._taken)
        self._taken = 0

    def storable(self, tracker: ResponseTracker) -> bool:
        """Whether it is one result set, with no other warnings than its statement always gives."""
        if not self.fits or not tracker.columns or tracker.results != 1 or not tracker.ends:
            return False
        end = tracker.ends[0]
        told = end.status is not None and end.warnings == self._warnings
        return told and not (end.status or 0) & UNSTORABLE_STATUS

    def entry(self, versions: bytes, tracker: ResponseTracker) -> bytes | None:
        """The entry to store, or None where it is not storable."""
        if self.rows is None or not self.storable(tracker):
            return None
        status = tracker.ends[0].status or 0
        rows = self.rows or tracker.rows
        return entry.encode(versions, status, tracker.status_offsets, self.packets, rows)


class Copies:
    """Makes those of one session's answers. All sessions' have their `room` together."""

    __slots__ = ("_max_bytes", "_room")

    def __init__(self, room: Room, max_bytes: int) -> None:
        self._room = room
        self._max_bytes = max_bytes

    def begin(
        self, warnings: int = 0, lease: Lease | None = None, *, max_bytes: int | None = None
    ) -> ResponseCopy:
        """One of an answer that comes now, of as many bytes at most as an entry may have, or of
        `max_bytes`. See `ResponseCopy` for the rest."""
        at_most = self._max_bytes if max_bytes is None else max_bytes
        return ResponseCopy(at_most, self._room, warnings, lease)
