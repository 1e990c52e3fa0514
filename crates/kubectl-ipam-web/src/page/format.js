// @ts-check
// Numbers, times, names and links as text.

/** @import { PoolName } from "../../../kubectl-ipam/generated/page.d.ts" */

const plain = new Intl.NumberFormat("en");
const superscripts = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** @param {number | string} number */
function raised(number) {
  return [...String(number)].map((digit) => superscripts[Number(digit)]).join("");
}

/** A number that JSON cannot hold exactly; the server sends large numbers as texts. */
const INEXACT = 2 ** 53;

/**
 * A count. Large ones are powers: pools of IPv6 have up to 2¹²⁸ addresses. Without a permission it is unknown.
 * @param {number | bigint | string | null | undefined} value
 */
export function count(value) {
  if (value === null || value === undefined) return "?";
  // The status of a pool or network reports at most 2⁶³ − 1.
  if (typeof value === "number" && value >= INEXACT) return `≥ 2${raised(Math.floor(Math.log2(value)))}`;
  const number = BigInt(value);
  if (number < 10_000_000n) return plain.format(number);
  const bits = number.toString(2).length - 1;
  const power = 1n << BigInt(bits);
  if (number === power) return `2${raised(bits)}`;
  const digits = number.toString();
  if (digits.length <= 12) return plain.format(number);
  // A few addresses of a large pool are in use.
  const missing = (power << 1n) - number;
  if (missing < 100_000n) return `2${raised(bits + 1)} − ${plain.format(missing)}`;
  return `${digits[0]}.${digits[1]} × 10${raised(digits.length - 1)}`;
}

/**
 * A number of things: `plural(1, "claim")` is "1 claim".
 * @param {number | bigint | null | undefined} number
 * @param {string} noun
 */
export function plural(number, noun, nouns = `${noun}s`) {
  return `${count(number)} ${Number(number) === 1 ? noun : nouns}`;
}

/**
 * The share of a total, in percent: 0 and 100 only if exact.
 * @param {bigint} part
 * @param {bigint} total
 */
export function percent(part, total) {
  if (total === 0n) return "0 %";
  if (part === 0n || part === total) return part === 0n ? "0 %" : "100 %";
  const share = Number((part * 1000n) / total) / 10;
  if (share < 1) return "<1 %";
  return share > 99 ? ">99 %" : `${Math.round(share)} %`;
}

/**
 * The time of the day.
 * @param {string} time
 */
export function clock(time) {
  return new Date(time).toLocaleTimeString("en-GB");
}

/** @type {Array<[number, string]>} */
const units = [[86400, "d"], [3600, "h"], [60, "min"]];

/**
 * A duration in its largest unit: hours and days from one on, minutes from two on.
 * @param {number} milliseconds
 */
export function duration(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  for (const [size, unit] of units) {
    if (seconds >= 2 * size || (seconds >= size && unit !== "min")) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${seconds} s`;
}

/** @type {Record<string, string>} */
const kinds = {
  InClusterIPPool: "IP pool",
  GlobalInClusterIPPool: "Global IP pool",
  InClusterPrefixPool: "Prefix pool",
  GlobalInClusterPrefixPool: "Global prefix pool",
};

/**
 * A kind of pools in words.
 * @param {string} kind
 */
export function kindName(kind) {
  return kinds[kind] ?? kind;
}

/**
 * A kind of pools in words, with the network of a pool.
 * @param {string} kind
 * @param {string | null | undefined} network
 */
export function kindText(kind, network) {
  return network ? `${kindName(kind)}, network ${network}` : kindName(kind);
}

/**
 * Whether pools of a kind allocate prefixes.
 * @param {string} kind
 */
export function hasPrefixes(kind) {
  return kind.includes("Prefix");
}

/**
 * The address of the view of a pool, or of one of its addresses.
 * @param {PoolName} pool
 * @param {string} [address]
 */
export function poolLink(pool, address) {
  const parts = [pool.kind, pool.namespace || "-", pool.name].map(encodeURIComponent).join("/");
  return `#/pool/${parts}${address ? `?at=${encodeURIComponent(address)}` : ""}`;
}

/**
 * The address of the view of a network.
 * @param {string} name
 */
export function networkLink(name) {
  return `#/network/${encodeURIComponent(name)}`;
}

/**
 * The namespace and the name of a pool.
 * @param {{ namespace?: string | null, name: string }} pool
 */
export function poolText(pool) {
  return pool.namespace ? `${pool.namespace}/${pool.name}` : pool.name;
}

/** @type {Record<string, string>} */
const states = {
  Allocated: "Allocated", Releasing: "In deletion", Allocating: "Being allocated", Promised: "Promised", Excluded: "Excluded",
  CoolingDown: "Cooling down", Held: "Held", Bound: "Bound", Waiting: "Waiting", Deleting: "Being deleted",
};

/**
 * The state of an address or of a claim in words.
 * @param {string} state
 */
export function stateText(state) {
  return states[state] ?? state;
}

/**
 * The link to a search.
 * @param {string} text
 */
export function searchLink(text) {
  return `#/search?q=${encodeURIComponent(text)}`;
}

/**
 * The items of a Cluster with their addresses. One that may not be read is a question mark.
 * @param {Record<string, string | null>} items
 */
export function itemTexts(items) {
  return Object.entries(items).map(([item, address]) => `${item}: ${address === "" ? "–" : (address ?? "?")}`);
}
