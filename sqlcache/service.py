"""What sqlcache itself asks of MySQL, under the service account: the catalog, and if it answers."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Protocol

from sqlcache.driver import aiomysql
from sqlcache.errors import UpstreamError
from sqlcache.metrics import Metrics
from sqlcache.proxy.state import Settings as Globals
from sqlcache.rules import declared_of
from sqlcache.settings import Settings
from sqlcache.sql.catalog import Catalog, Scope
from sqlcache.sql.catalog_loader import (
    connect_service,
    load_catalog,
    load_globals,
    load_schemas,
    renew_catalog,
)
from sqlcache.tls import upstream_tls

log = logging.getLogger(__name__)


class Service(Protocol):
    """What sqlcache itself asks of MySQL."""

    async def load(self) -> tuple[Catalog, Globals]:
        """The catalog, and the globals new sessions inherit. Raises: UpstreamError."""

    async def schemas(self) -> frozenset[str]:
        """The names of all schemas. Raises: UpstreamError."""

    async def renew(self, catalog: Catalog, scope: Scope) -> Catalog:
        """The same catalog with what is in the scope read anew. Raises: UpstreamError."""

    async def check(self) -> None:
        """Raises: UpstreamError unless MySQL answers."""

    def close(self) -> None:
        """Ends the connection, if there is one."""


class ServiceConnection:
    """sqlcache's own connection to MySQL, opened again whenever it was lost."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._upstream = settings.upstream
        self._declared = declared_of(settings)
        self._tls = upstream_tls(settings)
        self._metrics = metrics
        self._password = settings.upstream.read_password()
        self._connection: aiomysql.Connection | None = None
        self._one_at_a_time = asyncio.Lock()
        self._trouble: str | None = None

    async def load(self) -> tuple[Catalog, Globals]:
        async with self._asking() as connection:
            catalog = await load_catalog(connection, self._declared)
            return catalog, await load_globals(connection)

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
            try:
                yield connection
            except UpstreamError as error:
                self._lost(error)
                raise

    async def check(self) -> None:
        async with self._one_at_a_time:
            connection = await self._connected()
            try:
                async with asyncio.timeout(self._upstream.connect_timeout_s):
                    await connection.ping(reconnect=False)
            except (aiomysql.MySQLError, OSError, TimeoutError) as error:
                lost = UpstreamError(f"MySQL does not answer: {error!r}")
                self._lost(lost)
                raise lost from error

    async def _connected(self) -> aiomysql.Connection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        self._read_password()
        try:
            self._connection = await connect_service(
                self._upstream.host,
                self._upstream.port,
                self._upstream.user,
                self._password,
                self._upstream.connect_timeout_s,
                tls=self._tls.context if self._tls.wanted(client_has_it=True) else None,
                tls_required=self._tls.required,
                unix_socket=self._upstream.unix_socket,
            )
        except UpstreamError as error:
            self._lost(error)
            raise
        if self._trouble is not None:
            log.info("MySQL is reached again address=%s", self._upstream.url.address)
        self._trouble = None
        self._metrics.upstream_up = 1
        return self._connection

    def _read_password(self) -> None:
        """As its file has it now. One that cannot be read, perhaps being replaced, changes
        nothing."""
        try:
            self._password = self._upstream.read_password()
        except ValueError as error:
            log.warning("password as before error=%s", error)

    def _lost(self, error: UpstreamError) -> None:
        """Says once what is wrong, until that changes."""
        self.close()
        self._metrics.upstream_up = 0
        if self._trouble != str(error):
            self._trouble = str(error)
            log.warning("MySQL is not reached, trying again error=%s", error)

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None
