"""Asks MySQL what rows are like while a write's fence stands.

That is asked for each such write, so it has to be cheap: the questions go over a connection that is
kept, one behind the other, and answers come in their order. Whoever asks can do without an answer,
and is not made to wait for one: not for a login, nor for a lock.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

from sqlcache.driver import aiomysql
from sqlcache.metrics import Metrics
from sqlcache.patience import Patience
from sqlcache.service.pipeline import Done, Pipeline, Rows

log = logging.getLogger(__name__)

_LOGIN_S = 10.0
_FIRST_PAUSE_S = 1.0
_SLOW = 0.4  # of the time; MySQL ends what takes half of it
_LONGEST_PAUSE_S = 30.0
_ER_UNKNOWN_SYSTEM_VARIABLE = 1193


def session_for_probes(limit_s: float) -> list[str]:
    """What the session is set to, whatever the globals are and `init_connect` did. A server may not
    have all of these variables: then nothing is to be set."""
    ended_by_s = max(limit_s / 2, 0.001)
    return [
        # What is committed now, in each statement anew, also if it should be in a transaction.
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET autocommit = 1",
        # Statements are read, and values written, as they are meant: quotes, backslashes, CHAR
        # without its padding (PAD_CHAR_TO_FULL_LENGTH), '' that is not NULL.
        "SET sql_mode = ''",
        "SET NAMES utf8mb4",
        # Rows are those of now, not of a copy: neither history, nor MariaDB's own cache, nor an
        # engine that follows later.
        "SET system_versioning_asof = DEFAULT",
        "SET query_cache_type = OFF",
        "SET use_secondary_engine = OFF",
        # What waits holds up those behind it: it ends by itself, and the connection goes on. 0 is
        # not to wait at all; MySQL makes it 1, its least, so there the time of the whole counts.
        "SET lock_wait_timeout = 0",
        f"SET max_statement_time = {ended_by_s:.6f}",
        f"SET max_execution_time = {max(round(1000 * ended_by_s), 1)}",
    ]


class Prober:
    """Asks MySQL, under the service account, what rows are like while a write's fence stands.

    `connect` logs in. No answer takes longer than about `limit_s`.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[aiomysql.Connection]],
        metrics: Metrics,
        *,
        limit_s: float = 0.05,
    ) -> None:
        self._connect = connect
        self._metrics = metrics
        self._limit_s = limit_s
        self._pipeline: Pipeline | None = None
        self._opening: asyncio.Task[None] | None = None
        self._since = 0.0  # by the monotonic clock, as is what follows
        self._not_before = 0.0
        self._pause_s = 0.0
        self._closed = False

    def ask(self, statement: bytes, done: Done, *, peer: object = None) -> None:
        """Calls `done` in a later turn of the event loop, exactly once: with the rows that a short
        SELECT finds, committed ones as of some moment after this call; None where that could not be
        told in time, for whatever reason. Its text is in utf8mb4, and names schemas.

        `peer` is the address of the server whose rows they are, as the socket has it: after a
        failover sessions may be with another one than this connection.
        """
        now = time.monotonic()
        if self._pipeline is None:
            self._open()
        elif peer not in (None, self._pipeline.peer):
            if now - self._since > _LONGEST_PAUSE_S:
                self._pipeline.end()  # the next one may lead there
        elif now >= self._not_before and self._pipeline.ask(
            statement, partial(self._told, now, done)
        ):
            return
        self._metrics.probes["refused"] += 1
        asyncio.get_running_loop().call_soon(done, None)

    def _told(self, asked_at: float, done: Done, rows: Rows | None) -> None:
        """Who asks waits for no locks, one after the other, but for a moment now and then."""
        now = time.monotonic()
        if now - asked_at > self._limit_s * _SLOW:
            self._not_before = now + _FIRST_PAUSE_S
        done(rows)

    async def close(self) -> None:
        """Those that wait are told None, and so is who asks from here on."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._pipeline is not None:
            await self._pipeline.close()

    def _open(self) -> None:
        loop = asyncio.get_running_loop()
        if self._opening is None and not self._closed and time.monotonic() >= self._not_before:
            self._opening = loop.create_task(self._log_in())

    async def _log_in(self) -> None:
        try:
            with Patience(_LOGIN_S):
                connection = await self._connect()
                try:
                    for setting in session_for_probes(self._limit_s):
                        await _set(connection, setting)
                    self._pipeline = Pipeline(
                        connection, self._limit_s, self._metrics.probes, self._lost
                    )
                    self._since = time.monotonic()
                except BaseException:
                    connection.close()
                    raise
        except Exception as error:
            self._rest(error)
        finally:
            self._opening = None

    def _lost(self, error: Exception | None) -> None:
        """MySQL may end a connection, such as an idle one, and there is the next: not at once where
        that was of no use."""
        had_told = self._pipeline is not None and self._pipeline.has_told
        self._pipeline = None
        if time.monotonic() - self._since > _LONGEST_PAUSE_S:
            self._pause_s = 0.0
        if not self._closed and (error is not None or not had_told):
            self._rest(error)

    def _rest(self, error: Exception | None) -> None:
        if not self._pause_s:
            log.warning("MySQL is not asked what rows are like for a while error=%r", error)
        self._pause_s = min(2 * self._pause_s or _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._not_before = time.monotonic() + self._pause_s


async def _set(connection: aiomysql.Connection, setting: str) -> None:
    try:
        await connection.query(setting)
    except aiomysql.MySQLError as error:
        if error.args[0] != _ER_UNKNOWN_SYSTEM_VARIABLE:
            raise
