// @ts-check
// The tables of holders, claims and pools.

import { age, el, KeyedList } from "./dom.js";
import { kindText, poolLink, poolText, stateText } from "./format.js";

/** @import { ClaimLine, Holder, PoolName } from "../../../generated/page.d.ts" */
/** @import { Child } from "./dom.js" */

/**
 * A table whose rows are built again when their item changes.
 * @template T
 */
class Table {
  #body = el("tbody");

  /**
   * @param {string} name
   * @param {string[]} heads
   * @param {(item: T) => string} key
   * @param {(item: T) => HTMLElement[]} cells
   */
  constructor(name, heads, key, cells) {
    const head = el("tr", {}, ...heads.map((text) => el("th", { scope: "col", text })));
    this.element = el("table", { class: name }, el("thead", {}, head), this.#body);
    const row = () => {
      const element = el("tr");
      return { element, update: (/** @type {T} */ item) => element.replaceChildren(...cells(item)) };
    };
    /** @type {KeyedList<T>} */
    this.rows = new KeyedList(this.#body, key, row);
  }

  /** @param {T[]} items */
  show(items) {
    this.rows.show(items);
  }
}

/**
 * A cell of a table. It has its column's name for narrow windows.
 * @param {string} label
 * @param {Child} content
 */
function cell(label, content, name = "") {
  const isEmpty = content === null || content === undefined || content === "";
  return el("td", { "data-label": label, class: isEmpty ? `${name} none` : name || null }, isEmpty ? "–" : content);
}

/**
 * @param {PoolName} pool
 * @param {string} text
 * @param {string} [address]
 */
function link(pool, text, address) {
  return el("a", { href: poolLink(pool, address), text });
}

/**
 * @param {string} state
 * @param {string} text
 */
function pill(state, text) {
  return el("span", { class: "pill", "data-state": state, text });
}

/** A table of what holds addresses. */
export function holderTable() {
  const heads = ["Address", "State", "Claim", "Machine", "Cluster", "Pool", "Since"];
  const key = (/** @type {Holder} */ holder) =>
    `${holder.address} ${holder.ipAddress ?? holder.reservation} ${poolText(holder.pool)}`;
  return new Table("holders", heads, key, (/** @type {Holder} */ holder) => [
    el("th", { scope: "row" }, link(holder.pool, holder.address, holder.address)),
    cell("State", pill(holder.state, stateText(holder.state))),
    cell("Claim", holder.claim),
    cell("Machine", holder.machine),
    cell("Cluster", holder.cluster),
    cell("Pool", holder.network ? `${poolText(holder.pool)} (network ${holder.network})` : poolText(holder.pool)),
    cell("Since", age(holder.since)),
  ]);
}

const claimKey = (/** @type {ClaimLine} */ claim) => `${claim.namespace}/${claim.name}`;

/**
 * A table of claims that wait.
 * @param {boolean} withPool
 */
export function waitingTable(withPool) {
  const heads = ["Claim", ...(withPool ? ["Pool"] : []), "Waits", "Reason", "Cluster", "Machine"];
  return new Table("claims", heads, claimKey, (/** @type {ClaimLine} */ claim) => [
    el("th", { scope: "row", text: claimKey(claim) }),
    ...(withPool ? [cell("Pool", link(claim.pool, poolText(claim.pool)))] : []),
    cell("Waits", age(claim.created)),
    cell("Reason", reason(claim), "wide"),
    cell("Cluster", claim.cluster),
    cell("Machine", claim.machine),
  ]);
}

/** @param {ClaimLine} claim */
function reason(claim) {
  const message = claim.message ? el("span", { text: claim.message }) : null;
  return el("div", { class: "reason" }, el("strong", { text: claim.reason ?? "No reason yet" }), message);
}

/** A table of claims with their addresses. */
export function claimTable() {
  const heads = ["Claim", "State", "Address", "Pool", "Cluster", "Machine", "Age"];
  return new Table("claims", heads, claimKey, (/** @type {ClaimLine} */ claim) => [
    el("th", { scope: "row", text: claimKey(claim) }),
    cell("State", pill(claim.state, claim.reason ?? stateText(claim.state))),
    cell("Address", claim.address ? link(claim.pool, claim.address, claim.address) : null),
    cell("Pool", link(claim.pool, poolText(claim.pool))),
    cell("Cluster", claim.cluster),
    cell("Machine", claim.machine),
    cell("Age", age(claim.created)),
  ]);
}

/**
 * A pool that a search has found, with the address that it contains.
 * @typedef {{ pool: PoolName, membership?: string, network?: string | null, address?: string }} FoundPool
 */

/** @type {Record<string, string>} */
const memberships = {
  Allocatable: "Address of the pool", Excluded: "Excluded address", Gateway: "Gateway",
  Reserved: "Reserved address of the subnet",
};

/** A table of pools that a search has found. */
export function matchTable() {
  const key = (/** @type {FoundPool} */ found) => `${found.pool.kind}/${poolText(found.pool)}`;
  return new Table("matches", ["Pool", "Kind", "Contains it as"], key, (/** @type {FoundPool} */ found) => [
    el("th", { scope: "row" }, link(found.pool, poolText(found.pool), found.address)),
    cell("Kind", kindText(found.pool.kind, found.network)),
    cell("Contains it as", found.membership && memberships[found.membership]),
  ]);
}
