"""What the reads of a transaction may be answered from, so that its isolation level holds.

- READ COMMITTED: every read sees what is current, so a hit is as right as outside a transaction.
- REPEATABLE READ: all reads see one moment, the snapshot. The server opens it when it first reads a
  row, which not every query makes it do, or when it is told to. A cached answer is part of that
  moment if the versions of its tags have not changed since before it: if this process had already
  seen them when the snapshot was asked for, and sees them still. An answer that the server computes
  in the snapshot may be stored under the same condition: it is then the current one, too.
- What the transaction has read in its snapshot stays the same, so it may be remembered for it.
- After its first write or locking read a transaction sees what no one else sees: from then on
  everything goes to the server, and nothing is stored.

Times are seconds on one clock, that of the look-ups.
"""

from sqlcache.cache.outcomes import Bypass, Hit, Miss, Outcome, Packed
from sqlcache.cache.reads import Read
from sqlcache.proxy.room import Room
from sqlcache.sql.statement import Access, Kind, Statement, Transaction

READ_COMMITTED = "read-committed"
REPEATABLE_READ = "repeatable-read"

OUT_OF_SNAPSHOT = Bypass("not provably in the transaction's snapshot")

_MOST_KEPT_BYTES = 4_000_000  # of one; all have their room together
_KEPT_OVERHEAD_BYTES = 300  # of an answer: a dictionary's slot, a tuple and two objects, roughly
_Key = tuple[bytes, int | None]  # of a read, and the edition it was planned by
_UNDER_KNOWN_DEFINITIONS = frozenset({Hit, Miss, Packed})
_LEAVES_ALL_AS_IT_IS = frozenset({Kind.READ, Kind.SESSION})


