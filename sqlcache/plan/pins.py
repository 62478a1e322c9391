"""What statements pin, by the catalog of now; see `cache.slots` for what comes of it.

What a text pins is found once, where the values stand in it; which they are is read from each text
or execution. A value that is not surely the very one that the server takes it for pins nothing:
then the answer hangs on the whole table, or the write covers all of it.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import lru_cache
from hashlib import blake2b
from itertools import product
from typing import Final, NamedTuple, TypeVar

from sqlcache.cache.keys import digest
from sqlcache.cache.slots import MOST_BUCKETS
from sqlcache.cache.tags import BUCKET_BYTES, SLOT_BYTES, Pin
from sqlcache.plan.executions import Known, Null, values_told
from sqlcache.sql.facts import Columns, Key, KeyColumn, StringColumn
from sqlcache.sql.names import TableName
from sqlcache.sql.pins.found import NULL, Value
from sqlcache.sql.shapes import LONGEST_BYTES

_INTEGER = re.compile(rb"0|[1-9][0-9]{0,19}")
_QUOTED = re.compile(rb"-?(?:0|[1-9][0-9]{0,14})")
"""In a string: a longer one may be compared as a double."""
PLAIN = re.compile(rb"[0-9A-Za-z_.:@/+-]*")
"""Strings of which no two are equal under any of `facts.COLLATIONS` but by their letters' case.
Others may equal these, as é does e."""
MOST_VALUES: Final = 16
"""In a list that an answer pins; more cost more to ask for than they are worth."""
_LIST_BELOW: Final = 10**15
"""A list of numbers and strings may be compared with as doubles."""
_SAME_NULL = b""
"""As of '': under MariaDB's EMPTY_STRING_IS_NULL one is the other."""
_UNREAD_BYTES: Final = 4
_KIND_BYTES: Final = SLOT_BYTES - _UNREAD_BYTES
_MOST_TABLES = 256
_FIELDS_AT_ONCE = 8
"""Of which it is remembered what they say, from one of a read's tables to the next."""
_MOST_UNREAD: Final = 8 * _UNREAD_BYTES
"""Of a table's unindexed columns, those of which is told that they are not read."""
_LITERAL = re.compile(rb"(?:([0-9][0-9A-Za-z_.+-]*)|'([^'\\]*)')(?:,|\Z)")

T = TypeVar("T")
Values = Callable[[Value], Known]
"""Gives what stands there."""


def _kind(key: Key | None, unindexed: Sequence[str]) -> bytes:
    """What slots have in common whose answers pin this key, or none, and that tell these columns
    apart: that of a column of another type is another."""
    told = () if key is None else [field for each in key.parts for field in _of_column(each)]
    return digest((*told, b"", *map(str.encode, unindexed)))[:_KIND_BYTES]


def _of_column(column: KeyColumn) -> tuple[bytes, ...]:
    name = column.name.encode()
    if isinstance(column, StringColumn):
        characters = b"%d %d" % (column.characters, column.nullable)
        return b"string", name, column.collation.encode(), characters
    kind = b"number" if column.gives_new else b"integer"
    return kind, name, b"%d" % column.least, b"%d %d" % (column.most, column.nullable)


def _bits(columns: Iterable[str], unindexed: Sequence[str]) -> int:
    return sum(1 << unindexed.index(name) for name in columns)


def of_kind(kind: bytes, unread: int) -> bytes:
    """The slot of this kind whose answers do not read these."""
    return kind + unread.to_bytes(_UNREAD_BYTES, "big")


def parts_of(slot: bytes) -> tuple[bytes, int]:
    """Its kind, and the bits of those that its answers do not read."""
    return slot[:_KIND_BYTES], int.from_bytes(slot[_KIND_BYTES:], "big")


