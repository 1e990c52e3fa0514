// @ts-check
// A table of pools, which can be filtered and sorted.

import { el, KeyedList, write, writeLine } from "./dom.js";
import { count, hasPrefixes, kindName, kindText, poolLink, poolText } from "./format.js";
import { OccupancyBar, showState } from "./occupancy.js";
import { columns, shownPools, STATE_COLUMN } from "./summary.js";

/** @import { OverviewPool } from "../../../kubectl-ipam/generated/page.d.ts" */

/** The number of pools that are shown at first. */
const FIRST = 100;

/** The table of pools. */
export class PoolTable {
  #sorted = STATE_COLUMN;
  /** @type {OverviewPool[]} */
  #pools = [];
  #heads = columns.map((column, index) => this.#head(column, index));
  #body = el("tbody");
  #more = el("button", { type: "button", onclick: () => this.#showAll() });
  #isOpen = false;
  element = el(
    "div",
    {},
    el("table", { class: "pools" }, el("thead", {}, el("tr", {}, ...this.#heads)), this.#body),
    el("div", { class: "more" }, this.#more),
  );
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

  #showAll() {
    this.#isOpen = true;
    this.#render();
  }

  #render() {
    const shown = shownPools(this.#pools, this.filter.value, this.#sorted);
    this.#heads.forEach((head, index) => {
      if (index === this.#sorted) head.setAttribute("aria-sort", index === 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    this.#rows.show(this.#isOpen ? shown : shown.slice(0, FIRST));
    this.#more.hidden = this.#isOpen || shown.length <= FIRST;
    write(this.#more, `Show all ${count(shown.length)}`);
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
    write(this.#used, usedText(pool.counts));
    this.#used.title = pool.counts?.outOfRange ? `${count(pool.counts.outOfRange)} in use are out of range` : "";
    write(this.#free, pool.size ? count(pool.size.free) : "–");
    write(this.#waiting, count(pool.waiting));
    this.#waiting.classList.toggle("bad", (pool.waiting ?? 0) > 0);
    showState(this.#state, pool);
  }
}

/**
 * The addresses in use, and those that the pool no longer contains.
 * @param {OverviewPool["counts"]} counts
 */
function usedText(counts) {
  if (!counts) return "–";
  return counts.outOfRange > 0 ? `${count(counts.used)} + ${count(counts.outOfRange)}` : count(counts.used);
}
