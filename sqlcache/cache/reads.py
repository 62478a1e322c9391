"""Reads, as the cache knows them: the key of an answer, and the tags that it hangs on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from sqlcache.cache.entry import COUNTED, rows_of
from sqlcache.cache.keys import EntryKeys
from sqlcache.cache.outcomes import Hit
from sqlcache.cache.slots import NEVER, InUse, Pinning, Slots
from sqlcache.cache.tags import ID_BYTES, Pins, Tag
from sqlcache.memcache.cluster import Request
from sqlcache.memcache.health import Health
from sqlcache.memcache.protocol import meta_get
from sqlcache.statement_counts import UNCOUNTED, StatementCounts
from sqlcache.table_counts import TableReads

_AGAIN = b"again "  # no key has a space


class TagSet:
    """The tags one answer hangs on, in the order its entry lists their versions.

    Made by `Engine.tag_set`, mostly one per set of tags: compared by identity. `nodes` are those
    that hold the tags, `slots` those of the tables that come first. `definitions` are those that
    come last, which tell of definitions; None where all do, or none.

    Where the answer pins slots of these (see `slots`), these are its `pins`, `base` are the tags
    without them, and the last of the `requests`, after the tables' logs, ask for the buckets. A
    table of which it pins several slots stands there once for each, and once more where it hangs on
    the whole as well. While nobody writes to the tables, the versions of these tell that those of
    the pins are the same, too: it has no window but theirs. Behind the buckets their tables' logs
    are asked for `again`: of each such pin its place, a name for the reply, and the request.
    """

    __slots__ = ("__weakref__", "_asked_since", "_tags_seen", "again", "base", "counted_at",
                 "definitions", "last_seen", "nodes", "pins", "questions", "reads", "requests",
                 "row_seen", "seen", "seen_amid", "seen_since", "slots", "tag_names", "tags",
                 "used_lately", "uses", "window", "witnessed")  # fmt: skip

    def __init__(
        self,
        tags: tuple[Tag, ...],
        requests: tuple[Request, ...],
        nodes: tuple[Health, ...],
        slots: Slots | None = None,
        pins: Pins = (),
        base: TagSet | None = None,
        definitions: TagSet | None = None,
    ) -> None:
        self.slots = slots
        self.definitions = definitions
        self.pins = pins
        self.witnessed = any(pin is not None and pin.witnessed for pin in pins)
        """Whether only an answer with a row may have these pins."""
        self.base = base
        self.tags = tags
        self.tag_names: frozenset[Tag] = frozenset(tags) if base is None else base.tag_names
        self.requests = requests
        self.again: tuple[tuple[int, bytes, Request], ...] = tuple(
            (at, _AGAIN + requests[at][0], requests[at])
            for at, pin in enumerate(pins)
            if pin is not None and pin.buckets
        )
        self.nodes = nodes
        self.seen: Seen | None = None
        """What their logs said last, where they all were current."""
        self.seen_amid: Seen | None = None
        """What they said last amid a write to the tables, as if there were none."""
        self.last_seen: tuple[bytes, float] | None = None
        """The versions a batch found, and when that batch was sent."""
        self.seen_since = 0.0
        """When these versions were there at the latest: they have been current from then to
        `last_seen`, for a version is never used twice. Of a `base`, also since when nobody has
        written to its tables as far as is known, whatever is pinned."""
        self.row_seen: tuple[bytes, float] | None = None
        """The versions under which there was an answer, and when it was seen first, where only
        those may have the pins that have a row."""
        self._tags_seen: dict[int, tuple[bytes, float]] = {}
        self.window = 0.0
        """Until then they are current still, on the clock of `windows`; 0 where that is closed."""
        self.uses = 0
        """How often they were asked for since `counted_at`."""
        self.counted_at = float("-inf")
        self.used_lately = 0.0
        """The same, of what is long ago ever less, while they are kept open."""
        self.questions = 0
        """How often memcached was asked about them by who read, since they have these versions."""
        self._asked_since = 0.0
        self.reads: TableReads = _reads_of(tags) if base is None else base.reads

    def pinned(self, pins: Pins, buckets: Iterable[Request]) -> TagSet:
        """The same for an answer with these pins; `buckets` ask for theirs, in order."""
        requests = (*self.requests, *buckets)
        own = self.tags, requests, self.nodes, self.slots, pins
        return TagSet(*own, base=self, definitions=self.definitions)

    def ask_again(self) -> None:
        """Counts one of the `questions`."""
        if self._asked_since != self.seen_since:
            self._asked_since, self.questions = self.seen_since, 0
        self.questions += 1

    def parts(self, versions: bytes) -> list[bytes]:
        """These versions, of each tag its own, or those of what is pinned of it; none where they
        are others than those of these pins."""
        parts = []
        at = 0
        for _, pin in zip_longest(self.tags, self.pins):
            end = at + ID_BYTES * (1 if pin is None else 1 + len(pin.buckets))
            parts.append(versions[at:end])
            at = end
        return parts if at == len(versions) else []

    def may_stand_in(self, previous: bytes, versions: bytes) -> bool:
        """Whether an entry that is not current may do for a while where these are the versions: not
        one from before other definitions, rights among them, or that was forgotten by a name of its
        own, which is of no schema."""
        others = [at for at, tag in enumerate(self.tags) if not (tag.table and tag.schema)]
        then, now = self.parts(previous[: len(versions)]), self.parts(versions)
        return bool(then and now and all(then[at] == now[at] for at in others))

    @property
    def whole_now(self) -> bytes | None:
        """The versions of the tags without pins, as a batch has just found them."""
        return None if self.seen is None else self.seen.whole

    def tag_seen_since(self, at: int, version: bytes, now: float) -> float:
        """When a tag was seen first to have this version, as far as those needed it who pin others
        of these tags."""
        known = self._tags_seen.get(at)
        if known is None or known[0] != version:
            known = self._tags_seen[at] = version, now
        return known[1]

    @property
    def answer_since(self) -> float:
        """When an answer under these versions was that already, at the latest. Where the server
        numbers the rows one may have come since, and left the versions."""
        if not self.witnessed:
            return self.seen_since
        if self.row_seen is None or self.last_seen is None or self.row_seen[0] != self.last_seen[0]:
            return float("inf")
        return max(self.seen_since, self.row_seen[1])

    def has_answer(self) -> None:
        """There is one now, under the versions that were seen last."""
        if not self.witnessed or self.last_seen is None:
            return
        if self.row_seen is None or self.row_seen[0] != self.last_seen[0]:
            self.row_seen = self.last_seen[0], asyncio.get_running_loop().time()

    @property
    def touched_at(self) -> float:
        """When it was seen that some write may change what is pinned, since that was looked at;
        never, where none is known of."""
        seen, slots, at = self.seen, self.slots, NEVER
        if seen is None or slots is None:
            return at
        for own, pin, turn in zip(slots.tables, self.pins, seen.turns, strict=False):
            touched = own.touched
            if turn != touched.turn and pin is not None:
                at = max(at, touched.touched_at(pin, turn))
        return at

    def under(self, whole: bytes | None) -> bytes | None:
        """The versions of these pins while the tags have these; None where that is not known."""
        seen = self.seen
        return None if seen is None or whole is None or seen.whole != whole else seen.versions


def _reads_of(tags: Iterable[Tag]) -> TableReads:
    return TableReads(list(dict.fromkeys(filter(None, (tag.of_table for tag in tags)))))


class Seen(NamedTuple):
    """The logs of a set of tags that are all current, and what they say by these definitions."""

    logs: list[bytes | None]
    definitions: Mapping[Tag, bytes | None] | None
    versions: bytes
    unpromised: tuple[Tag, ...]
    """Those in which there is no promise for this process, or none that counts."""
    whole: bytes | None
    """The versions of the tags without pins; None while some write is in flight."""
    turns: tuple[int, ...] = ()
    """Of the tables' logs, when the versions of what is pinned were these; see `slots.Touched`."""


