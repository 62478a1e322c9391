// A list that people sort, filter and leaf through. It shows a page of rows at a time, so that
// thousands cost no more than a hundred, and stays as it is under the pointer or the keyboard: there
// new figures come in, but no row moves.

import { make, mark, say } from "./elements.js";
import { count } from "./format.js";

const PAGE = 100;
const ASCENDING = "ascending";
const DESCENDING = "descending";

/**
 * A column is {name, title, hint?, of, text?, isNumber?, isHeader?, className?, fill?}:
 * `of(item)` is what it is sorted by, null and undefined last; `text(value, item)` is what is shown; `fill(cell, item)`
 * makes cells that are more than a text, once, and may return what is to be done at each change.
 */
export class List {
  /** In `place`: an element. `key(item)` tells items apart; `first` is the column sorted by. */
  constructor(place, { caption, columns, key, first, empty, choices = [] }) {
    this.columns = columns;
    this.key = key;
    this.emptyText = empty;
    this.items = [];
    this.found = [];
    this.rows = new Map();
    this.page = 0;
    this.sorted = { column: columns.find((each) => each.name === first), order: null };
    this.sorted.order = firstOrder(this.sorted.column);
    this.total = 0;
    this.choices = choices.map((choice) => ({ ...choice, select: null, known: "" }));
    this.build(place, caption);
  }

  build(place, caption) {
    this.filter = make("input", {
      type: "search",
      placeholder: "Filter",
      autocomplete: "off",
      spellcheck: false,
      "aria-label": `Filter: ${caption}`,
    });
    this.filter.addEventListener("input", () => this.anew());
    this.said = make("span", { className: "found" });
    this.back = make("button", { type: "button", className: "quiet" }, "Previous");
    this.on = make("button", { type: "button", className: "quiet" }, "Next");
    this.back.addEventListener("click", () => this.leaf(-1));
    this.on.addEventListener("click", () => this.leaf(1));
    const selects = this.choices.map((choice) => {
      choice.select = make("select", { "aria-label": choice.title });
      choice.select.addEventListener("change", () => this.anew());
      return choice.select;
    });
    this.head = make("tr");
    for (const column of this.columns) this.head.append(this.headOf(column));
    this.body = make("tbody");
    const table = make("table", {}, make("caption", { className: "unseen" }, caption));
    table.append(make("thead", {}, this.head), this.body);
    this.none = make("p", { className: "nothing" });
    this.scroller = make("div", { className: "scroller", tabIndex: 0, role: "region", "aria-label": caption }, table);
    place.append(
      make("div", { className: "tools" }, this.filter, ...selects, this.said, this.back, this.on),
      this.scroller,
      this.none,
    );
    this.show();
  }

  headOf(column) {
    const cell = make("th", { scope: "col", className: classOf(column) });
    if (column.of === undefined) {
      cell.append(make("span", { className: "unseen" }, column.title));
      return cell;
    }
    const button = make("button", { type: "button", title: column.hint ?? "" }, column.title);
    button.addEventListener("click", () => this.sortBy(column));
    cell.append(button);
    return cell;
  }

  sortBy(column) {
    const other = this.sorted.order === ASCENDING ? DESCENDING : ASCENDING;
    const order = this.sorted.column === column ? other : firstOrder(column);
    this.sorted = { column, order };
    this.anew();
  }

  /** Shows items; `total` is how many there are, also where not all of them came. */
  update(items, total = items.length) {
    mark(this.said, "aria-live", "off");
    this.items = items;
    this.total = total;
    for (const choice of this.choices) offer(choice, items);
    this.find(this.isHeld());
    this.show();
  }

  /** The filter's text. */
  search(text) {
    this.filter.value = text;
    this.anew();
  }

  anew() {
    mark(this.said, "aria-live", "polite"); // who filters or sorts wants to hear of it
    this.page = 0;
    this.find(false);
    this.scroller.scrollTop = 0;
    this.show();
  }

  leaf(pages) {
    this.page += pages;
    this.scroller.scrollTop = 0;
    this.show();
    if (this.on.disabled && !this.back.disabled) this.back.focus();
    else if (this.back.disabled && pages < 0) this.on.focus();
  }

  isHeld() {
    return this.body.matches(":hover") || this.body.contains(document.activeElement);
  }

