import assert from "node:assert/strict";
import { test } from "node:test";

import { count, duration, kindText, percent, plural, poolLink, poolText } from "../../src/web/page/format.js";

test("large counts are powers, and unknown ones a question mark", () => {
  assert.equal(count(1234567), "1,234,567");
  assert.equal(count(2n ** 64n), "2⁶⁴");
  assert.equal(count("340282366920938463463374607431768211455"), "3.4 × 10³⁸");
  assert.equal(count(null), "?");
});

test("a noun has the number of its count", () => {
  assert.equal(plural(1, "claim"), "1 claim");
  assert.equal(plural(2, "prefix", "prefixes"), "2 prefixes");
  assert.equal(plural(null, "claim"), "? claims");
});

test("a share is 0 or 100 percent only if it is exact", () => {
  const shares = [[0, 1000], [1, 1000], [999, 1000], [1000, 1000], [1, 0]];
  assert.deepEqual(shares.map(([part, total]) => percent(part, total)), [0, 1, 99, 100, 0]);
});

test("a duration has its largest unit", () => {
  const seconds = [-1, 119, 120, 3599, 3600, 86400];
  assert.deepEqual(seconds.map((number) => duration(1000 * number)), ["0 s", "119 s", "2 min", "59 min", "1 h", "1 d"]);
});

test("a link to a pool has its kind, namespace and name", () => {
  const local = { kind: "InClusterIPPool", namespace: "team-a", name: "web" };
  const global = { kind: "GlobalInClusterIPPool", name: "shared" };
  assert.equal(poolLink(local, "fd00::/64"), "#/pool/InClusterIPPool/team-a/web?at=fd00%3A%3A%2F64");
  assert.equal(poolLink(global), "#/pool/GlobalInClusterIPPool/-/shared");
  assert.deepEqual([poolText(local), poolText(global)], ["team-a/web", "shared"]);
  assert.equal(kindText("InClusterIPPool", "lab"), "IP pool, network lab");
});
