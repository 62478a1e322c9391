"""The tables and views in a scope, and the foreign keys that change their rows."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sqlcache.driver import aiomysql
from sqlcache.service.opening import Row, rows_of
from sqlcache.sql.catalog.server import OPEN_SCHEMAS, Flavour
from sqlcache.sql.catalog_loader.code import judged_all
from sqlcache.sql.catalog_loader.rows import in_turns, is_computed, name_of, text_of
from sqlcache.sql.catalog_loader.selection import FEW_TABLES, OF_PEOPLE, Selection
from sqlcache.sql.catalog_loader.written import Code
from sqlcache.sql.facts import (
    BaseTable,
    Cascade,
    Relation,
    Scope,
    Sequence,
    TemporalColumns,
    View,
    VirtualColumn,
)
from sqlcache.sql.names import TableName

_TEMPORAL = frozenset(("time", "date", "datetime", "timestamp", "year"))

_OPEN_SCHEMAS = sorted(OPEN_SCHEMAS)

_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)

# MyRocks lets rows go by themselves, where a table's comment says so.
_TABLES = Selection(
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, IF(ENGINE = 'ROCKSDB'"
    " AND TABLE_COMMENT LIKE '%ttl_duration=%', 'ROCKSDB with a TTL', ENGINE)"
    " FROM information_schema.TABLES WHERE"
)

# As bytes, here and below: a body may hold literals that are no valid text.
_VIEWS = Selection(
    "SELECT TABLE_SCHEMA, TABLE_NAME, CAST(VIEW_DEFINITION AS BINARY)"
    " FROM information_schema.VIEWS WHERE"
)

# Among the rights, where MariaDB has one of its own, and in other schemas of the server.
_VIEWS_OF_PEOPLE = " UNION ALL ".join(
    [
        f"{_VIEWS.query} TABLE_SCHEMA = 'mysql' AND TABLE_NAME <> 'user'",
        *(f"{_VIEWS.query} TABLE_SCHEMA = '{each}' AND {OF_PEOPLE}" for each in _OPEN_SCHEMAS),
    ]
)

_CASCADES = Selection(
    "SELECT UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME, CONSTRAINT_SCHEMA, TABLE_NAME,"
    " CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE FROM information_schema.REFERENTIAL_CONSTRAINTS"
    " WHERE NOT (DELETE_RULE IN ('NO ACTION', 'RESTRICT')"
    " AND UPDATE_RULE IN ('NO ACTION', 'RESTRICT')) AND",
    "CONSTRAINT_SCHEMA",
)
_KEYS = Selection(
    "SELECT TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, REFERENCED_COLUMN_NAME, COLUMN_NAME"
    " FROM information_schema.KEY_COLUMN_USAGE WHERE REFERENCED_COLUMN_NAME IS NOT NULL AND"
)
"""The columns of foreign keys."""

_COLUMNS = Selection(
    "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, EXTRA LIKE '%VIRTUAL%',"
    " CAST(GENERATION_EXPRESSION AS BINARY), EXTRA FROM information_schema.COLUMNS"
    " WHERE (DATA_TYPE IN ('time', 'date', 'datetime', 'timestamp', 'year')"
    " OR EXTRA LIKE '%VIRTUAL%' OR EXTRA LIKE '%GENERATED%') AND"
)
"""Those that are temporal, or computed, or both."""


async def load_relations(
    connection: aiomysql.Connection, flavour: Flavour, scope: Scope
) -> tuple[list[Relation], dict[TableName, TemporalColumns]]:
    """All in a scope, and which of their columns are temporal."""
    special = await rows_of(connection, _COLUMNS.within(scope))
    virtual, set_along = await _virtual_columns(special, flavour), await _set_along(special)
    relations = await _relations(connection, virtual, set_along, scope)
    return relations, await _temporal_columns(special)


async def _relations(
    connection: aiomysql.Connection,
    virtual_columns: Mapping[TableName, Iterable[VirtualColumn]],
    set_along: Mapping[TableName, Iterable[str]],
    scope: Scope,
) -> list[Relation]:
    views = await _views(await rows_of(connection, _VIEWS.within(scope)))
    relations: list[Relation] = []
    if scope.everywhere:
        relations += (await _views(await rows_of(connection, _VIEWS_OF_PEOPLE))).values()
    rows = await rows_of(connection, _TABLES.within(scope))
    async for schema, table, kind, engine in in_turns(rows):
        name = name_of(schema, table)
        match text_of(kind):
            case "VIEW":
                relations.append(views.get(name) or View(name, None))
            case "SEQUENCE":
                relations.append(Sequence(name))
            case "BASE TABLE" | "SYSTEM VERSIONED":
                columns = tuple(virtual_columns.get(name, ()))
                relations.append(
                    BaseTable(
                        name,
                        text_of(engine) if engine else None,
                        columns,
                        versioned=text_of(kind) != "BASE TABLE",
                        set_along=frozenset(set_along.get(name, ())),
                    )
                )
    return relations


async def _views(rows: Iterable[Row]) -> dict[TableName, View]:
    code = [
        Code("VIEW", name_of(schema, name), body or None, "", "", True)
        async for schema, name, body in in_turns(rows)
    ]
    judged = await judged_all(code)
    return {
        each.name: View(each.name, each.body, judgement.words)
        for each, judgement in zip(code, judged, strict=True)
    }


async def _virtual_columns(
    columns: Iterable[Row], flavour: Flavour
) -> dict[TableName, list[VirtualColumn]]:
    found: dict[TableName, list[VirtualColumn]] = {}
    async for schema, table, column, _, is_virtual, expression, _ in in_turns(columns):
        if not is_virtual:
            continue
        if flavour == "mysql":  # which shows it as if it were inside a string
            expression = _ESCAPED.sub(rb"\1", expression)
        found.setdefault(name_of(schema, table), []).append(
            VirtualColumn(text_of(column), expression)
        )
    return found


async def _set_along(columns: Iterable[Row]) -> dict[TableName, set[str]]:
    """The names of those that the server sets with any change of a row."""
    found: dict[TableName, set[str]] = {}
    async for schema, table, column, *_, extra in in_turns(columns):
        said = text_of(extra).upper()
        if "ON UPDATE" in said or is_computed(said):
            found.setdefault(name_of(schema, table), set()).add(text_of(column).lower())
    return found


async def _temporal_columns(columns: Iterable[Row]) -> dict[TableName, TemporalColumns]:
    found: dict[TableName, tuple[set[str], set[str]]] = {}
    async for schema, table, column, data_type, *_ in in_turns(columns):
        if (kind := text_of(data_type).lower()) in _TEMPORAL:
            times, dates = found.setdefault(name_of(schema, table), (set(), set()))
            (times if kind == "time" else dates).add(text_of(column))
    return {
        name: TemporalColumns(*map(frozenset, each)) async for name, each in in_turns(found.items())
    }


async def load_cascades(connection: aiomysql.Connection, scope: Scope) -> list[Cascade]:
    """The foreign keys of tables in a scope that change rows."""
    query = _CASCADES.within(scope)
    if scope.everywhere:
        query += f" UNION ALL {_CASCADES.within(Scope(OPEN_SCHEMAS))}"
    found = await rows_of(connection, query)
    if not found:
        return []
    children = frozenset(name_of(*row[2:4]) for row in found)
    few = len(children) <= FEW_TABLES
    of_children = Scope(tables=children) if few else scope
    columns: dict[tuple[TableName, str], list[Row]] = {}
    rows = await rows_of(connection, _KEYS.within(of_children))
    async for schema, table, key, *names in in_turns(rows):
        columns.setdefault((name_of(schema, table), text_of(key)), []).append(tuple(names))
    cascades = []
    async for *tables, key, on_delete, on_update in in_turns(found):
        parent, child = name_of(*tables[:2]), name_of(*tables[2:])
        referred, own = zip(*columns.get((child, text_of(key)), [("", "")]), strict=True)
        cascades.append(
            Cascade(
                parent,
                child,
                text_of(on_delete),
                text_of(on_update),
                _columns_named(referred),
                _columns_named(own),
            )
        )
    return cascades


def _columns_named(names: Iterable[Any]) -> frozenset[str] | None:
    """These in lower case; None where they are not known, or servers may fold them otherwise."""
    named = frozenset(text_of(name).lower() for name in names)
    return named if all(map(str.isascii, named)) and "" not in named else None
