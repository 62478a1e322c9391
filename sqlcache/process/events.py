"""What has happened lately, for who looks in later: the last log lines of this process.

Lines of `sqlcache` of level info and above are kept, whatever `log.level` is. They are bounded in
number and length; where there are too many, the oldest of the most frequent kind leaves, so that a
flood of one kind leaves what else there was.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

MOST: Final = 500
"""Events of a process, or in a list of several processes' ones."""
LONGEST: Final = 500
"""Characters of one."""

_OTHER = "process"
_KINDS: Final = (  # of parts by their names, or what these begin with: the first that fits
    ("sqlcache.plan.keeper", "catalog"),
    ("sqlcache.plan.readings", "catalog"),
    ("sqlcache.plan.server_watch", "catalog"),
    ("sqlcache.cache.node_watch", "node"),
    ("sqlcache.cache.roster", "node"),
    ("sqlcache.memcache", "node"),
    ("sqlcache.cache", "write"),
    ("sqlcache.binlog", "binlog"),
    ("sqlcache.operations", "cache"),
    ("sqlcache.process.reloading", "settings"),
    ("sqlcache.cli", "settings"),
    ("sqlcache.service", "upstream"),
    ("sqlcache.upstream_errors", "upstream"),
    ("sqlcache.proxy.admission", "login"),
    ("sqlcache.proxy.login", "login"),
    ("sqlcache.proxy", "session"),
)
_SELDOM_S = 10.0
_MOST_SAID = 100

Report = dict[str, Any]


def abridged(text: str, most: int) -> str:
    """The text; or where it has more characters, its begin and an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def kind_of(record: logging.LogRecord) -> str:
    """What a line is about: its call's `extra={"kind": …}`, or what its part mostly tells of."""
    given: str | None = getattr(record, "kind", None)
    name = record.name
    return given or next((kind for part, kind in _KINDS if name.startswith(part)), _OTHER)


class Events(logging.Handler):
    """Those of one process. `fields_of` gives a record's fields, first its `event`."""

    def __init__(self, fields_of: Callable[[logging.LogRecord], Mapping[str, Any]]) -> None:
        super().__init__(logging.INFO)
        self._fields_of = fields_of
        self._alone = threading.Lock()
        self._kept: dict[str, deque[tuple[float, str]]] = {}
        self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a record as an event."""
        try:
            text = self._told(record)
        except Exception:  # of a call that is wrong, at which the line itself is as good as it gets
            text = str(record.msg)
        text = abridged(text, LONGEST)
        with self._alone:
            self._kept.setdefault(kind_of(record), deque()).append((record.created, text))
            self._count += 1
            if self._count > MOST:
                max(self._kept.values(), key=len).popleft()
                self._count -= 1

    def _told(self, record: logging.LogRecord) -> str:
        fields = dict(self._fields_of(record))
        words = str(fields.pop("event"))
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields["error"] = type(error).__name__
        more = ", ".join(f"{key} {value}" for key, value in fields.items())
        return f"{words}: {more}" if more else words

    def report(self) -> list[Report]:
        """The events, the newest first."""
        with self._alone:
            kept = [(at, kind, text) for kind, some in self._kept.items() for at, text in some]
        now, pid = time.time(), os.getpid()
        return [
            {
                "at": datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")[:-6] + "Z",
                "s_ago": max(now - at, 0.0),
                "kind": kind,
                "event": text,
                "pid": pid,
            }
            for at, kind, text in sorted(kept, reverse=True)
        ]

    def forget(self) -> None:
        """Keeps none of them any more."""
        with self._alone:
            self._kept.clear()
            self._count = 0


def merged(reports: Iterable[Iterable[Report]]) -> list[Report]:
    """Those of several processes together, the newest first."""
    together = [each for report in reports for each in report]
    return sorted(together, key=lambda each: str(each["at"]), reverse=True)[:MOST]


class Seldom:
    """Whether something is to be told that may happen for each statement: once in a while."""

    def __init__(self, every_s: float = _SELDOM_S) -> None:
        self._every_s = every_s
        self._said_at: dict[str, float] = {}

    def says(self, what: str) -> bool:
        """Whether this was not said just before; then it is now."""
        now = time.monotonic()
        if now - self._said_at.get(what, float("-inf")) < self._every_s:
            return False
        if len(self._said_at) >= _MOST_SAID:
            self._said_at = {
                each: at for each, at in self._said_at.items() if now - at < self._every_s
            }
        if len(self._said_at) >= _MOST_SAID:
            return False
        self._said_at[what] = now
        return True
