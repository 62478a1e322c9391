"""`sqlcache explain --admin`: what a running sqlcache makes of a statement, with the catalog
and the rules that it has at work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlcache.admin.client import AdminClient
from sqlcache.commands.terminal import printable_lines
from sqlcache.errors import ConfigError
from sqlcache.plan.explanations import Explanation, Key
from sqlcache.settings import Settings
from sqlcache.sql.policy import Chosen


def run(settings: Settings, text: str, schema: str | None, user: str) -> int:
    """Prints the explanation; returns the process's exit code.

    Raises: ConfigError where nobody answers, and for what is refused.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError("the statement is not UTF-8, which JSON alone can hold") from None
    about = {"sql": text, "user": user} | ({"schema": schema} if schema else {})
    for said in AdminClient(settings).post("/api/explain", about, says=list):
        print(printable_lines(str(explanation(said))))
    return 0


def explanation(said: Mapping[str, Any]) -> Explanation:
    """One that `/api/explain` told as JSON."""
    given: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in said.items()
    }
    del given["cached"]  # it follows from the others
    for name in ("ttl", "max_staleness", "stale_while_revalidate"):
        given[name] = given[name] and Chosen(*given[name])
    given["key"] = given["key"] and Key(**given["key"])
    return Explanation(**given)
