// Asks the door that this page is from.

const TOKEN = "sqlcache.token";
const TIMEOUTS_MS = { GET: 10_000, POST: 60_000 }; // a flush may wait for a node

/** What was answered in place of what was asked for; `status` 0 where nobody answered. */
export class Refusal extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

let kept = null; // where the browser forbids to keep it, it lasts as long as the page

export function token() {
  try {
    return sessionStorage.getItem(TOKEN);
  } catch {
    return kept;
  }
}

/** Keeps it until the tab is closed; null forgets it. */
export function useToken(value) {
  kept = value;
  try {
    if (value === null) sessionStorage.removeItem(TOKEN);
    else sessionStorage.setItem(TOKEN, value);
  } catch {
    // `kept` has it.
  }
}

export const get = (path) => ask("GET", path);
export const post = (path, body) => ask("POST", path, body);

async function ask(method, path, body) {
  const headers = {};
  const known = token();
  if (known !== null) headers.Authorization = `Bearer ${known}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  let said;
  try {
    answer = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
      signal: AbortSignal.timeout(TIMEOUTS_MS[method]),
    });
    said = await answer.text();
  } catch {
    throw new Refusal(0, "sqlcache does not answer");
  }
  let data = null;
  try {
    data = JSON.parse(said);
  } catch {
    // Not JSON: the status tells.
  }
  if (!answer.ok) throw new Refusal(answer.status, data?.error ?? `HTTP status ${answer.status}`);
  if (data === null) throw new Refusal(0, "what answers here is no sqlcache");
  return data;
}
