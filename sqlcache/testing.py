"""Tests of apps without servers: a MySQL of canned answers, and the store in memory.

    async def test_best_sellers():
        async with without_servers(shop.cache, tables=["product"]) as mysql:
            mysql.answer("SELECT id, name FROM product WHERE shelf = %s", [(1, "soap")], (3,))
            assert await shop.best_sellers(3) == [Product(1, "soap")]

Everything else is the real thing, so what an app's tests see of hits, invalidations and
transactions is what it does in production. The answers are only looked up: what a write changes,
the test has to say.
"""

import asyncio
import datetime
import decimal
import re
import struct
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final

from pymysql.constants import FIELD_TYPE

from sqlcache.api.cache import Cache
from sqlcache.api.pool import LAST_TO_OPEN, Driver
from sqlcache.api.transaction import Done
from sqlcache.app import App
from sqlcache.driver import aiomysql
from sqlcache.errors import UpstreamError, UsageError
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Capability, Command, Status
from sqlcache.mysql.packets import HEADER_BYTES, err_packet, is_continued, packet, payload_bytes
from sqlcache.plan.variables import Settings as Globals
from sqlcache.settings import MySQLUrl, Settings
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import Incarnation, Server
from sqlcache.sql.facts import BaseTable, Facts, Scope
from sqlcache.sql.names import TableName
from sqlcache.tls import UpstreamTls

Rows = Sequence[Sequence[Any]]
_Answer = tuple[Rows, Sequence[str]] | Done  # rows and columns, or what a write did

_UNANSWERED: Final = 1105
_NOTHING_DONE: Final = Done(0, 0)
_CAPABILITIES: Final = int(
    Capability.LONG_PASSWORD
    | Capability.LONG_FLAG
    | Capability.CONNECT_WITH_DB
    | Capability.PROTOCOL_41
    | Capability.TRANSACTIONS
    | Capability.SECURE_CONNECTION
    | Capability.PLUGIN_AUTH
    | Capability.FOUND_ROWS
    | Capability.MULTI_STATEMENTS
    | Capability.MULTI_RESULTS
)
_GLOBALS: Final[Globals] = (
    ("init_connect", ""),
    ("sql_auto_is_null", "OFF"),
    ("sql_mode", ""),
    ("time_zone", "SYSTEM"),
    ("transaction_isolation", "REPEATABLE-READ"),
)
_UTF8MB4, _BINARY = 45, 63
_SIZES: Final = ((b"\xfc", 2), (b"\xfd", 3), (b"\xfe", 8))
"""What stands before a number of so many bytes."""
_TYPES: Final[dict[type, tuple[int, int]]] = {
    bool: (FIELD_TYPE.TINY, _BINARY),
    int: (FIELD_TYPE.LONGLONG, _BINARY),
    float: (FIELD_TYPE.DOUBLE, _BINARY),
    decimal.Decimal: (FIELD_TYPE.NEWDECIMAL, _BINARY),
    datetime.datetime: (FIELD_TYPE.DATETIME, _BINARY),
    datetime.date: (FIELD_TYPE.DATE, _BINARY),
    datetime.timedelta: (FIELD_TYPE.TIME, _BINARY),
    bytes: (FIELD_TYPE.BLOB, _BINARY),
}
_TEXT: Final = (FIELD_TYPE.VAR_STRING, _UTF8MB4)
_READS: Final = re.compile(r"\s*(SELECT|WITH|SHOW|TABLE|VALUES|EXPLAIN|DESC)\b", re.IGNORECASE)


@asynccontextmanager
async def without_servers(cache: Cache, tables: Iterable[str] = ()) -> AsyncIterator["FakeMySQL"]:
    """The cache, open, with no server behind it.

    `tables` are those of its database that reads of may be cached. The cache is closed before and
    after.
    """
    with tempfile.TemporaryDirectory(prefix="sqlcache-testing-") as folder:
        path = str(Path(folder) / "mysql.sock")
        mysql = FakeMySQL(cache.database or "test", tables)
        server = await asyncio.start_unix_server(mysql.serve, path)

        def app(settings: Settings) -> App:
            upstream = settings.upstream.model_copy(
                update={"url": MySQLUrl("test", "", "localhost", 0, path), "tls": "disabled"}
            )
            memcached = settings.memcached.model_copy(update={"nodes": ("memory",)})
            update = {"upstream": upstream, "memcached": memcached}
            return App(settings.model_copy(update=update), service=mysql)

        try:
            with cache.stand_in(app):
                async with cache:
                    yield mysql
        finally:
            server.close()


