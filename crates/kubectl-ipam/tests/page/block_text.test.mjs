import assert from "node:assert/strict";
import { test } from "node:test";

import {
  aboutText, blockCells, blockCounts, blockLook, blockText, clusterLook, holdersOf, incompleteText, partsOf,
  registryProblem, sentence, sourceText, stateOf,
} from "../../src/web/page/block_text.js";

const empty = { index: 0, own: 0, others: 0, conflicts: 0, unreadable: 0, used: 0, size: 0 };

/** A cell of one block. */
function single(state, properties = {}) {
  const field = { Own: "own", Other: "others", Conflict: "conflicts", Unreadable: "unreadable" }[state];
  const { clusters = ["west"], ...others } = properties;
  return { ...empty, [field]: 1, block: { state, clusters }, ...others };
}

function blocks(properties = {}) {
  return {
    registry: { name: "site", exists: true, ready: "True" }, clusterID: "west", total: "16", clusters: [], moreClusters: 0,
    counts: { network: "lab", size: 64, held: 3, spare: 1, others: 12, conflicts: 0 }, misfits: 0, isComplete: true,
    ...properties,
  };
}

const clock = (time) => time.slice(11, 16);
const READ = "2026-01-05T03:04:05Z";

test("a block without a holder is free only if all holders are known", () => {
  assert.equal(blockLook(undefined, 1n, true), "cell");
  assert.equal(blockLook(undefined, 1n, false), "cell unknown");
  assert.equal(blockText("10.0.0.0/26", undefined, 1n, true), "10.0.0.0/26, free");
  assert.equal(blockText("10.0.0.0/26", undefined, 1n, false), "10.0.0.0/26, holder not known");
  assert.equal(holdersOf(blocks()).isKnown, false, "no records");
  assert.equal(holdersOf(blocks({ read: READ })).isKnown, true);
  assert.equal(holdersOf(blocks({ read: READ, isComplete: false })).isKnown, false, "a slice can be missing");
});

test("the clusters of the registry are not those of the map", () => {
  const clusters = [{ cluster: "east", this: false, blocks: 40, lastSeen: null, state: "Alive" }];
  assert.deepEqual(holdersOf(blocks({ clusters })).clusters, []);
  assert.deepEqual(holdersOf(blocks({ clusters, read: READ })).clusters, clusters);
});

test("an own block shows the share of its addresses in use", () => {
  const look = (used, size = 64) => blockLook(single("Own", { used, size }), 1n, true);
  assert.deepEqual([0, 1, 32, 63, 64].map((used) => look(used)), [
    "cell own", "cell own level-1", "cell own level-6", "cell own level-7", "cell own level-8",
  ]);
  assert.equal(look(null), "cell own", "unknown");
  assert.equal(look(70), "cell own level-8", "also addresses out of range");
});

test("each of the first clusters has a look of its own", () => {
  assert.equal(blockLook(single("Other", { cluster: 3 }), 1n, true), "cell other other-3 level-8");
  assert.equal(blockLook(single("Other", { cluster: 8 }), 1n, true), "cell other other-more level-8");
  assert.equal(blockLook(single("Other"), 1n, true), "cell other other-more level-8");
  assert.equal(clusterLook(null), "other other-more");
  assert.equal(blockLook(single("Unreadable"), 1n, true), "cell unreadable");
});

test("a conflict is visible in a cell of many blocks", () => {
  assert.equal(blockLook({ ...empty, own: 900, conflicts: 1 }, 1024n, true), "cell conflict");
  assert.equal(blockLook({ ...empty, own: 2, others: 1, cluster: 0 }, 16n, true), "cell own level-3");
  assert.equal(blockLook({ ...empty, own: 2, others: 14, cluster: 0 }, 16n, true), "cell other other-0 level-8");
  assert.equal(blockLook({ ...empty, unreadable: 2 }, 16n, true), "cell unreadable level-3");
});

test("a cell is described in words", () => {
  const own = single("Own", { used: 7, size: 62 });
  assert.equal(blockText("10.0.0.0/26", own, 1n, true), "10.0.0.0/26, This cluster, west, 7 of 62 in use");
  const conflict = single("Conflict", { clusters: ["west", "east"] });
  assert.equal(blockText("10.0.0.0/26", conflict, 1n, true), "10.0.0.0/26, Conflict, west, east");
  assert.equal(blockText("10.0.0.0/26", single("Unreadable", { clusters: [] }), 1n, true), "10.0.0.0/26, Unreadable record");
  const many = { ...empty, own: 2, others: 3 };
  assert.equal(blockText("10.0.0.0/26", many, 16n, true), "10.0.0.0/26, 16 blocks, 2 of this cluster, 3 of other clusters, 11 free");
  assert.equal(blockText("10.0.0.0/26", undefined, 16n, false), "10.0.0.0/26, 16 blocks, 16 without a known holder");
  assert.deepEqual(partsOf(many, 2n, true).at(-1), ["free", 0n], "never negative");
  assert.equal(stateOf({ state: "Later" }).text, "Later");
});

test("the cells of a window have the places of their labels", () => {
  const window = {
    total: "40", start: "32", length: "8", cellSize: "4", zoom: "64", labels: ["10.0.8.0/26", "10.0.9.0/26"], ends: ["", ""],
    isPart: false, cells: [{ ...empty, index: 1, own: 4 }],
  };
  assert.deepEqual(blockCells(window, true).map(({ look }) => look), ["cell", "cell own level-8"]);
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
  assert.equal(text({ read: READ, unread: "no answer" }), "The registry cannot be read: no answer. The map shows its records of 03:04.");
  assert.equal(
    text({ unread }),
    `The holders of other blocks are not shown: ${unread}. With access to the registry, kubectl ipam registry list shows them.`,
  );
  assert.equal(text({}), "Reading the records of the registry…");
  const registry = (exists, more) => text({ registry: { name: "site", exists, ready: "Unknown" }, ...more });
  assert.equal(registry(false, { read: READ }), "The IPRegistry site does not exist. The map shows its records of 03:04.");
  assert.ok(registry(false).endsWith("the IPRegistry site does not exist."));
  assert.ok(registry(null).endsWith("you may not list IPRegistries."));
});

test("what is wrong or missing is said", () => {
  assert.equal(registryProblem(blocks()), "");
  const registry = { name: "site", exists: true, ready: "False", reason: "RegistryUnreachable", message: "refused" };
  assert.equal(registryProblem(blocks({ registry })), "IPRegistry site: RegistryUnreachable: refused");
  assert.equal(incompleteText(blocks()), "");
  assert.equal(incompleteText(blocks({ misfits: 1 })), "Not on the map: 1 block of another size or family.");
  assert.ok(incompleteText(blocks({ isComplete: false })).startsWith("The map is incomplete"));
  assert.equal(sentence("release the claims"), "Release the claims.");
});
