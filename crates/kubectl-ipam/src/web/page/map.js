// The map of a pool: a grid of cells. A cell is a block of addresses, or one.

import { count, el } from "./dom.js";
import { stateText } from "./lists.js";

const LEVELS = 8;

// Creates a grid. `zoom(index)`, `back()` and `move(steps)` are called by keys and the mouse; `select(index)` when the
// focus moves.
export function grid({ zoom, back, move, select }) {
  const element = el("div", { class: "map", role: "grid", "aria-label": "Map of the addresses" });
  const narrow = window.matchMedia("(max-width: 640px)");
  let cells = [];
  let labels = [];
  let columns = 32;
  let active = 0;

  function build(data) {
    columns = narrow.matches ? 16 : 32;
    labels = data.labels;
    cells = labels.map((_, index) => {
      const cell = el("div", { role: "gridcell", tabindex: "-1", class: "cell" });
      cell.index = index;
      return cell;
    });
    const rows = [];
    for (let start = 0; start < cells.length; start += columns) {
      const label = el("div", { class: "row-label", role: "rowheader", text: labels[start] });
      rows.push(el("div", { role: "row", class: "map-row" }, label, ...cells.slice(start, start + columns)));
    }
    element.style.setProperty("--columns", columns);
    element.replaceChildren(...rows);
    element.setAttribute("aria-rowcount", rows.length);
    element.setAttribute("aria-colcount", columns);
  }

  // Shows a window. `holders` are the holders by address, for cells of one address.
  function render(data, holders) {
    const changed = labels.length !== data.labels.length || labels[0] !== data.labels[0] || labels.at(-1) !== data.labels.at(-1);
    const wanted = narrow.matches ? 16 : 32;
    const rebuilds = changed || wanted !== columns;
    if (rebuilds) build(data);
    const used = new Map(data.used.map((cell) => [cell.index, cell]));
    const size = BigInt(data.cellSize);
    const last = BigInt(data.length) - size * BigInt(cells.length - 1);
    cells.forEach((element, index) => {
      const cell = used.get(index);
      const holder = size === 1n ? holders.get(labels[index]) : null;
      const sign = cell ? `${cell.allocated} ${cell.reserved} ${cell.coolingDown} ${holder?.claim ?? ""}` : "free";
      if (element.sign === sign) return;
      element.sign = sign;
      const total = index === cells.length - 1 ? last : size;
      element.className = `cell ${look(cell, total)}`;
      element.setAttribute("aria-label", describe(labels[index], cell, total, holder));
    });
    if (rebuilds) activate(Math.min(active, cells.length - 1), false);
    return changed;
  }

  function activate(index, focus) {
    cells[active]?.setAttribute("tabindex", "-1");
    cells[active]?.removeAttribute("aria-selected");
    active = index;
    const cell = cells[active];
    if (!cell) return;
    cell.setAttribute("tabindex", "0");
    cell.setAttribute("aria-selected", "true");
    if (focus) cell.focus({ preventScroll: false });
    select(active);
  }

  element.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = active - (active % columns);
    const targets = {
      ArrowLeft: active - 1, ArrowRight: active + 1, ArrowUp: active - columns, ArrowDown: active + columns,
      Home: row, End: Math.min(row + columns, cells.length) - 1,
    };
    const target = targets[event.key];
    if (target !== undefined) {
      if (cells[target]) activate(target, true);
    } else if (event.key === "Enter" || event.key === " ") zoom(active);
    else if (event.key === "Escape" || event.key === "Backspace") back();
    else if (event.key === "PageDown") move(1);
    else if (event.key === "PageUp") move(-1);
    else return;
    event.preventDefault();
  });
  element.addEventListener("click", (event) => {
    const cell = event.target.closest(".cell");
    if (cell) activate(cell.index, true);
  });
  element.addEventListener("dblclick", (event) => {
    const cell = event.target.closest(".cell");
    if (cell) zoom(cell.index);
  });

  const focused = () => element.contains(document.activeElement);
  return { element, render, activate, focused, active: () => active };
}

// The classes of a cell: the state of most of its addresses, and the share that is not free.
function look(cell, total) {
  if (!cell) return "";
  const parts = [["allocated", cell.allocated], ["reserved", cell.reserved], ["cooling", cell.coolingDown]];
  const taken = parts.reduce((sum, [, number]) => sum + number, 0);
  const state = parts.reduce((most, part) => (part[1] > most[1] ? part : most))[0];
  const level = cell.full ? LEVELS : Math.min(LEVELS - 1, Math.max(1, Math.round((LEVELS * taken) / Number(total))));
  return `${state} level-${level}`;
}

function describe(label, cell, total, holder) {
  if (total === 1n) {
    const claim = holder?.claim ? `, ${holder.claim}` : "";
    return `${label}, ${holder ? stateText(holder.state) : cell ? "not free" : "free"}${claim}`;
  }
  if (!cell) return `${label}, block of ${count(total)}, free`;
  const parts = [[cell.allocated, "allocated"], [cell.reserved, "reserved"], [cell.coolingDown, "cooling down"]];
  const texts = parts.filter(([number]) => number > 0).map(([number, text]) => `${count(number)} ${text}`);
  return `${label}, block of ${count(total)}, ${texts.join(", ")}${cell.full ? ", full" : ""}`;
}
