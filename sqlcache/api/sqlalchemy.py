"""SQLAlchemy 2 on the cache: an async engine whose connections are sessions of the proxy.

Every statement SQLAlchemy sends is planned like any client's, so ORM loading and `select()`s are
answered from the cache where they can be, transactions keep their isolation, and what a flush
writes is invalidated at its COMMIT. An app changes the line that makes its engine:

    engine = create_async_engine(cache)  # was: create_async_engine("mysql+aiomysql://...")
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from pymysql.constants import CLIENT
from sqlalchemy import event
from sqlalchemy.engine import Connection, Dialect, ExceptionContext, ExecutionContext
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.ext.asyncio import create_async_engine as create_plain_engine

from sqlcache.api.cache import Cache
from sqlcache.api.collect import collecting, refuse_write
from sqlcache.api.pool import Connection as PoolConnection

OPTION = "sqlcache"
"""The execution option by which a statement, a connection or a session wants hits, or none."""

_WRITES = ("isinsert", "isupdate", "isdelete", "isddl")

_ASKED_BY_THE_ENGINE = ("get_isolation_level", "set_isolation_level")

T = TypeVar("T")
Policy = bool | Callable[[str], bool]


def create_async_engine(cache: Cache, *, cached: Policy = True, **options: Any) -> AsyncEngine:
    """An engine on the cache's MySQL; `options` are those of SQLAlchemy's own function.

    `cached` says which reads may be answered from the cache and stored: all, none, or those for
    whose SQL it returns True. The execution option `sqlcache=True` or `sqlcache=False` wins over
    that. Writes invalidate in any case. The engine has a pool of its own, and connects only
    while the cache is open: dispose of it before.
    """

    async def connect(*_: Any, **__: Any) -> PoolConnection:
        # Of an UPDATE the ORM wants to know how many rows it found, not how many it changed.
        connection = await cache.connection(client_flag=CLIENT.FOUND_ROWS)
        connection.gather = None  # cached functions are not told what the engine asks itself
        return connection

    engine = create_plain_engine("mysql+aiomysql://", async_creator=connect, **options)
    dialect = engine.dialect
    for name in _ASKED_BY_THE_ENGINE:
        setattr(dialect, name, _untold(dialect, getattr(dialect, name)))

    def lent(connection: DBAPIConnection, *_: Any) -> None:
        # They are of what comes now, also by cursors of the driver, which SQLAlchemy knows not of.
        own = dialect.get_driver_connection(connection)
        own.gather, own.lent_in = cache.gather, collecting()

    def before(
        connection: Connection,
        cursor: Any,
        statement: str,
        parameters: Any,
        context: ExecutionContext,
        executemany: bool,
    ) -> None:
        default = cached(statement) if callable(cached) else cached
        driver(connection).session.allow_hits(context.execution_options.get(OPTION, default))
        if any(getattr(context, kind) for kind in _WRITES):
            refuse_write("a write through SQLAlchemy")

    def failed(_: ExceptionContext) -> None:
        collected = collecting()
        if collected is not None:
            collected.failed()

    event.listen(engine.sync_engine, "handle_error", failed)
    event.listen(engine.sync_engine, "before_cursor_execute", before)
    event.listen(engine.sync_engine, "checkout", lent)
    return engine


def _untold(dialect: Dialect, ask: Callable[..., T]) -> Callable[..., T]:
    """The same, of which no cached function is told in which it is asked."""

    @wraps(ask)
    def asked(connection: DBAPIConnection, *args: Any) -> T:
        own: PoolConnection = dialect.get_driver_connection(connection)
        told, own.gather = own.gather, None
        try:
            return ask(connection, *args)
        finally:
            own.gather = told

    return asked


def driver(connection: Connection) -> PoolConnection:
    """The connection of aiomysql behind one of SQLAlchemy's."""
    found: PoolConnection = connection.connection.driver_connection  # type: ignore[assignment]
    return found
