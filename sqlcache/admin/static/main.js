// The page: asks every few seconds what there is, and shows it.

import { get, post, token, useToken } from "./api.js";
import { Chart, columnsOf } from "./charts.js";
import { askForToken, confirmed, openExplain, openFlush } from "./dialogs.js";
import { find, make, mark, say } from "./elements.js";
import { clock, count, duration, rate, share } from "./format.js";
import { History, Saving } from "./history.js";
import * as lists from "./lists.js";

const SUMMARY_MS = 2000;
const LIST_MS = 5000;
const LONG_LIST_MS = 15_000; // of thousands
const SHUT_LIST_MS = 10_000;
const LONG_LIST = 1500;
const TOLD_MS = 8000;

const now = () => Date.now() / 1000;

const history = new History();
const saving = new Saving();
const charts = Object.fromEntries(
  [["share", "share"], ["rates", "rates"], ["latency", "latency"], ["saving", "saving"], ["binlog", "lag"]].map(
    ([id, kind]) => [kind, new Chart(find(id), kind)],
  ),
);

/** The lists by the id of their panel. `limit` is what is asked for; `asked`: when it was, last. */
const panels = {
  statements: { list: lists.statements(find("statements"), openExplain), path: "/api/statements", limit: 1000 },
  tables: { list: lists.tables(find("tables"), forget), path: "/api/tables", limit: 5000 },
  nodes: { list: lists.nodes(find("nodes")), path: "/api/nodes", limit: 1000 },
  sessions: { list: lists.sessions(find("sessions")), path: "/api/sessions", limit: 5000 },
  events: { list: lists.events(find("events")), path: "/api/events", limit: 1000 },
  settings: { list: lists.settings(find("settings")), path: "/api/settings" },
};
const ALWAYS = ["statements", "nodes"]; // the charts and the tab's badge want them
for (const [id, panel] of Object.entries(panels)) {
  Object.assign(panel, { id, tab: find(`tab-${id}`), place: find(id), asked: -Infinity, every: LIST_MS });
}

let summary = null;
let paths = null; // those that this sqlcache's API has
let answeredAt = null;
let waiting = null; // for the token: nothing is asked meanwhile

// --- asking ---------------------------------------------------------------------------------

async function turn() {
  if (!document.hidden && waiting === null) {
    await askSummary();
    if (answeredAt !== null && find("trouble").hidden) await askLists();
  }
  setTimeout(turn, SUMMARY_MS);
}

async function askSummary() {
  try {
    summary = await get("/api/summary");
  } catch (refusal) {
    refuse(refusal);
    return;
  }
  if (answeredAt === null || !find("trouble").hidden) paths = null; // it may be another one now
  answeredAt = new Date();
  history.add(now(), summary);
  showTrouble("");
  showSummary();
}

/** Says why there is nothing to see. What was seen stays. */
function refuse(refusal) {
  history.breakOff(now());
  saving.breakOff(now());
  if (refusal.status === 401) {
    const why = token() === null ? "" : "The token is not taken any more.";
    useToken(null);
    waiting ??= askForToken(why).then(() => {
      waiting = null;
      return turnNow();
    });
    return;
  }
  const since = answeredAt === null ? "" : ` The figures are of ${clock(answeredAt)}.`;
  const asks = refusal.status === 0 ? " This page goes on asking." : "";
  showTrouble(`${refusal.message}.${since}${asks}`, refusal.status === 0 ? "no answer" : "refused");
}

async function turnNow() {
  await askSummary();
  await askLists();
}

async function askLists() {
  const asked = performance.now();
  try {
    paths ??= Object.keys((await get("/api/openapi.json")).paths);
  } catch (refusal) {
    refuse(refusal);
    return;
  }
  const due = Object.values(panels).filter((panel) => {
    panel.tab.hidden = !paths.includes(panel.path);
    if (panel.tab.hidden) return false;
    const every = isOpen(panel) ? panel.every : panel.limit === undefined ? Infinity : SHUT_LIST_MS;
    return panel.asked === -Infinity || asked - panel.asked >= every - SUMMARY_MS / 2;
  });
  await Promise.all(due.map((panel) => askList(panel, asked)));
}

const isOpen = (panel) => !panel.place.hidden || ALWAYS.includes(panel.id);

