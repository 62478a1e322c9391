"""What the API answers: the schema of each answer, with a sentence for every field.

No answer has a field that its schema lacks, and none lacks one that is not optional there.
"""

from __future__ import annotations

from typing import Any, Final

from sqlcache.metrics import declarations
from sqlcache.settings import LISTS as SETTINGS_LISTS
from sqlcache.settings import Settings

Schema = dict[str, Any]


def _whole(said: str) -> Schema:
    return {"type": "integer", "description": said}


def _number(said: str) -> Schema:
    return {"type": "number", "description": said}


def _text(said: str) -> Schema:
    return {"type": "string", "description": said}


def _truth(said: str) -> Schema:
    return {"type": "boolean", "description": said}


def _counts(said: str) -> Schema:
    return {"type": "object", "additionalProperties": {"type": "integer"}, "description": said}


def _texts_by_name(said: str) -> Schema:
    return {"type": "object", "additionalProperties": {"type": "string"}, "description": said}


def _many(said: str, of: str = "string") -> Schema:
    return {"type": "array", "items": {"type": of}, "description": said}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _record(fields: dict[str, Schema], said: str = "", *, may_lack: tuple[str, ...] = ()) -> Schema:
    described = {"description": said} if said else {}
    return {
        "type": "object",
        "properties": fields,
        "required": [name for name in fields if name not in may_lack],
        "additionalProperties": False,
        **described,
    }


def _list_of(row: Schema) -> Schema:
    return _record(
        {
            "items": {
                "type": "array",
                "items": row,
                "description": "The rows that were asked for.",
            },
            "total": _whole("How many rows there are that have what `q` asks for."),
            "age_s": _number("How long ago the processes were asked, in seconds."),
        }
    )


def _metric(name: str) -> str:
    return dict(declarations())[name].help


