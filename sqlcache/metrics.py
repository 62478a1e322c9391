"""Every metric, declared once: `Metrics` is the list of them, with their kind, unit and help, what
is normal, and what to do where it is not so. docs/metrics.md is made from it.

- Counting is an attribute: `metrics.hits += 1`, `metrics.bypasses["transaction"] += 1`. Nothing
  else happens until somebody asks.
- A process has one `Metrics`. Those of several processes are summed, gauges too, from snapshots.
- Names for Prometheus come from the attribute: `hits` is `sqlcache_hits_total`. Those that begin
  with `process_` are as Prometheus' own libraries name them.
"""

# ruff: noqa: RUF009 - the kinds wrap `dataclasses.field`, so no instance shares its value

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sqlcache import __version__
from sqlcache.implementation import IMPLEMENTATION
from sqlcache.metric_kinds import (
    Declaration,
    Histogram,
    counter,
    counter_by,
    gauge,
    gauge_by,
    histogram,
)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Snapshot = dict[str, int | float | dict[str, Any]]

_BUILD: Final = (
    "# HELP sqlcache_build_info The running version, and whether its kernel is compiled or pure"
    " Python.\n# TYPE sqlcache_build_info gauge\n"
    f'sqlcache_build_info{{kernel="{IMPLEMENTATION}",version="{__version__}"}} 1\n'
)

_AS_LOAD = "as the load is"
_NOTHING = "nothing: it is there to be compared with"
_SEE_MEMCACHED = "see to memcached and the network to it"


