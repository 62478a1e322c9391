// What each list of the API shows, column by column.

import { make, mark, say } from "./elements.js";
import { ago, bytes, count, dayAndClock, duration, milliseconds, roundMilliseconds, share } from "./format.js";
import { List } from "./list.js";

const number = (name, title, of, text = count, hint = "") => ({ name, title, of, text, hint, isNumber: true });
const word = (name, title, of, hint = "") => ({ name, title, of, hint });

const part = (some, all) => (all > 0 ? some / all : null);
const isRead = (row) => row.kind === "read";

/** Text that is cut to its column, and whole when it is clicked or has the focus. */
function cut(of) {
  return (cell, item) => {
    const button = make("button", { type: "button", className: "cut", "aria-expanded": "false" });
    button.addEventListener("click", () => {
      const isOpen = cell.classList.toggle("open");
      mark(button, "aria-expanded", String(isOpen));
    });
    cell.append(button);
    return () => say(button, of(item()));
  };
}

function action(label, about, act) {
  return (cell, item) => {
    const button = make("button", { type: "button", className: "small" }, label);
    button.addEventListener("click", () => act(item()));
    cell.append(button);
    return () => mark(button, "aria-label", `${label}: ${about(item())}`);
  };
}

function badge(of) {
  return (cell, item) => {
    const shown = make("span", { className: "badge" });
    cell.append(shown);
    return () => {
      const [text, kind] = of(item());
      say(shown, text);
      mark(shown, "data-kind", kind);
    };
  };
}

/** `explain(row)` tells what becomes of its statement. */
export function statements(place, explain) {
  return new List(place, {
    caption: "Statements, a row for those that differ in literals alone",
    key: (row) => `${row.kind} ${row.statement}`,
    first: "calls",
    empty: "No statement has come yet. Point your app at sqlcache's port, and they show up here.",
    choices: [
      { title: "Kind", all: "all kinds", of: (row) => row.kind },
      { title: "Why not cached", all: "cached or not", of: (row) => row.why_not },
    ],
    columns: [
      { ...word("statement", "Statement", (row) => row.statement), isHeader: true, className: "long code", fill: cut((row) => row.statement) },
      { name: "explain", title: "Explain", className: "tight", fill: action("Explain", (row) => row.statement, explain) },
      word("kind", "Kind", (row) => row.kind),
      number("calls", "Calls", (row) => row.calls),
      number("share", "Hits", (row) => (isRead(row) ? part(row.hits, row.calls) : null), share, "the share of calls that were answered from the cache"),
      number("bypasses", "Not cached", (row) => row.bypasses, count, "calls that were passed on to MySQL without a look into the cache"),
      { ...word("why_not", "Why not", (row) => row.why_not ?? "", "the most frequent reason, as explain gives it"), className: "why" },
      number("hit_mean_s", "Hit, ms", (row) => row.hit_mean_s, milliseconds, "mean time of a hit"),
      number("mysql_mean_s", "MySQL, ms", (row) => row.mysql_mean_s, milliseconds, "mean time of MySQL"),
      number("mysql_p99_s", "p99 ≤, ms", (row) => row.mysql_p99_s, roundMilliseconds, "99 of 100 answers of MySQL took at most so long"),
      number("saved_s", "Saved", (row) => row.saved_s, duration, "MySQL's time that the hits spared"),
      number("refills_same", "In vain", (row) => row.refills_same, count, "answers that a write ended, and that came back byte for byte the same"),
      number("bytes", "Sent", (row) => row.bytes, bytes, "bytes to clients"),
      number("seen_s_ago", "Seen", (row) => row.seen_s_ago, ago, "how long ago it came last"),
    ],
  });
}

/** `flush(table)` forgets a table's answers, after a question. */
export function tables(place, flush) {
  const reads = (row) => row.hits + row.misses;
  return new List(place, {
    caption: "Tables",
    key: (row) => row.table,
    first: "reads",
    empty: "No table has been read or written through sqlcache yet.",
    columns: [
      { ...word("table", "Table", (row) => row.table), isHeader: true, className: "long code", fill: cut((row) => row.table) },
      { name: "flush", title: "Forget", className: "tight", fill: action("Forget…", (row) => row.table, (row) => flush(row.table)) },
      number("reads", "Reads", reads, count, "reads of it that could be answered from the cache"),
      number("share", "Hits", (row) => part(row.hits, reads(row)), share),
      number("fills", "Stored", (row) => row.fills, count, "answers stored"),
      number("invalidations", "Invalidations", (row) => row.invalidations, count, "how often all of its answers ended at once"),
      number("proxy", "Proxy writes", (row) => row.writes.proxy, count, "by clients of the proxy"),
      number("binlog", "Logged writes", (row) => row.writes.binlog, count, "by anyone, as MySQL's binary log tells"),
      number("flushes", "Flushes", (row) => row.writes.flush, count, "by operators"),
      number("last_write_s_ago", "Last write", (row) => row.last_write_s_ago, ago),
      number("read_s_ago", "Last read", (row) => row.read_s_ago, ago),
    ],
  });
}

