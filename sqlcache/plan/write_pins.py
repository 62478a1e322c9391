"""What writes pin, of the one table that they change; see `pins`.

A write touches the buckets of all values that the rows have which it finds, and of those that it
puts there. Of some columns its text tells both; of others a `probe` may.
"""

from collections.abc import Iterator, Mapping, Set

from sqlcache.cache.slots import MOST_BUCKETS
from sqlcache.cache.tags import Cover
from sqlcache.plan.pins import Pinned, Table, Values, of_kind, parts_of, table_of
from sqlcache.plan.probes import MOST_BYTES, Asked, Probe
from sqlcache.plan.writeset import WriteSet
from sqlcache.sql import pins
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.facts import KeyColumn
from sqlcache.sql.names import TableName
from sqlcache.sql.pins import AS_GIVEN, NULL, Value

_NO_BUCKETS: frozenset[bytes] = frozenset()
_NO_NAMES: frozenset[str] = frozenset()

Found = Mapping[KeyColumn, Pinned]
"""By which values rows are found."""
Put = Mapping[KeyColumn, Pinned | None]
"""What is put into columns; None where that is not known."""


class WritePins:
    """Those of writes that are alike. They change rows that are `found`, if any, and put something
    into columns: into those of rows that are there where these are `changed`, by name. `removes`:
    rows are gone then. `changes` are the bits of all that are set, where these are unindexed.
    `asked` is the table, if its rows may be asked for."""

    __slots__ = (
        *("_asked", "_changed", "_changes", "_found", "_put", "_removes", "_table", "spared"),
    )

    def __init__(
        self,
        table: Table,
        found: Found | None,
        put: Put,
        *,
        changed: Set[str] = frozenset(),
        removes: bool = False,
        changes: int = 0,
        asked: TableName | None = None,
    ) -> None:
        self._table = table
        self._found = found
        self._put = put
        self._changed = changed
        self._removes = removes
        self._changes = changes
        self._asked = asked
        self.spared = of_kind(table.of_none, changes) if changes else None
        """The slot of answers that pin nothing, and read none of the columns that are set, where
        there may be one."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns by which it is known what rows they touch."""
        known = (
            name
            for name, column in self._table.keys.items()
            if self._put.get(column, True) and (self._found is None or column in self._found)
        )
        return tuple(sorted(known))

    @property
    def asks(self) -> tuple[str, ...]:
        """The names of those of which that may be asked for."""
        if self._asked is None or not self._found:
            return ()
        told = self.columns
        return tuple(
            each.name
            for each in sorted(self._table.keys.values(), key=lambda each: each.name)
            if each.name not in told and _is_asked_for(each) and self._put.get(each, True)
        )

    @property
    def unread(self) -> tuple[str, ...]:
        """The names of the columns that are set, where who does not read them need not know."""
        return self._table.named(self._changes)

    @property
    def tell(self) -> bool:
        """Whether anything is known of what they touch, or may be asked for."""
        return bool(self.columns or self._changes or (self._found and self._asked))

    def touches(self, in_use: Set[bytes], values: Values) -> Cover:
        """What the one with these values touches of the slots in use; of one that is left out it
        may touch any bucket."""
        touched = {}
        for slot in in_use:
            kind, unread = parts_of(slot)
            if kind not in self._table.kinds:
                continue
            column = self._table.kinds[kind]
            if self._changes and not self._changes & ~unread:
                touched[slot] = _NO_BUCKETS
            elif column is not None and (buckets := self._buckets(column, values)) is not None:
                touched[slot] = buckets
        return touched if sum(map(len, touched.values())) <= MOST_BUCKETS else {}

    def probe(self, in_use: Set[bytes], touched: Cover, values: Values) -> Probe | None:
        """What tells the one with these values which buckets it touches of other slots in use than
        those `touched`; None where there is none of which that can be told."""
        found = self._literals(values) if self._asked is not None else {}
        asked = [*self._asked_of(in_use - touched.keys(), values)] if found else []
        if self._asked is None or not asked:
            return None
        columns = {*found, *(each.column for each in asked)}
        before = self._removes or any(each.name in self._changed for each in columns)
        most = MOST_BUCKETS - sum(map(len, touched.values()))
        probe = Probe(self._asked, asked, found, before=before, most=most)
        return probe if len(probe.statement) <= MOST_BYTES else None

    def _buckets(self, column: KeyColumn, values: Values) -> frozenset[bytes] | None:
        put = self._buckets_put(column, values)
        if self._found is None or put is None:
            return put
        pinned = self._found.get(column)
        found = None if pinned is None else pinned.buckets(values)
        return None if found is None else found | put

    def _buckets_put(self, column: KeyColumn, values: Values) -> frozenset[bytes] | None:
        if column not in self._put:
            return _NO_BUCKETS
        put = self._put[column]
        return None if put is None else put.buckets(values)

    def _literals(self, values: Values) -> dict[KeyColumn, tuple[bytes, ...]]:
        """Those by which the rows are found; by columns that stay as they are, if there are any."""
        literals = {
            column: literals
            for column, pinned in (self._found or {}).items()
            if (literals := pinned.literals(values))
        }
        stay = {each: literals[each] for each in literals if each.name not in self._changed}
        return stay or literals

    def _asked_of(self, slots: Set[bytes], values: Values) -> Iterator[Asked]:
        """The columns of these slots of which an answer tells what they touch."""
        of_columns: dict[KeyColumn, list[bytes]] = {}
        for slot in sorted(slots):
            column = self._table.kinds.get(parts_of(slot)[0])
            if column is not None and _is_asked_for(column):
                of_columns.setdefault(column, []).append(slot)
        for column in sorted(of_columns, key=lambda each: each.name):
            put = self._buckets_put(column, values)
            if put is not None:
                yield Asked(column, tuple(of_columns[column]), put)


