// @ts-check
// A map: a grid of cells, with the keys of a grid.

import { el } from "./dom.js";
import { cellsFor, layoutOf } from "./map_window.js";

/** @import { CellView } from "./map_window.js" */

/**
 * What keys and the mouse do.
 * @typedef {{
 *   zoom: (index: number) => void,
 *   back: () => void,
 *   move: (steps: number) => void,
 *   select: (index: number) => void,
 * }} Actions
 */

/** The width of the page of a map before it is measured, in pixels. */
const DEFAULT_WIDTH = 900;
/** The number of rows up to which a map is lower than the panel beside it. */
const SMALL = 12;
/** The space around a map and around its cells, in pixels. */
const PADDING = 30;

/** A grid of cells. */
export class CellGrid {
  /** The index of the cell that has the focus when the map has it. */
  active = 0;
  /** @type {HTMLElement[]} */
  #cells = [];
  /** @type {Map<EventTarget, number>} */
  #indexes = new Map();
  /** @type {string[]} */
  #labels = [];
  #columns = 32;
  #beside = 0;
  /** The width for cells and labels. To measure it in each update would cost a layout. */
  #width = Math.min(DEFAULT_WIDTH, window.innerWidth) - 2 * PADDING;
  /** @type {{ labels: string[], cells: CellView[] } | null} */
  #shown = null;

  /**
   * @param {string} name
   * @param {Actions} actions
   */
  constructor(name, actions) {
    this.element = el("div", { class: "map", role: "grid", "aria-label": name });
    this.actions = actions;
    new ResizeObserver(([entry]) => entry && this.#resize(entry.contentRect.width)).observe(this.element);
    this.element.addEventListener("keydown", (event) => this.#press(event));
    this.element.addEventListener("click", (event) => {
      const index = this.#indexAt(event);
      if (index !== undefined) this.activate(index, true);
    });
    this.element.addEventListener("dblclick", (event) => {
      const index = this.#indexAt(event);
      if (index !== undefined) actions.zoom(index);
    });
  }

  /** The number of cells for which there is room. */
  get room() {
    return cellsFor(layoutOf(this.#width, []).columns);
  }

  /**
   * Lays the map out for another width. A map that is hidden has none.
   * @param {number} width
   */
  #resize(width) {
    if (width === 0 || width === this.#width) return;
    this.#width = width;
    if (this.#shown) this.show(this.#shown.labels, this.#shown.cells);
  }

  /** Whether the map has the focus. */
  get hasFocus() {
    return this.element.contains(document.activeElement);
  }

  /**
   * Shows cells. Returns whether they are another window.
   * @param {string[]} after The labels of all cells.
   * @param {CellView[]} cells
   */
  show(after, cells) {
    this.#shown = { labels: after, cells };
    const before = this.#labels;
    const isOther = before.length !== after.length || before[0] !== after[0] || before.at(-1) !== after.at(-1);
    const { columns, beside } = layoutOf(this.#width, after);
    const isRebuilt = isOther || columns !== this.#columns || beside !== this.#beside;
    if (isRebuilt) this.#build(after, columns, beside);
    this.#cells.forEach((element, index) => {
      const { look = "cell", text = "" } = cells[index] ?? {};
      // Most of the up to 1,024 cells stay as they are.
      if (element.className !== look) element.className = look;
      if (element.getAttribute("aria-label") !== text) element.setAttribute("aria-label", text);
    });
    if (isRebuilt) this.activate(Math.min(this.active, this.#cells.length - 1), false);
    return isOther;
  }

  /**
   * @param {string[]} labels
   * @param {number} columns
   * @param {number} beside
   */
  #build(labels, columns, beside) {
    this.#labels = labels;
    this.#columns = columns;
    this.#beside = beside;
    this.#cells = labels.map(() => el("div", { role: "gridcell", tabindex: "-1", class: "cell" }));
    this.#indexes = new Map(this.#cells.map((cell, index) => [cell, index]));
    const rows = [];
    for (let start = 0; start < labels.length; start += columns) {
      const label = el("div", { class: "row-label", role: "rowheader", text: labels[start] });
      rows.push(el("div", { role: "row", class: "map-row" }, label, ...this.#cells.slice(start, start + columns)));
    }
    this.element.style.setProperty("--columns", String(columns));
    this.element.style.setProperty("--label", `${beside}px`);
    this.element.classList.toggle("labels-above", beside === 0);
    this.element.classList.toggle("small", labels.length <= SMALL * columns);
    this.element.replaceChildren(...rows);
    this.element.setAttribute("aria-rowcount", String(rows.length));
    this.element.setAttribute("aria-colcount", String(columns));
  }

  /**
   * Makes a cell the active one.
   * @param {number} index
   * @param {boolean} takesFocus
   */
  activate(index, takesFocus) {
    this.#cells[this.active]?.setAttribute("tabindex", "-1");
    this.#cells[this.active]?.removeAttribute("aria-selected");
    this.active = index;
    const cell = this.#cells[index];
    if (!cell) return;
    cell.setAttribute("tabindex", "0");
    cell.setAttribute("aria-selected", "true");
    if (takesFocus) cell.focus({ preventScroll: false });
    this.actions.select(index);
  }

  /** @param {Event} event */
  #indexAt(event) {
    return event.target ? this.#indexes.get(event.target) : undefined;
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = this.#target(event.key);
    if (target !== undefined) {
      if (this.#cells[target]) this.activate(target, true);
    } else if (event.key === "Enter" || event.key === " ") this.actions.zoom(this.active);
    else if (event.key === "Escape" || event.key === "Backspace") this.actions.back();
    else if (event.key === "PageDown") this.actions.move(1);
    else if (event.key === "PageUp") this.actions.move(-1);
    else return;
    event.preventDefault();
  }

  /**
   * The cell that a key leads to.
   * @param {string} key
   * @returns {number | undefined}
   */
  #target(key) {
    const row = this.active - (this.active % this.#columns);
    switch (key) {
      case "ArrowLeft": return this.active - 1;
      case "ArrowRight": return this.active + 1;
      case "ArrowUp": return this.active - this.#columns;
      case "ArrowDown": return this.active + this.#columns;
      case "Home": return row;
      case "End": return Math.min(row + this.#columns, this.#cells.length) - 1;
      default: return undefined;
    }
  }
}
