// @ts-check
// The results of a search.

import { announce, byId, el, write } from "./dom.js";
import { get, Loader } from "./requests.js";
import { resultText, SEARCHED } from "./search_text.js";
import { claimTable, holderTable, matchTable } from "./tables.js";

/** @import { SearchResult } from "../../../kubectl-ipam/generated/page.d.ts" */
/** @import { Route } from "./route.js" */

/** The page of a search. */
export class SearchPage {
  title = "";
  #text = "";
  #heading = el("h1");
  #summary = el("p", { class: "hint" });
  #help = el("p", { class: "empty", text: SEARCHED, hidden: true });
  #pools = new Group("Pools", matchTable());
  #holders = new Group("Addresses", holderTable());
  #claims = new Group("Claims", claimTable());
  #loader = new Loader(async () => {
    const asked = this.#text;
    const found = await get("/api/search", { q: asked });
    // Meanwhile the user can have asked for something else.
    if (asked === this.#text) this.#show(found);
  });

  /** @param {Route} route */
  constructor(route) {
    const groups = [this.#pools, this.#holders, this.#claims].map((group) => group.element);
    this.element = el("section", {}, this.#heading, this.#summary, this.#help, ...groups);
    this.accepts(route);
  }

  update() {
    this.#loader.run();
  }

  /** @param {Route} route */
  accepts(route) {
    this.#text = route.parameters.get("q") ?? "";
    this.title = this.#text;
    write(this.#heading, `Search: ${this.#text}`);
    this.#heading.title = this.#text;
    const box = byId("query");
    if (box instanceof HTMLInputElement && document.activeElement !== box) box.value = this.#text;
    document.title = `${this.#text} · kubectl ipam`;
    this.#loader.run();
    return true;
  }

  /** @param {SearchResult} found */
  #show(found) {
    const address = found.matches.length > 0 ? this.#text : undefined;
    const matches = found.matches.map((match) => ({ ...match, address }));
    const named = found.pools.map((pool) => ({ pool }));
    this.#pools.table.element.classList.toggle("no-membership", address === undefined);
    this.#pools.show([...matches, ...named]);
    this.#holders.show(found.holders);
    this.#claims.show(found.claims);
    const { pools, holders, claims } = found.totals;
    this.#help.hidden = pools + holders + claims > 0;
    const result = resultText(found);
    if (this.#summary.textContent !== result) announce(result);
    write(this.#summary, result);
  }
}

/**
 * A table with a heading; hidden without items.
 * @template T
 */
class Group {
  /**
   * @param {string} name
   * @param {{ element: HTMLElement, show: (items: T[]) => void }} table
   */
  constructor(name, table) {
    this.table = table;
    this.element = el("section", { hidden: true }, el("h2", { text: name }), table.element);
  }

  /** @param {T[]} items */
  show(items) {
    this.element.hidden = items.length === 0;
    this.table.show(items);
  }
}
