// @ts-check
// The blocks of a network in words, and how the cells of their map look.

import { count, plural } from "./format.js";
import { levelOf, sizeOf } from "./map_window.js";

/** @import { BlockCell, BlockDetails, BlockWindow, ClusterLine, NetworkBlocks } from "../../../generated/page.d.ts" */
/** @import { CellView } from "./map_window.js" */

/** The number of looks of other management clusters. Those after them look alike. */
export const LOOKS = 8;

/**
 * What the looks of cells depend on: the listed management clusters, and whether the holders of all blocks are known.
 * @typedef {{ clusters: ClusterLine[], isKnown: boolean }} Holders
 */

/**
 * The holders of the blocks of a network.
 * @param {NetworkBlocks} blocks
 * @returns {Holders}
 */
export function holdersOf({ clusters, read, isComplete }) {
  // Without records, the clusters are those of the registry, with blocks of all networks.
  return read ? { clusters, isKnown: isComplete } : { clusters: [], isKnown: false };
}

/**
 * The look of another management cluster by its place in the list.
 * @param {number | null | undefined} place
 */
export function clusterLook(place) {
  const isListed = place !== null && place !== undefined && place < LOOKS;
  return `other ${isListed ? `other-${place}` : "other-more"}`;
}

/**
 * The classes of a cell: the holder of most of its blocks, and a square. In a cell of one own block the square is the
 * share of its addresses in use, in a cell of several blocks the share that is taken.
 * @param {BlockCell | undefined} cell
 * @param {bigint} size The number of blocks.
 * @param {boolean} isKnown
 */
export function blockLook(cell, size, isKnown) {
  if (!cell) return isKnown ? "cell" : "cell unknown";
  // One conflict is more important than everything else in the cell.
  if (cell.conflicts > 0) return "cell conflict";
  const { own, others, unreadable } = cell;
  const taken = own + others + unreadable;
  const level = `level-${BigInt(taken) >= size ? 8 : levelOf(taken / Number(size))}`;
  if (unreadable > own && unreadable >= others) return size === 1n ? "cell unreadable" : `cell unreadable ${level}`;
  if (others > own) return `cell ${clusterLook(cell.cluster)} ${level}`;
  return size === 1n ? `cell own${useLevel(cell)}` : `cell own ${level}`;
}

/**
 * The square of an own block.
 * @param {BlockCell} cell
 */
function useLevel({ used, size }) {
  if (!used) return "";
  return ` level-${used >= size ? 8 : levelOf(used / size)}`;
}

/**
 * A cell in words.
 * @param {string} label
 * @param {BlockCell | undefined} cell
 * @param {bigint} size
 * @param {boolean} isKnown
 */
export function blockText(label, cell, size, isKnown) {
  if (size > 1n) {
    const parts = partsOf(cell, size, isKnown).filter(([, number]) => number > 0n);
    return `${label}, ${count(size)} blocks, ${parts.map(([name, number]) => `${count(number)} ${name}`).join(", ")}`;
  }
  const { block, used, size: addresses } = cell ?? {};
  if (!block) return `${label}, ${isKnown ? "free" : "holder not known"}`;
  const use = block.state === "Own" ? `, ${count(used)} of ${count(addresses)} in use` : "";
  const clusters = block.clusters.length > 0 ? `, ${block.clusters.join(", ")}` : "";
  return `${label}, ${stateOf(block).text}${clusters}${use}`;
}

/**
 * The blocks of a cell by their holders.
 * @param {BlockCell | undefined} cell
 * @param {bigint} size
 * @param {boolean} isKnown
 * @returns {Array<[string, bigint]>}
 */
export function partsOf(cell, size, isKnown) {
  const { own = 0, others = 0, conflicts = 0, unreadable = 0 } = cell ?? {};
  const rest = size - BigInt(own + others + conflicts + unreadable);
  return [
    ["of this cluster", BigInt(own)], ["of other clusters", BigInt(others)], ["in conflict", BigInt(conflicts)],
    ["unreadable", BigInt(unreadable)], [isKnown ? "free" : "without a known holder", rest < 0n ? 0n : rest],
  ];
}

