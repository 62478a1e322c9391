"""The near cache: entries in this process, so that a hit needs no payload from memcached.

It decides nothing: an entry from here is validated against its tags' versions like any other. Least
recently used entries make room; an entry that would take more than a tenth of it is not kept.
"""

from collections import OrderedDict

_OVERHEAD_BYTES = 250  # a key, a dictionary's slot and three objects, roughly
_LARGEST_SHARE = 10


class NearCache:
    """Entries by key, at most `max_bytes` of them; with 0, none. Times are one clock's seconds."""

    __slots__ = ("_entries", "_max_bytes", "size_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def has(self, key: bytes, now: float, versions: bytes = b"") -> bool:
        """Whether there is an entry that is not too old, and was read under these versions. Another
        one is forgotten."""
        kept = self._entries.get(key)
        if kept is None:
            return False
        if kept[1] > now and kept[0].startswith(versions):
            return True
        self.drop(key)
        return False

    def current(self, key: bytes, now: float) -> bytes | None:
        """The entry, now the most recently used, if it is not too old."""
        kept = self._entries.get(key)
        if kept is None:
            return None
        if kept[1] <= now:
            self.drop(key)
            return None
        self._entries.move_to_end(key)
        return kept[0]

    def get(self, key: bytes) -> bytes | None:
        """The entry, now the most recently used."""
        kept = self._entries.get(key)
        if kept is None:
            return None
        self._entries.move_to_end(key)
        return kept[0]

    def put(self, key: bytes, entry: bytes, until: float) -> None:
        """Keeps the entry until then, in place of an older one."""
        self.drop(key)
        size = len(entry) + _OVERHEAD_BYTES
        if size * _LARGEST_SHARE > self._max_bytes:
            return
        self._entries[key] = entry, until
        self.size_bytes += size
        while self.size_bytes > self._max_bytes:
            _, (evicted, _) = self._entries.popitem(last=False)
            self.size_bytes -= len(evicted) + _OVERHEAD_BYTES

    def drop(self, key: bytes) -> None:
        """Forgets the entry, if it is there."""
        kept = self._entries.pop(key, None)
        if kept is not None:
            self.size_bytes -= len(kept[0]) + _OVERHEAD_BYTES
