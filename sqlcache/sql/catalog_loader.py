"""Reads the catalog and the global variables from the upstream, over sqlcache's own connection.

That connection belongs to the service account. The smallest grant with which everything here works,
on MySQL and MariaDB alike, is

    GRANT SELECT, SHOW VIEW, TRIGGER ON *.* TO 'sqlcache'@'%';

directly or through a default role. SELECT shows the tables (and, in `mysql.func`, the loadable
functions), SHOW VIEW the bodies of views, TRIGGER the triggers; MariaDB shows foreign keys only to
accounts that hold more than SELECT. With less the load still succeeds, and the catalog says
`triggers_visible=False`: then every write is taken to write everything, and no view is cacheable.

Source: MySQL Reference Manual, "INFORMATION_SCHEMA Tables"; MariaDB Knowledge Base, "Information
Schema Tables".
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import cache
from hashlib import blake2b
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from pymysql.converters import escape_string

from sqlcache.driver import aiomysql
from sqlcache.errors import UpstreamError
from sqlcache.service.opening import Row, rows_of
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import SYSTEM_SCHEMAS, Flavour, Server
from sqlcache.sql.catalog.stored import Stored
from sqlcache.sql.facts import (
    COLLATIONS,
    LEADING_TO_NONE_BUT_THESE,
    BaseTable,
    Cascade,
    Columns,
    Facts,
    IntegerColumn,
    KeyColumn,
    Relation,
    Scope,
    Sequence,
    StoredRoutine,
    StringColumn,
    TemporalColumns,
    Together,
    Trigger,
    View,
    VirtualColumn,
)
from sqlcache.sql.names import TableName
from sqlcache.sql.routines import Routine, is_unruly, leaves_something
from sqlcache.sql.shaping import GLOBAL_SETTINGS, GLOBALS_THAT_SHAPE_ANSWERS

T = TypeVar("T")

_FEW_TABLES = 16
"""More are read with all the others of their schemas."""

_AT_ONCE = 500  # rows, or what is made of them, in a turn of the event loop
_JUDGED_AT_ONCE_BYTES = 4_096  # a few milliseconds
_JUDGED_ON_THE_LOOP_BYTES = 4_096
"""Of a body: a longer one is read in a thread."""
_MOST_JUDGED = 100_000  # of which it is remembered, in 200 bytes each

_TEMPORAL = frozenset(("time", "date", "datetime", "timestamp", "year"))

_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)

_USER_SCHEMA = "NOT IN ({})".format(", ".join(f"'{schema}'" for schema in sorted(SYSTEM_SCHEMAS)))

_SERVER = """SHOW GLOBAL VARIABLES WHERE Variable_name IN
('version', 'lower_case_table_names', 'server_uuid', 'server_uid', 'hostname', 'port',
'session_track_gtids', 'session_track_system_variables')"""

_ENGINES = (
    "SELECT LOWER(ENGINE), TRANSACTIONS = 'YES' FROM information_schema.ENGINES"
    " WHERE SUPPORT IN ('YES', 'DEFAULT')"
)

_LOWERED = "SELECT LOWER(CONVERT(x'{}' USING utf8mb3) COLLATE {}_general_ci)"
_CALLED_UTF8MB3: Final[Mapping[Flavour, tuple[int, ...]]] = {
    "mariadb": (10, 6),
    "mysql": (8, 0, 30),
}
"""The first versions whose collations of that character set are called by its name."""

_FOR_WHO_HAS_PROCESS = "SELECT page_size FROM information_schema.INNODB_CMP"

_CONNECTIONS = "SELECT ID, CONNECTION_ID() FROM information_schema.PROCESSLIST"

_UPTIME = "SHOW GLOBAL STATUS LIKE 'Uptime'"

_ZONES = "SELECT CONVERT_TZ('2000-01-01 12:00:00', 'UTC', 'Europe/Paris') IS NOT NULL"

_SCHEMAS = "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA"

_ROUTINES = f"""SELECT ROUTINE_NAME, ROUTINE_TYPE,
CAST(IF(ROUTINE_BODY = 'SQL', ROUTINE_DEFINITION, NULL) AS BINARY), CAST(SQL_MODE AS CHAR),
ROUTINE_SCHEMA FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA {_USER_SCHEMA}"""


class _Selection(NamedTuple):
    """A query of what hangs on tables, to be followed by a condition on their schemas and names."""

    query: str
    schema: str = "TABLE_SCHEMA"
    table: str = "TABLE_NAME"

    def within(self, scope: Scope) -> str:
        """The query for what is in the scope.

        One of its own for each schema and table: MariaDB opens all tables there are unless a
        condition says that a column of names is one constant.
        """
        if scope.everywhere:
            return f"{self.query} {self.schema} {_USER_SCHEMA}"
        schemas = [f"{self.schema} = {_quoted(name)}" for name in sorted(scope.schemas)]
        tables = [
            f"{self.schema} = {_quoted(name.schema)} AND {self.table} = {_quoted(name.name)}"
            for name in sorted(scope.tables)
        ]
        return " UNION ALL ".join(f"{self.query} {each}" for each in schemas + tables)


# MyRocks lets rows go by themselves, where a table's comment says so.
_TABLES = _Selection(
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, IF(ENGINE = 'ROCKSDB'"
    " AND TABLE_COMMENT LIKE '%ttl_duration=%', 'ROCKSDB with a TTL', ENGINE)"
    " FROM information_schema.TABLES WHERE"
)

# As bytes, here and below: a body may hold literals that are no valid text.
_VIEWS = _Selection(
    "SELECT TABLE_SCHEMA, TABLE_NAME, CAST(VIEW_DEFINITION AS BINARY)"
    " FROM information_schema.VIEWS WHERE"
)

# People may have made some there; MariaDB has one of its own.
_VIEWS_AMONG_RIGHTS = f"{_VIEWS.query} TABLE_SCHEMA = 'mysql' AND TABLE_NAME <> 'user'"

_TRIGGERS = _Selection(
    "SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, CAST(ACTION_STATEMENT AS BINARY),"
    " CAST(SQL_MODE AS CHAR), TRIGGER_NAME FROM information_schema.TRIGGERS WHERE",
    "EVENT_OBJECT_SCHEMA",
    "EVENT_OBJECT_TABLE",
)

_CASCADES = _Selection(
    "SELECT UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME, CONSTRAINT_SCHEMA, TABLE_NAME,"
    " CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE FROM information_schema.REFERENTIAL_CONSTRAINTS"
    " WHERE NOT (DELETE_RULE IN ('NO ACTION', 'RESTRICT')"
    " AND UPDATE_RULE IN ('NO ACTION', 'RESTRICT')) AND",
    "CONSTRAINT_SCHEMA",
)
_KEYS = _Selection(
    "SELECT TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, REFERENCED_COLUMN_NAME, COLUMN_NAME"
    " FROM information_schema.KEY_COLUMN_USAGE WHERE REFERENCED_COLUMN_NAME IS NOT NULL AND"
)
"""The columns of foreign keys."""

_COLUMNS = _Selection(
    "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, EXTRA LIKE '%VIRTUAL%',"
    " CAST(GENERATION_EXPRESSION AS BINARY), EXTRA FROM information_schema.COLUMNS"
    " WHERE (DATA_TYPE IN ('time', 'date', 'datetime', 'timestamp', 'year')"
    " OR EXTRA LIKE '%VIRTUAL%' OR EXTRA LIKE '%GENERATED%') AND"
)
"""Those that are temporal, or computed, or both."""

_ALL_COLUMNS = _Selection(
    "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE LIKE '%unsigned%', EXTRA,"
    " COLUMN_KEY, COLLATION_NAME, CHARACTER_MAXIMUM_LENGTH, IS_NULLABLE = 'YES'"
    " FROM information_schema.COLUMNS WHERE"
)
_INDEXED = _Selection(
    "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, NON_UNIQUE, SUB_PART IS NULL,"
    " INDEX_TYPE = 'HASH', SEQ_IN_INDEX, COLUMN_NAME FROM information_schema.STATISTICS WHERE"
)
"""The columns of each index, and whether it has all of their values; NULL for what it computes."""

_MOST_TOGETHER = 4  # columns of an index
_MOST_INDEXES = 32  # of a table, whose columns tell rows apart together

_STRINGS = ("char", "varchar")
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}

# Those that plugins and components of the server bring along are as good as built in.
_LOADABLE_FUNCTIONS = "SELECT name FROM mysql.func"

_RIGHTS = {
    "mysql": (
        "CHECKSUM TABLE mysql.user, mysql.db, mysql.global_grants, mysql.proxies_priv",
        "SELECT HOST, USER, DEFAULT_ROLE_HOST, DEFAULT_ROLE_USER FROM mysql.default_roles",
        "SELECT FROM_HOST, FROM_USER, TO_HOST, TO_USER FROM mysql.role_edges",
    ),
    "mariadb": (
        "CHECKSUM TABLE mysql.global_priv, mysql.db, mysql.roles_mapping, mysql.proxies_priv",
    ),
}

_GRANTS = ("CHECKSUM TABLE mysql.tables_priv, mysql.columns_priv, mysql.procs_priv",)

_PLACE = "SELECT SUBSTRING_INDEX(USER(), '@', -1)"

_SEVERAL_ACCOUNTS = (
    "SELECT User FROM mysql.user WHERE Host <> '' GROUP BY User HAVING COUNT(*) > 1 OR User = ''"
)

_EVERYWHERE = Scope(everywhere=True)


def _quoted(name: str) -> str:
    return f"'{escape_string(name)}'"


async def load_catalog(
    connection: aiomysql.Connection, declared: Iterable[Routine] = (), *, columns: bool = True
) -> Catalog:
    """Reads the whole catalog, in a dozen queries, on a connection of `connect_service`.

    `declared` are the routines that are not to be feared; see `routines`. `columns`: what tells
    rows apart is read, too, which are many more rows than all else.

    It is not one snapshot: the caller loads again after a change of the schema that came meanwhile.
    The queries have no time limit of their own.

    Raises: UpstreamError.
    """
    told = {_text(name): _text(value) for name, value in await rows_of(connection, _SERVER)}
    version = _version(told["version"])
    flavour: Flavour = "mariadb" if "mariadb" in told["version"].lower() else "mysql"
    lacks = _lacking(_text(line) for (line,) in await rows_of(connection, "SHOW GRANTS"))
    visible = not lacks
    functions, routines, unruly = await _routines(connection, visible)
    readable = visible and version >= (8,)
    facts = await _facts(connection, flavour, _EVERYWHERE, columns=columns)
    engines = {
        _text(engine): bool(rolls_back)
        for engine, rolls_back in await rows_of(connection, _ENGINES)
    }
    ((place,),) = await rows_of(connection, _PLACE)
    several = await rows_of(connection, _SEVERAL_ACCOUNTS) if readable else []
    folds = int(told["lower_case_table_names"])
    server = Server(
        flavour=flavour,
        version=version,
        lower_case_table_names=folds,
        lowered=await _lowered(connection, flavour, version) if folds else None,
        identity=_identity(told),
        transactional_engines=frozenset(each for each in engines if engines[each]),
        has_leading_engines=not engines.keys() <= LEADING_TO_NONE_BUT_THESE,
        triggers_visible=visible,
        lacks=", ".join(lacks),
        rights=await _shown(connection, _RIGHTS[flavour]) if readable else frozenset(),
        grants=await _shown(connection, _GRANTS) if readable else frozenset(),
        place=_text(place),
        several_accounts=frozenset(_text(name) for (name,) in several),
        declared=frozenset(declared),
        zones=await rows_of(connection, _ZONES) == [(1,)],
        began=await _began(connection),
        tells_commits=_tells_commits(told),
        tells_columns=columns,
    )
    return Catalog.of(server, facts, Stored.of(server, functions, routines, unruly=unruly))


async def _lowered(
    connection: aiomysql.Connection, flavour: Flavour, version: tuple[int, ...]
) -> dict[int, str]:
    """See `Server.lowered`. The server folds names as LOWER() does in their collation."""
    prefix = "utf8mb3" if version >= _CALLED_UTF8MB3[flavour] else "utf8"
    cased = _cased()
    ((lower,),) = await rows_of(connection, _LOWERED.format(cased.encode().hex(), prefix))
    told = _text(lower)
    return {ord(each): low for each, low in zip(cased, told, strict=True) if each != low}


@cache
def _cased() -> str:
    """All characters of names, but ASCII's, that may be others in lower case."""
    letters = map(chr, (*range(0x80, 0xD800), *range(0xE000, 0x10000)))
    return "".join(each for each in letters if not each == each.lower() == each.upper())


