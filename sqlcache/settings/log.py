"""`[log]`: which lines are written, and in which form."""

from typing import Literal

from pydantic import Field

from sqlcache.settings.section import Section
from sqlcache.settings.values import DAY_S


class LogSettings(Section):
    """Log lines, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least important kind of line that is written."
    )
    format: Literal["logfmt", "json"] = Field(
        default="logfmt",
        description="What a line is: `key=value` with quotes where they are needed, or a JSON"
        " object.",
    )
    slow_miss_ms: float = Field(
        default=0,
        ge=0,
        le=DAY_S * 1000,
        description="Reads that MySQL answers, because they were missed or cannot be cached, have a"
        " line where they took longer: their shape, without literals, time, schema and reason. At"
        " most 10 lines a second in each process. 0 is none.",
    )
