// @ts-check
// The map of a pool with its buttons: which part of the pool it shows, and the way back.

import { announce, el, write } from "./dom.js";
import { count } from "./format.js";
import { AddressMap } from "./map.js";
import { CellPanel } from "./cell_panel.js";
import { ends, firstUsable, indexOf, isWhole, moved, placeOf, rangeText, zoomed } from "./map_window.js";

/** @import { Holder, Window } from "../../../generated/page.d.ts" */
/** @import { Position } from "./map_window.js" */
/** @typedef {Position & { label: string }} Step */

/** The map of a pool. */
export class MapSection {
  /**
   * The parts of the pool that were shown before: the way back.
   * @type {Step[]}
   */
  #way = [];
  /** @type {Window | null} */
  #window = null;
  /** @type {Map<string, Holder>} */
  #holders = new Map();
  /**
   * The position of the address that gets the focus when the requested part arrives.
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
  #map = new AddressMap({
    zoom: (index) => this.#zoom(index),
    back: () => this.#zoomOut(),
    move: (steps) => this.#move(steps),
    select: (index) => this.#select(index),
  });

  /**
   * @param {[string, string]} noun
   * @param {Position} position
   * @param {() => void} load
   */
  constructor(noun, position, load) {
    this.noun = noun;
    /** The requested part of the pool. */
    this.position = position;
    this.load = load;
    this.#takesFocus = position.at !== undefined;
    this.panel = new CellPanel(noun, (index) => this.#zoom(index));
    this.#area.append(el("div", {}, this.#map.element, legend()), this.panel.element);
    const buttons = el("div", { class: "buttons" }, this.#back, this.#before, this.#after);
    this.element = el(
      "section",
      { class: "map-section" },
      el("div", { class: "heading" }, el("h2", { text: "Map" }), this.#size, buttons),
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
   * Shows the requested part of the pool.
   * @param {Window} window
   * @param {Holder[]} holders
   */
  show(window, holders) {
    this.#window = window;
    // An address that was asked for is a window like others from here on.
    if (this.position.at !== undefined) this.position = { start: window.start, length: window.length };
    this.#holders = new Map(holders.map((holder) => [holder.address, holder]));
    const isOther = this.#map.show(window, this.#holders);
    // Beside the map of a small pool the panel would leave a hole.
    this.#area.classList.toggle("small", this.#map.element.classList.contains("small"));
    if (!isOther && this.#wanted === null) {
      this.#select(this.#map.active);
      return;
    }
    const active = this.#map.active || firstUsable(window);
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
      this.panel.focus();
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
    if (this.#window) this.panel.show(this.#window, index, this.#holders);
  }

  /**
   * Describes the part that is shown: in words, in the trail, and in the address of the page.
   * @param {Window} window
   */
  #describe(window) {
    const size = BigInt(window.cellSize);
    const [noun, nouns] = this.noun;
    const cells = size === 1n ? `One cell is one ${noun}.` : `One cell is a block of ${count(size)} ${nouns}.`;
    const text = window.isPart ? `${cells} Of the pool, only the part in use is shown.` : cells;
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

  /** @param {Window} window */
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

function legend() {
  /** @type {Array<[string, string]>} */
  const entries = [
    ["cell allocated level-8", "allocated"], ["cell reserved level-8", "reserved"],
    ["cell cooling level-8", "cooling down"], ["cell", "free"], ["cell excluded", "excluded"],
    ["cell gateway", "gateway"], ["cell outside", "outside of the pool"], ["cell slice", "a slice begins"],
  ];
  const items = entries.map(([look, text]) => el("li", {}, el("span", { class: look, "aria-hidden": "true" }), text));
  return el("ul", { class: "legend" }, ...items);
}

function keys() {
  const all = [
    ["Arrow keys", "move"], ["Enter", "zooms in"], ["Esc", "zooms out"], ["Page Up, Page Down", "show the neighbors"],
  ];
  return all.flatMap(([key, text], index) => [index > 0 ? " · " : "", el("kbd", { text: key }), ` ${text}`]);
}
