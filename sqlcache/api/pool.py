"""Connections of aiomysql, each to a session of the proxy's inside this process.

Each is one half of a socket pair; the other half is served like any client of the proxy. So what
runs on one is followed, fenced and cached by the proxy's own code, also when its task is cancelled
in the middle. The pool differs from aiomysql's in two points: a connection whose session is no
longer as it was opened (a variable was set, a lock or a handler, a transaction or a temporary table
left) is not lent again, and a waiter is never forgotten.
"""

import asyncio
import codecs
import re
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pymysql.charset import charset_by_name
from pymysql.constants import COMMAND, CR
from pymysql.converters import escape_item

from sqlcache.api.collect import STREAMED, Collected, collecting, refuse_write
from sqlcache.api.misuse import bound
from sqlcache.cache.reads import Basis
from sqlcache.driver import DriverConnection, MysqlPacket, aiomysql
from sqlcache.errors import ConfigError, SqlSyntaxError, UsageError
from sqlcache.patience import Patience
from sqlcache.plan.contexts import Context
from sqlcache.process.forks import leave_at_fork
from sqlcache.proxy.embedded_session import EmbeddedSession
from sqlcache.sql.lexer import Kind, tokenize

Join = Callable[[socket.socket], Awaitable[EmbeddedSession]]
Gather = Callable[[Collected, Basis | str], Awaitable[None]]

LAST_TO_OPEN: Final = "SELECT 0"
"""The last statement that a connection sends before it is used. That it is answered proves that the
password has not expired."""

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMMITS: Final = "`execute` and `transaction` commit by it"
_CHARSET: Final = "charset= decides it"
_NOT_FOR_SESSIONS: Final = {
    "autocommit": _COMMITS,
    "completion_type": _COMMITS,
    "character_set_client": _CHARSET,
    "character_set_results": _CHARSET,
    "character_set_connection": _CHARSET,
}
"""Variables that no app may choose, and why."""
_COLLATION: Final = "collation_connection"
"""Its charset is what MySQL converts statements to: of another one, texts would become '?'."""
_UTF8MB3: Final = frozenset(("utf8", "utf8mb3"))
_PACKET_BYTES_MAX: Final = 0xFFFFFF - 1
_LOOKED_THROUGH_BYTES: Final = 65_536
"""Of a statement, for user variables: after a longer one a new connection costs little."""
_QUOTED: Final = re.compile(rb"""'[^']*'|"[^"]*"|`[^`]*`""")
_MAY_HIDE_QUOTES: Final = re.compile(rb"[\\#]|--|/\*")
_SETTLES_WITHIN_S: Final = 1.0
_MAY_NAME_VARIABLES: Final = (Kind.USER_VARIABLE, Kind.VERSIONED)


@dataclass(frozen=True, slots=True)
class Login:
    """How connections are opened. `address` is for messages; `session` are variables set on each,
    by name."""

    address: str
    user: str
    password: str = field(repr=False)
    database: str | None
    charset: str
    connect_timeout_s: float
    session: Mapping[str, str | int | float]

    def __post_init__(self) -> None:
        try:
            charset: Any = charset_by_name(self.charset)  # whose `name` its stubs do not know
            codecs.lookup(charset.encoding)
        except (AttributeError, LookupError):  # no text; unknown to MySQL, or to Python
            raise ConfigError(
                f"charset = {self.charset!r}: expected one that MySQL and Python know, as utf8mb4"
            ) from None
        charsets = _UTF8MB3 if charset.name in _UTF8MB3 else {charset.name}
        for name, value in self.session.items():
            if not _VARIABLE.fullmatch(name):
                raise ConfigError(f"session: {name!r} is not the name of a variable")
            if why := _NOT_FOR_SESSIONS.get(name.lower()):
                raise ConfigError(f"session: {name} cannot be chosen: {why}")
            if not isinstance(value, str | int | float):
                raise ConfigError(f"session: {name} = {value!r}: expected a text or a number")
            of_charset, _, _ = str(value).lower().partition("_")
            if name.lower() == _COLLATION and of_charset not in charsets:
                raise ConfigError(
                    f"session: {name} = {value!r}: expected one of {charset.name}, which charset="
                    " decides"
                )


class Driver(DriverConnection):
    """aiomysql's connection, which can bind bytes whatever PyMySQL is beneath it."""

    def escape(self, obj: Any) -> str:
        # aiomysql asks PyMySQL for bytes under a name that newer versions no longer have.
        escaped: str = (
            escape_item(obj, self.charset) if isinstance(obj, bytes) else super().escape(obj)
        )
        return escaped