def same_in(column: KeyColumn, value: Known, *, given: bool, listed: bool) -> bytes | None:
    """What all values have in common that the server takes for the same in this column; None for
    one of which that is not known. `given`: it is put there, which may change it; `listed`: it is
    compared with together with others, which may be of another type."""
    if value is Null.NULL:  # sql_auto_is_null may take it for the row that was numbered last
        return None if column.numbers or (given and not column.nullable) else _SAME_NULL
    if isinstance(column, StringColumn):
        if not isinstance(value, bytes) or len(value) > column.characters:
            return None
        return value.lower() if PLAIN.fullmatch(value) else None
    if isinstance(value, bytes):
        value = int(value) if _QUOTED.fullmatch(value) else None
    if value is None or not column.least <= value <= column.most:
        return None
    if (given and column.numbers and not value) or (listed and abs(value) >= _LIST_BELOW):
        return None
    return b"%d" % value


def _literal(column: KeyColumn, value: Known, same: bytes) -> bytes:
    """As a query has it."""
    if isinstance(column, StringColumn) and isinstance(value, bytes):
        return b"'%b'" % value
    return same


def all_known(found: Iterable[T | None]) -> list[T] | None:
    """What was found, if all was."""
    known = []
    for each in found:
        if each is None:
            return None
        known.append(each)
    return known


def buckets_of(parts: Sequence[Set[bytes]]) -> frozenset[bytes] | None:
    """Those of a key, by what its columns' values are the same as: any of one's with any of
    another's, each its own. None for too many."""
    together = together_of(parts)
    if together is None:
        return None
    buckets = buckets_of_all(together)
    return buckets if len(buckets) == len(together) else None


def together_of(parts: Sequence[Set[bytes]]) -> Sequence[tuple[bytes, ...]] | None:
    """Any of one's with any of another's; None for too many."""
    return [*product(*parts)] if math.prod(map(len, parts)) <= MOST_BUCKETS else None


def buckets_of_all(together: Iterable[tuple[bytes, ...]]) -> frozenset[bytes]:
    """Those of a key, by what its columns' values are the same as together."""
    return frozenset(map(_bucket_of, together))


def _bucket_of(same: Sequence[bytes]) -> bytes:
    told = same[0] if len(same) == 1 else digest(same)
    return blake2b(told, digest_size=BUCKET_BYTES).digest()


class Pinned(NamedTuple):
    """A column, and where the values stand to one of which it is pinned. `or_null`: that may be
    NULL; `given`: these are put there."""

    column: KeyColumn
    places: tuple[Value, ...]
    or_null: bool = True
    given: bool = False

    def same(self, values: Values) -> frozenset[bytes] | None:
        """What its values are the same as, if that is known of all."""
        same = self.same_each(values)
        if same is None or (_SAME_NULL in same and not self.or_null):
            return None
        return frozenset(same)

    def same_each(self, values: Values) -> Sequence[bytes] | None:
        """What its values are the same as, each where it stands, if that is known of all."""
        return all_known(self._same(values(place)) for place in self.places)

    def literals(self, values: Values) -> tuple[bytes, ...]:
        """What a query by which all rows are found that have one of the values compares the column
        with; nothing where that is not known, or too much."""
        found: dict[bytes, None] = {}
        for place in self.places:
            value = values(place)
            same = self._same(value)
            if not same:  # an empty string finds nothing where it is NULL
                return ()
            found[_literal(self.column, value, same)] = None
        return tuple(found) if len(found) <= MOST_VALUES else ()

    def _same(self, value: Known) -> bytes | None:
        listed = not self.given and len(self.places) > 1
        return same_in(self.column, value, given=self.given, listed=listed)


