// @ts-check
// What the start page shows, computed from the overview of the server.

import { count, poolText } from "./format.js";

/** @import { Overview, OverviewNetwork, OverviewPool, PoolFinding, Size } from "../../../kubectl-ipam/generated/page.d.ts" */
/** @typedef {{ number: number | null | undefined, note: string, kind: string, href?: string }} Tile */
/**
 * The state of a pool in words. The rank is its place among others: problems are first.
 * @typedef {{ text: string, kind: "good" | "warn" | "bad" | "", rank: number }} PoolState
 */

/** Pools from this share in percent on are nearly full. */
export const NEARLY_FULL = 90;

/** Numbers in names are compared as numbers. */
const names = new Intl.Collator("en", { numeric: true });

/** The last rank of a problem. */
const LAST_PROBLEM = 6;

/**
 * What the state of a pool depends on.
 * @typedef {{
 *   ready: string, reason?: string | null, size?: Size | null, waiting?: number | null, finding?: PoolFinding | null,
 * }} Condition
 */

/**
 * The state of a pool.
 * @param {Condition} pool
 * @returns {PoolState}
 */
export function poolState(pool) {
  const waits = (pool.waiting ?? 0) > 0;
  const severity = pool.finding?.severity;
  const check = pool.finding?.check ?? "";
  if (pool.ready === "False") return { text: pool.reason ?? "Not ready", kind: "bad", rank: 0 };
  if (isFull(pool)) return { text: "Full", kind: "bad", rank: waits ? 1 : 2 };
  if (severity === "Error") return { text: check, kind: "bad", rank: 3 };
  if (waits) return { text: "Claims wait", kind: "warn", rank: 4 };
  if (severity === "Warning") return { text: check, kind: "warn", rank: 5 };
  if (isNearlyFull(pool)) return { text: "Nearly full", kind: "warn", rank: LAST_PROBLEM };
  if (pool.ready === "True") return { text: "Ready", kind: "good", rank: LAST_PROBLEM + 2 };
  return { text: pool.reason ?? "No conditions", kind: "", rank: LAST_PROBLEM + 1 };
}

/** @param {Condition} pool */
function isFull({ size }) {
  return size?.free === "0" && size.total !== "0";
}

/** @param {Condition} pool */
export function isNearlyFull({ size }) {
  return 100 * share(size) >= NEARLY_FULL;
}

/**
 * The share of the addresses that are not free.
 * @param {Size | null | undefined} size
 */
export function share(size) {
  if (!size || size.free === null || size.total === "0") return 0;
  const total = BigInt(size.total);
  // Four digits are enough to compare.
  return Number(((total - BigInt(size.free)) * 10_000n) / total) / 10_000;
}

/**
 * A column of the table of pools. `of` is what it is sorted by.
 * @type {Array<{ name: string, of: (pool: OverviewPool) => string | number, isNumber?: boolean, class?: string }>}
 */
export const columns = [
  { name: "Pool", of: name },
  { name: "Occupancy", of: (pool) => -share(pool.size) },
  { name: "State", of: (pool) => poolState(pool).rank },
  { name: "Used", of: (pool) => -(pool.counts?.used ?? -1), isNumber: true },
  { name: "Free", of: (pool) => Number(pool.size?.free ?? Infinity), isNumber: true },
  { name: "Waiting", of: (pool) => -(pool.waiting ?? 0), isNumber: true },
  { name: "Addresses", of: (pool) => pool.ranges, class: "addresses" },
];
/** The column by which pools are sorted at first: problems first. */
export const STATE_COLUMN = 2;

/**
 * The blocks of a network, such as "3 of 16"; empty if it shares none.
 * @param {OverviewNetwork["blocks"]} blocks
 */
export function blocksText(blocks) {
  return blocks ? `${count(blocks.held)} of ${count(blocks.total)}` : "";
}

/**
 * The state of a network. Problems have the lowest ranks.
 * @param {OverviewNetwork} network
 * @returns {PoolState}
 */
export function networkState({ ready, reason, blocks }) {
  if ((blocks?.conflicts ?? 0) > 0) return { text: "BlockConflict", kind: "bad", rank: 0 };
  if (ready === "False") return { text: reason ?? "Not ready", kind: "bad", rank: 1 };
  if (ready === "True") return { text: "Ready", kind: "good", rank: LAST_PROBLEM + 2 };
  return { text: reason ?? "No conditions", kind: "", rank: LAST_PROBLEM + 1 };
}

