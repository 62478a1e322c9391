"""Which node holds a key, by consistent hashing.

Laws:

- The answer depends on the set of node names and the key alone: every process, on every host,
  whatever the order its settings list the nodes in, finds the same node.
- A node that joins takes keys only for itself, and one that leaves gives up only its own: of n
  nodes' keys about one in n moves.
"""

from bisect import bisect_right
from collections.abc import Iterable
from hashlib import blake2b

_POINT_BYTES = 8
_POINTS_PER_DIGEST = blake2b.MAX_DIGEST_SIZE // _POINT_BYTES
_POINTS_PER_NODE = 160  # more would make shares more even, for more memory


class Ring:
    """Nodes on a circle of 2**64 positions, each standing at many points of it.

    Points are kept as 8 big-endian bytes, whose order is that of the numbers, so that looking a
    key up needs no conversion.

    `names` are the nodes' names, each once. A node's share strays from the mean by some 8 % (one
    standard deviation).

    Raises: ValueError without nodes, or when a name stands twice.
    """

    __slots__ = ("_only", "_owners", "_points", "names")

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(sorted(names))
        """The nodes' names in the order that `index_for` counts in."""
        if not self.names:
            raise ValueError("a ring needs at least one node")
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"a node stands twice in the ring: {', '.join(self.names)}")
        circle = sorted(
            (point, index) for index, name in enumerate(self.names) for point in _points(name)
        )
        self._points = [point for point, _ in circle]
        self._owners = [index for _, index in circle]
        self._only = len(self.names) == 1

    def index_for(self, key: bytes) -> int:
        """The place in `names` of the node that holds `key`."""
        if self._only:
            return 0
        at = bisect_right(self._points, blake2b(key, digest_size=_POINT_BYTES).digest())
        return self._owners[at] if at < len(self._owners) else self._owners[0]

    def node_for(self, key: bytes) -> str:
        """The name of the node that holds `key`."""
        return self.names[self.index_for(key)]


def _points(name: str) -> Iterable[bytes]:
    """Those of a node, eight out of each digest."""
    for number in range(_POINTS_PER_NODE // _POINTS_PER_DIGEST):
        digest = blake2b(b"%d:%b" % (number, name.encode())).digest()
        for start in range(0, len(digest), _POINT_BYTES):
            yield digest[start : start + _POINT_BYTES]
