"""Readers and writers of registers, through any of several doors.

- Writers learn the values they made from MySQL: `LAST_INSERT_ID(v + 1)` comes back in the OK. Two
  tables are only written together, one is only written by a trigger, and a procedure writes where
  no analysis of its CALL could tell.
- Some readers at a proxy read in transactions, under REPEATABLE READ.
- Errors are counted by kind and never hidden; a client that met one goes on at another door.
- Now and then a client leaves amid what it does.
- Some writers may go around all doors, straight to MySQL. Then the tables that they write rest in
  turn, and nobody writes them: the next write would hide that the last one was not seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle

import aiomysql
import pymysql

from sqlcache.demo.servers import PrivateSqlServer
from tests.coherence.live_doors import (
    FETCH,
    PARTS,
    TRANSACTION,
    Direct,
    Door,
    Proxy,
    Session,
    open_wire,
)
from tests.coherence.live_history import ROLLED_BACK, Around, Checker, Group, Operation, Register

ROWS = 4
TABLES = ("t0", "t1", "t2", "mirror", "debit", "credit", "moved")
"""`mirror` follows `t0` by a trigger; `debit` and `credit` are written together only. The rows of
`moved` go from one key to the other with each write: an even value is at 0, an odd one at NULL; and
so they do by another column."""
_KEYS = ("0", "NULL")
_NAMES = ("'Even'", "'odd'")

_SINGLE = ("t0", "t1", "t2")  # tables that are written one by one
_TWINS = {"mirror": "t0", "credit": "debit"}  # whose values are the same at any moment
_UPSERTED = ("t1", "t2")
_COUNTED = ("t2", "moved")  # with one more column, which nobody reads
_READERS, _WRITERS = 12, 6
_RESTING = ({"t0", "mirror"}, {"t1"}, {"debit", "credit"})
_REST_S = 3.0  # longer than the last write before it may take to be seen
_BY_DOORS_ALONE = (
    "t2",
    "moved",
)  # also where some write around them: the strict law is for all who read it
IN_TRANSACTION = 0.15
_MOST_IN_TRANSACTION = 6
_WRITE_PAUSE_S = 0.2  # at first
_OPERATION_TIMEOUT_S = 20.0
_LEAVES = 0.004  # of a client's operations
_LEAVES_WITHIN_S = 0.02
_RECONNECT_PAUSE_S = 0.1

_LOST = frozenset({2003, 2006, 2013, 2026})  # the last one amid the TLS handshake with MySQL
_SUBQUERY_NO_1_ROW = 1242
_NO_BRANCH = frozenset({1397, 1399, 1402})
_BRANCH_IS_THERE = 1440
_BEGINS = ("BEGIN", "START TRANSACTION READ ONLY", "SET autocommit = 0")
_FIRSTS = ("", "SELECT (SELECT v FROM {}) AS v", "SELECT v FROM {} LIMIT 0")
"""What a transaction begins with that is of no interest: it may open the snapshot, or not."""
LEFT, SHUTDOWN = "left", "MySQL ends"
_KINDS = {1105: "refused", 1205: "lock wait", 1213: "deadlock", 1053: SHUTDOWN}


def register(table: str, row: int) -> Register:
    """The name of a row's value."""
    return f"{table}.{row}"


