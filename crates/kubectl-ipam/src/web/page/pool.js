// One pool: its counts, a map that zooms, holders, waiting claims.

import { age, announce, count, el, get, hasPrefixes, kindName, Loader, plural, poolText, write } from "./dom.js";
import { holderTable, stateText, waitingTable } from "./lists.js";
import { grid } from "./map.js";
import { occupancyBar, readiness } from "./overview.js";

export function pool(route) {
  const [kind, namespace, name] = route.parts;
  const key = { kind, namespace: namespace === "-" ? undefined : namespace, name };
  const noun = hasPrefixes(kind) ? ["prefix", "prefixes"] : ["address", "addresses"];
  // The requested part of the map. The ones before it are the way back.
  let view = position(route.parameters);
  let way = [];
  let shown = null;
  let holders = new Map();
  let wantedFocus = null;
  let usesFocus = false;

  const state = el("span", { class: "pill" });
  const about = el("p", { class: "about" });
  const bar = occupancyBar();
  const counts = el("dl", { class: "counts" });
  const facts = el("dl", { class: "facts" });
  const warnings = el("div", {});
  const trail = el("nav", { class: "trail", "aria-label": "Part of the map" });
  const buttons = {
    back: button("Zoom out", "Escape", () => back()),
    before: button("Previous", "PageUp", () => move(-1)),
    after: button("Next", "PageDown", () => move(1)),
  };
  const map = grid({ zoom, back, move, select });
  const panel = el("aside", { class: "panel", "aria-label": "Selected cell" });
  const legend = el("ul", { class: "legend" }, ...["allocated", "reserved", "cooling", "free"].map((name) => {
    const text = { allocated: "allocated", reserved: "reserved", cooling: "cooling down", free: "free" }[name];
    const look = name === "free" ? "cell" : `cell ${name} level-8`;
    return el("li", {}, el("span", { class: look, "aria-hidden": "true" }), text);
  }));
  const size = el("span", { class: "hint" });
  const mapSection = el(
    "section", { class: "map-section" },
    el("div", { class: "heading" }, el("h2", { text: "Map" }), size, el("div", { class: "buttons" }, ...Object.values(buttons))),
    trail,
    el("div", { class: "map-area" }, el("div", {}, map.element, legend), panel),
    el("p", { class: "hint keys" }, ...keys()),
  );
  const waitingList = waitingTable(false);
  const unknownWaiting = el("p", { class: "hint", text: "It is unknown which other claims wait: you may not list all claims.", hidden: true });
  const waiting = el("section", { hidden: true }, el("h2", { text: "Waiting claims" }), unknownWaiting, waitingList.element);
  const outsideList = holderTable();
  const outside = el("section", { hidden: true }, el("h2", { text: "Out of range" }),
    el("p", { class: "hint", text: "These addresses are in use, and are no longer part of the pool." }), outsideList.element);
  const holderList = holderTable();
  const held = el("section", { hidden: true }, el("h2", { text: "Holders in this part of the map" }),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Holders" }, holderList.element));
  const unknownMap = el("p", { class: "notice warning", hidden: true,
    text: "It is unknown which addresses are free: you may not list all IPAddresses and reservations of the pool." });
  const gone = el("p", { class: "empty", text: "The pool does not exist.", hidden: true });
  const content = el("div", { hidden: true },
    el("div", { class: "summary" }, bar.element, counts), warnings, unknownMap, mapSection, waiting, held, outside,
    el("section", {}, el("h2", { text: "Specification" }), facts));
  const element = el("div", { class: "pool" },
    el("p", { class: "crumbs" }, el("a", { href: "#/", text: "Overview" })),
    el("div", { class: "title" }, el("h1", { text: poolText(key) }), state), about, gone, content);

  function button(text, shortcut, onclick) {
    return el("button", { type: "button", text, onclick, "aria-keyshortcuts": shortcut });
  }

  const loader = new Loader(async () => {
    const asked = view;
    const data = await get("/api/pool", { kind, namespace: key.namespace ?? "", name, ...view }).catch((error) => {
      // Whether there is such a pool is unknown.
      if (error.status !== 403) throw error;
      write(gone, error.message);
      return null;
    });
    if (asked !== view) return;
    const start = performance.now();
    render(data);
    if (performance.getEntriesByName("pool").length > 500) performance.clearMeasures("pool");
    performance.measure("pool", { start, end: performance.now() });
  });

  function render(data) {
    gone.hidden = data !== null;
    content.hidden = data === null;
    state.hidden = data === null;
    if (data === null) return;
    readiness(state, data);
    write(about, `${kindName(kind)}${data.network ? `, network ${data.network}` : ""}`);
    bar.set(data.counts, noun[1]);
    counts.replaceChildren(...[
      ["Total", data.window?.total ?? data.counts.total], ["Used", data.counts.used], ["Free", data.counts.free],
      ["Reserved", data.counts.reserved], ["Cooling down", data.counts.coolingDown], ["Out of range", data.counts.outOfRange],
    ].flatMap(([name, number]) => [el("div", {}, el("dt", { text: name }), el("dd", { text: count(number) }))]));
    const problems = [data.problem, ...(data.warnings ?? [])].filter(Boolean);
    warnings.replaceChildren(...problems.map((text) => el("p", { class: "notice warning", text })));
    describeSpec(data);
    waiting.hidden = data.waitingCount === 0;
    unknownWaiting.hidden = data.waitingCount !== null;
    waitingList.set(data.waiting ?? []);
    outside.hidden = !data.outOfRange?.length;
    outsideList.set(data.outOfRange ?? []);
    held.hidden = !data.holders?.length;
    holderList.set(data.holders ?? []);
    mapSection.hidden = !data.window;
    unknownMap.hidden = Boolean(data.window) || data.counts.free !== null;
    if (data.window) renderMap(data);
  }

  function renderMap(data) {
    shown = data.window;
    // An address that was asked for is a window like others from here on.
    if (view.at !== undefined) view = { start: shown.start, length: shown.length };
    holders = new Map(data.holders.map((holder) => [holder.address, holder]));
    const isNew = map.render(shown, holders);
    if (isNew || wantedFocus !== null) {
      const index = shown.focus ?? (wantedFocus === null ? map.active() : indexOf(wantedFocus));
      map.activate(Math.min(index, shown.labels.length - 1), usesFocus);
      wantedFocus = null;
      usesFocus = false;
      describeView();
    } else select(map.active());
  }

  function describeView() {
    const cells = BigInt(shown.cellSize);
    const part = cells === 1n ? `One cell is one ${noun[0]}.` : `One cell is a block of ${count(cells)} ${noun[1]}.`;
    write(size, part);
    const isWhole = shown.length === shown.total;
    buttons.back.disabled = isWhole;
    buttons.before.disabled = BigInt(shown.start) === 0n;
    buttons.after.disabled = BigInt(shown.start) + BigInt(shown.length) >= BigInt(shown.total);
    const crumbs = [el("button", { type: "button", text: "Whole pool", disabled: isWhole, onclick: () => go({}, []) })];
    way.filter((step) => step.length !== undefined).forEach((step, index) => {
      crumbs.push(el("button", { type: "button", text: step.label, onclick: () => go(step, way.slice(0, index + 1)) }));
    });
    if (!isWhole) crumbs.push(el("span", { text: `${shown.labels[0]} – ${shown.labels.at(-1)}`, "aria-current": "true" }));
    trail.replaceChildren(...crumbs);
    trail.hidden = isWhole;
    const { start, length } = view;
    const parameters = start === undefined ? "" : `?start=${start}&length=${length}`;
    history.replaceState(null, "", `${location.hash.split("?")[0]}${parameters}`);
    announce(`${shown.labels[0]} to ${shown.labels.at(-1)}. ${part}`);
  }

  function describeSpec(data) {
    const lines = [
      ["Ranges", data.ranges.join(", ")], ["Excluded", (data.excluded ?? []).join(", ")], ["Gateway", data.gateway],
      [hasPrefixes(kind) ? "Allocated length" : "Prefix", `/${data.prefixLength}`],
      ["More ranges", (data.moreRanges ?? []).join("; ")], ["Draining", (data.draining ?? []).join(", ")],
      ["Cool-down", data.cooldownSeconds > 0 ? `${data.cooldownSeconds} s` : "none"],
    ].filter(([, text]) => text);
    facts.replaceChildren(...lines.flatMap(([name, text]) => [el("div", {}, el("dt", { text: name }), el("dd", { text }))]));
  }

  function go(next, back) {
    view = next;
    way = back;
    loader.run();
  }

  const indexOf = (place) => {
    const index = (BigInt(place) - BigInt(shown.start)) / BigInt(shown.cellSize);
    return index < 0n ? 0 : Number(index);
  };
  const placeOf = (index) => BigInt(shown.start) + BigInt(index) * BigInt(shown.cellSize);

  function zoom(index) {
    if (!shown.zoom) {
      panel.querySelector("a, button")?.focus();
      return;
    }
    const place = placeOf(index);
    const length = BigInt(shown.zoom);
    wantedFocus = place;
    usesFocus = true;
    const label = `${shown.labels[0]} – ${shown.labels.at(-1)}`;
    go({ start: String((place / length) * length), length: String(length) }, [...way, { ...view, label }]);
  }

  function back() {
    if (shown.length === shown.total) return;
    wantedFocus = BigInt(shown.start);
    usesFocus = map.focused();
    go(way.at(-1) ?? {}, way.slice(0, -1));
  }

  function move(steps) {
    const button = steps > 0 ? buttons.after : buttons.before;
    if (button.disabled) return;
    const length = BigInt(view.length);
    const start = BigInt(shown.start) + BigInt(steps) * length;
    wantedFocus = start;
    usesFocus = map.focused();
    go({ start: String(start), length: String(length) }, way);
  }

  function select(index) {
    const label = shown.labels[index];
    const cell = shown.used.find((cell) => cell.index === index);
    const isBlock = shown.zoom !== undefined;
    const holder = isBlock ? null : holders.get(label);
    const sign = JSON.stringify([label, cell, holder, isBlock]);
    if (panel.sign === sign) return;
    panel.sign = sign;
    panel.replaceChildren(...(isBlock ? block(index, label, cell) : address(label, holder)));
  }

  function block(index, label, cell) {
    const next = shown.labels[index + 1];
    const total = index === shown.labels.length - 1
      ? BigInt(shown.length) - BigInt(shown.cellSize) * BigInt(index) : BigInt(shown.cellSize);
    const numbers = [["Allocated", cell?.allocated ?? 0], ["Reserved", cell?.reserved ?? 0], ["Cooling down", cell?.coolingDown ?? 0]];
    const taken = numbers.reduce((sum, [, number]) => sum + BigInt(number), 0n);
    return [
      el("h3", { text: label }),
      el("p", { class: "about", text: `${count(total)} ${total === 1n ? noun[0] : noun[1]}${next ? `, before ${next}` : ""}` }),
      definitions([...numbers.map(([name, number]) => [name, count(number)]), ["Free", count(total - taken)]]),
      el("button", { type: "button", class: "primary", text: "Zoom in", onclick: () => zoom(index) }),
    ];
  }

  function address(label, holder) {
    if (!holder) return [el("h3", { text: label }), el("p", { class: "about", text: "Free" })];
    const lines = [
      ["Claim", holder.claim], ["Machine", holder.machine], ["Cluster", holder.cluster], ["IPAddress", holder.ipAddress],
      ["Reservation", holder.reservation], ["Pool", poolText(holder.pool)],
      [holder.state === "CoolingDown" ? "Released" : "Since", holder.since && age(holder.since)],
      ["Free at", holder.until && new Date(holder.until).toLocaleTimeString("en-GB")],
    ];
    return [
      el("h3", { text: label }),
      el("p", {}, el("span", { class: "pill", "data-state": holder.state, text: stateText(holder.state) })),
      definitions(lines.filter(([, value]) => value)),
    ];
  }

  function accepts(next) {
    if (next.parts.join("/") !== route.parts.join("/")) return false;
    const wanted = position(next.parameters);
    if (wanted.at !== undefined || wanted.start !== view.start) {
      usesFocus = wanted.at !== undefined;
      go(wanted, []);
    }
    return true;
  }

  usesFocus = view.at !== undefined;
  return { element, update: () => loader.run(), accepts, title: poolText(key) };
}

function position(parameters) {
  const [at, start, length] = ["at", "start", "length"].map((name) => parameters.get(name) ?? undefined);
  if (at !== undefined) return { at };
  return start === undefined || length === undefined ? {} : { start, length };
}

function definitions(lines) {
  return el("dl", {}, ...lines.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", {}, value))));
}

function keys() {
  const all = [["Arrow keys", "move"], ["Enter", "zooms in"], ["Esc", "zooms out"], ["Page Up, Page Down", "show the neighbors"]];
  return all.flatMap(([key, text], index) => [index > 0 ? " · " : "", el("kbd", { text: key }), ` ${text}`]);
}
