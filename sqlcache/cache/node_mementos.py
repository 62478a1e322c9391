"""By what a process knows a node's memory again.

Another memcached may come to answer at a node's address, as where a virtual address or a name leads
elsewhere, and the first one again later: that remembers what was written to meanwhile. So the
*memento* of each memory is an id of its own. It is looked at first on each new connection, before
any other answer comes by that: as long as the connection stands, there is the same memory behind
it.
"""

from collections.abc import Callable, Mapping

from sqlcache.cache.tag_logs import fresh_id
from sqlcache.memcache.protocol import meta_get, meta_set


class Mementos:
    """Those that one process knows. `keys` are theirs, by node; `lost` is told of a node that is
    not the memory that it was."""

    def __init__(self, keys: Mapping[str, bytes], lost: Callable[[str], None]) -> None:
        self._keys = keys
        self._lost = lost
        self._known: dict[str, bytes | None] = {}

    def asking(self, name: str) -> bytes:
        """What asks a node for it."""
        return meta_get(self._keys[name])

    def putting(self, name: str) -> bytes:
        """What gives a node one, or back the one that it had, unless another is there."""
        return meta_set(self._keys[name], self._known.get(name) or fresh_id(), mode=b"E", ttl_s=0)

    def connected(self, name: str, memento: bytes | None) -> None:
        """This is what a new connection has shown. If that is not what was known before it may lead
        to another memory."""
        is_first = name not in self._known
        before = self._known.get(name)
        self._known[name] = memento
        if not is_first and (memento is None or memento != before):
            self._lost(name)

    def is_known(self, name: str, memento: bytes | None) -> bool:
        """Whether what was shown later is not another one; from here on it is known. Where nothing
        was, it may have been evicted."""
        before = self._known.setdefault(name, memento)
        if memento is None or memento == before:
            return True
        self._known[name] = memento
        if before is None:
            return True
        self._lost(name)
        return False

    def lose(self, name: str) -> None:
        """The node has lost it."""
        self._known[name] = None
        self._lost(name)