@dataclass(frozen=True, slots=True)
class Question:
    """A read: its values, row by row, are those of `groups`. `alike`: they are one value.

    `parts` ask for the same values, one by one. `key`: a value is negative where the row is not at
    this one.
    """

    kind: str
    sql: str
    groups: tuple[Group, ...]
    alike: bool = False
    parts: tuple[str, ...] = ()
    key: int | None = None

    def told(self, values: Sequence[int], least: Sequence[int]) -> list[int]:
        """The values; of a row at another key the least that it may have then, see `moved`."""
        if self.key is None:
            return list(values)
        elsewhere = [each + (each % 2 == self.key) for each in least]
        return [e if v < 0 else v for v, e in zip(values, elsewhere, strict=True)]


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
    server.sql(
        "ALTER TABLE moved ADD COLUMN k INT DEFAULT 0, ADD KEY (k),"
        f" ADD COLUMN s VARCHAR(10) DEFAULT {_NAMES[0]}, ADD KEY (s), ADD UNIQUE (k, s, id)",
        schema,
    )
    for table in _COUNTED:
        server.sql(f"ALTER TABLE {table} ADD COLUMN n INT NOT NULL DEFAULT 0", schema)
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
        points = [f"SELECT v FROM {table} WHERE id = {row}" for row in rows]
        for sql, group in zip(points, own, strict=True):
            asked.append(Question("point", sql, (group,), parts=(sql,)))
        sql = f"SELECT v FROM {table} WHERE id IN (1, 3) ORDER BY id"
        asked.append(Question("in list", sql, (own[0], own[2]), parts=(points[0], points[2])))
        sql = f"SELECT v FROM {table} WHERE id > 2 ORDER BY id"
        asked.append(Question("range", sql, tuple(own[2:]), parts=tuple(points[2:])))
        sql = f"SELECT v FROM {table} ORDER BY id"
        asked.append(Question("scan", sql, tuple(own), parts=tuple(points)))
        everything = tuple(register(table, row) for row in rows)
        asked.append(Question("aggregate", f"SELECT SUM(v) FROM {table}", (everything,)))
    moved: tuple[Group, ...] = tuple((register("moved", row),) for row in rows)
    columns = ", ".join(f"COALESCE(MAX(CASE id WHEN {row} THEN v END), -1)" for row in rows)
    for key, (value, name) in enumerate(zip(_KEYS, _NAMES, strict=True)):
        for kind, among in {
            "by key": f"k <=> {value}",
            "by string": f"s = {name.upper()}",
            "by two keys": f"k <=> {value} AND s = {name.lower()}",
        }.items():
            sql = f"SELECT {columns} FROM moved WHERE {among}"
            asked.append(Question(kind, sql, moved, key=key))
    viewed: list[Group] = [(register("t1", row),) for row in rows if row > 1]
    asked.append(Question("view", "SELECT v FROM seen ORDER BY id", tuple(viewed)))
    for row in rows:
        sql = f"SELECT d.v, c.v FROM debit d JOIN credit c ON c.id = d.id WHERE d.id = {row}"
        both: tuple[Group, ...] = ((register("debit", row),), (register("credit", row),))
        asked.append(Question("join", sql, both, alike=True))
        sql = f"SELECT a.v, b.v FROM t1 a LEFT JOIN t2 b ON b.id = a.id WHERE a.id = {row}"
        both = (register("t1", row),), (register("t2", row),)
        parts = tuple(f"SELECT v FROM {table} WHERE id = {row}" for table in ("t1", "t2"))
        asked.append(Question("outer join", sql, both, parts=parts))
    return asked


@dataclass(slots=True)
class Counts:
    """What the clients did, by kind and by the way they did it, and the errors they met."""

    reads: Counter[str] = field(default_factory=Counter)
    reads_by: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    writes_by: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Client:
    """One client while it is at one door; `via` says which and where, for people."""

    session: Session
    door: Door | Direct
    via: str
    choose: random.Random


Work = Callable[[Client], Awaitable[None]]


class _Left(Exception):
    """A client went away amid what it did."""


