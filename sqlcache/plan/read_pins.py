"""What reads pin, of each of the tables that they join; see `pins`.

- What the WHERE lets through has a row of each table that it compares with a value; rows that it
  leaves out add nothing to that, whatever the other tables hold. So each table is pinned by itself.
- What is equal to such a column is pinned by the same values. Where an outer join may leave out the
  row of a table, no other rows of it than those with these values are joined with what is let
  through.
- A table that is read several times is pinned by a column that is so each time.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from sqlcache.plan.pins import MOST_VALUES, Pinned, PinnedKey, ReadPins, Table, Told, table_of
from sqlcache.sql import pins
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.facts import IntegerColumn, KeyColumn
from sqlcache.sql.lexer import Lexed
from sqlcache.sql.names import TableName
from sqlcache.sql.pins.found import NULL, Column, Condition, Equality, Pins

_Known = Mapping[str, Mapping[str, KeyColumn]]
"""The columns of each table's keys, by how that is called."""


def of_read(
    lexed: Lexed,
    tables: Iterable[TableName],
    catalog: Catalog,
    schema: str | None,
    parameters: int | None = None,
    *,
    proves: bool = True,
    strings: bool = True,
) -> tuple[ReadPins, ...]:
    """What reads like this one pin, in a session with this default schema, of each table of which
    they pin anything, by name. `proves`: by an answer with a row it is known that there is one.
    `strings`: it is known which these are, by their bytes."""
    names = sorted(tables)
    known = {name: table_of(catalog.reads.columns(name), strings) for name in names}
    found = pins.pins(lexed.tokens) or Pins("SELECT")
    called = _called(found, names, catalog, schema)
    keys = {alias: known[name].columns for alias, name in called.items()}
    found = _named(found, keys)
    compared: list[_Compared] = []
    if called and _are_known(found.conditions, parameters) and _is_plain(found, keys):
        compared += _compared(found, keys)
        compared += _carried(found, compared, keys)
    told = Told((each.pinned for each in compared if not each.follows), parameters)
    tells_unread = any(table.unindexed for table in known.values())
    named = pins.named_columns(lexed.tokens) if tells_unread else None
    ways: dict[str, list[_Compared]] = {alias: [] for alias in called}
    for each in compared:
        ways[each.table].append(each)
    of_tables: dict[TableName, list[list[_Compared]]] = {name: [] for name in names}
    for alias, name in called.items():
        of_tables[name].append(ways[alias])
    of_all = (
        ReadPins(name, table, _pinned(table, of_tables[name], proves), table.unread(named), told)
        for name, table in known.items()
    )
    return tuple(each for each in of_all if each.columns or each.unread)


class _Compared(NamedTuple):
    """A column that a read compares with values; with `equal` it has to be one in each row. It
    `follows` where this is told by another that it is equal to; `sure`: there is a row of its table
    in each of the read's."""

    table: str
    pinned: Pinned
    equal: bool = True
    follows: bool = False
    sure: bool = True

    def may_pin(self, *, proves: bool) -> bool:
        """Whether an answer may pin it. That each row of a list is there is known by as many rows
        of an answer, but of a join's may all come from one."""
        values = len(self.pinned.places)
        if self.pinned.column.gives_new:
            most = MOST_VALUES if self.pinned.or_null else 1
            return self.sure and proves and values <= most
        return values <= MOST_VALUES


def _pinned(table: Table, compared: Iterable[Iterable[_Compared]], proves: bool) -> list[PinnedKey]:
    """What is pinned of a table, by what is compared each time that it is read: keys that are
    everywhere, the best first: those by which there is one row, those of most columns, and then as
    they are told, by values before what follows."""
    ways: list[dict[KeyColumn, Pinned]] = []
    for way in compared:
        own: dict[KeyColumn, Pinned] = {}
        for each in way:
            if each.equal and each.may_pin(proves=proves):
                own.setdefault(each.pinned.column, each.pinned)
        ways.append(own)
    first, *others = ways or [{}]
    everywhere = [column for column in first if all(column in other for other in others)]
    keys = [key for key in table.keys if everywhere and set(everywhere).issuperset(key.parts)]
    keys.sort(
        key=lambda key: (
            not (isinstance(key, IntegerColumn) and key.identifies),
            -len(key.parts),
            everywhere.index(key.parts[0]),
        )
    )
    pinned = [
        PinnedKey(key, tuple(tuple(way[part] for part in key.parts) for way in ways))
        for key in keys
    ]
    return [each for each in pinned if each.values <= MOST_VALUES]