class Connection(Driver):
    """A connection of aiomysql to a session of this process; `open_connection` makes it."""

    session: EmbeddedSession

    def __init__(self, login: Login, join: Join, *, autocommit: bool, client_flag: int) -> None:
        super().__init__(
            user=login.user,
            password=login.password.encode().decode("latin-1"),  # whose bytes the driver sends
            db=login.database,
            charset=login.charset,
            connect_timeout=login.connect_timeout_s,
            autocommit=autocommit,
            client_flag=client_flag,
            program_name="sqlcache",
        )
        self._login = login
        self._join = join
        self._names_variables = False
        self.gather: Gather | None = None
        """Takes what is read on it for a cached function, where who uses it does not."""
        self.lent_in: Collected | None = None
        """The run of a cached function for which it was opened, if it was for one."""
        self.home: Context | None = None
        """The context its session had when it was ready; None while reads could not be hits."""

    async def _connect(self) -> None:
        try:
            with Patience(self.connect_timeout):
                await self._open()
        except (OSError, TimeoutError) as error:
            self.close()
            raise aiomysql.OperationalError(
                CR.CR_CONN_HOST_ERROR,
                f"Can't connect to MySQL server on {self._login.address}:"
                f" {str(error) or 'it did not answer in time'}",
            ) from error
        except BaseException:
            self.close()
            raise

    async def _open(self) -> None:
        ours, theirs = socket.socketpair()
        leave_at_fork(ours)
        leave_at_fork(theirs)
        try:
            self.session = await self._join(theirs)
        except BaseException:
            ours.close()
            raise
        self._reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._secure = True  # it does not leave this process, and the session sees to the rest
        self._next_seq_id = 0
        await self._get_server_information()
        await self._request_authentication()
        await self.autocommit(self.autocommit_mode)
        if self._login.session:
            settings = ", ".join(f"SESSION {name} = %s" for name in self._login.session)
            async with self.cursor() as cursor:
                await cursor.execute(f"SET {settings}", tuple(self._login.session.values()))
        async with self.cursor() as cursor:
            await cursor.execute(LAST_TO_OPEN)  # after which the session knows its settings
        self.home = self.session.context
        self._opened_as = self._as_now
        self.session.state.left_behind = False
        self._names_variables = False

    async def query(self, sql: str | bytes, unbuffered: bool = False) -> Any:
        text = sql.encode(self.encoding, "surrogateescape") if isinstance(sql, str) else bytes(sql)
        self._names_variables = self._names_variables or self._may_set_variable(text)
        collected = None if self.gather is None else collecting()
        if self.gather is None or collected is None:
            return await super().query(text, unbuffered)
        with collected.reading():
            await self._refuse_write(text)
            affected = await super().query(text, unbuffered)
            basis = self.session.basis
            if unbuffered and isinstance(basis, Basis) and basis.tags.pins:
                basis = STREAMED  # whether these rows are all it hangs on is known at its end
            if isinstance(basis, str) and self.lent_in is not collected:
                collected.of_callers.add(self.lent_in)
            await self.gather(collected, basis)
        return affected

    def _may_set_variable(self, text: bytes) -> bool:
        """Whether the statement may set a user variable: that it names one tells."""
        if b"@" not in text:
            return False
        state = self.session.state
        known = state.as_utf8(text) if len(text) <= _LOOKED_THROUGH_BYTES else None
        if known is None:
            return True
        # Mostly it is the @ of addresses: the lexer would take ten times as long to tell so.
        if not _MAY_HIDE_QUOTES.search(known) and b"@" not in _QUOTED.sub(b"", known):
            return False
        try:
            tokens = tokenize(known, state.dialect)
        except SqlSyntaxError:
            return True
        return any(token.kind in _MAY_NAME_VARIABLES for token in tokens)

    def _ensure_alive(self) -> None:
        """Raises: aiomysql.OperationalError where it was closed, as by the end of its cache. For
        that aiomysql itself has errors of several kinds."""
        if self.closed:
            why = self._close_reason or "the connection, or its cache, was closed"
            raise aiomysql.OperationalError(CR.CR_SERVER_GONE_ERROR, why)

    async def _read_bytes(self, num_bytes: int) -> Any:
        self._ensure_alive()  # which may have ended between two packets
        return await super()._read_bytes(num_bytes)

    async def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        try:
            return await super()._read_packet(packet_type)
        except BaseException:
            # As where what comes behind the first rows, or another result, is an error.
            if (collected := collecting()) is not None:
                collected.failed()
            raise

    async def _read_query_result(self, unbuffered: bool = False) -> None:
        try:
            await super()._read_query_result(unbuffered=unbuffered)
        except aiomysql.MySQLError:
            raise
        except BaseException:
            # As where a value cannot be decoded: the next statement would read the rest.
            self.close()
            raise

    async def refuse_write(self, sql: str, params: Any) -> None:
        """Raises: UsageError inside of a cached function, for a statement that may write."""
        if collecting() is not None:
            await self._refuse_write(self.text(sql, params))

    async def _refuse_write(self, text: bytes) -> None:
        if await self.session.may_write(text):
            refuse_write("a statement that may")

    def text(self, sql: str, params: Any) -> bytes:
        """The statement as it is sent."""
        return bound(aiomysql.Cursor(self), sql, params).encode(self.encoding, "surrogateescape")

    @property
    def has_ended(self) -> bool:
        """Whether nothing more can be asked on it. Its reader is not at its end while it holds what
        MySQL has said as it ended, such as that the connection was idle too long."""
        return self.closed or self._reader.at_eof() or self.session.has_ended

    async def settle(self) -> None:
        """Until its session has dealt with all that it was asked, and so can be judged. Where that
        is not to be awaited, it is closed."""
        if self.closed:
            return
        try:
            with Patience(_SETTLES_WITHIN_S):
                await self.session.settle()
        except TimeoutError:
            self.close()
        except BaseException:
            self.close()
            raise

    @property
    def _as_now(self) -> tuple[object, ...]:
        """What tells whether its session is another one by now."""
        state = self.session.state
        return state.fingerprint(), state.bypass_reason(), state.in_transaction

    @property
    def is_as_opened(self) -> bool:
        """Whether the next one to use it finds it as if it were new."""
        if self.closed or self._names_variables or self.session.state.left_behind:
            return False
        context = self.session.context
        if context is None and self.home is None:  # which it has in a transaction, too
            return self._as_now == self._opened_as
        if context is None or self.home is None or context.key != self.home.key:
            return False
        self.home = context  # the same, or what has come in place of one that was retired
        return True


