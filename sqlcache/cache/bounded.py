"""Memories that grow with what clients send, and are bounded in bytes.

One setting bounds them all, `proxy.statements_bytes`; each has a share. What is remembered can be
found out anew, so whatever makes room costs time and nothing else.
"""

import sys
from collections import OrderedDict
from collections.abc import Hashable
from enum import Enum
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_LARGEST_SHARE = 10
_SLOT_BYTES = 200  # of an ordered dictionary, with what the pair is kept in
_SHARED_TYPES = (type(None), bool, Enum, type)
_SHARED = frozenset(map(id, (None, False, True, 0, 1, "", b"", (), frozenset())))
"""Of most values that are to be weighed, most parts are these."""


def weigh(value: object) -> int:
    """About how many bytes of memory a value takes, with all that it is made of."""
    total = 0
    seen = set(_SHARED)
    pending = [value]
    while pending:
        each = pending.pop()
        if id(each) in seen or isinstance(each, _SHARED_TYPES):
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        if isinstance(each, (tuple, list, set, frozenset)):
            pending += each
        elif isinstance(each, dict):
            pending += each.values()
        elif not isinstance(each, (bytes, str, int, float)):
            pending.append(getattr(each, "__dict__", None))
            for name in getattr(type(each), "__slots__", ()):
                part = getattr(each, name, None)
                if id(part) not in seen:
                    pending.append(part)
    return total


class Tally:
    """Bytes that are in use, of those that may be."""

    __slots__ = ("max_bytes", "size_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = 0

    @property
    def full(self) -> bool:
        return self.size_bytes >= self.max_bytes


class Bounded(Generic[K, V]):
    """A dictionary of at most so many bytes: what was used least recently makes room.

    What would take more than a tenth of it is not kept.
    """

    __slots__ = ("_kept", "_max_bytes", "size_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K) -> V | None:
        """The value, now the most recently used."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        self._kept.move_to_end(key)
        return kept[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keeps a value of so many bytes, its key's included, in place of an older one."""
        older = self._kept.pop(key, None)
        if older is not None:
            self.size_bytes -= older[1]
        size += _SLOT_BYTES
        if size * _LARGEST_SHARE > self._max_bytes:
            return
        self._kept[key] = value, size
        self.size_bytes += size
        while self.size_bytes > self._max_bytes:
            _, (_, evicted) = self._kept.popitem(last=False)
            self.size_bytes -= evicted

    def clear(self) -> None:
        """Forgets all."""
        self._kept.clear()
        self.size_bytes = 0
