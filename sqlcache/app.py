"""Builds the parts from the settings, starts them in order and stops them in reverse.

The only place where parts meet: everything else is given what it works with.
"""

import os
import pwd
import socket
from contextlib import suppress

from sqlcache import files
from sqlcache.admin import health
from sqlcache.admin.health import DRAINING, STARTING, Readiness
from sqlcache.admin.http import Response, Route
from sqlcache.cache import engine
from sqlcache.cache.keys import Keyspace
from sqlcache.errors import ConfigError, UpstreamError
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.connection import Node, NodeConnection
from sqlcache.memcache.memory import MemoryNode
from sqlcache.metrics import CONTENT_TYPE, Metrics, Snapshot
from sqlcache.plan.keeper import lacking
from sqlcache.plan.planner import Planner
from sqlcache.proxy import longway
from sqlcache.proxy.server import Server, Upstream
from sqlcache.proxy.session import Session
from sqlcache.rules import policy_of
from sqlcache.service import Service, ServiceConnection
from sqlcache.settings import DAY_S, Settings
from sqlcache.tls import client_tls, upstream_tls


class App:
    """One process's parts. `service` stands for the connection of sqlcache's own."""

    def __init__(self, settings: Settings, service: "Service | None" = None) -> None:
        self._settings = settings
        self.metrics = Metrics()
        self.service: Service = service or ServiceConnection(settings, self.metrics)
        self._cluster = _cluster(settings)
        self.engine = engine.Engine(
            self._cluster,
            Keyspace(settings.memcached.prefix),
            _engine_limits(settings),
            self.metrics,
        )
        self.planner = Planner(
            self.engine,
            self.service,
            self.metrics,
            max_bytes=settings.statements_bytes - settings.statements_bytes // 8,
            refresh_s=settings.upstream.catalog_refresh_s,
            enabled=settings.cache.enabled,
            policy=policy_of(settings),
            data_set=settings.upstream.data_set,
        )
        self._server = self._proxy()
        self._hindrance: str | None = STARTING

    def _proxy(self) -> Server:
        proxy, upstream = self._settings.proxy, self._settings.upstream
        return Server(
            Upstream(
                upstream.host,
                upstream.port,
                upstream.unix_socket,
                upstream.connect_timeout_s,
                upstream_tls(self._settings),
                _let_in_by_socket(self._settings),
            ),
            self.engine,
            self.planner,
            self.metrics,
            longway.Limits(
                max_statement_bytes=proxy.max_statement_bytes,
                max_entry_bytes=self._settings.cache.max_entry_bytes,
                login_timeout_s=proxy.login_timeout_s,
                keepalive_s=upstream.keepalive_s,
                straight=proxy.straight_path,
            ),
            max_connections=min(proxy.max_connections, files.most_sessions()),
            buffer_bytes=proxy.buffer_bytes,
            tls=client_tls(self._settings),
            make_good=self.service.make_good,
        )

    async def listen(self, shared_port: int | None = None) -> int:
        """Accepts clients from here on; returns the port. Raises: ConfigError.

        memcached being away is no reason not to. `shared_port` is one that other processes listen
        on, too.
        """
        await self.engine.start()
        await self.engine.agree()
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

    async def get_ready(self) -> None:
        """Returns when reads can be hits, or MySQL is found to be away: that is no reason not to
        start, either."""
        await self.planner.start()
        self._hindrance = None

    async def begin(self) -> None:
        """Gets ready to serve clients of this process, see `join`, without listening for others.

        Raises: ConfigError.
        """
        await self.engine.start()
        await self.engine.agree()
        await self.get_ready()

    async def join(self, sock: socket.socket) -> Session:
        """Serves a client of this process; see `Server.join`."""
        return await self._server.join(sock)

    async def stop(self) -> None:
        """Drains, then closes everything."""
        self._hindrance = DRAINING
        await self._server.drain(self._settings.proxy.drain_timeout_s)
        await self.planner.close()
        await self.engine.close()
        await self._cluster.close()
        self.service.close()

    def cut(self) -> None:
        """Ends the draining at once."""
        self._server.cut()

    async def turns(self) -> bool:
        """Whether the event loop turns: it is what answers this."""
        return True

    def routes(self) -> dict[str, Route]:
        """The admin door's pages."""
        return {"/live": health.live, "/ready": self._ready, "/metrics": self._metrics_page}

    async def _ready(self) -> Response:
        return health.ready(await self.readiness())

    async def readiness(self) -> Readiness:
        """What keeps this process from its work, and what is merely wrong."""
        if self._hindrance is not None:
            return Readiness({"sqlcache": self._hindrance})
        warnings = {f"memcached {name}": "is away" for name in self._cluster.away()}
        try:
            await self.service.check()
        except UpstreamError as error:
            return Readiness({"upstream": str(error)}, warnings)
        if self.planner.keeper.trouble is not None:
            warnings["catalog"] = self.planner.keeper.trouble
        if self.planner.keeper.lacks:
            warnings["grants"] = lacking(self.planner.keeper.lacks)
        return Readiness({}, warnings)

    def _metrics_page(self) -> Response:
        return Response(200, Metrics.merge([self.snapshot()]).render(), CONTENT_TYPE)

    def snapshot(self) -> Snapshot:
        """What this process counts, with what is only known when it is asked for."""
        self.metrics.workers = 1
        self.metrics.statements_bytes = self.planner.size_bytes + self.engine.tags_bytes
        self.metrics.memcached_nodes = len(self._cluster.nodes)
        self.metrics.memcached_nodes_away = len(self._cluster.away())
        return self.metrics.snapshot()


def _let_in_by_socket(settings: Settings) -> frozenset[bytes]:
    """Whom MySQL lets in by its Unix socket because this process has their name, or because it lets
    in sqlcache itself so."""
    upstream = settings.upstream
    if upstream.unix_socket is None:
        return frozenset()
    names = set() if upstream.read_password() else {upstream.user}
    with suppress(KeyError):
        names.add(pwd.getpwuid(os.geteuid()).pw_name)
    return frozenset(name.encode() for name in names)


def nodes_of(settings: Settings) -> list[Node]:
    """The nodes the settings name, connecting. Inside a running event loop."""
    memcached = settings.memcached
    if memcached.in_memory:
        return [MemoryNode("memory", max_bytes=settings.memory_bytes)]
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
        near_bytes=settings.near_bytes,
        tags_bytes=settings.statements_bytes // 8,
        max_item_bytes=settings.memcached.max_item_bytes,
        compress_over_bytes=cache.compress_over_bytes,
        refuse_writes=cache.when_tags_unreachable == "consistency",
    )
