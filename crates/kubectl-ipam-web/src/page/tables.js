// @ts-check
// The tables of holders, claims and pools.

import { stateOf } from "./block_text.js";
import { age, el, KeyedList, writeLine } from "./dom.js";
import { count, itemTexts, kindText, poolLink, poolText, searchLink, stateText } from "./format.js";

/** @import { BlockLine, ClaimLine, ClusterAddresses, Holder, PoolName, SliceLine } from "../../../kubectl-ipam/generated/page.d.ts" */
/** @import { Child } from "./dom.js" */

/**
 * A table whose rows are built again when their item changes. The columns have fixed widths.
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
  const isEmpty = content === null || content === undefined || content === false || content === "";
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

/**
 * A name in one line.
 * @param {string | null | undefined} text
 */
function line(text) {
  if (!text) return null;
  const element = el("span");
  writeLine(element, text);
  return element;
}

/** A table of what holds addresses. */
export function holderTable() {
  const heads = ["Address", "State", "Claim", "Machine", "Cluster", "Pool", "Since"];
  const key = (/** @type {Holder} */ holder) =>
    `${holder.address} ${holder.ipAddress ?? holder.reservation} ${poolText(holder.pool)}`;
  return new Table("holders", heads, key, (/** @type {Holder} */ holder) => [
    el("th", { scope: "row" }, link(holder.pool, holder.address, holder.address)),
    cell("State", pill(holder.state, stateText(holder.state))),
    cell("Claim", line(holder.claim)),
    cell("Machine", line(holder.machine)),
    cell("Cluster", line(holder.cluster)),
    cell("Pool", poolCell(holder.pool, holder.network)),
    cell("Since", age(holder.since)),
  ]);
}

/**
 * A pool with its network.
 * @param {PoolName} pool
 * @param {string | null | undefined} network
 */
function poolCell(pool, network) {
  const element = el("a", { href: poolLink(pool) });
  writeLine(element, poolText(pool));
  if (network) element.title = `${poolText(pool)}, network ${network}`;
  return element;
}

const claimKey = (/** @type {ClaimLine} */ claim) => `${claim.namespace}/${claim.name}`;

/** A table of claims that wait for the same reason. */
export function waitingTable() {
  const heads = ["Claim", "Machine", "Cluster", "Waits"];
  return new Table("waiting", heads, claimKey, (/** @type {ClaimLine} */ claim) => [
    el("th", { scope: "row" }, line(claimKey(claim)), claim.message && el("span", { class: "about", text: claim.message })),
    cell("Machine", line(claim.machine)),
    cell("Cluster", line(claim.cluster)),
    cell("Waits", age(claim.created)),
  ]);
}

/** A table of claims with their addresses. */
export function claimTable() {
  const heads = ["Claim", "State", "Address", "Pool", "Cluster", "Machine", "Age"];
  return new Table("claims", heads, claimKey, (/** @type {ClaimLine} */ claim) => [
    el("th", { scope: "row" }, line(claimKey(claim))),
    cell("State", pill(claim.state, claim.reason ?? stateText(claim.state))),
    cell("Address", claim.address ? link(claim.pool, claim.address, claim.address) : null),
    cell("Pool", poolCell(claim.pool, null)),
    cell("Cluster", line(claim.cluster)),
    cell("Machine", line(claim.machine)),
    cell("Age", age(claim.created)),
  ]);
}

/** A table of Clusters with their addresses. */
export function clusterTable() {
  const heads = ["Cluster", "Addresses", "Machines", "Slices", "Waiting", "Problems"];
  const key = (/** @type {ClusterAddresses} */ { namespace, name }) => `${namespace}/${name}`;
  return new Table("clusters", heads, key, (/** @type {ClusterAddresses} */ cluster) => [
    el("th", { scope: "row" }, el("a", { href: searchLink(cluster.name), text: key(cluster) })),
    cell("Addresses", lines(itemTexts(cluster.items))),
    cell("Machines", count(cluster.machines)),
    cell("Slices", cluster.slices ? lines(cluster.slices) : "?"),
    cell("Waiting", count(cluster.waiting)),
    cell("Problems", lines(cluster.problems)),
  ]);
}

/** @param {string[]} texts */
function lines(texts) {
  return texts.length > 0 && el("span", {}, ...texts.map((text) => el("span", { class: "about", text })));
}

/**
 * A table of the slices of a pool.
 * @param {PoolName} pool
 */
export function sliceTable(pool) {
  const heads = ["Slice", "Owner", "Used", "Free", "Total", "Note"];
  const key = (/** @type {SliceLine} */ slice) => slice.name;
  return new Table("slices", heads, key, (/** @type {SliceLine} */ slice) => [
    el("th", { scope: "row" }, link(pool, slice.block, slice.block.split("/")[0])),
    cell("Owner", line(ownerText(slice.owner))),
    cell("Used", count(slice.used)),
    cell("Free", count(slice.free)),
    cell("Total", count(slice.total)),
    cell("Note", sliceNote(slice)),
  ]);
}

/** A table of the blocks of a network that are not free. */
export function blockTable() {
  const heads = ["Block", "State", "Cluster", "In use", "Since", "Note"];
  const key = (/** @type {BlockLine} */ block) => block.block;
  return new Table("block-list", heads, key, (/** @type {BlockLine} */ block) => [
    el("th", { scope: "row", text: block.block }),
    cell("State", blockPill(block)),
    cell("Cluster", block.clusters.length > 0 && el("span", {}, ...block.clusters.map(line))),
    cell("In use", count(block.used)),
    cell("Since", block.since && age(block.since)),
    cell("Note", blockNote(block)),
  ]);
}

/** @param {BlockLine} block */
function blockPill(block) {
  const { text, kind } = stateOf(block);
  return el("span", { class: "pill", "data-kind": kind, text });
}

/** @param {BlockLine} block */
function blockNote({ note, emptySince }) {
  if (note) return el("span", { class: "about", text: note });
  return emptySince ? el("span", {}, "empty for ", age(emptySince)) : null;
}

/** @param {SliceLine["owner"]} owner */
function ownerText({ kind, namespace, name }) {
  return `${kind} ${namespace ? `${namespace}/` : ""}${name}`;
}

/** @param {SliceLine} slice */
function sliceNote({ pinned, emptySince }) {
  if (pinned) return "created by hand";
  return emptySince ? el("span", {}, "empty for ", age(emptySince)) : null;
}

/**
 * A pool that a search has found, with the address that it contains.
 * @typedef {{ pool: PoolName, membership?: string, network?: string | null, address?: string }} FoundPool
 */

/** @type {Record<string, string>} */
const memberships = {
  InRange: "Address of the pool", Excluded: "Excluded address", Gateway: "Gateway",
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
