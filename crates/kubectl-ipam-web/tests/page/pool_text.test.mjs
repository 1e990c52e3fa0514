import assert from "node:assert/strict";
import { test } from "node:test";

import { countLines, specLines } from "../../src/page/pool_text.js";

const spec = { ranges: ["10.0.0.0/24"], prefixLength: 24, order: "LowestFirst", sticky: false, requests: false, cooldownSeconds: 0 };

test("the specification shows everything that is set", () => {
  const names = (pool) => specLines(pool, "InClusterIPPool").map(([name]) => name);
  assert.deepEqual(names(spec), ["Addresses", "Prefix", "Order", "Cool-down"]);
  const all = {
    ...spec, excluded: ["10.0.0.1"], gateway: "10.0.0.1", moreRanges: ["x"], draining: ["y"], network: "lab", sticky: true,
    requests: true, allocatesReserved: true, access: ["at most 5 for each namespace"], addressMetadata: ["zone"],
    slicePolicy: { size: 16, per: "Cluster", mostEach: 2, keepSeconds: 0 },
    reclaim: { terminating: { afterSeconds: 900 }, verify: "Report" },
  };
  assert.equal(names(all).length, 16);
  const value = (name) => specLines(all, "InClusterIPPool").find(([other]) => other === name)[1];
  assert.equal(value("Slices"), "16 addresses for each Cluster; at most 2 for an owner; an empty one is kept 0 s");
  assert.equal(value("Reclaim"), "a claim in deletion is released after 900 s; addresses are compared with those of the Machines");
});

test("addresses of other pools of the network are counted apart", () => {
  const counts = { total: 10, used: 1, reserved: 5, coolingDown: 0, outOfRange: 0, free: 4, drained: 0 };
  const inNetwork = { ...counts, inOtherPools: 3 };
  const lines = Object.fromEntries(countLines({ counts: inNetwork, size: { total: "10", free: "4" } }));
  assert.deepEqual(lines, { Total: "10", Used: "1", Free: "4", Reserved: "2", "Cooling down": "0", "Used by its network": "3" });
  const large = countLines({ counts, size: { total: String(2n ** 64n), free: String(2n ** 64n - 9n) } });
  assert.deepEqual(large.slice(0, 3), [["Total", "2⁶⁴"], ["Used", "1"], ["Free", "2⁶⁴ − 9"]]);
});

test("addresses in blocks of other management clusters are counted apart", () => {
  const counts = { total: 32, used: 32, reserved: 0, coolingDown: 0, outOfRange: 0, free: 0, inOtherBlocks: 30 };
  const lines = Object.fromEntries(countLines({ counts, size: { total: "32", free: "0" } }));
  assert.equal(lines["In other blocks"], "30");
});
