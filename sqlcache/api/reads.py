"""Reads: from the cache without a connection where they can be, else on a connection of the pool.

A statement that a session of the pool has planned is found by its packet, in the context all of
them share while nobody has changed them. It is looked up in the engine, and the stored packets are
decoded as aiomysql would. Everything else, a miss too, runs on a connection, whose session plans,
takes the lease and fills.

For a cached function around it, each answer tells which tags it hangs on, and the versions they had
before its query ran.
"""

import asyncio
from typing import NamedTuple

from sqlcache.api.collect import ELSEWHERE, Collected, collecting
from sqlcache.api.misuse import refuse_on_pool, refuse_what_is_left_open
from sqlcache.api.pool import Binder, Connection, Pool
from sqlcache.api.rows import Decoder, Params, Rows
from sqlcache.api.transaction import read as read_on
from sqlcache.cache.engine import Engine
from sqlcache.cache.outcomes import Hit, Miss
from sqlcache.cache.reads import Basis, Read
from sqlcache.metrics import Metrics
from sqlcache.plan.contexts import Context
from sqlcache.plan.planner import Planner


class Home(NamedTuple):
    """What the pool's sessions are like while nobody has changed them."""

    context: Context
    binder: Binder
    decoder: Decoder


class Foreseen(NamedTuple):
    """A read, and what a look-up of it has brought."""

    read: Read
    outcome: Miss


class Reads:
    """The reads of one pool."""

    def __init__(
        self, engine: Engine, planner: Planner, metrics: Metrics, pool: Pool, place: object
    ) -> None:
        """`place`: see `Collected`."""
        self._engine = engine
        self._place = place
        self._planner = planner
        self._metrics = metrics
        self._pool = pool
        self._running: dict[bytes, asyncio.Future[None]] = {}
        self.home: Home | None = None
        """None while reads cannot be hits."""
        pool.on_ready = self._learn_home

    def _learn_home(self, connection: Connection) -> None:
        if connection.home is None:
            self.home = None
        elif self.home is None or self.home.context is not connection.home:
            binder = Binder(connection)
            self.home = Home(connection.home, binder, Decoder(binder.connection))

    async def rows(self, sql: str, params: Params) -> Rows:
        """The rows of a statement. Raises: aiomysql.MySQLError; TimeoutError; UsageError."""
        collected = collecting()
        if collected is None:
            return await self._rows(sql, params)
        with collected.reading():
            rows = await self._rows(sql, params)
            await gather(self._engine, self._place, collected, rows.basis)
        return rows

    async def _rows(self, sql: str, params: Params) -> Rows:
        home = self.home if self._planner.keeper.ready else None
        packet = None if home is None else home.binder.packet(sql, params)
        if home is None or packet is None:
            return await self._ask(sql, params)
        got = await self._stored(home, packet)
        return got if isinstance(got, Rows) else await self._miss(home, packet, sql, params, got)

    async def _stored(self, home: Home, packet: bytes) -> Rows | Foreseen | None:
        """The stored answer to a planned statement, if it is current. One that will soon be too old
        is for one reader to fetch anew: that it is this one is a `Foreseen`."""
        read = home.context.read_for(packet)
        if read is None:
            return None
        outcome = await self._engine.look(read)
        if isinstance(outcome, Miss) and outcome.early:
            return Foreseen(read, outcome)
        if not isinstance(outcome, Hit):
            return None
        rows = home.decoder.rows(read, outcome)
        if rows is None:
            return None
        self._metrics.hits += 1
        self._metrics.near_hits += outcome.near
        self._metrics.window_hits += outcome.in_window
        return rows if collecting() is None else rows.on(read.basis_of(outcome))

    async def _miss(
        self, home: Home, packet: bytes, sql: str, params: Params, foreseen: Foreseen | None
    ) -> Rows:
        """Runs a statement; others that want the same wait once for its end, without holding a
        connection, and find it stored."""
        running = self._running.get(packet)
        if running is not None and not foreseen and home.context.read_for(packet) is not None:
            await asyncio.wait([running])
            got = await self._stored(home, packet)
            if isinstance(got, Rows):
                return got
            foreseen = got
        if packet in self._running:
            return await self._ask(sql, params, foreseen)
        ended = self._running[packet] = asyncio.get_running_loop().create_future()
        try:
            return await self._ask(sql, params, foreseen)
        finally:
            del self._running[packet]
            ended.set_result(None)

    async def _ask(self, sql: str, params: Params, foreseen: Foreseen | None = None) -> Rows:
        async with self._pool.connection() as connection:
            await refuse_on_pool(self._planner, connection.session, sql)
            await connection.refuse_write(sql, params)
            if foreseen is not None:
                connection.session.expect(*foreseen)
            rows = await read_on(connection, sql, params)
            await refuse_what_is_left_open(
                self._planner, connection.session, connection.server_status, sql
            )
            return rows


async def gather(engine: Engine, place: object, collected: Collected, basis: Basis | str) -> None:
    """An answer on this basis was read: the value hangs on the same, and lives no longer than that
    still does, where a rule bounds it."""
    if collected.place != place:
        collected.cannot_follow(ELSEWHERE)
        return
    usual_ttl_s = engine.limits.ttl_s
    if not isinstance(basis, str) and basis.read.freshness.ttl_s < usual_ttl_s:
        collected.ends_within(await engine.left_s(basis.read))
    collected.read_on(basis, usual_ttl_s)
