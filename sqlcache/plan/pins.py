"""What statements pin, by the catalog of now; see `cache.slots` for what comes of it.

What a text pins is found once, where the values stand in it; which they are is read from each text
or execution. A value that is not surely the very one that the server takes it for pins nothing:
then the answer hangs on the whole table, or the write covers all of it.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from hashlib import blake2b
from typing import Final, NamedTuple

from sqlcache.cache.keys import digest
from sqlcache.cache.slots import MOST_BUCKETS
from sqlcache.cache.tags import BUCKET_BYTES, ID_BYTES, Cover, Pin
from sqlcache.plan.prepared import Known, values_told
from sqlcache.sql import pins
from sqlcache.sql.catalog import Catalog, KeyColumn, StringColumn
from sqlcache.sql.lexer import Lexed
from sqlcache.sql.names import TableName
from sqlcache.sql.pins import Condition, Value

_INTEGER = re.compile(rb"0|[1-9][0-9]{0,19}")
_QUOTED = re.compile(rb"-?(?:0|[1-9][0-9]{0,14})")
"""In a string: a longer one may be compared as a double."""
PLAIN = re.compile(rb"[0-9A-Za-z_.:@/+-]*")
"""Strings of which no two are equal under any of `catalog.COLLATIONS` but by their letters' case.
Others may equal these, as é does e."""
_MOST_VALUES: Final = 16
"""In a list that an answer pins; more cost more to ask for than they are worth."""
_LIST_BELOW: Final = 10**15
"""A list of numbers and strings may be compared with as doubles."""
_NO_BUCKETS: frozenset[bytes] = frozenset()
_LITERAL = re.compile(rb"(?:([0-9][0-9A-Za-z_.+-]*)|'([^'\\]*)')(?:,|\Z)")

Values = Callable[[Value], Known]
"""Gives what stands there."""


def slot_of(column: KeyColumn) -> bytes:
    """What names a column's slot: that of one of another type is another."""
    name = column.name.encode()
    if isinstance(column, StringColumn):
        told = b"string", name, column.collation.encode(), b"%d" % column.characters
        return digest(told)[:ID_BYTES]
    kind = b"number" if column.gives_new else b"integer"
    return digest((kind, name, b"%d" % column.least, b"%d" % column.most))[:ID_BYTES]


def _same(column: KeyColumn, value: Known, *, given: bool, listed: bool) -> bytes | None:
    """What all values have in common that the server takes for the same in this column; None for
    one of which that is not known. `given`: it is put there, which may change it; `listed`: it is
    compared with together with others, which may be of another type."""
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


def _bucket_of(same: bytes) -> bytes:
    return blake2b(same, digest_size=BUCKET_BYTES).digest()


class _Pinned(NamedTuple):
    """A slot, and where the values stand to one of which it is pinned."""

    slot: bytes
    column: KeyColumn
    places: tuple[Value, ...]

    def buckets(self, values: Values, *, given: bool = False) -> frozenset[bytes] | None:
        """Those of the values, if all have one, and each its own."""
        listed = not given and len(self.places) > 1
        same = {
            _same(self.column, values(place), given=given, listed=listed) for place in self.places
        }
        known = {each for each in same if each is not None}
        buckets = frozenset(map(_bucket_of, known))
        return buckets if len(buckets) == len(same) else None


