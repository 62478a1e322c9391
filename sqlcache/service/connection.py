"""What sqlcache itself asks of MySQL, under the service account: the catalog, and if it answers."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Coroutine
from typing import Protocol

from sqlcache.driver import aiomysql
from sqlcache.errors import UpstreamError
from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import ERRORS_OF_CLIENTS, Command
from sqlcache.mysql.packets import packet
from sqlcache.patience import Patience
from sqlcache.plan.variables import Settings as Globals
from sqlcache.proxy.login import UpstreamTls
from sqlcache.rules import declared_of
from sqlcache.service.logins import login_rules
from sqlcache.service.opening import connect_service
from sqlcache.settings import Settings
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog_loader.load import (
    has_ended,
    load_catalog,
    load_globals,
    load_schemas,
    renew_catalog,
)
from sqlcache.sql.facts import Scope
from sqlcache.tls import upstream_tls
from sqlcache.upstream_errors import UpstreamErrors

log = logging.getLogger(__name__)

_LOGIN_EVERY_S = 10.0
_PATIENCE_S = 1.0


class Service(Protocol):
    """What sqlcache itself asks of MySQL."""

    async def load(self) -> tuple[Catalog, Globals]:
        """The catalog, and the globals new sessions inherit. Raises: UpstreamError."""

    async def schemas(self) -> frozenset[str]:
        """The names of all schemas. Raises: UpstreamError."""

    async def renew(self, catalog: Catalog, scope: Scope) -> Catalog:
        """The same catalog with what is in the scope read anew. Raises: UpstreamError."""

    def cut(self) -> bool:
        """Whether contact was lost since the last `load`: MySQL may have ended and begun anew."""

    async def check(self) -> None:
        """Raises: UpstreamError unless MySQL answers; AccountRefused where it does, and does not
        let in sqlcache's own account."""

    async def has_ended(self, connection: int) -> bool:
        """Whether MySQL is known to have ended a connection, and all that it did: it is not in the
        list of those that there are, which only who has the right PROCESS sees whole. Raises:
        UpstreamError."""

    async def make_good(self, greeted: Channel | None) -> None:
        """A client's login broke off. MySQL counts that against the host of sqlcache, which stands
        for all clients, and refuses it after `max_connect_errors` of them in a row: a login that
        succeeds begins the count anew. On `greeted`, where nobody has answered MySQL's greeting
        yet, nothing is counted at all. Raises nothing."""

    async def connect(self) -> aiomysql.Connection:
        """A new connection of sqlcache's own account, for the caller to close. Raises:
        UpstreamError."""

    def use_tls(self, tls: UpstreamTls) -> None:
        """Connections from here on speak it."""

    def close(self) -> None:
        """Ends the connection, if there is one."""


