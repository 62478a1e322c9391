"""`Cache`: what an app reads and writes by.

The pool's connections are clients of proxy sessions inside this process, so planning, session
state, transactions, fences and leases are the proxy's own code. What is done here is the quick way
for a read that such a session has planned before: it is looked up in the engine under the context
of the pool's sessions, without a connection, and the stored packets are decoded as aiomysql would.
"""

import asyncio
import sys
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
)
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final, ParamSpec, Self, TypeVar, overload

from sqlcache.api.cached import CachedFunction, Options
from sqlcache.api.collect import Collected, collecting, reading, refuse_write
from sqlcache.api.fetches import Fetches
from sqlcache.api.flights import Flights
from sqlcache.api.misuse import (
    bound,
    check_cached,
    check_isolation,
    refuse_on_pool,
    refuse_what_is_left_open,
    tags_of,
)
from sqlcache.api.pool import Binder, Connection, Login, Pool, open_connection
from sqlcache.api.reads import Reads, gather
from sqlcache.api.rows import Params, Row, Rows, names_of
from sqlcache.api.store import Found, ValueStore, named
from sqlcache.api.transaction import Done, Isolation, Transaction, begin, run, run_many
from sqlcache.api.values import Codec
from sqlcache.app import App
from sqlcache.cache.reads import Basis
from sqlcache.cache.tags import Tag
from sqlcache.driver import aiomysql
from sqlcache.errors import ConfigError, UpstreamError, UsageError
from sqlcache.metrics import Metrics
from sqlcache.plan.contexts import Context
from sqlcache.plan.explanations import Explanation, explain
from sqlcache.plan.writeset import WriteSet
from sqlcache.process.forks import process
from sqlcache.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_NOT_OPEN: Final = "this cache is not open: use it inside `async with cache:`"


def _place_of(settings: Settings) -> object:
    """What tells where values are stored, by others, too; None for a store of the cache alone."""
    memcached = settings.memcached
    return None if memcached.in_memory else (frozenset(memcached.nodes), memcached.prefix)