class TransactionView:
    """One transaction, from its first statement to its end, which `end` tells. What it has read in
    its snapshot is remembered for it as long as there is `room`, which all have together; by
    default it has some of its own."""

    __slots__ = ("_access", "_chained_access", "_kept", "_kept_bytes", "_most_kept_bytes", "_room",
                 "has_own_level", "isolation", "needs_snapshot", "opened_at",
                 "uncacheable")  # fmt: skip

    def __init__(
        self, isolation: str, room: Room | None = None, *, has_own_level: bool = False
    ) -> None:
        self.isolation = isolation
        self.needs_snapshot = isolation == REPEATABLE_READ
        """Whether its reads are bound to one moment."""
        self.has_own_level = has_own_level
        """Whether that was set for it alone."""
        self._most_kept_bytes = _MOST_KEPT_BYTES
        self._room = Room(_MOST_KEPT_BYTES) if room is None else room
        self.uncacheable = isolation not in (READ_COMMITTED, REPEATABLE_READ)
        """Nothing may be answered from the cache any more."""
        self.opened_at: float | None = None
        """When the snapshot was asked for, at the latest; None while there may be none."""
        self._access: Access | None = None
        """As it was begun; None: as the session has it."""
        self._chained_access = False  # see `follow`
        self._kept: dict[_Key, bytes] = {}
        self._kept_bytes = 0

    @property
    def has_snapshot(self) -> bool:
        """Whether its reads are bound to one moment, and that moment has come."""
        return self.needs_snapshot and self.opened_at is not None

    @property
    def awaits_snapshot(self) -> bool:
        """Whether its reads are bound to one moment, which may not have come yet."""
        return self.needs_snapshot and self.opened_at is None

    @property
    def has_own_access(self) -> bool:
        """Whether it was begun as READ ONLY or READ WRITE, whatever the session has."""
        return self._access is not None or self._chained_access

    def follow(self, before: "TransactionView") -> None:
        """It may be chained to that one, and have what was set for that one alone."""
        self.has_own_level = before.has_own_level
        self.uncacheable |= before.has_own_level
        self._chained_access = before.has_own_access

    def opening(self) -> bytes:
        """The statement that puts the server where the first hit puts the client: in a
        transaction, whose snapshot is open if it has one."""
        told = [] if self.isolation == READ_COMMITTED else ["WITH CONSISTENT SNAPSHOT"]
        if self._access is not None:
            told.append(self._access.value)
        return f"START TRANSACTION {', '.join(told)}".rstrip().encode()

    def opened(self, asked_at: float) -> None:
        """The server was asked at that time for what opens the snapshot, and has answered."""
        if self.opened_at is None:
            self.opened_at = asked_at

    def read_unseen(self) -> None:
        """The server answered a read of which it is not known whether it opened the snapshot."""
        self.uncacheable |= self.needs_snapshot and not self.has_snapshot

    def holds(self, seen_since: float) -> bool:
        """Whether versions that are current, and were seen by then, are those of its moment."""
        # A loop's clock counts in milliseconds: what bears the same time may be older or younger.
        return not self.has_snapshot or (self.opened_at or 0) > seen_since

    def part_of(self, read: Read, outcome: Outcome) -> Outcome:
        """What the transaction may have of what a look-up has found."""
        if kept := self.kept(read, outcome):
            return Hit(kept, 0)
        if type(outcome) is Hit:
            early = self.opens_too_early(read, outcome)
            past = not self.holds(outcome.since)
            return OUT_OF_SNAPSHOT if early or past else outcome
        past = type(outcome) is Miss and not self.holds(outcome.since)
        return OUT_OF_SNAPSHOT if past else outcome

    def opens_too_early(self, read: Read, hit: Hit) -> bool:
        """Whether the snapshot would be opened for a hit for which the server opens none: it does
        not for what it can answer without reading a row."""
        return self.awaits_snapshot and not read.proved_by(hit)

    def allows(self, read: Read, hit: Hit) -> bool:
        """Whether it may have this hit, which is current, if its server does as it is told."""
        early = self.opens_too_early(read, hit)
        held = read.rolls_back and self.holds(hit.since)
        return held and not (self.uncacheable or early)

    def is_past(self, read: Read) -> bool:
        """Whether it need not be looked up: its tables have changed since the snapshot, or the rows
        that it pins."""
        if not self.has_snapshot or self.may_have_kept(read):
            return False
        return not (self.holds(read.tags.seen_since) and self.holds(read.tags.touched_at))

    def has_read(self, read: Read, asked_at: float, rows: int, entry: bytes | None) -> None:
        """The server has answered a read that it was asked at that time, with so many rows, which
        can be kept as this entry, if they can."""
        if not read.proves_reading(rows):  # a condition that is never met, a LIMIT of 0
            self.read_unseen()
        else:
            self.opened(asked_at)
        if entry is not None and not read.counts_all:
            self.keep(read, entry)

    def ran(self, statement: Statement) -> None:
        """Follows a statement in the transaction, its first one included."""
        if statement.transaction is Transaction.START:
            self._access = statement.access
            # The server has opened it, at a time not known well enough.
            self.uncacheable |= statement.opens_snapshot
            return
        if statement.transaction is Transaction.ROLLBACK_TO_SAVEPOINT:
            self._forget()  # others may redefine by now what it read since
        if self._ends_caching(statement):
            self.stop_caching()

    def stop_caching(self) -> None:
        """From here on nothing may be answered from the cache."""
        self.uncacheable = True
        self._forget()

    def _ends_caching(self, statement: Statement) -> bool:
        if statement.writes or statement.writes_everything or statement.locking_read:
            return True
        if statement.transaction is not None:
            # Beginning anew would lose a savepoint; once there is a snapshot it is not needed.
            return self.opened_at is None or statement.transaction is Transaction.XA
        return statement.kind not in _LEAVES_ALL_AS_IT_IS

    def keep(self, read: Read, entry: bytes) -> None:
        """Remembers an answer from the snapshot, as long as there is room."""
        if not self.has_snapshot or self.uncacheable:
            return
        of = read.key, read.edition
        if of in self._kept:
            self._drop(of)
        size = _kept_size(of, entry)
        if self._kept_bytes + size <= self._most_kept_bytes and self._room.take(size):
            self._kept[of] = entry
            self._kept_bytes += size

    def kept(self, read: Read, outcome: Outcome) -> bytes | None:
        """What the transaction has read so before, if it may be answered from that: a look-up has
        just found that rights and definitions are those of then."""
        if self.uncacheable or type(outcome) not in _UNDER_KNOWN_DEFINITIONS:
            return None
        return self._kept.get((read.key, read.edition))

    def end(self) -> None:
        """It is over, and remembers nothing from here on."""
        self._most_kept_bytes = 0
        self._forget()

    def _drop(self, of: _Key) -> None:
        size = _kept_size(of, self._kept.pop(of))
        self._kept_bytes -= size
        self._room.give_back(size)

    def _forget(self) -> None:
        self._kept.clear()
        self._room.give_back(self._kept_bytes)
        self._kept_bytes = 0

    def may_have_kept(self, read: Read) -> bool:
        """Whether it is worth looking up."""
        return not self.uncacheable and (read.key, read.edition) in self._kept


def _kept_size(of: _Key, entry: bytes) -> int:
    return len(of[0]) + len(entry) + _KEPT_OVERHEAD_BYTES
