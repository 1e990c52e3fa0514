// @ts-check
// The blocks of a network in words.

import { count, plural } from "./format.js";

/** @import { BlockLine, NetworkBlocks } from "../../../kubectl-ipam/generated/page.d.ts" */

/** @type {Record<string, { text: string, kind: string }>} */
const states = {
  Held: { text: "This cluster", kind: "good" }, Other: { text: "Another cluster", kind: "" },
  Conflict: { text: "Conflict", kind: "bad" }, Unreadable: { text: "Unreadable record", kind: "warn" },
};

/**
 * The state of a block that is not free.
 * @param {BlockLine} block
 */
export function stateOf({ state }) {
  return states[state] ?? { text: state, kind: "" };
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
  const last = read && `The table shows its records of ${clock(read)}.`;
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
 * What the table does not show.
 * @param {NetworkBlocks} blocks
 */
export function incompleteText({ moreBlocks, isComplete }) {
  const parts = [];
  if (moreBlocks > 0) parts.push(`And ${plural(moreBlocks, "more block")} that ${moreBlocks === 1 ? "is" : "are"} not free.`);
  if (!isComplete) parts.push("The table is incomplete: you may not list all pools and slices.");
  return parts.join(" ");
}

/**
 * What to do, as a sentence.
 * @param {string} advice
 */
export function sentence(advice) {
  return `${advice.charAt(0).toUpperCase()}${advice.slice(1)}.`;
}
