"""Tables that this process has redefined, and whose definitions it has not read since."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from sqlcache.sql.names import TableName

_WORD = re.compile(rb"[0-9a-z_$\x80-\xff]+")
_VERSIONED = re.compile(rb"/\*m?!([0-9]{5}[0-9a-z_$\x80-\xff]+)")
"""A version of five digits, or six, right before a word."""

_QUOTES = re.compile(rb"[`\"]+")
"""What stands around a name in code that is no word; one within it is doubled, or is the other."""

_REMEMBERED_TEXTS = 4096


class _Group:
    """Tables that were named together, by one statement or by several in a chain: a write to any of
    the `named` may lead by now to those among them that are `unread`."""

    __slots__ = ("named", "unread")

    def __init__(self) -> None:
        self.named: set[TableName] = set()
        self.unread: set[TableName] = set()


class Unread:
    """The names of those tables.

    All costs as much as the names or texts that are given, however many there are already.
    """

    __slots__ = ("_groups", "_met", "_places", "_redefinitions", "_since")

    def __init__(self) -> None:
        self._groups: dict[TableName, _Group] = {}  # of all that are named in one
        self._since: dict[TableName, int] = {}  # by which redefinition each is unread
        self._redefinitions = 0
        self._places: dict[bytes, set[TableName]] = {}  # by what code that names them has in it
        self._met = lru_cache(_REMEMBERED_TEXTS)(self._met_in)

    def __len__(self) -> int:
        return len(self._since)

    def __iter__(self) -> Iterator[TableName]:
        return iter(self._since)

    def __contains__(self, name: object) -> bool:
        return name in self._since

    @property
    def named(self) -> int:
        """How many names are kept, of unread tables and of others that were named with them."""
        return len(self._groups)

    def redefine(self, names: frozenset[TableName]) -> None:
        """One statement has named these, and may have changed each of them."""
        if not names:
            return
        groups = {id(group): group for name in names if (group := self._groups.get(name))}
        whole = max(groups.values(), key=lambda group: len(group.named), default=_Group())
        for group in groups.values():
            if group is not whole:
                whole.unread |= group.unread
                whole.named |= group.named
                self._groups.update(dict.fromkeys(group.named, whole))
        whole.unread |= names
        whole.named |= names
        self._groups.update(dict.fromkeys(names, whole))
        self._redefinitions += 1
        for name in names:
            if name not in self._since:
                self._places.setdefault(_place_of(name), set()).add(name)
                self._met.cache_clear()
            self._since[name] = self._redefinitions

    def led_to(self, tables: Iterable[TableName]) -> frozenset[TableName]:
        """Which of them were named with any of these tables, or are these."""
        groups = {id(group): group for name in tables if (group := self._groups.get(name))}
        return frozenset().union(*(group.unread for group in groups.values()))

    def named_in(self, code: Iterable[bytes]) -> frozenset[TableName]:
        """Which of them some texts of triggers and views may name, in whatever schema."""
        return frozenset().union(*map(self._met, code))

    def _met_in(self, text: bytes) -> frozenset[TableName]:
        text = _folded(text)
        places = {*_WORD.findall(text), *_QUOTES.split(text), b""}
        for word in _VERSIONED.findall(text):
            places |= {word[5:], word[6:]}
        return frozenset().union(*(self._places[each] for each in self._places.keys() & places))

    def by_now(self) -> Mapping[TableName, int]:
        """What to `forget` when all that is begun to be read now has been."""
        return dict(self._since)

    def forget(self, read: Mapping[TableName, int]) -> None:
        """These have been read, as they were `by_now`, some time ago."""
        for name, redefinition in read.items():
            if self._since.get(name) != redefinition:
                continue
            del self._since[name]
            self._met.cache_clear()
            place = _place_of(name)
            self._places[place].discard(name)
            if not self._places[place]:
                del self._places[place]
            group = self._groups[name]
            group.unread.discard(name)
            if not group.unread:
                for each in group.named:
                    del self._groups[each]


def _place_of(name: TableName) -> bytes:
    """The name; or of one with quotes in it the most that is between them."""
    return max(_QUOTES.split(_folded(name.name.encode("utf-8", "surrogateescape"))), key=len)


def _folded(text: bytes) -> bytes:
    """All that a server may take for the same is the same in it: it knows of fewer letters, but
    that it has no more than an i for a dotted one."""
    if text.isascii():
        return text.lower()
    letters = text.decode("utf-8", "surrogateescape").replace("İ", "i")
    return letters.casefold().encode("utf-8", "surrogateescape")
