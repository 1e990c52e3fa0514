import assert from "node:assert/strict";
import { test } from "node:test";

import {
  count, duration, itemTexts, kindText, networkLink, percent, plural, poolLink, poolText, searchLink,
} from "../../src/page/format.js";

test("large counts are powers, and unknown ones a question mark", () => {
  assert.equal(count(1234567), "1,234,567");
  assert.equal(count(2n ** 64n), "2⁶⁴");
  assert.equal(count("340282366920938463463374607431768211455"), "2¹²⁸ − 1");
  assert.equal(count("340282366920938463463374600000000000000"), "3.4 × 10³⁸");
  assert.equal(count(null), "?");
  assert.equal(count(String(2n ** 64n - 9n)), "2⁶⁴ − 9");
  assert.equal(count(9223372036854775807), "≥ 2⁶³", "the status cannot hold more");
});

test("a noun has the number of its count", () => {
  assert.equal(plural(1, "claim"), "1 claim");
  assert.equal(plural(2, "prefix", "prefixes"), "2 prefixes");
  assert.equal(plural(null, "claim"), "? claims");
});

test("a share is 0 or 100 percent only if it is exact", () => {
  const shares = [[0n, 1000n], [1n, 1000n], [994n, 1000n], [1000n, 1000n], [1n, 0n], [9n, 2n ** 64n], [56n, 100n]];
  const texts = ["0 %", "<1 %", ">99 %", "100 %", "0 %", "<1 %", "56 %"];
  assert.deepEqual(shares.map(([part, total]) => percent(part, total)), texts);
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
  assert.equal(networkLink("a b"), "#/network/a%20b");
  assert.equal(kindText("InClusterIPPool", "lab"), "IP pool, network lab");
});

test("an item of a Cluster has its address, a dash, or a question mark", () => {
  const items = { endpoint: "10.0.0.1", pods: "", lb: null };
  assert.deepEqual(itemTexts(items), ["endpoint: 10.0.0.1", "pods: –", "lb: ?"]);
  assert.equal(searchLink("a b"), "#/search?q=a%20b");
});
