// What the charts show, from what `/api/summary` counts: rates between two polls.

const SMOOTHED_S = 6; // a share or a median of fewer polls jumps about
const GAP_S = 8; // longer than that without a poll is a gap, not a line
const KEPT_S = 600;

/** The columns of `data`, after the time: what is not known is null. */
export const COLUMNS = ["share", "hits", "reads", "rest", "hit50", "hit99", "mysql50", "mysql99", "lag"];

export class History {
  constructor() {
    this.data = [[], ...COLUMNS.map(() => [])];
    this.polls = [];
  }

  /** A summary that came at `time`, in seconds of this machine's clock. */
  add(time, summary) {
    const poll = counted(summary);
    const last = this.polls.at(-1);
    if (last !== undefined && (poll.up < last.up || poll.up - last.up > GAP_S)) {
      this.polls = []; // another process, or a pause
      this.push(time - 0.001, {});
    }
    this.polls.push(poll);
    while (this.polls.length > 2 && poll.up - this.polls[1].up >= SMOOTHED_S) this.polls.shift();
    const first = this.polls[0];
    if (poll.up > first.up) this.push(time, { ...between(first, poll, summary.seconds_up_to), lag: poll.lag });
  }

  /** A time from which on nothing is known. */
  breakOff(time) {
    if (this.polls.length > 0) this.push(time, {});
    this.polls = [];
  }

  push(time, values) {
    const [times, ...columns] = this.data;
    times.push(time);
    COLUMNS.forEach((name, index) => columns[index].push(values[name] ?? null));
    let old = 0;
    while (times[old] < time - KEPT_S) old += 1;
    if (old > 0) for (const column of this.data) column.splice(0, old);
  }

  latest(name) {
    return this.data[1 + COLUMNS.indexOf(name)].at(-1) ?? null;
  }
}

function counted(summary) {
  const passed = Object.values(summary.passed).reduce((sum, each) => sum + each, 0);
  return {
    up: summary.up_s,
    hits: summary.hits,
    reads: summary.reads,
    all: summary.hits + summary.misses + passed,
    hitCounts: summary.hit_seconds_counts,
    mysqlCounts: summary.mysql_seconds_counts,
    lag: summary.binlog?.following > 0 ? summary.binlog.lag_s : null,
  };
}

function between(first, last, upTo) {
  const seconds = last.up - first.up;
  const [hits, reads, all] = ["hits", "reads", "all"].map((name) => last[name] - first[name]);
  if (hits < 0 || reads < hits || all < reads) return {}; // a worker that is gone was not counted
  const hitCounts = last.hitCounts.map((each, index) => each - first.hitCounts[index]);
  const mysqlCounts = last.mysqlCounts.map((each, index) => each - first.mysqlCounts[index]);
  return {
    share: reads > 0 ? (100 * hits) / reads : null,
    hits: hits / seconds,
    reads: (reads - hits) / seconds,
    rest: (all - reads) / seconds,
    hit50: quantile(hitCounts, upTo, 0.5),
    hit99: quantile(hitCounts, upTo, 0.99),
    mysql50: quantile(mysqlCounts, upTo, 0.5),
    mysql99: quantile(mysqlCounts, upTo, 0.99),
  };
}

/** The value below which this part is, in seconds; null of nothing. Within a class the values are
 *  taken to lie evenly by their logarithm; above the last bound, at it. */
export function quantile(counts, upTo, part) {
  const total = counts.reduce((sum, each) => sum + each, 0);
  if (total <= 0) return null;
  let below = 0;
  for (const [index, high] of upTo.entries()) {
    if (below + counts[index] >= part * total && counts[index] > 0) {
      const low = index > 0 ? upTo[index - 1] : high / 2.5;
      return low * (high / low) ** ((part * total - below) / counts[index]);
    }
    below += counts[index];
  }
  return upTo.at(-1);
}

/** MySQL's time that hits have saved, in seconds a second, from two lists of statements. */
export class Saving {
  constructor() {
    this.data = [[], []];
    this.hits = new Map();
    this.at = null;
    this.total = null;
  }

  /** Rows of `/api/statements` that came at `time`. */
  add(time, rows) {
    let saved = 0;
    this.total = 0;
    const hits = new Map();
    for (const row of rows) {
      const key = `${row.kind} ${row.statement}`;
      hits.set(key, row.hits);
      this.total += row.saved_s ?? 0;
      const more = row.hits - (this.hits.get(key) ?? row.hits);
      if (more > 0 && row.saved_s !== null) saved += more * (row.mysql_mean_s - row.hit_mean_s);
    }
    const pause = this.at === null ? null : time - this.at;
    if (pause !== null && pause > 0) {
      this.data[0].push(time);
      this.data[1].push(pause > 3 * GAP_S ? null : Math.max(saved, 0) / pause);
    }
    this.hits = hits;
    this.at = time;
    const old = this.data[0].findIndex((each) => each >= time - KEPT_S);
    if (old > 0) for (const column of this.data) column.splice(0, old);
  }

  breakOff(time) {
    if (this.at !== null) {
      this.data[0].push(time);
      this.data[1].push(null);
    }
    this.at = null;
  }

  latest() {
    return this.data[1].at(-1) ?? null;
  }
}
