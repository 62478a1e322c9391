// The charts, by uPlot, which `index.html` loads before this. Their colours are the style sheet's.

import { make, say } from "./elements.js";
import { duration, rate, roundDuration, share } from "./format.js";
import { COLUMNS } from "./history.js";

const HEIGHT = 132;
const SHORTEST_S = 120; // an axis that begins with seconds would race
const LONGEST_S = 600;

const KINDS = {
  share: {
    said: (value) => (value === null ? "–" : share(value / 100)),
    axis: (value) => `${value}%`,
    range: () => [0, 100],
    series: [["share", "hits of reads", "--hit"]],
  },
  rates: {
    said: (value) => (value === null ? "–" : `${rate(value)}/s`),
    axis: short,
    range: (_chart, _low, high) => [0, nextStep(Math.max(high ?? 0, 1))],
    series: [
      ["hits", "hits", "--hit"],
      ["reads", "other reads", "--mysql"],
      ["rest", "writes and the rest", "--rest"],
    ],
  },
  latency: {
    said: duration,
    axis: roundDuration,
    isLogarithmic: true,
    range: (_chart, low, high) => [10 ** floorLog(low ?? 1e-4), 10 ** (floorLog((high ?? 1e-2) * 0.999) + 1)],
    series: [
      ["hit50", "hit", "--hit"],
      ["hit99", "hit p99", "--hit", [4, 3]],
      ["mysql50", "MySQL", "--mysql"],
      ["mysql99", "MySQL p99", "--mysql", [4, 3]],
    ],
  },
  lag: {
    said: duration,
    axis: (value) => (value === 0 ? "0" : roundDuration(value)),
    range: (_chart, _low, high) => [0, nextStep(Math.max(high ?? 0, 1))],
    series: [["lag", "behind", "--mysql"]],
  },
  saving: {
    said: (value) => (value === null ? "–" : `${duration(value)} a second`),
    axis: (value) => (value === 0 ? "0" : roundDuration(value)),
    range: (_chart, _low, high) => [0, nextStep(Math.max(high ?? 0, 0.001))],
    series: [["saved", "MySQL's time saved", "--hit"]],
  },
};

const floorLog = (value) => Math.floor(Math.log10(value));

/** The next of 1, 2, 5, 10, …: an axis that follows every poll would flicker. */
function nextStep(value) {
  const power = 10 ** floorLog(value);
  return power * [1, 2, 5, 10].find((step) => step * power >= value * 0.9999);
}

function short(value) {
  return value >= 1000 ? `${value / 1000}k` : String(value);
}

/** One chart in a figure: `figure` has an element `.chart` and one `.legend`. */
export class Chart {
  constructor(figure, kind) {
    this.kind = KINDS[kind];
    this.place = figure.querySelector(".chart");
    this.empty = figure.querySelector(".nothing");
    this.values = [];
    const legend = figure.querySelector(".legend");
    for (const [, name, colour, dash] of this.kind.series) {
      const swatch = make("i", { className: `swatch ${colour.slice(2)}${dash ? " dashed" : ""}` });
      const value = make("b", {}, "–");
      this.values.push(value);
      legend.append(make("span", {}, swatch, `${name} `, value));
    }
    this.now = Date.now() / 1000;
    this.plot = new uPlot(this.options(), [[], ...this.kind.series.map(() => [])], this.place);
    new ResizeObserver(() => {
      const width = Math.floor(this.place.clientWidth);
      if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
    }).observe(this.place);
  }

  /** Shows these columns up to `now`: of times, and one for each series. */
  show(now, columns) {
    this.now = now;
    this.plot.setData(columns, true);
    this.empty.hidden = columns[0].length > 0;
    if (this.plot.cursor.idx == null) this.tell(columns[0].length - 1);
  }

  /** Anew in the colours there are now. */
  repaint() {
    this.plot.redraw(true, true);
  }

  tell(index) {
    this.values.forEach((element, series) => {
      say(element, this.kind.said(this.plot.data[series + 1][index] ?? null));
    });
  }

  options() {
    const colour = (name) => () => colourOf(this.place, name);
    const axis = {
      stroke: colour("--faint"),
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    return {
      width: Math.max(Math.floor(this.place.clientWidth), 100),
      height: HEIGHT,
      padding: [8, 8, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, sync: { key: "sqlcache" } },
      scales: {
        x: { range: (_chart, low) => [Math.max(this.now - LONGEST_S, Math.min(low ?? this.now, this.now - SHORTEST_S)), this.now] },
        y: { range: this.kind.range, distr: this.kind.isLogarithmic ? 3 : 1 },
      },
      axes: [
        {
          ...axis,
          size: 24,
          space: 70,
          grid: { show: false },
          values: (_chart, splits) => splits.map((each) => timeOf(each)),
        },
        {
          ...axis,
          size: 52,
          space: 26,
          ...(this.kind.isLogarithmic ? { splits: powersOfTen } : {}),
          values: (_chart, splits) => splits.map((each) => (each === null ? "" : this.kind.axis(each))),
          ...(this.kind.isLogarithmic ? { filter: (_chart, splits) => splits } : {}),
        },
      ],
      series: [
        {},
        ...this.kind.series.map(([, name, tint, dash]) => ({
          label: name,
          stroke: colour(tint),
          width: dash ? 1 : 1.5,
          dash,
          fill: dash || this.kind.series.length > 1 ? undefined : colour(`${tint}-area`),
          points: { show: false },
        })),
      ],
      hooks: {
        setCursor: [(chart) => this.tell(chart.cursor.idx ?? chart.data[0].length - 1)],
      },
    };
  }
}

/** Of a history's data, the columns that a kind of chart shows. */
export function columnsOf(kind, data) {
  return [data[0], ...KINDS[kind].series.map(([name]) => data[1 + COLUMNS.indexOf(name)])];
}

function powersOfTen(_chart, _axis, low, high) {
  const splits = [];
  for (let power = floorLog(low * 1.001); 10 ** power <= high * 1.001; power += 1) {
    splits.push(Number(`1e${power}`));
  }
  return splits;
}

function timeOf(seconds) {
  const date = new Date(1000 * seconds);
  const parts = [date.getHours(), date.getMinutes()];
  if (date.getSeconds() !== 0) parts.push(date.getSeconds());
  return parts.map((each) => String(each).padStart(2, "0")).join(":");
}

/** A colour of the style sheet as a canvas understands it. */
function colourOf(element, name) {
  const before = element.style.color;
  element.style.color = `var(${name})`;
  const colour = getComputedStyle(element).color;
  element.style.color = before;
  return colour;
}
