"""The settings of sessions."""

from dataclasses import dataclass, field

from sqlcache.proxy.room import Room
from sqlcache.proxy.slow_reads import SlowReads
from sqlcache.service.probes import Prober


@dataclass(frozen=True, slots=True)
class Limits:
    """Those of one; bytes and seconds. `slow` tells of reads that take long."""

    max_statement_bytes: int
    max_entry_bytes: int
    login_timeout_s: float
    keepalive_s: float
    straight: bool
    slow: SlowReads = field(default_factory=SlowReads)
    verify_share: float = 0
    """Of the hits, from 0 to 1: MySQL is asked as well."""
    shadow: bool = False
    """Nothing is served from the cache."""
    names_commits: bool = False
    """Whoever follows the binary log is to know commits of sessions again."""
    prober: Prober | None = None
    """Asks MySQL what rows are like that are written."""
    for_transactions: Room = field(default_factory=lambda: Room(0))
    """For what open transactions have read, of all sessions."""
