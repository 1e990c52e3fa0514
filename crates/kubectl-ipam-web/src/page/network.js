// @ts-check
// The networks: a table of all, and the page of one with its pools.

import { BlockSection } from "./blocks.js";
import { definitions, el, KeyedList, write } from "./dom.js";
import { count, networkLink, poolLink, poolText } from "./format.js";
import { PoolTable } from "./pool_table.js";
import { blocksText, networkState } from "./summary.js";

/** @import { MemberLine, Overview, OverviewNetwork } from "../../../kubectl-ipam/generated/page.d.ts" */
/** @import { Route } from "./route.js" */

/** A table of networks. */
export class NetworkTable {
  #body = el("tbody");
  /** @type {KeyedList<OverviewNetwork>} */
  #rows = new KeyedList(this.#body, (network) => network.name, () => new NetworkRow());

  constructor() {
    const heads = ["Network", "Pools", "Blocks", "Used", "Free", "Total", "Waiting", "State"];
    const isNumber = (/** @type {number} */ index) => index > 0 && index < heads.length - 1;
    const head = heads.map((text, index) => el("th", { scope: "col", class: isNumber(index) ? "number" : null, text }));
    this.element = el("table", { class: "networks" }, el("thead", {}, el("tr", {}, ...head)), this.#body);
  }

  /** @param {OverviewNetwork[]} networks */
  show(networks) {
    this.element.hidden = networks.length === 0;
    this.element.classList.toggle("no-blocks", networks.every(({ blocks }) => !blocks));
    this.#rows.show(networks);
  }
}

class NetworkRow {
  #link = el("a", { class: "name" });
  #numbers = ["Pools", "Blocks", "Used", "Free", "Total", "Waiting"].map((label) =>
    el("td", { class: "number", "data-label": label }));
  #state = el("span", { class: "pill" });
  element = el("tr", {}, el("th", { scope: "row" }, this.#link), ...this.#numbers,
    el("td", { class: "state", "data-label": "State" }, this.#state));

  /** @param {OverviewNetwork} network */
  update(network) {
    const { name, pools, blocks, used, free, total, waiting } = network;
    this.#link.href = networkLink(name);
    write(this.#link, name);
    [count(pools), blocksText(blocks), ...[used, free, total, waiting].map(count)].forEach((text, index) => {
      const cell = this.#numbers[index];
      if (!cell) return;
      cell.classList.toggle("none", text === "");
      write(cell, text || "–");
    });
    showNetworkState(this.#state, network);
  }
}

/**
 * @param {HTMLElement} element
 * @param {OverviewNetwork} network
 */
function showNetworkState(element, network) {
  const { text, kind } = networkState(network);
  element.dataset.kind = kind;
  write(element, text);
}

/** The page of a network. */
export class NetworkPage {
  #state = el("span", { class: "pill" });
  #counts = el("dl", { class: "counts" });
  #problem = el("p", { class: "notice warning", hidden: true });
  #gone = el("p", { class: "empty", hidden: true });
  #table = new PoolTable();
  #others = el("ul", { class: "members", hidden: true });
  #content;

  /** @param {Route} route */
  constructor(route) {
    const [name = ""] = route.parts;
    this.name = name;
    this.title = name;
    this.blocks = new BlockSection(name);
    this.#content = el(
      "div",
      { hidden: true },
      el("div", { class: "summary" }, this.#counts),
      this.#problem,
      this.blocks.element,
      el("section", {}, el("div", { class: "heading" }, el("h2", { text: "Pools" }), this.#table.filter),
        this.#table.element, this.#others),
    );
    this.element = el(
      "div",
      { class: "network" },
      el("p", { class: "crumbs" }, el("a", { href: "#/", text: "Overview" })),
      el("div", { class: "title" }, el("h1", { text: name, title: name }), this.#state),
      el("p", { class: "about", text: "Network: its pools never allocate the same address." }),
      this.#gone,
      this.#content,
    );
  }

  /** @param {Route} route */
  accepts(route) {
    return route.parts[0] === this.name;
  }

  /** @param {Overview} overview */
  update(overview) {
    const network = overview.networks.find(({ name }) => name === this.name);
    const pools = overview.pools.filter((pool) => pool.network === this.name);
    this.#gone.hidden = network !== undefined;
    this.#content.hidden = network === undefined && pools.length === 0;
    this.#state.hidden = network === undefined;
    write(this.#gone, goneText(this.name, overview, pools.length));
    this.#table.show(pools);
    this.blocks.element.hidden ||= !network?.blocks;
    if (!network) return;
    if (network.blocks) this.blocks.update();
    showNetworkState(this.#state, network);
    this.#problem.hidden = !network.message;
    write(this.#problem, network.message ?? "");
    const { total, used, free, waiting } = network;
    /** @type {Array<[string, string]>} */
    const lines = [
      ["Pools", count(network.pools)], ["Total", count(total)], ["Used", count(used)], ["Free", count(free)],
      ["Waiting", count(waiting)], ["Block length", lengthText(network)],
    ];
    this.#counts.replaceChildren(...definitions(lines.filter(([, text]) => text)));
    this.#showOthers(network.members, new Set(pools.map(({ pool }) => `${pool.kind}/${poolText(pool)}`)));
  }

  /**
   * The pools that are not in the table, and those that join or leave the network.
   * @param {MemberLine[]} members
   * @param {Set<string>} listed
   */
  #showOthers(members, listed) {
    const isOther = (/** @type {MemberLine} */ { pool, phase }) =>
      phase !== "Member" || !listed.has(`${pool.kind}/${poolText(pool)}`);
    const others = members.filter(isOther);
    this.#others.hidden = others.length === 0;
    const items = others.map(({ pool, phase }) => {
      const link = el("a", { href: poolLink(pool), text: poolText(pool) });
      return el("li", {}, link, phase === "Member" ? "" : ` (${phase.toLowerCase()})`);
    });
    this.#others.replaceChildren(...items);
  }
}

/** @param {OverviewNetwork} network */
function lengthText({ ipv4Length, ipv6Length }) {
  const lengths = [ipv4Length && `/${ipv4Length} (IPv4)`, ipv6Length && `/${ipv6Length} (IPv6)`];
  return lengths.filter(Boolean).join(", ");
}

/**
 * Why there is no network.
 * @param {string} name
 * @param {Overview} overview
 * @param {number} pools
 */
function goneText(name, { listing, missing }, pools) {
  if (listing.length > 0) return "Reading the networks…";
  if (missing.some((text) => text.includes("ipnetworks"))) return "It is unknown whether the network exists: you may not list networks.";
  const named = pools > 0 ? ` Pools that name it: ${count(pools)}.` : "";
  return `The network ${name} does not exist.${named}`;
}
