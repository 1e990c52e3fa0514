// @ts-check
// Waiting claims by pool and reason.

import { age, el, KeyedList, write, writeLine } from "./dom.js";
import { count, plural, poolLink, poolText } from "./format.js";
import { waitingTable } from "./tables.js";

/** @import { WaitingGroup } from "../../../kubectl-ipam/generated/page.d.ts" */

/** The number of claims of a group that are shown at first. */
const FIRST = 10;
/** The reason of claims whose pool has a kind that does not exist. */
const UNKNOWN_POOL_KIND = "UnknownPoolKind";

/** The groups, each with one sentence. */
export class WaitingGroups {
  element = el("div", { class: "waiting-groups" });
  /** @type {KeyedList<WaitingGroup>} */
  #groups;

  /** @param {boolean} withPool */
  constructor(withPool) {
    const key = (/** @type {WaitingGroup} */ { pool, reason }) => `${pool.kind}/${poolText(pool)} ${reason}`;
    this.#groups = new KeyedList(this.element, key, () => new Group(withPool));
  }

  /** @param {WaitingGroup[]} groups */
  show(groups) {
    this.#groups.show(groups);
  }
}

/** The claims that wait for a pool for one reason. */
class Group {
  #pool = el("a");
  #reason = el("span", { class: "pill", "data-kind": "bad" });
  #amount = el("span", { class: "hint" });
  #message = el("p", { class: "message" });
  #table = waitingTable();
  #more = el("button", { type: "button", hidden: true, onclick: () => this.#showAll() });
  #rest = el("p", { class: "hint", hidden: true });
  #isOpen = false;
  /** @type {WaitingGroup | null} */
  #group = null;

  /** @param {boolean} withPool */
  constructor(withPool) {
    const title = el("h2", {}, withPool && this.#pool, this.#reason);
    this.element = el(
      "section",
      { class: "waiting-group" },
      el("div", { class: "heading" }, title, this.#amount),
      this.#message,
      this.#table.element,
      el("div", { class: "more" }, this.#more, this.#rest),
    );
  }

  /** @param {WaitingGroup} group */
  update(group) {
    this.#group = group;
    // The kind of such a pool does not exist.
    if (group.reason === UNKNOWN_POOL_KIND) this.#pool.removeAttribute("href");
    else this.#pool.href = poolLink(group.pool);
    writeLine(this.#pool, poolText(group.pool));
    write(this.#reason, group.reason ?? "NotReconciled");
    this.#amount.replaceChildren(`${plural(group.count, "claim")}, the oldest waits for `, age(group.oldest));
    write(this.#message, group.message ?? "No manager has processed the claims. See kubectl ipam doctor.");
    this.#render(group);
  }

  /** @param {WaitingGroup} group */
  #render(group) {
    const { claims } = group;
    const shown = this.#isOpen ? claims : claims.slice(0, FIRST);
    this.#table.show(shown);
    this.#more.hidden = shown.length === claims.length;
    write(this.#more, `Show ${count(claims.length - FIRST)} more`);
    const rest = group.count - claims.length;
    this.#rest.hidden = rest <= 0 || !this.#isOpen;
    write(this.#rest, `${count(rest)} more: kubectl ipam claims --waiting --pool ${group.pool.name}`);
  }

  #showAll() {
    this.#isOpen = true;
    if (this.#group) this.#render(this.#group);
  }
}
