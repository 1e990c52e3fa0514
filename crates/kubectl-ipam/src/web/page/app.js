// The frame of the page: routes, the stream of events, search box, theme.

import { announce, count, el, tick, write } from "./dom.js";
import { search, waiting } from "./lists.js";
import { overview } from "./overview.js";
import { pool } from "./pool.js";

const main = document.getElementById("main");
const query = document.getElementById("query");
const live = document.getElementById("live");
let view = null;
let newest = null;

// === routes ===

// A route is `#/name/part/part?parameters`.
function route() {
  const [path, parameters] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = path.split("/").map(decodeURIComponent);
  return { name: name || "overview", parts, parameters: new URLSearchParams(parameters ?? "") };
}

function show() {
  if (location.hash === "#main") return;
  const next = route();
  if (view?.name === next.name && view.accepts?.(next)) return;
  const views = { overview, pool, search, waiting };
  view = (views[next.name] ?? overview)(next);
  view.name = next.name;
  main.replaceChildren(view.element);
  document.title = `${view.title} · kubectl ipam`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === next.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (next.name !== "search") query.value = "";
  if (newest) view.update(newest);
  if (document.activeElement !== query) main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

// === events ===

function connect() {
  const events = new EventSource("/events");
  events.onopen = () => state("live", "Live");
  events.onerror = () => {
    const gone = events.readyState === EventSource.CLOSED;
    state("lost", gone ? "Closed" : "Reconnecting");
    announce("The connection is lost. The page shows the last state.");
  };
  events.onmessage = (event) => {
    const start = performance.now();
    update(JSON.parse(event.data));
    if (performance.getEntriesByName("update").length > 500) performance.clearMeasures("update");
    performance.measure("update", { start, end: performance.now() });
  };
}

function state(name, text) {
  live.dataset.state = name;
  write(live, text);
}

function update(data) {
  const before = newest;
  newest = data;
  write(document.getElementById("server"), data.server);
  const badge = document.getElementById("waiting-count");
  badge.hidden = data.waiting === 0;
  write(badge, count(data.waiting));
  if (before && data.waiting !== null && before.waiting !== data.waiting) announce(`${data.waiting} claims wait for an address`);
  notices(data);
  view.update(data);
}

function notices(data) {
  const lines = [];
  if (data.listing.length > 0) lines.push(["info", `Reading ${data.listing.join(", ")}…`]);
  for (const text of data.missing) lines.push(["warning", `This page is incomplete: ${text}`]);
  for (const text of data.problems) lines.push(["error", text]);
  const element = document.getElementById("notices");
  const shown = JSON.stringify(lines);
  if (element.shown === shown) return;
  element.shown = shown;
  element.replaceChildren(...lines.map(([kind, text]) => el("p", { class: `notice ${kind}`, text })));
}

// === search ===

document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  goToSearch();
});

let delay = 0;
query.addEventListener("input", () => {
  clearTimeout(delay);
  delay = setTimeout(goToSearch, 200);
});

function goToSearch() {
  clearTimeout(delay);
  const text = query.value.trim();
  if (text !== "") location.hash = `#/search?q=${encodeURIComponent(text)}`;
}

document.addEventListener("keydown", (event) => {
  const types = event.target.matches("input, textarea, select");
  if (event.key === "/" && !types && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    query.focus();
    query.select();
  }
  if (event.key === "Escape" && event.target === query) main.focus();
});

// === theme ===

const themes = [["auto", "as the system", "◐"], ["light", "light", "☀"], ["dark", "dark", "☾"]];
const button = document.getElementById("theme");
let theme = 0;

function applyTheme() {
  const [name, text, sign] = themes[theme];
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  button.setAttribute("aria-label", `Theme: ${text}`);
  button.title = `Theme: ${text}`;
  write(button, sign);
  localStorage.setItem("theme", name);
}

button.addEventListener("click", () => {
  theme = (theme + 1) % themes.length;
  applyTheme();
});

theme = Math.max(0, themes.findIndex(([name]) => name === localStorage.getItem("theme")));
applyTheme();
window.addEventListener("hashchange", show);
setInterval(tick, 5000);
show();
connect();
