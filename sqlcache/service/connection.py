"""What sqlcache itself asks of MySQL, under the service account: the catalog, and if it answers."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Protocol

from sqlcache.driver import aiomysql
from sqlcache.errors import UpstreamError
from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.plan.variables import Settings as Globals
from sqlcache.rules import declared_of
from sqlcache.service.check import UpstreamCheck
from sqlcache.service.logins import login_rules
from sqlcache.service.opening import Row, rows_of
from sqlcache.service.own_logins import OwnLogins, close
from sqlcache.settings import Settings
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import Incarnation
from sqlcache.sql.catalog_loader.load import (
    has_ended,
    load_catalog,
    load_globals,
    load_schemas,
    renew_catalog,
)
from sqlcache.sql.catalog_loader.server import WHICH_SERVER, began
from sqlcache.sql.facts import Scope
from sqlcache.tasks import Tasks
from sqlcache.tls import UpstreamTls, upstream_tls
from sqlcache.upstream_errors import UpstreamErrors

log = logging.getLogger(__name__)

_ANSWERS_S = 5.0  # to a small question


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

    async def has_ended(self, connection: int, server: Incarnation, since: float) -> bool:
        """Whether a server is known to have ended a connection that was there `since` then, and all
        that it did: it is not in the list of those that there are, which only who has the right
        PROCESS sees whole. Raises: UpstreamError."""

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
        self._timeout_s = settings.upstream.catalog_timeout_s
        self._declared = declared_of(settings)
        self._columns = settings.cache.row_tags
        self._logins = OwnLogins(settings.upstream, upstream_tls(settings), metrics, errors)
        self._check = UpstreamCheck(self._logins, settings.upstream.connect_timeout_s)
        self._logins.on_success = self._check.logged_in
        self._connection: aiomysql.Connection | None = None
        self._server: list[Row] | None = None  # which one the connection is to, once that is known
        self._one_at_a_time = asyncio.Lock()
        self._tasks = Tasks()
        self._lost = False  # since the whole catalog was read
        self._began: int | None = None  # the server that it was read from

    async def load(self) -> tuple[Catalog, Globals]:
        async with self._asking(anew=True) as connection:
            catalog = await load_catalog(connection, self._declared, columns=self._columns)
            globals_ = await load_globals(connection)
            rules = await login_rules(connection)
            self._lost, self._began = False, catalog.server.began
            return catalog, (*globals_, *rules)

    async def schemas(self) -> frozenset[str]:
        async with self._asking() as connection:
            return await load_schemas(connection)

    async def renew(self, catalog: Catalog, scope: Scope) -> Catalog:
        async with self._asking() as connection:
            return await renew_catalog(connection, catalog, scope)

    @contextlib.asynccontextmanager
    async def _asking(self, *, anew: bool = False) -> AsyncIterator[aiomysql.Connection]:
        """The connection, alone; `anew`: to the server that new ones come to. One on which
        something failed is replaced; contact is not lost by that where the server is met again at
        once, and is the same."""
        async with self._one_at_a_time:
            if anew:
                await self._go_along()
            connection = await self._connected()
            limit_s = self._timeout_s
            try:
                async with asyncio.timeout(limit_s):
                    if self._server is None:
                        self._server = await rows_of(connection, WHICH_SERVER)
                    yield connection
            except UpstreamError:
                if not await self._still_answers(connection):
                    self._give_up()
                elif (again := await self._met_again()) is not None:
                    self._replace(again)  # which has the rights of now
                raise
            except TimeoutError as error:
                server = self._server
                if (again := await self._met_again()) is not None:
                    self._replace(again)
                else:
                    self._give_up()
                if server is not None:
                    self._tasks.spawn(self._end_query(connection.thread_id(), server))
                raise UpstreamError(
                    f"the catalog was not read within catalog_timeout_s = {limit_s:g} s"
                ) from error

    async def _still_answers(self, connection: aiomysql.Connection) -> bool:
        """Whether a query has failed and not its connection, by which MySQL's end is seen."""
        if self._server is None or connection.closed:
            return False
        with contextlib.suppress(UpstreamError, TimeoutError):
            async with asyncio.timeout(_ANSWERS_S):
                return await rows_of(connection, WHICH_SERVER) == self._server
        return False

    async def _met_again(self) -> aiomysql.Connection | None:
        """A new connection to the server that the whole catalog was read from, if that runs on."""
        with contextlib.suppress(UpstreamError, TimeoutError):
            connection = await self._logins.connect()
            runs_on = False
            try:
                async with asyncio.timeout(_ANSWERS_S):
                    which = await rows_of(connection, WHICH_SERVER)
                    runs_on = which == self._server and await began(connection) == self._began
            finally:
                if not runs_on:
                    close(connection)
            return connection if runs_on else None
        return None

    def _replace(self, connection: aiomysql.Connection) -> None:
        """Goes on with this connection, to the same server."""
        close(self._connection)
        self._connection = connection

    async def _end_query(self, number: int, server: list[Row]) -> None:
        """Ends what MySQL still does for a connection that is given up: it may wait for ever. Where
        another server answers by now, the number is another connection's there."""
        with contextlib.suppress(UpstreamError, aiomysql.MySQLError, OSError):
            connection = await self._logins.connect()
            try:
                if await rows_of(connection, WHICH_SERVER) == server:
                    async with connection.cursor() as cursor:
                        await cursor.execute(f"KILL {number}")
                await connection.ensure_closed()
            finally:
                connection.close()

    async def check(self) -> None:
        await self._check.check()

    async def has_ended(self, connection: int, server: Incarnation, since: float) -> bool:
        # Who was met before the session came, and is met by who came later, is whom it came to.
        async with self._check.asking(since) as own:
            return await has_ended(own, connection, server)

    def cut(self) -> bool:
        return self._lost or self._has_ended()

    def _has_ended(self) -> bool:
        """Whether MySQL has ended the connection."""
        reader = None if self._connection is None else self._connection._reader
        return reader is not None and (reader._eof or reader._exception is not None)

    def _give_up(self) -> None:
        # Why does not matter: from here on nothing tells when MySQL ends.
        self._lost |= self._connection is not None
        close(self._connection)
        self._connection = self._server = None

    async def _connected(self) -> aiomysql.Connection:
        if self._connection is None or self._connection.closed or self._has_ended():
            self._give_up()
            self._connection = await self._logins.connect()
        return self._connection

    async def _go_along(self) -> None:
        """Gives up the connection if new ones come to another server, as far as that can be seen:
        behind a name or a balancer it may go on as if nothing was."""
        if self._server is None or self._connection is None or self._has_ended():
            return
        with contextlib.suppress(UpstreamError, TimeoutError):
            connection = await self._logins.connect()
            is_other = False
            try:
                async with asyncio.timeout(_ANSWERS_S):
                    is_other = await rows_of(connection, WHICH_SERVER) != self._server
            finally:
                if not is_other:
                    close(connection)
            if is_other:
                self._give_up()
                self._connection = connection

    async def connect(self) -> aiomysql.Connection:
        return await self._logins.connect()

    async def make_good(self, greeted: Channel | None) -> None:
        on = None
        try:
            if greeted is not None and not greeted.closed:
                on = greeted.hand_over()
            connection = await self._logins.connect(on)
            await connection.ensure_closed()
        except (UpstreamError, aiomysql.MySQLError, OSError) as error:
            log.debug("a login that broke off not made good error=%s", error)
        finally:
            if on is not None:
                on[0].close()

    def use_tls(self, tls: UpstreamTls) -> None:
        self._logins.tls = tls

    def close(self) -> None:
        close(self._connection)
        self._connection = None
        self._check.end()