class Load:
    """All clients. They run from `start` to `stop`, each at one of the doors after another.

    `tables` are those they read and write. With few of them more happens to each, but less kinds of
    things. `in_transaction` is the part of the proxies' readers' work that is transactions. Of the
    writers, `direct` is the part that goes around the doors: what these write must be seen within
    `around.bound_s`.
    """

    def __init__(
        self,
        server: PrivateSqlServer,
        schema: str,
        doors: Sequence[Door],
        seed: int,
        *,
        tables: Sequence[str] = TABLES,
        in_transaction: float = IN_TRANSACTION,
        direct: float = 0,
        bound_s: float = 0,
    ) -> None:
        self._in_transaction = in_transaction
        self.write_pause_s = _WRITE_PAUSE_S
        self.counts = Counts()
        registers = {register(t, r): 0 for t in TABLES for r in range(1, ROWS + 1)}
        written_so = (each for each in registers if not each.startswith(_BY_DOORS_ALONE))
        self.around = Around(written_so if direct else (), bound_s)
        self.checker = Checker(registers, self.around)
        self._server = server
        self._schema = schema
        self._doors = doors
        self._seed = seed
        self._tables = tables
        rests = [{*tables} & rest for rest in _RESTING if direct]
        self._rests = [rest for rest in rests if rest]
        if len(self._rests) < 2:
            self._rests.append(set())
        around = round(direct * _WRITERS)
        self._jobs: Sequence[Work] = [
            *[self._read] * _READERS,
            *[self._write] * (_WRITERS - around),
            *[self._write_around] * around,
        ]
        self._tasks: list[asyncio.Task[None]] = []
        read = {register(table, row) for table in tables for row in range(1, ROWS + 1)}
        self._questions = [
            each for each in questions() if read.issuperset(chain.from_iterable(each.groups))
        ]
        self._single = [table for table in _SINGLE if table in tables]
        self._upserted = [table for table in _UPSERTED if table in tables]
        self._writes: dict[Work, int] = {self._update: 6, self._upsert: 3, self._roll_back: 2}
        around_alone: dict[Work, int] = {self._update_as_statement: 4}
        if "debit" in tables and "credit" in tables:
            self._writes |= {self._transact: 3, self._commit_implicitly: 2, self._update_both: 1}
            around_alone |= {self._commit_prepared: 4}
        self._writes_around = self._writes | around_alone
        if "t2" in tables:
            self._writes |= {self._call: 1}
        if "moved" in tables:
            self._writes |= {self._move: 2, self._move_from: 4, self._insert_again: 2}
            self._writes |= {self._count: 3}

    def start(self) -> None:
        """Begins."""
        self._tasks = [
            asyncio.create_task(self._client(number, work))
            for number, work in enumerate(self._jobs)
        ]

    async def stop(self) -> None:
        """Ends every client, amid whatever it does. Raises what one of them failed with."""
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
                raise error

    def end_branches(self) -> bool:
        """Whether none is left that somebody prepared who went away: its locks would stay."""
        left = [row[-1] for row in self._server.sql("XA RECOVER")]
        for name in left:
            with contextlib.suppress(pymysql.MySQLError):  # the server has not seen that it is gone
                self._server.sql(f"XA ROLLBACK '{name}'")
        return not left

    async def ask_all(self, door: Door) -> list[str]:
        """Asks every question at one door, twice, and at MySQL; says which answers differ."""
        differing = []
        session = await door.open(self._server, self._schema)
        direct = await open_wire(self._server, self._server.port, self._schema)
        try:
            for question, way in zip(self._questions, cycle(session.ways), strict=False):
                truth = await direct.read(question.sql, FETCH)
                way = way if way != PARTS or question.parts else FETCH
                for _ in range(2):
                    answer = await self._ask(session, door, question, way, "the end")
                    if answer != truth:
                        what = f"{question.sql} by {way}"
                        differing.append(f"{what}: {answer} at the end, not {truth}")
        finally:
            session.close()
            direct.close()
        return differing

    async def _client(self, number: int, work: Work) -> None:
        choose = random.Random(f"{self._seed} client {number}")
        doors = [Direct()] if work == self._write_around else self._doors
        while True:
            at = choose.randrange(len(doors))
            door = doors[at]
            via = f"client {number} at door {at}, a {door.kind}"
            session = None
            try:
                async with asyncio.timeout(_OPERATION_TIMEOUT_S):
                    session = await door.open(self._server, self._schema)
                    if isinstance(door, Direct):
                        await _end_branch(session, _branch(via))
                while True:
                    await self._work(work, Client(session, door, via, choose))
            except (aiomysql.MySQLError, OSError, TimeoutError) as error:
                self.counts.errors[_kind(error)] += 1
            except _Left:
                self.counts.errors[LEFT] += 1
            finally:
                if session is not None:
                    session.close()
            await asyncio.sleep(_RECONNECT_PAUSE_S)

    async def _work(self, work: Work, client: Client) -> None:
        if client.choose.random() > _LEAVES:
            async with asyncio.timeout(_OPERATION_TIMEOUT_S):
                await work(client)
            return
        try:
            async with asyncio.timeout(client.choose.uniform(0, _LEAVES_WITHIN_S)):
                await work(client)
        except TimeoutError:
            raise _Left from None

    # Reads.

    async def _read(self, client: Client) -> None:
        if client.door.kind == Proxy.kind and client.choose.random() < self._in_transaction:
            await self._read_in_transaction(client)
            return
        question = client.choose.choice(self._questions)
        ways = [way for way in client.session.ways if way != PARTS or question.parts]
        way = client.choose.choice(ways)
        await self._ask(client.session, client.door, question, way, client.via)
        await asyncio.sleep(client.choose.uniform(0, 0.008))

    async def _read_in_transaction(self, client: Client) -> None:
        """Any moment since the transaction began will do, if all that it reads is of that."""
        session, choose = client.session, client.choose
        asked = choose.choices(self._questions, k=choose.randint(2, _MOST_IN_TRANSACTION))
        begin, first = choose.choice(_BEGINS), choose.choice(_FIRSTS)
        what = f"{client.via}: {begin}, {first}"
        at = time.monotonic()
        reads = [self.checker.begin_read(f"{what}, {q.sql}", q.groups, at) for q in asked]
        await session.run(begin)
        if first:
            await self._read_nothing(session, first.format(choose.choice(self._tables)))
        moment: dict[Group, int] = {}
        for question, read in zip(asked, reads, strict=True):
            answer = await session.read(question.sql, FETCH)
            at = time.monotonic()
            of_twins = [_of_twins(group) for group in question.groups]
            known = (
                max(floor, moment.get(twin, 0))
                for floor, twin in zip(read.floors, of_twins, strict=True)
            )
            values = question.told(answer, [*known])
            self.checker.end_read(read, values, at, alike=question.alike)
            told = dict(zip(of_twins, values, strict=True))
            least = {twin for twin, value in zip(of_twins, answer, strict=True) if value < 0}
            self.checker.is_of_moment(read, told, at, moment, least)
            self.counts.reads[question.kind] += 1
            self.counts.reads_by[f"{client.door.kind} {TRANSACTION}"] += 1
            await asyncio.sleep(choose.uniform(0, 0.01))
        await session.run("COMMIT")
        await session.run("SET autocommit = 1")

    async def _read_nothing(self, session: Session, sql: str) -> None:
        try:
            await session.read(sql, FETCH)
        except aiomysql.MySQLError as error:
            if error.args[0] != _SUBQUERY_NO_1_ROW:
                raise

    async def _ask(
        self, session: Session, door: Door | Direct, question: Question, way: str, via: str
    ) -> list[int]:
        what = f"{via}: {way} {question.sql}"
        read = self.checker.begin_read(what, question.groups, time.monotonic())
        values = await session.read(question.sql, way, question.parts)
        told = question.told(values, read.floors)
        self.checker.end_read(read, told, time.monotonic(), alike=question.alike)
        self.counts.reads[question.kind] += 1
        self.counts.reads_by[f"{door.kind} {way}"] += 1
        return values

    # Writes.

    async def _write(self, client: Client) -> None:
        await self._write_one(client, self._writes)

    async def _write_around(self, client: Client) -> None:
        await self._write_one(client, self._writes_around)

    async def _write_one(self, client: Client, writes: Mapping[Work, int]) -> None:
        (write,) = client.choose.choices([*writes], weights=[*writes.values()])
        try:
            await write(client)
        except aiomysql.MySQLError as error:
            if _kind(error) not in _KINDS.values():
                raise
            self.counts.errors[_kind(error)] += 1
            await client.session.run("ROLLBACK")
        await asyncio.sleep(client.choose.uniform(0, self.write_pause_s))

    def _pick(self, client: Client, tables: Sequence[str]) -> str | None:
        """One of the tables that the client may write now, if there is any."""
        around = isinstance(client.door, Direct)
        may = [t for t in tables if not self._rests_now(t)]
        if around:
            may = [t for t in may if t not in _BY_DOORS_ALONE]
        return client.choose.choice(may) if may else None

    def _rests_now(self, table: str) -> bool:
        return table in self._rests[int(time.monotonic() / _REST_S) % len(self._rests)]

    async def _update(self, client: Client) -> None:
        table, row = self._pick(client, self._single), client.choose.randint(1, ROWS)
        if table is None:
            return
        tables = (table, "mirror") if table == "t0" else (table,)
        written = self._begin(client, "UPDATE", tables, row)
        value = await client.session.run(_advance(table, row))
        self._end(client, written, value)

    async def _upsert(self, client: Client) -> None:
        table, row = self._pick(client, self._upserted), client.choose.randint(1, ROWS)
        if table is None:
            return
        written = self._begin(client, "upsert", (table,), row)
        value = await client.session.run(
            f"INSERT INTO {table} (id, v) VALUES ({row}, 1)"
            " ON DUPLICATE KEY UPDATE v = LAST_INSERT_ID(v + 1)",
        )
        self._end(client, written, value)

    async def _move(self, client: Client) -> None:
        row = client.choose.randint(1, ROWS)
        written = self._begin(client, "move", ("moved",), row)
        moves = f"k = IF(k IS NULL, 0, NULL), s = IF(s = 'odd', {', '.join(_NAMES)})"
        update = f"UPDATE moved SET {moves}, v = LAST_INSERT_ID(v + 1)"
        value = await client.session.run(f"{update} WHERE id = {row}")
        self._end(client, written, value)

    async def _move_from(self, client: Client) -> None:
        """To where the text tells, if the row is at the other key."""
        row, to = client.choose.randint(1, ROWS), client.choose.randrange(2)
        written = self._begin(client, "move from", ("moved",), row)
        value = await client.session.run(
            f"UPDATE moved SET k = {_KEYS[to]}, s = {_NAMES[to]}, v = LAST_INSERT_ID(v + 1)"
            f" WHERE id = {row} AND s = {_NAMES[1 - to]}"
        )
        if value:
            self._end(client, written, value)

    async def _count(self, client: Client) -> None:
        """Changes nothing that is read."""
        table = client.choose.choice(_COUNTED)
        by = [f"id = {client.choose.randint(1, ROWS)}", "v % 2 = 0"]
        if table == "moved":
            by.append(f"s = {client.choose.choice(_NAMES)}")
        among = client.choose.choice(by)
        if not self._rests_now(table):
            await client.session.run(f"UPDATE {table} SET n = n + 1 WHERE {among}")

    async def _insert_again(self, client: Client) -> None:
        row, run = client.choose.randint(1, ROWS), client.session.run
        if client.door.kind != Proxy.kind:  # an app's read is none of its transaction
            return
        await run("BEGIN")
        asked = f"SELECT v FROM moved WHERE id = {row} FOR UPDATE"
        (value,) = await client.session.read(asked, FETCH)
        insert = client.choose.choice(("INSERT", "REPLACE"))
        if insert == "INSERT":
            await run(f"DELETE FROM moved WHERE id = {row}")
        value += 1
        key, name = _KEYS[value % 2], _NAMES[value % 2]
        await run(f"{insert} INTO moved (id, k, s, v) VALUES ({row}, {key}, {name}, {value})")
        written = self._begin(client, "insert again", ("moved",), row)
        await run("COMMIT")
        self._end(client, written, value)

    async def _transact(self, client: Client) -> None:
        await self._write_both(client, end="COMMIT")

    async def _commit_implicitly(self, client: Client) -> None:
        await self._write_both(client, end="BEGIN")
        await client.session.run("COMMIT")

    async def _write_both(self, client: Client, *, end: str) -> None:
        row = client.choose.randint(1, ROWS)
        if self._rests_now("debit"):
            return
        await client.session.run("BEGIN")
        value = await client.session.run(_advance("debit", row))
        assert value == await client.session.run(_advance("credit", row))
        await asyncio.sleep(client.choose.uniform(0, 0.02))
        written = self._begin(client, end, ("debit", "credit"), row)
        await client.session.run(end)
        self._end(client, written, value)

    async def _update_both(self, client: Client) -> None:
        row = client.choose.randint(1, ROWS)
        if self._rests_now("debit"):
            return
        written = self._begin(client, "UPDATE of two", ("debit", "credit"), row)
        value = await client.session.run(
            "UPDATE debit d JOIN credit c ON c.id = d.id"
            f" SET c.v = c.v + 1, d.v = LAST_INSERT_ID(d.v + 1) WHERE d.id = {row}"
        )
        self._end(client, written, value)

    async def _roll_back(self, client: Client) -> None:
        table, row = client.choose.choice(self._tables), client.choose.randint(1, ROWS)
        await client.session.run("BEGIN")
        await client.session.run(f"UPDATE {table} SET v = v + {ROLLED_BACK} WHERE id = {row}")
        await asyncio.sleep(client.choose.uniform(0, 0.02))
        await client.session.run("ROLLBACK")
        self._count_write(client, "ROLLBACK")

    async def _call(self, client: Client) -> None:
        """The procedure returns what it reads after its write: at least the value it made."""
        row = client.choose.randint(1, ROWS)
        written = self._begin(client, "CALL", ("t2",), row)
        (value,) = await client.session.read(f"CALL advance({row})", FETCH)
        self._end(client, written, value)

    async def _commit_prepared(self, client: Client) -> None:
        """Two tables' rows, in a branch of XA."""
        row, run = client.choose.randint(1, ROWS), client.session.run
        if self._rests_now("debit"):
            return
        name = _branch(client.via)
        try:
            await run(f"XA START {name}")
        except aiomysql.MySQLError as error:
            if error.args[0] != _BRANCH_IS_THERE:
                raise
            raise _Left from None  # MySQL has not seen yet that its last session is gone
        try:
            value = await run(_advance("debit", row))
            assert value == await run(_advance("credit", row))
            await run(f"XA END {name}")
            await run(f"XA PREPARE {name}")
        except aiomysql.MySQLError:
            raise _Left from None  # its session ends, and in time the branch
        written = self._begin(client, "XA COMMIT", ("debit", "credit"), row)
        await run(f"XA COMMIT {name}")
        self._end(client, written, value)

    async def _update_as_statement(self, client: Client) -> None:
        await client.session.run("SET SESSION binlog_format = STATEMENT")
        await self._update(client)
        await client.session.run("SET SESSION binlog_format = ROW")

    def _begin(self, client: Client, kind: str, tables: Sequence[str], row: int) -> _Written:
        registers = [register(table, row) for table in tables]
        what = f"{client.via}: {kind} {' '.join(registers)}"
        return _Written(kind, self.checker.begin_write(what, registers, time.monotonic()))

    def _end(self, client: Client, written: _Written, value: int) -> None:
        values = [value] * len(written.operation.groups)
        around = isinstance(client.door, Direct)
        self.checker.end_write(written.operation, values, time.monotonic(), around=around)
        self._count_write(client, written.kind)

    def _count_write(self, client: Client, kind: str) -> None:
        self.counts.writes[kind] += 1
        self.counts.writes_by[client.door.kind] += 1


@dataclass(frozen=True, slots=True)
class _Written:
    kind: str
    operation: Operation


def _branch(via: str) -> str:
    """The name of a client's branches, of which it has one at a time."""
    return f"'{via.partition(' at ')[0]}'"


async def _end_branch(session: Session, name: str) -> None:
    try:
        await session.run(f"XA ROLLBACK {name}")
    except aiomysql.MySQLError as error:
        if error.args[0] not in _NO_BRANCH:
            raise


def _of_twins(group: Group) -> Group:
    """The registers of the same values whose names are those of their tables' twins."""
    parts = (name.split(".") for name in group)
    return tuple(register(_TWINS.get(table, table), int(row)) for table, row in parts)


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