class Cache(Fetches):
    """A pool of connections to MySQL, whose reads are answered from the cache where they can be.

    Open inside `async with`, which may be entered again later. Functions can be decorated before.
    It is used in the event loop in which it was opened, and in the process: in another one whatever
    it and its functions are asked for raises a UsageError. Where it was left open in an event loop
    that has ended, or in the process that this one was forked off, it can be opened again.
    """

    def __init__(
        self,
        settings: Settings,
        login: Login,
        *,
        pool_size: int,
        acquire_timeout_s: float,
        recycle_s: float,
    ) -> None:
        self._settings = settings
        self._login = login
        self._pool_size = pool_size
        self._acquire_timeout_s = acquire_timeout_s
        self._recycle_s = recycle_s
        self._place: object = _place_of(settings) or object()
        self._open: AsyncExitStack | None = None
        self._loop: asyncio.AbstractEventLoop
        self._process: object = None
        self._changes_in: tuple[object, asyncio.AbstractEventLoop] | None = None
        """Where it is being opened or closed: the process, the event loop."""
        self._app: App
        self._pool: Pool
        self._reads: Reads
        self.values: ValueStore | None = None
        self.flights: Flights[Found] = Flights()

        self._stand_in: Callable[[Settings], App] | None = None

    # Its life.

    def _make_app(self) -> App:
        if self._stand_in is not None:
            return self._stand_in(self._settings)
        return App(self._settings)

    @contextmanager
    def stand_in(self, app: Callable[[Settings], App]) -> Iterator[None]:
        """While this lasts, opening takes the parts from there; see `sqlcache.testing`."""
        self._stand_in = app
        try:
            yield
        finally:
            self._stand_in = None

    async def __aenter__(self) -> Self:
        if self._is_left_behind:
            self._open = None
        if self._open is not None:
            raise UsageError("this cache is open already")
        with self._changing():
            await self._begin()
        return self

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Around what opens or closes it, one at a time: its parts are there once."""
        where = self._changes_in
        if where is not None and where[0] is process() and not where[1].is_closed():
            raise UsageError("this cache is being opened or closed: wait for that")
        self._changes_in = process(), asyncio.get_running_loop()
        try:
            yield
        finally:
            self._changes_in = None

    async def _begin(self) -> None:
        async with AsyncExitStack() as stack:
            self._app = self._make_app()
            stack.push_async_callback(self._app.stop)
            await self._app.begin()
            self._pool = Pool(
                self._connect,
                size=self._pool_size,
                acquire_timeout_s=self._acquire_timeout_s,
                recycle_s=self._recycle_s,
            )
            self._reads = Reads(
                self._app.engine, self._app.planner, self._app.metrics, self._pool, self._place
            )
            stack.callback(self._pool.close)
            await self._pool.warm()
            await self._check_service()
            self.values = ValueStore(
                self._app.engine,
                self._app.planner,
                self._app.metrics,
                self._settings.max_entry_bytes,
                self._place,
            )
            self.flights = Flights()
            stack.push_async_callback(self._end_flights)
            self._loop = asyncio.get_running_loop()
            self._process = process()
            self._open = stack.pop_all()

    async def _check_service(self) -> None:
        """Raises: ConfigError where the catalog's account does not work, and nothing can be a
        hit."""
        try:
            await self._app.service.check()
        except UpstreamError as error:
            upstream = self._settings.upstream
            raise ConfigError(
                f"service_url: {upstream.user}@{upstream.url.address} cannot read the catalog,"
                f" without which nothing is cached: {error}"
            ) from error

    async def _end_flights(self) -> None:
        self.values = None
        await self.flights.close()

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends all connections, after writes under way are done and told of. Who is cancelled
        meanwhile, as by a timeout, waits no longer for those, and leaves nothing open, either."""
        if self._is_left_behind:  # then they have ended
            self._open = None
        if self._open is not None:
            self._check_loop()
        stack, self._open = self._open, None
        if stack is not None:
            with self._changing():
                await stack.aclose()

    @property
    def metrics(self) -> Metrics:
        """What this process has counted since the cache was opened."""
        if self._open is None:
            raise UsageError(_NOT_OPEN)
        return self._app.metrics

    @property
    def context(self) -> Context | None:
        """What the pool's sessions share; None while their reads cannot be hits."""
        if self._open is not None:
            self._check_loop()
        if self._open is None or self._reads.home is None or not self._app.planner.keeper.ready:
            return None
        return self._reads.home.context

    def _check_open(self) -> None:
        if self._open is None:
            raise UsageError(_NOT_OPEN)
        self._check_loop()

    @property
    def _is_left_behind(self) -> bool:
        """Whether it was left open where nobody can close it any more."""
        return self._open is not None and (self._process is not process() or self._loop.is_closed())

    def _check_loop(self) -> None:
        if self._is_left_behind:
            raise UsageError(
                "this cache was left open in an event loop that has ended, or before this process"
                " was forked off: open it here, with `async with cache:`"
            )
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError(
                "this cache was opened in another event loop, in which alone it can be used: open"
                " one in each, or hand over with asyncio.run_coroutine_threadsafe"
            )

    # Reads.

    @overload
    def iterate(self, sql: str, params: Params = None) -> AsyncIterator[Row]: ...
    @overload
    def iterate(
        self, sql: str, params: Params = None, *, into: type[dict[str, Any]]
    ) -> AsyncIterator[dict[str, Any]]: ...
    @overload
    def iterate(
        self, sql: str, params: Params = None, *, into: Callable[..., T]
    ) -> AsyncIterator[T]: ...
    async def iterate(
        self, sql: str, params: Params = None, *, into: Callable[..., Any] | None = None
    ) -> AsyncIterator[Any]:
        """The rows one by one as MySQL sends them: for results too long to hold. Never cached."""
        self._check_open()
        collected = collecting()
        if collected is not None:
            collected.cannot_follow("iterated over")
        try:
            async with self._pool.connection() as connection:
                await refuse_on_pool(self._app.planner, connection.session, sql)
                await connection.refuse_write(sql, params)
                connection.session.allow_hits(False)
                ended = False
                try:
                    cursor = await connection.cursor(aiomysql.SSCursor)
                    await cursor.execute(bound(cursor, sql, params))
                    names = names_of(connection._result)
                    while (row := await cursor.fetchone()) is not None:
                        yield row if into is None else Rows(names, ()).one(into, row)
                    await cursor.close()  # only now: it would read the rest
                    ended = True
                    await refuse_what_is_left_open(
                        self._app.planner, connection.session, connection.server_status, sql
                    )
                finally:
                    if ended:
                        connection.session.allow_hits(True)
                    else:
                        connection.close()
        except GeneratorExit:  # nobody wants the rest
            raise
        except BaseException:
            if collected is not None:
                collected.failed()
            raise

    async def _read(self, sql: str, params: Params) -> Rows:
        self._check_open()
        return await self._reads.rows(sql, params)

    # Writes.

    async def execute(self, sql: str, params: Params = None) -> Done:
        """Runs a statement by itself. Once this returns, no read returns what was before it.

        Raises: aiomysql.MySQLError; TimeoutError; UsageError inside of a cached function.
        """
        async with self._writing("cache.execute()") as connection:
            await refuse_on_pool(self._app.planner, connection.session, sql)
            done = await run(connection, sql, params)
            await refuse_what_is_left_open(
                self._app.planner, connection.session, connection.server_status, sql
            )
            return done

    async def executemany(self, sql: str, many: Iterable[Any]) -> int:
        """Runs a statement once for each of many parameters; returns the rows changed.

        An INSERT or REPLACE with VALUES is sent as few long statements. Each statement is by
        itself: where one fails, those before it stay. Raises: as `execute`.
        """
        async with self._writing("cache.executemany()") as connection:
            await refuse_on_pool(self._app.planner, connection.session, sql)
            changed = await run_many(connection, sql, many)
            await refuse_what_is_left_open(
                self._app.planner, connection.session, connection.server_status, sql
            )
            return changed

    @asynccontextmanager
    async def transaction(
        self, isolation: Isolation | None = None, *, read_only: bool = False
    ) -> AsyncIterator[Transaction]:
        """A transaction on a connection of its own: COMMIT at the end, ROLLBACK on an exception.

        What it wrote is invalidated around its COMMIT: reads through any door that begin after the
        `async with` see it. Raises: as `execute`.
        """
        check_isolation(isolation)
        async with self._writing("cache.transaction()") as connection:
            await begin(connection, isolation, read_only=read_only)
            transaction = Transaction(connection, self._app.planner)
            try:
                yield transaction
            except BaseException:
                await transaction.roll_back()
                raise
            await transaction.commit()

    @asynccontextmanager
    async def _writing(self, what: str) -> AsyncIterator[Connection]:
        self._check_open()
        refuse_write(what)
        async with self._pool.connection() as connection:
            yield connection

    # What becomes of a statement.

    async def explain(self, sql: str, params: Params = None) -> Explanation:
        """Whether the statement is cached, why, who decides it, and on what its answer depends; for
        a write, what it forgets. As a connection of the pool would send it, outside a transaction.

        It is not run; but the catalog is read anew. Raises: aiomysql.MySQLError; TimeoutError;
        UsageError for what is not one statement.
        """
        self._check_open()
        planner = self._app.planner
        await planner.keeper.refresh()
        async with self._pool.connection() as connection:
            await run(connection, "DO 0", None)  # after which the session knows its settings
            text = Binder(connection).text(sql, params)
            try:
                explained = await explain(planner, text, connection.session.state)
            except ConfigError as error:
                raise UsageError(str(error)) from None
        if len(explained) > 1:
            raise UsageError("several statements in one text are never cached: explain each alone")
        return explained[0]

    async def bump(self, *tables: str) -> None:
        """Forgets all that hangs on these tables, and on those that their triggers and foreign keys
        change: for changes made around every sqlcache. Names as `product` or `shop.product`.

        Raises: UsageError; CacheUnavailable under the policy `consistency`.
        """
        self._check_open()
        planner = self._app.planner
        names = named(planner, tables, self._login.database)
        engine, writes = self._app.engine, WriteSet(names)
        tags = planner.tagging.tags(writes)
        await engine.bump(tags, door="api")
        # Those that are told of by definitions which are to be read first may take their time.
        if more := await planner.tagging.tags_now(writes) - tags:
            await engine.bump(more, door="api")

    # Cached functions.

    def cached(
        self,
        ttl_s: int | None = None,
        tags: Iterable[str] = (),
        key: Callable[..., Any] | None = None,
        stale_while_revalidate_s: float = 0,
        version: int | str = 0,
        codec: Codec | None = None,
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], CachedFunction[P, R]]:
        """Keeps what an async function returns until something it read changes.

        What it reads with this cache's `fetch_*`, in itself and in all it awaits, gathers or
        spawns, it hangs on by itself. `tags` are tables it reads by other means, or any names that
        `bump` is called with. `ttl_s` is the value's longest life, by default `cache.ttl_s`.
        `key` gets the arguments and returns plain values that stand for them. `version`: another
        one forgets all values of the function. With `stale_while_revalidate_s`, while one caller
        runs the function after a write the others get the last value if it was stored less long
        ago. `codec`: how values are written, if not by the return annotation; see `PickleCodec`.

        Exceptions are not kept, None is. Each caller gets a value of its own, equal to what the
        function returned, and may change it.
        Raises: UsageError for generators and functions that are not async.
        """
        check_cached(ttl_s, key, stale_while_revalidate_s, codec)
        options = Options(
            ttl_s, tags_of(tags), key, stale_while_revalidate_s, version=version, codec=codec
        )
        frame = sys._getframe(1)
        names_around = None if frame.f_locals is frame.f_globals else frame.f_locals

        def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> CachedFunction[P, R]:
            return CachedFunction(self, function, options, names_around)

        return decorate

    async def forget(self, tag: Tag) -> None:
        """Gives one tag a new version."""
        self._check_open()
        await self._app.engine.bump([tag], door="api")

    # Connections.

    async def connection(self, *, client_flag: int = 0) -> Connection:
        """A connection of aiomysql outside of the pool, autocommit off, that is the caller's to
        close; what runs on it is cached and invalidates like all else, and the value of a cached
        function hangs on what that reads on it. For other libraries.

        `client_flag` are more of pymysql.constants.CLIENT. Raises: aiomysql.OperationalError.
        """
        self._check_open()
        with reading(collecting()):
            connection = await open_connection(
                self._login, self._app.join, autocommit=False, client_flag=client_flag
            )
        connection.gather, connection.lent_in = self.gather, collecting()
        return connection

    async def gather(self, collected: Collected, basis: Basis | str) -> None:
        """See `reads.gather`."""
        await gather(self._app.engine, self._place, collected, basis)

    @property
    def database(self) -> str | None:
        """The default schema of its connections."""
        return self._login.database

    async def _connect(self) -> Connection:
        return await open_connection(self._login, self._app.join, autocommit=True)
