// @ts-check
// A map with its buttons: which part of it is shown, and the way back.

import { announce, el, write } from "./dom.js";
import { CellGrid } from "./map.js";
import { ends, indexOf, isWhole, moved, placeOf, rangeText, zoomed } from "./map_window.js";

/** @import { CellView, Part, Position } from "./map_window.js" */
/** @typedef {Position & { label: string }} Step */
/**
 * What a map shows. `title` is its heading, `name` that for a screen reader, `first` the cell that is selected first,
 * `describe` says what a cell is, `select` shows a cell in the panel. `zoom` is set by the map.
 * @template {Part} W
 * @typedef {{
 *   title: string,
 *   name: string,
 *   panel: { element: HTMLElement, focus: () => void },
 *   legend: HTMLElement,
 *   cells: (window: W) => CellView[],
 *   first: (window: W) => number,
 *   describe: (window: W) => string,
 *   select: (window: W, index: number) => void,
 *   zoom: (index: number) => void,
 * }} MapContent
 */

/**
 * A map.
 * @template {Part} W
 */
export class MapSection {
  /**
   * The parts of the map that were shown before: the way back.
   * @type {Step[]}
   */
  #way = [];
  /** @type {W | null} */
  #window = null;
  /**
   * The position of what gets the focus when the requested part arrives.
   * @type {bigint | null}
   */
  #wanted = null;
  #takesFocus = false;

  #size = el("span", { class: "hint" });
  #area = el("div", { class: "map-area" });
  #trail = el("nav", { class: "trail", "aria-label": "Part of the map" });
  #back = button("Zoom out", "Escape", () => this.#zoomOut());
  #before = button("Previous", "PageUp", () => this.#move(-1));
  #after = button("Next", "PageDown", () => this.#move(1));
  #map;

  /**
   * @param {MapContent<W>} content
   * @param {Position} position
   * @param {() => void} load
   */
  constructor(content, position, load) {
    this.content = content;
    /** The requested part of the map. */
    this.position = position;
    this.load = load;
    this.#takesFocus = position.at !== undefined;
    this.#map = new CellGrid(content.name, {
      zoom: (index) => this.#zoom(index),
      back: () => this.#zoomOut(),
      move: (steps) => this.#move(steps),
      select: (index) => this.#select(index),
    });
    content.zoom = (index) => this.#zoom(index);
    this.#area.append(el("div", {}, this.#map.element, content.legend), content.panel.element);
    const buttons = el("div", { class: "buttons" }, this.#back, this.#before, this.#after);
    this.element = el(
      "section",
      { class: "map-section" },
      el("div", { class: "heading" }, el("h2", { text: content.title }), this.#size, buttons),
      el("p", { class: "hint keys" }, ...keys()),
      this.#trail,
      this.#area,
    );
  }

  /** The number of cells for which there is room. */
  get cells() {
    return this.#map.room;
  }

  /**
   * Shows the requested part of the map.
   * @param {W} window
   */
  show(window) {
    this.#window = window;
    // An address that was asked for is a window like others from here on.
    if (this.position.at !== undefined) this.position = { start: window.start, length: window.length };
    const isOther = this.#map.show(window.labels, this.content.cells(window));
    // Beside a small map the panel would leave a hole.
    this.#area.classList.toggle("small", this.#map.element.classList.contains("small"));
    if (!isOther && this.#wanted === null) {
      this.#select(this.#map.active);
      return;
    }
    const active = this.#map.active || this.content.first(window);
    const wanted = this.#wanted === null ? active : indexOf(window, this.#wanted);
    this.#map.activate(Math.min(window.focus ?? wanted, window.labels.length - 1), this.#takesFocus);
    this.#wanted = null;
    this.#takesFocus = false;
    this.#describe(window);
  }

  /**
   * Shows a part that a link names.
   * @param {Position} position
   */
  follow(position) {
    if (position.at === undefined && position.start === this.position.start) return;
    this.#takesFocus = position.at !== undefined;
    this.#go(position, []);
  }

  /**
   * @param {Position} position
   * @param {Step[]} way
   */
  #go(position, way) {
    this.position = position;
    this.#way = way;
    this.load();
  }

  /** @param {number} index */
  #zoom(index) {
    const window = this.#window;
    const next = window && zoomed(window, index);
    if (!next) {
      this.content.panel.focus();
      return;
    }
    this.#wanted = placeOf(window, index);
    this.#takesFocus = true;
    this.#go(next, [...this.#way, { ...this.position, label: rangeText(window) }]);
  }

  #zoomOut() {
    if (!this.#window || isWhole(this.#window)) return;
    this.#wanted = BigInt(this.#window.start);
    this.#takesFocus = this.#map.hasFocus;
    this.#go(this.#way.at(-1) ?? {}, this.#way.slice(0, -1));
  }

  /** @param {number} steps */
  #move(steps) {
    const target = steps > 0 ? this.#after : this.#before;
    const { length } = this.position;
    if (!this.#window || target.disabled || length === undefined) return;
    const next = moved(this.#window, length, steps);
    this.#wanted = BigInt(next.start);
    this.#takesFocus = this.#map.hasFocus;
    this.#go(next, this.#way);
  }

  /** @param {number} index */
  #select(index) {
    if (this.#window) this.content.select(this.#window, index);
  }

  /**
   * Describes the part that is shown: in words, in the trail, and in the address of the page.
   * @param {W} window
   */
  #describe(window) {
    const text = this.content.describe(window);
    write(this.#size, text);
    const { isFirst, isLast } = ends(window);
    this.#back.disabled = isWhole(window);
    this.#before.disabled = isFirst;
    this.#after.disabled = isLast;
    this.#showTrail(window);
    const { start, length } = this.position;
    const parameters = start === undefined ? "" : `?start=${start}&length=${length}`;
    history.replaceState(null, "", `${location.hash.split("?")[0]}${parameters}`);
    announce(`${window.labels[0]} to ${window.labels.at(-1)}. ${text}`);
  }

  /** @param {W} window */
  #showTrail(window) {
    const whole = () => this.#go({}, []);
    const crumbs = [el("button", { type: "button", text: "Whole map", disabled: isWhole(window), onclick: whole })];
    const steps = this.#way.filter((step) => step.length !== undefined);
    steps.forEach((step, index) => {
      const back = () => this.#go(step, this.#way.slice(0, index + 1));
      crumbs.push(el("button", { type: "button", text: step.label, onclick: back }));
    });
    const present = isWhole(window) ? [] : [el("span", { text: rangeText(window), "aria-current": "true" })];
    this.#trail.replaceChildren(...crumbs, ...present);
    this.#trail.hidden = isWhole(window);
  }
}

/**
 * @param {string} text
 * @param {string} shortcut
 * @param {() => void} onclick
 */
function button(text, shortcut, onclick) {
  return el("button", { type: "button", text, onclick, "aria-keyshortcuts": shortcut });
}

function keys() {
  const all = [
    ["Arrow keys", "move"], ["Enter", "zooms in"], ["Esc", "zooms out"], ["Page Up, Page Down", "show the neighbors"],
  ];
  return all.flatMap(([key, text], index) => [index > 0 ? " · " : "", el("kbd", { text: key }), ` ${text}`]);
}
