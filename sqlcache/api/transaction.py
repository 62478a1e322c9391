"""Statements on one connection: writes, and transactions."""

import asyncio
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from sqlcache.api.collect import refuse_transaction
from sqlcache.api.fetches import Fetches
from sqlcache.api.misuse import bound, refuse_in_transaction
from sqlcache.api.pool import Connection
from sqlcache.api.rows import Params, Rows, names_of
from sqlcache.driver import aiomysql
from sqlcache.errors import UsageError
from sqlcache.plan.planner import Planner

Isolation = Literal["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


class Done(NamedTuple):
    """What a write did: rows changed or, for a query, found; and the last AUTO_INCREMENT value."""

    rowcount: int
    lastrowid: int


async def read(connection: Connection, sql: str, params: Params) -> Rows:
    """The rows of a statement."""
    async with connection.cursor() as cursor:
        await cursor.execute(bound(cursor, sql, params))
        names = names_of(connection._result)
        return Rows(names, await cursor.fetchall(), connection.session.basis)


async def run(connection: Connection, sql: str, params: Params) -> Done:
    """Runs a statement."""
    async with connection.cursor() as cursor:
        await cursor.execute(bound(cursor, sql, params))
        return Done(cursor.rowcount, cursor.lastrowid or 0)


async def run_many(connection: Connection, sql: str, many: Iterable[Any]) -> int:
    """Runs a statement once for each parameters; an INSERT ... VALUES is sent in few statements.
    Returns the rows changed."""
    async with connection.cursor() as cursor:
        rows = list(many)
        for params in rows:
            bound(cursor, sql, params)
        return await cursor.executemany(sql, rows) or 0


class Transaction(Fetches):
    """One transaction, from BEGIN to COMMIT or ROLLBACK; `Cache.transaction` makes it.

    Its reads may be hits as long as that cannot be told from its isolation level's own answers.
    Statements of several tasks take turns.
    Raises: UsageError inside of a cached function, or after its end, whatever it is asked for.
    """

    def __init__(self, connection: Connection, planner: Planner) -> None:
        self._connection: Connection | None = connection
        self._planner = planner
        self._turn = asyncio.Lock()

    async def commit(self) -> None:
        """Its end, after which its connection is another's. Raises: aiomysql.MySQLError."""
        connection, self._connection = self._connection, None
        assert connection is not None
        async with self._turn:
            await connection.commit()

    async def roll_back(self) -> None:
        """Its other end. What ends it is to be seen, and not that MySQL has gone meanwhile, which
        rolls back as well."""
        connection, self._connection = self._connection, None
        assert connection is not None
        async with self._turn:
            if not connection.closed:
                try:
                    await connection.rollback()
                except (aiomysql.MySQLError, OSError):
                    connection.close()

    async def _check(self, sql: str) -> Connection:
        refuse_transaction()
        if self._connection is None:
            raise UsageError("this transaction has ended: use it inside its `async with`")
        connection = self._connection
        await refuse_in_transaction(self._planner, connection.session, sql)
        return connection

    async def _read(self, sql: str, params: Params) -> Rows:
        async with self._turn:
            return await read(await self._check(sql), sql, params)

    async def execute(self, sql: str, params: Params = None) -> Done:
        """Runs a statement; what it writes is seen by others after the transaction's COMMIT."""
        async with self._turn:
            return await run(await self._check(sql), sql, params)

    async def executemany(self, sql: str, many: Iterable[Any]) -> int:
        """Runs a statement once for each parameters; see `Cache.executemany`."""
        async with self._turn:
            return await run_many(await self._check(sql), sql, many)


async def begin(connection: Connection, isolation: Isolation | None, *, read_only: bool) -> None:
    """Begins a transaction."""
    if isolation is not None:
        await run(connection, f"SET TRANSACTION ISOLATION LEVEL {isolation}", None)
    await run(connection, "START TRANSACTION READ ONLY" if read_only else "START TRANSACTION", None)
