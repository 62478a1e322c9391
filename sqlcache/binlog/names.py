"""What commits in the log are called in tags' logs, by who has made them through a sqlcache.

The lift of a fence names the commits that could be seen when the tag got its new version, see
`log_records` and `Writes.committed`: a tag whose log names a commit need not be bumped for it.
Laws:

- A name holds for one reading of the log, one connection to one run of the server, and only commits
  that were made while that was known to whoever made them are named for it. Another run of the
  server may use the same GTIDs again, for other commits.
- Within a reading the numbers of each source rise. Where they do not, as in what is replayed into
  MariaDB, nothing from there has a name any more.
- What a replica has got from its source has none: when it could be seen there says nothing of here.
"""

from collections.abc import Iterable
from typing import Final

from sqlcache.binlog.change import Change
from sqlcache.cache.keys import commit_id

_MOST_SOURCES: Final = 1_000


class Names:
    """Those of one reading, of the log of the `server` with this number."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._latest: dict[str, int | None] = {}

    def give(self, changes: Iterable[Change], reading: bytes) -> None:
        """Says of the changes, each of which comes once and in the log's order, what they are
        called, where that is certain."""
        for change in changes:
            if change.commit is None:
                continue
            source, number, server = change.commit
            if self._rises(source, number) and server == self._server and reading:
                change.name = commit_id(reading, f"{source}{number}".encode())

    def _rises(self, source: str, number: int) -> bool:
        latest = self._latest.get(source, 0)
        if latest is None or len(self._latest) >= _MOST_SOURCES:
            return False
        self._latest[source] = number if number > latest else None
        return number > latest
