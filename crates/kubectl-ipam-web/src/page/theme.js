// @ts-check
// The theme of the page: as the system, light or dark.

import { byId, write } from "./dom.js";

/** @type {Array<{ name: string, text: string, sign: string }>} */
const themes = [
  { name: "auto", text: "as the system", sign: "◐" },
  { name: "light", text: "light", sign: "☀" },
  { name: "dark", text: "dark", sign: "☾" },
];

/** Applies the theme that was chosen last, and lets the button change it. */
export function addTheme() {
  let chosen = Math.max(0, themes.findIndex(({ name }) => name === localStorage.getItem("theme")));
  apply(chosen);
  byId("theme").addEventListener("click", () => {
    chosen = (chosen + 1) % themes.length;
    apply(chosen);
  });
}

/** @param {number} index */
function apply(index) {
  const theme = themes[index];
  if (!theme) return;
  if (theme.name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.name;
  const button = byId("theme");
  button.setAttribute("aria-label", `Theme: ${theme.text}`);
  button.title = `Theme: ${theme.text}`;
  write(button, theme.sign);
  localStorage.setItem("theme", theme.name);
}
