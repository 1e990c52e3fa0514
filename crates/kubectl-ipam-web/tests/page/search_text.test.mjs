import assert from "node:assert/strict";
import { test } from "node:test";

import { parseRoute } from "../../src/page/route.js";
import { resultText } from "../../src/page/search_text.js";

const none = { pools: 0, holders: 0, claims: 0 };
const nothing = { matches: [], pools: [], holders: [], claims: [], totals: none, sharedNetworks: [], isComplete: true };

test("the result of a search is a sentence", () => {
  assert.equal(resultText(nothing), "Nothing found.");
  assert.equal(resultText({ ...nothing, isComplete: false }), "Nothing found in what you may list.");
  const totals = { pools: 1, holders: 2, claims: 250 };
  const found = { ...nothing, pools: [{}], holders: [{}, {}], claims: Array(100).fill({}), totals };
  assert.equal(resultText(found), "1 pool, 2 addresses, 250 claims (the first 100 are listed).");
});

test("an address without a holder is free only if everything was read", () => {
  const found = { ...nothing, matches: [{}], totals: { ...none, pools: 1 } };
  assert.equal(resultText(found), "1 pool. Nothing holds the address.");
  const shared = { ...found, sharedNetworks: ["site"] };
  assert.ok(resultText(shared).includes("Nothing in this management cluster holds the address"));
  assert.equal(resultText({ ...found, isComplete: false }), "1 pool. It is unknown who holds the address.");
});

test("a route has a name, parts and parameters", () => {
  const { name, parts, parameters } = parseRoute("#/pool/InClusterIPPool/team-a/a%2Fb?at=10.0.0.7");
  assert.deepEqual([name, parts, parameters.get("at")], ["pool", ["InClusterIPPool", "team-a", "a/b"], "10.0.0.7"]);
  assert.equal(parseRoute("").name, "overview");
});