/** @type {Record<string, { text: string, kind: string }>} */
const states = {
  Own: { text: "This cluster", kind: "good" }, Other: { text: "Another cluster", kind: "" },
  Conflict: { text: "Conflict", kind: "bad" }, Unreadable: { text: "Unreadable record", kind: "warn" },
};

/**
 * The state of a block that is not free.
 * @param {BlockDetails} block
 */
export function stateOf({ state }) {
  return states[state] ?? { text: state, kind: "" };
}

/**
 * The cells of a window.
 * @param {BlockWindow} window
 * @param {boolean} isKnown
 * @returns {CellView[]}
 */
export function blockCells(window, isKnown) {
  const cells = new Map(window.cells.map((cell) => [cell.index, cell]));
  return window.labels.map((label, index) => {
    const [cell, size] = [cells.get(index), sizeOf(window, index)];
    return { look: blockLook(cell, size, isKnown), text: blockText(label, cell, size, isKnown) };
  });
}

/**
 * The counts of the blocks of a network.
 * @param {NetworkBlocks} blocks
 * @returns {Array<[string, string]>}
 */
export function blockCounts({ counts, most, total }) {
  /** @type {Array<[string, string]>} */
  const limit = most ? [["Limit", count(most)]] : [];
  return [
    ["Held", `${count(counts.held)} of ${count(total)}`], ["Spare", count(counts.spare)],
    ["Of other clusters", count(counts.others)], ["Conflicts", count(counts.conflicts)],
    ["Block size", count(counts.size)], ...limit,
  ];
}

/**
 * Where the blocks come from, and who this management cluster is.
 * @param {NetworkBlocks} blocks
 */
export function aboutText({ registry, clusterID }) {
  const own = clusterID ? `This one is ${clusterID}.` : "It is not known which one this is.";
  return `Blocks of the IPRegistry ${registry.name}, which several management clusters share. ${own}`;
}

/**
 * Where the holders of the blocks come from, or why they are not known.
 * @param {NetworkBlocks} blocks
 * @param {(time: string) => string} clock
 */
export function sourceText({ read, unread, registry }, clock) {
  const others = "The holders of other blocks are not shown";
  const last = read && `The map shows its records of ${clock(read)}.`;
  if (last && registry.exists === false) return `The IPRegistry ${registry.name} does not exist. ${last}`;
  if (read && unread) return `The registry cannot be read: ${unread}. ${last}`;
  if (read) return `Holders by the records of the registry, read at ${clock(read)}.`;
  if (unread) return `${others}: ${unread}. With access to the registry, kubectl ipam registry list shows them.`;
  if (registry.exists === null) return `${others}: you may not list IPRegistries.`;
  if (!registry.exists) return `${others}: the IPRegistry ${registry.name} does not exist.`;
  return "Reading the records of the registry…";
}

/**
 * What is wrong with the registry.
 * @param {NetworkBlocks} blocks
 */
export function registryProblem({ registry: { name, ready, reason, message } }) {
  if (ready !== "False") return "";
  return `IPRegistry ${name}: ${[reason, message].filter(Boolean).join(": ")}`;
}

/**
 * What the map does not show.
 * @param {NetworkBlocks} blocks
 */
export function incompleteText({ misfits, isComplete }) {
  const parts = [];
  if (misfits > 0) parts.push(`Not on the map: ${plural(misfits, "block")} of another size or family.`);
  if (!isComplete) parts.push("The map is incomplete: you may not list all pools and slices.");
  return parts.join(" ");
}

/**
 * What to do, as a sentence.
 * @param {string} advice
 */
export function sentence(advice) {
  return `${advice.charAt(0).toUpperCase()}${advice.slice(1)}.`;
}
