// @ts-check
// What the start page shows, computed from the overview of the server.

import { poolText } from "./format.js";

/** @import { Overview, OverviewPool } from "../../../generated/page.d.ts" */
/** @typedef {{ number: number | null | undefined, note: string, kind: string }} Tile */

/** Pools from this share in percent on are nearly full. */
export const NEARLY_FULL = 90;

/**
 * A column of the table of pools. `of` is what it is sorted by.
 * @type {Array<{ name: string, of: (pool: OverviewPool) => string | number, isNumber?: boolean }>}
 */
export const columns = [
  { name: "Pool", of: (pool) => `${poolText(pool.pool)} ${pool.pool.kind}` },
  { name: "Occupancy", of: (pool) => -share(pool) },
  { name: "Used", of: (pool) => -(pool.counts?.used ?? -1), isNumber: true },
  { name: "Free", of: (pool) => pool.counts?.free ?? Infinity, isNumber: true },
  { name: "Trend", of: (pool) => -growth(pool) },
  { name: "Waiting", of: (pool) => -(pool.waiting ?? 0), isNumber: true },
  { name: "State", of: (pool) => (pool.ready === "True" ? 1 : 0) },
];

/**
 * The share of the addresses that are not free.
 * @param {OverviewPool} pool
 */
export function share({ counts }) {
  return counts?.total ? (counts.total - counts.free) / counts.total : 0;
}

/**
 * How many addresses more are in use than at the start of the history.
 * @param {OverviewPool} pool
 */
export function growth({ trend }) {
  return (trend.at(-1) ?? 0) - (trend[0] ?? 0);
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
  const full = pools.filter((pool) => 100 * share(pool) >= NEARLY_FULL);
  const exhausted = full.filter((pool) => pool.counts?.free === 0).length;
  const someWait = (waiting ?? 0) > 0;
  return {
    pools: { number: pools.length, note: notReady > 0 ? `${notReady} not ready` : "", kind: notReady > 0 ? "bad" : "" },
    bound: { number: bound, note: "", kind: "" },
    waiting: { number: waiting, note: someWait ? "Show reasons" : "", kind: someWait ? "bad" : "" },
    full: {
      number: full.length,
      note: exhausted > 0 ? `${exhausted} without a free address` : "",
      kind: full.length > 0 ? "warn" : "",
    },
  };
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
  if (a < b) return -1;
  return a > b ? 1 : 0;
}

/**
 * Why the table of pools is empty.
 * @param {Overview} overview
 */
export function emptyText({ pools, listing, missing }) {
  if (pools.length > 0) return "No pool matches the filter.";
  if (listing.length > 0) return "Reading the pools…";
  return missing.length > 0 ? "You may not list the pools." : "The cluster has no pools.";
}
