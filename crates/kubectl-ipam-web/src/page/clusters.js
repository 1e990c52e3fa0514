// @ts-check
// The Clusters with their addresses.

import { el, write } from "./dom.js";
import { get, Loader } from "./requests.js";
import { clusterTable } from "./tables.js";

/** @import { ClusterAddresses } from "../../../kubectl-ipam/generated/page.d.ts" */

/** The page of Clusters. */
export class ClustersPage {
  title = "Clusters";
  #table = clusterTable();
  #empty = el("p", { class: "empty" });
  #loader = new Loader(async () => this.#show(await get("/api/clusters")));

  constructor() {
    this.element = el("section", {}, el("h1", { text: this.title }), this.#table.element, this.#empty);
  }

  update() {
    this.#loader.run();
  }

  /** @param {ClusterAddresses[] | null} found */
  #show(found) {
    this.#table.show(found ?? []);
    this.#empty.hidden = found !== null && found.length > 0;
    const unknown = "It is unknown which Clusters have addresses: you may not list claims.";
    write(this.#empty, found === null ? unknown : "No Cluster has a claim.");
  }
}
