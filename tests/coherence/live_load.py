"""Readers and writers of registers, through any of several proxies.

- Writers learn the values they made from MySQL: `LAST_INSERT_ID(v + 1)` comes back in the OK. Two
  tables are only written together, one is only written by a trigger, and a procedure writes where
  no analysis of its CALL could tell.
- Errors are counted by kind and never hidden; a client that met one goes on at another proxy.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import aiomysql

from sqlcache.demo.servers import HOST, PrivateSqlServer
from tests.coherence.live_history import ROLLED_BACK, Checker, Group, Operation, Register

ROWS = 4
TABLES = ("t0", "t1", "t2", "mirror", "debit", "credit")
"""`mirror` follows `t0` by a trigger; `debit` and `credit` are written together only."""

_SINGLE = ("t0", "t1", "t2")  # tables that are written one by one
_OPERATION_TIMEOUT_S = 20.0
_RECONNECT_PAUSE_S = 0.1

_LOST = frozenset({2003, 2006, 2013})
_KINDS = {1105: "refused", 1205: "lock wait", 1213: "deadlock"}


def register(table: str, row: int) -> Register:
    """The name of a row's value."""
    return f"{table}.{row}"


@dataclass(frozen=True, slots=True)
class Question:
    """A read: its values, row by row, are those of `groups`. `alike`: they are one value."""

    kind: str
    sql: str
    groups: tuple[Group, ...]
    alike: bool = False


def create(server: PrivateSqlServer, schema: str) -> None:
    """Makes the tables, the view, the trigger and the procedures. Every value is 0."""
    rows = ",".join(f"({row}, 0)" for row in range(1, ROWS + 1))
    server.sql(f"DROP DATABASE IF EXISTS {schema}; CREATE DATABASE {schema}")
    for table in TABLES:
        server.sql(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v BIGINT NOT NULL) ENGINE=InnoDB;"
            f"INSERT INTO {table} VALUES {rows};",
            schema,
        )
    server.sql("CREATE VIEW seen AS SELECT id, v FROM t1 WHERE id > 1", schema)
    server.sql(
        "CREATE TRIGGER follow AFTER UPDATE ON t0 FOR EACH ROW"
        " UPDATE mirror SET v = NEW.v WHERE id = NEW.id",
        schema,
    )
    server.sql(
        "CREATE PROCEDURE advance(IN chosen INT) MODIFIES SQL DATA BEGIN"
        " UPDATE t2 SET v = v + 1 WHERE id = chosen; SELECT v FROM t2 WHERE id = chosen; END",
        schema,
    )


def questions() -> list[Question]:
    """Every read that is asked."""
    asked = []
    rows = range(1, ROWS + 1)
    for table in TABLES:
        own: list[Group] = [(register(table, row),) for row in rows]
        for row in rows:
            sql = f"SELECT v FROM {table} WHERE id = {row}"
            asked.append(Question("point", sql, (own[row - 1],)))
        sql = f"SELECT v FROM {table} WHERE id IN (1, 3) ORDER BY id"
        asked.append(Question("in list", sql, (own[0], own[2])))
        asked.append(Question("scan", f"SELECT v FROM {table} ORDER BY id", tuple(own)))
        everything = tuple(register(table, row) for row in rows)
        asked.append(Question("aggregate", f"SELECT SUM(v) FROM {table}", (everything,)))
    viewed: list[Group] = [(register("t1", row),) for row in rows if row > 1]
    asked.append(Question("view", "SELECT v FROM seen ORDER BY id", tuple(viewed)))
    for row in rows:
        sql = f"SELECT d.v, c.v FROM debit d JOIN credit c USING (id) WHERE d.id = {row}"
        both: tuple[Group, ...] = ((register("debit", row),), (register("credit", row),))
        asked.append(Question("join", sql, both, alike=True))
    return asked


@dataclass(slots=True)
class Counts:
    """What the clients did, and the errors they met, by kind."""

    reads: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


