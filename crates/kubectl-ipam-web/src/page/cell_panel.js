// @ts-check
// The panel beside a map: what is known of the selected cell.

import { age, definitions, el } from "./dom.js";
import { clock, count, poolLink, poolText, stateText } from "./format.js";
import { UNUSABLE, partsOf, sizeOf, unusableAs, usableOf } from "./map_window.js";

/** @import { Cell, Holder, Window } from "../../../kubectl-ipam/generated/page.d.ts" */
/** @import { Child } from "./dom.js" */

/** What is known of the selected cell. */
export class CellPanel {
  element = el("aside", { class: "panel", "aria-label": "Selected cell" });
  #shown = "";

  /**
   * @param {[string, string]} noun
   * @param {(index: number) => void} zoom
   */
  constructor(noun, zoom) {
    this.noun = noun;
    this.zoom = zoom;
  }

  /**
   * Shows a cell. `holders` are the holders by address.
   * @param {Window} window
   * @param {number} index
   * @param {Map<string, Holder>} holders
   */
  show(window, index, holders) {
    const label = window.labels[index] ?? "";
    const cell = window.used.find((cell) => cell.index === index);
    const holder = holders.get(label);
    const isBlock = Boolean(window.zoom);
    // The focus can be in the panel: it is built again only if it changes.
    const shown = JSON.stringify([label, cell, holder, isBlock]);
    if (this.#shown === shown) return;
    this.#shown = shown;
    this.element.replaceChildren(...(isBlock ? this.#block(window, index, label, cell) : address(label, cell, holder)));
  }

  focus() {
    const target = this.element.querySelector("a, button");
    if (target instanceof HTMLElement) target.focus();
  }

  /**
   * A block of addresses.
   * @param {Window} window
   * @param {number} index
   * @param {string} label
   * @param {Cell | undefined} cell
   */
  #block(window, index, label, cell) {
    const [noun, nouns] = this.noun;
    const next = window.labels[index + 1];
    const size = sizeOf(window, index);
    let free = usableOf(cell, size);
    /** @type {Array<[string, Child]>} */
    const lines = [];
    for (const [name, number] of partsOf(cell)) {
      lines.push([`${name.charAt(0).toUpperCase()}${name.slice(1)}`, count(number)]);
      free -= BigInt(number);
    }
    lines.push(["Free", count(free < 0n ? 0n : free)]);
    if (cell?.otherBlocks) lines.push(["In other blocks", count(cell.otherBlocks)]);
    if (cell?.excluded) lines.push(["Excluded", count(cell.excluded)]);
    if (cell?.outside) lines.push(["Outside of the pool", count(cell.outside)]);
    const about = `${count(size)} ${size === 1n ? noun : nouns}${next ? `, before ${next}` : ""}`;
    return [
      el("h3", { text: label }),
      el("p", { class: "about", text: about }),
      el("dl", {}, ...definitions(lines)),
      el("button", { type: "button", class: "primary", text: "Zoom in", onclick: () => this.zoom(index) }),
    ];
  }
}

/**
 * One address.
 * @param {string} label
 * @param {Cell | undefined} cell
 * @param {Holder | undefined} holder
 */
function address(label, cell, holder) {
  const unusable = unusableAs(cell);
  const state = unusable ? UNUSABLE[unusable] : cell?.draining ? "draining" : "free";
  const about = `${state.charAt(0).toUpperCase()}${state.slice(1)}`;
  if (!holder) return [el("h3", { text: label }), el("p", { class: "about", text: about })];
  /** @type {Array<[string, Child]>} */
  const lines = [
    ["Claim", holder.claim],
    ["Machine", holder.machine],
    ["Cluster", holder.cluster],
    ["IPAddress", holder.ipAddress],
    ["Reservation", holder.reservation],
    ["Pool", el("a", { href: poolLink(holder.pool), text: poolText(holder.pool) })],
    [holder.state === "CoolingDown" ? "Released" : "Since", holder.since && age(holder.since)],
    ["Free at", holder.until && clock(holder.until)],
  ];
  return [
    el("h3", { text: label }),
    el("p", {}, el("span", { class: "pill", "data-state": holder.state, text: stateText(holder.state) })),
    el("dl", {}, ...definitions(lines.filter(([, value]) => value))),
  ];
}