_BINLOG = {
    "following": _whole(_metric("binlog_following")),
    "lagging": _whole(_metric("binlog_lagging")),
    "hindered": _whole(_metric("binlog_hindered")),
    "lag_s": _number("How far the process that follows the log is behind its end, in seconds."),
    "lag_bytes": _whole(_metric("binlog_lag_bytes")),
    "file": _whole(_metric("binlog_file")),
    "position": _whole("Where in `file` all before was read, and ended what it made outdated."),
    "events": _whole(_metric("binlog_events")),
    "transactions": _whole(_metric("binlog_transactions")),
    "bumps": _whole(_metric("binlog_bumps")),
    "turns": _whole(_metric("binlog_turns")),
    "gaps": _whole(_metric("binlog_gaps")),
}
_SHADOW = {
    "hits": _whole("Reads that would have been hits."),
    "hit_share": _or_null(_number("Their share of all reads; null without shadow mode.")),
    "mysql_seconds": _number("The time in which MySQL answered them, which would be saved."),
    "stale": _whole("Answers that would have been wrong, in shadow mode and of those verified."),
    "compared": _whole("Answers that could be compared with MySQL's."),
}
SUMMARY: Final = _record(
    {
        "version": _text("The running version."),
        "kernel": _text("Whether the kernel is `compiled` or `pure` Python."),
        "up_s": _number("How long this `serve` has run, in seconds."),
        "ready": _truth("Whether `/ready` says so: nothing is among `problems`."),
        "problems": _texts_by_name("Why it is not ready, by part."),
        "warnings": _texts_by_name("What is wrong and keeps it from nothing, by part."),
        "workers": _whole("Processes that serve, and have answered."),
        "connections": _whole("Connections of clients that are open."),
        "reads": _whole(
            "Reads: queries, SHOW, HELP, EXPLAIN, DESCRIBE, HANDLER and GET DIAGNOSTICS."
        ),
        "hits": _whole("Reads answered from the cache."),
        "misses": _whole("Reads whose answer was not there, or not current, and is to be stored."),
        "hit_share": _or_null(_number("`hits` of all `reads`; null while there was none.")),
        "passed": _counts("Statements that MySQL answered without the cache, by what they are."),
        "bypasses": _counts("The same, by why; docs/caching-rules.md has what each reason means."),
        "cache_on": _truth("Whether reads may be answered from the cache."),
        "fills": _whole("Answers that memcached has taken."),
        "invalidations": _whole("Tags that were given a new version."),
        "hit_seconds": _number("The time that all hits took together."),
        "mysql_seconds": _number("The time that MySQL's answers took together."),
        "seconds_up_to": _many(
            "The upper bounds of the classes of times, in seconds; a last class has the rest.",
            "number",
        ),
        "hit_seconds_counts": _many("How many hits took as long as each class says.", "integer"),
        "mysql_seconds_counts": _many("How many answers of MySQL did.", "integer"),
        "refills_same": _whole("Answers that a write ended, and that came back byte for byte."),
        "mode": _text("`cache.mode`: `on`, `shadow` or `off`."),
        "shadow": _record(_SHADOW, "What shadow mode has found."),
        "verified": _counts("Answers that were compared with MySQL's, by how they compare."),
        "nodes_away": _whole("memcached nodes that are away, a node once for each process."),
        "binlog": _record(_BINLOG, "How the binary log is followed."),
    }
)
_HISTOGRAM_P99 = "null without any, or where it is above all classes of times."
STATEMENTS: Final = _list_of(
    _record(
        {
            "statement": _text("Its shape: with `?` for its literals."),
            "kind": _text("What it is: read, write, ddl, transaction, session, other, unknown."),
            "schema": _or_null(_text("The default schema of a session that sent it.")),
            "calls": _whole("How often it was sent."),
            "hits": _whole("How often it was answered from the cache."),
            "misses": _whole("How often its answer was not there, or not current."),
            "bypasses": _whole("How often MySQL was asked without the cache."),
            "passed": _counts("The same by why, as `explain` says it."),
            "why_not": _or_null(_text("The most frequent of these reasons.")),
            "fills": _whole("Answers stored."),
            "refills_same": _whole("Those that a write had ended, and that came back the same."),
            "stored": _text("`all` answers are, or a `sample`, where hardly any was ever hit."),
            "skipped": _whole("Answers that were not stored for that."),
            "bytes": _whole("Bytes of its answers to clients."),
            "hit_mean_s": _or_null(_number("The mean time of a hit, in seconds.")),
            "hit_p99_s": _or_null(
                _number(f"What 99 of 100 hits took at most, in seconds; {_HISTOGRAM_P99}")
            ),
            "mysql_mean_s": _or_null(_number("The mean time of MySQL's answer, in seconds.")),
            "mysql_p99_s": _or_null(
                _number(f"What 99 of 100 of those took at most, in seconds; {_HISTOGRAM_P99}")
            ),
            "saved_s": _or_null(_number("MySQL's time that the hits spared, less their own.")),
            "seen_s_ago": _or_null(_number("How long ago it came last, in seconds.")),
        }
    )
)
_WRITES = {
    "proxy": _whole("By clients of the proxy, sent or not, also by triggers and foreign keys."),
    "api": _whole("0 here: those of the Python API are counted in the app's own process."),
    "flush": _whole("By an operator, who had its answers forgotten."),
    "binlog": _whole("Those that the binary log told of first."),
}
TABLES: Final = _list_of(
    _record(
        {
            "table": _text("SCHEMA.TABLE."),
            "hits": _whole("Hits whose answers hang on it, also by a view."),
            "misses": _whole("Misses of the same."),
            "writes": _record(_WRITES, "Writes, by who made them."),
            "invalidations": _whole("How often all of its answers ended at once."),
            "fills": _whole("Answers stored that hang on it."),
            "last_write_s_ago": _or_null(
                _number("How long ago its answers ended last, in seconds; null for never.")
            ),
            "read_s_ago": _or_null(
                _number("How long ago it was read last, in seconds; null where that is not known.")
            ),
        }
    )
)
SESSIONS: Final = _list_of(
    _record(
        {
            "id": _whole("The connection's id, as MySQL's own list has it."),
            "user": _text("Who logged in."),
            "address": _text("Where the client is."),
            "schema": _or_null(_text("The default schema.")),
            "pid": _whole("The process that serves it."),
            "state": _text("What it is at."),
            "in_transaction": _truth("Whether a transaction is open."),
            "cacheable": _truth("Whether a read of it could be a hit now."),
            "why_not": _text('Why not; "" where one could.'),
            "statement": _text("The last one, or the one under way, without literals."),
            "connected_s": _number("How long it has been connected, in seconds."),
            "idle_s": _or_null(
                _number("How long ago its last command came, in seconds; 0 while one is under way.")
            ),
        }
    )
)
EVENTS: Final = _list_of(
    _record(
        {
            "at": _text("When it happened, in UTC."),
            "s_ago": _number("How long ago that was, in seconds."),
            "kind": _text("What it is about, as docs/operations.md lists it."),
            "event": _text("The log line, without its time."),
            "pid": _whole("The process in which it happened."),
        }
    )
)
_FIGURES = {
    "version": _text("memcached's version."),
    "uptime": _whole("How long it has run, in seconds."),
    "curr_connections": _whole("Its open connections."),
    "curr_items": _whole("Items it holds."),
    "bytes": _whole("Bytes of these."),
    "limit_maxbytes": _whole("Bytes it may hold."),
    "evictions": _whole("Items it gave up for want of room."),
    "get_hits": _whole("Items it was asked for and had."),
    "get_misses": _whole("Items it was asked for and did not have."),
    "cmd_set": _whole("Items it was given."),
    "bytes_read": _whole("Bytes it was sent."),
    "bytes_written": _whole("Bytes it has sent."),
}
NODES: Final = _list_of(
    _record(
        {
            "node": _text("HOST:PORT, or `memory`."),
            "away": _whole("Processes that do without it."),
            "processes": _whole("Processes that were asked."),
            "error": _text("Why it has said nothing of itself."),
            **{name: _or_null(each) for name, each in _FIGURES.items()},
        },
        may_lack=("error", *_FIGURES),
    )
)