class Basis(NamedTuple):
    """On what an answer hangs: it is right while its tags have these versions, each its own or that
    of what is pinned of it; and while all have those of the `whole`, where these are known."""

    read: Read
    tags: TagSet
    versions: bytes
    whole: bytes | None


@dataclass(frozen=True, slots=True)
class Freshness:
    """How an answer may age; seconds. See `docs/settings.md` for the rules that set it.

    An entry lives `ttl_s`. Tables' versions seen less than `max_staleness_s` ago are taken as read;
    while one client fetches what a write made outdated the others may get the last answer, if that
    is no older than `stale_while_revalidate_s`. With both 0 no read is ever stale. Definitions and
    rights never are.
    """

    ttl_s: int
    max_staleness_s: float = 0
    stale_while_revalidate_s: float = 0

    @property
    def early_s(self) -> int:
        """How long before its end an entry is fetched anew, by one client."""
        return self.ttl_s // 10


class Read:
    """A statement that may be answered from the cache: its key, and the tags it hangs on.

    `rolls_back`: all tables it reads are transactional, so it reads from a snapshot where there is
    one; or but `some_roll_back`. `counts_all`: FOUND_ROWS() tells afterwards how many rows there
    are without its LIMIT. `proof_rows`: an answer of so many rows or more proves that a table was
    read; None: none does.
    `edition` is that of the definitions it was planned by; None where it depends on none.
    `in_transaction`: its session may have such a snapshot, and hold locks. `counts` is the row of
    its statement. `pinning` says what its answer pins of the tables that come first among its
    tags, by its `field`.
    """

    __slots__ = ("bound", "counts", "counts_all", "edition", "field", "freshness", "in_transaction",
                 "key", "may_be_stale", "pinning", "proof_rows", "request", "rolls_back", "shape",
                 "some_roll_back", "tags")  # fmt: skip

    def __init__(
        self,
        key: bytes,
        tags: TagSet,
        shape: bytes,
        freshness: Freshness,
        *,
        rolls_back: bool,
        some_roll_back: bool = False,
        counts_all: bool = False,
        proof_rows: int | None = None,
        edition: int | None = None,
        counts: StatementCounts = UNCOUNTED,
    ) -> None:
        self.key = key
        # R asks for a life of fewer seconds than its token, and memcached counts them down to 1.
        self.request = (key, meta_get(key, b"v t R%d" % (freshness.early_s + 1)))
        self.tags = tags
        self.shape = shape
        self.freshness = freshness
        self.may_be_stale = freshness.max_staleness_s > 0
        self.rolls_back = rolls_back
        self.some_roll_back = some_roll_back
        self.counts_all = counts_all
        self.proof_rows = proof_rows
        self.edition = edition
        self.counts = counts
        self.in_transaction = False
        self.pinning: tuple[Pinning, ...] = ()
        self.field = b""
        self.bound: InUse = ()
        """The slots in use by which it hangs on what it does."""

    def without_staleness(self, *, in_transaction: bool = True) -> Read:
        """The same read, whose answer may not be stale: a transaction's reads are one moment's.

        `in_transaction`: one has begun, and not just will with this read.
        """
        read = self.with_key(self.key)
        read.freshness = Freshness(self.freshness.ttl_s)
        read.may_be_stale = False
        read.in_transaction = in_transaction
        return read

    def proves_reading(self, rows: int) -> bool:
        """Whether the server has looked at a row for an answer of so many, and so opened a
        snapshot."""
        return self.proof_rows is not None and rows >= self.proof_rows

    def proved_by(self, hit: Hit) -> bool:
        """The same for an answer in an entry."""
        return self.proves_reading(rows_of(hit.value, hit.versions_bytes) & ~COUNTED)

    def under(self, edition: int) -> Read:
        """The same read, whose tags are right by the definitions of this edition, too."""
        read = self.with_key(self.key)
        read.edition = edition
        return read

    def basis_of(self, hit: Hit) -> Basis | str:
        """On what its answer in an entry hangs, or why that is not known."""
        if hit.tags is None:
            return "kept for a transaction"
        return Basis(self, hit.tags, hit.value[: hit.versions_bytes], hit.whole)

    def with_key(self, key: bytes) -> Read:
        """The same but for what its answer is stored under."""
        read = Read(
            key,
            self.tags,
            self.shape,
            self.freshness,
            rolls_back=self.rolls_back,
            some_roll_back=self.some_roll_back,
            counts_all=self.counts_all,
            proof_rows=self.proof_rows,
            edition=self.edition,
            counts=self.counts,
        )
        read.in_transaction = self.in_transaction
        if self.pinning:
            read.pinning, read.field = self.pinning, self.field
        return read


class Template:
    """Reads that differ in one field of what decides their answers, such as a prepared statement's
    executions; but for that all are `like` one."""

    __slots__ = ("_keys", "like")

    def __init__(self, like: Read, keys: EntryKeys) -> None:
        self.like = like
        self._keys = keys

    @property
    def counts(self) -> StatementCounts:
        """See `Read`."""
        return self.like.counts

    def read(self, field: bytes) -> Read:
        """The one with this field."""
        read = self.like.with_key(self._keys.of(field))
        if read.pinning:
            read.field = field
        return read

    def under(self, edition: int) -> Template:
        """See `Read.under`."""
        return Template(self.like.under(edition), self._keys)
