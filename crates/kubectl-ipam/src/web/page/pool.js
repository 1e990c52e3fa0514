// @ts-check
// One pool: its counts, a map that zooms, holders, waiting claims.

import { definitions, el, write } from "./dom.js";
import { count, hasPrefixes, kindText, poolText } from "./format.js";
import { MapSection } from "./map_section.js";
import { parsePosition } from "./map_window.js";
import { OccupancyBar, showReadiness } from "./occupancy.js";
import { get, Loader, RequestError } from "./requests.js";
import { holderTable, waitingTable } from "./tables.js";

/** @import { ClaimLine, Holder, PoolWindow } from "../../../generated/page.d.ts" */
/** @import { Child } from "./dom.js" */
/** @import { Route } from "./route.js" */

/** The page of a pool. */
export class PoolPage {
  #state = el("span", { class: "pill" });
  #about = el("p", { class: "about" });
  #gone = el("p", { class: "empty", text: "The pool does not exist.", hidden: true });
  #bar = new OccupancyBar();
  #counts = el("dl", { class: "counts" });
  #warnings = el("div", {});
  #unknownMap = el("p", { class: "notice warning", hidden: true,
    text: "It is unknown which addresses are free: you may not list all IPAddresses and reservations of the pool." });
  #waiting = new WaitingSection();
  #held = new HolderSection("Holders in this part of the map", null, true);
  #outside = new HolderSection(
    "Out of range", "These addresses are in use, and are no longer part of the pool.", false,
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
    /** @type {[string, string]} */
    this.noun = hasPrefixes(kind) ? ["prefix", "prefixes"] : ["address", "addresses"];
    this.map = new MapSection(this.noun, parsePosition(route.parameters), () => this.#loader.run());
    this.content = el(
      "div",
      { hidden: true },
      el("div", { class: "summary" }, this.#bar.element, this.#counts),
      this.#warnings,
      this.#unknownMap,
      this.map.element,
      this.#waiting.element,
      this.#held.element,
      this.#outside.element,
      el("section", {}, el("h2", { text: "Specification" }), this.#facts),
    );
    this.element = el(
      "div",
      { class: "pool" },
      el("p", { class: "crumbs" }, el("a", { href: "#/", text: "Overview" })),
      el("div", { class: "title" }, el("h1", { text: this.title }), this.#state),
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
      return await get("/api/pool", { kind, namespace, name, ...this.map.position });
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
    showReadiness(this.#state, pool);
    write(this.#about, kindText(this.kind, pool.network));
    this.#bar.set(pool.counts, this.noun[1]);
    this.#counts.replaceChildren(...definitions(countLines(pool)));
    const problems = [...(pool.problem ? [pool.problem] : []), ...(pool.warnings ?? [])];
    this.#warnings.replaceChildren(...problems.map((text) => el("p", { class: "notice warning", text })));
    this.#facts.replaceChildren(...definitions(specLines(pool, this.kind)));
    this.#waiting.show(pool.waiting ?? [], pool.waitingCount);
    this.#outside.show(pool.outOfRange ?? []);
    this.#held.show(pool.holders ?? []);
    this.map.element.hidden = !pool.window;
    this.#unknownMap.hidden = Boolean(pool.window) || pool.counts.free !== null;
    if (pool.window) this.map.show(pool.window, pool.holders ?? []);
  }
}

/** The claims that wait for an address of the pool; hidden without one. */
class WaitingSection {
  #table = waitingTable(false);
  #unknown = el("p", { class: "hint", hidden: true,
    text: "It is unknown which other claims wait: you may not list all claims." });
  element = el("section", { hidden: true }, el("h2", { text: "Waiting claims" }), this.#unknown, this.#table.element);

  /**
   * @param {ClaimLine[]} claims
   * @param {number | null | undefined} total
   */
  show(claims, total) {
    this.element.hidden = total === 0;
    this.#unknown.hidden = total !== null;
    this.#table.show(claims);
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

/**
 * @param {PoolWindow} pool
 * @returns {Array<[string, Child]>}
 */
function countLines({ counts, window }) {
  return [
    ["Total", count(window?.poolTotal ?? counts.total)],
    ["Used", count(counts.used)],
    ["Free", count(counts.free)],
    ["Reserved", count(counts.reserved)],
    ["Cooling down", count(counts.coolingDown)],
    ["Out of range", count(counts.outOfRange)],
  ];
}

/**
 * @param {PoolWindow} pool
 * @param {string} kind
 * @returns {Array<[string, Child]>}
 */
function specLines(pool, kind) {
  /** @type {Array<[string, Child]>} */
  const lines = [
    ["Ranges", pool.ranges.join(", ")],
    ["Excluded", pool.excluded?.join(", ")],
    ["Gateway", pool.gateway],
    [hasPrefixes(kind) ? "Allocated length" : "Prefix", `/${pool.prefixLength}`],
    ["More ranges", pool.moreRanges?.join("; ")],
    ["Draining", pool.draining?.join(", ")],
    ["Cool-down", pool.cooldownSeconds > 0 ? `${pool.cooldownSeconds} s` : "none"],
  ];
  return lines.filter(([, text]) => text);
}
