"""`sqlcache flush`, and the lists of `sqlcache stats`, such as `--statements`: what a running
sqlcache is asked to do and tell, by its admin door."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Final, Literal
from urllib.parse import urlencode

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from sqlcache.admin.client import AdminClient
from sqlcache.commands.terminal import printable
from sqlcache.settings import Settings

_WIDE: Final = 220
"""Columns, where it is no terminal that reads."""


def flush(settings: Settings, what: dict[str, Any]) -> int:
    """Forgets answers: `what` is the body of `/api/flush`. Raises: ConfigError."""
    print(f"forgotten: {AdminClient(settings).post('/api/flush', what)['flushed']}")
    return 0


def show(settings: Settings, shown: str, *, sort: str | None, limit: int, as_json: bool) -> int:
    """Prints the rows of one of the API's lists, such as `statements`. Raises: ConfigError."""
    options = {"limit": limit} | ({} if sort is None else {"sort": sort})
    said = AdminClient(settings).get(f"/api/{shown}?{urlencode(options)}")
    if as_json:
        print(json.dumps(said["items"], indent=2))
        return 0
    columns, cells = _SHOWN[shown]
    added = sort is not None and sort not in _HAVE_COLUMNS[shown]
    headings = (f" {sort}", *columns) if added else columns
    table = Table(*(Column(each.strip(), justify=_side(each)) for each in headings))
    for row in said["items"]:
        first = (_plain(row[sort]),) if added else ()
        table.add_row(*(Text(printable(each)) for each in (*first, *cells(row))))
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)
    by = "" if sort is None else f", by {sort}"
    print(f"{len(said['items'])} of {said['total']}{by}")
    return 0


def _side(column: str) -> Literal["left", "right"]:
    return "right" if column.startswith(" ") else "left"


def _statement(row: dict[str, Any]) -> tuple[str, ...]:
    mysql_s, saved_s = row["mysql_mean_s"], row["saved_s"]
    return (
        str(row["calls"]),
        f"{row['hits'] / row['calls']:.0%}" if row["calls"] and row["kind"] == "read" else "-",
        "-" if mysql_s is None else f"{1000 * mysql_s:.2f}",
        "-" if saved_s is None else f"{saved_s:.2f}",
        row["why_not"] or "",
        row["statement"],
    )


def _table(row: dict[str, Any]) -> tuple[str, ...]:
    writes = (row["writes"][door] for door in ("proxy", "flush", "binlog"))
    counts = row["hits"], row["misses"], row["fills"], *writes
    ages = row["last_write_s_ago"], row["read_s_ago"]
    return *map(str, (*counts, row["invalidations"])), *map(_age, ages), row["table"]


def _node(row: dict[str, Any]) -> tuple[str, ...]:
    figures = "curr_items", "bytes", "limit_maxbytes", "evictions", "get_hits", "get_misses"
    away = f"{row['away']} of {row['processes']}"
    return *(str(row.get(name, "-")) for name in figures), away, row["node"], row.get("error", "")


def _session(row: dict[str, Any]) -> tuple[str, ...]:
    state = row["state"] + (", in a transaction" if row["in_transaction"] else "")
    ages = map(_age, (row["connected_s"], row["idle_s"]))
    who = row["user"], row["address"], row["schema"] or "", state
    return str(row["id"]), *ages, *who, row["why_not"], row["statement"]


def _event(row: dict[str, Any]) -> tuple[str, ...]:
    return row["at"], row["kind"], str(row["pid"]), row["event"]


def _plain(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f}"


_Cells = Callable[[dict[str, Any]], tuple[str, ...]]
_SHOWN: Final[dict[str, tuple[tuple[str, ...], _Cells]]] = {  # figures begin with a space
    "statements": (
        (" calls", " hits", " MySQL, ms", " saved, s", "why not", "statement"),
        _statement,
    ),
    "tables": (
        (
            " hits",
            " misses",
            " fills",
            " writes",
            " flushes",
            " by the log",
            " invalidations",
            " written, s ago",
            " read, s ago",
            "table",
        ),
        _table,
    ),
    "nodes": (
        (
            " items",
            " bytes",
            " of",
            " evictions",
            " hits",
            " misses",
            " away from",
            "node",
            "error",
        ),
        _node,
    ),
    "sessions": (
        (
            " id",
            " connected, s",
            " idle, s",
            "user",
            "address",
            "schema",
            "state",
            "why not",
            "statement",
        ),
        _session,
    ),
    "events": (("at", "kind", " pid", "event"), _event),
}
_HAVE_COLUMNS: Final[dict[str, frozenset[str]]] = {
    "statements": frozenset(("calls", "hits", "mysql_mean_s", "saved_s")),
    "tables": frozenset(
        (
            "hits",
            "misses",
            "writes",
            "invalidations",
            "fills",
            "last_write_s_ago",
            "read_s_ago",
            "table",
        )
    ),
    "nodes": frozenset(("node",)),
    "sessions": frozenset(
        (
            "connected_s",
            "idle_s",
            "id",
            "user",
            "address",
            "schema",
            "state",
            "in_transaction",
            "why_not",
            "statement",
        )
    ),
    "events": frozenset(("at", "kind", "pid")),
}
"""What a list can be sorted by that is to be seen in it anyway; else it is the first column."""