def _is_asked_for(column: KeyColumn) -> bool:
    """A row may come with a number of the server's unseen."""
    return column.name.isascii() and not column.gives_new


def of_write(found: pins.Pins, writes: WriteSet, catalog: Catalog) -> WritePins | None:
    """What writes whose texts say so pin; None where that is nothing, or where they may do more
    than their text says."""
    if len(writes.tables) != 1:
        return None
    (name,) = writes.tables
    columns = catalog.reads.columns(name)
    changed = (
        catalog.writes.set_with(name, frozenset(found.changed)) if found.changed else _NO_NAMES
    )
    if changed is None or not catalog.writes.are_as_told(name, writes.changes_of(name)):
        return None
    table = table_of(columns, True)
    asked = name if catalog.reads.tells_rows(name) else None
    if found.verb == "INSERT" and not found.replaces:
        told = _of_new_rows(found, table)
    elif found.verb == "INSERT":
        told = _of_rows_replaced(found, table, changed, columns.only_key, asked)
    else:
        told = _of_rows_found(found, table, changed, asked)
    return told if told.tell else None


def _of_new_rows(found: pins.Pins, table: Table) -> WritePins:
    """Those of an INSERT that changes no rows that are there. What the server gives to a column may
    be what no row has."""
    keys = list(table.keys.values())
    new = {
        column
        for column in keys
        if column.gives_new and all(row.get(column.name, NULL) == NULL for row in found.rows)
    }
    return WritePins(table, None, {each: _given(each, found) for each in keys if each not in new})


def _of_rows_replaced(
    found: pins.Pins, table: Table, changed: Set[str], only_key: str, asked: TableName | None
) -> WritePins:
    """Those of one that changes others in place of its rows: it finds those by a key, and where
    there is one alone, they are those with its values."""
    put = {column: _given(column, found) for column in table.keys.values()}
    rows = {
        column: pinned
        for column, pinned in put.items()
        if column.name == only_key and pinned is not None
    }
    for column, given in put.items():
        if column.name in changed and found.changed.get(column.name) != AS_GIVEN:
            put[column] = _with(given, found.changed.get(column.name))
    removes = not found.changed
    return WritePins(table, rows, put, changed=changed, removes=removes, asked=asked)


def _of_rows_found(
    found: pins.Pins, table: Table, changed: Set[str], asked: TableName | None
) -> WritePins:
    """Those of an UPDATE or a DELETE."""
    rows = {
        (column := table.keys[each.column]): Pinned(column, each.values)
        for each in found.conditions
        if each.equal and each.column in table.keys
    }
    put = {
        column: _with(Pinned(column, (), given=True), found.changed.get(name))
        for name, column in table.keys.items()
        if name in changed
    }
    removes = not found.changed
    changes = table.bits(changed)
    return WritePins(
        table, rows, put, changed=changed, removes=removes, changes=changes, asked=asked
    )


def _given(column: KeyColumn, found: pins.Pins) -> Pinned | None:
    """What rows give to a column; None where that is computed, or left to the server."""
    values = [row.get(column.name) for row in found.rows]
    known = tuple(value for value in values if value is not None)
    return Pinned(column, known, given=True) if len(known) == len(values) else None


def _with(given: Pinned | None, value: Value | None) -> Pinned | None:
    """The same with one value more."""
    if given is None or value is None:
        return None
    return given._replace(places=(*given.places, value))
