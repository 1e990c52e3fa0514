// @ts-check
// The counts and the specification of a pool as names and values.

import { count, hasPrefixes } from "./format.js";

/** @import { PoolWindow } from "../../../kubectl-ipam/generated/page.d.ts" */
/** @typedef {Array<[string, string]>} Lines */

/**
 * The counts of a pool.
 * @param {PoolWindow} pool
 * @returns {Lines}
 */
export function countLines({ counts, size }) {
  const others = counts.inOtherPools ?? 0;
  const reserved = counts.reserved === null ? null : counts.reserved - others;
  /** @type {Lines} */
  const lines = [
    ["Total", count(size.total)], ["Used", count(counts.used)], ["Free", count(size.free)], ["Reserved", count(reserved)],
    ["Cooling down", count(counts.coolingDown)],
  ];
  if (counts.quarantined) lines.push(["Quarantined", count(counts.quarantined)]);
  if (others > 0) lines.push(["Used by its network", count(others)]);
  if (counts.drained !== undefined && counts.drained !== 0) lines.push(["Drained", count(counts.drained)]);
  if (counts.inOtherBlocks) lines.push(["In other blocks", count(counts.inOtherBlocks)]);
  if (counts.outOfRange !== 0) lines.push(["Out of range", count(counts.outOfRange)]);
  return lines;
}

/** @type {Record<string, string>} */
const orders = {
  LowestFirst: "lowest address first", RoundRobin: "round robin: the next one above the last", Random: "random",
};

/**
 * Everything that the specification sets, and the defaults that matter.
 * @param {PoolWindow} pool
 * @param {string} kind
 * @returns {Lines}
 */
export function specLines(pool, kind) {
  const isPrefixes = hasPrefixes(kind);
  /** @type {Array<[string, string | null | undefined]>} */
  const lines = [
    [isPrefixes ? "Prefixes" : "Addresses", pool.ranges.join(", ")],
    ["More ranges", pool.moreRanges?.join("; ")],
    ["Excluded", pool.excluded?.join(", ")],
    ["Draining", pool.draining?.join(", ")],
    ["Gateway", pool.gateway],
    [isPrefixes ? "Allocated length" : "Prefix", `/${pool.prefixLength}`],
    ["First and last address", pool.allocatesReserved ? "allocated" : null],
    ["Network", pool.network],
    ["Order", orders[pool.order] ?? pool.order],
    ["Sticky", pool.sticky ? "yes: a claim gets the address of the last claim of its name" : null],
    ["Requested addresses", pool.requests ? "accepted" : null],
    ["Cool-down", pool.cooldownSeconds > 0 ? `${pool.cooldownSeconds} s` : "none"],
    ["Slices", sliceText(pool.slicePolicy)],
    ["Access", pool.access?.join("; ")],
    ["Reclaim", reclaimText(pool.reclaim)],
    ["Labels and annotations", pool.addressMetadata?.join(", ")],
  ];
  return lines.flatMap(([name, text]) => (text ? [/** @type {[string, string]} */ ([name, text])] : []));
}

/** @param {PoolWindow["slicePolicy"]} policy */
function sliceText(policy) {
  if (!policy) return null;
  const owner = policy.label ? `value of the label ${policy.label}` : policy.per;
  const parts = [`${count(policy.size)} addresses for each ${owner}`];
  if (policy.mostEach) parts.push(`at most ${policy.mostEach} for an owner`);
  if (policy.keepSeconds !== null && policy.keepSeconds !== undefined) parts.push(`an empty one is kept ${policy.keepSeconds} s`);
  return parts.join("; ");
}

/** @param {PoolWindow["reclaim"]} policy */
function reclaimText(policy) {
  const seconds = policy?.terminating?.afterSeconds;
  const parts = [];
  if (seconds) parts.push(`a claim in deletion is released after ${seconds} s`);
  if (policy?.verify && policy.verify !== "None") parts.push("addresses are compared with those of the Machines");
  return parts.join("; ");
}
