// @ts-check
// The frame of the page: routes, the stream of events, search box, theme.

import { frame, managerText } from "./banner.js";
import { ClustersPage } from "./clusters.js";
import { announce, byId, el, tick, write } from "./dom.js";
import { FindingsPage } from "./findings.js";
import { clock, count, searchLink } from "./format.js";
import { NetworkPage } from "./network.js";
import { OverviewPage } from "./overview.js";
import { PoolPage } from "./pool.js";
import { parseRoute } from "./route.js";
import { SearchPage } from "./search.js";
import { addTheme } from "./theme.js";
import { WaitingPage } from "./waiting.js";

/** @import { Overview } from "../../../kubectl-ipam/generated/page.d.ts" */
/** @import { Banner, Connection } from "./banner.js" */
/** @import { Route, View } from "./route.js" */

/** Time between two updates of the ages, in milliseconds. */
const TICK_INTERVAL = 5000;
/** How long the user has to pause before a search, in milliseconds. */
const SEARCH_DELAY = 200;
/** How long the command may not answer before it has ended, in milliseconds. */
const END_DELAY = 4000;

const main = byId("main");
const query = /** @type {HTMLInputElement} */ (byId("query"));
/** @type {{ name: string, view: View } | null} */
let shown = null;
/** @type {Overview | null} */
let newest = null;
/** @type {Connection} */
let connection = "connecting";
let notice = "";

// === routes ===

/**
 * @param {Route} route
 * @returns {View}
 */
function create(route) {
  switch (route.name) {
    case "pool": return new PoolPage(route);
    case "network": return new NetworkPage(route);
    case "search": return new SearchPage(route);
    case "clusters": return new ClustersPage();
    case "waiting": return new WaitingPage();
    case "findings": return new FindingsPage();
    default: return new OverviewPage(route);
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
  let end = 0;
  events.onopen = () => {
    clearTimeout(end);
    end = 0;
    setConnection("open");
  };
  events.onerror = () => {
    // Another command on the same port rejects the secret of this one.
    if (events.readyState === EventSource.CLOSED) setConnection("ended");
    else if (connection !== "ended") setConnection("lost");
    if (end === 0) end = setTimeout(() => setConnection("ended"), END_DELAY);
  };
  events.onmessage = (event) => update(JSON.parse(event.data));
}

/** @param {Connection} state */
function setConnection(state) {
  connection = state;
  showFrame();
}

/** @param {Overview} overview */
function update(overview) {
  const before = newest;
  newest = overview;
  write(byId("server"), overview.server);
  write(byId("manager"), managerText(overview));
  const scope = byId("scope");
  scope.hidden = !overview.namespace;
  write(scope, `Namespace ${overview.namespace}`);
  showCount("waiting-count", overview.waiting);
  showCount("finding-count", overview.findings);
  const hasChanged = before !== null && before.waiting !== overview.waiting;
  if (hasChanged && overview.waiting !== null) announce(`${overview.waiting} claims wait for an address`);
  showFrame();
  shown?.view.update(overview);
}

/**
 * Shows a number beside the link of a view; none for 0.
 * @param {string} id
 * @param {number | null} number
 */
function showCount(id, number) {
  const badge = byId(id);
  badge.hidden = number === 0;
  write(badge, count(number));
}

/** Shows the badge and the banner. */
function showFrame() {
  const { badge, banner, isStale } = frame({ connection, overview: newest, clock });
  const live = byId("live");
  live.dataset.state = badge.state;
  write(live, badge.text);
  document.documentElement.toggleAttribute("data-stale", isStale);
  const text = JSON.stringify(banner);
  // A list that the user has opened stays open.
  if (notice === text) return;
  notice = text;
  byId("notices").replaceChildren(...(banner ? [notices(banner)] : []));
  if (banner && banner.kind !== "info") announce(banner.text);
}

/** @param {Banner} banner */
function notices({ kind, text, details }) {
  const items = details.map((text) => el("li", { text }));
  const list = items.length > 0 && el("details", {}, el("summary", { text: "Details" }), el("ul", {}, ...items));
  return el("div", { class: `notice ${kind}` }, el("p", { text }), list);
}

// === search ===

let delay = 0;

function goToSearch() {
  clearTimeout(delay);
  const text = query.value.trim();
  if (text === "") return;
  const hash = searchLink(text);
  if (location.hash === hash) return;
  // The letters of one search are one step of the way back.
  if (shown?.name !== "search") location.hash = hash;
  else {
    history.replaceState(null, "", hash);
    show();
  }
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
