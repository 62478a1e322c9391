// Numbers as people read them. What is not known is a dash, never a 0.

const NONE = "–";
const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const FIXED = [0, 1, 2, 3].map(
  (digits) =>
    new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }),
);
const CLOCK = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const DAY_AND_CLOCK = new Intl.DateTimeFormat("en-CA", { dateStyle: "short" });

const isKnown = (value) => typeof value === "number" && Number.isFinite(value);

export function count(value) {
  return isKnown(value) ? WHOLE.format(value) : NONE;
}

/** How many a second. */
export function rate(value) {
  if (!isKnown(value)) return NONE;
  return FIXED[value > 0 && value < 10 ? 1 : 0].format(value);
}

/** 0.931 is 93.1 %. What is below all is never said to be all. */
export function share(value) {
  if (!isKnown(value)) return NONE;
  const percent = value < 1 ? Math.min(100 * value, 99.9) : 100;
  return `${FIXED[1].format(percent)} %`;
}

/** Seconds in milliseconds, for columns: the unit is in their head, the points are aligned. */
export const milliseconds = (value) => fixed(value, 3);

/** The same of bounds, which are round. */
export const roundMilliseconds = (value) => fixed(value, 2);

function fixed(seconds, digits) {
  return isKnown(seconds) ? FIXED[digits].format(1000 * seconds) : NONE;
}

/** Three digits and a unit: 152 µs, 3.21 ms, 12.5 s, 4 min 10 s, 3 h 5 min, 2 d 4 h. */
export function duration(value) {
  if (!isKnown(value)) return NONE;
  if (value === 0) return "0 s";
  if (value < 0.9995e-3) return `${threeDigits(1e6 * value)} µs`;
  if (value < 0.9995) return `${threeDigits(1e3 * value)} ms`;
  if (value < 119.5) return `${threeDigits(value)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return twoUnits(whole, 60, "min", 1, "s");
  if (whole < 86_400) return twoUnits(whole, 3600, "h", 60, "min");
  return twoUnits(whole, 86_400, "d", 3600, "h");
}

/** The same without zeros that say nothing: 500 µs, 2.5 s. */
export function roundDuration(value) {
  return duration(value).replace(/(\.\d*?)0+ /, (_, digits) => (digits === "." ? " " : `${digits} `));
}

function twoUnits(seconds, large, itsName, small, smallName) {
  const rest = Math.floor((seconds % large) / small);
  const first = `${WHOLE.format(Math.floor(seconds / large))} ${itsName}`;
  return rest > 0 ? `${first} ${rest} ${smallName}` : first;
}

function threeDigits(value) {
  return FIXED[value < 9.995 ? 2 : value < 99.95 ? 1 : 0].format(value);
}

export function ago(value) {
  if (!isKnown(value)) return NONE;
  if (value < 2) return "now";
  if (value < 120) return `${Math.floor(value)} s`;
  if (value < 7200) return `${Math.floor(value / 60)} min`;
  if (value < 172_800) return `${Math.floor(value / 3600)} h`;
  return `${Math.floor(value / 86_400)} d`;
}

export function bytes(value) {
  if (!isKnown(value)) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  let scaled = value;
  while (scaled >= 999.5 && unit < units.length - 1) {
    scaled /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? WHOLE.format(scaled) : threeDigits(scaled)} ${units[unit]}`;
}

/** A Date by this machine's clock. */
export function clock(date) {
  return CLOCK.format(date);
}

export function dayAndClock(date) {
  return Number.isNaN(date.getTime()) ? NONE : `${DAY_AND_CLOCK.format(date)} ${clock(date)}`;
}