/** Of a list whose panel is shut nothing is asked but how long it is. */
async function askList(panel, asked) {
  const { list, path } = panel;
  const limit = isOpen(panel) ? panel.limit : 0;
  panel.asked = asked;
  let said;
  try {
    said = await get(panel.limit === undefined ? path : `${path}?limit=${limit}`);
  } catch (refusal) {
    if (refusal.status === 404) paths = null; // another version, it seems
    else if (refusal.status === 401 || refusal.status === 0) refuse(refusal);
    else tell(`${panel.tab.textContent}: ${refusal.message}`);
    return;
  }
  if (panel.limit === undefined) {
    list.update(lists.settingsRows(said));
    return;
  }
  mark(panel.tab, "data-count", count(said.total));
  if (limit === 0) return;
  panel.every = said.items.length > LONG_LIST ? LONG_LIST_MS : LIST_MS;
  list.update(said.items, said.total);
  if (panel.id === "statements") showSaving(said.items);
  if (panel.id === "nodes") showNodes(said.items);
}

// --- showing --------------------------------------------------------------------------------

function showSummary() {
  const { ready, problems, warnings, cache_on: isOn } = summary;
  const away = Object.keys(warnings).length;
  const state = !ready ? "not ready" : away > 0 ? `ready, ${away} warning${away > 1 ? "s" : ""}` : "ready";
  const mode = !isOn ? ", cache off" : inShadow() ? ", shadow mode" : "";
  showState(`${state}${mode}`, !ready ? "bad" : away > 0 || !isOn ? "doubtful" : "good");
  const processes = summary.workers === 1 ? "1 process" : `${count(summary.workers)} processes`;
  const clients = summary.connections === 1 ? "1 client" : `${count(summary.connections)} clients`;
  say(find("facts"), `${summary.version} · up ${upFor(summary.up_s)} · ${processes} · ${clients}`);
  showWarnings({ ...problems, ...warnings });
  const button = find("cache-switch");
  button.disabled = false;
  find("sign-out").hidden = token() === null;
  mark(button, "aria-checked", String(isOn));
  showCharts();
  const shown = history.latest("share");
  document.title = shown === null ? "sqlcache" : `${Math.floor(shown)} % · sqlcache`;
}

const inShadow = () => summary.mode === "shadow";

const upFor = (seconds) => (seconds < 120 ? `${Math.floor(seconds)} s` : duration(seconds));

function showCharts() {
  const [hits, reads, rest] = ["hits", "reads", "rest"].map((name) => history.latest(name));
  const shown = history.latest("share");
  say(find("share-now"), shown === null ? "–" : share(shown / 100));
  const [of, would] = inShadow() ? [summary.shadow, "would be "] : [summary, ""];
  const wrong = summary.shadow.stale > 0 ? ` · ${count(summary.shadow.stale)} not as MySQL answers` : "";
  say(
    find("share-all"),
    of.hit_share === null
      ? "no read yet"
      : `${would}${share(of.hit_share)} since the start: ${count(of.hits)} of ${count(summary.reads)}${wrong}`,
  );
  say(find("rate-now"), hits === null ? "–" : `${rate(hits + reads + rest)}/s`);
  say(find("rate-all"), `stored: ${count(summary.fills)} · invalidations: ${count(summary.invalidations)}`);
  const [hit, mysql] = ["hit50", "mysql50"].map((name) => history.latest(name));
  say(find("latency-now"), hit === null && mysql === null ? "–" : `${duration(hit)} / ${duration(mysql)}`);
  const faster = hit !== null && mysql !== null ? `, ${rate(mysql / hit)} times` : "";
  say(find("latency-all"), `median of a hit and of MySQL's answers${faster}`);
  for (const kind of ["share", "rates", "latency"]) {
    charts[kind].show(now(), columnsOf(kind, history.data));
  }
  if (summary.binlog !== undefined) showBinlog(summary.binlog);
}

/** Nothing of it where this sqlcache never had to do with the log. */
function showBinlog(log) {
  const figure = find("binlog");
  figure.hidden = log.following + log.lagging + log.hindered + log.turns === 0;
  if (figure.hidden) return;
  const [follows, behind] = [log.following > 0, `${count(log.lag_bytes)} bytes`];
  say(find("binlog-now"), !follows ? "–" : log.lag_s > 0 || log.lag_bytes > 0 ? `${duration(log.lag_s)}, ${behind}` : "not at all");
  const where = follows ? `followed to file ${log.file}, ${count(log.position)}` : "another one follows it, or nobody";
  const turns = `took over ${count(log.turns)} times · gaps: ${count(log.gaps)}`;
  say(find("binlog-all"), `${where} · ${count(log.events)} events, ${count(log.bumps)} bumps · ${turns}`);
  charts.lag.show(now(), columnsOf("lag", history.data));
}

