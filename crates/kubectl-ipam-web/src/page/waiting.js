// @ts-check
// The claims that wait for an address.

import { el, write } from "./dom.js";
import { count, plural } from "./format.js";
import { get, Loader } from "./requests.js";
import { WaitingGroups } from "./waiting_groups.js";

/** @import { Overview, WaitingGroup } from "../../../kubectl-ipam/generated/page.d.ts" */

/** The page of waiting claims. */
export class WaitingPage {
  title = "Waiting claims";
  #groups = new WaitingGroups(true);
  #empty = el("p", { class: "empty", hidden: true });
  #note = el("p", { class: "hint" });
  #namespace = "";
  #loader = new Loader(async () => this.#show(await get("/api/waiting")));

  constructor() {
    this.element = el("section", {}, el("h1", { text: this.title }), this.#note, this.#groups.element, this.#empty);
  }

  /** @param {Overview} overview */
  update(overview) {
    this.#namespace = overview.namespace ?? "";
    this.#loader.run();
  }

  /** @param {WaitingGroup[] | null} found */
  #show(found) {
    const groups = found ?? [];
    this.#groups.show(groups);
    this.#empty.hidden = groups.length > 0;
    const place = this.#namespace ? ` in the namespace ${this.#namespace}` : "";
    const unknown = "It is unknown which claims wait: you may not list claims.";
    write(this.#empty, found === null ? unknown : `No claim waits for an address${place}.`);
    write(this.#note, noteText(groups, place));
  }
}

/**
 * How many claims wait, and for how many reasons.
 * @param {WaitingGroup[]} groups
 * @param {string} place
 */
function noteText(groups, place) {
  if (groups.length === 0) return "";
  const total = groups.reduce((sum, group) => sum + group.count, 0);
  const causes = groups.length === 1 ? "" : ` in ${count(groups.length)} groups of one pool and one reason`;
  return `${plural(total, "claim")} without an address${place}${causes}. The longest wait is first.`;
}