class ServiceConnection:
    """sqlcache's own connections to MySQL, opened again whenever they were lost: one that reads the
    catalog, which may take long, and one to see whether MySQL answers, and takes new logins."""

    def __init__(self, settings: Settings, metrics: Metrics, errors: UpstreamErrors) -> None:
        self._upstream = settings.upstream
        self._declared = declared_of(settings)
        self._columns = settings.cache.row_tags
        self._tls = upstream_tls(settings)
        self._metrics = metrics
        self._errors = errors
        self._password = settings.upstream.read_password()
        self._connection: aiomysql.Connection | None = None
        self._one_at_a_time = asyncio.Lock()
        self._checked: aiomysql.Connection | None = None
        self._checked_since = -_LOGIN_EVERY_S
        self._one_check_at_a_time = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        self._unwell: UpstreamError | None = None
        self._trouble: str | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lost = False  # since the whole catalog was read

    async def load(self) -> tuple[Catalog, Globals]:
        async with self._asking() as connection:
            catalog = await load_catalog(connection, self._declared, columns=self._columns)
            globals_ = await load_globals(connection)
            rules = await login_rules(connection)
            self._lost = False
            return catalog, (*globals_, *rules)

    async def schemas(self) -> frozenset[str]:
        async with self._asking() as connection:
            return await load_schemas(connection)

    async def renew(self, catalog: Catalog, scope: Scope) -> Catalog:
        async with self._asking() as connection:
            return await renew_catalog(connection, catalog, scope)

    @contextlib.asynccontextmanager
    async def _asking(self) -> AsyncIterator[aiomysql.Connection]:
        """The connection, alone. One that failed is closed."""
        async with self._one_at_a_time:
            connection = await self._connected()
            limit_s = self._upstream.catalog_timeout_s
            try:
                async with asyncio.timeout(limit_s):
                    yield connection
            except (UpstreamError, TimeoutError) as error:
                self._give_up()
                if isinstance(error, UpstreamError):
                    raise
                self._spawn(self._end_query(connection.thread_id()))
                raise UpstreamError(
                    f"the catalog was not read within catalog_timeout_s = {limit_s:g} s"
                ) from error

    async def _end_query(self, number: int) -> None:
        """Ends what MySQL still does for a connection that is given up: it may wait for ever."""
        with contextlib.suppress(UpstreamError, aiomysql.MySQLError, OSError):
            connection = await self._connect()
            async with connection.cursor() as cursor:
                await cursor.execute(f"KILL {number}")
            await connection.ensure_closed()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def check(self) -> None:
        """Each `_LOGIN_EVERY_S` by a whole login, else by a ping, and where that login has failed
        by what it came to. All who ask meanwhile share it. While it takes longer than `_PATIENCE_S`
        it is what the one before has come to, if there was one."""
        first = self._checked is None and self._unwell is None
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        await asyncio.wait([self._looking], timeout=None if first else _PATIENCE_S)
        if self._unwell is not None:
            raise type(self._unwell)(str(self._unwell)) from self._unwell.__cause__

    async def _look(self) -> None:
        """Finds out whether MySQL answers."""
        try:
            if self._unwell is None or self._is_login_due():
                await self._ping()
                self._unwell = None
        except UpstreamError as error:
            self._unwell = error
        finally:
            self._looking = None

    async def _ping(self) -> None:
        """Raises: UpstreamError."""
        for attempt in range(2):
            had, since = self._checked, self._checked_since
            try:
                async with self._checking() as connection:
                    await connection.ping(reconnect=False)
                return
            except UpstreamError as error:
                # That a connection has ended may be its own end alone.
                lost = had is not None and since == self._checked_since
                if attempt or not lost or isinstance(error.__cause__, TimeoutError):
                    raise

    def _is_login_due(self) -> bool:
        return asyncio.get_running_loop().time() - self._checked_since > _LOGIN_EVERY_S

    async def has_ended(self, connection: int) -> bool:
        async with self._checking() as own:
            return await has_ended(own, connection)

    @contextlib.asynccontextmanager
    async def _checking(self) -> AsyncIterator[aiomysql.Connection]:
        """The connection for what is answered at once, alone. One that failed is closed."""
        async with self._one_check_at_a_time:
            if self._checked is None or self._is_login_due():
                _close(self._checked)
                self._checked = None
                self._checked_since = asyncio.get_running_loop().time()
                self._checked = await self._connect()
            try:
                async with Patience(self._upstream.connect_timeout_s):
                    yield self._checked
            except (UpstreamError, aiomysql.MySQLError, OSError, TimeoutError) as error:
                _close(self._checked)
                self._checked = None
                lost = UpstreamError(f"MySQL does not answer: {error!r}")
                self._note(lost)
                raise lost from error

    def cut(self) -> bool:
        return self._lost or self._has_ended()

    def _has_ended(self) -> bool:
        """Whether MySQL has ended the connection."""
        reader = None if self._connection is None else self._connection._reader
        return reader is not None and (reader._eof or reader.exception() is not None)

    def _give_up(self) -> None:
        self._lost |= self._has_ended()
        _close(self._connection)
        self._connection = None

    async def _connected(self) -> aiomysql.Connection:
        if self._connection is None or self._connection.closed or self._has_ended():
            self._give_up()
            self._connection = await self._connect()
        return self._connection

    async def _connect(self, on: tuple[socket.socket, bytes] | None = None) -> aiomysql.Connection:
        """A new connection, `on` one that MySQL has greeted if given. Raises: UpstreamError."""
        self._read_password()
        try:
            connection = await connect_service(
                self._upstream.host,
                self._upstream.port,
                self._upstream.user,
                self._password,
                self._upstream.connect_timeout_s,
                tls=self._tls.context if self._tls.wanted(client_has_it=True) else None,
                tls_required=self._tls.required,
                unix_socket=self._upstream.unix_socket,
                on=on,
            )
        except UpstreamError as error:
            if on is None:
                self._count(error.__cause__)
                self._note(error)
            raise
        self._note(None)
        return connection

    async def connect(self) -> aiomysql.Connection:
        return await self._connect()

    def _count(self, cause: BaseException | None) -> None:
        """Why MySQL did not let sqlcache itself in."""
        code = cause.args[0] if isinstance(cause, aiomysql.MySQLError) and cause.args else None
        if isinstance(code, int) and code not in ERRORS_OF_CLIENTS:
            self._errors.refused(code)
        else:
            self._errors.unreachable()

    async def make_good(self, greeted: Channel | None) -> None:
        on = None if greeted is None or greeted.closed else greeted.hand_over()
        try:
            connection = await self._connect(on)
            await connection.ensure_closed()
        except (UpstreamError, aiomysql.MySQLError, OSError) as error:
            log.debug("a login that broke off not made good error=%s", error)
        finally:
            if on is not None:
                on[0].close()

    def _read_password(self) -> None:
        """As its file has it now. One that cannot be read, perhaps being replaced, changes
        nothing."""
        try:
            self._password = self._upstream.read_password()
        except ValueError as error:
            log.warning("password as before error=%s", error)

    def _note(self, trouble: UpstreamError | None) -> None:
        """Says once what is wrong, until that changes."""
        self._metrics.upstream_up = int(trouble is None)
        if trouble is None and self._unwell is not None:  # another login has succeeded
            self._checked_since = -_LOGIN_EVERY_S
        before, self._trouble = self._trouble, None if trouble is None else str(trouble)
        if self._trouble == before:
            return
        if self._trouble is None:
            log.info("MySQL is reached again address=%s", self._upstream.url.address)
        else:
            log.warning("MySQL is not reached, trying again error=%s", self._trouble)

    def use_tls(self, tls: UpstreamTls) -> None:
        self._tls = tls

    def close(self) -> None:
        _close(self._connection)
        _close(self._checked)
        self._connection = self._checked = None


def _close(connection: aiomysql.Connection | None) -> None:
    """Ends a connection so that MySQL does not count it as broken; also while it is read from,
    which aiomysql's own `close` does not allow."""
    if connection is not None and not connection.closed:
        connection._writer.write(packet(0, bytes((Command.QUIT,))))
        connection._writer.transport.close()
        asyncio.get_running_loop().call_soon(connection.close)
