"""What MySQL does to the connections that sqlcache opens or has: counted by cause.

Some of its refusals are for an operator of MySQL to end, and what is to be done is in the log.
Lines that each client would make are there once a minute.
"""

import logging
from typing import Final

from sqlcache.metrics import Metrics
from sqlcache.mysql.constants import ER_CON_COUNT_ERROR, ER_HOST_IS_BLOCKED, MOST_OF_ACCOUNT
from sqlcache.process.events import Seldom

log = logging.getLogger(__name__)

_SAID_EVERY_S: Final = 60.0
_OF_THE_ACCOUNT: Final = (
    "the account of upstream.url may have no more: raise its MAX_USER_CONNECTIONS, or the server's"
    " max_user_connections, to what sqlcache's own connections take"
)
_REMEDIES: Final = {
    ER_CON_COUNT_ERROR: "it has no connection left: raise its max_connections, or lower"
    " proxy.max_connections",
    ER_HOST_IS_BLOCKED: "it refuses this host: FLUSH HOSTS there (or TRUNCATE"
    " performance_schema.host_cache) lets it in again, a higher max_connect_errors keeps it so",
    **dict.fromkeys(MOST_OF_ACCOUNT, _OF_THE_ACCOUNT),
}


class UpstreamErrors:
    """Counts in `sqlcache_upstream_errors_total`; one for a process, or a remedy is told twice."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._seldom = Seldom(_SAID_EVERY_S)

    def refused(self, code: int) -> None:
        """MySQL said no to a connection, with this error; not to a client's password or rights."""
        cause = str(code)
        known = cause in self._metrics.upstream_errors
        self._metrics.upstream_errors[cause if known else "other"] += 1
        remedy = _REMEDIES.get(code)
        if remedy is not None and self._seldom.says(remedy):
            log.warning("MySQL refuses connections error=%d remedy=%s", code, remedy)

    def unreachable(self) -> None:
        """No connection could be opened, or none in time."""
        self._metrics.upstream_errors["unreachable"] += 1

    def unreachable_for_client(self, error: OSError) -> None:
        """The same, of a connection for a client."""
        self.unreachable()
        why = str(error) or "timeout"
        if self._seldom.says(why):
            log.warning("upstream not reached error=%s", why)

    def lost(self) -> None:
        """MySQL has ended a client's connection, or the network has."""
        self._metrics.upstream_errors["lost"] += 1
