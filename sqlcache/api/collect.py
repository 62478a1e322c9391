"""What a cached function's body reads: what its value hangs on, gathered while it runs.

A body runs in a task of its own whose context names a `Collected`; what it awaits, gathers or
spawns inherits that. Laws:

- A version is captured before the query that hangs on it runs, never after.
- The value hangs on all that its answers hang on: tags, and of tables of which an answer pins rows
  (see `cache.slots`) a slot and its buckets. Each of its answers is right while what that hangs on
  is current, so the value is while all of it is. What tells nothing of others is not put together:
  of one table it may hang on several slots, and on the whole as well.
- Something seen under two versions makes the value torn: it was written amid the body.
- An answer whose tags or versions are not known makes the value unfollowed, and so does a read that
  failed, or that the body did not wait for, whatever it made of that. Neither is stored; but
  where the app names tables itself, it answers for statements that can never be followed.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from itertools import zip_longest
from typing import NamedTuple

from sqlcache.cache.reads import Basis, TagSet
from sqlcache.cache.tags import ID_BYTES, Tag
from sqlcache.errors import UsageError

STREAMED = "streamed, where answers hang on rows"
ELSEWHERE = "read through another cache, whose store is another"
_NEVER_FOLLOWED = frozenset(
    {"not cacheable", "switched off", "the client wants no hit", "iterated over"}
    | {STREAMED, ELSEWHERE}
)
"""Why an answer's tags are not known, where that is so at any time."""


class Part(NamedTuple):
    """Of a table's tag a slot, or with its name a bucket of that."""

    table: Tag
    slot: bytes
    bucket: bytes = b""


_TWO = b""
"""In place of a version where there were two, or none is known."""


class Collected:
    """What one run of a body has read so far.

    `captured` are versions by the tags' copies, and by what is pinned of tables; `used` are the
    tags themselves, and the same. Of the tables of the latter `instead` are the versions under
    which all that was read of them by rows is right as well; b"" where none is known. `unfollowed`
    says of some answers why it is not known on what they hang.
    """

    __slots__ = ("callers", "captured", "changed", "closed", "ends_at", "function", "instead",
                 "of_callers", "place", "torn", "ttl_s", "under_way", "unfollowed",
                 "used")  # fmt: skip

    def __init__(self, function: str, place: object = None) -> None:
        self.function = function
        self.place = place
        """Where its cache stores: versions that another place has say nothing here."""
        self.callers: tuple[bytes, ...] = ()
        """The keys of the cached calls this run is a part of, its own the last."""
        self.captured: dict[Tag | Part, bytes] = {}
        self.used: set[Tag | Part] = set()
        self.instead: dict[Tag, bytes] = {}
        self.ttl_s: int | None = None
        """How long its value may live, as far as what it read has a say."""
        self.ends_at: float | None = None
        """When the first part of it is over that was found stored or has a rule, on the clock of
        the event loop: it is as old as the oldest part of it, however long it runs."""
        self.of_callers: set[Collected | None] = set()
        """It read what only connections of these see, such as what they have not committed: of
        runs that it is a part of, and None's, which are of none."""
        self.changed = ""
        """What decided its key, and is another now that it has run."""
        self.torn = False
        self.under_way = 0
        """Reads that have begun and not ended."""
        self.unfollowed: set[str] = set()
        self.closed = False
        """The body has ended: what its context still runs is no part of the value."""

    def capture(self, parts: Iterable[Tag | Part], versions: Iterable[bytes]) -> None:
        """These are the versions now, before what comes."""
        for part, version in zip(parts, versions, strict=True):
            self.torn |= self.captured.setdefault(part, version) != version

    def read(self, basis: Basis, *, ttl_s: int | None = None) -> None:
        """An answer on this basis was, or will be, computed. `ttl_s`: and it may not live longer
        than that."""
        if self.closed:
            return
        parts = parts_of(basis.tags)
        versions = split(basis.versions)
        if len(versions) != len(parts):  # a slot that it pins was not in use just then
            self.cannot_follow("told apart no more")
            return
        self._live_at_most(ttl_s)
        self.capture(parts, versions)
        self.used.update(
            Tag(part.schema, part.table) if isinstance(part, Tag) else part for part in parts
        )
        whole = [] if basis.whole is None else split(basis.whole)
        for tag, pin, version in zip_longest(basis.tags.tags, basis.tags.pins, whole):
            if pin is not None:
                self._may_hang_on(tag, version or _TWO)

    def _may_hang_on(self, table: Tag, version: bytes) -> None:
        """On the table's version in place of what is pinned of it."""
        if self.instead.setdefault(table, version) != version:
            self.instead[table] = _TWO

    def ends_within(self, left_s: int) -> None:
        """A part of the value was found stored, and lives so long from now on; a second where it is
        not there any more, or not yet."""
        self._ends_by(asyncio.get_running_loop().time() + max(left_s, 1))

    def _ends_by(self, end: float) -> None:
        if not self.closed:
            self.ends_at = end if self.ends_at is None else min(end, self.ends_at)

    def hang_on(self, tags: Iterable[Tag], *, ttl_s: int | None) -> None:
        """The value hangs on these tags, too, and lives at most so long."""
        self.used.update(tags)
        self._live_at_most(ttl_s)

    @property
    def unfollowed_now(self) -> bool:
        """Whether an answer is not followed that may be the next time."""
        return not self.unfollowed <= _NEVER_FOLLOWED

    def read_on(self, basis: Basis | str, usual_ttl_s: int | None) -> None:
        """An answer of MySQL's was read; `basis` says on what it hangs, or why that is not known.

        A rule for its tables that lets it live less than `usual_ttl_s` counts for this value, too;
        with None any does.
        """
        if isinstance(basis, str):
            self.cannot_follow(basis)
        else:
            ttl_s = basis.read.freshness.ttl_s
            counts = usual_ttl_s is None or ttl_s < usual_ttl_s
            self.read(basis, ttl_s=ttl_s if counts else None)

    def cannot_follow(self, why: str) -> None:
        """An answer was read whose tags or versions are not known."""
        if not self.closed:
            self.unfollowed.add(why)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around a read, from where it begins to where on what it hangs is known."""
        self.under_way += 1
        try:
            yield
        except BaseException:
            self.failed()
            raise
        finally:
            self.under_way -= 1

    def close(self) -> None:
        """The body has ended. What it read and did not wait for it may have taken for late."""
        if self.under_way:
            self.cannot_follow("not waited for")
        self.closed = True

    def failed(self) -> None:
        """A read brought an exception instead of an answer: on what that hangs is not known."""
        self.cannot_follow("not answered")

    def include(self, other: "Collected") -> None:
        """The value of another cached call became a part of this one's."""
        if not self.closed:
            self.capture(other.captured, other.captured.values())
            self.used |= other.used
            for table, version in other.instead.items():
                self._may_hang_on(table, version)
            self.torn |= other.torn
            self.of_callers |= other.of_callers - {self}
            self.unfollowed |= other.unfollowed
            self._live_at_most(other.ttl_s)
            if other.ends_at is not None:
                self._ends_by(other.ends_at)

    def _live_at_most(self, ttl_s: int | None) -> None:
        limits = [limit for limit in (self.ttl_s, ttl_s) if limit is not None]
        self.ttl_s = min(limits, default=None)