class Binder:
    """Binds parameters and makes packets just as the connections of a pool do, without one."""

    def __init__(self, like: Connection) -> None:
        # Never connected: only what decides how values are written is taken over.
        connection = Driver(user=like.user, charset=like.charset, loop=like.loop)
        connection.server_status = like.server_status
        self.connection = connection
        self._cursor = aiomysql.Cursor(connection)

    def text(self, sql: str, params: Any) -> bytes:
        """The statement as it is sent."""
        text = bound(self._cursor, sql, params)
        return text.encode(self.connection.encoding, "surrogateescape")

    def packet(self, sql: str, params: Any) -> bytes | None:
        """The COM_QUERY packet of the statement; None where one packet cannot hold it."""
        return _packet(self.text(sql, params))


def _packet(text: bytes) -> bytes | None:
    length = len(text) + 1
    if length > _PACKET_BYTES_MAX:
        return None
    return length.to_bytes(4, "little") + bytes((COMMAND.COM_QUERY,)) + text


class Pool:
    """At most `size` connections, opened when they are needed.

    Who waits longer than `acquire_timeout_s` for one gets a TimeoutError. One that was idle for
    `recycle_s` is not used again.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        *,
        size: int,
        acquire_timeout_s: float,
        recycle_s: float,
    ) -> None:
        self._connect = connect
        self._free = asyncio.Semaphore(size)
        self._idle: deque[tuple[Connection, float]] = deque()
        self._lent: set[Connection] = set()
        self._acquire_timeout_s = acquire_timeout_s
        self._recycle_s = recycle_s
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self.on_ready: Callable[[Connection], None] = lambda connection: None
        """Told of a connection that is as it was opened, whenever one comes or comes back."""

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lends a connection. Raises: TimeoutError; aiomysql.OperationalError; UsageError where the
        pool was closed meanwhile."""
        try:
            async with asyncio.timeout(self._acquire_timeout_s):
                await self._free.acquire()
        except TimeoutError:
            raise TimeoutError(
                f"no connection became free within {self._acquire_timeout_s} s: pool_size is"
                " too small, or connections are held too long"
            ) from None
        try:
            self._check_open()
            connection = self._take_idle() or await self._connect()
            self._lent.add(connection)
            try:
                self._check_open()
                yield connection
            finally:
                try:
                    await connection.settle()
                finally:
                    self._give_back(connection)
        finally:
            self._free.release()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the cache was closed before a connection became free")

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection, since = self._idle.pop()
            if not connection.has_ended and self._loop.time() - since < self._recycle_s:
                return connection
            connection.close()
        return None

    def _give_back(self, connection: Connection) -> None:
        self._lent.discard(connection)
        if self._closed or not connection.is_as_opened:
            connection.close()
            return
        self._idle.append((connection, self._loop.time()))
        self.on_ready(connection)

    async def warm(self) -> None:
        """Opens a first connection. Raises: aiomysql.OperationalError."""
        async with self.connection():
            pass

    def close(self) -> None:
        """Ends all connections, those that are lent, too."""
        self._closed = True
        for connection in [*self._lent, *(connection for connection, _ in self._idle)]:
            connection.close()
        self._idle.clear()


async def open_connection(
    login: Login, join: Join, *, autocommit: bool, client_flag: int = 0
) -> Connection:
    """A connection, ready to use. Raises: aiomysql.OperationalError."""
    connection = Connection(login, join, autocommit=autocommit, client_flag=client_flag)
    await connection._connect()
    return connection
