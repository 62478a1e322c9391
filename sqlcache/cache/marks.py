"""What writes that are alike mark and observe, for those that go the straight path."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sqlcache.cache.lookups import state_of
from sqlcache.cache.tags import Tag
from sqlcache.memcache.cluster import Request
from sqlcache.memcache.protocol import STORED, Reply, meta_get, meta_set

if TYPE_CHECKING:
    from sqlcache.cache.fences import SharedFence

_OWN_BYTES = 1_500
_TAG_BYTES = 460
"""Each tag takes, with its key and what asks for it."""

Logs = tuple[bytes | None, ...]
"""Those of tags, in a known order."""


class Marks:
    """What a write marks, the logs of `tags`, and observes, worked out once for all like it, by an
    `edition` of the definitions."""

    __slots__ = (
        *("_lengths", "_logs", "_looks", "confirmed", "edition", "ended_at", "in_a_row", "keys"),
        *("observed", "shared", "tags"),
    )

    def __init__(
        self,
        tags: frozenset[Tag],
        keys: Mapping[Tag, bytes],
        observed: tuple[Tag, ...],
        edition: int,
    ) -> None:
        self.edition = edition
        self.tags = tags
        self.keys = tuple(keys[tag] for tag in tags)
        self.observed = observed
        self._lengths = tuple((key, meta_get(key, b"s")) for key in self.keys)
        self._logs = tuple((key, meta_get(key)) for key in self.keys)
        self._looks = tuple((keys[tag], meta_get(keys[tag])) for tag in observed)
        self.confirmed: Logs | None = None
        """The logs of the observed tags under which all else that is known of the write is so."""
        self.shared: SharedFence | None = None
        """The fence that writes so alike had last, or have; it may be over."""
        self.ended_at = -math.inf
        """When none of them was under way any more, last."""
        self.in_a_row = 0
        """How often that was just before the next one came."""

    def __bool__(self) -> bool:
        return bool(self.tags or self.observed)

    @property
    def size_bytes(self) -> int:
        """About how many bytes of memory they take."""
        return _OWN_BYTES + _TAG_BYTES * (len(self.keys) + len(self.observed))

    def raising(self, record: bytes) -> list[Request]:
        """What marks all logs that are there, and then reads those that are observed."""
        marks = [(key, meta_set(key, record, mode=b"A", ttl_s=0)) for key in self.keys]
        return [*marks, *self._looks]

    def lifting(self, record: bytes) -> list[Request]:
        """The same, and then how long the logs are that were marked."""
        return [*self.raising(record), *self._lengths]

    def read(self, replies: Sequence[Reply | None]) -> Logs | None:
        """The logs that are observed, by the replies to one of these; None where not all that was
        to be done is done."""
        marked = len(self.keys)
        for reply in replies[:marked]:
            if reply is None or reply[0] != STORED:
                return None
        return tuple([reply and reply[1] for reply in replies[marked : marked + len(self._looks)]])

    def asking(self) -> list[Request]:
        """What asks for the logs that are marked, and then for those that are observed."""
        return [*self._logs, *self._looks]

    def standing(self, replies: Sequence[Reply | None], fence: bytes) -> Logs | None:
        """The logs that are observed, by the replies to that; None where one of those that are
        marked does not say that this very fence stands."""
        marked = len(self.keys)
        for reply in replies[:marked]:
            if reply is None or fence not in state_of(reply).fences:
                return None
        return tuple([reply and reply[1] for reply in replies[marked:]])

    def sizes(self, replies: Sequence[Reply | None]) -> Sequence[Reply | None]:
        """Those that tell how long the logs are, of the replies to `lifting`."""
        return replies[len(replies) - len(self.keys) :]


NO_MARKS = Marks(frozenset(), {}, (), 0)
