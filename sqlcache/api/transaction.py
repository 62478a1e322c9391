"""Statements on one connection: writes, and transactions."""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from sqlcache.api.collect import refuse_transaction
from sqlcache.api.fetches import Fetches
from sqlcache.api.pool import Connection
from sqlcache.api.rows import Params, Rows, names_of

Isolation = Literal["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


class Done(NamedTuple):
    """What a write did: rows changed or, for a query, found; and the last AUTO_INCREMENT value."""

    rowcount: int
    lastrowid: int


async def read(connection: Connection, sql: str, params: Params) -> Rows:
    """The rows of a statement."""
    async with connection.cursor() as cursor:
        await cursor.execute(sql, params)
        names = names_of(connection._result)
        return Rows(names, await cursor.fetchall(), connection.session.basis)


async def run(connection: Connection, sql: str, params: Params) -> Done:
    """Runs a statement."""
    async with connection.cursor() as cursor:
        await cursor.execute(sql, params)
        return Done(cursor.rowcount, cursor.lastrowid or 0)


async def run_many(connection: Connection, sql: str, many: Iterable[Any]) -> int:
    """Runs a statement once for each parameters; an INSERT ... VALUES is sent in few statements.
    Returns the rows changed."""
    async with connection.cursor() as cursor:
        return await cursor.executemany(sql, list(many)) or 0


class Transaction(Fetches):
    """One transaction, from BEGIN to COMMIT or ROLLBACK; `Cache.transaction` makes it.

    Its reads may be hits as long as that cannot be told from its isolation level's own answers.
    Raises: UsageError inside of a cached function, whatever it is asked for.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def _read(self, sql: str, params: Params) -> Rows:
        refuse_transaction()
        return await read(self._connection, sql, params)

    async def execute(self, sql: str, params: Params = None) -> Done:
        """Runs a statement; what it writes is seen by others after the transaction's COMMIT."""
        refuse_transaction()
        return await run(self._connection, sql, params)

    async def executemany(self, sql: str, many: Iterable[Any]) -> int:
        """Runs a statement once for each parameters; see `Cache.executemany`."""
        refuse_transaction()
        return await run_many(self._connection, sql, many)


async def begin(connection: Connection, isolation: Isolation | None, *, read_only: bool) -> None:
    """Begins a transaction."""
    if isolation is not None:
        await run(connection, f"SET TRANSACTION ISOLATION LEVEL {isolation}", None)
    await run(connection, "START TRANSACTION READ ONLY" if read_only else "START TRANSACTION", None)
