"""Whether writes made around sqlcache are seen in time, whoever follows the log."""

import asyncio
import logging
from collections.abc import Callable

from sqlcache.metrics import Metrics

log = logging.getLogger(__name__)


class Lateness:
    """As one process knows it. `bypass` is told whether reads are to go past the cache."""

    def __init__(
        self, metrics: Metrics, max_lag_s: float, bypass: Callable[[bool], None] | None
    ) -> None:
        self._metrics = metrics
        self._max_lag_s = max_lag_s
        self._bypass = bypass
        self._loop = asyncio.get_running_loop()
        self._followed_at = self._loop.time()  # by anyone, last
        self.was_followed = False
        """Whether anyone has followed the log."""
        self.lags = False

    @property
    def unfollowed_s(self) -> float:
        """How long nobody has followed the log, as far as is known."""
        return self._loop.time() - self._followed_at

    def followed(self, lag_s: float) -> None:
        """Somebody follows it, so far behind."""
        self._followed_at = self._loop.time() - lag_s
        self.was_followed = True

    def judge(self, lag_s: float, *, excused: bool) -> None:
        """They are seen so late. `excused`: that is as it is to be, and reads go on."""
        lags = lag_s > self._max_lag_s and not excused
        if lags and not self.lags:
            log.warning(
                "binary log lags, writes made around sqlcache are seen late lag_s=%d", int(lag_s)
            )
        elif self.lags and not lags:
            log.info("binary log lags no more")
        self.lags = lags
        self._metrics.binlog_lagging = int(lags)
        if self._bypass is not None:
            self._bypass(lags)
