// @ts-check
// The frame of the page: routes, the stream of events, search box, theme.

import { announce, byId, el, tick, write } from "./dom.js";
import { count } from "./format.js";
import { OverviewPage } from "./overview.js";
import { PoolPage } from "./pool.js";
import { parseRoute } from "./route.js";
import { SearchPage } from "./search.js";
import { addTheme } from "./theme.js";
import { WaitingPage } from "./waiting.js";

/** @import { Overview } from "../../../generated/page.d.ts" */
/** @import { Route, View } from "./route.js" */

/** Time between two updates of the ages, in milliseconds. */
const TICK_INTERVAL = 5000;
/** How long the user has to pause before a search, in milliseconds. */
const SEARCH_DELAY = 200;

const main = byId("main");
const query = /** @type {HTMLInputElement} */ (byId("query"));
/** @type {{ name: string, view: View } | null} */
let shown = null;
/** @type {Overview | null} */
let newest = null;
let notices = "";

// === routes ===

/**
 * @param {Route} route
 * @returns {View}
 */
function create(route) {
  switch (route.name) {
    case "pool": return new PoolPage(route);
    case "search": return new SearchPage(route);
    case "waiting": return new WaitingPage();
    default: return new OverviewPage();
  }
}

function show() {
  // The link "Skip to content" is no route.
  if (location.hash === "#main") return;
  const route = parseRoute(location.hash);
  if (shown?.name === route.name && shown.view.accepts?.(route)) return;
  const view = create(route);
  shown = { name: route.name, view };
  main.replaceChildren(view.element);
  document.title = `${view.title} · kubectl ipam`;
  for (const link of document.querySelectorAll("nav a")) {
    const isPresent = link instanceof HTMLElement && link.dataset.view === route.name;
    if (isPresent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (route.name !== "search") query.value = "";
  if (newest) view.update(newest);
  if (document.activeElement !== query) main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

// === events ===

function connect() {
  const events = new EventSource("/events");
  events.onopen = () => showState("live", "Live");
  events.onerror = () => {
    const isClosed = events.readyState === EventSource.CLOSED;
    showState("lost", isClosed ? "Closed" : "Reconnecting");
    announce("The connection is lost. The page shows the last state.");
  };
  events.onmessage = (event) => update(JSON.parse(event.data));
}

/**
 * @param {string} name
 * @param {string} text
 */
function showState(name, text) {
  const live = byId("live");
  live.dataset.state = name;
  write(live, text);
}

/** @param {Overview} overview */
function update(overview) {
  const before = newest;
  newest = overview;
  write(byId("server"), overview.server);
  const badge = byId("waiting-count");
  badge.hidden = overview.waiting === 0;
  write(badge, count(overview.waiting));
  const hasChanged = before !== null && before.waiting !== overview.waiting;
  if (hasChanged && overview.waiting !== null) announce(`${overview.waiting} claims wait for an address`);
  showNotices(overview);
  shown?.view.update(overview);
}

/** @param {Overview} overview */
function showNotices({ listing, missing, problems }) {
  const lines = listing.length > 0 ? [["info", `Reading ${listing.join(", ")}…`]] : [];
  for (const text of missing) lines.push(["warning", `This page is incomplete: ${text}`]);
  for (const text of problems) lines.push(["error", text]);
  const text = JSON.stringify(lines);
  if (notices === text) return;
  notices = text;
  byId("notices").replaceChildren(...lines.map(([kind, text]) => el("p", { class: `notice ${kind}`, text })));
}

// === search ===

let delay = 0;

function goToSearch() {
  clearTimeout(delay);
  const text = query.value.trim();
  if (text !== "") location.hash = `#/search?q=${encodeURIComponent(text)}`;
}

byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  goToSearch();
});

query.addEventListener("input", () => {
  clearTimeout(delay);
  delay = setTimeout(goToSearch, SEARCH_DELAY);
});

document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof Element && event.target.matches("input, textarea, select");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    query.focus();
    query.select();
  }
  if (event.key === "Escape" && event.target === query) main.focus();
});

addTheme();
window.addEventListener("hashchange", show);
setInterval(tick, TICK_INTERVAL);
show();
connect();