class Table:
    """A table's columns, and what slots of them are called."""

    __slots__ = ("_of", "columns", "keys", "kinds", "of_none", "unindexed")

    def __init__(self, columns: Columns, *, strings: bool) -> None:
        self.keys: tuple[Key, ...] = tuple(
            key
            for key in (*columns.together, *columns.keys)
            if strings or not any(isinstance(each, StringColumn) for each in key.parts)
        )
        """Those that answers may pin, the best first."""
        self.columns = {each.name: each for key in self.keys for each in key.parts}
        self.unindexed = columns.unindexed[:_MOST_UNREAD]
        self.of_none = _kind(None, self.unindexed)
        self.kinds: dict[bytes, Key | None] = {self.of_none: None}
        """The key of each kind of slot, None of those that pin none."""
        self._of = {each: (_kind(each, ()), _kind(each, self.unindexed)) for each in self.keys}
        for key in self.keys:
            self.kinds |= dict.fromkeys(self.of(key), key)

    def of(self, key: Key) -> tuple[bytes, bytes]:
        """The kinds of its slots: of answers that read all columns, and of those that do not."""
        return self._of[key]

    def bits(self, columns: Set[str]) -> int:
        """Those of columns that are set; 0 where others are among them, too."""
        return _bits(columns, self.unindexed) if columns <= set(self.unindexed) else 0

    def named(self, bits: int) -> tuple[str, ...]:
        """The unindexed columns of these."""
        return tuple(name for bit, name in enumerate(self.unindexed) if bits >> bit & 1)

    def unread(self, named: Set[str] | None) -> int:
        """The bits of those that a query surely does not read, among whose names those of all
        columns are that it reads; None where it may read any."""
        if named is None:
            return 0
        return _bits((each for each in self.unindexed if each not in named), self.unindexed)


@lru_cache(_MOST_TABLES)
def table_of(columns: Columns, strings: bool) -> Table:
    """The table with these columns; without `strings` only its integers tell rows apart."""
    return Table(columns, strings=strings)


class PinnedKey(NamedTuple):
    """A key, and how its columns are pinned where its table is read; of a table that is read
    several times once for each."""

    key: Key
    ways: tuple[tuple[Pinned, ...], ...]

    @property
    def values(self) -> int:
        """How many it has at most."""
        return sum(math.prod(len(each.places) for each in way) for way in self.ways)

    def buckets(self, values: Values) -> frozenset[bytes] | None:
        """Those of its values, if all are known."""
        buckets: frozenset[bytes] = frozenset()
        for way in self.ways:
            same = all_known(each.same(values) for each in way)
            own = None if same is None else buckets_of(same)
            if own is None:
                return None
            buckets |= own
        return buckets


class Told:
    """What the texts or executions of reads that are alike tell, to all of the tables that they
    join. `compared` is all that they compare with values; `parameters` is how many an execution
    has, None for texts."""

    __slots__ = ("_compared", "_parameters")

    def __init__(self, compared: Iterable[Pinned], parameters: int | None) -> None:
        self._compared = tuple(compared)
        self._parameters = parameters

    def values(self, field: bytes) -> Values | None:
        """Those of the one with this last field, which each table asks for; None where what is
        compared with anything may warn of rows that are not asked for."""
        short = len(field) <= LONGEST_BYTES
        return _values_told(self, field) if short else self.read(field)

    def read(self, field: bytes) -> Values | None:
        """The same, which costs as much as there is to be read."""
        if self._parameters is None:
            values = values_of_text(field)
        else:
            values = values_of_execution(values_told(field, self._parameters))
        unsure = any(each.same(values) is None for each in self._compared)
        return None if unsure else values


@lru_cache(_FIELDS_AT_ONCE)
def _values_told(told: Told, field: bytes) -> Values | None:
    return told.read(field)


