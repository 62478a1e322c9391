"""What writes pin, of the one table that they change; see `pins`.

A write touches the buckets of all values that the rows have which it finds, and of those that it
puts there. Of some columns its text tells both; of others a `probe` may.
"""

from collections.abc import Iterator, Mapping, Sequence, Set

from sqlcache.cache.slots import MOST_BUCKETS, bounded
from sqlcache.cache.tags import Cover
from sqlcache.plan.pins import (
    Pinned,
    Table,
    Values,
    all_known,
    buckets_of,
    buckets_of_all,
    of_kind,
    parts_of,
    table_of,
)
from sqlcache.plan.probes import MOST_BYTES, Asked, Probe
from sqlcache.plan.writeset import WriteSet
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.facts import Key, KeyColumn
from sqlcache.sql.names import TableName
from sqlcache.sql.pins.found import AS_GIVEN, NULL, Pins, Value

_NOTHING: frozenset[bytes] = frozenset()
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

    __slots__ = ("_asked", "_changed", "_changes", "_found", "_put", "_removes", "_table", "spared")

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
        """The names of the keys by which it is known what rows they touch."""
        known = (
            key.name
            for key in self._table.keys
            if self._puts_known(key) and (self._found is None or {*key.parts} <= {*self._found})
        )
        return tuple(sorted(known))

    @property
    def asks(self) -> tuple[str, ...]:
        """The names of those of which that may be asked for."""
        if self._asked is None or not self._found:
            return ()
        told = self.columns
        asked = (
            key.name
            for key in self._table.keys
            if key.name not in told and self._may_ask_for(key) and self._puts_known(key)
        )
        return tuple(sorted(asked))

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
            key = self._table.kinds[kind]
            if self._changes and not self._changes & ~unread:
                touched[slot] = _NOTHING
            elif key is not None and (buckets := self._buckets(key, values)) is not None:
                touched[slot] = buckets
        return bounded(touched)

    def probe(self, in_use: Set[bytes], touched: Cover, values: Values) -> Probe | None:
        """The probe that tells, for these values, which buckets of the slots not in `touched` the
        write touches; None if none can."""
        found = self._literals(values) if self._asked is not None else {}
        asked = [*self._asked_of(in_use - touched.keys(), values)] if found else []
        if self._asked is None or not asked:
            return None
        columns = {*found, *(part for each in asked for part in each.key.parts)}
        before = self._removes or any(each.name in self._changed for each in columns)
        most = MOST_BUCKETS - sum(map(len, touched.values()))
        probe = Probe(self._asked, asked, found, before=before, most=most)
        return probe if len(probe.statement) <= MOST_BYTES else None

    def _puts_known(self, key: Key) -> bool:
        """Whether it is known what is put into its columns, if anything is."""
        return all(self._put.get(part, True) for part in key.parts)

    def _buckets(self, key: Key, values: Values) -> frozenset[bytes] | None:
        if (given := self._given_by_rows(key)) is not None:
            of_rows = all_known(put.same_each(values) for put in given)
            return None if of_rows is None else buckets_of_all({*zip(*of_rows, strict=True)})
        same = all_known(self._same_touched(part, values) for part in key.parts)
        return None if same is None else buckets_of(same)

    def _given_by_rows(self, key: Key) -> Sequence[Pinned] | None:
        """What each of the rows that are put there gives to its columns, where the write touches
        what it gives to them together: the rows that it finds are there with the same, and keep
        it. None where it touches others, too."""
        given = []
        for part in key.parts:
            put = self._put.get(part)
            if put is None or (self._found is not None and self._found.get(part) != put):
                return None
            given.append(put)
        return given

    def _same_touched(self, column: KeyColumn, values: Values) -> frozenset[bytes] | None:
        put = self._same_put(column, values)
        if self._found is None or put is None:
            return put
        pinned = self._found.get(column)
        found = None if pinned is None else pinned.same(values)
        return None if found is None else found | put

    def _same_put(self, column: KeyColumn, values: Values) -> frozenset[bytes] | None:
        if column not in self._put:
            return _NOTHING
        put = self._put[column]
        return None if put is None else put.same(values)

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
        """The keys of these slots of which an answer tells what they touch."""
        of_keys: dict[Key, list[bytes]] = {}
        for slot in sorted(slots):
            key = self._table.kinds.get(parts_of(slot)[0])
            if key is not None and self._may_ask_for(key):
                of_keys.setdefault(key, []).append(slot)
        for key in sorted(of_keys, key=lambda each: each.name):
            put = all_known(self._same_put(part, values) for part in key.parts)
            if put is not None:
                yield Asked(key, tuple(of_keys[key]), tuple(put))

    def _may_ask_for(self, key: Key) -> bool:
        """A row may come with a number of the server's unseen. And where some columns of several
        are set, another write may set the others meanwhile: neither knows of what they are then."""
        known = key.name.isascii() and not key.gives_new
        return known and len({part.name in self._changed for part in key.parts}) == 1


def of_write(found: Pins, writes: WriteSet, catalog: Catalog) -> WritePins | None:
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


def _of_new_rows(found: Pins, table: Table) -> WritePins:
    """Those of an INSERT that changes no rows that are there. What the server gives to a column may
    be what no row has."""
    columns = list(table.columns.values())
    new = {
        column
        for column in columns
        if column.gives_new and all(row.get(column.name, NULL) == NULL for row in found.rows)
    }
    put = {each: _given(each, found) for each in columns if each not in new}
    return WritePins(table, None, put)


def _of_rows_replaced(
    found: Pins,
    table: Table,
    changed: Set[str],
    only_key: Sequence[str],
    asked: TableName | None,
) -> WritePins:
    """Those of one that changes others in place of its rows: it finds those by a key, and where
    there is one alone, they are those with its values."""
    put = {column: _given(column, found) for column in table.columns.values()}
    rows = {
        column: pinned
        for column, pinned in put.items()
        if column.name in only_key and pinned is not None
    }
    for column, given in put.items():
        if column.name in changed and found.changed.get(column.name) != AS_GIVEN:
            put[column] = _with(given, found.changed.get(column.name))
    removes = not found.changed
    return WritePins(table, rows, put, changed=changed, removes=removes, asked=asked)


def _of_rows_found(
    found: Pins, table: Table, changed: Set[str], asked: TableName | None
) -> WritePins:
    """Those of an UPDATE or a DELETE."""
    rows = {
        (column := table.columns[each.column]): Pinned(column, each.values)
        for each in found.conditions
        if each.equal and each.column in table.columns
    }
    put = {
        column: _with(Pinned(column, (), given=True), found.changed.get(name))
        for name, column in table.columns.items()
        if name in changed
    }
    removes = not found.changed
    changes = table.bits(changed)
    return WritePins(
        table, rows, put, changed=changed, removes=removes, changes=changes, asked=asked
    )


def _given(column: KeyColumn, found: Pins) -> Pinned | None:
    """What rows give to a column; None where that is computed, or left to the server."""
    values = [row.get(column.name) for row in found.rows]
    known = tuple(value for value in values if value is not None)
    return Pinned(column, known, given=True) if len(known) == len(values) else None


def _with(given: Pinned | None, value: Value | None) -> Pinned | None:
    """The same with one value more."""
    if given is None or value is None:
        return None
    return given._replace(places=(*given.places, value))