class FakeMySQL:
    """Speaks MySQL's protocol, takes every login, and answers what it was told to.

    A statement it has no answer to is an error where it reads, else done, with one row changed.
    """

    def __init__(self, database: str, tables: Iterable[str]) -> None:
        self.statements: list[str] = []
        """The statements it was sent, in order: what was answered from the cache is not there."""
        self._answers: list[tuple[str, _Answer | BaseException]] = []
        names = [TableName(database, table) for table in tables]
        self._catalog = Catalog.of(
            Server(flavour="mysql", version=(8, 4, 0), lower_case_table_names=0),
            Facts([BaseTable(name, "InnoDB") for name in names]),
        )

    def answer(
        self,
        sql: str,
        rows: Rows | Done | BaseException,
        params: Any = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> None:
        """From now on, answers this statement with these rows, has done this by it, or fails with
        this error's text.

        `sql` and `params` are as the app gives them. `columns` are the columns' names, by default
        the names between SELECT and FROM. Raises: UsageError where parameters or rows do not fit.
        """
        try:
            statement = _bound(sql, params)
        except (TypeError, ValueError, KeyError) as error:
            raise UsageError(f"the parameters do not fit the statement: {error}") from error
        if isinstance(rows, Done | BaseException):
            self._answers.insert(0, (statement, rows))
            return
        names = columns or _columns_in(sql)
        _refuse_unlike_rows(rows, names)
        self._answers.insert(0, (statement, (rows, names)))

    # What sqlcache asks of its own connection.

    async def load(self) -> tuple[Catalog, Globals]:
        """See `sqlcache.service.connection.Service`."""
        return self._catalog, _GLOBALS

    async def schemas(self) -> frozenset[str]:
        """See `sqlcache.service.connection.Service`."""
        return self._catalog.schemas

    async def renew(self, catalog: Catalog, scope: Scope) -> Catalog:
        """See `sqlcache.service.connection.Service`."""
        return self._catalog

    async def has_ended(self, connection: int, server: Incarnation, since: float) -> bool:
        """See `sqlcache.service.connection.Service`."""
        return False

    def cut(self) -> bool:
        """See `sqlcache.service.connection.Service`."""
        return False

    async def check(self) -> None:
        """See `sqlcache.service.connection.Service`."""

    async def make_good(self, greeted: Channel | None) -> None:
        """See `sqlcache.service.connection.Service`."""

    async def connect(self) -> aiomysql.Connection:
        """See `sqlcache.service.connection.Service`."""
        raise UpstreamError("there is no server behind it")

    def use_tls(self, tls: UpstreamTls) -> None:
        """See `sqlcache.service.connection.Service`."""

    def close(self) -> None:
        """See `sqlcache.service.connection.Service`."""

    # What its clients see.

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, from its login to its end."""
        try:
            await _Session(self._answer_to, reader, writer).run()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _answer_to(self, statement: str) -> _Answer:
        """Raises: LookupError."""
        self.statements.append(statement)
        for answered, answer in self._answers:
            if answered == statement:
                if isinstance(answer, BaseException):
                    raise LookupError(str(answer))
                return answer
        if _READS.match(statement):
            raise LookupError(f"FakeMySQL was told no answer to: {statement}")
        return Done(1, 0)


def _bound(sql: str, params: Any) -> str:
    if params is None:
        return sql
    driver = Driver(user="test", charset="utf8mb4", loop=asyncio.get_running_loop())
    driver.server_status = 0
    text: str = aiomysql.Cursor(driver).mogrify(sql, params)
    return text


def _refuse_unlike_rows(rows: Any, columns: Sequence[str]) -> None:
    if not _is_list(rows) or not all(map(_is_list, rows)):
        raise UsageError("rows: expected a list of rows, as in [(1, 'soap')], Done or an exception")
    if any(len(row) != len(columns) for row in rows):
        raise UsageError(
            f"rows: expected values for the columns {', '.join(columns)} in each; `columns=` gives"
            " others"
        )


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _columns_in(sql: str) -> Sequence[str]:
    """The names between SELECT and FROM, as far as they are plain; numbers for the others."""
    found = re.search(r"SELECT\s+(.*?)\s+FROM\b", sql, re.IGNORECASE | re.DOTALL)
    parts = (found[1] if found else sql.strip()[len("SELECT") :]).split(",")
    return [
        re.split(r"[\s.]", part.strip())[-1].strip("`") or f"c{n}" for n, part in enumerate(parts)
    ]


class _Session:
    def __init__(
        self,
        answer_to: Callable[[str], _Answer],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._answer_to = answer_to
        self._reader = reader
        self._writer = writer
        self._status = Status.AUTOCOMMIT
        self._opened = False
        self._next = 0

    async def run(self) -> None:
        self._writer.write(packet(0, _greeting()))
        await self._payload()
        self._writer.write(self._ok(self._next))
        while True:
            payload = await self._payload()
            if payload[0] == Command.QUIT:
                return
            if payload[0] == Command.QUERY:
                self._query(payload[1:].decode("utf-8", "surrogateescape"))
            else:
                self._writer.write(self._ok(self._next))
            await self._writer.drain()

    async def _payload(self) -> bytes:
        parts: list[bytes] = []
        while not parts or is_continued(len(parts[-1])):
            header = await self._reader.readexactly(HEADER_BYTES)
            parts.append(await self._reader.readexactly(payload_bytes(header)))
            self._next = header[-1] + 1
        return b"".join(parts)

    def _query(self, statement: str) -> None:
        self._follow_transaction(statement.upper().split())
        if not self._opened:  # what a connection begins with is none of the app's
            self._opened = statement == LAST_TO_OPEN
            self._writer.write(self._ok(self._next))
            return
        try:
            answer = self._answer_to(statement)
        except LookupError as error:
            self._writer.write(err_packet(self._next, _UNANSWERED, str(error.args[0]), "HY000"))
            return
        if isinstance(answer, Done):
            self._writer.write(self._ok(self._next, answer))
        else:
            self._writer.write(self._result_set(*answer))

    def _follow_transaction(self, words: list[str]) -> None:
        if words[:1] in (["BEGIN"], ["START"]):
            self._status |= Status.IN_TRANS
        elif words[:1] in (["COMMIT"], ["ROLLBACK"]) and "TO" not in words[1:3]:
            self._status &= ~Status.IN_TRANS
        elif words[:2] == ["SET", "AUTOCOMMIT"]:
            on = words[-1] not in ("0", "OFF")
            self._status = Status.AUTOCOMMIT if on else 0

    def _ok(self, sequence: int, done: Done = _NOTHING_DONE) -> bytes:
        numbers = b"".join(map(_number, done))
        return packet(sequence, b"\0" + numbers + struct.pack("<HH", self._status, 0))

    def _result_set(self, rows: Rows, columns: Sequence[str]) -> bytes:
        eof = struct.pack("<BHH", 0xFE, 0, self._status)
        payloads = [_number(len(columns))]
        for number, name in enumerate(columns):
            kinds = {type(row[number]) for row in rows if row[number] is not None}
            payloads.append(_definition(name, _kind_of(kinds)))
        payloads.append(eof)
        payloads += [b"".join(map(_value, row)) for row in rows]
        payloads.append(eof)
        parts = chain.from_iterable(map(_split, payloads))
        return b"".join(packet(number, each) for number, each in enumerate(parts, self._next))


def _split(payload: bytes) -> Iterator[bytes]:
    """As much of it at a time as a packet holds; after a full one the next, be it empty."""
    for at in range(0, len(payload) + 1, MAX_PAYLOAD_BYTES):
        yield payload[at : at + MAX_PAYLOAD_BYTES]


def _greeting() -> bytes:
    salt = b"12345678" + b"123456789012"
    low, high = struct.pack("<I", _CAPABILITIES)[:2], struct.pack("<I", _CAPABILITIES)[2:]
    return b"".join(
        (
            b"\x0a8.4.0-fake\0",
            struct.pack("<I", 1),
            salt[:8],
            b"\0",
            low,
            bytes((_UTF8MB4,)),
            struct.pack("<H", Status.AUTOCOMMIT),
            high,
            bytes((21,)),
            bytes(10),
            salt[8:],
            b"\0",
            b"mysql_native_password\0",
        )
    )


def _kind_of(kinds: Collection[type]) -> type:
    """The type of a column with values of these."""
    if len(kinds) == 1:
        return next(iter(kinds))
    numbers = (bool, int, float, decimal.Decimal)  # each has room for those before it
    among = [number for number in numbers if number in kinds]
    return among[-1] if among and len(among) == len(kinds) else str


def _definition(name: str, kind: type) -> bytes:
    number, charset = _TYPES.get(kind, _TEXT)
    texts = b"".join(map(_text, (b"def", b"", b"", b"", name.encode(), name.encode())))
    return texts + struct.pack("<BHIBHBH", 12, charset, 1024, number, 0, 0, 0)


def _value(value: Any) -> bytes:
    if value is None:
        return b"\xfb"
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, datetime.timedelta):
        value = _time(value)
    return _text(value if isinstance(value, bytes) else str(value).encode())


def _time(value: datetime.timedelta) -> str:
    """As MySQL writes a TIME, which may be negative, or longer than a day."""
    seconds, microseconds = divmod(abs(value) // datetime.timedelta(microseconds=1), 1_000_000)
    sign = "-" if value < datetime.timedelta() else ""
    part = f".{microseconds:06}" if microseconds else ""
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{part}"


def _text(value: bytes) -> bytes:
    return _number(len(value)) + value


def _number(value: int) -> bytes:
    if value < 0xFB:
        return bytes((value,))
    head, size = next(each for each in _SIZES if value < 1 << 8 * each[1])
    return head + value.to_bytes(size, "little")