function showSaving(rows) {
  saving.add(now(), rows);
  charts.saving.show(now(), saving.data);
  say(find("saved-all"), duration(saving.total));
  const latest = saving.latest();
  say(find("saved-now"), latest === null ? "" : latest > 0 ? `${duration(latest)} a second now` : "nothing now");
}

function showNodes(rows) {
  const away = rows.filter((row) => row.away > 0).length;
  mark(panels.nodes.tab, "data-bad", away > 0 ? `${away} away` : null);
}

function showState(text, kind) {
  say(find("state-text"), text);
  mark(find("state"), "data-kind", kind);
}

function showTrouble(text, state = "") {
  const place = find("trouble");
  say(place, text);
  place.hidden = text === "";
  document.body.classList.toggle("stale", text !== "");
  if (text === "") return;
  showState(state, "bad");
  document.title = `${state} · sqlcache`;
  find("cache-switch").disabled = true;
}

function showWarnings(named) {
  const place = find("warnings");
  const texts = Object.entries(named).map(([part, why]) => `${part}: ${why}`);
  const shown = [...place.children].map((item) => item.textContent);
  if (texts.join("\n") !== shown.join("\n")) {
    place.replaceChildren(...texts.map((text) => make("li", {}, text)));
  }
  place.hidden = texts.length === 0;
}

let told = 0;

/** Says what came of something, for a while. */
function tell(text) {
  const place = find("told");
  say(place, text);
  clearTimeout(told);
  told = setTimeout(() => say(place, ""), TOLD_MS);
}

// --- doing ----------------------------------------------------------------------------------

async function forget(table = "") {
  let known = [];
  if (!panels.tables.tab.hidden) {
    known = panels.tables.list.items.map((row) => row.table);
  }
  openFlush(tell, known, table);
}

async function turnSwitch() {
  const isOn = summary.cache_on;
  if (isOn) {
    const text =
      "Every statement goes to MySQL until the cache is switched on again, or this sqlcache is restarted. Writes are followed still.";
    if (!(await confirmed("Switch the cache off?", text, "Switch off"))) return;
  }
  try {
    await post("/api/cache", { enabled: !isOn });
    tell(isOn ? "The cache is off." : "The cache is on.");
  } catch (refusal) {
    tell(`Not done: ${refusal.message}.`);
  }
  await askSummary();
}

const tabs = Object.values(panels).map((panel) => panel.tab);

function choose(tab) {
  for (const panel of Object.values(panels)) {
    const isChosen = panel.tab === tab;
    mark(panel.tab, "aria-selected", String(isChosen));
    panel.tab.tabIndex = isChosen ? 0 : -1;
    panel.place.hidden = !isChosen;
    if (isChosen && !ALWAYS.includes(panel.id) && answeredAt !== null) {
      askList(panel, performance.now());
    }
  }
}

function walk(event) {
  const shown = tabs.filter((tab) => !tab.hidden);
  const place = shown.indexOf(event.target);
  const steps = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: shown.length - 1 };
  if (!(event.key in steps)) return;
  event.preventDefault();
  const next = shown.at(steps[event.key] % shown.length);
  choose(next);
  next.focus();
}

function useTheme(chosen) {
  if (chosen === "") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  try {
    if (chosen === "") localStorage.removeItem("sqlcache.theme");
    else localStorage.setItem("sqlcache.theme", chosen);
  } catch {
    // It lasts as long as the page.
  }
  repaint();
}

const repaint = () => Object.values(charts).forEach((chart) => chart.repaint());

for (const tab of tabs) {
  tab.addEventListener("click", () => choose(tab));
  tab.addEventListener("keydown", walk);
}
find("open-explain").addEventListener("click", () => openExplain());
find("open-flush").addEventListener("click", () => forget());
find("cache-switch").addEventListener("click", turnSwitch);
find("sign-out").addEventListener("click", () => {
  useToken(null);
  location.reload();
});
find("theme").value = document.documentElement.dataset.theme ?? "";
find("theme").addEventListener("change", (event) => useTheme(event.target.value));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
turn();
