// @ts-check
// A table of pools, which can be filtered and sorted.

import { el, KeyedList, svg, write, writeLine } from "./dom.js";
import { count, hasPrefixes, kindName, kindText, plural, poolLink, poolText } from "./format.js";
import { OccupancyBar, showState } from "./occupancy.js";
import { columns, growth, shownPools, STATE_COLUMN } from "./summary.js";

/** @import { OverviewPool } from "../../../generated/page.d.ts" */

/** The table of pools. */
export class PoolTable {
  #sorted = STATE_COLUMN;
  /** @type {OverviewPool[]} */
  #pools = [];
  #heads = columns.map((column, index) => this.#head(column, index));
  #body = el("tbody");
  element = el("table", { class: "pools" }, el("thead", {}, el("tr", {}, ...this.#heads)), this.#body);
  filter = el("input", {
    type: "search", class: "filter", placeholder: "Filter", "aria-label": "Filter the pools",
    oninput: () => this.#render(),
  });
  /** @type {KeyedList<OverviewPool>} */
  #rows = new KeyedList(this.#body, (pool) => `${pool.pool.kind}/${poolText(pool.pool)}`, () => new PoolRow());

  /** @param {(count: number) => void} [onshow] */
  constructor(onshow) {
    this.onshow = onshow;
  }

  /**
   * @param {typeof columns[number]} column
   * @param {number} index
   */
  #head(column, index) {
    const sort = () => {
      this.#sorted = index;
      this.#render();
    };
    const button = el("button", { type: "button", text: column.name, onclick: sort });
    return el("th", { scope: "col", class: column.isNumber ? "number" : column.class }, button);
  }

  /** @param {OverviewPool[]} pools */
  show(pools) {
    this.#pools = pools;
    this.#render();
  }

  #render() {
    const shown = shownPools(this.#pools, this.filter.value, this.#sorted);
    this.#heads.forEach((head, index) => {
      if (index === this.#sorted) head.setAttribute("aria-sort", index === 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    this.#rows.show(shown);
    this.element.hidden = shown.length === 0;
    this.onshow?.(shown.length);
  }
}

/** A pool in the table. */
class PoolRow {
  #link = el("a", { class: "name" });
  #about = el("span", { class: "about" });
  #bar = new OccupancyBar();
  #state = el("span", { class: "pill" });
  #used = el("td", { class: "number", "data-label": "Used" });
  #free = el("td", { class: "number", "data-label": "Free" });
  #waiting = el("td", { class: "number", "data-label": "Waiting" });
  #trend = el("td", { "data-label": "Trend", class: "trend" });
  #ranges = el("td", { class: "ranges", "data-label": "Addresses" });

  constructor() {
    this.element = el(
      "tr",
      {},
      el("th", { scope: "row" }, this.#link, this.#about),
      el("td", { class: "bar", "data-label": "Occupancy" }, this.#bar.element),
      el("td", { class: "state", "data-label": "State" }, this.#state),
      this.#used,
      this.#free,
      this.#waiting,
      this.#trend,
      this.#ranges,
    );
  }

  /** @param {OverviewPool} pool */
  update(pool) {
    const { kind } = pool.pool;
    const name = poolText(pool.pool);
    this.#link.href = poolLink(pool.pool);
    writeLine(this.#link, name);
    write(this.#about, pool.network ? `${kindName(kind)} · ${pool.network}` : kindName(kind));
    this.#about.title = kindText(kind, pool.network);
    write(this.#ranges, pool.ranges);
    this.#ranges.title = pool.ranges;
    this.#bar.set(pool.counts, pool.size, hasPrefixes(kind) ? "prefixes" : "addresses");
    write(this.#used, pool.counts ? count(pool.counts.used) : "–");
    write(this.#free, pool.size ? count(pool.size.free) : "–");
    this.#trend.replaceChildren(sparkline(pool));
    write(this.#waiting, count(pool.waiting));
    this.#waiting.classList.toggle("bad", (pool.waiting ?? 0) > 0);
    showState(this.#state, pool);
  }
}

/**
 * The addresses in use since the start of the program, at most an hour.
 * @param {OverviewPool} pool
 */
function sparkline(pool) {
  const values = pool.trend;
  if (values.length < 2) return el("span", { class: "about", text: "–" });
  const [width, height] = [56, 18];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const last = values.length - 1;
  const x = (/** @type {number} */ index) => (index * (width - 4)) / last + 2;
  const y = (/** @type {number} */ value) =>
    high === low ? height / 2 : height - 3 - ((value - low) * (height - 6)) / (high - low);
  const points = values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true", class: "sparkline" },
    svg("polyline", { points }),
    svg("circle", { cx: x(last), cy: y(values[last] ?? 0), r: 2 }),
  );
  const text = signed(growth(pool));
  const title = `${text} in the last ${plural(last, "minute")}`;
  return el("span", { class: "spark", title }, picture, el("span", { text }));
}

/** @param {number} change */
function signed(change) {
  if (change === 0) return `±${count(0)}`;
  return `${change > 0 ? "+" : "−"}${count(Math.abs(change))}`;
}
