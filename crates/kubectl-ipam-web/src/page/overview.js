// @ts-check
// The start page: all pools and networks.

import { el, write } from "./dom.js";
import { count } from "./format.js";
import { NetworkTable } from "./network.js";
import { PoolTable } from "./pool_table.js";
import { emptyText, groups, isNew, networksOf, poolsOf, sizeOfGroup, tiles } from "./summary.js";

/** @import { Overview, OverviewNetwork } from "../../../kubectl-ipam/generated/page.d.ts" */
/** @import { Route } from "./route.js" */
/** @import { Tile } from "./summary.js" */

/** The start page. */
export class OverviewPage {
  title = "Overview";
  /** @type {Overview | null} */
  #overview = null;
  #group = "";
  #scope = el("p", { class: "hint", hidden: true });
  #tiles = {
    pools: new TileBox("Pools"),
    bound: new TileBox("Bound claims"),
    waiting: new TileBox("Waiting claims"),
    full: new TileBox("Nearly full pools"),
  };
  #table = new PoolTable((shown) => this.#showEmpty(shown));
  #groups = el("nav", { class: "groups", "aria-label": "Groups of pools" });
  #empty = el("p", { class: "empty", hidden: true });
  #first = el("div", { class: "first", hidden: true }, ...firstPool());
  #pools = el(
    "section",
    { class: "anchor" },
    el("div", { class: "heading" }, el("h2", { text: "Pools" }), this.#groups, this.#table.filter),
    this.#table.element,
    this.#empty,
    this.#first,
  );
  #networks = new NetworkSection();

  /** @param {Route} route */
  constructor(route) {
    this.#group = route.parameters.get("show") ?? "";
    this.element = el(
      "div",
      {},
      el("h1", { class: "hidden", text: "Overview" }),
      this.#scope,
      el("div", { class: "tiles" }, ...Object.values(this.#tiles).map((tile) => tile.element)),
      this.#pools,
      this.#networks.element,
    );
  }

  /** @param {Route} route */
  accepts(route) {
    this.#group = route.parameters.get("show") ?? "";
    if (this.#overview) this.update(this.#overview);
    this.#pools.scrollIntoView({ block: "nearest" });
    return true;
  }

  /** @param {Overview} overview */
  update(overview) {
    this.#overview = overview;
    const { namespace, pools } = overview;
    this.#scope.hidden = !namespace;
    write(this.#scope, `Only the pools and claims of the namespace ${namespace}, and the global pools (--namespace).`);
    const shown = tiles(overview);
    this.#tiles.pools.show(shown.pools);
    this.#tiles.bound.show(shown.bound);
    this.#tiles.waiting.show(shown.waiting);
    this.#tiles.full.show(shown.full);
    this.#networks.show(networksOf(overview.networks, this.#group), overview);
    this.#showGroups(overview);
    this.#table.show(poolsOf(pools, this.#group));
  }

  /** @param {Overview} overview */
  #showGroups(overview) {
    const text = JSON.stringify([this.#group, ...groups.map(({ name }) => sizeOfGroup(overview, name))]);
    // A link that has the focus is built again only if it changes.
    if (this.#groups.dataset.shown === text) return;
    this.#groups.dataset.shown = text;
    const hadFocus = this.#groups.contains(document.activeElement);
    const links = groups.map(({ name, text }) => {
      const current = name === this.#group ? "true" : null;
      const number = el("span", { class: "amount", text: count(sizeOfGroup(overview, name)) });
      return el("a", { href: name ? `#/?show=${name}` : "#/", "aria-current": current }, `${text} `, number);
    });
    this.#groups.replaceChildren(...links);
    if (hadFocus) links.find((link) => link.hasAttribute("aria-current"))?.focus();
  }

  /** @param {number} shown */
  #showEmpty(shown) {
    if (!this.#overview) return;
    const isFirst = isNew(this.#overview);
    this.#empty.hidden = shown > 0;
    this.#first.hidden = !isFirst;
    this.#groups.hidden = isFirst;
    this.#table.filter.hidden = isFirst;
    write(this.#empty, emptyText(this.#overview));
  }
}

/** A number with its name and a note, which can be a link. */
class TileBox {
  #value = el("strong");
  #note = el("small");

  /** @param {string} name */
  constructor(name) {
    this.element = el("a", { class: "tile" }, el("span", { text: name }), this.#value, this.#note);
  }

  /** @param {Tile} tile */
  show({ number, note, kind, href }) {
    // Without an address the element is no link.
    if (href) this.element.href = href;
    write(this.#value, count(number));
    write(this.#note, note);
    this.element.dataset.kind = kind;
  }
}

/** The networks; hidden without a pool. */
class NetworkSection {
  #table = new NetworkTable();
  #hint = el("p", { class: "hint" });

  constructor() {
    this.element = el("section", { hidden: true }, el("h2", { text: "Networks" }), this.#hint, this.#table.element);
  }

  /**
   * @param {OverviewNetwork[]} networks Those that are shown.
   * @param {Overview} overview
   */
  show(networks, { pools, networks: all }) {
    this.element.hidden = networks.length === 0 && (pools.length === 0 || all.length > 0);
    const rule = "Pools of one network never allocate the same address.";
    const none = `There are no networks. ${rule} If several pools are one physical network, create an IPNetwork and name it in their spec.network.`;
    write(this.#hint, networks.length > 0 ? rule : none);
    this.#table.show(networks);
  }
}

/** How to create the first pool. */
function firstPool() {
  const command = `kubectl apply -f - <<EOF
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: InClusterIPPool
metadata:
  name: first
  namespace: default
spec:
  addresses: ["10.0.0.10-10.0.0.99"]
  prefix: 24
  gateway: 10.0.0.1
EOF`;
  return [
    el("p", { text: "Create the first pool with the addresses that your machines may use. It appears here at once:" }),
    el("pre", { tabindex: "0", text: command }),
  ];
}
