// @ts-check
// The arithmetic of a map: positions in a pool, and cells of a window of it. A pool can have 2¹²⁸ addresses.

import { count, stateText } from "./format.js";

/** @import { Cell, Holder, Window } from "../../../kubectl-ipam/generated/page.d.ts" */

/**
 * A part of a pool: the surroundings of an address, or a number of addresses from one on; by default the whole pool.
 * @typedef {{ at?: string, start?: string, length?: string }} Position
 */

/**
 * A part of a map: of the addresses of a pool, or of the blocks of a network. A position is the place of one of them.
 * @typedef {Pick<Window, "total" | "start" | "length" | "cellSize" | "zoom" | "labels" | "isPart" | "focus">} Part
 */
/**
 * How a cell looks, as classes, and what it is in words.
 * @typedef {{ look: string, text: string }} CellView
 */

/** The number of steps of the side of the square that shows how full a cell is. */
const LEVELS = 8;
/** The smallest cell that a finger can hit, and the smallest one for a mouse, with its gap, in pixels. */
const [FINGER, MOUSE] = [24, 24];
/** The space between two cells in pixels, and the width of a letter of a label. */
const [GAP, LETTER] = [3, 7.4];
/** Cells without an address that can be allocated, in words. */
export const UNUSABLE = {
  gateway: "gateway", elsewhere: "not in a block of this management cluster", excluded: "excluded", outside: "outside of the pool",
};

/**
 * The position in the parameters of a route.
 * @param {URLSearchParams} parameters
 * @returns {Position}
 */
export function parsePosition(parameters) {
  const at = parameters.get("at");
  if (at !== null) return { at };
  const [start, length] = [parameters.get("start"), parameters.get("length")];
  return start === null || length === null ? {} : { start, length };
}

/**
 * How a map is laid out: the number of its columns, and the width of the labels in pixels; 0 if they are above their
 * rows.
 * @param {number} width of the map in pixels
 * @param {string[]} labels
 */
export function layoutOf(width, labels) {
  const longest = Math.ceil(LETTER * Math.max(0, ...labels.map((label) => label.length)));
  const rest = width - longest - GAP;
  // Labels above the rows leave all of the width to the cells.
  const isAbove = columnsFor(rest) < columnsFor(width) || longest > width / 3;
  return isAbove ? { columns: columnsFor(width), beside: 0 } : { columns: columnsFor(rest), beside: longest };
}

/**
 * The number of columns in which a cell can be hit: a power of two, as the blocks of addresses.
 * @param {number} width
 */
function columnsFor(width) {
  const cell = (/** @type {number} */ columns) => (width + GAP) / columns - GAP;
  if (cell(32) + GAP >= MOUSE) return 32;
  return cell(16) >= FINGER ? 16 : 8;
}

/**
 * The largest number of cells that fits on a few screens.
 * @param {number} columns
 */
export function cellsFor(columns) {
  return columns * 32;
}

/**
 * Whether a window shows all addresses of the pool.
 * @param {Part} window
 */
export function isWhole(window) {
  return window.length === window.total;
}

/**
 * Whether a window has no address before it, and none after it.
 * @param {Part} window
 */
export function ends(window) {
  const [start, length] = [BigInt(window.start), BigInt(window.length)];
  return { isFirst: start === 0n, isLast: start + length >= BigInt(window.total) };
}

/**
 * The first and the last cell of a window.
 * @param {Part} window
 */
export function rangeText({ labels }) {
  return `${labels[0]} – ${labels.at(-1)}`;
}

/**
 * The position of the first address of a cell.
 * @param {Part} window
 * @param {number} index
 */
export function placeOf(window, index) {
  return BigInt(window.start) + BigInt(index) * BigInt(window.cellSize);
}

/**
 * The cell that contains the address at a position.
 * @param {Part} window
 * @param {bigint} place
 */
export function indexOf(window, place) {
  const index = (place - BigInt(window.start)) / BigInt(window.cellSize);
  return index < 0n ? 0 : Number(index);
}

/**
 * The first cell with an address that can be allocated.
 * @param {Window} window
 */
export function firstUsable(window) {
  const unusable = new Set(window.used.filter((cell) => cell.unusable).map((cell) => cell.index));
  const first = window.labels.findIndex((_, index) => !unusable.has(index));
  return Math.max(first, 0);
}

/**
 * The window that shows a cell in detail; null if the cell is one address.
 * @param {Part} window
 * @param {number} index
 * @returns {Position | null}
 */
export function zoomed(window, index) {
  if (!window.zoom) return null;
  const length = BigInt(window.zoom);
  const start = (placeOf(window, index) / length) * length;
  return { start: String(start), length: String(length) };
}

