"""Clients' logins that broke off: made good by logins of sqlcache's own, one after another."""

import asyncio
import logging
from dataclasses import dataclass

from sqlcache.driver import aiomysql
from sqlcache.errors import UpstreamError
from sqlcache.mysql.connection import Channel
from sqlcache.service.own_logins import OwnLogins, end

log = logging.getLogger(__name__)

_MOST_HELD = 32
"""Connections that wait for their turn: MySQL has not many more, by default 151."""
_ENDED_AT_ONCE = 5
"""Of more, as many are ended before a login, and made good by it: `max_connect_errors` is higher,
and once MySQL has counted so many it lets in nobody."""


@dataclass(eq=False, slots=True)
class _Broken:
    """`ended_after`: so many logins had begun when its connection was ended; None while MySQL has
    it, and has counted nothing."""

    connection: Channel
    ended_after: int | None


class BrokenLogins:
    """Those of one process. However many break off at once, its account has one connection for
    them."""

    def __init__(self, logins: OwnLogins) -> None:
        self._logins = logins
        self._one_at_a_time = asyncio.Lock()
        self._held: list[_Broken] = []
        self._begun = 0  # logins, in order
        self._succeeded = 0  # the last of these that has

    async def make_good(self, connection: Channel, *, greeted: bool) -> None:
        """See `Service.make_good`. One login is enough for all whose connections were ended before
        it."""
        broken = _Broken(connection, self._begun if connection.closed else None)
        self._held += [] if connection.closed else [broken]
        try:
            async with self._one_at_a_time:
                if broken.ended_after is None:
                    self._held.remove(broken)
                elif self._succeeded > broken.ended_after:
                    return
                self._end_some()
                held = broken.ended_after is None
                await self._log_in(connection, greeted=greeted and held)
        except (UpstreamError, aiomysql.MySQLError, OSError) as error:
            log.debug("a login that broke off not made good error=%s", error)
        finally:
            if broken in self._held:
                self._held.remove(broken)

    def _end_some(self) -> None:
        crowd = max(len(self._held) - _MOST_HELD, 0)
        for _ in range(min(crowd, _ENDED_AT_ONCE)):
            broken = self._held.pop()
            broken.connection.close()
            broken.ended_after = self._begun

    async def _log_in(self, connection: Channel, *, greeted: bool) -> None:
        self._begun += 1
        begun, on = self._begun, None
        if greeted and not connection.closed:
            on = connection.hand_over()
        else:
            connection.close()
        try:
            own = await self._logins.connect(on)
            self._succeeded = begun
            await end(own)
        finally:
            if on is not None:
                on[0].close()
