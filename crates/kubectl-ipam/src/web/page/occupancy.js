// @ts-check
// The occupancy and the state of a pool.

import { el, svg, write } from "./dom.js";
import { count, percent } from "./format.js";
import { NEARLY_FULL } from "./summary.js";

/** @import { Counts, KnownCounts } from "../../../generated/page.d.ts" */

/** Widths below this one in percent are not visible. */
const MIN_WIDTH = 0.8;

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
   * @param {string} nouns
   */
  set(counts, nouns) {
    if (!counts) return this.#show([0, 0, 0], 0, "–", "", "");
    const { total, free } = counts;
    // Without a permission it is unknown which addresses are free.
    if (free === null || free === undefined) {
      return this.#show([0, 0, 0], 0, "?", "It is unknown which addresses are free.", "");
    }
    const taken = percent(total - free, total);
    const { used, reserved, coolingDown } = counts;
    const parts = `${count(used)} used, ${count(reserved)} reserved, ${count(coolingDown)} cooling down`;
    const title = `${parts}, ${count(free)} free of ${count(total)} ${nouns}`;
    const full = taken >= NEARLY_FULL ? "warn" : "";
    const kind = free === 0 && total > 0 ? "bad" : full;
    return this.#show([used ?? 0, reserved ?? 0, coolingDown ?? 0], total, `${taken} %`, title, kind);
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

/** @type {Record<string, string>} */
const stateKinds = { True: "good", False: "bad", Unknown: "" };
/** @type {Record<string, string>} */
const stateTexts = { True: "Ready", False: "Not ready", Unknown: "No conditions" };

/**
 * Shows whether a pool is ready, in words.
 * @param {HTMLElement} element
 * @param {{ ready: string, reason?: string | null }} pool
 */
export function showReadiness(element, pool) {
  element.dataset.kind = stateKinds[pool.ready] ?? "";
  write(element, pool.reason ?? stateTexts[pool.ready] ?? pool.ready);
}