def _tells_commits(server: Mapping[str, str]) -> bool:
    """By what sessions begin with: MySQL's setting, or MariaDB's."""
    if (gtids := server.get("session_track_gtids")) is not None:
        return gtids.upper() != "OFF"
    tracked = server.get("session_track_system_variables", "").lower().split(",")
    return not {"last_gtid", "*"}.isdisjoint(map(str.strip, tracked))


async def _began(connection: aiomysql.Connection) -> tuple[float, float]:
    """Between which times, by a clock of this host that nobody sets, the server began its work."""
    asked_at = monotonic()
    ((_, uptime_s),) = await rows_of(connection, _UPTIME)
    return asked_at - int(uptime_s) - 1, monotonic() - int(uptime_s)


async def renew_catalog(connection: aiomysql.Connection, catalog: Catalog, scope: Scope) -> Catalog:
    """The same catalog with what is in the scope, and what leans on it, read anew.

    What the server as a whole has is as it was: its settings, rights and engines.

    Raises: UpstreamError.
    """
    tables = catalog.definitions.leaning_on(scope.tables, scope.schemas)
    crowded = {name.schema for name in tables} if len(tables) > _FEW_TABLES else set()
    schemas = scope.schemas | crowded
    tables = {name for name in tables if name.schema not in schemas}
    if schemas or tables:
        wanted = Scope(frozenset(schemas), frozenset(tables))
        columns = catalog.server.tells_columns
        facts = await _facts(connection, catalog.server.flavour, wanted, columns=columns)
        catalog = catalog.renewed(tables, schemas, facts)
    if scope.routines or schemas:
        server = catalog.server
        functions, routines, unruly = await _routines(connection, server.triggers_visible)
        catalog = catalog.with_stored(Stored.of(server, functions, routines, unruly=unruly))
    return catalog