export function nodes(place) {
  return new List(place, {
    caption: "memcached nodes",
    key: (row) => row.node,
    first: "node",
    empty: "There is no memcached node.",
    columns: [
      { ...word("node", "Node", (row) => row.node), isHeader: true, className: "code" },
      { ...word("state", "State", (row) => nodeState(row)[0]), fill: badge(nodeState) },
      word("version", "Version", (row) => String(row.version ?? "–")),
      number("uptime", "Up", (row) => row.uptime, ago),
      number("curr_connections", "Connections", (row) => row.curr_connections),
      number("curr_items", "Items", (row) => row.curr_items),
      { ...number("bytes", "Memory", (row) => part(row.bytes, row.limit_maxbytes)), fill: memory },
      number("evictions", "Evictions", (row) => row.evictions, count, "what made room for others before its time"),
      number("found", "Found", (row) => part(row.get_hits, row.get_hits + row.get_misses), share, "the share of keys asked for that were there"),
      number("cmd_set", "Stored", (row) => row.cmd_set),
      number("bytes_read", "Received", (row) => row.bytes_read, bytes),
      number("bytes_written", "Sent", (row) => row.bytes_written, bytes),
    ],
  });
}

export function nodeState(row) {
  if (row.away > 0) {
    const who = row.processes > 1 ? ` for ${row.away} of ${row.processes} processes` : "";
    return [`away${who}`, "bad"];
  }
  return row.error === undefined ? ["there", "good"] : [`no figures: ${row.error}`, "doubtful"];
}

function memory(cell, item) {
  const meter = make("meter", { min: 0, max: 1, high: 0.95 });
  const text = make("span");
  cell.append(meter, text);
  return () => {
    const { bytes: used, limit_maxbytes: limit } = item();
    const isKnown = typeof used === "number" && limit > 0;
    meter.hidden = !isKnown;
    meter.value = isKnown ? used / limit : 0;
    say(text, isKnown ? ` ${bytes(used)} of ${bytes(limit)}` : "–");
    mark(meter, "aria-label", `memory of ${item().node}`);
  };
}

export function sessions(place) {
  return new List(place, {
    caption: "Sessions, clients that are connected now",
    key: (row) => `${row.pid} ${row.id}`,
    first: "id",
    empty: "Nobody is connected.",
    choices: [{ title: "State", all: "all states", of: (row) => row.state }],
    columns: [
      { ...number("id", "Id", (row) => row.id, String), isHeader: true },
      word("user", "User", (row) => row.user),
      word("address", "From", (row) => row.address),
      word("schema", "Schema", (row) => row.schema),
      { ...word("state", "State", (row) => row.state), fill: badge((row) => [row.state, row.state === "busy" ? "busy" : ""]) },
      word("in_transaction", "Transaction", (row) => (row.in_transaction ? "open" : "")),
      word("cacheable", "Cached", (row) => (row.cacheable ? "yes" : "no")),
      { ...word("why_not", "Why not", (row) => row.why_not ?? ""), className: "why" },
      { ...word("statement", "Statement", (row) => row.statement ?? ""), className: "long code", fill: cut((row) => row.statement ?? "") },
      number("connected_s", "Connected", (row) => row.connected_s, ago),
      number("idle_s", "Idle", (row) => row.idle_s, ago),
      number("pid", "Process", (row) => row.pid, String),
    ],
  });
}

export function events(place) {
  return new List(place, {
    caption: "Events, the newest first",
    key: (row) => `${row.at} ${row.pid} ${row.kind} ${row.event}`,
    first: "at",
    empty: "Nothing has happened yet: nodes lost and back, catalog reloads and the like show up here.",
    choices: [{ title: "Kind", all: "all kinds", of: (row) => row.kind }],
    columns: [
      { ...number("at", "When", (row) => row.at, (at) => dayAndClock(new Date(at))), isHeader: true, className: "tight" },
      number("s_ago", "Ago", (row) => row.s_ago, ago),
      { ...word("kind", "Kind", (row) => row.kind), fill: badge((row) => [row.kind, ""]) },
      { ...word("event", "Event", (row) => row.event), className: "whole" },
      number("pid", "Process", (row) => row.pid, String),
    ],
  });
}

export function settings(place) {
  return new List(place, {
    caption: "Settings at work, without secrets",
    key: (row) => row.name,
    first: "name",
    empty: "No settings.",
    columns: [
      { ...word("name", "Setting", (row) => row.name), isHeader: true, className: "code" },
      { ...word("value", "Value", (row) => row.value), className: "whole code" },
    ],
  });
}

/** `/api/settings` as rows. */
export function settingsRows(said) {
  return Object.entries(said).map(([name, value]) => ({
    name,
    value: typeof value === "string" ? value : value === null ? "none" : JSON.stringify(value),
  }));
}
