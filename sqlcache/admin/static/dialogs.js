// What the page asks: for the token, before it changes something, and what is to be explained.

import { get, post, useToken } from "./api.js";
import { find, make, say } from "./elements.js";
import { duration } from "./format.js";

for (const button of document.querySelectorAll("dialog [data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}

/** Asks for the token until there is one that is taken. `why` is what to say besides. */
export function askForToken(why) {
  const dialog = find("token-dialog");
  say(find("token-why"), why);
  if (dialog.open) return Promise.resolve();
  const form = dialog.querySelector("form");
  const input = find("token-input");
  input.value = "";
  dialog.showModal();
  return new Promise((given) => {
    form.onsubmit = async (event) => {
      event.preventDefault();
      const value = input.value.trim();
      if (!/^[\x21-\x7e]+$/.test(value)) {
        say(find("token-why"), "A token has no spaces, and nothing but ASCII.");
        return;
      }
      useToken(value);
      try {
        await get("/api/summary");
      } catch (refusal) {
        if (refusal.status === 401) {
          useToken(null);
          say(find("token-why"), "This is not the token.");
          input.select();
          return;
        }
      }
      form.onsubmit = null;
      dialog.close();
      given();
    };
    dialog.oncancel = (event) => event.preventDefault(); // without it there is nothing to see
  });
}

/** Whether it is to be done. */
export function confirmed(title, text, label) {
  const dialog = find("confirm-dialog");
  say(find("confirm-title"), title);
  say(find("confirm-text"), text);
  const button = find("confirm-do");
  say(button, label);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((answered) => {
    button.onclick = () => dialog.close("do");
    dialog.onclose = () => answered(dialog.returnValue === "do");
  });
}

/** The dialog that forgets answers; it begins with this table where one is given. `tell` shows what
 *  came of it. */
export function openFlush(tell, tables, table = "") {
  const dialog = find("flush-dialog");
  const form = dialog.querySelector("form");
  const name = find("flush-name");
  const options = tables.slice(0, 1000).map((value) => make("option", { value }));
  find("flush-tables").replaceChildren(...options);
  form.elements.what.value = "table";
  name.value = table;
  say(find("flush-error"), "");
  const change = () => {
    const what = form.elements.what.value;
    name.disabled = what === "all";
    name.required = what !== "all";
    name.placeholder = what === "schema" ? "shop" : "shop.orders";
    if (what === "table") name.setAttribute("list", "flush-tables");
    else name.removeAttribute("list");
  };
  form.onchange = change;
  change();
  form.onsubmit = async (event) => {
    event.preventDefault();
    const what = form.elements.what.value;
    const button = find("flush-do");
    button.disabled = true;
    try {
      const body = what === "all" ? { all: true } : { [what]: name.value.trim() };
      const said = await post("/api/flush", body);
      dialog.close();
      tell(`Forgotten: ${said.flushed}.`);
    } catch (refusal) {
      say(find("flush-error"), `Not done: ${refusal.message}.`);
    } finally {
      button.disabled = false;
    }
  };
  dialog.showModal();
  if (table === "") name.focus();
  else find("flush-do").focus();
}

/** The dialog that explains; with a statement it does so at once. */
export function openExplain({ statement, schema } = { statement: "", schema: null }) {
  const dialog = find("explain-dialog");
  const form = dialog.querySelector("form");
  form.elements.sql.value = statement;
  form.elements.schema.value = schema ?? "";
  find("explained").replaceChildren();
  form.onsubmit = (event) => {
    event.preventDefault();
    explain(form);
  };
  dialog.showModal();
  if (statement === "") form.elements.sql.focus();
  else explain(form);
}

async function explain(form) {
  const place = find("explained");
  const body = { sql: form.elements.sql.value };
  const schema = form.elements.schema.value.trim();
  const user = form.elements.user.value.trim();
  if (schema !== "") body.schema = schema;
  if (user !== "") body.user = user;
  try {
    const said = await post("/api/explain", body);
    place.replaceChildren(...said.map(explanation));
  } catch (refusal) {
    const cut = body.sql.endsWith("…") ? " The list has only the beginning of this one." : "";
    place.replaceChildren(make("p", { className: "bad" }, `${refusal.message}.${cut}`));
  }
}

function explanation(said) {
  const list = make("dl");
  const line = (name, value) => {
    if (value === null || value === undefined || value === "" || value.length === 0) return;
    list.append(make("dt", {}, name), make("dd", {}, Array.isArray(value) ? value.join(", ") : value));
  };
  line("statement", said.statement);
  line("switched off by", said.off_by);
  line("tables", said.tables);
  line("views", said.views);
  line("forgotten with", said.tags);
  line("lives", chosen(said.ttl));
  line("may be behind", chosen(said.max_staleness));
  line("last answer meanwhile", chosen(said.stale_while_revalidate));
  line("writes", said.writes);
  line("writes everything", said.writes_everything);
  line("ends answers of", said.bumps);
  const verdict = said.cached ? "Cached" : `Not cached: ${said.why_not}`;
  const kind = said.cached ? "verdict good" : "verdict doubtful";
  return make("section", {}, make("p", { className: kind }, verdict), list);
}

/** A setting's value in seconds, and whose it is; nothing where it is 0. */
const chosen = (pair) => (pair && pair[0] > 0 ? `${duration(pair[0])}, by ${pair[1]}` : null);
