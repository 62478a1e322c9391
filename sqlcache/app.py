"""Builds the parts from the settings, starts them in order and stops them in reverse.

The only place where parts meet: everything else is given what it works with.
"""

import os
import pwd
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from inspect import isawaitable
from typing import Any

from sqlcache.admin.health import DRAINING, STARTING, Readiness
from sqlcache.admin.questions import Question
from sqlcache.binlog.effects import Effects
from sqlcache.binlog.follower import Follower
from sqlcache.binlog.turns import Turns
from sqlcache.cache import engine
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.seals import Seal
from sqlcache.errors import AccountRefused, UpstreamError, cannot_listen
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.connection import Node, NodeConnection
from sqlcache.memcache.health import LONG_ANSWERS_PER_OUTAGE
from sqlcache.memcache.memory import MemoryNode
from sqlcache.metrics import Metrics, Snapshot
from sqlcache.operations import Operations
from sqlcache.plan.planner import Planner
from sqlcache.plan.server_watch import REWRITES, lacking
from sqlcache.process import logs, open_files
from sqlcache.process.ports import open_sockets
from sqlcache.process.seats import Seats
from sqlcache.process.usage import LoopLag, measure
from sqlcache.proxy.admission import Admission
from sqlcache.proxy.embedded_session import EmbeddedSession
from sqlcache.proxy.room import Room
from sqlcache.proxy.server import Server, Upstream
from sqlcache.proxy.session_options import SessionOptions
from sqlcache.proxy.slow_reads import SlowReads
from sqlcache.rules import policy_of
from sqlcache.service.connection import Service, ServiceConnection
from sqlcache.service.prober import Prober
from sqlcache.settings import Settings
from sqlcache.tls import client_tls, upstream_tls
from sqlcache.upstream_errors import UpstreamErrors

_PROVEN_SOON_S = 5.0
_ITEM_OVERHEAD_BYTES = 512  # of an item, beside its value: its key, and what tells of it
_LEAST_ITEM_BYTES = 1 << 20  # memcached's own limit by default, for items that are no answers
_AHEAD_BYTES = 64 << 20  # of answers that others wait for
_OUTAGE_IN_MEMORY_S = 60.0
"""The embedded store cannot be away, and a pause of the process is not to be taken for that. But it
may forget what is looked at eight times in an outage, where all its memory is in use; half of one
later it is used again."""