def _named(found: Pins, keys: _Known) -> Pins:
    """The same where columns name their tables: the server takes no name that more than one of
    those has to which it may belong."""
    having: dict[str, list[int]] = {}
    for place, source in enumerate(found.sources):
        for name in keys.get(source.name, ()):
            having.setdefault(name, []).append(place)

    def named(column: Column, among: int | None) -> Column:
        if column.table or among is None:
            return column
        places = [place for place in having.get(column.name, ())[:2] if place < among]
        return Column(column.name, found.sources[places[0]].name) if len(places) == 1 else column

    every = len(found.sources)
    return found._replace(
        conditions=tuple(
            each._replace(table=named(Column(each.column, each.table), every).table)
            for each in found.conditions
        ),
        joined=tuple(
            each._replace(one=named(each.one, each.among), other=named(each.other, each.among))
            for each in found.joined
        ),
    )


def _is_plain(found: Pins, keys: _Known) -> bool:
    """Whether all that is compared is known not to warn of rows that are not asked for."""
    for name, table in (column for each in found.joined for column in (each.one, each.other)):
        if not isinstance(keys.get(table, {}).get(name), IntegerColumn):
            return False
    of = [(_alias(found, each), each) for each in found.conditions]
    return all(
        each.column in keys.get(table, ()) or (_is_null(each) and table in ("", *keys))
        for table, each in of
    )


def _alias(found: Pins, condition: Condition) -> str:
    """How the table of the column is called among those that are read; alone it is ""."""
    return condition.table if found.sources else ""


def _is_null(condition: Condition) -> bool:
    """Whether the column only must be NULL, or must not."""
    return not condition.values or condition.values == (NULL,)


def _compared(found: Pins, keys: _Known) -> Iterator[_Compared]:
    """All that a read compares with values, in their order."""
    joins = bool(found.sources)  # where columns are NULL for want of a row
    for condition in found.conditions:
        alias = _alias(found, condition)
        column = keys.get(alias, {}).get(condition.column)
        if column is not None and condition.values and not (joins and _is_null(condition)):
            pinned = Pinned(column, condition.values, or_null=not joins)
            yield _Compared(alias, pinned, condition.equal)


def _carried(found: Pins, compared: Sequence[_Compared], keys: _Known) -> Iterator[_Compared]:
    """What columns have to be as well, for they are equal to others. Rows of a table that others
    are joined with, if it has any for them, come after no others than those with these values."""
    reached = {Column(each.pinned.column.name, each.table): each for each in compared if each.equal}
    joined: dict[Column, list[Equality]] = {}
    for equality in found.joined:
        for column in (equality.one, equality.other):
            joined.setdefault(column, []).append(equality)
    new = deque(reached)
    while new:
        at = new.popleft()
        for to, sure in _equal_to(at, joined.get(at, ()), sure=reached[at].sure):
            if to not in reached or (sure and not reached[to].sure):
                pinned = reached[at].pinned._replace(column=keys[to.table][to.name])
                reached[to] = _Compared(to.table, pinned, follows=True, sure=sure)
                new.append(to)
    return (each for each in reached.values() if each.follows)


def _equal_to(
    column: Column, joined: Iterable[Equality], *, sure: bool
) -> Iterator[tuple[Column, bool]]:
    """The columns that are equal to this one, and whether of each row as `sure`."""
    for each in joined:
        one, other, how = how_of(each)
        if how is How.SOMEWHERE:
            continue
        if one == column:
            yield other, sure and how is How.ALWAYS
        elif other == column and (sure or how is How.ALWAYS):
            yield one, sure


class How(Enum):
    """Where two columns have to be equal."""

    ALWAYS = "always"
    """In each row of the query, as far as their tables have one in it."""
    IF_THERE = "if there"
    """Where there is a row of the other one's table: it is joined by that, and may be missing."""
    SOMEWHERE = "somewhere"
    """Of that nothing follows."""


def how_of(equal: Equality) -> tuple[Column, Column, How]:
    """The two columns, and where they have to be equal."""
    one, other, side, last = equal.one, equal.other, equal.side, equal.last
    if not side:
        return one, other, How.ALWAYS
    if (one.table == last) == (other.table == last):
        return one, other, How.SOMEWHERE
    if (other.table == last) != (side == "LEFT"):
        one, other = other, one
    return one, other, How.IF_THERE


def _called(
    found: Pins, tables: Sequence[TableName], catalog: Catalog, schema: str | None
) -> dict[str, TableName]:
    """Each table by how it is called where it is read; none where one is not known."""
    if not found.sources:
        return {"": tables[0]} if len(tables) == 1 else {}
    called = {
        source.name: name
        for source in found.sources
        if (name := catalog.server.resolve(source.ref, schema)) is not None
    }
    return called if len(called) == len(found.sources) and {*called.values()} == {*tables} else {}


def _are_known(conditions: Iterable[Condition], parameters: int | None) -> bool:
    """Whether all values can be found again."""
    return parameters is not None or not any(
        value.is_parameter for each in conditions for value in each.values
    )
