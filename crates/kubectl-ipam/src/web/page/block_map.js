// @ts-check
// What the map of a network shows: its blocks, and who has them.

import { blockCells, clusterLook, holdersOf, LOOKS, partsOf, sentence, stateOf } from "./block_text.js";
import { age, definitions, el, writeLine } from "./dom.js";
import { count, plural, poolLink, poolText } from "./format.js";
import { sizeOf } from "./map_window.js";

/** @import { BlockCell, BlockDetails, BlockWindow, NetworkBlocks } from "../../../generated/page.d.ts" */
/** @import { Holders } from "./block_text.js" */
/** @import { Child } from "./dom.js" */

/** The blocks of a network. */
export class BlockContent {
  title = "Map of the blocks";
  name = "Map of the blocks";
  legend = el("ul", { class: "legend" });
  zoom = (/** @type {number} */ _) => {};
  panel = new BlockPanel((index) => this.zoom(index));
  /** @type {Holders} */
  #holders = { clusters: [], isKnown: false };
  #shown = "";

  /** @param {NetworkBlocks} blocks */
  set blocks(blocks) {
    this.#holders = holdersOf(blocks);
    this.panel.blocks = blocks;
    const { clusters, isKnown } = this.#holders;
    const shown = JSON.stringify([clusters, isKnown, blocks.moreClusters]);
    // Ages change without it.
    if (shown === this.#shown) return;
    this.#shown = shown;
    // What looks alike is one entry.
    const others = clusters.slice(0, LOOKS).map((line, place) => {
      const name = el("span", {});
      writeLine(name, line.cluster);
      const seen = line.state === "Stale" && el("span", {}, "last seen ", age(line.lastSeen), " ago");
      return entry(`cell ${clusterLook(place)} level-8`, name, `(${plural(line.blocks, "block")})`, seen);
    });
    const more = blocks.moreClusters + Math.max(0, clusters.length - LOOKS);
    if (more > 0 && isKnown) others.push(entry(`cell ${clusterLook(null)} level-8`, plural(more, "other cluster")));
    const rest = isKnown ? entry("cell", "free") : entry("cell unknown", "holder not known");
    this.legend.replaceChildren(
      entry("cell own level-5", "this cluster, with the share in use"), ...others, rest,
      entry("cell conflict", "conflict"), entry("cell unreadable", "unreadable record"),
    );
  }

  /** @param {BlockWindow} window */
  cells(window) {
    return blockCells(window, this.#holders.isKnown);
  }

  /**
   * A block that is not free says more than a free one.
   * @param {BlockWindow} window
   */
  first({ cells }) {
    const urgent = cells.find(({ conflicts }) => conflicts > 0) ?? cells.find(({ own }) => own > 0) ?? cells[0];
    return urgent?.index ?? 0;
  }

  /** @param {BlockWindow} window */
  describe({ cellSize, isPart }) {
    const size = BigInt(cellSize);
    const many = `One cell is ${count(size)} blocks, the square the share that is taken.`;
    const cells = size === 1n ? "One cell is one block." : many;
    return isPart ? `${cells} Only the surroundings of taken blocks are shown.` : cells;
  }

  /**
   * @param {BlockWindow} window
   * @param {number} index
   */
  select(window, index) {
    this.panel.show(window, index, this.#holders.isKnown);
  }
}

/**
 * An entry of the legend.
 * @param {string} look
 * @param {Child[]} content
 */
function entry(look, ...content) {
  return el("li", {}, el("span", { class: look, "aria-hidden": "true" }), ...content);
}

/** What is known of the selected cell. */
class BlockPanel {
  element = el("aside", { class: "panel", "aria-label": "Selected block" });
  /** @type {NetworkBlocks | null} */
  blocks = null;
  #shown = "";

  /** @param {(index: number) => void} zoom */
  constructor(zoom) {
    this.zoom = zoom;
  }

  /**
   * @param {BlockWindow} window
   * @param {number} index
   * @param {boolean} isKnown
   */
  show(window, index, isKnown) {
    const [label = "", end = ""] = [window.labels[index], window.ends[index]];
    const cell = window.cells.find((cell) => cell.index === index);
    const size = sizeOf(window, index);
    // The focus can be in the panel: it is built again only if it changes.
    const shown = JSON.stringify([label, end, cell, isKnown, Boolean(window.zoom), this.blocks?.command]);
    if (this.#shown === shown) return;
    this.#shown = shown;
    const range = el("p", { class: "about range", text: `${label.split("/")[0]} – ${end}` });
    const content = window.zoom ? this.#several(cell, size, index, isKnown) : this.#block(cell, isKnown);
    this.element.replaceChildren(el("h3", { text: label }), range, ...content);
  }

  focus() {
    const target = this.element.querySelector("a, button");
    if (target instanceof HTMLElement) target.focus();
  }

  /**
   * Several blocks.
   * @param {BlockCell | undefined} cell
   * @param {bigint} size
   * @param {number} index
   * @param {boolean} isKnown
   */
  #several(cell, size, index, isKnown) {
    /** @type {Array<[string, Child]>} */
    const lines = partsOf(cell, size, isKnown).map(([name, number]) => [
      `${name.charAt(0).toUpperCase()}${name.slice(1)}`, count(number),
    ]);
    return [
      el("p", { class: "about", text: plural(size, "block") }),
      el("dl", {}, ...definitions(lines)),
      el("button", { type: "button", class: "primary", text: "Zoom in", onclick: () => this.zoom(index) }),
    ];
  }

  /**
   * One block.
   * @param {BlockCell | undefined} cell
   * @param {boolean} isKnown
   */
  #block(cell, isKnown) {
    const block = cell?.block;
    if (!cell || !block) {
      const text = isKnown ? "Free: no management cluster has it" : "It is not known who has it";
      return [el("p", { class: "about", text })];
    }
    const { text, kind } = stateOf(block);
    const isConflict = block.state === "Conflict" && this.blocks;
    return [
      el("p", {}, el("span", { class: "pill", "data-kind": kind, text })),
      el("dl", {}, ...definitions(blockLines(cell, block))),
      block.note && el("p", { class: "about wide", text: block.note }),
      isConflict && el("p", { class: "notice error wide", text: sentence(isConflict.advice) }),
      isConflict && el("p", { class: "command wide", text: isConflict.command }),
    ].filter((part) => part instanceof HTMLElement);
  }
}

/**
 * @param {BlockCell} cell
 * @param {BlockDetails} block
 * @returns {Array<[string, Child]>}
 */
function blockLines({ used, size }, { state, clusters, since, emptySince, recorded, pools }) {
  const [holder, ...users] = clusters;
  const isOwn = state === "Own" || (pools ?? []).length > 0;
  /** @type {Array<[string, Child]>} */
  const lines = [
    ["Holder", holder],
    ["Also used by", users.join(", ")],
    ["Since", since && age(since)],
    ["In use here", isOwn && `${count(used)} of ${count(size)}`],
    ["In use, by its record", recorded !== null && recorded !== undefined && count(recorded)],
    ["Empty for", emptySince && age(emptySince)],
    ["Pools", pools?.length ? poolLinks(pools) : null],
  ];
  return lines.filter(([, value]) => value);
}

/** @param {NonNullable<BlockDetails["pools"]>} pools */
function poolLinks(pools) {
  const items = pools.map(({ pool, address }) => {
    const link = el("a", { href: poolLink(pool, address), text: poolText(pool) });
    return el("li", {}, link);
  });
  return el("ul", { class: "links" }, ...items);
}
