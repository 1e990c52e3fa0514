// @ts-check
// The claims that wait for an address.

import { el, write } from "./dom.js";
import { count, plural } from "./format.js";
import { get, Loader } from "./requests.js";
import { waitingTable } from "./tables.js";

/** @import { ClaimLine, Overview } from "../../../generated/page.d.ts" */

/** The page of waiting claims. */
export class WaitingPage {
  title = "Waiting claims";
  #table = waitingTable(true);
  #empty = el("p", { class: "empty", hidden: true });
  #note = el("p", { class: "hint" });
  #total = 0;
  #loader = new Loader(async () => this.#show(await get("/api/waiting")));

  constructor() {
    this.#table.element.hidden = true;
    const heading = el("h1", { text: this.title });
    this.element = el("section", {}, heading, this.#note, this.#table.element, this.#empty);
  }

  /** @param {Overview} overview */
  update(overview) {
    this.#total = overview.waiting ?? 0;
    this.#loader.run();
  }

  /** @param {ClaimLine[] | null} found */
  #show(found) {
    const claims = found ?? [];
    this.#table.show(claims);
    this.#table.element.hidden = claims.length === 0;
    this.#empty.hidden = claims.length > 0;
    const unknown = "It is unknown which claims wait: you may not list claims.";
    write(this.#empty, found === null ? unknown : "No claim waits for an address.");
    write(this.#note, noteText(claims.length, this.#total));
  }
}

/**
 * How many claims wait, and how many of them are listed.
 * @param {number} listed
 * @param {number} total
 */
function noteText(listed, total) {
  if (listed === 0) return "";
  const more = total > listed ? `, of which the oldest ${count(listed)} are listed` : "";
  return `${plural(Math.max(total, listed), "claim")} without an address${more}; the oldest is first.`;
}
