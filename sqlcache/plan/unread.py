"""Tables that this process has redefined, and whose definitions it has not read since."""

import re
from collections.abc import Iterable, Iterator, Mapping

from sqlcache.sql.names import TableName

_WORD = re.compile(rb"[0-9a-z_$\x80-\xff]+")
_VERSIONED = re.compile(rb"/\*m?!")  # a number may stand right before a word


class _Group:
    """Tables that were named together, by one statement or by several in a chain: a write to any of
    the `named` may lead by now to those among them that are `unread`."""

    __slots__ = ("named", "unread")

    def __init__(self) -> None:
        self.named: set[TableName] = set()
        self.unread: set[TableName] = set()


class Unread:
    """The names of those tables.

    All costs as much as the names or texts that are given, however many there are already; but for
    names that are no words, and texts with versioned comments.
    """

    __slots__ = ("_groups", "_odd", "_redefinitions", "_since", "_words")

    def __init__(self) -> None:
        self._groups: dict[TableName, _Group] = {}  # of all that are named in one
        self._since: dict[TableName, int] = {}  # by which redefinition each is unread
        self._redefinitions = 0
        self._words: dict[bytes, set[TableName]] = {}  # those that are a word, by it
        self._odd: set[TableName] = set()  # the others

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
                self._place_of(name).add(name)
            self._since[name] = self._redefinitions

    def _place_of(self, name: TableName) -> set[TableName]:
        word = _lower(name)
        return self._words.setdefault(word, set()) if _WORD.fullmatch(word) else self._odd

    def led_to(self, tables: Iterable[TableName]) -> frozenset[TableName]:
        """Which of them were named with any of these tables, or are these."""
        groups = {id(group): group for name in tables if (group := self._groups.get(name))}
        return frozenset().union(*(group.unread for group in groups.values()))

    def named_in(self, code: Iterable[bytes]) -> frozenset[TableName]:
        """Which of them some texts of triggers and views may name, in whatever schema."""
        met: set[TableName] = set()
        for text in map(_folded, code):
            if _VERSIONED.search(text):
                met.update(name for name in self._since if _lower(name) in text)
                continue
            met.update(name for name in self._odd if _lower(name) in text)
            for word in self._words.keys() & set(_WORD.findall(text)):
                met |= self._words[word]
        return frozenset(met)

    def by_now(self) -> Mapping[TableName, int]:
        """What to `forget` when all that is begun to be read now has been."""
        return dict(self._since)

    def forget(self, read: Mapping[TableName, int]) -> None:
        """These have been read, as they were `by_now`, some time ago."""
        for name, redefinition in read.items():
            if self._since.get(name) != redefinition:
                continue
            del self._since[name]
            place = self._place_of(name)
            place.discard(name)
            if not place:
                self._words.pop(_lower(name), None)
            group = self._groups[name]
            group.unread.discard(name)
            if not group.unread:
                for each in group.named:
                    del self._groups[each]


def _lower(name: TableName) -> bytes:
    return _folded(name.name.encode("utf-8", "surrogateescape"))


def _folded(text: bytes) -> bytes:
    """All that a server may take for the same is the same in it: it knows of fewer letters, but
    that it has no more than an i for a dotted one."""
    if text.isascii():
        return text.lower()
    letters = text.decode("utf-8", "surrogateescape").replace("İ", "i")
    return letters.casefold().encode("utf-8", "surrogateescape")
