"""The verbs: the catalog as a whole, or what has changed of it, and what is asked beside it."""

import asyncio
from collections.abc import Iterable

from sqlcache.driver import aiomysql
from sqlcache.errors import UpstreamError
from sqlcache.service.opening import rows_of
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import Flavour, Incarnation
from sqlcache.sql.catalog.stored import Stored
from sqlcache.sql.catalog_loader.code import load_routines, load_triggers
from sqlcache.sql.catalog_loader.columns import load_columns
from sqlcache.sql.catalog_loader.rows import text_of
from sqlcache.sql.catalog_loader.selection import FEW_TABLES
from sqlcache.sql.catalog_loader.server import greet, incarnation, load_server
from sqlcache.sql.catalog_loader.tables import load_cascades, load_relations
from sqlcache.sql.facts import EVERYWHERE, Facts, Scope
from sqlcache.sql.routines import Routine
from sqlcache.sql.shaping import GLOBAL_SETTINGS

_FOR_WHO_HAS_PROCESS = "SELECT page_size FROM information_schema.INNODB_CMP"

_CONNECTIONS = "SELECT ID, CONNECTION_ID() FROM information_schema.PROCESSLIST"

_SCHEMAS = "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA"


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
    greeting = await greet(connection)
    flavour, visible = greeting.flavour, not greeting.lacks
    functions, routines, unruly = await load_routines(connection, flavour, visible)
    facts = await _facts(connection, flavour, EVERYWHERE, columns=columns)
    server = await load_server(connection, greeting, declared, columns=columns)
    stored = Stored.of(server, functions, routines, unruly=unruly)
    return await asyncio.to_thread(Catalog.of, server, facts, stored)


async def renew_catalog(connection: aiomysql.Connection, catalog: Catalog, scope: Scope) -> Catalog:
    """The same catalog with what is in the scope, and what leans on it, read anew.

    What the server as a whole has is as it was: its settings, rights and engines.

    Raises: UpstreamError.
    """
    leaning_on = catalog.definitions.leaning_on  # which goes through the bodies of all views
    tables = await asyncio.to_thread(leaning_on, scope.tables, scope.schemas)
    crowded = {name.schema for name in tables} if len(tables) > FEW_TABLES else set()
    schemas = scope.schemas | crowded
    tables = {name for name in tables if name.schema not in schemas}
    if schemas or tables:
        wanted = Scope(frozenset(schemas), frozenset(tables))
        columns = catalog.server.tells_columns
        facts = await _facts(connection, catalog.server.flavour, wanted, columns=columns)
        if schemas:  # all that is in them may be as much as all there is
            catalog = await asyncio.to_thread(catalog.renewed, tables, schemas, facts)
        else:
            catalog = catalog.renewed(tables, schemas, facts)
    if scope.routines or schemas:
        server = catalog.server
        flavour, visible = server.flavour, server.triggers_visible
        functions, routines, unruly = await load_routines(connection, flavour, visible)
        catalog = catalog.with_stored(Stored.of(server, functions, routines, unruly=unruly))
    return catalog


async def load_schemas(connection: aiomysql.Connection) -> frozenset[str]:
    """The names of all schemas. Raises: UpstreamError."""
    return frozenset(text_of(name) for (name,) in await rows_of(connection, _SCHEMAS))


async def has_ended(own: aiomysql.Connection, connection: int, server: Incarnation) -> bool:
    """Whether the server has no connection of this number any more, as one of one's `own` sees,
    which may be to another.

    A connection that was killed, or lost, is listed for as long as its statement runs. Known only
    to who sees all of them, and by their own numbers: not through what gives connections others.

    Raises: UpstreamError where one's own is lost.
    """
    try:
        if server != await incarnation(own):
            return False
        sees_all = await rows_of(own, _FOR_WHO_HAS_PROCESS)
        listed = await rows_of(own, f"{_CONNECTIONS} WHERE ID IN ({own.thread_id()}, {connection})")
    except UpstreamError:
        if own.closed:
            raise
        return False  # it is refused
    return bool(sees_all) and [(own.thread_id(), own.thread_id())] == listed


async def load_globals(connection: aiomysql.Connection) -> tuple[tuple[str, str], ...]:
    """The values of GLOBALS_THAT_SHAPE_ANSWERS the server has, by name.

    Raises: UpstreamError.
    """
    rows = await rows_of(connection, GLOBAL_SETTINGS)
    return tuple(sorted((text_of(name), text_of(value)) for name, value in rows))


async def _facts(
    connection: aiomysql.Connection, flavour: Flavour, scope: Scope, *, columns: bool
) -> Facts:
    """What is known of the tables in a scope; `columns`: what tells rows apart, too."""
    relations, temporal = await load_relations(connection, flavour, scope)
    return Facts(
        relations,
        await load_triggers(connection, flavour, scope),
        await load_cascades(connection, scope),
        temporal,
        await load_columns(connection, scope) if columns else {},
    )
