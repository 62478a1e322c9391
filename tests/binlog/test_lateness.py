"""Whether writes made around sqlcache are seen in time, and what follows where they are not."""

import asyncio

import pytest

from sqlcache.binlog.lateness import Lateness
from sqlcache.metrics import Metrics


async def test_reads_go_past_the_cache_while_it_lags(caplog: pytest.LogCaptureFixture) -> None:
    told = list[bool]()
    metrics = Metrics()
    lateness = Lateness(metrics, 2.0, told.append)
    for lag_s, excused, lags in (
        (0.0, False, False),
        (2.5, False, True),
        (9.0, False, True),
        (9.0, True, False),
        (1.0, False, False),
    ):
        lateness.judge(lag_s, excused=excused)
        assert (told[-1], lateness.lags, metrics.binlog_lagging) == (lags, lags, int(lags))
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert said == ["binary log lags, writes made around sqlcache are seen late lag_s=2"]


async def test_nobody_has_followed_it_since_the_last_one_was_up_to_date(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 50.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now, raising=False)
    lateness = Lateness(Metrics(), 2.0, None)
    now = 60.0
    assert lateness.unfollowed_s == 10.0
    assert not lateness.was_followed
    lateness.followed(3.0)
    assert lateness.unfollowed_s == 3.0
    assert lateness.was_followed
