"""Which commits this process has made, and ended: what they made outdated is served no more.

Whoever reads of such a one in the binary log need ask nobody about it, see `binlog.effects`. Of the
commits of others the tags' logs tell.
"""

from collections.abc import Iterable, Set
from time import monotonic

from sqlcache.cache.bounded import Bounded
from sqlcache.cache.tags import Tag

_LATELY_S = 1.0
_MAX_BYTES = 1_000_000
_EACH_BYTES = 300
_TAG_BYTES = 100


class OwnCommits:
    """Those of late."""

    def __init__(self) -> None:
        self._ended: Bounded[bytes, Set[Tag]] = Bounded(_MAX_BYTES)
        self._ended_at = float("-inf")

    def end(self, commits: Iterable[bytes], tags: Set[Tag]) -> None:
        """What is served under these tags from here on is from after these commits."""
        for commit in commits:
            self._ended.put(commit, tags, _EACH_BYTES + _TAG_BYTES * len(tags))
            self._ended_at = monotonic()

    def have_ended(self, commit: bytes, tags: Set[Tag]) -> bool:
        """Whether that is so of these tags and this commit, for sure."""
        ended = self._ended.get(commit)
        return ended is not None and tags <= ended

    @property
    def come(self) -> bool:
        """Whether the process makes such, so that one that the log tells of may be among them."""
        return monotonic() - self._ended_at < _LATELY_S
