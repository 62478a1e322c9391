"""Builds the parts from the settings, starts them in order and stops them in reverse.

The only place where parts meet: everything else is given what it works with.
"""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Protocol

import aiomysql
import uvloop

from sqlcache import logs
from sqlcache.admin import health
from sqlcache.admin.http import AdminServer, Response, Route
from sqlcache.cache import engine
from sqlcache.cache.keys import Keyspace
from sqlcache.errors import ConfigError, UpstreamError
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.connection import Node, NodeConnection
from sqlcache.memcache.memory import MemoryNode
from sqlcache.metrics import CONTENT_TYPE, Metrics, Snapshot
from sqlcache.proxy import session
from sqlcache.proxy.planner import Planner
from sqlcache.proxy.server import Server, Upstream
from sqlcache.proxy.state import Settings as Globals
from sqlcache.rules import declared_of, policy_of
from sqlcache.settings import DAY_S, HostPort, Settings
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog_loader import connect_service, load_catalog, load_globals
from sqlcache.tls import client_tls, upstream_tls
from sqlcache.workers import METRICS, PROBLEMS, STARTED, Workers, answer_parent

log = logging.getLogger(__name__)


def serve(settings: Settings) -> int:
    """Runs the proxy until SIGTERM or SIGINT; returns the process's exit code.

    Raises: ConfigError where an address cannot be had or a certificate cannot be used.
    """
    uvloop.run(_serve(settings))
    return 0


async def _serve(settings: Settings) -> None:
    stopped = _stopped_by_signals()
    many = settings.proxy.workers > 1
    app = Workers(settings, _run_worker) if many else App(settings)
    admin = None
    try:
        port = await app.start()
        if settings.admin.listen is not None:
            admin = AdminServer(settings.admin.listen, app.routes())
            await admin.start()
        listen = HostPort(settings.proxy.listen.host, port)
        print(f"sqlcache ready: listening on {listen}", flush=True)
        await stopped.wait()
        log.info("draining timeout_s=%s", settings.proxy.drain_timeout_s)
    finally:
        await app.stop()
        if admin is not None:
            await admin.stop()


def _run_worker(settings: Settings, port: int, pipe: Connection) -> None:
    """What a worker process runs."""
    logs.configure(settings.log.level)
    uvloop.run(_serve_as_worker(settings, port, pipe))


async def _serve_as_worker(settings: Settings, port: int, pipe: Connection) -> None:
    stopped = _stopped_by_signals()
    app = App(settings)

    async def snapshot() -> Snapshot:
        return app.metrics.snapshot()

    try:
        await app.start(shared_port=port)
        answer_parent(pipe, {METRICS: snapshot, PROBLEMS: app.problems}, stopped)
        pipe.send((STARTED, None))
        await stopped.wait()
    except ConfigError as error:
        pipe.send((STARTED, str(error)))
    finally:
        await app.stop()


def _stopped_by_signals() -> asyncio.Event:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


class App:
    """One process's parts. `service` stands for the connection of sqlcache's own."""

    def __init__(self, settings: Settings, service: "Service | None" = None) -> None:
        self._settings = settings
        self.metrics = Metrics()
        self.service: Service = service or _Connected(settings)
        self._cluster = _cluster(settings)
        self.engine = engine.Engine(
            self._cluster,
            Keyspace(settings.memcached.prefix),
            _engine_limits(settings),
            self.metrics,
        )
        self.planner = Planner(
            self.engine,
            self.service.load,
            self.metrics,
            plan_cache_entries=settings.proxy.plan_cache_entries,
            refresh_s=settings.upstream.catalog_refresh_s,
            enabled=settings.cache.enabled,
            policy=policy_of(settings),
        )
        self._server = self._proxy()

    def _proxy(self) -> Server:
        proxy, upstream = self._settings.proxy, self._settings.upstream
        return Server(
            Upstream(
                upstream.host,
                upstream.port,
                upstream.unix_socket,
                upstream.connect_timeout_s,
                upstream_tls(self._settings),
            ),
            self.engine,
            self.planner,
            self.metrics,
            session.Limits(
                max_statement_bytes=proxy.max_statement_bytes,
                max_entry_bytes=self._settings.cache.max_entry_bytes,
                login_timeout_s=proxy.login_timeout_s,
                keepalive_s=upstream.keepalive_s,
            ),
            max_connections=proxy.max_connections,
            buffer_bytes=proxy.buffer_bytes,
            tls=client_tls(self._settings),
        )

    async def start(self, shared_port: int | None = None) -> int:
        """Begins to serve; returns the port. Raises: ConfigError.

        `shared_port` is one that other processes listen on, too.
        """
        await self.begin()
        listen = self._settings.proxy.listen
        try:
            return await self._server.listen(
                listen.host,
                listen.port if shared_port is None else shared_port,
                share_port=shared_port is not None,
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"proxy.listen = {listen}: cannot listen: {reason}") from None

    async def begin(self) -> None:
        """Gets ready to serve clients of this process, see `join`, without listening for others.

        MySQL or memcached being away is no reason not to start.
        """
        await self.engine.start()
        await self.planner.start()

    async def join(self, sock: socket.socket) -> session.Session:
        """Serves a client of this process; see `Server.join`."""
        return await self._server.join(sock)

    async def stop(self) -> None:
        """Drains, then closes everything."""
        await self._server.drain(self._settings.proxy.drain_timeout_s)
        await self.planner.close()
        await self.engine.close()
        await self._cluster.close()
        self.service.close()

    def routes(self) -> dict[str, Route]:
        """The admin door's pages."""
        return {"/live": health.live, "/ready": self._ready, "/metrics": self._metrics_page}

    async def _ready(self) -> Response:
        return health.ready(await self.problems())

    async def problems(self) -> Mapping[str, str]:
        """What keeps this process from its work, by part."""
        try:
            await self.service.check()
        except UpstreamError as error:
            return {"upstream": str(error)}
        return {}

    def _metrics_page(self) -> Response:
        return Response(200, self.metrics.render(), CONTENT_TYPE)


