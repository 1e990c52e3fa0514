// @ts-check
// The result of a search as a sentence.

import { plural } from "./format.js";

/** @import { SearchResult } from "../../../generated/page.d.ts" */

/**
 * What a search has found.
 * @param {SearchResult} found
 */
export function resultText(found) {
  const pools = found.matches.length + found.pools.length;
  const [addresses, claims] = [found.holders.length, found.claims.length];
  if (pools + addresses + claims === 0) {
    return found.isComplete ? "Nothing found." : "Nothing found in what you may list.";
  }
  const parts = [];
  if (pools > 0) parts.push(plural(pools, "pool"));
  if (addresses > 0) parts.push(plural(addresses, "address", "addresses"));
  if (claims > 0) parts.push(plural(claims, "claim"));
  const more = found.isLimited ? ". There are more: write more of the name" : "";
  return `${parts.join(", ")}${holderText(found)}${more}.`;
}

/**
 * That nothing holds an address, or that it is unknown.
 * @param {SearchResult} found
 */
function holderText(found) {
  const isAddress = found.matches.length > 0;
  if (!isAddress || found.holders.length > 0) return "";
  return found.isComplete ? ". Nothing holds the address" : ". It is unknown who holds the address";
}
