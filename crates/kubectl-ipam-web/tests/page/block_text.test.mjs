import assert from "node:assert/strict";
import { test } from "node:test";

import {
  aboutText, blockCounts, incompleteText, registryProblem, sentence, sourceText, stateOf,
} from "../../src/page/block_text.js";

function blocks(properties = {}) {
  return {
    registry: { name: "site", exists: true, ready: "True" }, clusterID: "west", total: "16", clusters: [], moreClusters: 0,
    counts: { network: "lab", size: 64, held: 3, spare: 1, others: 12, conflicts: 0 }, blocks: [], moreBlocks: 0, isComplete: true,
    ...properties,
  };
}

const clock = (time) => time.slice(11, 16);
const READ = "2026-01-05T03:04:05Z";

test("a state of a later version is shown as it is", () => {
  assert.deepEqual(stateOf({ state: "Conflict" }), { text: "Conflict", kind: "bad" });
  assert.equal(stateOf({ state: "Later" }).text, "Later");
});

test("counts that the manager has not reported are unknown", () => {
  assert.deepEqual(blockCounts(blocks()), [
    ["Held", "3 of 16"], ["Spare", "1"], ["Of other clusters", "12"], ["Conflicts", "0"], ["Block size", "64"],
  ]);
  const none = { network: "lab", size: 64, held: null, spare: null, others: null, conflicts: null };
  assert.deepEqual(blockCounts(blocks({ counts: none, most: 4 }))[0], ["Held", "? of 16"]);
  assert.deepEqual(blockCounts(blocks({ most: 4 })).at(-1), ["Limit", "4"]);
  assert.ok(aboutText(blocks()).endsWith("This one is west."));
  assert.ok(aboutText(blocks({ clusterID: null })).endsWith("It is not known which one this is."));
});

test("it is said where the holders come from, or why they are not shown", () => {
  const text = (properties) => sourceText(blocks(properties), clock);
  const unread = "you may not list secrets in the namespace x";
  assert.equal(text({ read: READ }), "Holders by the records of the registry, read at 03:04.");
  assert.equal(text({ read: READ, unread: "no answer" }), "The registry cannot be read: no answer. The table shows its records of 03:04.");
  assert.equal(
    text({ unread }),
    `The holders of other blocks are not shown: ${unread}. With access to the registry, kubectl ipam registry list shows them.`,
  );
  assert.equal(text({}), "Reading the records of the registry…");
  const registry = (exists, more) => text({ registry: { name: "site", exists, ready: "Unknown" }, ...more });
  assert.equal(registry(false, { read: READ }), "The IPRegistry site does not exist. The table shows its records of 03:04.");
  assert.ok(registry(false).endsWith("the IPRegistry site does not exist."));
  assert.ok(registry(null).endsWith("you may not list IPRegistries."));
});

test("what is wrong or missing is said", () => {
  assert.equal(registryProblem(blocks()), "");
  const registry = { name: "site", exists: true, ready: "False", reason: "RegistryUnreachable", message: "refused" };
  assert.equal(registryProblem(blocks({ registry })), "IPRegistry site: RegistryUnreachable: refused");
  assert.equal(incompleteText(blocks()), "");
  assert.equal(incompleteText(blocks({ moreBlocks: 1 })), "And 1 more block that is not free.");
  assert.ok(incompleteText(blocks({ isComplete: false })).startsWith("The table is incomplete"));
  assert.equal(sentence("release the claims"), "Release the claims.");
});