class Service(Protocol):
    """What sqlcache itself asks of MySQL."""

    async def load(self) -> tuple[Catalog, Globals]:
        """The catalog, and the globals new sessions inherit. Raises: UpstreamError."""

    async def check(self) -> None:
        """Raises: UpstreamError unless MySQL answers."""

    def close(self) -> None:
        """Ends the connection, if there is one."""


class _Connected:
    """sqlcache's own connection to MySQL, opened again whenever it was lost."""

    def __init__(self, settings: Settings) -> None:
        self._upstream = settings.upstream
        self._declared = declared_of(settings)
        self._tls = upstream_tls(settings)
        self._connection: aiomysql.Connection | None = None
        self._one_at_a_time = asyncio.Lock()

    async def load(self) -> tuple[Catalog, Globals]:
        async with self._one_at_a_time:
            connection = await self._connected()
            try:
                catalog = await load_catalog(connection, self._declared)
                return catalog, await load_globals(connection)
            except UpstreamError:
                self.close()
                raise

    async def check(self) -> None:
        async with self._one_at_a_time:
            connection = await self._connected()
            try:
                async with asyncio.timeout(self._upstream.connect_timeout_s):
                    await connection.ping(reconnect=False)
            except (aiomysql.MySQLError, OSError, TimeoutError) as error:
                self.close()
                raise UpstreamError(f"MySQL does not answer: {error!r}") from error

    async def _connected(self) -> aiomysql.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = await connect_service(
                self._upstream.host,
                self._upstream.port,
                self._upstream.user,
                self._upstream.password,
                self._upstream.connect_timeout_s,
                tls=self._tls.context if self._tls.wanted(client_has_it=True) else None,
                tls_required=self._tls.required,
                unix_socket=self._upstream.unix_socket,
            )
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None


def nodes_of(settings: Settings) -> list[Node]:
    """The nodes the settings name, connecting. Inside a running event loop."""
    memcached = settings.memcached
    if memcached.in_memory:
        return [MemoryNode("memory", max_bytes=memcached.memory_bytes)]
    return [
        NodeConnection(
            str(address),
            address.host,
            address.port,
            timeout_s=memcached.timeout_s,
            connect_timeout_s=memcached.connect_timeout_s,
            reconnect_min_s=memcached.reconnect_min_s,
            reconnect_max_s=memcached.reconnect_max_s,
        )
        for address in memcached.addresses
    ]


def _cluster(settings: Settings) -> Cluster:
    memcached = settings.memcached
    if memcached.in_memory:  # it can neither be away nor forget to say so
        return Cluster(nodes_of(settings), outage_s=DAY_S, reach_s=0)
    reach_s = memcached.reconnect_max_s + memcached.connect_timeout_s
    return Cluster(nodes_of(settings), outage_s=memcached.outage_s, reach_s=reach_s)


def _engine_limits(settings: Settings) -> engine.Limits:
    cache = settings.cache
    return engine.Limits(
        ttl_s=cache.ttl_s,
        lease_ttl_s=cache.lease_ttl_s,
        lease_wait_s=cache.lease_wait_s,
        write_deadline_s=cache.write_deadline_s,
        near_bytes=cache.near_bytes,
        max_item_bytes=settings.memcached.max_item_bytes,
        compress_over_bytes=cache.compress_over_bytes,
        refuse_writes=cache.when_tags_unreachable == "consistency",
    )
