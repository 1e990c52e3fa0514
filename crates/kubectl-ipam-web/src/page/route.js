// @ts-check
// The address of a view: `#/name/part/part?parameters`.

/** @import { Overview } from "../../../kubectl-ipam/generated/page.d.ts" */
/** @typedef {{ name: string, parts: string[], parameters: URLSearchParams }} Route */

/**
 * A view of the page. `accepts` shows another route in the same view, if it can.
 * @typedef {{
 *   element: HTMLElement,
 *   title: string,
 *   update: (overview: Overview) => void,
 *   accepts?: (route: Route) => boolean,
 * }} View
 */

/**
 * The route of a hash.
 * @param {string} hash
 * @returns {Route}
 */
export function parseRoute(hash) {
  const [path = "", parameters = ""] = hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = path.split("/").map(decodeURIComponent);
  return { name: name || "overview", parts, parameters: new URLSearchParams(parameters) };
}
