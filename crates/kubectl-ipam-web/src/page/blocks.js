// @ts-check
// The blocks of a network that it shares with other management clusters.

import { aboutText, blockCounts, incompleteText, registryProblem, sentence, sourceText } from "./block_text.js";
import { age, definitions, el, write, writeLine } from "./dom.js";
import { clock, plural } from "./format.js";
import { get, Loader, RequestError } from "./requests.js";
import { blockTable } from "./tables.js";

/** @import { NetworkBlocks } from "../../../kubectl-ipam/generated/page.d.ts" */

/** The registry, the counts and the table of the blocks; hidden for a network that shares none. */
export class BlockSection {
  #registry = el("span", { class: "pill" });
  #about = el("p", { class: "about" });
  #counts = el("dl", { class: "counts" });
  #conflict = el("div", { class: "notice error", hidden: true });
  #problem = el("p", { class: "notice warning", hidden: true });
  #source = el("p", { class: "hint source" });
  #incomplete = el("p", { class: "hint", hidden: true });
  #clusters = el("div", { hidden: true });
  #table = blockTable();
  #shown = "";
  #loader = new Loader(() => this.#load());

  /** @param {string} network */
  constructor(network) {
    this.network = network;
    this.element = el(
      "section",
      { class: "blocks", hidden: true },
      el("div", { class: "heading" }, el("h2", { text: "Blocks" }), this.#registry),
      this.#about,
      el("div", { class: "summary" }, this.#counts),
      this.#conflict,
      this.#problem,
      this.#source,
      el("div", { class: "scroll" }, this.#table.element),
      this.#incomplete,
      this.#clusters,
    );
  }

  /** Loads the blocks, which asks the server to read the registry. */
  update() {
    this.#loader.run();
  }

  async #load() {
    this.#show(await this.#get());
  }

  async #get() {
    try {
      return await get("/api/blocks", { network: this.network });
    } catch (error) {
      // Whether there is such a network is unknown; the page says so.
      if (!(error instanceof RequestError) || error.status !== 403) throw error;
      return null;
    }
  }

  /** @param {NetworkBlocks | null} blocks */
  #show(blocks) {
    this.element.hidden = blocks === null;
    if (blocks === null) return;
    this.#showRegistry(blocks);
    write(this.#about, aboutText(blocks));
    this.#counts.replaceChildren(...definitions(blockCounts(blocks)));
    this.#showConflict(blocks);
    showText(this.#problem, registryProblem(blocks));
    showText(this.#incomplete, incompleteText(blocks));
    write(this.#source, sourceText(blocks, clock));
    this.#source.dataset.kind = blocks.unread ? "warn" : "";
    this.#showClusters(blocks);
    this.#table.show(blocks.blocks);
    this.#table.element.hidden = blocks.blocks.length === 0;
  }

  /** @param {NetworkBlocks} blocks */
  #showRegistry({ registry: { ready, reason } }) {
    const kinds = /** @type {Record<string, string>} */ ({ True: "good", False: "bad" });
    const texts = /** @type {Record<string, string>} */ ({
      True: "Registry ready", False: reason ?? "Registry not ready",
    });
    this.#registry.dataset.kind = kinds[ready] ?? "";
    write(this.#registry, texts[ready] ?? "State of the registry not known");
  }

  /** @param {NetworkBlocks} blocks */
  #showConflict({ conflict, advice, command }) {
    this.#conflict.hidden = conflict === undefined || conflict === null;
    const texts = [conflict ?? "", `${sentence(advice)} To list the blocks with addresses in use: ${command}`];
    if (this.#conflict.dataset.shown === texts.join()) return;
    this.#conflict.dataset.shown = texts.join();
    this.#conflict.replaceChildren(...texts.map((text) => el("p", { text })));
  }

  /**
   * The other management clusters of the registry.
   * @param {NetworkBlocks} blocks
   */
  #showClusters({ clusters, moreClusters }) {
    this.#clusters.hidden = clusters.length === 0;
    const shown = JSON.stringify([clusters, moreClusters]);
    if (this.#shown === shown) return;
    this.#shown = shown;
    const items = clusters.map(({ cluster, blocks, lastSeen }) => {
      const name = el("span", {});
      writeLine(name, cluster);
      const seen = lastSeen ? [", last seen ", age(lastSeen), " ago"] : [];
      return el("li", {}, name, el("span", {}, `: ${plural(blocks, "block")}`, ...seen));
    });
    if (moreClusters > 0) items.push(el("li", { text: `${plural(moreClusters, "more cluster")}` }));
    const heading = "Other management clusters of the registry, with their blocks of all networks:";
    const list = el("ul", { class: "members clusters" }, ...items);
    this.#clusters.replaceChildren(el("p", { class: "hint", text: heading }), list);
  }
}

/**
 * A text that is hidden if it is empty.
 * @param {HTMLElement} element
 * @param {string} text
 */
function showText(element, text) {
  element.hidden = text === "";
  write(element, text);
}