async def load_schemas(connection: aiomysql.Connection) -> frozenset[str]:
    """The names of all schemas. Raises: UpstreamError."""
    return frozenset(_text(name) for (name,) in await rows_of(connection, _SCHEMAS))


async def has_ended(own: aiomysql.Connection, connection: int) -> bool:
    """Whether the server has no connection of this number any more, as one of one's `own` sees.

    A connection that was killed, or lost, is listed for as long as its statement runs. Known only
    to who sees all of them, and by their own numbers: not through what gives connections others.
    """
    try:
        sees_all = await rows_of(own, _FOR_WHO_HAS_PROCESS)
        listed = await rows_of(own, f"{_CONNECTIONS} WHERE ID IN ({own.thread_id()}, {connection})")
    except UpstreamError:
        return False
    return bool(sees_all) and [(own.thread_id(), own.thread_id())] == listed


async def load_globals(connection: aiomysql.Connection) -> tuple[tuple[str, str], ...]:
    """The values of GLOBALS_THAT_SHAPE_ANSWERS the server has, by name.

    Raises: UpstreamError.
    """
    rows = await rows_of(connection, GLOBAL_SETTINGS)
    return tuple(sorted((_text(name), _text(value)) for name, value in rows))


async def _facts(
    connection: aiomysql.Connection, flavour: Flavour, scope: Scope, *, columns: bool
) -> Facts:
    """What is known of the tables in a scope; `columns`: what tells rows apart, too."""
    special = await rows_of(connection, _COLUMNS.within(scope))
    virtual = _virtual_columns(special, flavour)
    relations = await _relations(connection, virtual, _set_along(special), scope)
    triggers = await rows_of(connection, _TRIGGERS.within(scope))
    judged = await _judged_all((body, sql_mode) for _, _, body, sql_mode, _ in triggers)
    return Facts(
        relations,
        [
            Trigger(
                *(_name(schema, table), body, _text(sql_mode)),
                unruly=each.unruly,
                name=_text(name),
                leaves=each.leaves,
            )
            for (schema, table, body, sql_mode, name), each in zip(triggers, judged, strict=True)
        ],
        await _cascades(connection, scope),
        _temporal_columns(special),
        await _columns(
            await rows_of(connection, _ALL_COLUMNS.within(scope)),
            await rows_of(connection, _INDEXED.within(scope)),
        )
        if columns
        else {},
    )