_collecting: ContextVar[Collected | None] = ContextVar("sqlcache_collecting", default=None)


def collecting() -> Collected | None:
    """What the cached function gathers in whose body this runs; None outside of one."""
    collected = _collecting.get()
    return None if collected is None or collected.closed else collected


def reading(collected: Collected | None) -> AbstractContextManager[None]:
    """Around a read in a body that gathers there, if it is in any: see `Collected.reading`."""
    return nullcontext() if collected is None else collected.reading()


def collect_into(collected: Collected) -> None:
    """From here on what this task reads is gathered there."""
    _collecting.set(collected)


def refuse_write(what: str) -> None:
    """Raises: UsageError inside of a cached function."""
    collected = collecting()
    if collected is not None:
        raise UsageError(
            f"{collected.function} is cached and may not write, but calls {what}:"
            " a hit would leave the write out; write outside of it"
        )


def refuse_transaction() -> None:
    """Raises: UsageError inside of a cached function: the transaction is its caller's."""
    collected = collecting()
    if collected is not None:
        raise UsageError(
            f"{collected.function} is cached and may not use a transaction of its caller: others"
            " would get what that has not committed; read with the cache, or outside of it"
        )


def parts_of(tag_set: TagSet) -> list[Tag | Part]:
    """On what an answer with these tags hangs, in the order of its versions."""
    parts: list[Tag | Part] = []
    for tag, pin in zip_longest(tag_set.tags, tag_set.pins):
        if pin is None:
            parts.append(tag)
        else:
            parts.append(Part(tag, pin.slot))
            parts += [Part(tag, pin.slot, bucket) for bucket in pin.buckets]
    return parts


def split(versions: bytes) -> Sequence[bytes]:
    """The versions of one after another."""
    return [versions[at : at + ID_BYTES] for at in range(0, len(versions), ID_BYTES)]
