// @ts-check
// One pool: its counts, a map that zooms, holders, waiting claims.

import { AddressContent } from "./address_map.js";
import { definitions, el, write } from "./dom.js";
import { FindingList } from "./findings.js";
import { hasPrefixes, kindName, networkLink, poolText } from "./format.js";
import { MapSection } from "./map_section.js";
import { parsePosition } from "./map_window.js";
import { OccupancyBar, showState } from "./occupancy.js";
import { countLines, specLines } from "./pool_text.js";
import { get, Loader, RequestError } from "./requests.js";
import { holderTable, sliceTable } from "./tables.js";
import { WaitingGroups } from "./waiting_groups.js";

/** @import { Holder, PoolName, PoolWindow, SliceLine, WaitingGroup } from "../../../kubectl-ipam/generated/page.d.ts" */
/** @import { Route } from "./route.js" */

/** The page of a pool. */
export class PoolPage {
  #state = el("span", { class: "pill", hidden: true });
  #about = el("p", { class: "about" });
  #gone = el("p", { class: "empty", text: "The pool does not exist.", hidden: true });
  #bar = new OccupancyBar();
  #counts = el("dl", { class: "counts" });
  #warnings = el("div", {});
  #unknownMap = el("p", { class: "notice warning", hidden: true,
    text: "It is unknown which addresses are free: you may not list all IPAddresses and reservations of the pool." });
  #findings = new FindingList();
  #waiting = new WaitingSection();
  #slices;
  #held = new HolderSection("Holders in this part of the map", null, true);
  #outside = new HolderSection(
    "Out of range",
    "These addresses are in use. The pool no longer has them, or not the block of the network that contains them.",
    false,
  );
  #facts = el("dl", { class: "facts" });
  #loader = new Loader(() => this.#load());

  /** @param {Route} route */
  constructor(route) {
    const [kind = "", namespace = "", name = ""] = route.parts;
    this.path = route.parts.join("/");
    this.kind = kind;
    this.namespace = namespace === "-" ? "" : namespace;
    this.name = name;
    this.title = poolText({ namespace: this.namespace, name });
    this.#slices = new SliceSection({ kind, namespace: this.namespace, name });
    /** @type {[string, string]} */
    this.noun = hasPrefixes(kind) ? ["prefix", "prefixes"] : ["address", "addresses"];
    this.addresses = new AddressContent(this.noun);
    this.map = new MapSection(this.addresses, parsePosition(route.parameters), () => this.#loader.run());
    this.content = el(
      "div",
      { hidden: true },
      el("div", { class: "summary" }, this.#bar.element, this.#counts),
      this.#warnings,
      this.#findings.element,
      this.#unknownMap,
      this.#waiting.element,
      this.map.element,
      this.#slices.element,
      this.#held.element,
      this.#outside.element,
      el("section", {}, el("h2", { text: "Specification" }), this.#facts),
    );
    this.element = el(
      "div",
      { class: "pool" },
      el("p", { class: "crumbs" }, el("a", { href: "#/", text: "Overview" })),
      el("div", { class: "title" }, el("h1", { text: this.title, title: this.title }), this.#state),
      this.#about,
      this.#gone,
      this.content,
    );
  }

  update() {
    this.#loader.run();
  }

  /** @param {Route} route */
  accepts(route) {
    if (route.parts.join("/") !== this.path) return false;
    this.map.follow(parsePosition(route.parameters));
    return true;
  }

  async #load() {
    const asked = this.map.position;
    const data = await this.#get();
    // Meanwhile the user can have asked for another part of the map.
    if (asked === this.map.position) this.#show(data);
  }

  async #get() {
    const { kind, namespace, name } = this;
    try {
      const { position, cells } = this.map;
      return await get("/api/pool", { kind, namespace, name, cells: String(cells), ...position });
    } catch (error) {
      // Whether there is such a pool is unknown.
      if (!(error instanceof RequestError) || error.status !== 403) throw error;
      write(this.#gone, error.message);
      return null;
    }
  }

  /** @param {PoolWindow | null} pool */
  #show(pool) {
    this.#gone.hidden = pool !== null;
    this.content.hidden = pool === null;
    this.#state.hidden = pool === null;
    if (pool === null) return;
    const finding = pool.findings.find(({ severity }) => severity !== "Note") ?? null;
    showState(this.#state, { ...pool, waiting: pool.waitingCount, finding });
    this.#findings.show(pool.findings);
    this.#showKind(pool.network);
    this.#bar.set(pool.counts, pool.size, this.noun[1]);
    this.#counts.replaceChildren(...definitions(countLines(pool)));
    const problems = [...(pool.problem ? [pool.problem] : []), ...(pool.warnings ?? [])];
    this.#warnings.replaceChildren(...problems.map((text) => el("p", { class: "notice warning", text })));
    this.#facts.replaceChildren(...definitions(specLines(pool, this.kind)));
    this.#waiting.show(pool.waitingGroups, pool.waitingCount);
    this.#slices.show(pool.slices);
    this.#outside.show(pool.outOfRange ?? []);
    this.#held.show(pool.holders ?? []);
    this.map.element.hidden = !pool.window;
    this.#unknownMap.hidden = Boolean(pool.window) || pool.counts.free !== null;
    this.addresses.holders = pool.holders ?? [];
    if (pool.window) this.map.show(pool.window);
  }

  /** @param {string | null | undefined} network */
  #showKind(network) {
    const link = network && el("a", { href: networkLink(network), text: network });
    const text = link ? [`${kindName(this.kind)}, network `, link] : [kindName(this.kind)];
    this.#about.replaceChildren(...text);
  }
}

/** The claims that wait for an address of the pool; hidden without one. */
class WaitingSection {
  #groups = new WaitingGroups(false);
  #unknown = el("p", { class: "hint", hidden: true,
    text: "It is unknown which other claims wait: you may not list all claims." });
  element = el("section", { hidden: true }, el("h2", { text: "Waiting claims" }), this.#unknown, this.#groups.element);

  /**
   * @param {WaitingGroup[]} groups
   * @param {number | null | undefined} total
   */
  show(groups, total) {
    this.element.hidden = total === 0;
    this.#unknown.hidden = total !== null;
    this.#groups.show(groups);
  }
}

