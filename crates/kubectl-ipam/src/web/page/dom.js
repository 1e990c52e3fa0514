// Elements, texts and numbers. Data of the cluster is only ever written as text.

// Creates an element. `properties`: `class`, `text`, functions such as `onclick`, and attributes.
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  set(element, properties);
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Creates an SVG element with attributes.
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function set(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
}

// Writes a text if it has changed.
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Shows `items` as the children of `parent`. Elements stay as long as their key does, so they keep the focus.
// `create(item)` returns an element with a method `update(item)`.
export function list(parent, items, key, create) {
  const known = parent.known ?? (parent.known = new Map());
  const seen = new Set();
  let next = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    seen.add(name);
    const text = JSON.stringify(item);
    let entry = known.get(name);
    if (!entry) {
      entry = { element: create(item), text: null };
      known.set(name, entry);
    }
    if (entry.text !== text) {
      entry.element.update(item);
      entry.text = text;
    }
    if (entry.element === next) next = next.nextElementSibling;
    else parent.insertBefore(entry.element, next);
  }
  for (const [name, entry] of known) {
    if (seen.has(name)) continue;
    entry.element.remove();
    known.delete(name);
  }
}

const plain = new Intl.NumberFormat("en");
const superscripts = "⁰¹²³⁴⁵⁶⁷⁸⁹";

function raised(number) {
  return [...String(number)].map((digit) => superscripts[Number(digit)]).join("");
}

// A count. Large ones are powers: pools of IPv6 have up to 2¹²⁸ addresses. Without a permission it is unknown.
export function count(value) {
  if (value === null || value === undefined) return "?";
  const number = BigInt(value);
  if (number < 10_000_000n) return plain.format(number);
  const bits = number.toString(2).length - 1;
  if (number === 1n << BigInt(bits)) return `2${raised(bits)}`;
  const digits = number.toString();
  if (digits.length <= 12) return plain.format(number);
  return `${digits[0]}.${digits[1]} × 10${raised(digits.length - 1)}`;
}

// A number of things: `plural(1, "claim")` is "1 claim".
export function plural(number, noun, nouns = `${noun}s`) {
  return `${count(number)} ${Number(number) === 1 ? noun : nouns}`;
}

// The share of a total, in percent: 0 and 100 only if exact.
export function percent(part, total) {
  if (!total) return 0;
  const share = (100 * part) / total;
  if (share > 0 && share < 1) return 1;
  if (share < 100 && share > 99) return 99;
  return Math.round(share);
}

function duration(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= 2 * size || (seconds >= size && unit !== "min")) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${seconds} s`;
}

// An element with the age of a time, which `tick` updates.
export function age(time) {
  if (!time) return document.createTextNode("–");
  const element = el("time", { datetime: time, title: new Date(time).toLocaleString("en-GB") });
  element.textContent = duration(Date.now() - Date.parse(time));
  return element;
}

// Updates the ages.
export function tick() {
  for (const element of document.querySelectorAll("time[datetime]")) {
    write(element, duration(Date.now() - Date.parse(element.dateTime)));
  }
}

// Tells the users of a screen reader.
export function announce(text) {
  write(document.getElementById("announce"), text);
}

// The short form of a kind, as in the tables of the command line.
export function kindName(kind) {
  const names = {
    InClusterIPPool: "IP pool",
    GlobalInClusterIPPool: "Global IP pool",
    InClusterPrefixPool: "Prefix pool",
    GlobalInClusterPrefixPool: "Global prefix pool",
  };
  return names[kind] ?? kind;
}

// Whether pools of a kind allocate prefixes.
export function hasPrefixes(kind) {
  return kind.includes("Prefix");
}

// The address of the view of a pool.
export function poolLink(pool, address) {
  const parts = [pool.kind, pool.namespace || "-", pool.name].map(encodeURIComponent).join("/");
  return `#/pool/${parts}${address ? `?at=${encodeURIComponent(address)}` : ""}`;
}

// Names of namespaces and pools as one text.
export function poolText(pool) {
  return pool.namespace ? `${pool.namespace}/${pool.name}` : pool.name;
}

// Fetches JSON. Returns null if the answer is 404.
export async function get(path, parameters, signal) {
  const query = new URLSearchParams(parameters);
  const response = await fetch(`${path}?${query}`, { signal });
  if (response.status === 404) return null;
  if (!response.ok) throw Object.assign(new Error(await response.text()), { status: response.status });
  return response.json();
}

// Loads now, and again if asked meanwhile: at most one request at a time.
export class Loader {
  constructor(load) {
    this.load = load;
    this.running = false;
    this.again = false;
  }

  async run() {
    if (this.running) {
      this.again = true;
      return;
    }
    this.running = true;
    try {
      do {
        this.again = false;
        await this.load();
      } while (this.again);
    } catch (error) {
      // The stream of events reports that the server is gone.
      if (error.name !== "AbortError") console.warn(error.message);
    } finally {
      this.running = false;
    }
  }
}