class Load:
    """All clients. They run from `start` to `stop`, at the proxies that listen on `ports`."""

    def __init__(
        self,
        server: PrivateSqlServer,
        schema: str,
        ports: Sequence[int],
        seed: int,
        *,
        readers: int = 12,
        writers: int = 6,
        write_pause_s: float = 0.2,
    ) -> None:
        self.counts = Counts()
        self.checker = Checker({register(t, r): 0 for t in TABLES for r in range(1, ROWS + 1)})
        self._server = server
        self._schema = schema
        self._ports = ports
        self._seed = seed
        self._write_pause_s = write_pause_s
        self._work = [self._read] * readers + [self._write] * writers
        self._tasks: list[asyncio.Task[None]] = []
        self._questions = questions()

    def start(self) -> None:
        """Begins."""
        self._tasks = [
            asyncio.create_task(self._client(number, work))
            for number, work in enumerate(self._work)
        ]

    async def stop(self) -> None:
        """Ends every client, amid whatever it does. Raises what one of them failed with."""
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
                raise error

    async def ask_all(self, port: int, direct: aiomysql.Connection) -> list[str]:
        """Asks every question at one proxy, twice, and at MySQL; says which answers differ."""
        differing = []
        connection = await self.connect(port)
        try:
            for question in self._questions * 2:
                await self._ask(connection, question, "the end")
                answer, truth = await _rows(connection, question), await _rows(direct, question)
                if answer != truth:
                    differing.append(f"{question.sql}: {answer} at the end, not {truth}")
        finally:
            connection.close()
        return differing

    async def connect(self, port: int) -> aiomysql.Connection:
        """A session that waits for row locks a second only: much less than a write's deadline."""
        connection = await aiomysql.connect(
            host=HOST,
            port=port,
            user=self._server.user,
            password=self._server.password,
            db=self._schema,
            autocommit=True,
        )
        await _run(connection, "SET SESSION innodb_lock_wait_timeout = 1")
        return connection

    async def _client(self, number: int, work: Callable[..., Awaitable[None]]) -> None:
        choose = random.Random(f"{self._seed} client {number}")
        while True:
            port = choose.choice(self._ports)
            via = f"client {number} at proxy {self._ports.index(port)}"
            connection = None
            try:
                async with asyncio.timeout(_OPERATION_TIMEOUT_S):
                    connection = await self.connect(port)
                while True:
                    async with asyncio.timeout(_OPERATION_TIMEOUT_S):
                        await work(connection, choose, via)
            except (aiomysql.MySQLError, OSError, TimeoutError) as error:
                self.counts.errors[_kind(error)] += 1
            finally:
                if connection is not None:
                    connection.close()
            await asyncio.sleep(_RECONNECT_PAUSE_S)

    # Reads.

    async def _read(self, connection: aiomysql.Connection, choose: random.Random, via: str) -> None:
        await self._ask(connection, choose.choice(self._questions), via)
        await asyncio.sleep(choose.uniform(0, 0.008))

    async def _ask(self, connection: aiomysql.Connection, question: Question, via: str) -> None:
        what = f"{via}: {question.sql}"
        read = self.checker.begin_read(what, question.groups, time.monotonic())
        values = await _rows(connection, question)
        self.checker.end_read(read, values, time.monotonic(), alike=question.alike)
        self.counts.reads[question.kind] += 1

    # Writes.

    async def _write(
        self, connection: aiomysql.Connection, choose: random.Random, via: str
    ) -> None:
        kinds = [self._update, self._upsert, self._transact, self._commit_implicitly]
        kinds += [self._roll_back, self._call]
        (write,) = choose.choices(kinds, weights=[6, 3, 3, 2, 2, 1])
        try:
            await write(connection, choose, via)
        except aiomysql.MySQLError as error:
            if _kind(error) not in _KINDS.values():
                raise
            self.counts.errors[_kind(error)] += 1
            await _run(connection, "ROLLBACK")
        await asyncio.sleep(choose.uniform(0, self._write_pause_s))

    async def _update(
        self, connection: aiomysql.Connection, choose: random.Random, via: str
    ) -> None:
        table, row = choose.choice(_SINGLE), choose.randint(1, ROWS)
        tables = (table, "mirror") if table == "t0" else (table,)
        written = self._begin(via, "UPDATE", tables, row)
        value = await _run(connection, _advance(table, row))
        self._end(written, value)

    async def _upsert(
        self, connection: aiomysql.Connection, choose: random.Random, via: str
    ) -> None:
        table, row = choose.choice(("t1", "t2")), choose.randint(1, ROWS)
        written = self._begin(via, "upsert", (table,), row)
        value = await _run(
            connection,
            f"INSERT INTO {table} VALUES ({row}, 1)"
            " ON DUPLICATE KEY UPDATE v = LAST_INSERT_ID(v + 1)",
        )
        self._end(written, value)

    async def _transact(
        self, connection: aiomysql.Connection, choose: random.Random, via: str
    ) -> None:
        await self._write_both(connection, choose, via, end="COMMIT")

    async def _commit_implicitly(
        self, connection: aiomysql.Connection, choose: random.Random, via: str
    ) -> None:
        await self._write_both(connection, choose, via, end="BEGIN")
        await _run(connection, "COMMIT")

    async def _write_both(
        self, connection: aiomysql.Connection, choose: random.Random, via: str, *, end: str
    ) -> None:
        row = choose.randint(1, ROWS)
        await _run(connection, "BEGIN")
        value = await _run(connection, _advance("debit", row))
        assert value == await _run(connection, _advance("credit", row))
        await asyncio.sleep(choose.uniform(0, 0.02))
        written = self._begin(via, end, ("debit", "credit"), row)
        await _run(connection, end)
        self._end(written, value)

    async def _roll_back(
        self, connection: aiomysql.Connection, choose: random.Random, via: str
    ) -> None:
        table, row = choose.choice(TABLES), choose.randint(1, ROWS)
        await _run(connection, "BEGIN")
        await _run(connection, f"UPDATE {table} SET v = v + {ROLLED_BACK} WHERE id = {row}")
        await asyncio.sleep(choose.uniform(0, 0.02))
        await _run(connection, "ROLLBACK")
        self.counts.writes["ROLLBACK"] += 1

    async def _call(self, connection: aiomysql.Connection, choose: random.Random, via: str) -> None:
        """The procedure returns what it reads after its write: at least the value it made."""
        row = choose.randint(1, ROWS)
        written = self._begin(via, "CALL", ("t2",), row)
        async with connection.cursor() as cursor:
            await cursor.execute(f"CALL advance({row})")
            ((value,),) = await cursor.fetchall()
        self._end(written, value)

    def _begin(self, via: str, kind: str, tables: Sequence[str], row: int) -> _Written:
        registers = [register(table, row) for table in tables]
        what = f"{via}: {kind} {' '.join(registers)}"
        return _Written(kind, self.checker.begin_write(what, registers, time.monotonic()))

    def _end(self, written: _Written, value: int) -> None:
        groups = written.operation.groups
        self.checker.end_write(written.operation, [value] * len(groups), time.monotonic())
        self.counts.writes[written.kind] += 1


@dataclass(frozen=True, slots=True)
class _Written:
    kind: str
    operation: Operation


def _advance(table: str, row: int) -> str:
    return f"UPDATE {table} SET v = LAST_INSERT_ID(v + 1) WHERE id = {row}"


def _kind(error: Exception) -> str:
    """What an error is counted as."""
    if isinstance(error, TimeoutError):
        return "timeout"
    code = error.args[0] if error.args else None
    if isinstance(error, OSError) or code in _LOST:
        return "connection lost"
    if code == 1105 and "sqlcache refused" not in str(error):
        return f"error {error}"
    return _KINDS.get(code, f"error {error}") if isinstance(code, int) else f"error {error!r}"


async def _run(connection: aiomysql.Connection, sql: str) -> int:
    """Runs a statement; returns the LAST_INSERT_ID of its OK."""
    async with connection.cursor() as cursor:
        await cursor.execute(sql)
        made: int = cursor.lastrowid
        return made


async def _rows(connection: aiomysql.Connection, question: Question) -> list[int]:
    """The answer's values, row by row."""
    async with connection.cursor() as cursor:
        await cursor.execute(question.sql)
        return [int(value) for row in await cursor.fetchall() for value in row]