class App:
    """One process's parts. `service` stands for the connection of sqlcache's own. `seats` are those
    for clients, where other processes have them in common with this one; `certificate` is shown to
    clients where the settings have none."""

    def __init__(
        self,
        settings: Settings,
        service: "Service | None" = None,
        *,
        seats: Seats | None = None,
        certificate: bytes | None = None,
    ) -> None:
        self._settings = settings
        self.metrics = Metrics()
        errors = UpstreamErrors(self.metrics)
        self.service: Service = service or ServiceConnection(settings, self.metrics, errors)
        self._cluster = _cluster(settings, self.metrics)
        self._lag = LoopLag(self.metrics.loop_lag_seconds)
        seal = Seal(self.metrics, settings.memcached.read_secret())
        keyspace = Keyspace(settings.memcached.prefix, seal.name)
        self.engine = engine.Engine(
            self._cluster,
            keyspace,
            _engine_limits(settings),
            self.metrics,
            seal=seal,
        )
        self.planner = Planner(
            self.engine,
            self.service,
            self.metrics,
            max_bytes=settings.statements_bytes - settings.statements_bytes // 8,
            refresh_s=settings.upstream.catalog_refresh_s,
            enabled=settings.cache.mode != "off",
            policy=policy_of(settings),
            data_set=settings.upstream.data_set,
            pins_reads=settings.cache.row_tags,
        )
        self._prober: Prober | None = None
        if settings.cache.row_tags:
            self._prober = Prober(self.service.connect, self.metrics)
        self._certificate = certificate
        self._slow = SlowReads(settings.log.slow_miss_ms)
        self.operations = Operations(settings, self._cluster, self.engine, self.planner)
        self._server = self._proxy(seats or Seats(), errors)
        self._follower = self._binlog(keyspace)
        if self._follower is not None:
            self.engine.prove_nodes_by(self._follower.proofs)
        self._hindrance: str | None = STARTING

    def _binlog(self, keyspace: Keyspace) -> Follower | None:
        binlog = self._settings.binlog
        if binlog.follow == "off":
            return None
        return Follower(
            self.service.connect,
            Effects(self.engine, self.planner, self.metrics),
            Turns(self._cluster, keyspace),
            self.engine,
            self.metrics,
            mode=binlog.follow,
            max_lag_s=binlog.max_lag_s,
            catch_up_s=binlog.catch_up_s,
            longest_bytes=self._settings.proxy.max_statement_bytes,
            stand_in=self._settings.upstream.data_set is not None,
            bypass=self.planner.hold_up if binlog.when_lagging == "bypass" else None,
        )

    def _proxy(self, seats: Seats, errors: UpstreamErrors) -> Server:
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
            SessionOptions(
                max_statement_bytes=proxy.max_statement_bytes,
                max_entry_bytes=self._settings.max_entry_bytes,
                login_timeout_s=proxy.login_timeout_s,
                keepalive_s=upstream.keepalive_s,
                straight=proxy.straight_path,
                slow=self._slow,
                verify_share=self._settings.cache.verify_percent / 100,
                shadow=self._settings.cache.mode == "shadow",
                names_commits=self._settings.binlog.follow != "off",
                prober=self._prober,
                ahead=Room(_AHEAD_BYTES),
                for_entries=Room(self._settings.kept_bytes // 2),
                for_hits=Room(self._settings.kept_bytes // 2),
                for_transactions=Room(self._settings.transactions_bytes),
            ),
            admission=Admission(
                seats,
                self.metrics,
                most=proxy.max_connections,
                most_here=open_files.most_sessions(),
                most_per_user=proxy.max_connections_per_user,
            ),
            errors=errors,
            idle_timeout_s=proxy.idle_timeout_s,
            buffer_bytes=proxy.buffer_bytes,
            tls=client_tls(self._settings, self._certificate),
            make_good=self.service.make_good,
        )

    async def listen(self, sockets: Sequence[socket.socket] = ()) -> int:
        """Accepts clients from here on; returns the port. Raises: ConfigError.

        memcached being away is no reason not to. `sockets` are bound ones, which are its own from
        here on; by default it opens them itself.
        """
        await self._start()
        listen = self._settings.proxy.listen
        try:
            return self._server.listen(sockets or open_sockets(listen))
        except OSError as error:
            raise cannot_listen("proxy.listen", listen, error) from None

    async def get_ready(self) -> None:
        """Returns when reads can be hits, or MySQL is found to be away: that is no reason not to
        start, either."""
        await self.planner.start()
        if self._follower is not None:
            await self._follower.start()
            if self.planner.keeper.trouble is None:
                await self.engine.proven(_PROVEN_SOON_S)
        self._hindrance = None

    async def begin(self) -> None:
        """Gets ready to serve clients of this process, see `join`, without listening for others.
        In shadow mode they have no cache: what they make of answers is not to be compared.

        Raises: ConfigError.
        """
        self.planner.enable(self._settings.cache.mode == "on")
        await self._start()
        await self.get_ready()

    async def _start(self) -> None:
        self._lag.start()
        await self.engine.start()
        await self.engine.agree()

    async def attend(self) -> None:
        """Takes part among those that share the nodes, and serves nobody. Raises: ConfigError."""
        await self._start()

    async def join(self, sock: socket.socket) -> EmbeddedSession:
        """Serves a client of this process; see `Server.join`."""
        return await self._server.join(sock)

    async def stop(self) -> None:
        """Drains, then closes everything. Who is cancelled meanwhile ends the draining at once."""
        self._hindrance = DRAINING
        self._lag.stop()
        async with AsyncExitStack() as rest:  # in reverse, whatever becomes of each
            rest.callback(self.service.close)
            rest.push_async_callback(self._cluster.close)
            rest.push_async_callback(self.engine.close)
            rest.push_async_callback(self.planner.close)
            if self._follower is not None:
                rest.push_async_callback(self._follower.close)
            if self._prober is not None:
                rest.push_async_callback(self._prober.close)
            await self._server.drain(self._settings.proxy.drain_timeout_s)

    def cut(self) -> None:
        """Ends the draining at once."""
        self._server.sessions.cut()

    async def turns(self) -> bool:
        """Whether the event loop turns: it is what answers this."""
        return True

    def answers(self) -> Mapping[Question, Callable[..., Any]]:
        """What answers the admin door's questions; what it returns may be to be awaited."""
        return {
            Question.METRICS: self.snapshot,
            Question.READINESS: self.readiness,
            Question.TURNS: self.turns,
            Question.STATEMENTS: self.planner.statements.report,
            Question.TABLES: self.engine.tables.report,
            Question.SESSIONS: self._server.sessions.report,
            Question.EVENTS: logs.EVENTS.report,
            Question.NODES: self.operations.nodes,
            Question.EXPLAIN: self.operations.explain,
            Question.FLUSH: self.operations.flush,
            Question.ENABLE: self.operations.enable,
        }

    async def use(self, settings: Settings) -> None:
        """Goes by the rules and the TLS of these settings from here on; the others must be those it
        has. Sessions that there are keep their connections. Raises: ConfigError, before anything
        has changed."""
        policy, offered = policy_of(settings), client_tls(settings, self._certificate)
        spoken = upstream_tls(settings)
        if settings.rules != self._settings.rules:
            self.planner.use(policy)
        self._slow.use(settings.log.slow_miss_ms)
        self._server.use_tls(offered, spoken)
        self.service.use_tls(spoken)
        self._settings = settings

    async def ask(self, question: Question, *about: Any) -> list[Any]:
        """The answer of this process, the only one."""
        made = self.answers()[question](*about)
        return [await made if isawaitable(made) else made]

    async def ask_one(self, question: Question, *about: Any) -> list[Any]:
        """The same."""
        return await self.ask(question, *about)

    async def readiness(self) -> Readiness:
        """What keeps this process from its work, and what is merely wrong."""
        if self._hindrance is not None:
            return Readiness({"sqlcache": self._hindrance})
        warnings = {
            f"memcached {name}": "is away, or not trusted yet" for name in self._cluster.away()
        }
        if self.engine.at_odds:
            warnings["nodes"] = self.engine.at_odds
        try:
            await self.service.check()
        except AccountRefused as error:
            warnings["account"] = str(error)
        except UpstreamError as error:
            return Readiness({"upstream": str(error)}, warnings)
        if self.planner.keeper.trouble is not None:
            warnings["catalog"] = self.planner.keeper.trouble
        if self.planner.keeper.lacks:
            warnings["grants"] = lacking(self.planner.keeper.lacks)
        if self.planner.keeper.is_rewritten:
            warnings["rewriter"] = REWRITES
        if self._follower is not None and self._follower.warning:
            warnings["binlog"] = self._follower.warning
        return Readiness({}, warnings)

    async def counted(self) -> Metrics:
        """What this process has counted."""
        return Metrics.merge([self.snapshot()])

    def snapshot(self) -> Snapshot:
        """What this process counts, with what is only known when it is asked for."""
        self.metrics.workers = 1
        self.metrics.cache_on = int(self.planner.keeper.enabled)
        self.metrics.statements_bytes = self.planner.size_bytes + self.engine.tags_bytes
        self.metrics.memcached_nodes = len(self._cluster.nodes)
        away = self._cluster.away()
        self.metrics.memcached_nodes_away = len(away)
        for name in self._cluster.nodes:
            self.metrics.memcached_node_away[name] = int(name in away)
        measure(self.metrics)
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


def nodes_of(settings: Settings, metrics: Metrics | None = None) -> list[Node]:
    """The nodes the settings name, connecting, which count how long their answers took, and the
    connections that were lost. Inside a running event loop."""
    memcached, metrics = settings.memcached, metrics or Metrics()
    if memcached.in_memory:
        largest = max(memcached.max_item_bytes + _ITEM_OVERHEAD_BYTES, _LEAST_ITEM_BYTES)
        return [MemoryNode("memory", max_bytes=settings.memory_bytes, max_item_bytes=largest)]
    return [
        NodeConnection(
            str(address),
            address.host,
            address.port,
            timeout_s=memcached.timeout_s,
            longest_s=memcached.outage_s / LONG_ANSWERS_PER_OUTAGE,
            connect_timeout_s=memcached.connect_timeout_s,
            reconnect_min_s=memcached.reconnect_min_s,
            reconnect_max_s=memcached.reconnect_max_s,
            round_trips=metrics.memcached_seconds,
            lost=metrics.memcached_node_connections_lost,
        )
        for address in memcached.addresses
    ]


def _cluster(settings: Settings, metrics: Metrics) -> Cluster:
    memcached = settings.memcached
    nodes = nodes_of(settings, metrics)
    if memcached.in_memory:
        return Cluster(nodes, outage_s=_OUTAGE_IN_MEMORY_S, reach_s=0)
    reach_s = memcached.reconnect_max_s + memcached.connect_timeout_s
    return Cluster(nodes, outage_s=memcached.outage_s, reach_s=reach_s)


def _engine_limits(settings: Settings) -> engine.Limits:
    cache = settings.cache
    return engine.Limits(
        ttl_s=cache.ttl_s,
        lease_ttl_s=cache.lease_ttl_s,
        # Who is served nothing is not to wait for it.
        lease_wait_s=0 if cache.mode == "shadow" else cache.lease_wait_s,
        write_deadline_s=cache.write_deadline_s,
        near_bytes=settings.near_bytes,
        tags_bytes=settings.statements_bytes // 8,
        max_item_bytes=settings.memcached.max_item_bytes,
        compress_over_bytes=cache.compress_over_bytes,
        read_lease_s=0 if settings.memcached.in_memory else cache.read_lease_ms / 1000,
        row_tags=cache.row_tags,
        skip_unhit_stores=cache.skip_unhit_stores,
        refuse_writes=cache.when_tags_unreachable == "consistency",
    )