/** The slices of the pool; hidden without one. */
class SliceSection {
  #table;
  #unknown = el("p", { class: "hint", hidden: true, text: "It is unknown which slices there are: you may not list slices." });

  /** @param {PoolName} pool */
  constructor(pool) {
    this.#table = sliceTable(pool);
    const area = { class: "scroll", tabindex: "0", role: "region", "aria-label": "Slices" };
    this.element = el("section", { hidden: true }, el("h2", { text: "Slices" }), this.#unknown,
      el("div", area, this.#table.element));
  }

  /** @param {SliceLine[] | null | undefined} slices */
  show(slices) {
    this.element.hidden = slices !== null && (slices ?? []).length === 0;
    this.#unknown.hidden = slices !== null;
    this.#table.element.hidden = slices === null;
    this.#table.show(slices ?? []);
  }
}

/** A table of holders with a heading; hidden without one. */
class HolderSection {
  #table = holderTable();

  /**
   * @param {string} name
   * @param {string | null} hint
   * @param {boolean} scrolls
   */
  constructor(name, hint, scrolls) {
    const area = { class: "scroll", tabindex: "0", role: "region", "aria-label": "Holders" };
    this.element = el(
      "section",
      { hidden: true },
      el("h2", { text: name }),
      hint && el("p", { class: "hint", text: hint }),
      scrolls ? el("div", area, this.#table.element) : this.#table.element,
    );
  }

  /** @param {Holder[]} holders */
  show(holders) {
    this.element.hidden = holders.length === 0;
    this.#table.show(holders);
  }
}
