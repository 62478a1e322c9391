"""The page of `sqlcache top`, by textual: what `/api` says, anew every 2 seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import DataTable, Footer, Static
from textual.worker import Worker

from sqlcache.admin.client import AdminClient, address_of
from sqlcache.commands.terminal import printable
from sqlcache.errors import ConfigError
from sqlcache.settings import Settings

EVERY_S: Final = 2.0
_ROWS: Final = 200

_STATEMENT_COLUMNS: Final = (
    "calls",
    "hits",
    "misses",
    "past",
    "MySQL, ms",
    "saved, s",
    "why not",
    "statement",
)
_SORTS: Final = {
    "calls": "calls",
    "hits": "hits",
    "misses": "misses",
    "bypasses": "past",
    "mysql_mean_s": "MySQL, ms",
    "saved_s": "saved, s",
}
"""What `/api/statements` can be sorted by, and which column shows it."""

_NODE_COLUMNS: Final = ("node", "state", "version", "items", "bytes", "of", "evictions")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the API said at one moment."""

    summary: Row
    statements: list[Row]
    nodes: list[Row]
    saved_s: float
    """MySQL's, by the statements that save most of it."""


class TopPage(App[None]):
    """The page about the sqlcache with these settings. Raises: ConfigError without an address."""

    TITLE = "sqlcache"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary { height: auto; padding: 0 1; background: $panel; }
    #statements { height: 1fr; }
    #detail { height: auto; max-height: 8; padding: 0 1; background: $panel; }
    #nodes { height: auto; max-height: 8; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("c", "sort('calls')", "calls"),
        ("h", "sort('hits')", "hits"),
        ("m", "sort('misses')", "misses"),
        ("p", "sort('bypasses')", "past"),
        ("t", "sort('mysql_mean_s')", "MySQL's time"),
        ("s", "sort('saved_s')", "saved"),
        ("q", "quit", "quit"),
    ]

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._client = AdminClient(settings)
        self._address = address_of(settings)
        self._sort = "calls"
        self._seen: _Seen | None = None
        self._before: Row | None = None
        self._asking: Worker[None] | None = None

    def compose(self) -> ComposeResult:
        """The page's parts, from above."""
        yield Static("…", id="summary")
        with Vertical():
            yield DataTable[Text](id="statements", cursor_type="row", zebra_stripes=True)
            yield Static("", id="detail")
            yield DataTable[Text](id="nodes", cursor_type="none", show_cursor=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begins to ask."""
        for column in _STATEMENT_COLUMNS:
            self._statements.add_column(column, key=column)
        self.query_one("#nodes", DataTable).add_columns(*_NODE_COLUMNS)
        self._statements.focus()
        self.set_interval(EVERY_S, self._refresh_unless_asking)
        self._refresh_soon()

    def action_sort(self, by: str) -> None:
        """Shows first what has most of it."""
        self._sort = by
        self._refresh_soon()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Says all there is of the statement that the cursor is at."""
        self._show_detail(None if event.row_key is None else event.row_key.value)

    @property
    def _statements(self) -> DataTable[Text]:
        return self.query_one("#statements", DataTable)

    def _refresh_unless_asking(self) -> None:
        if self._asking is None or self._asking.is_finished:
            self._refresh_soon()

    def _refresh_soon(self) -> None:
        # Exclusive: an answer in an order that is no longer wanted is not waited for.
        self._asking = self.run_worker(self._refresh(), exclusive=True)

    async def _refresh(self) -> None:
        try:
            seen = await asyncio.to_thread(self._ask, self._sort)
        except ConfigError as error:
            self.query_one("#summary", Static).update(Text(printable(str(error)), style="bold red"))
            return
        self._before = None if self._seen is None else self._seen.summary
        self._seen = seen
        self._show(seen)

    def _ask(self, sort: str) -> _Seen:
        get = self._client.get
        saving = get(f"/api/statements?sort=saved_s&limit={_ROWS}")["items"]
        listed = get(f"/api/statements?sort={sort}&limit={_ROWS}")["items"]
        saved_s = sum(row["saved_s"] or 0.0 for row in saving)
        return _Seen(get("/api/summary"), listed, get("/api/nodes")["items"], saved_s)

    def _show(self, seen: _Seen) -> None:
        address = str(self._address)
        self.query_one("#summary", Static).update(_summary(address, seen, self._before))
        table = self._statements
        for key, column in table.columns.items():
            column.label = Text(
                str(key.value), style="reverse" if self._is_sorted(key.value) else ""
            )
        at = table.cursor_row
        table.clear()
        for row in seen.statements:
            table.add_row(*map(Text, _statement_cells(row)), key=_name(row))
        table.move_cursor(row=at)
        nodes = self.query_one("#nodes", DataTable)
        nodes.clear()
        for row in seen.nodes:
            nodes.add_row(*map(Text, _node_cells(row)))

    def _is_sorted(self, column: str | None) -> bool:
        return _SORTS[self._sort] == column

    def _show_detail(self, name: str | None) -> None:
        rows = [] if self._seen is None else self._seen.statements
        text = next((_detail(row) for row in rows if _name(row) == name), "")
        self.query_one("#detail", Static).update(Text(text))


def _name(row: Row) -> str:
    return f"{row['kind']} {row['statement']}"


def _summary(address: str, seen: _Seen, before: Row | None) -> Text:
    now = seen.summary
    up = timedelta(seconds=int(now["up_s"]))
    wrong = {**now["problems"], **now["warnings"]}
    state = "ready" if now["ready"] else "NOT READY"
    lines = [
        f"sqlcache {now['version']} ({now['kernel']}) at {address}, up {up}, {state},"
        f" {now['workers']} process(es), {now['connections']:,} client(s)",
        f"hits {_share(now, before)} now, {_share(now, None)} since the start;"
        f" {_pace(now, before)} statements/s; MySQL's time saved {_span(seen.saved_s)}",
        *(f"{part}: {why}" for part, why in wrong.items()),
    ]
    return Text("\n".join(map(printable, lines)))


def _since(now: Row, before: Row | None, name: str) -> float:
    """How much more there is of it; all, where it began anew, or nothing is known of before."""
    was = before[name] if before is not None and before["up_s"] <= now["up_s"] else 0
    return float(now[name] - was)


def _share(now: Row, before: Row | None) -> str:
    reads = _since(now, before, "reads")
    return f"{_since(now, before, 'hits') / reads:.1%}" if reads > 0 else "-"


def _pace(now: Row, before: Row | None) -> str:
    if before is None or now["up_s"] <= before["up_s"]:
        return "-"
    return f"{(_sent(now) - _sent(before)) / (now['up_s'] - before['up_s']):,.0f}"


def _sent(summary: Row) -> int:
    sent: int = summary["hits"] + summary["misses"] + sum(summary["passed"].values())
    return sent


def _span(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else str(timedelta(seconds=int(seconds)))


def _statement_cells(row: Row) -> tuple[str, ...]:
    mysql_s, saved_s = row["mysql_mean_s"], row["saved_s"]
    return (
        *(f"{row[name]:,}" for name in ("calls", "hits", "misses", "bypasses")),
        "-" if mysql_s is None else f"{1000 * mysql_s:.2f}",
        "-" if saved_s is None else f"{saved_s:.1f}",
        printable(row["why_not"] or ""),
        printable(row["statement"]),
    )


def _detail(row: Row) -> str:
    reasons = [f"{count:,} past the cache: {why}" for why, count in row["passed"].items()]
    stored = f"{row['fills']:,} answers stored, {row['refills_same']:,} of them as before a write"
    return "\n".join(map(printable, (row["statement"], stored, *reasons)))


def _node_cells(row: Row) -> tuple[str, ...]:
    away = f"away from {row['away']} of {row['processes']}" if row["away"] else "reached"
    names = ("version", "curr_items", "bytes", "limit_maxbytes", "evictions")
    cells = (row["node"], row.get("error") or away, *(_figure(row.get(name)) for name in names))
    return tuple(map(printable, cells))


def _figure(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value or "-")
