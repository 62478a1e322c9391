"""Promises: a process says in a log that it may serve for a moment what it has seen there."""

from collections.abc import Callable, Collection

from sqlcache.cache.log_records import EVERYONE, promise_record
from sqlcache.cache.tag_logs import fresh_id
from sqlcache.cache.tags import Tag

MOMENT_S = 0.1
"""How long a promise is not made once more; and by which it is counted what is asked for often."""


class Promises:
    """Those of one process. `give` appends a record to the logs of tags."""

    def __init__(self, give: Callable[[Collection[Tag], bytes], None]) -> None:
        self._give = give
        self._id = fresh_id()
        self.own = frozenset({self._id})
        """Its own in the logs."""
        self._trusted = frozenset({self._id, EVERYONE})
        self._promised_at: dict[Tag, float] = {}  # on the event loop's clock

    def are_promised(self, promises: frozenset[bytes]) -> bool:
        """Whether a log that holds these promises holds one for this process."""
        return not self._trusted.isdisjoint(promises)

    def promise(self, unpromised: Collection[Tag], now: float) -> None:
        """Once in a moment each, however many sets of tags have it."""
        lately = self._promised_at = {
            tag: at for tag, at in self._promised_at.items() if now - at <= MOMENT_S
        }
        tags = [tag for tag in unpromised if tag not in lately]
        if tags:
            lately |= dict.fromkeys(tags, now)
            self._give(tags, promise_record(self._id))
