"""Reads whose answers cannot be stored, so that none waits for another's in vain."""

from collections import OrderedDict

from sqlcache.cache.reads import Read

_MOST = 10_000
_LAST_S = 60


class Unstorable:
    """Those of one process. It is remembered of one for a minute; times are one clock's seconds."""

    __slots__ = ("_last_keys", "_until")

    def __init__(self) -> None:
        self._until: OrderedDict[bytes, float] = OrderedDict()  # of a key, or a shape
        self._last_keys: OrderedDict[bytes, bytes] = OrderedDict()  # by shape

    def has(self, read: Read, now: float) -> bool:
        """Whether it is one of these."""
        until = self._until
        return bool(until) and now < max(until.get(read.key, 0), until.get(read.shape, 0))

    def add(self, read: Read, now: float) -> None:
        """Its answer could not be stored. Nor will that of others of its shape, where two of these
        could not, and none was in between: of one it may be its literal that gives a warning, or
        brings too much."""
        before = self._last_keys.pop(read.shape, read.key)
        self._last_keys[read.shape] = read.key
        self._until[read.key if before == read.key else read.shape] = now + _LAST_S
        for remembered in (self._until, self._last_keys):
            if len(remembered) > _MOST:
                remembered.popitem(last=False)

    def discard(self, read: Read) -> None:
        """Its answer was stored."""
        if self._last_keys and self._last_keys.pop(read.shape, None) is not None:
            self._until.pop(read.shape, None)
        if self._until:
            self._until.pop(read.key, None)