/**
 * The window as many windows of this length further.
 * @param {Part} window
 * @param {string} length
 * @param {number} steps
 */
export function moved(window, length, steps) {
  const start = BigInt(window.start) + BigInt(steps) * BigInt(length);
  return { start: String(start), length };
}

/**
 * The number of addresses of a cell: the last one can have fewer.
 * @param {Part} window
 * @param {number} index
 */
export function sizeOf(window, index) {
  const size = BigInt(window.cellSize);
  if (index < window.labels.length - 1) return size;
  return BigInt(window.length) - size * BigInt(index);
}

/**
 * The states of the addresses of a cell that are not free, with their numbers.
 * @param {Cell | undefined} cell
 * @returns {Array<[string, number]>}
 */
export function partsOf(cell) {
  const { allocated = 0, reserved = 0, coolingDown = 0, draining = 0 } = cell ?? {};
  return [["allocated", allocated], ["reserved", reserved], ["cooling down", coolingDown], ["draining", draining]];
}

/**
 * What a cell is of which no address can be allocated; null for every other cell.
 * @param {Cell | undefined} cell
 * @returns {keyof typeof UNUSABLE | null}
 */
export function unusableAs(cell) {
  if (!cell?.unusable) return null;
  if (cell.gateway) return "gateway";
  if (cell.otherBlocks) return "elsewhere";
  return cell.excluded ? "excluded" : "outside";
}

/**
 * The number of addresses of a cell that can be allocated.
 * @param {Cell | undefined} cell
 * @param {bigint} size
 */
export function usableOf(cell, size) {
  const { excluded = 0, outside = 0, otherBlocks = 0 } = cell ?? {};
  return size - BigInt(excluded) - BigInt(outside) - BigInt(otherBlocks);
}

/**
 * The classes of a cell: the state of most of its addresses, and the share that is not free.
 * @param {Cell | undefined} cell
 * @param {bigint} size
 */
export function cellClass(cell, size) {
  if (!cell) return "cell";
  const unusable = unusableAs(cell);
  if (unusable) return `cell ${unusable}`;
  let [state, most, taken] = ["", 0, 0];
  for (const [name, number] of partsOf(cell)) {
    taken += number;
    if (number > most || state === "") [state, most] = [name.replace(" down", ""), number];
  }
  if (taken === 0) return "cell";
  const level = cell.full ? LEVELS : levelOf(taken / Number(usableOf(cell, size)));
  return `cell ${state} level-${level}`;
}

/**
 * The side of the square that shows a share which is neither nothing nor all. Its area is the share: so 1 and 5 of 64
 * differ.
 * @param {number} share
 */
export function levelOf(share) {
  return Math.min(LEVELS - 1, Math.max(1, Math.round(LEVELS * Math.sqrt(share))));
}

/**
 * The cells of a window of a pool. `holders` are the holders by address, for cells of one address.
 * @param {Window} window
 * @param {Map<string, Holder>} holders
 * @returns {CellView[]}
 */
export function addressCells(window, holders) {
  const used = new Map(window.used.map((cell) => [cell.index, cell]));
  const borders = new Set(window.slices);
  return window.labels.map((label, index) => {
    const [cell, size] = [used.get(index), sizeOf(window, index)];
    const border = borders.has(index) ? " slice" : "";
    const text = cellText(label, cell, size, size === 1n ? holders.get(label) : undefined);
    return { look: `${cellClass(cell, size)}${border}`, text };
  });
}

/**
 * A cell in words.
 * @param {string} label
 * @param {Cell | undefined} cell
 * @param {bigint} size
 * @param {Holder | undefined} holder
 */
export function cellText(label, cell, size, holder) {
  const unusable = unusableAs(cell);
  if (unusable) return `${label}, ${size === 1n ? "" : `block of ${count(size)}, `}${UNUSABLE[unusable]}`;
  if (size === 1n) {
    const state = holder ? stateText(holder.state) : cell ? (cell.draining ? "draining" : "not free") : "free";
    return `${label}, ${state}${holder?.claim ? `, ${holder.claim}` : ""}`;
  }
  if (!cell) return `${label}, block of ${count(size)}, free`;
  const { excluded = 0, outside = 0, otherBlocks = 0 } = cell;
  /** @type {Array<[string, number]>} */
  const all = [...partsOf(cell), [UNUSABLE.elsewhere, otherBlocks], ["excluded", excluded], ["outside of the pool", outside]];
  const parts = all.filter(([, number]) => number > 0).map(([name, number]) => `${count(number)} ${name}`);
  return `${label}, block of ${count(size)}, ${parts.join(", ")}${cell.full ? ", full" : ""}`;
}
