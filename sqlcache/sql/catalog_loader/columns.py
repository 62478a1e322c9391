"""What tells the rows of tables apart: their columns of integers and strings, and their indexes."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sqlcache.driver import aiomysql
from sqlcache.service.opening import Row, rows_of
from sqlcache.sql.catalog_loader.rows import in_turns, is_computed, name_of, text_of
from sqlcache.sql.catalog_loader.selection import Selection
from sqlcache.sql.facts import (
    COLLATIONS,
    Columns,
    IntegerColumn,
    KeyColumn,
    Scope,
    StringColumn,
    Together,
)
from sqlcache.sql.names import TableName

_ALL_COLUMNS = Selection(
    "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE LIKE '%unsigned%', EXTRA,"
    " COLUMN_KEY, COLLATION_NAME, CHARACTER_MAXIMUM_LENGTH, IS_NULLABLE = 'YES'"
    " FROM information_schema.COLUMNS WHERE"
)
_INDEXED = Selection(
    "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, NON_UNIQUE, SUB_PART IS NULL,"
    " INDEX_TYPE = 'HASH', SEQ_IN_INDEX, COLUMN_NAME FROM information_schema.STATISTICS WHERE"
)
"""The columns of each index, and whether it has all of their values; NULL for what it computes."""

_MOST_TOGETHER = 4  # columns of an index
_MOST_INDEXES = 32  # of a table, whose columns tell rows apart together

_STRINGS = ("char", "varchar")
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}


class _Index(NamedTuple):
    """Of a table. The columns, by their places in it, are None where they are computed. `whole`: it
    has all of the values; `hashed`: but their hashes."""

    is_unique: bool
    whole: bool
    hashed: bool
    columns: dict[int, str | None]


async def load_columns(connection: aiomysql.Connection, scope: Scope) -> dict[TableName, Columns]:
    """What tells the rows of the tables in a scope apart."""
    rows = await rows_of(connection, _ALL_COLUMNS.within(scope))
    return await _columns(rows, await rows_of(connection, _INDEXED.within(scope)))


async def _columns(rows: Iterable[Row], indexed: Iterable[Row]) -> dict[TableName, Columns]:
    """What tells the rows of tables apart, by all their columns and indexes."""
    indexes: dict[TableName, dict[str, _Index]] = {}
    async for schema, table, index, repeats, whole, hashed, place, column in in_turns(indexed):
        of_table = indexes.setdefault(name_of(schema, table), {})
        new = _Index(not int(repeats), bool(int(whole)), bool(int(hashed)), {})
        known = of_table.get(text_of(index), new)
        known.columns[int(place)] = column and text_of(column).lower()
        of_table[text_of(index)] = known._replace(whole=known.whole and new.whole)
    tables: dict[TableName, list[Row]] = {}
    async for schema, table, *column in in_turns(rows):
        tables.setdefault(name_of(schema, table), []).append(tuple(column))
    return {
        name: _columns_of(columns, indexes.get(name, {}))
        async for name, columns in in_turns(tables.items())
    }


def _columns_of(rows: Iterable[Row], indexes: Mapping[str, _Index]) -> Columns:
    unique = [index for index in indexes.values() if index.is_unique]
    primary = [*indexes["PRIMARY"].columns.values()] if "PRIMARY" in indexes else []
    in_indexes = {name for index in indexes.values() for name in index.columns.values()}
    keys: list[KeyColumn] = []
    known: dict[str, KeyColumn] = {}
    names: set[str] = set()
    computed = False
    for column, type_, unsigned, extra, key, collation, characters, nullable in rows:
        name, said = text_of(column).lower(), text_of(extra).upper()
        names.add(name)
        if is_computed(said):
            computed = True
        elif name in in_indexes or text_of(key):
            own = _integer_column(
                name, type_, unsigned, "AUTO_INCREMENT" in said, primary == [name]
            ) or _string_column(name, type_, collation, characters)
            if own is not None:
                known[name] = own._replace(nullable=bool(int(nullable)))
                keys += [known[name]] if text_of(key) else []
    # A row's partition is told by columns of every key that is unique, but for MariaDB's of hashes.
    keyed = any(not index.hashed for index in unique)
    in_place = keyed and not computed and None not in in_indexes
    unindexed = sorted(filter(str.isascii, names - in_indexes)) if in_place else []
    only_key = _names_of(unique[0]) if len(unique) == 1 else ()
    return Columns(tuple(keys), tuple(unindexed), only_key, _together(unique, known))


def _names_of(index: _Index) -> tuple[str, ...]:
    """Its columns, if it has all of their values; nothing where it computes some."""
    names = tuple(name for name in index.columns.values() if name is not None)
    return names if index.whole and len(names) == len(index.columns) else ()


def _together(indexes: Iterable[_Index], known: Mapping[str, KeyColumn]) -> tuple[Together, ...]:
    """Of unique indexes, of those columns that are known, up to one that the server numbers: what
    it gives new rows none of them tells, and so each would be of all that it tells apart. So would
    be what sets one of several columns for rows named by another, as `status` in an index of
    tenants and states; of unique ones that is rare."""
    found: set[Together] = set()
    for index in indexes:
        parts: list[KeyColumn] = []
        for place in range(1, min(len(index.columns), _MOST_TOGETHER) + 1):
            column = known.get(index.columns.get(place) or "")
            if column is None or column.numbers:
                break
            parts.append(column)
            if len(parts) > 1:
                found.add(Together(tuple(sorted(parts, key=lambda each: each.name))))
    return tuple(sorted(found, key=lambda each: (-len(each.parts), each.name))[:_MOST_INDEXES])


def _integer_column(
    name: str, type_: Any, unsigned: Any, numbers: bool, identifies: bool
) -> IntegerColumn | None:
    bits = _INTEGER_BITS.get(text_of(type_).lower())
    if bits is None:
        return None
    half = 1 << bits - 1
    least, most = (0, 2 * half - 1) if int(unsigned) else (-half, half - 1)
    return IntegerColumn(name, least, most, numbers, identifies=identifies)


def _string_column(name: str, type_: Any, collation: Any, characters: Any) -> StringColumn | None:
    if text_of(type_).lower() not in _STRINGS or collation is None:
        return None
    under = text_of(collation).lower()
    if not COLLATIONS.fullmatch(under):
        return None
    return StringColumn(name, under, int(characters))