class ReadPins:
    """Those of reads that are alike: a `Pinning`, of the table of this `name`. `told` is what all
    of their tables are told, `unread` the bits of the columns that they do not read."""

    __slots__ = ("_chosen", "_in_use", "_pinned", "_table", "_told", "_unread", "name")

    def __init__(
        self,
        name: TableName,
        table: Table,
        pinned: Sequence[PinnedKey],
        unread: int,
        told: Told,
    ) -> None:
        self.name = name
        self._table = table
        self._pinned = tuple(pinned)
        self._unread = unread
        self._told = told
        self._in_use: Set[bytes] = frozenset()
        self._chosen: tuple[tuple[bytes, PinnedKey | None], ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the keys that they pin, the best first."""
        return tuple(each.key.name for each in self._pinned)

    @property
    def unread(self) -> tuple[str, ...]:
        """The names of columns that they do not read, and that may change by themselves."""
        return self._table.named(self._unread)

    @property
    def witnessed(self) -> bool:
        """See `Pinning`."""
        return any(each.key.gives_new for each in self._pinned)

    def pin(self, in_use: Set[bytes], field: bytes) -> Pin | None:
        """See `Pinning`."""
        if in_use is not self._in_use:
            self._in_use, self._chosen = in_use, tuple(self._choices(in_use))
        of_key: PinnedKey | None = None
        buckets: frozenset[bytes] | None = None
        for slot, pinned in self._chosen:
            if pinned is None:
                return Pin(slot, ())
            if pinned is not of_key:  # several slots may be of one
                of_key, buckets = pinned, self._buckets(pinned, field)
            if buckets is not None:
                return Pin(slot, tuple(sorted(buckets)), pinned.key.gives_new)
        return None

    def wants(self, in_use: Set[bytes], spared: Iterable[bytes], field: bytes) -> bytes | None:
        """See `Pinning`."""
        unread = 0
        for kind, bits in map(parts_of, spared):
            if kind == self._table.of_none and not bits & ~self._unread:
                unread |= bits
        of_rows, of_all = [], [of_kind(self._table.of_none, unread)] if unread else []
        pinned = next(iter(self._pinned), None)
        if pinned is not None:
            plain, apart = self._table.of(pinned.key)
            of_rows = [of_kind(plain, 0), *([of_kind(apart, unread)] if unread else ())]
        of_rows, of_all = ([each for each in of if each not in in_use] for of in (of_rows, of_all))
        if pinned is not None and (of_rows or of_all) and self._buckets(pinned, field) is not None:
            return next(iter(of_rows), None)
        return next(iter(of_all), None)

    def _choices(self, in_use: Set[bytes]) -> Iterator[tuple[bytes, PinnedKey | None]]:
        """The slots that would do, the best first: of a pinned key, and those that leave out
        the most of what is not read."""
        of_kinds: dict[bytes, list[int]] = {}
        for kind, bits in map(parts_of, in_use):
            if not bits & ~self._unread:
                of_kinds.setdefault(kind, []).append(bits)
        for pinned in self._pinned:
            plain, apart = self._table.of(pinned.key)
            for kind in (apart, plain):
                for bits in sorted(of_kinds.get(kind, ()), key=int.bit_count, reverse=True):
                    yield of_kind(kind, bits), pinned
        for bits in sorted(of_kinds.get(self._table.of_none, ()), key=int.bit_count, reverse=True):
            yield of_kind(self._table.of_none, bits), None

    def _buckets(self, pinned: PinnedKey, field: bytes) -> frozenset[bytes] | None:
        """None as well where what is compared with anything else may warn of rows that are not
        asked for."""
        values = self._told.values(field)
        return None if values is None else pinned.buckets(values)


def values_of_text(literals: bytes) -> Values:
    """Those of a text, by its literals."""
    found = _literals(literals)
    return lambda value: Null.NULL if value == NULL else _signed(value, _at(found, value.place))


def values_of_execution(sent: Sequence[Known]) -> Values:
    """Those of an execution, by its parameters."""

    def known(value: Value) -> Known:
        if value.is_parameter:
            return _at(sent, value.place)
        return Null.NULL if value == NULL else _signed(value, _at(_literals(value.text), 0))

    return known


def _at(found: Sequence[Known], place: int) -> Known:
    return found[place] if place < len(found) else None


def _signed(value: Value, known: Known) -> Known:
    return -known if value.negative and isinstance(known, int) else known


def _literals(field: bytes) -> list[Known]:
    """Literals that are joined by commas, as far as all are plain."""
    found: list[Known] = []
    at = 0
    while match := _LITERAL.match(field, at):
        number, quoted = match.groups()
        if number is None:
            found.append(quoted)
        else:
            found.append(int(number) if _INTEGER.fullmatch(number) else None)
        at = match.end()
    return found
