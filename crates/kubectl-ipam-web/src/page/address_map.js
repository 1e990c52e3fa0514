// @ts-check
// What the map of a pool shows: its addresses, and the blocks of addresses of a large pool.

import { CellPanel } from "./cell_panel.js";
import { el } from "./dom.js";
import { count } from "./format.js";
import { addressCells, firstUsable } from "./map_window.js";

/** @import { Holder, Window } from "../../../kubectl-ipam/generated/page.d.ts" */

/** The addresses of a pool. */
export class AddressContent {
  title = "Map";
  name = "Map of the addresses";
  legend = legend([
    ["cell allocated level-8", "allocated"], ["cell reserved level-8", "reserved"],
    ["cell cooling level-8", "cooling down"], ["cell draining level-8", "draining"], ["cell", "free"],
    ["cell excluded", "excluded"], ["cell elsewhere", "in another block"],
    ["cell gateway", "gateway"], ["cell outside", "outside of the pool"], ["cell slice", "a slice begins"],
  ]);
  zoom = (/** @type {number} */ _) => {};
  first = firstUsable;
  /** @type {Map<string, Holder>} */
  #holders = new Map();

  /** @param {[string, string]} noun */
  constructor(noun) {
    this.noun = noun;
    this.panel = new CellPanel(noun, (index) => this.zoom(index));
  }

  /** @param {Holder[]} holders */
  set holders(holders) {
    this.#holders = new Map(holders.map((holder) => [holder.address, holder]));
  }

  /** @param {Window} window */
  cells(window) {
    return addressCells(window, this.#holders);
  }

  /** @param {Window} window */
  describe({ cellSize, isPart }) {
    const size = BigInt(cellSize);
    const [noun, nouns] = this.noun;
    const cells = size === 1n ? `One cell is one ${noun}.` : `One cell is a block of ${count(size)} ${nouns}.`;
    return isPart ? `${cells} Of the pool, only the part in use is shown.` : cells;
  }

  /**
   * @param {Window} window
   * @param {number} index
   */
  select(window, index) {
    this.panel.show(window, index, this.#holders);
  }
}

/**
 * A legend: the looks of cells, and what they mean.
 * @param {Array<[string, string]>} entries
 */
export function legend(entries) {
  const items = entries.map(([look, text]) => el("li", {}, el("span", { class: look, "aria-hidden": "true" }), text));
  return el("ul", { class: "legend" }, ...items);
}
