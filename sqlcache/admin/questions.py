"""What the admin door asks of the processes that serve: of its own, or of several workers."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from sqlcache.admin.health import Readiness
from sqlcache.metrics import Metrics
from sqlcache.settings import Settings


class Question(StrEnum):
    """What each process answers; some change what it does from then on."""

    METRICS = "metrics"
    READINESS = "readiness"
    TURNS = "turns"
    DRAIN = "drain"
    CUT = "cut"
    STATEMENTS = "statements"
    TABLES = "tables"
    SESSIONS = "sessions"
    EVENTS = "events"
    NODES = "nodes"
    EXPLAIN = "explain"
    FLUSH = "flush"
    ENABLE = "enable"
    USE = "use"
    """With settings: to go by them from here on. The answer is what is wrong with them, or ""."""


@dataclass(frozen=True, slots=True)
class Refused:
    """What is answered in place of what was asked for: an HTTP status, and a sentence."""

    status: int
    sentence: str


class Configured(Protocol):
    """The settings of one `serve`."""

    @property
    def settings(self) -> Settings:
        """Those that it goes by now."""

    async def reload(self) -> list[tuple[str, bool]]:
        """Reads them again: the path of each that differs, and whether it applies already. Raises:
        ConfigError."""


class Operated(Protocol):
    """All processes of one `serve`."""

    async def readiness(self) -> Readiness:
        """Whether clients are served."""

    async def counted(self) -> Metrics:
        """What they have counted together."""

    async def ask(self, question: Question, *about: Any) -> list[Any]:
        """The answers of those that answer, of each its own."""

    async def ask_one(self, question: Question, *about: Any) -> list[Any]:
        """The answer of the first that answers; none where none does."""