  /** What the filters let through, in order; in the order of before where `isHeld`. */
  find(isHeld) {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = this.choices.filter(({ select }) => select.value !== "");
    const found = this.items.filter(
      (item) =>
        wanted.every(({ of, select }) => of(item) === select.value) &&
        (words.length === 0 || has(this.textOf(item), words)),
    );
    const places = isHeld ? new Map(this.found.map((item, place) => [this.key(item), place])) : null;
    const { column, order } = this.sorted;
    const sign = order === ASCENDING ? 1 : -1;
    const keyed = found.map((item) => [item, column.of(item), places?.get(this.key(item)) ?? Infinity]);
    keyed.sort((a, b) => (a[2] === b[2] ? compare(a[1], b[1], sign) : a[2] - b[2]));
    this.found = keyed.map(([item]) => item);
  }

  textOf(item) {
    const texts = this.columns.filter(({ isNumber, of }) => of !== undefined && !isNumber);
    return texts.map(({ of }) => of(item) ?? "").join("\n").toLowerCase();
  }

  show() {
    const last = Math.max(Math.ceil(this.found.length / PAGE) - 1, 0);
    this.page = Math.min(this.page, last);
    const begin = this.page * PAGE;
    const shown = this.found.slice(begin, begin + PAGE);
    const rows = new Map();
    let next = this.body.firstElementChild;
    for (const item of shown) {
      const key = this.key(item);
      if (rows.has(key)) continue;
      const row = this.rows.get(key) ?? this.rowOf();
      rows.set(key, row);
      row.item = item;
      this.columns.forEach((column, index) => this.showCell(row, column, index));
      if (row.element === next) next = next.nextElementSibling;
      else this.body.insertBefore(row.element, next);
    }
    for (const [key, row] of this.rows) if (!rows.has(key)) row.element.remove();
    this.rows = rows;
    this.columns.forEach((column, index) => {
      const isSorted = column === this.sorted.column;
      mark(this.head.children[index], "aria-sort", isSorted ? this.sorted.order : null);
    });
    this.showAround(begin, shown.length, last);
  }

  showAround(begin, shown, last) {
    const all = this.found.length;
    const filtered = all < this.items.length ? ` (of ${count(this.items.length)})` : "";
    const cut = this.items.length < this.total ? `; ${count(this.total)} in all` : "";
    const range = shown < all ? `${count(begin + 1)}–${count(begin + shown)} of ` : "";
    say(this.said, `${range}${count(all)}${filtered}${cut}`);
    this.back.hidden = this.on.hidden = last === 0;
    this.back.disabled = this.page === 0;
    this.on.disabled = this.page === last;
    this.none.hidden = all > 0;
    this.scroller.hidden = all === 0;
    say(this.none, this.items.length > 0 ? "Nothing matches the filter." : this.emptyText);
  }

  rowOf() {
    const row = { element: make("tr"), item: null, fills: [] };
    for (const column of this.columns) {
      const tag = column.isHeader ? "th" : "td";
      const cell = make(tag, { className: classOf(column) });
      if (column.isHeader) cell.scope = "row";
      row.fills.push(column.fill?.(cell, () => row.item));
      row.element.append(cell);
    }
    return row;
  }

  showCell(row, column, index) {
    if (column.fill !== undefined) {
      row.fills[index]?.(row.item);
      return;
    }
    const cell = row.element.children[index];
    const value = column.of(row.item);
    const text = column.text === undefined ? (value ?? "") : column.text(value, row.item);
    say(cell, text);
    if (!column.isNumber) mark(cell, "title", text || null);
  }
}

const firstOrder = (column) => (column.isNumber ? DESCENDING : ASCENDING);

function classOf(column) {
  return [column.isNumber ? "number" : "", column.className ?? ""].filter(Boolean).join(" ");
}

const has = (text, words) => words.every((word) => text.includes(word));

/** What is not known comes last, whichever the order. */
function compare(a, b, sign) {
  const [noA, noB] = [a ?? "", b ?? ""].map((value) => value === "");
  if (noA || noB) return Number(noA) - Number(noB);
  if (a === b) return 0;
  return (a < b ? -1 : 1) * sign;
}

/** The values that there are, each with how many items have it. */
function offer(choice, items) {
  const counts = new Map();
  for (const item of items) {
    const value = choice.of(item);
    if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  const chosen = choice.select.value;
  if (chosen !== "" && !counts.has(chosen)) counts.set(chosen, 0);
  const values = [...counts].sort((a, b) => b[1] - a[1] || compare(a[0], b[0], 1));
  const known = JSON.stringify(values.map(([value]) => value).sort());
  if (known === choice.known) return;
  choice.known = known;
  const options = values.map(([value]) => make("option", { value, title: value }, value));
  choice.select.replaceChildren(make("option", { value: "" }, choice.all), ...options);
  choice.select.value = chosen;
}
