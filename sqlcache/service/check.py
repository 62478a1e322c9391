"""Whether MySQL answers, and takes new logins: asked over a connection for what is answered at
once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from sqlcache.driver import aiomysql
from sqlcache.errors import UpstreamError
from sqlcache.patience import Patience
from sqlcache.service.own_logins import OwnLogins, close

_LOGIN_EVERY_S = 10.0
_PATIENCE_S = 1.0


class UpstreamCheck:
    """One process's. A check that takes longer than `timeout_s` has failed."""

    def __init__(self, logins: OwnLogins, timeout_s: float) -> None:
        self._logins = logins
        self._timeout_s = timeout_s
        self._connection: aiomysql.Connection | None = None
        self._since = -_LOGIN_EVERY_S
        self._one_at_a_time = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        self._unwell: UpstreamError | None = None

    async def check(self) -> None:
        """Each `_LOGIN_EVERY_S` by a whole login, else by a ping, and where that login has failed
        by what it came to. All who ask meanwhile share it. While it takes longer than `_PATIENCE_S`
        it is what the one before has come to, if there was one; or what other logins have met
        since, for that may be long ago. Raises: UpstreamError."""
        first = self._connection is None and self._unwell is None
        looking = self._looking
        if looking is None:
            looking = self._looking = asyncio.create_task(self._look())
        await asyncio.wait([looking], timeout=None if first else _PATIENCE_S)
        if looking.done() and not looking.cancelled():
            looking.result()  # else a fault of its own would pass for MySQL's health
        unwell = self._unwell or (self._logins.trouble if self._looking is not None else None)
        if unwell is not None:
            raise type(unwell)(str(unwell)) from unwell.__cause__

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
            had, since = self._connection, self._since
            try:
                async with self.asking() as connection:
                    await connection.ping(reconnect=False)
                return
            except UpstreamError as error:
                # That a connection has ended may be its own end alone.
                lost = had is not None and since == self._since
                if attempt or not lost or isinstance(error.__cause__, TimeoutError):
                    raise

    def _is_login_due(self) -> bool:
        return asyncio.get_running_loop().time() - self._since > _LOGIN_EVERY_S

    def logged_in(self) -> None:
        """Another login has succeeded: where the last check has not, the next is a login."""
        if self._unwell is not None:
            self._since = -_LOGIN_EVERY_S

    @contextlib.asynccontextmanager
    async def asking(self, since: float = 0.0) -> AsyncIterator[aiomysql.Connection]:
        """The connection, alone, made no earlier than `since`. One that failed is closed. Raises:
        UpstreamError."""
        async with self._one_at_a_time:
            if self._connection is None or self._since < since or self._is_login_due():
                self._close()
                self._since = asyncio.get_running_loop().time()
                self._connection = await self._logins.connect()
            try:
                with Patience(self._timeout_s):
                    yield self._connection
            except Exception as error:
                self._close()
                lost = UpstreamError(f"MySQL does not answer: {error!r}")
                self._logins.failed(lost)
                raise lost from error

    def end(self) -> None:
        """Looks no more, and ends the connection, if there is one."""
        if self._looking is not None:
            self._looking.cancel()
        self._close()

    def _close(self) -> None:
        close(self._connection)
        self._connection = None