@dataclasses.dataclass(slots=True)
class Metrics:
    """What one process has counted since it started."""

    # Reads and what became of them.

    hits: int = counter(
        "reads",
        "Reads answered from the cache.",
        "most of all reads",
        "look at the reasons of sqlcache_bypasses_total, and at what is missed",
    )
    misses: int = counter(
        "reads",
        "Reads whose answer was not there, or not current: MySQL was asked, for it to be stored.",
        "few beside the hits",
        "look at invalidations and evictions, and for texts that never repeat",
    )
    bypasses: collections.Counter[str] = counter_by(
        "reason",
        "statements",
        "Statements, writes among them, that MySQL answered without their answer being for"
        " the cache, by why.",
        "what the app writes, and reads that cannot be cached",
        "[what each reason means](caching-rules.md#the-reasons-in-the-metrics); `/api/statements`"
        " has that of each statement",
    )
    passed: collections.Counter[str] = counter_by(
        "kind",
        "statements",
        "The same statements, by what they are; all reads are these, the hits and the misses.",
        _AS_LOAD,
        "as for sqlcache_bypasses_total",
        (
            "read",
            "write",
            "ddl",
            "transaction",
            "session",
            "other",
            "unknown",
        ),
    )
    hit_seconds: Histogram = histogram(
        "From a client's read's arrival to its answer's sending, of those answered from the cache.",
        "below 1 ms, but for those that waited for another client's fill",
        "look at the process's CPU, sqlcache_loop_lag_seconds and sqlcache_memcached_seconds",
    )
    miss_seconds: Histogram = histogram(
        "From a client's read's arrival to the end of its answer, of those that filled the cache.",
        "a little above what MySQL takes",
        "`log.slow_miss_ms` names the slow ones; make them faster in MySQL",
    )
    seals_broken: int = counter(
        "items",
        "Items of entries in memcached that nobody with `memcached.secret` has stored: not served.",
        "0",
        "see [SqlcacheSealsBroken](operations.md#sqlcachesealsbroken)",
    )
    near_hits: int = counter(
        "hits",
        "Hits whose entry was in the process already.",
        "most hits",
        "raise `cache.near_bytes`, if there is memory",
    )
    window_hits: int = counter(
        "hits",
        "Hits within a read lease: memcached was not asked.",
        "most hits of what is seldom written",
        _NOTHING,
    )
    windows_opened: int = counter(
        "read leases",
        "Read leases that began, or were prolonged.",
        _AS_LOAD,
        _NOTHING,
    )
    lease_waits: int = counter(
        "reads",
        "Reads that waited for another's fill of the same key.",
        "few beside the hits",
        "the queries they wait for are slow: see sqlcache_miss_seconds",
    )
    lease_timeouts: int = counter(
        "reads",
        "Such waits that were given up: MySQL was asked as well.",
        "0",
        "see [SqlcacheLeaseTimeouts](operations.md#sqlcacheleasetimeouts)",
    )
    early_refreshes: int = counter(
        "reads",
        "Entries fetched anew before their time, by one client.",
        _AS_LOAD,
        _NOTHING,
    )
    stale_serves: int = counter(
        "reads",
        "Reads, and calls of Python functions, that were allowed to have the last answer"
        " while the next one was fetched.",
        "0 without such a rule",
        _NOTHING,
    )
    verified: collections.Counter[str] = counter_by(
        "result",
        "reads",
        "What would have been hits, had MySQL not been asked to compare its answer with the stored"
        " one, by how they compare: what is different was wrong; overtaken by a write is not.",
        "none different; all 0 without shadow mode and `cache.verify_percent`",
        "see [SqlcacheAnswersDifferent](operations.md#sqlcacheanswersdifferent)",
        ("same", "different", "overtaken", "not comparable"),
    )
    shadow_seconds: Histogram = histogram(
        "In shadow mode, from the sending of a read to MySQL to the end of its answer, of those"
        " that would have been hits.",
        "nothing, without shadow mode",
        "its sum is the time of MySQL that the cache would save",
    )
    fills: int = counter(
        "answers",
        "Answers that memcached has taken, values of Python functions among them.",
        "as sqlcache_misses_total",
        "see sqlcache_fills_failed_total and sqlcache_fill_declined_total",
    )
    refills_same: int = counter(
        "answers",
        "Fills of what a write had ended that came back the same: it need not have been forgotten.",
        "a small part of the fills",
        "such tables are written without being changed, or by rows that nobody reads: let a"
        " rule's `max_staleness_ms` spare the rest",
    )
    fills_failed: int = counter(
        "answers",
        "Answers that memcached did not take.",
        "0",
        "see [SqlcacheFillsFailing](operations.md#sqlcachefillsfailing)",
    )
    fill_declined: int = counter(
        "answers",
        "Answers that are not storable: too large, or with warnings.",
        "few",
        "raise `cache.max_entry_bytes`, or mend what the statements warn of",
    )
    fills_skipped: int = counter(
        "answers",
        "Answers not stored because hardly any to statements like theirs was hit.",
        "as statements whose texts never repeat are",
        "the statement list has what is `stored` of each shape; `cache.skip_unhit_stores`",
    )
    function_hits: int = counter(
        "calls",
        "Calls of cached Python functions answered from the cache.",
        "most calls",
        "as for sqlcache_hits_total",
    )
    function_runs: int = counter(
        "calls",
        "Times the body of a cached Python function was run.",
        "few beside the hits",
        "as for sqlcache_misses_total",
    )
    function_declines: int = counter(
        "values",
        "Values of cached Python functions that were not stored.",
        "0",
        "the log says why; see [Python](python.md)",
    )

    # Writes.

    row_writes: collections.Counter[str] = counter_by(
        "covered",
        "writes",
        "Writes where rows are told apart, by what they forgot: the answers from `rows` they touch,"
        " or of which MySQL, `asked`, tells; or all, by their `text`, its `values`, or as the"
        " table's `log` is new.",
        "mostly `rows`",
        "see [writes to single rows](caching-rules.md#writes-to-single-rows)",
        ("rows", "asked", "text", "values", "log"),
    )
    slots_taken: int = counter(
        "columns",
        "Columns by whose values this process began to tell a table's answers apart.",
        "a few, once",
        "each time a table's tag was lost they are found anew: memcached may lack memory",
    )
    probes: collections.Counter[str] = counter_by(
        "outcome",
        "questions",
        "Questions to MySQL what the rows are like that a write touches, by what became of them;"
        " `refused` where there was no connection yet, or too many waited.",
        "mostly `told`",
        "tables are locked, or MySQL is slow: such writes forget more than they must",
        ("told", "failed", "late", "refused"),
    )
    invalidations: collections.Counter[str] = counter_by(
        "kind",
        "tags",
        "Tags given a new version, by what they stand for; schemas and the root once a node.",
        "`table` as the writes are, `root` next to none",
        "see [SqlcacheRootInvalidations](operations.md#sqlcacherootinvalidations)",
        (
            "table",
            "schema",
            "root",
        ),
    )
    fences: int = counter(
        "writes",
        "Writes, or ends of transactions that wrote, whose tags were fenced first.",
        "as the writes are",
        _NOTHING,
    )
    fences_shared: int = counter(
        "writes",
        "Those for which the fences of others under way stood already.",
        _AS_LOAD,
        _NOTHING,
    )
    fences_unreachable: int = counter(
        "tags",
        "Tags that a write should have fenced and whose node was away.",
        "0",
        _SEE_MEMCACHED,
    )
    oks_withheld: int = counter(
        "writes",
        "Writes MySQL has done whose OK was not sent: their tags could not be reached.",
        "0",
        "see [SqlcacheOksWithheld](operations.md#sqlcacheokswithheld)",
    )
    fences_lapsed: int = counter(
        "fences",
        "Fences of writes whose proxy is gone, lifted at their deadline.",
        "0",
        "see [SqlcacheFencesLapsed](operations.md#sqlcachefenceslapsed)",
    )
    writes_refused: int = counter(
        "writes",
        "Writes not sent because their tags could not be reached.",
        "0",
        "see [SqlcacheWritesRefused](operations.md#sqlcachewritesrefused)",
    )
    writes_held_back: int = counter(
        "waits",
        "Waits of writes for the read leases of other processes; writes that share their"
        " fence wait once.",
        "few beside the writes",
        _NOTHING,
    )
    write_hold_seconds: Histogram = histogram(
        "How long these waits took.",
        "at most `cache.read_lease_ms` and a fifth: 6 ms by default",
        "lower `cache.read_lease_ms`, everywhere; longer ones come of processes that are"
        " late: see sqlcache_loop_lag_seconds",
    )
    pending_bumps: int = gauge(
        "tags",
        "Tags whose new version memcached has not taken yet; retried.",
        "0",
        "see [SqlcacheBumpsPending](operations.md#sqlcachebumpspending)",
    )

    # The binary log, see binlog.md.

    binlog_events: int = counter(
        "events",
        "Events of MySQL's binary log that were read.",
        _AS_LOAD,
        _NOTHING,
    )
    binlog_bytes: int = counter(
        "bytes",
        "Bytes of MySQL's binary log that were read.",
        _AS_LOAD,
        _NOTHING,
    )
    binlog_transactions: int = counter(
        "transactions",
        "Transactions, and what needs none, that the binary log told of.",
        "as many as are committed, whoever writes",
        _NOTHING,
    )
    binlog_bumps: int = counter(
        "tags",
        "Tags that got new versions by what the binary log told.",
        "at most a few for each of sqlcache_binlog_transactions_total",
        _NOTHING,
    )
    binlog_tags_own: int = counter(
        "tags",
        "Tags that the binary log told of and that got no new versions again: whoever had written"
        " through a sqlcache had given them some, and had said so.",
        "as many as are written, where MySQL tells sessions of their commits",
        "see [writes through sqlcache](binlog.md#writes-through-sqlcache)",
    )
    binlog_turns: int = counter(
        "turns",
        "Times that a process took its turn to follow the binary log.",
        "1 of all processes together, and 1 for each that ended meanwhile",
        "see [SqlcacheBinlogTurns](operations.md#sqlcachebinlogturns)",
    )
    binlog_connections_lost: int = counter(
        "connections",
        "Times that the connection on which the binary log came broke.",
        "0 but when MySQL restarts",
        "see to MySQL and the network to it",
    )
    binlog_gaps: int = counter(
        "gaps",
        "Times that the binary log had to be followed from its end, and everything was forgotten.",
        "1 when it is followed first",
        "see [SqlcacheBinlogGaps](operations.md#sqlcachebinloggaps)",
    )
    binlog_replayed: int = counter(
        "transactions",
        "Those of them that were read until the end of the binary log was reached: at a start, or"
        " where a process took over.",
        "as many as were committed while nobody followed it",
        _NOTHING,
    )
    binlog_nodes_kept: int = counter(
        "nodes",
        "Times that a process began to use what a memcached node remembered, as all that the"
        " binary log told up to then had been bumped there.",
        "1 for each node and process that starts",
        _NOTHING,
    )
    binlog_nodes_disowned: int = counter(
        "nodes",
        "Times that all that a memcached node remembered was forgotten, as it could not be"
        " known from the binary log what it had missed, or not in time.",
        "0",
        "the log says why; see [warm starts](binlog.md#warm-starts)",
    )
    binlog_following: int = gauge(
        "processes",
        "Processes that follow the binary log.",
        "1 of all sqlcaches together, where one is to",
        "`/ready` says what is missing",
    )
    binlog_lag_seconds: float = gauge(
        "seconds",
        "How far the process that follows the binary log is behind its end.",
        "0, for moments 1",
        "see [when it lags](binlog.md#when-it-lags)",
    )
    binlog_lag_bytes: int = gauge(
        "bytes",
        "How much of the binary log is still to be read by the process that follows it, of the file"
        " in which the log ends.",
        "0, for moments some thousands",
        "see [when it lags](binlog.md#when-it-lags)",
    )
    binlog_file: int = gauge(
        "number",
        "Number of the binary log's file up to which it is followed; 0 in a process that does not.",
        "that of `SHOW BINARY LOG STATUS`",
        _NOTHING,
    )
    binlog_position_bytes: int = gauge(
        "bytes",
        "Where in sqlcache_binlog_file all before was read, and ended what it made outdated.",
        "what `SHOW BINARY LOG STATUS` says",
        _NOTHING,
    )
    binlog_lagging: int = gauge(
        "processes",
        "Processes that know of nobody who follows the binary log within `binlog.max_lag_s`.",
        "0",
        "see [SqlcacheBinlogLags](operations.md#sqlcachebinloglags)",
    )
    binlog_hindered: int = gauge(
        "processes",
        "Processes that may not follow the binary log, by their account or the server's settings.",
        "0",
        "[what it needs](binlog.md#what-it-needs), or `binlog.follow = off`",
    )

    # Clients.

    statements_relayed: int = counter(
        "commands",
        "Commands of clients that MySQL answered, or was sent where it answers none; not"
        " those that were hits.",
        _AS_LOAD,
        _NOTHING,
    )
    statements_planned: int = counter(
        "commands",
        "Those of them that a plan made before was enough for.",
        "most of them",
        "statements are of too many shapes: raise `proxy.statements_bytes`",
    )
    statements_ahead: int = counter(
        "commands",
        "Those of them that were answered as MySQL had before, to go to it with what it has"
        " to see next.",
        _AS_LOAD,
        _NOTHING,
    )
    connections_accepted: int = counter(
        "connections",
        "Connections of clients accepted, of the Python API's own as well.",
        "few beside the statements",
        "have apps keep their connections: a login is dear",
    )
    connections_open: int = gauge(
        "connections",
        "Those open now.",
        "below sqlcache_connections_limit",
        "see [SqlcacheConnectionsNearLimit](operations.md#sqlcacheconnectionsnearlimit)",
    )
    connections_limit: int = gauge(
        "connections",
        "How many there may be.",
        "`proxy.max_connections`",
        "it is less where open files are few: raise `LimitNOFILE`, `ulimit -n`",
    )
    clients_cut: int = counter(
        "connections",
        "Clients cut off that did not read while others waited for their write.",
        "0",
        "look at these clients: they ask for more than they take",
    )
    logins_failed: collections.Counter[str] = counter_by(
        "code",
        "logins",
        "Clients that were not let in, by the error they got, whoever gave it.",
        "0",
        "see [failed logins](operations.md#failed-logins)",
        (
            "1040",
            "1044",
            "1045",
            "1049",
            "1129",
            "1130",
            "1203",
            "1226",
            "1251",
            "1698",
            "1820",
            "2003",
            "2026",
            "3118",
            "3159",
            "timeout",
            "broke off",
            "other",
        ),
    )
    limits_reached: collections.Counter[str] = counter_by(
        "limit",
        "clients",
        "Clients refused, or whose session was ended, by which of proxy's settings.",
        "0",
        "see [limits](operations.md#limits)",
        (
            "max_connections",
            "max_connections_per_user",
            "login_timeout_s",
            "idle_timeout_s",
        ),
    )
    bytes_to_clients: int = counter(
        "bytes",
        "Bytes of MySQL's answers to clients; those of hits are not counted.",
        _AS_LOAD,
        _NOTHING,
    )

    # MySQL.

    upstream_seconds: Histogram = histogram(
        "From the sending of a client's command to MySQL to the end of its answer; for as"
        " long as the client is slow to take it, too.",
        "as MySQL's own slow log knows it",
        "see to MySQL: indexes, load, the network to it",
    )
    upstream_up: int = gauge(
        "processes",
        "Processes whose own connection to MySQL worked when it was last tried.",
        "as sqlcache_workers",
        "see [SqlcacheUpstreamDown](operations.md#sqlcacheupstreamdown)",
    )
    upstream_errors: collections.Counter[str] = counter_by(
        "cause",
        "connections",
        "Connections to MySQL that were refused (by its error), not opened in time, or lost.",
        "0",
        "see [SqlcacheUpstreamErrors](operations.md#sqlcacheupstreamerrors)",
        (
            "1040",
            "1045",
            "1129",
            "1130",
            "unreachable",
            "lost",
            "other",
        ),
    )
    catalog_loads: int = counter(
        "loads",
        "Times the catalog was read from MySQL.",
        "once in `upstream.catalog_refresh_s`, and with each DDL",
        "DDL is made all the time: find out by whom",
    )
    catalog_failures: int = counter(
        "loads",
        "Times it could not be read.",
        "0",
        "see [SqlcacheCatalogFailing](operations.md#sqlcachecatalogfailing)",
    )
    grants_missing: int = gauge(
        "rights",
        "Rights that sqlcache's own account needs and does not have, in each process.",
        "0",
        "see [SqlcacheGrantsMissing](operations.md#sqlcachegrantsmissing)",
    )

    # memcached, and what the process keeps.

    memcached_seconds: Histogram = histogram(
        "From a batch of requests' sending to a memcached node to its last answer, of one in four.",
        "below 1 ms in one network",
        _SEE_MEMCACHED,
    )
    memcached_nodes: int = gauge(
        "nodes",
        "memcached nodes of the settings, in each process.",
        "nodes times sqlcache_workers",
        "a worker is missing",
    )
    memcached_nodes_away: int = gauge(
        "nodes",
        "Those that are silent, or not yet trusted again.",
        "0",
        "see [SqlcacheMemcachedNodeAway](operations.md#sqlcachememcachednodeaway)",
    )
    node_outages: int = counter(
        "outages",
        "Silences of a memcached node after which it was disowned.",
        "0",
        "see [SqlcacheMemcachedFlapping](operations.md#sqlcachememcachedflapping)",
    )
    memcached_node_away: collections.Counter[str] = gauge_by(
        "node",
        "processes",
        "Processes that do without this memcached node: it is silent, or not yet trusted again.",
        "0",
        "see [SqlcacheMemcachedNodeAway](operations.md#sqlcachememcachednodeaway)",
    )
    memcached_node_connections_lost: collections.Counter[str] = counter_by(
        "node",
        "connections",
        "Connections to the node that broke, or were given up as an answer came too late.",
        "0 but when the node restarts",
        "the log says why: `memcached node is not reached`; see to its CPU, and the network to it",
    )
    memcached_node_items: collections.Counter[str] = gauge_by(
        "node",
        "items",
        "What the node says of itself, like all of the following: items it holds. `memory` says no"
        " more than its items, bytes, limit and evictions.",
        _AS_LOAD,
        _NOTHING,
    )
    memcached_node_bytes: collections.Counter[str] = gauge_by(
        "node",
        "bytes",
        "Bytes of its items.",
        "below its limit",
        "see its evictions",
    )
    memcached_node_limit_bytes: collections.Counter[str] = gauge_by(
        "node",
        "bytes",
        "Bytes it may hold: its `-m`; of `memory`, `memcached.memory_bytes`.",
        "the same on all nodes",
        "nodes share alike, whatever their size: make them alike",
    )
    memcached_node_connections: collections.Counter[str] = gauge_by(
        "node",
        "connections",
        "Its open connections.",
        "a few for each process",
        "look who else uses it: it is for sqlcaches only",
    )
    memcached_node_evictions: collections.Counter[str] = counter_by(
        "node",
        "items",
        "Items it gave up for want of room.",
        "0, or few beside its sets",
        "give it more memory: `-m`, or `memcached.memory_bytes`",
    )
    memcached_node_hits: collections.Counter[str] = counter_by(
        "node",
        "requests",
        "Items it was asked for and had.",
        _AS_LOAD,
        _NOTHING,
    )
    memcached_node_misses: collections.Counter[str] = counter_by(
        "node",
        "requests",
        "Items it was asked for and did not have.",
        _AS_LOAD,
        "see its evictions",
    )
    memcached_node_sets: collections.Counter[str] = counter_by(
        "node",
        "requests",
        "Items it was given.",
        _AS_LOAD,
        _NOTHING,
    )
    near_bytes: int = gauge(
        "bytes",
        "Bytes of entries in the processes.",
        "at most `cache.near_bytes` each",
        _NOTHING,
    )
    statements_bytes: int = gauge(
        "bytes",
        "Bytes that what is remembered of statements takes, roughly.",
        "at most `proxy.statements_bytes` each",
        _NOTHING,
    )

    # The processes.

    workers: int = gauge(
        "processes",
        "Processes that serve.",
        "`proxy.workers`",
        "see [SqlcacheWorkerAway](operations.md#sqlcacheworkeraway)",
    )
    workers_ended: int = counter(
        "processes",
        "Workers that ended by themselves or were killed, and were started anew.",
        "0",
        "see [SqlcacheRestarting](operations.md#sqlcacherestarting)",
    )
    cache_on: int = gauge(
        "processes",
        "Those of them whose cache is not switched off; in shadow mode it answers nothing, but is.",
        "as sqlcache_workers",
        "see [SqlcacheSwitchedOff](operations.md#sqlcacheswitchedoff)",
    )
    loop_lag_seconds: Histogram = histogram(
        "How late the event loop's timers were, by one every half a second.",
        "below 5 ms",
        "the process has not enough CPU, or reads long texts: more `--workers`, instances or quota",
    )
    process_cpu_seconds: float = counter(
        "seconds",
        "CPU time of all processes, the parent of workers among them.",
        "below 0.7 a second for each worker",
        "add `--workers` or instances",
    )
    process_resident_memory_bytes: float = gauge(
        "bytes",
        "Memory of all processes; pages that they share are counted in each.",
        "as [capacity](operations.md#capacity) has it",
        "lower `cache.near_bytes` and `proxy.statements_bytes`, which are for each process",
    )
    process_open_fds: float = gauge(
        "files",
        "Open files and sockets of all processes.",
        "two for each client, and some",
        "raise `LimitNOFILE`, `ulimit -n`, before it meets process_max_fds",
    )
    process_max_fds: float = gauge(
        "files",
        "How many they may have open together.",
        "more than twice `proxy.max_connections`",
        "raise `LimitNOFILE`, `ulimit -n`",
    )

    def snapshot(self) -> Snapshot:
        """All values as plain data, for another process."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @staticmethod
    def past(snapshot: Mapping[str, Any]) -> Snapshot:
        """Of a process that is gone, what still counts: all but the gauges."""
        gauges = {name for name, declared in declarations() if declared.kind == "gauge"}
        return {name: value for name, value in snapshot.items() if name not in gauges}

    @classmethod
    def merge(cls, snapshots: Iterable[Mapping[str, float | Mapping[str, Any]]]) -> Metrics:
        """The sum of several processes' snapshots."""
        total = cls()
        for snapshot in snapshots:
            for name, value in snapshot.items():
                if isinstance(value, Mapping):
                    getattr(total, name).update(value)
                else:
                    setattr(total, name, getattr(total, name) + value)
        return total

    def render(self) -> bytes:
        """All values as Prometheus text, of media type CONTENT_TYPE."""
        told = (each.exposition(name, getattr(self, name)) for name, each in declarations())
        return (_BUILD + "".join(told)).encode()


def declarations() -> Iterable[tuple[str, Declaration]]:
    """All metrics, by their attributes."""
    return [(f.name, f.metadata["metric"]) for f in dataclasses.fields(Metrics)]


def _plain(value: Any) -> Any:
    if isinstance(value, Histogram):
        return value.snapshot()
    return dict(value) if isinstance(value, dict) else value
