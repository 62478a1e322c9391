"""What sessions go by: settings, and what those of a process have in common."""

from dataclasses import dataclass, field

from sqlcache.proxy.kills import Kills
from sqlcache.proxy.room import Room
from sqlcache.proxy.slow_reads import SlowReads
from sqlcache.service.prober import Prober


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The same for all; bytes and seconds. The rooms are those of all sessions together, and `slow`
    tells of all their reads that take long."""

    max_statement_bytes: int
    max_entry_bytes: int
    login_timeout_s: float
    keepalive_s: float
    straight: bool
    slow: SlowReads
    verify_share: float
    """Of the hits, from 0 to 1: MySQL is asked as well."""
    shadow: bool
    """Nothing is served from the cache."""
    names_commits: bool
    """Whoever follows the binary log is to know commits of sessions again."""
    prober: Prober | None
    """Asks MySQL what rows are like that are written."""
    ahead: Room
    """For what is read from MySQL before its client takes it, see `Relay`."""
    for_entries: Room
    """For copies of answers that are to be stored, while they go by."""
    for_hits: Room
    """For what clients have not read of long hits: who reads nothing keeps no entry away."""
    for_transactions: Room
    """For what open transactions have read."""
    kills: Kills = field(default_factory=Kills)
    """Of all sessions."""
