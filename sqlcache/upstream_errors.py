"""What MySQL does to the connections that sqlcache opens or has: counted by cause.

Two of its refusals are for an operator of MySQL to end, and what is to be done is in the log.
"""

import logging
from time import monotonic
from typing import Final

from sqlcache.metrics import Metrics
from sqlcache.mysql.constants import ER_CON_COUNT_ERROR, ER_HOST_IS_BLOCKED

log = logging.getLogger(__name__)

_SAID_EVERY_S: Final = 60.0
_REMEDIES: Final = {
    ER_CON_COUNT_ERROR: "it has no connection left: raise its max_connections, or lower"
    " proxy.max_connections",
    ER_HOST_IS_BLOCKED: "it refuses this host: FLUSH HOSTS there (or TRUNCATE"
    " performance_schema.host_cache) lets it in again, a higher max_connect_errors keeps it so",
}


class UpstreamErrors:
    """Counts in `sqlcache_upstream_errors_total`; one for a process, or a remedy is told twice."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._said_at: dict[int, float] = {}

    def refused(self, code: int) -> None:
        """MySQL said no to a connection, with this error; not to a client's password or rights."""
        cause = str(code)
        known = cause in self._metrics.upstream_errors
        self._metrics.upstream_errors[cause if known else "other"] += 1
        remedy, now = _REMEDIES.get(code), monotonic()
        if remedy is not None and now - self._said_at.get(code, -_SAID_EVERY_S) >= _SAID_EVERY_S:
            self._said_at[code] = now
            log.warning("MySQL refuses connections error=%d remedy=%s", code, remedy)

    def unreachable(self) -> None:
        """No connection could be opened, or none in time."""
        self._metrics.upstream_errors["unreachable"] += 1

    def lost(self) -> None:
        """MySQL has ended a client's connection, or the network has."""
        self._metrics.upstream_errors["lost"] += 1