async def _cascades(connection: aiomysql.Connection, scope: Scope) -> list[Cascade]:
    """The foreign keys of tables in a scope that change rows."""
    found = await rows_of(connection, _CASCADES.within(scope))
    if not found:
        return []
    children = frozenset(_name(*row[2:4]) for row in found)
    few = len(children) <= _FEW_TABLES
    of_children = Scope(tables=children) if few else scope
    columns: dict[tuple[TableName, str], list[Row]] = {}
    for schema, table, key, *names in await rows_of(connection, _KEYS.within(of_children)):
        columns.setdefault((_name(schema, table), _text(key)), []).append(tuple(names))
    cascades = []
    for *tables, key, on_delete, on_update in found:
        parent, child = _name(*tables[:2]), _name(*tables[2:])
        referred, own = zip(*columns.get((child, _text(key)), [("", "")]), strict=True)
        cascades.append(
            Cascade(
                *(parent, child, _text(on_delete), _text(on_update)),
                *(_columns_named(referred), _columns_named(own)),
            )
        )
    return cascades


def _columns_named(names: Iterable[Any]) -> frozenset[str] | None:
    """These in lower case; None where they are not known, or servers may fold them otherwise."""
    named = frozenset(_text(name).lower() for name in names)
    return named if all(map(str.isascii, named)) and "" not in named else None