def _settings() -> Schema:
    fields = {
        f"{section}.{name}": {"description": value.description or ""}
        for section, field in Settings.model_fields.items()
        if section not in SETTINGS_LISTS
        for name, value in getattr(field.annotation, "model_fields", {}).items()
    }
    listed = "One of these, by its number, with what it says."
    each = {"type": "object", "description": listed}
    return {
        **_record(fields),
        "patternProperties": {rf"^({'|'.join(SETTINGS_LISTS)})\[\d+\]$": each},
    }


SETTINGS: Final = _settings()


def _chosen(said: str) -> Schema:
    return {
        "type": ["array", "null"],
        "prefixItems": [_number("In seconds."), _text("The rule, or whatever else says so.")],
        "items": False,
        "minItems": 2,
        "description": f"{said} In seconds, and by what.",
    }


_KEY = {
    "text": _text("The statement, as it is told from others."),
    "user": _text("Who asks, with a role."),
    "schema": _or_null(_text("The default schema.")),
    "settings": _texts_by_name("The session's settings that can change an answer."),
}
EXPLAINED: Final[Schema] = {
    "type": "array",
    "items": _record(
        {
            "cached": _truth("Whether its answer may come from the cache, and is stored."),
            "statement": _text('With `?` for its literals; "" if it cannot be read.'),
            "why_not": _or_null(_text("Why it is not cached.")),
            "off_by": _or_null(_text("The rule or the app's words that switch the cache off.")),
            "tables": _many("Tables that it reads, those of views among them."),
            "views": _many("Views that it reads."),
            "tags": _many("What its answer hangs on, as SCHEMA.TABLE, with `*` for all."),
            "pins": _many("Columns by whose values answers like it, or rows, are told apart."),
            "asks": _many("Of a write the columns of which MySQL is asked what rows it touches."),
            "unread": _many("Columns that it does not read, and that may change by themselves."),
            "whole_by": _or_null(_text("The rule by which every write to its tables ends it.")),
            "ttl": _chosen("How long its answer is kept."),
            "max_staleness": _chosen("By how much its answer may be behind."),
            "stale_while_revalidate": _chosen("For how long the last answer serves meanwhile."),
            "stored": _or_null(_text("`all`, or `sample` where hardly any answer was ever hit.")),
            "key": _or_null(_record(_KEY, "What reads have in common that share an answer.")),
            "writes": _many("Tables and schemas that it changes itself."),
            "writes_everything": _or_null(_text("Why nobody can know what it changes.")),
            "bumps": _many("The tags that get a new version when it is run."),
        }
    ),
}
FLUSHED: Final = _record({"flushed": _text("What was forgotten, or `everything`.")})
ENABLED: Final = _record(
    {
        "enabled": _truth("Whether reads may be answered from the cache from now on."),
        "processes": _whole("Processes that were told."),
    }
)
RELOADED: Final = _record(
    {
        "changed": _many("The settings that differ, and hold from now on."),
        "need_restart": _many("The settings that differ, and wait for a restart."),
    }
)
OPENAPI: Final[Schema] = {"type": "object", "description": "By OpenAPI 3.1."}
WRONG: Final = _record({"error": _text("What is wrong, in a sentence.")})
