"""What writes that are alike mark and observe, for those that go the straight path."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import TYPE_CHECKING

from sqlcache.cache.slots import BUCKET_TTL_S, TableSlots
from sqlcache.cache.tag_logs import Record, fresh_id, log_state, state_of
from sqlcache.cache.tags import Cover, Tag
from sqlcache.memcache.cluster import Request
from sqlcache.memcache.protocol import NOT_OLD, STORED, Reply, meta_get, meta_set

if TYPE_CHECKING:
    from sqlcache.cache.fence import SharedFence
    from sqlcache.cache.reads import TagSet

_OWN_BYTES = 1_500
_TAG_BYTES = 540
"""Each tag takes, with its key and what asks for it."""

Logs = tuple[bytes | None, ...]
"""Those of tags, in a known order."""


class Marks:
    """What a write marks, the logs of `tags`, and observes, worked out once for all like it, by an
    `edition` of the definitions. `slots` are those of the tables that are marked."""

    __slots__ = ("any", "asking", "confirmed", "covered", "definitions", "edition", "ended_at",
                 "forgetting", "given", "in_a_row", "keys", "like", "observed", "shared", "slots",
                 "tables", "tags", "touches")  # fmt: skip

    def __init__(
        self,
        tags: frozenset[Tag],
        keys: Mapping[Tag, bytes],
        definitions: TagSet | None,
        edition: int,
        slots: Mapping[Tag, TableSlots] = MappingProxyType({}),
    ) -> None:
        self.edition = edition
        self.definitions = definitions
        """Those that are observed."""
        self.slots = slots
        self.like: Marks | None = None
        """Those of all writes that are alike, where these are for one."""
        self.touches: Mapping[Tag, Cover] = {}
        """What the one write that these are for touches of the slots in use, of those tables of
        which it does not touch everything."""
        self.forgetting: tuple[Request, ...] = ()
        """What gives the buckets of that the versions `given`, where they are there."""
        self.given: tuple[bytes, ...] = ()
        self.covered = ""
        """By what that is known, for metrics."""
        self.tags = tags
        self.tables = tuple(name for tag in tags if (name := tag.of_table))
        self.keys = tuple(keys[tag] for tag in tags)
        self.observed = () if definitions is None else definitions.tags
        self.any = bool(self.tags or self.observed)
        """Whether there is anything to mark or to observe."""
        looks = () if definitions is None else definitions.requests
        self.asking = (*((key, meta_get(key)) for key in self.keys), *looks)
        """What asks for the logs that are marked, and then for those that are observed."""
        self.confirmed: Logs | None = None
        """The logs of the observed tags under which all else that is known of the write is so."""
        self.shared: SharedFence | None = None
        """The fence that writes so alike had last, or have; it may be over."""
        self.ended_at = -math.inf
        """When none of them was under way any more, last."""
        self.in_a_row = 0
        """How often that was just before the next one came."""

    def narrowed(self, touches: Mapping[Tag, Cover], buckets: Iterable[bytes]) -> Marks:
        """The same for one write that touches no more than this, in the `buckets` with these
        keys."""
        narrowed = Marks.__new__(Marks)
        for name in self.__slots__:
            setattr(narrowed, name, getattr(self, name))
        narrowed.like, narrowed.touches = self, touches
        narrowed.covered = "rows" if any(touches.values()) else "asked"
        narrowed.forget(buckets)
        return narrowed

    def forget(self, buckets: Iterable[bytes]) -> None:
        """The one write that these are for touches the buckets with these keys, too."""
        for key in buckets:
            version = fresh_id()
            self.given += (version,)
            self.forgetting += ((key, meta_set(key, version, mode=b"R", ttl_s=BUCKET_TTL_S)),)

    @property
    def size_bytes(self) -> int:
        """About how many bytes of memory they take."""
        return _OWN_BYTES + _TAG_BYTES * (len(self.keys) + len(self.observed))

    @property
    def any_rows(self) -> Mapping[Tag, Cover]:
        """What a write may touch of which no rows are known: of the tables whose answers are told
        apart anything."""
        return {tag: {} for tag, slots in self.slots.items() if slots.in_use}

    def touch(self, found: Mapping[Tag, Cover], buckets: Iterable[bytes]) -> None:
        """The one write that these are for touches this, too, in the `buckets` with these keys, and
        no more of the slots that are named so."""
        more = {tag: {**told, **self.touches[tag]} for tag, told in found.items()}
        self.touches = {**self.touches, **more}
        self.forget(buckets)

    @property
    def has_slots(self) -> bool:
        """Whether any of the tables has slots in use, as far as this process has seen."""
        return bool(self.slots) and any(slots.in_use for slots in self.slots.values())

    def raising(self, record: Record) -> list[Request]:
        """What appends this to all logs that are there, and then reads them, and those that are
        observed."""
        return [
            *(
                (key, meta_set(key, record(tag), mode=b"A", ttl_s=0))
                for tag, key in zip(self.tags, self.keys, strict=True)
            ),
            *self.asking,
        ]

    def read(self, replies: Sequence[Reply | None]) -> Logs | None:
        """The logs that are observed, by the replies to that; None where not all that was to be
        done is done."""
        marked = len(self.keys)
        for reply in replies[:marked]:
            if reply is None or reply[0] != STORED:
                return None
        return tuple([reply and reply[1] for reply in replies[2 * marked :]])

    def marked(self, replies: Sequence[Reply | None], now: float) -> list[bytes]:
        """The logs that are marked, by the replies to that, which came now."""
        marked = len(self.keys)
        logs = [(reply and reply[1]) or b"" for reply in replies[marked : 2 * marked]]
        if self.slots:
            for tag, log in zip(self.tags, logs, strict=True):
                slots = self.slots.get(tag)
                if slots is not None and log:
                    slots.saw(log, log_state(log), now)
        return logs

    def known(self, logs: Iterable[bytes], fence: bytes, since: float) -> Set[Tag]:
        """The tables in whose logs, these, the fence of the one write that these are for covers no
        more than it touches, and that this process has known since then."""
        return {
            tag
            for tag, state in zip(self.tags, map(log_state, logs), strict=True)
            if fence in state.narrow and self.slots[tag].known_log.is_that_since(state.log, since)
        }

    def forgot(self, replies: Sequence[Reply | None]) -> bool:
        """Whether no bucket is as it was, by the replies to that."""
        return all(reply is not None and reply[0] in NOT_OLD for reply in replies)

    def standing(self, replies: Sequence[Reply | None], fence: bytes) -> Logs | None:
        """The logs that are observed, by the replies to that; None where one of those that are
        marked does not say that this very fence stands."""
        marked = len(self.keys)
        for reply in replies[:marked]:
            if reply is None or fence not in state_of(reply).fences:
                return None
        return tuple([reply and reply[1] for reply in replies[marked:]])


NO_MARKS = Marks(frozenset(), {}, None, 0)