/**
 * The networks of a group, problems first. Only the group of problems leaves some out.
 * @param {OverviewNetwork[]} networks
 * @param {string} group
 */
export function networksOf(networks, group) {
  const rank = (/** @type {OverviewNetwork} */ network) => networkState(network).rank;
  const shown = networks.filter((network) => group !== "problems" || rank(network) <= LAST_PROBLEM);
  return shown.sort((a, b) => rank(a) - rank(b) || compare(a.name, b.name));
}

/**
 * The number of pools of a group; among the problems are networks, too.
 * @param {Overview} overview
 * @param {string} group
 */
export function sizeOfGroup({ pools, networks }, group) {
  const others = group === "problems" ? networksOf(networks, group).length : 0;
  return poolsOf(pools, group).length + others;
}

/**
 * The tiles of the start page.
 * @param {Overview} overview
 * @returns {{ pools: Tile, bound: Tile, waiting: Tile, full: Tile }}
 */
export function tiles(overview) {
  const { pools, bound, waiting } = overview;
  // The status of a pool without conditions is unknown.
  const notReady = pools.filter((pool) => pool.ready === "False").length;
  const full = pools.filter(isNearlyFull);
  const exhausted = full.filter(isFull).length;
  const someWait = (waiting ?? 0) > 0;
  return {
    pools: notReady > 0
      ? { number: pools.length, note: `${notReady} not ready`, kind: "bad", href: "#/?show=problems" }
      : { number: pools.length, note: "", kind: "", href: "#/" },
    bound: { number: bound, note: "", kind: "" },
    waiting: { number: waiting, note: someWait ? "Show reasons" : "", kind: someWait ? "bad" : "", href: "#/waiting" },
    full: {
      number: full.length,
      note: exhausted > 0 ? `${exhausted} full` : "",
      kind: exhausted > 0 ? "bad" : full.length > 0 ? "warn" : "",
      href: "#/?show=full",
    },
  };
}

/**
 * Groups of pools that the page can show alone.
 * @type {Array<{ name: string, text: string, has: (pool: OverviewPool) => boolean }>}
 */
export const groups = [
  { name: "", text: "All", has: () => true },
  { name: "problems", text: "Problems", has: (pool) => poolState(pool).rank <= LAST_PROBLEM },
  { name: "full", text: "Nearly full", has: isNearlyFull },
];

/**
 * The pools of a group.
 * @param {OverviewPool[]} pools
 * @param {string} group
 */
export function poolsOf(pools, group) {
  const found = groups.find(({ name }) => name === group);
  return found ? pools.filter(found.has) : pools;
}

/**
 * The pools that contain a text in their names, networks, ranges or kinds, in the order of a column.
 * @param {OverviewPool[]} pools
 * @param {string} filter
 * @param {number} sorted
 */
export function shownPools(pools, filter, sorted) {
  const text = filter.trim().toLowerCase();
  const order = columns[sorted]?.of ?? name;
  const shown = pools.filter((pool) => text === "" || searchText(pool).includes(text));
  return shown.sort((a, b) => compare(order(a), order(b)) || compare(name(a), name(b)));
}

/** @param {OverviewPool} pool */
function name(pool) {
  return `${poolText(pool.pool)} ${pool.pool.kind}`;
}

/** @param {OverviewPool} pool */
function searchText(pool) {
  return `${poolText(pool.pool)} ${pool.network ?? ""} ${pool.ranges} ${pool.pool.kind}`.toLowerCase();
}

/**
 * @param {string | number} a
 * @param {string | number} b
 */
function compare(a, b) {
  if (typeof a === "string" && typeof b === "string") return names.compare(a, b);
  if (a < b) return -1;
  return a > b ? 1 : 0;
}

/**
 * Why the table of pools is empty.
 * @param {Overview} overview
 */
export function emptyText({ pools, listing, missing, namespace }) {
  if (pools.length > 0) return "No pool matches the filter.";
  if (listing.length > 0) return "Reading the pools…";
  if (missing.length > 0) return "It is unknown whether there are pools: you may not list all of them.";
  return namespace ? `There are no pools in the namespace ${namespace}, and no global ones.` : "The cluster has no pools.";
}

/**
 * Whether there is nothing that could be shown: a hint how to create the first pool is more useful than a table.
 * @param {Overview} overview
 */
export function isNew({ pools, listing, missing }) {
  return pools.length === 0 && listing.length === 0 && missing.length === 0;
}
