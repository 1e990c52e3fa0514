import assert from "node:assert/strict";
import { test } from "node:test";

import { frame, managerText } from "../../src/page/banner.js";

const active = { state: "Active", holder: "pod-1" };
const lost = { state: "Missing", holder: "pod-1", since: "10:00" };

function overview(properties = {}) {
  return { server: "https://api:6443", time: "12:00", manager: active, listing: [], missing: [], problems: [], ...properties };
}

/** The frame of an overview. */
function of(properties, connection = "open") {
  return frame({ connection, overview: overview(properties), clock: (time) => time });
}

test("a healthy page is live and has no banner", () => {
  assert.deepEqual(of({}), { badge: { state: "live", text: "Live" }, banner: null, isStale: false });
  assert.equal(of({ listing: ["ipaddresses"] }).banner.text, "Reading ipaddresses…");
});

test("an API server that is gone is the only cause", () => {
  const outage = { cause: "Refused", reason: "os error 111", since: "11:46:10" };
  const { badge, banner, isStale } = of({ outage, manager: lost, missing: ["a"], problems: ["b", "c"], listing: ["d"] });
  assert.equal(banner.text, "The API server https://api:6443 refuses connections since 11:46:10. You see the state of 11:46:10.");
  assert.deepEqual([banner.details, badge.text, isStale], [[], "Stale", true]);
  assert.match(of({ outage: { ...outage, cause: "Silent" } }).banner.text, /does not answer since 11:46:10\. You see/);
  assert.match(of({ outage: { ...outage, cause: "Credentials" } }).banner.text, /rejects the credentials/);
  assert.match(of({ outage: { ...outage, cause: "Failed" } }).banner.text, /cannot be read since 11:46:10: os error 111\./);
});

test("states are not current without a manager", () => {
  const { badge, banner, isStale } = of({ manager: lost, missing: ["you may not list x"] });
  assert.match(banner.text, /^No manager runs since 10:00\. Claims get no address/);
  assert.deepEqual([badge.text, isStale], ["Live", true]);
  assert.deepEqual(banner.details, ["This page is incomplete: you may not list x."], "other causes are details");
  assert.equal(of({ manager: { state: "Unknown" } }).banner, null);
});

test("missing permissions are one banner with a list", () => {
  assert.deepEqual(of({ missing: ["you may not list x"] }).banner,
    { kind: "warning", text: "This page is incomplete: you may not list x.", details: [] });
  const { banner } = of({ missing: ["a", "b", "c"] });
  assert.equal(banner.text, "3 permissions are missing: this page is incomplete.");
  assert.deepEqual(banner.details, ["a", "b", "c"]);
});

test("the end of the command says how to start it again", () => {
  const { badge, banner, isStale } = of({}, "ended");
  assert.equal(badge.text, "Ended");
  assert.match(banner.text, /has ended\. You see the state of 12:00\. Run kubectl ipam web again/);
  assert.equal(isStale, true);
  const outage = { cause: "Silent", reason: "", since: "11:00" };
  assert.match(of({ outage }, "ended").banner.text, /the state of 11:00\./);
  assert.equal(frame({ connection: "ended", overview: null, clock: String }).isStale, true);
});

test("a short interruption is no banner", () => {
  const { badge, banner } = of({}, "lost");
  assert.deepEqual([badge.text, banner], ["Reconnecting", null]);
  assert.equal(frame({ connection: "connecting", overview: null, clock: String }).badge.text, "Connecting");
});

test("the footer names the last manager", () => {
  assert.equal(managerText(overview({ manager: lost })), "Manager: none, the last one was pod-1");
});

test("the footer says who processes the objects", () => {
  const texts = ["Active", "Missing", "WithoutLease", "Unknown"].map((state) => managerText(overview({ manager: { state } })));
  assert.deepEqual(texts, [
    "Manager: active", "Manager: none", "Manager: there is no lease", "Manager: unknown, you may not list leases",
  ]);
});
