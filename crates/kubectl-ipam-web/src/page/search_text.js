// @ts-check
// The result of a search as a sentence.

import { plural } from "./format.js";

/** @import { SearchResult } from "../../../kubectl-ipam/generated/page.d.ts" */

/** What is searched, for a search that finds nothing. */
export const SEARCHED =
  "Searched are addresses, prefixes, and the names of pools, networks, claims, machines and clusters. A part is enough, such as 10.50 or prod-web.";

/**
 * What a search has found.
 * @param {SearchResult} found
 */
export function resultText(found) {
  const { pools, holders, claims } = found.totals;
  if (pools + holders + claims === 0) {
    return found.isComplete ? "Nothing found." : "Nothing found in what you may list.";
  }
  const listed = { pools: found.matches.length + found.pools.length, holders: found.holders.length, claims: found.claims.length };
  const parts = [
    part(pools, listed.pools, "pool"),
    part(holders, listed.holders, "address", "addresses"),
    part(claims, listed.claims, "claim"),
  ];
  return `${parts.filter(Boolean).join(", ")}${holderText(found)}.`;
}

/**
 * A number of results, and how many of them are listed.
 * @param {number} total
 * @param {number} listed
 * @param {string} noun
 * @param {string} [nouns]
 */
function part(total, listed, noun, nouns) {
  if (total === 0) return "";
  const all = plural(total, noun, nouns);
  return listed < total ? `${all} (the first ${listed} are listed)` : all;
}

/**
 * That nothing holds an address, or that it is unknown.
 * @param {SearchResult} found
 */
function holderText(found) {
  const isAddress = found.matches.length > 0;
  if (!isAddress || found.holders.length > 0) return "";
  if (!found.isComplete) return ". It is unknown who holds the address";
  if (found.sharedNetworks.length === 0) return ". Nothing holds the address";
  const networks = found.sharedNetworks.join(", ");
  return `. Nothing in this management cluster holds the address; who has its block: the map of network ${networks}`;
}
