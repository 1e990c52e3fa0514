// The start page: all pools and networks.

import { count, el, hasPrefixes, kindName, list, percent, plural, poolLink, poolText, svg, write } from "./dom.js";

// Pools above this share are nearly full.
const NEARLY_FULL = 90;

const columns = [
  { name: "Pool", of: (pool) => `${poolText(pool.pool)} ${pool.pool.kind}` },
  { name: "Occupancy", of: (pool) => -share(pool) },
  { name: "Used", of: (pool) => -(pool.counts?.used ?? -1), number: true },
  { name: "Free", of: (pool) => pool.counts?.free ?? Infinity, number: true },
  { name: "Trend", of: (pool) => -growth(pool) },
  { name: "Waiting", of: (pool) => -(pool.waiting ?? 0), number: true },
  { name: "State", of: (pool) => (pool.ready === "True" ? 1 : 0) },
];

function share(pool) {
  return pool.counts?.total ? (pool.counts.total - pool.counts.free) / pool.counts.total : 0;
}

function growth(pool) {
  return pool.trend.length > 0 ? pool.trend.at(-1) - pool.trend[0] : 0;
}

export function overview() {
  const tiles = { pools: tile("Pools"), bound: tile("Claims with an address"), waiting: tile("Waiting claims"), full: tile("Nearly full pools") };
  tiles.waiting.element.href = "#/waiting";
  let sorted = 0;
  let data = null;
  const filter = el("input", {
    type: "search", class: "filter", placeholder: "Filter", "aria-label": "Filter the pools", oninput: () => render(),
  });
  const heads = columns.map((column, index) => {
    const sort = el("button", { type: "button", text: column.name, onclick: () => { sorted = index; render(); } });
    return el("th", { scope: "col", class: column.number ? "number" : null }, sort);
  });
  const body = el("tbody");
  const empty = el("p", { class: "empty", hidden: true });
  const table = el("table", { class: "pools" }, el("thead", {}, el("tr", {}, ...heads)), body);
  const networks = el("section", { hidden: true }, el("h2", { text: "Networks" }));
  const networkList = el("ul", { class: "networks" });
  networks.append(
    el("p", { class: "hint", text: "Pools of one network never allocate the same address." }),
    networkList,
  );
  const element = el(
    "div",
    {},
    el("h1", { class: "hidden", text: "Overview" }),
    el("div", { class: "tiles" }, ...Object.values(tiles).map((tile) => tile.element)),
    el("section", {}, el("div", { class: "heading" }, el("h2", { text: "Pools" }), filter), table, empty),
    networks,
  );

  function render() {
    if (!data) return;
    const text = filter.value.trim().toLowerCase();
    const matches = (pool) =>
      text === "" || `${poolText(pool.pool)} ${pool.network ?? ""} ${pool.ranges} ${pool.pool.kind}`.toLowerCase().includes(text);
    const order = columns[sorted].of;
    const shown = data.pools.filter(matches);
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    shown.sort((a, b) => compare(order(a), order(b)) || compare(columns[0].of(a), columns[0].of(b)));
    heads.forEach((head, index) => {
      if (index === sorted) head.setAttribute("aria-sort", index === 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    list(body, shown, (pool) => `${pool.pool.kind}/${poolText(pool.pool)}`, row);
    table.hidden = shown.length === 0;
    empty.hidden = shown.length > 0;
    if (data.pools.length > 0) write(empty, "No pool matches the filter.");
    else if (data.listing.length > 0) write(empty, "Reading the pools…");
    else write(empty, data.missing.length > 0 ? "You may not list the pools." : "The cluster has no pools.");
  }

  function update(next) {
    data = next;
    const ready = data.pools.filter((pool) => pool.ready === "False").length;
    const full = data.pools.filter((pool) => 100 * share(pool) >= NEARLY_FULL);
    tiles.pools.set(data.pools.length, ready > 0 ? `${ready} not ready` : "", ready > 0 ? "bad" : "");
    tiles.bound.set(data.bound, "");
    tiles.waiting.set(data.waiting, data.waiting > 0 ? "Show reasons" : "", data.waiting > 0 ? "bad" : "");
    const exhausted = full.filter((pool) => pool.counts.free === 0).length;
    tiles.full.set(full.length, exhausted > 0 ? `${exhausted} without a free address` : "", full.length > 0 ? "warn" : "");
    networks.hidden = data.networks.length === 0;
    list(networkList, data.networks, (network) => network.name, networkLine);
    render();
  }

  return { element, update, title: "Overview" };
}

function tile(name) {
  const value = el("strong");
  const note = el("small");
  const element = el(name === "Waiting claims" ? "a" : "div", { class: "tile" }, el("span", { text: name }), value, note);
  const set = (number, text, kind = "") => {
    write(value, count(number));
    write(note, text);
    element.dataset.kind = kind;
  };
  return { element, set };
}

function networkLine() {
  const name = el("strong");
  const text = el("span");
  const element = el("li", {}, name, text);
  element.update = (network) => {
    write(name, network.name);
    const waiting = network.waiting === 0 ? "" : `, ${plural(network.waiting, "waiting claim")}`;
    write(text, `${plural(network.pools, "pool")}, ${count(network.used)} in use${waiting}`);
  };
  return element;
}

function row() {
  const link = el("a", { class: "name" });
  const about = el("span", { class: "about" });
  const ranges = el("span", { class: "ranges" });
  const bar = occupancyBar();
  const used = el("td", { class: "number", "data-label": "Used" });
  const free = el("td", { class: "number", "data-label": "Free" });
  const trend = el("td", { "data-label": "Trend", class: "trend" });
  const waiting = el("td", { class: "number", "data-label": "Waiting" });
  const state = el("span", { class: "pill" });
  const first = el("th", { scope: "row" }, link, about, ranges);
  const element = el(
    "tr", {}, first, el("td", { "data-label": "Occupancy" }, bar.element), used, free, trend, waiting,
    el("td", { "data-label": "State" }, state),
  );
  element.update = (pool) => {
    link.href = poolLink(pool.pool);
    write(link, poolText(pool.pool));
    write(about, `${kindName(pool.pool.kind)}${pool.network ? `, network ${pool.network}` : ""}`);
    write(ranges, pool.ranges);
    bar.set(pool.counts, hasPrefixes(pool.pool.kind) ? "prefixes" : "addresses");
    write(used, pool.counts ? count(pool.counts.used) : "–");
    write(free, pool.counts ? count(pool.counts.free) : "–");
    trend.replaceChildren(sparkline(pool));
    write(waiting, count(pool.waiting));
    waiting.classList.toggle("bad", pool.waiting > 0);
    readiness(state, pool);
  };
  return element;
}

// Shows whether a pool is ready, in words.
export function readiness(element, pool) {
  const kinds = { True: "good", False: "bad", Unknown: "" };
  const texts = { True: "Ready", False: "Not ready", Unknown: "No conditions" };
  element.dataset.kind = kinds[pool.ready] ?? "";
  write(element, pool.reason ?? texts[pool.ready] ?? pool.ready);
}

// A bar with the used, reserved and cooling shares.
export function occupancyBar() {
  const parts = ["used", "reserved", "cooling"].map((name) => svg("rect", { class: `bar-${name}`, y: 0, height: 8 }));
  const picture = svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, ...parts);
  const text = el("span", { class: "share" });
  const element = el("div", { class: "occupancy" }, picture, text);
  const set = (counts, noun) => {
    const total = counts?.total ?? 0;
    // Without a permission it is unknown which addresses are free.
    if (counts && counts.free === null) {
      parts.forEach((part) => part.setAttribute("width", 0));
      write(text, "?");
      element.title = "It is unknown which addresses are free.";
      element.dataset.kind = "";
      return;
    }
    const values = counts ? [counts.used, counts.reserved, counts.coolingDown] : [0, 0, 0];
    let start = 0;
    parts.forEach((part, index) => {
      const width = total > 0 ? (100 * values[index]) / total : 0;
      part.setAttribute("x", start);
      // A share that is not zero is visible.
      part.setAttribute("width", values[index] > 0 ? Math.max(width, 0.8) : 0);
      start += width;
    });
    const taken = counts ? percent(counts.total - counts.free, total) : 0;
    write(text, counts ? `${taken} %` : "–");
    element.title = counts
      ? `${count(counts.used)} used, ${count(counts.reserved)} reserved, ${count(counts.coolingDown)} cooling down, ` +
        `${count(counts.free)} free of ${count(total)} ${noun}`
      : "";
    element.dataset.kind = counts && counts.free === 0 && total > 0 ? "bad" : taken >= NEARLY_FULL ? "warn" : "";
  };
  return { element, set };
}

// The addresses in use since the start of the program, at most an hour.
function sparkline(pool) {
  const values = pool.trend;
  if (values.length < 2) return el("span", { class: "about", text: "–" });
  const [width, height] = [72, 20];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (index) => (index * (width - 4)) / (values.length - 1) + 2;
  const y = (value) => (high === low ? height / 2 : height - 3 - ((value - low) * (height - 6)) / (high - low));
  const points = values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const change = growth(pool);
  const sign = change > 0 ? "+" : change < 0 ? "−" : "±";
  const text = `${sign}${count(Math.abs(change))}`;
  const minutes = values.length - 1;
  const picture = svg(
    "svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true", class: "sparkline" },
    svg("polyline", { points }),
    svg("circle", { cx: x(values.length - 1), cy: y(values.at(-1)), r: 2 }),
  );
  return el("span", { class: "spark", title: `${text} in the last ${plural(minutes, "minute")}` }, picture, el("span", { text }));
}
