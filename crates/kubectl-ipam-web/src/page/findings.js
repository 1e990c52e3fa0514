// @ts-check
// What the checks of `kubectl ipam doctor` find.

import { age, el, KeyedList, write } from "./dom.js";
import { count, plural, poolLink, poolText } from "./format.js";
import { get, Loader } from "./requests.js";

/** @import { Finding, FoundProblem } from "../../../kubectl-ipam/generated/page.d.ts" */

/** The number of findings that are shown at first. */
const FIRST = 50;
/** @type {Record<string, string>} */
const KINDS = { Error: "bad", Warning: "warn", Note: "" };

/** The page of findings. */
export class FindingsPage {
  title = "Findings";
  #note = el("p", { class: "hint" });
  #list = new FindingList();
  #loader = new Loader(async () => this.#show(await get("/api/findings")));

  constructor() {
    this.element = el("section", {}, el("h1", { text: this.title }), this.#note, this.#list.element);
  }

  update() {
    this.#loader.run();
  }

  /** @param {FoundProblem[]} found */
  #show(found) {
    this.#list.show(found);
    const text = found.length === 0 ? "The checks of pools, addresses and claims find nothing" : plural(found.length, "finding");
    write(this.#note, `${text}. kubectl ipam doctor also checks the provider: webhooks, certificates, permissions.`);
  }
}

/** Findings, each with its repair. */
export class FindingList {
  #body = el("div");
  #more = el("button", { type: "button", onclick: () => this.#showAll() });
  #isOpen = false;
  /** @type {Array<Finding | FoundProblem>} */
  #found = [];
  /** @type {KeyedList<Finding | FoundProblem>} */
  #rows = new KeyedList(this.#body, ({ check, object, problem }) => `${check} ${object} ${problem}`, () => new Entry());
  element = el("div", {}, this.#body, el("div", { class: "more" }, this.#more));

  /** @param {Array<Finding | FoundProblem>} found */
  show(found) {
    this.#found = found;
    this.#rows.show(this.#isOpen ? found : found.slice(0, FIRST));
    this.#more.hidden = this.#isOpen || found.length <= FIRST;
    write(this.#more, `Show all ${count(found.length)}`);
  }

  #showAll() {
    this.#isOpen = true;
    this.show(this.#found);
  }
}

/** One finding. */
class Entry {
  element = el("section", { class: "finding" });

  /** @param {Finding | FoundProblem} finding */
  update(finding) {
    const { severity, check, object, problem, since, repair, commands = [] } = finding;
    const pools = "pools" in finding ? finding.pools : [];
    const links = pools.map((pool) => el("a", { href: poolLink(pool), text: poolText(pool) }));
    this.element.replaceChildren(
      el(
        "div",
        { class: "heading" },
        el("span", { class: "pill", "data-kind": KINDS[severity] ?? "", text: check }),
        el("strong", { text: object }),
        ...links,
        ...(since ? [el("span", { class: "hint" }, "since ", age(since))] : []),
      ),
      el("p", { class: "message", text: problem }),
      el("p", { class: "hint", text: repair }),
      ...commands.map((text) => el("pre", { tabindex: "0", text })),
    );
  }
}