class ReadPins:
    """Those of reads that are alike: a `Pinning`. `parameters` is how many an execution has; None
    for texts."""

    __slots__ = ("_others", "_parameters", "_pinned", "slots", "witnessed")

    def __init__(
        self, pinned: Sequence[_Pinned], others: Sequence[_Pinned], parameters: int | None
    ) -> None:
        self._pinned = tuple(pinned)
        self._others = tuple(others)
        self._parameters = parameters
        self.slots: Collection[bytes] = tuple(each.slot for each in pinned)
        self.witnessed = any(each.column.gives_new for each in pinned)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, the best first."""
        return tuple(each.column.name for each in self._pinned)

    def pin(self, in_use: Set[bytes], field: bytes) -> Pin | None:
        """See `Pinning`."""
        for each in self._pinned:
            if each.slot in in_use:
                values = self._values(field)
                buckets = each.buckets(values)
                # What is compared with anything else may warn of rows that are not asked for.
                if buckets is None or any(other.buckets(values) is None for other in self._others):
                    return None
                return Pin(each.slot, tuple(sorted(buckets)), each.column.gives_new)
        return None

    def _values(self, field: bytes) -> Values:
        if self._parameters is None:
            return values_of_text(field)
        return values_of_execution(values_told(field, self._parameters))


class WritePins:
    """Those of writes that are alike."""

    __slots__ = ("_given", "_new", "_pinned")

    def __init__(
        self,
        pinned: Sequence[_Pinned],
        given: Sequence[_Pinned] = (),
        new: Sequence[bytes] = (),
    ) -> None:
        self._pinned = tuple(pinned)
        self._given = tuple(given)  # to rows that are new
        self._new = tuple(new)  # slots of columns that get what no row has

    def touches(self, in_use: Set[bytes], values: Values) -> Cover:
        """What the one with these values touches of the slots in use; of one that is left out it
        may touch any bucket."""
        touched = {slot: _NO_BUCKETS for slot in self._new if slot in in_use}
        for each in self._pinned:
            buckets = each.buckets(values) if each.slot in in_use else None
            if buckets is not None:
                touched[each.slot] = buckets
        for given in self._given:
            buckets = given.buckets(values, given=True) if given.slot in in_use else None
            if buckets is not None:
                touched[given.slot] = buckets
        return touched if sum(map(len, touched.values())) <= MOST_BUCKETS else {}


def of_read(
    lexed: Lexed,
    tables: Iterable[TableName],
    catalog: Catalog,
    parameters: int | None = None,
    *,
    proves: bool = True,
    strings: bool = True,
) -> ReadPins | None:
    """What reads like this one pin; None where that is nothing. `proves`: by an answer with a row
    it is known that there is one. `strings`: it is known which these are, by their bytes."""
    columns = _columns(tables, catalog)
    if not strings:
        columns = {n: each for n, each in columns.items() if not isinstance(each, StringColumn)}
    found = pins.pins(lexed.tokens) if columns else None
    if found is None or found.verb != "SELECT":
        return None
    pinned: list[_Pinned] = []
    others: list[_Pinned] = []
    for condition in found.conditions:
        if not condition.values:
            continue
        column = columns.get(condition.column)
        if column is None:
            return None
        each = _Pinned(slot_of(column), column, condition.values)
        few = len(condition.values) <= _MOST_VALUES
        pins_it = condition.equal and few and (proves or not column.gives_new)
        (pinned if pins_it else others).append(each)
    if not pinned or not _are_known(found.conditions, parameters):
        return None
    return ReadPins(pinned, [*others, *pinned], parameters)


def of_write(found: pins.Pins, tables: Collection[TableName], catalog: Catalog) -> WritePins | None:
    """What writes whose texts say so pin; None where that is nothing, or where they may do more
    than their text says."""
    columns = _columns(tables, catalog)
    if not columns or not all(map(catalog.changes_as_told, tables)):
        return None
    if found.verb == "INSERT":
        given = [
            _Pinned(slot_of(column), column, tuple(values))
            for column in columns.values()
            if (values := _values_of(column, found.rows)) is not None
        ]
        new = [
            slot_of(column)
            for column in columns.values()
            if column.gives_new and not any(column.name in row for row in found.rows)
        ]
        return WritePins((), given, new) if given or new else None
    pinned = [
        _Pinned(slot_of(columns[each.column]), columns[each.column], each.values)
        for each in found.conditions
        if each.equal and each.column in columns.keys() - found.changed
    ]
    return WritePins(pinned) if pinned else None


def _columns(tables: Iterable[TableName], catalog: Catalog) -> dict[str, KeyColumn]:
    """Those of the one table, by name; none where there are several."""
    names = tuple(tables)
    if len(names) != 1:
        return {}
    return {column.name: column for column in catalog.pinnable(names[0])}


def _values_of(column: KeyColumn, rows: Sequence[dict[str, Value | None]]) -> list[Value] | None:
    """What is given to a column; None where that is computed, or left to the server."""
    values = [row.get(column.name) for row in rows]
    return [value for value in values if value is not None] if None not in values else None


def _are_known(conditions: Iterable[Condition], parameters: int | None) -> bool:
    """Whether all values can be found again."""
    return parameters is not None or not any(
        value.is_parameter for each in conditions for value in each.values
    )


def values_of_text(literals: bytes) -> Values:
    """Those of a text, by its literals."""
    found = _literals(literals)
    return lambda value: _signed(value, _at(found, value.place))


def values_of_execution(sent: Sequence[Known]) -> Values:
    """Those of an execution, by its parameters."""
    return lambda value: (
        _at(sent, value.place)
        if value.is_parameter
        else _signed(value, _at(_literals(value.text), 0))
    )


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
