// @ts-check
// Elements of the page. Data of the cluster is only ever written as text.

import { duration } from "./format.js";

/** @typedef {string | Node | null | undefined | false} Child */
/** @typedef {Record<string, string | number | boolean | null | undefined | ((event: Event) => void)>} Properties */

/**
 * Creates an element. `properties`: `class`, `text`, functions such as `onclick`, and attributes.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Properties} properties
 * @param {Child[]} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) set(element, name, value);
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/**
 * @param {HTMLElement} element
 * @param {string} name
 * @param {Properties[string]} value
 */
function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (typeof value === "function") element.addEventListener(name.slice(2), value);
  else if (name === "class") element.className = String(value);
  else if (name === "text") element.textContent = String(value);
  else element.setAttribute(name, value === true ? "" : String(value));
}

/**
 * Creates an SVG element with attributes.
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 * @param {Node[]} children
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/**
 * The element of the document with an id.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no element ${id}`);
  return element;
}

/**
 * Writes a text if it has changed.
 * @param {Element} element
 * @param {string} text
 */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * A part of the page that shows an item.
 * @template T
 * @typedef {{ element: HTMLElement, update: (item: T) => void }} Component
 */

/**
 * Shows items as the children of an element. A component stays as long as the key of its item does, so it keeps the
 * focus.
 * @template T
 */
export class KeyedList {
  /** @type {Map<string, { component: Component<T>, shown: string | null }>} */
  #known = new Map();

  /**
   * @param {HTMLElement} parent
   * @param {(item: T) => string} key
   * @param {() => Component<T>} create
   */
  constructor(parent, key, create) {
    this.parent = parent;
    this.key = key;
    this.create = create;
  }

  /** @param {T[]} items */
  show(items) {
    const seen = new Set();
    let next = this.parent.firstElementChild;
    for (const item of items) {
      const key = this.key(item);
      seen.add(key);
      const element = this.#update(key, item);
      // Elements are moved only if their order has changed.
      if (element === next) next = next.nextElementSibling;
      else this.parent.insertBefore(element, next);
    }
    for (const [key, { component }] of this.#known) {
      if (seen.has(key)) continue;
      component.element.remove();
      this.#known.delete(key);
    }
  }

  /**
   * @param {string} key
   * @param {T} item
   */
  #update(key, item) {
    let entry = this.#known.get(key);
    if (!entry) {
      entry = { component: this.create(), shown: null };
      this.#known.set(key, entry);
    }
    const text = JSON.stringify(item);
    if (entry.shown !== text) {
      entry.component.update(item);
      entry.shown = text;
    }
    return entry.component.element;
  }
}

/** The letters at the end of a long name that are always shown, and the length of a name that is not shortened. */
const [TAIL, SHORT] = [10, 22];

/**
 * Writes a name in one line. One that is too long is shortened in the middle, and all of it is in the title.
 * @param {HTMLElement} element
 * @param {string} text
 */
export function writeLine(element, text) {
  if (element.title === text) return;
  element.title = text;
  element.classList.add("line");
  const end = text.length > SHORT ? text.length - TAIL : text.length;
  const tail = end < text.length && el("span", { text: text.slice(end) });
  element.replaceChildren(el("span", { text: text.slice(0, end) }), ...(tail ? [tail] : []));
}

/**
 * A list of names and values.
 * @param {Array<[string, Child]>} lines
 */
export function definitions(lines) {
  return lines.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", {}, value)));
}

/**
 * An element with the age of a time, which `tick` updates.
 * @param {string | null | undefined} time
 */
export function age(time) {
  if (!time) return document.createTextNode("–");
  const title = new Date(time).toLocaleString("en-GB");
  return el("time", { datetime: time, title, text: duration(Date.now() - Date.parse(time)) });
}

/** Updates the ages. */
export function tick() {
  for (const element of document.querySelectorAll("time")) {
    if (element.dateTime) write(element, duration(Date.now() - Date.parse(element.dateTime)));
  }
}

/**
 * Informs the users of a screen reader.
 * @param {string} text
 */
export function announce(text) {
  write(byId("announce"), text);
}
