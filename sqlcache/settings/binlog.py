"""`[binlog]`: whether the log is followed, and what holds while that lags."""

from typing import Literal

from pydantic import Field

from sqlcache.settings.section import Section
from sqlcache.settings.values import Seconds


class BinlogSettings(Section):
    """Writes made around sqlcache: MySQL's binary log tells of them. See [binlog.md](binlog.md)."""

    follow: Literal["off", "auto", "on"] = Field(
        default="auto",
        description="Whether one of all sqlcaches with the same memcached nodes reads the log as a"
        " replica does. `auto`: if the account of `upstream.url` and the server allow it, and a"
        " warning in the log says so where they do not; `on`: that they do not counts as lagging.",
    )
    max_lag_s: Seconds = Field(
        default=10.0,
        description="Who follows the log lags when it is so far behind, or when nobody has followed"
        " it for so long.",
    )
    when_lagging: Literal["serve", "bypass"] = Field(
        default="serve",
        description="Meanwhile: `serve` answers from the cache, `bypass` has MySQL answer all"
        " reads.",
    )
    catch_up_s: Seconds = Field(
        default=30.0,
        description="A process that starts uses what memcached remembers once the log has been"
        " read up to its end; what is not so far after that time is forgotten.",
    )
