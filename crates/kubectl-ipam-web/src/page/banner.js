// @ts-check
// What the page says about the state that it shows: a badge, and at most one banner with one cause.

import { plural } from "./format.js";

/** @import { Manager, Outage, Overview } from "../../../kubectl-ipam/generated/page.d.ts" */
/** @typedef {"connecting" | "open" | "lost" | "ended"} Connection */
/**
 * What is known: the connection to the command, its last message, and how to write a time.
 * @typedef {{ connection: Connection, overview: Overview | null, clock: (time: string) => string }} Facts
 */
/** @typedef {{ kind: "info" | "warning" | "error", text: string, details: string[] }} Banner */
/** @typedef {{ state: string, text: string }} Badge */
/**
 * `isStale`: the states of objects are those of the past.
 * @typedef {{ badge: Badge, banner: Banner | null, isStale: boolean }} Frame
 */

/**
 * Decides about badge and banner. The most urgent cause is the text; others are details.
 * @param {Facts} facts
 * @returns {Frame}
 */
export function frame({ connection, overview, clock }) {
  if (connection === "ended") return ended(overview, clock);
  if (connection === "lost") return { badge: { state: "stale", text: "Reconnecting" }, banner: null, isStale: true };
  if (connection === "connecting" || !overview) {
    return { badge: { state: "connecting", text: "Connecting" }, banner: null, isStale: false };
  }
  if (overview.outage) {
    const text = outageText(overview.outage, overview.server, clock);
    return { badge: { state: "stale", text: "Stale" }, banner: { kind: "error", text, details: [] }, isStale: true };
  }
  const banners = all(overview, clock);
  const [first, ...others] = banners;
  const more = others.flatMap(({ text, details }) => [text, ...details]);
  return {
    badge: { state: "live", text: "Live" },
    banner: first ? { ...first, details: [...first.details, ...more] } : reading(overview),
    isStale: overview.manager.state === "Missing",
  };
}

/**
 * @param {Overview | null} overview
 * @param {Facts["clock"]} clock
 * @returns {Frame}
 */
function ended(overview, clock) {
  const seen = overview ? ` You see the state of ${clock(overview.outage?.since ?? overview.time)}.` : "";
  const text = `The command kubectl ipam web has ended.${seen} Run kubectl ipam web again, and open the address that it prints.`;
  return { badge: { state: "ended", text: "Ended" }, banner: { kind: "error", text, details: [] }, isStale: true };
}

/**
 * Everything that is wrong, the most urgent first.
 * @param {Overview} overview
 * @param {Facts["clock"]} clock
 * @returns {Banner[]}
 */
function all({ manager, missing, problems }, clock) {
  /** @type {Banner[]} */
  const banners = [];
  if (manager.state === "Missing") banners.push({ kind: "error", text: missingManagerText(manager, clock), details: [] });
  if (problems.length > 0) banners.push(list("error", problems, "of this page cannot be read."));
  if (missing.length > 0) banners.push(list("warning", missing, "are missing: this page is incomplete."));
  return banners;
}

/**
 * One text, or several with a sentence above them.
 * @param {"warning" | "error"} kind
 * @param {string[]} texts
 * @param {string} predicate
 * @returns {Banner}
 */
function list(kind, texts, predicate) {
  const [only = ""] = texts;
  const noun = kind === "warning" ? "permission" : "part";
  if (texts.length > 1) return { kind, text: `${plural(texts.length, noun)} ${predicate}`, details: texts };
  return { kind, text: kind === "warning" ? `This page is incomplete: ${only}.` : `${only}.`, details: [] };
}

/**
 * @param {Overview} overview
 * @returns {Banner | null}
 */
function reading({ listing }) {
  return listing.length > 0 ? { kind: "info", text: `Reading ${listing.join(", ")}…`, details: [] } : null;
}

/**
 * @param {Outage} outage
 * @param {string} server
 * @param {Facts["clock"]} clock
 */
function outageText({ cause, reason, since }, server, clock) {
  const time = since ? ` since ${clock(since)}` : "";
  const seen = since ? ` You see the state of ${clock(since)}.` : "";
  switch (cause) {
    case "Refused": return `The API server ${server} refuses connections${time}.${seen}`;
    case "Silent": return `The API server ${server} does not answer${time}.${seen}`;
    case "Credentials":
      return `The API server ${server} rejects the credentials of the kubeconfig${time}: log in, and run kubectl ipam web again.${seen}`;
    default: return `The API server ${server} cannot be read${time}: ${reason}.${seen}`;
  }
}

/**
 * @param {Manager} manager
 * @param {Facts["clock"]} clock
 */
function missingManagerText({ since }, clock) {
  const time = since ? ` since ${clock(since)}` : "";
  return `No manager runs${time}. Claims get no address; states and counts can be outdated. Find the cause: kubectl ipam doctor`;
}

/**
 * Who processes the objects, for the footer.
 * @param {Overview} overview
 */
export function managerText({ manager }) {
  switch (manager.state) {
    case "Active": return `Manager: ${manager.holder ?? "active"}`;
    case "Missing": return manager.holder ? `Manager: none, the last one was ${manager.holder}` : "Manager: none";
    case "WithoutLease": return "Manager: there is no lease";
    default: return "Manager: unknown, you may not list leases";
  }
}
