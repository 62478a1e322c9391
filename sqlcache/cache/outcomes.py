"""What a look-up finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlcache.cache.tags import Tag

if TYPE_CHECKING:
    from sqlcache.cache.reads import TagSet


@dataclass(slots=True)
class Hit:
    """The entry is there and current; its body begins behind `versions_bytes`."""

    value: bytes
    versions_bytes: int
    near: bool = False
    """Whether it was in the process already."""
    in_window: bool = False
    """Whether memcached was not asked, within a read lease."""
    since: float = float("inf")
    """When it was the answer already, at the latest."""
    tags: TagSet | None = None
    """Those whose versions it begins with; None where it is another's than memcached's."""
    whole: bytes | None = None
    """See `reads.Seen`."""


@dataclass(slots=True)
class Packed:
    """The entry is there and current, but compressed or in parts; see `Hit` for the rest."""

    value: bytes
    versions: bytes
    until: float
    """When it will be too old to be kept near, on the loop's clock."""
    since: float = float("inf")
    tags: TagSet | None = None
    whole: bytes | None = None


@dataclass(slots=True)
class Miss:
    """No current entry, but every tag has a version: an answer may be stored under `versions`.

    `early`: there is a current entry that will soon be too old, and this reader alone is to fetch
    it anew. `previous` is an entry that is not current, `age_s` how long ago it was stored.
    """

    versions: bytes
    early: bool = False
    previous: bytes | None = None
    age_s: float = 0
    since: float = float("inf")
    """When the `versions` were there already, at the latest."""
    filled_since: float = float("inf")
    """See `Hit.since`, of the answer that is stored now."""
    tags: TagSet | None = None
    """Those whose versions these are."""
    whole: bytes | None = None
    """See `reads.Seen`."""


@dataclass(slots=True)
class Unversioned:
    """These tags are absent, or unreadable: nothing can be stored until they get a version. Or
    these buckets are, by their keys."""

    tags: tuple[Tag, ...]
    buckets: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Outdated:
    """A definition changed since the reader learned what its statement reads: it must plan anew."""


@dataclass(slots=True)
class Bypass:
    """The cache cannot be used for this read now; `reason` is a metric's label."""

    reason: str


Outcome = Hit | Packed | Miss | Unversioned | Outdated | Bypass

UNREACHABLE = Bypass("memcached unreachable")
DISTRUSTED = Bypass("memcached was away")
UNREPORTED = Bypass("a bump is still to be made")
FENCED = Bypass("a write is in flight")
FAILED = Bypass("the look-up failed")
OUTDATED = Outdated()
