// @ts-check
// The start page: all pools and networks.

import { el, KeyedList, svg, write } from "./dom.js";
import { count, hasPrefixes, kindText, plural, poolLink, poolText } from "./format.js";
import { OccupancyBar, showReadiness } from "./occupancy.js";
import { columns, emptyText, growth, shownPools, tiles } from "./summary.js";

/** @import { NetworkSummary, Overview, OverviewPool } from "../../../generated/page.d.ts" */
/** @import { Tile } from "./summary.js" */

/** The start page. */
export class OverviewPage {
  title = "Overview";
  #pools = new PoolTable();
  #networks = new NetworkSection();
  #tiles = {
    pools: new TileBox("Pools"),
    bound: new TileBox("Claims with an address"),
    waiting: new TileBox("Waiting claims", "#/waiting"),
    full: new TileBox("Nearly full pools"),
  };

  constructor() {
    this.element = el(
      "div",
      {},
      el("h1", { class: "hidden", text: "Overview" }),
      el("div", { class: "tiles" }, ...Object.values(this.#tiles).map((tile) => tile.element)),
      this.#pools.element,
      this.#networks.element,
    );
  }

  /** @param {Overview} overview */
  update(overview) {
    const shown = tiles(overview);
    this.#tiles.pools.show(shown.pools);
    this.#tiles.bound.show(shown.bound);
    this.#tiles.waiting.show(shown.waiting);
    this.#tiles.full.show(shown.full);
    this.#networks.show(overview.networks);
    this.#pools.show(overview);
  }
}

/** A number with its name and a note, which can be a link. */
class TileBox {
  #value = el("strong");
  #note = el("small");

  /**
   * @param {string} name
   * @param {string} [href]
   */
  constructor(name, href) {
    const parts = [el("span", { text: name }), this.#value, this.#note];
    /** @type {HTMLElement} */
    this.element = href ? el("a", { class: "tile", href }, ...parts) : el("div", { class: "tile" }, ...parts);
  }

  /** @param {Tile} tile */
  show({ number, note, kind }) {
    write(this.#value, count(number));
    write(this.#note, note);
    this.element.dataset.kind = kind;
  }
}

/** The table of pools, which can be filtered and sorted. */
class PoolTable {
  #sorted = 0;
  /** @type {Overview | null} */
  #overview = null;
  #filter = el("input", {
    type: "search", class: "filter", placeholder: "Filter", "aria-label": "Filter the pools",
    oninput: () => this.#render(),
  });
  #heads = columns.map((column, index) => this.#head(column, index));
  #body = el("tbody");
  #table = el("table", { class: "pools" }, el("thead", {}, el("tr", {}, ...this.#heads)), this.#body);
  #empty = el("p", { class: "empty", hidden: true });
  /** @type {KeyedList<OverviewPool>} */
  #rows = new KeyedList(this.#body, (pool) => `${pool.pool.kind}/${poolText(pool.pool)}`, () => new PoolRow());

  constructor() {
    const heading = el("div", { class: "heading" }, el("h2", { text: "Pools" }), this.#filter);
    this.element = el("section", {}, heading, this.#table, this.#empty);
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
    return el("th", { scope: "col", class: column.isNumber ? "number" : null }, button);
  }

  /** @param {Overview} overview */
  show(overview) {
    this.#overview = overview;
    this.#render();
  }

  #render() {
    if (!this.#overview) return;
    const shown = shownPools(this.#overview.pools, this.#filter.value, this.#sorted);
    this.#heads.forEach((head, index) => {
      if (index === this.#sorted) head.setAttribute("aria-sort", index === 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    this.#rows.show(shown);
    this.#table.hidden = shown.length === 0;
    this.#empty.hidden = shown.length > 0;
    write(this.#empty, emptyText(this.#overview));
  }
}

/** A pool in the table. */
class PoolRow {
  #link = el("a", { class: "name" });
  #about = el("span", { class: "about" });
  #ranges = el("span", { class: "ranges" });
  #bar = new OccupancyBar();
  #used = el("td", { class: "number", "data-label": "Used" });
  #free = el("td", { class: "number", "data-label": "Free" });
  #trend = el("td", { "data-label": "Trend", class: "trend" });
  #waiting = el("td", { class: "number", "data-label": "Waiting" });
  #state = el("span", { class: "pill" });

  constructor() {
    this.element = el(
      "tr",
      {},
      el("th", { scope: "row" }, this.#link, this.#about, this.#ranges),
      el("td", { "data-label": "Occupancy" }, this.#bar.element),
      this.#used,
      this.#free,
      this.#trend,
      this.#waiting,
      el("td", { "data-label": "State" }, this.#state),
    );
  }

  /** @param {OverviewPool} pool */
  update(pool) {
    const { kind } = pool.pool;
    this.#link.href = poolLink(pool.pool);
    write(this.#link, poolText(pool.pool));
    write(this.#about, kindText(kind, pool.network));
    write(this.#ranges, pool.ranges);
    this.#bar.set(pool.counts, hasPrefixes(kind) ? "prefixes" : "addresses");
    write(this.#used, pool.counts ? count(pool.counts.used) : "–");
    write(this.#free, pool.counts ? count(pool.counts.free) : "–");
    this.#trend.replaceChildren(sparkline(pool));
    write(this.#waiting, count(pool.waiting));
    this.#waiting.classList.toggle("bad", (pool.waiting ?? 0) > 0);
    showReadiness(this.#state, pool);
  }
}

/** The networks; hidden without one. */
class NetworkSection {
  #list = el("ul", { class: "networks" });
  /** @type {KeyedList<NetworkSummary>} */
  #lines = new KeyedList(this.#list, (network) => network.name, () => new NetworkLine());

  constructor() {
    const hint = el("p", { class: "hint", text: "Pools of one network never allocate the same address." });
    this.element = el("section", { hidden: true }, el("h2", { text: "Networks" }), hint, this.#list);
  }

  /** @param {NetworkSummary[]} networks */
  show(networks) {
    this.element.hidden = networks.length === 0;
    this.#lines.show(networks);
  }
}

class NetworkLine {
  #name = el("strong");
  #text = el("span");
  element = el("li", {}, this.#name, this.#text);

  /** @param {NetworkSummary} network */
  update(network) {
    write(this.#name, network.name);
    const waiting = network.waiting === 0 ? "" : `, ${plural(network.waiting, "waiting claim")}`;
    write(this.#text, `${plural(network.pools, "pool")}, ${count(network.used)} in use${waiting}`);
  }
}

/**
 * The addresses in use since the start of the program, at most an hour.
 * @param {OverviewPool} pool
 */
function sparkline(pool) {
  const values = pool.trend;
  if (values.length < 2) return el("span", { class: "about", text: "–" });
  const [width, height] = [72, 20];
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