class _Index(NamedTuple):
    """Of a table. The columns, by their places in it, are None where they are computed. `whole`: it
    has all of the values; `hashed`: but their hashes."""

    is_unique: bool
    whole: bool
    hashed: bool
    columns: dict[int, str | None]


async def _columns(rows: Iterable[Row], indexed: Iterable[Row]) -> dict[TableName, Columns]:
    """What tells the rows of tables apart, by all their columns and indexes."""
    indexes: dict[TableName, dict[str, _Index]] = {}
    async for schema, table, index, repeats, whole, hashed, place, column in _in_turns(indexed):
        of_table = indexes.setdefault(_name(schema, table), {})
        new = _Index(not int(repeats), bool(int(whole)), bool(int(hashed)), {})
        known = of_table.get(_text(index), new)
        known.columns[int(place)] = column and _text(column).lower()
        of_table[_text(index)] = known._replace(whole=known.whole and new.whole)
    tables: dict[TableName, list[Row]] = {}
    async for schema, table, *column in _in_turns(rows):
        tables.setdefault(_name(schema, table), []).append(tuple(column))
    return {
        name: _columns_of(columns, indexes.get(name, {}))
        async for name, columns in _in_turns(tables.items())
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
        name, said = _text(column).lower(), _text(extra).upper()
        names.add(name)
        if _is_computed(said):
            computed = True
        elif name in in_indexes or _text(key):
            own = _integer_column(
                *(name, type_, unsigned, "AUTO_INCREMENT" in said, primary == [name])
            ) or _string_column(name, type_, collation, characters)
            if own is not None:
                known[name] = own._replace(nullable=bool(int(nullable)))
                keys += [known[name]] if _text(key) else []
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
    bits = _INTEGER_BITS.get(_text(type_).lower())
    if bits is None:
        return None
    half = 1 << bits - 1
    least, most = (0, 2 * half - 1) if int(unsigned) else (-half, half - 1)
    return IntegerColumn(name, least, most, numbers, identifies=identifies)


def _string_column(name: str, type_: Any, collation: Any, characters: Any) -> StringColumn | None:
    if _text(type_).lower() not in _STRINGS or collation is None:
        return None
    under = _text(collation).lower()
    if not COLLATIONS.fullmatch(under):
        return None
    return StringColumn(name, under, int(characters))


def _virtual_columns(
    columns: Iterable[Row], flavour: Flavour
) -> dict[TableName, list[VirtualColumn]]:
    found: dict[TableName, list[VirtualColumn]] = {}
    for schema, table, column, _, is_virtual, expression, _ in columns:
        if not is_virtual:
            continue
        if flavour == "mysql":  # which shows it as if it were inside a string
            expression = _ESCAPED.sub(rb"\1", expression)
        found.setdefault(_name(schema, table), []).append(VirtualColumn(_text(column), expression))
    return found


def _set_along(columns: Iterable[Row]) -> dict[TableName, set[str]]:
    """The names of those that the server sets with any change of a row."""
    found: dict[TableName, set[str]] = {}
    for schema, table, column, *_, extra in columns:
        said = _text(extra).upper()
        if "ON UPDATE" in said or _is_computed(said):
            found.setdefault(_name(schema, table), set()).add(_text(column).lower())
    return found


def _is_computed(extra: str) -> bool:
    return "GENERATED" in extra.replace("DEFAULT_GENERATED", "")


async def _relations(
    connection: aiomysql.Connection,
    virtual_columns: Mapping[TableName, Iterable[VirtualColumn]],
    set_along: Mapping[TableName, Iterable[str]],
    scope: Scope,
) -> list[Relation]:
    bodies = {
        _name(schema, name): body or None
        for schema, name, body in await rows_of(connection, _VIEWS.within(scope))
    }
    relations: list[Relation] = []
    if scope.everywhere:
        among_rights = await rows_of(connection, _VIEWS_AMONG_RIGHTS)
        relations += [View(_name(*row[:2]), row[2] or None) for row in among_rights]
    for schema, table, kind, engine in await rows_of(connection, _TABLES.within(scope)):
        name = _name(schema, table)
        match _text(kind):
            case "VIEW":
                relations.append(View(name, bodies.get(name)))
            case "SEQUENCE":
                relations.append(Sequence(name))
            case "BASE TABLE" | "SYSTEM VERSIONED":
                columns = tuple(virtual_columns.get(name, ()))
                relations.append(
                    BaseTable(
                        *(name, _text(engine) if engine else None, columns),
                        versioned=_text(kind) != "BASE TABLE",
                        set_along=frozenset(set_along.get(name, ())),
                    )
                )
    return relations


def _temporal_columns(columns: Iterable[Row]) -> dict[TableName, TemporalColumns]:
    found: dict[TableName, tuple[set[str], set[str]]] = {}
    for schema, table, column, data_type, *_ in columns:
        if (kind := _text(data_type).lower()) in _TEMPORAL:
            times, dates = found.setdefault(_name(schema, table), (set(), set()))
            (times if kind == "time" else dates).add(_text(column))
    return {name: TemporalColumns(*map(frozenset, each)) for name, each in found.items()}


async def _routines(
    connection: aiomysql.Connection, visible: bool
) -> tuple[list[str], list[StoredRoutine], bool]:
    """The names of stored and, where the account may read them, loadable functions; the stored
    routines, but for those that a loadable one hides; none of packages; and whether any is unruly.
    """
    routines = await rows_of(connection, _ROUTINES)
    judged = await _judged_all((body, sql_mode) for _, _, body, sql_mode, _ in routines)
    unruly = not visible or any(each.unruly for each in judged)
    rows = await rows_of(connection, _LOADABLE_FUNCTIONS) if visible else []
    loadable = [_text(name) for (name,) in rows]
    hidden = {(True, name.lower()) for name in loadable}
    stored: list[StoredRoutine] = []
    names = [_text(name) for name, kind, *_ in routines if _text(kind) != "PROCEDURE"]
    for (name, kind, body, sql_mode, schema), each in zip(routines, judged, strict=True):
        is_function = _text(kind) == "FUNCTION"
        ours = is_function or _text(kind) == "PROCEDURE"
        if ours and (is_function, _text(name).lower()) not in hidden:
            known_as, mode = _name(schema, name), _text(sql_mode)
            code = StoredRoutine(known_as, is_function, body, mode, each.unruly, each.leaves)
            stored.append(code)
    return names + loadable, stored, unruly


async def _shown(
    connection: aiomysql.Connection, queries: Iterable[str]
) -> frozenset[tuple[str, ...]]:
    rows = [row for query in queries for row in await rows_of(connection, query)]
    return frozenset(tuple(map(_as_text, row)) for row in rows)


def _as_text(value: object) -> str:
    return _text(value) if isinstance(value, str | bytes) else str(value)


class _Judgement(NamedTuple):
    """Of a body: see `routines.is_unruly`, `routines.leaves_something`."""

    unruly: bool
    leaves: bool


_UNSEEN = _Judgement(True, True)
_judged: dict[bytes, _Judgement] = {}


async def _judged_all(bodies: Iterable[tuple[bytes | None, str | bytes]]) -> list[_Judgement]:
    """Whether these bodies, read under these modes, may change more than rows. That of one that was
    read before is remembered: there may be thousands, and they are read again and again."""
    found = []
    judged_bytes = 0
    async for body, sql_mode in _in_turns(bodies):
        mode = _text(sql_mode)
        mark = blake2b(b"%b\0%b" % (mode.encode(), body or b""), digest_size=16).digest()
        judgement = _UNSEEN if body is None else _judged.get(mark)
        if judgement is None and body is not None:
            if judged_bytes > _JUDGED_AT_ONCE_BYTES:
                judged_bytes = 0
                await asyncio.sleep(0)
            judged_bytes += len(body)
            judgement = await _judge(body, mode)
            if len(_judged) >= _MOST_JUDGED:
                _judged.clear()
            _judged[mark] = judgement
        found.append(judgement or _UNSEEN)
    return found


async def _judge(body: bytes, sql_mode: str) -> _Judgement:
    if len(body) <= _JUDGED_ON_THE_LOOP_BYTES:
        return _judged_here(body, sql_mode)
    return await asyncio.to_thread(_judged_here, body, sql_mode)


def _judged_here(body: bytes, sql_mode: str) -> _Judgement:
    unruly = is_unruly(body, sql_mode, GLOBALS_THAT_SHAPE_ANSWERS.keys())
    return _Judgement(unruly, unruly or leaves_something(body, sql_mode))


async def _in_turns(each: Iterable[T]) -> AsyncIterator[T]:
    """These, one after the other, while others have their turns of the event loop."""
    for place, one in enumerate(each, 1):
        yield one
        if place % _AT_ONCE == 0:
            await asyncio.sleep(0)


NEEDED_RIGHTS: Final = ("SELECT", "SHOW VIEW", "TRIGGER")
"""Those that the service account wants on `*.*`."""


def _lacking(grants: Iterable[str]) -> list[str]:
    """The global rights that the catalog needs and SHOW GRANTS does not tell of.

    Where a line takes something away (MySQL's partial revokes), that is all of them.
    """
    held: set[str] = set()
    for line in grants:
        if line.startswith("REVOKE"):
            return list(NEEDED_RIGHTS)
        if found := re.match(r"GRANT (.+) ON \*\.\* TO ", line):
            held.update(found[1].upper().split(", "))
    if "ALL PRIVILEGES" in held:
        return []
    return [right for right in NEEDED_RIGHTS if right not in held]


def _identity(server: Mapping[str, str]) -> str:
    """What no other server has: MySQL's server_uuid, MariaDB's server_uid; old ones of MariaDB have
    none."""
    known = server.get("server_uuid") or server.get("server_uid")
    return known or f"{server.get('hostname')}:{server.get('port')}"


def _version(text: str) -> tuple[int, ...]:
    """`10.11.19-MariaDB-log` is (10, 11, 19)."""
    leading = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in leading[0].split(".")) if leading else ()


def _name(schema: str | bytes, table: str | bytes) -> TableName:
    return TableName(_text(schema), _text(table))


def _text(value: str | bytes) -> str:
    """Servers give some columns of information_schema as text and some as bytes, each its own."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
