// @ts-check
// The occupancy and the state of a pool.

import { el, svg, write } from "./dom.js";
import { count, percent } from "./format.js";
import { isNearlyFull, poolState } from "./summary.js";

/** @import { Counts, KnownCounts, Size } from "../../../kubectl-ipam/generated/page.d.ts" */
/** @import { Condition } from "./summary.js" */

/** Widths below this one in percent are not visible. */
const MIN_WIDTH = 1.5;

/** A bar with the used, reserved and cooling shares. */
export class OccupancyBar {
  #parts = ["used", "reserved", "cooling"].map((name) => svg("rect", { class: `bar-${name}`, y: 0, height: 8 }));
  #text = el("span", { class: "share" });

  constructor() {
    const attributes = { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" };
    const picture = svg("svg", attributes, ...this.#parts);
    this.element = el("div", { class: "occupancy" }, picture, this.#text);
  }

  /**
   * @param {Counts | KnownCounts | null | undefined} counts
   * @param {Size | null | undefined} size
   * @param {string} nouns
   */
  set(counts, size, nouns) {
    if (!counts || !size) return this.#show([0, 0, 0], 0, "–", "", "");
    // Without a permission it is unknown which addresses are free.
    if (size.free === null) return this.#show([0, 0, 0], 0, "?", "It is unknown which addresses are free.", "");
    const [total, free] = [BigInt(size.total), BigInt(size.free)];
    const { used, reserved, coolingDown, outOfRange } = counts;
    const outside = outOfRange ? `${count(outOfRange)} in use out of range, ` : "";
    const parts = `${outside}${count(used)} used, ${count(reserved)} reserved, ${count(coolingDown)} cooling down`;
    const title = `${parts}, ${count(size.free)} free of ${count(size.total)} ${nouns}`;
    const full = outside || isNearlyFull({ ready: "", size }) ? "warn" : "";
    const kind = free === 0n && total > 0n ? "bad" : full;
    const text = percent(total - free, total);
    return this.#show([used ?? 0, reserved ?? 0, coolingDown ?? 0], Number(total), text, title, kind);
  }

  /**
   * @param {number[]} values
   * @param {number} total
   * @param {string} text
   * @param {string} title
   * @param {string} kind
   */
  #show(values, total, text, title, kind) {
    let start = 0;
    this.#parts.forEach((part, index) => {
      const value = values[index] ?? 0;
      const width = total > 0 ? (100 * value) / total : 0;
      part.setAttribute("x", String(start));
      // A share that is not zero is visible.
      part.setAttribute("width", String(value > 0 ? Math.max(width, MIN_WIDTH) : 0));
      start += width;
    });
    write(this.#text, text);
    this.element.title = title;
    this.element.dataset.kind = kind;
  }
}

/**
 * Shows the state of a pool, in words.
 * @param {HTMLElement} element
 * @param {Condition} pool
 */
export function showState(element, pool) {
  const { text, kind } = poolState(pool);
  element.dataset.kind = kind;
  write(element, text);
}
