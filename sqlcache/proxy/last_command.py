"""What is noted of a session's last command, wherever it was answered."""

from sqlcache.cache.reads import Basis
from sqlcache.metrics import Metrics
from sqlcache.proxy.slow_reads import SlowReads
from sqlcache.statement_counts import UNCOUNTED, StatementCounts

_READ = "read"


class LastCommand:
    """See above. Times are on `perf_counter`'s clock."""

    __slots__ = ("_metrics", "_slow", "asked_at", "basis", "counts", "had_hits", "sent_at", "why")

    def __init__(self, metrics: Metrics, slow: SlowReads) -> None:
        self._metrics = metrics
        self._slow = slow
        self.counts = UNCOUNTED
        """Its row."""
        self.asked_at = 0.0
        """When it came."""
        self.sent_at = 0.0
        """When the last that was sent to MySQL was."""
        self.why = ""
        """Why it was, for people, unless it was for an answer to be stored."""
        self.basis: Basis | str = ""
        """Of an embedded client's last answer: see `EmbeddedSession.basis`."""
        self.had_hits = False
        """Whether the server has run nothing for the client since its last hit."""

    def went_past(self, counts: StatementCounts, reason: str, why: str) -> None:
        """MySQL is asked without the cache; `why` is for people what `reason` is for metrics."""
        self.basis, self.why = reason, why
        counts.went_past(self._metrics, reason, why)

    def note_time(self, counts: StatementCounts, schema: str | None, *, fills: bool) -> None:
        """MySQL has answered it, in a session with this default schema, and not by an error: in
        what it cannot read a word may be a literal without its quotes, and no shape would hide it.
        `fills`: it was a miss."""
        seconds = counts.seen_at - self.asked_at
        if fills:
            self._metrics.miss_seconds.observe(seconds)
        if seconds > self._slow.over_s and counts.kind == _READ:
            self._slow.tell(counts, seconds, schema, "miss" if fills else self.why)
