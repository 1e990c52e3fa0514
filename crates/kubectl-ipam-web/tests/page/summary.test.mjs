import assert from "node:assert/strict";
import { test } from "node:test";

import {
  blocksText, emptyText, isNew, networksOf, networkState, poolState, poolsOf, shownPools, sizeOfGroup, STATE_COLUMN, tiles,
} from "../../src/page/summary.js";

/** A pool of 10 addresses. */
function pool(name, properties = {}) {
  const counts = { total: 10, used: 0, reserved: 0, coolingDown: 0, outOfRange: 0, free: 10, drained: 0 };
  const { free = 10, ...others } = properties;
  return {
    pool: { kind: "InClusterIPPool", namespace: "team-a", name },
    ready: "True", counts: { ...counts, free, used: 10 - free }, size: { total: "10", free: String(free) }, waiting: 0,
    ranges: "", ...others,
  };
}

function overview(pools, properties = {}) {
  return { pools, networks: [], bound: 0, waiting: 0, listing: [], missing: [], problems: [], findings: 0, ...properties };
}

test("the tile of pools counts those that are not ready", () => {
  const pools = [pool("a"), pool("b", { ready: "False" }), pool("c", { ready: "Unknown" })];
  assert.deepEqual(tiles(overview(pools)).pools, { number: 3, note: "1 not ready", kind: "bad", href: "#/?show=problems" });
  assert.deepEqual(tiles(overview([pool("a")])).pools, { number: 1, note: "", kind: "", href: "#/" });
});

test("the tile of full pools counts those without a free address", () => {
  const pools = [pool("a", { free: 0 }), pool("b", { free: 1 }), pool("c", { free: 2 }), pool("d", { size: null })];
  assert.deepEqual(tiles(overview(pools)).full, { number: 2, note: "1 full", kind: "bad", href: "#/?show=full" });
});

test("an unknown number of waiting claims is no problem", () => {
  assert.deepEqual(tiles(overview([], { waiting: null })).waiting, { number: null, note: "", kind: "", href: "#/waiting" });
  assert.deepEqual(tiles(overview([], { waiting: 2 })).waiting, { number: 2, note: "Show reasons", kind: "bad", href: "#/waiting" });
});

test("pools are filtered by their texts, and sorted by a column and then by name", () => {
  const pools = [pool("c", { network: "lab" }), pool("b", { free: 3 }), pool("a", { free: 3, ranges: "10.0.0.0/24" })];
  const names = (filter, sorted) => shownPools(pools, filter, sorted).map((pool) => pool.pool.name).join("");
  assert.equal(names("", 0), "abc");
  assert.equal(names("", 4), "abc", "free");
  assert.equal(names("", 3), "abc", "used");
  assert.equal(names(" LAB ", 0), "c");
  assert.equal(names("10.0", 0), "a");
});

test("an empty table says why it is empty", () => {
  assert.equal(emptyText(overview([pool("a")])), "No pool matches the filter.");
  assert.equal(emptyText(overview([], { listing: ["pools"] })), "Reading the pools…");
  assert.equal(emptyText(overview([], { missing: ["list pools"] })), "It is unknown whether there are pools: you may not list all of them.");
  assert.equal(emptyText(overview([])), "The cluster has no pools.");
  assert.equal(emptyText(overview([], { namespace: "lab" })), "There are no pools in the namespace lab, and no global ones.");
  assert.deepEqual([isNew(overview([])), isNew(overview([], { missing: ["x"] })), isNew(overview([pool("a")]))], [true, false, false]);
});

test("a full pool is not ready, and problems are first", () => {
  const pools = [
    pool("ready"), pool("unknown", { ready: "Unknown" }), pool("nearly", { free: 1 }), pool("waits", { waiting: 2 }),
    pool("full", { free: 0 }), pool("urgent", { free: 0, waiting: 3 }), pool("broken", { ready: "False", reason: "InvalidSpec" }),
  ];
  const texts = shownPools(pools, "", STATE_COLUMN).map((pool) => `${pool.pool.name}: ${poolState(pool).text}`);
  assert.deepEqual(texts, [
    "broken: InvalidSpec", "urgent: Full", "full: Full", "waits: Claims wait", "nearly: Nearly full",
    "unknown: No conditions", "ready: Ready",
  ]);
  const names = (group) => poolsOf(pools, group).map((pool) => pool.pool.name);
  assert.equal(names("").length, 7);
  assert.deepEqual(names("problems"), ["nearly", "waits", "full", "urgent", "broken"]);
  assert.deepEqual(names("full"), ["nearly", "full", "urgent"]);
});

test("a pool in which doctor finds something is not green", () => {
  const pools = [
    pool("ready"), pool("warned", { finding: { severity: "Warning", check: "PoolsOverlap" } }),
    pool("broken", { finding: { severity: "Error", check: "DuplicateAddress" } }),
  ];
  const states = shownPools(pools, "", STATE_COLUMN).map((pool) => [pool.pool.name, poolState(pool).text, poolState(pool).kind]);
  assert.deepEqual(states, [
    ["broken", "DuplicateAddress", "bad"], ["warned", "PoolsOverlap", "warn"], ["ready", "Ready", "good"],
  ]);
  assert.equal(poolsOf(pools, "problems").length, 2);
});

test("numbers in names are compared as numbers", () => {
  const pools = ["p-10", "p-9", "p-1"].map((name) => pool(name));
  assert.deepEqual(shownPools(pools, "", 0).map((pool) => pool.pool.name), ["p-1", "p-9", "p-10"]);
});

test("the share of a large pool is exact", () => {
  const size = { total: String(2n ** 64n), free: "1" };
  assert.equal(poolState({ ready: "True", size }).text, "Nearly full");
  assert.equal(poolState({ ready: "True", size: { ...size, free: "0" } }).text, "Full");
  assert.equal(poolState({ ready: "True", size: { ...size, free: null } }).text, "Ready", "unknown");
});

test("a network with a conflict is among the problems, before the others", () => {
  const blocks = (conflicts) => ({ held: 3, total: "16", conflicts });
  const networks = [
    { name: "a", ready: "True" }, { name: "b", ready: "Unknown" }, { name: "c", ready: "False", reason: "BlockSizeDiffers" },
    { name: "d", ready: "True", blocks: blocks(2) }, { name: "e", ready: "True", blocks: blocks(0) },
  ];
  const names = (group) => networksOf(networks, group).map(({ name }) => name).join("");
  assert.equal(names(""), "dcbae");
  assert.equal(names("problems"), "dc");
  assert.equal(names("full"), "dcbae");
  assert.deepEqual(networkState(networks[3]), { text: "BlockConflict", kind: "bad", rank: 0 });
  assert.equal(networkState(networks[2]).text, "BlockSizeDiffers");
  const all = overview([pool("a", { free: 0 })], { networks });
  assert.deepEqual(["", "problems", "full"].map((group) => sizeOfGroup(all, group)), [1, 3, 1]);
});

test("blocks of a network are counted", () => {
  assert.equal(blocksText({ held: 3, total: "16", conflicts: 0 }), "3 of 16");
  assert.equal(blocksText({ held: null, total: null, conflicts: 0 }), "? of ?");
  assert.equal(blocksText(undefined), "");
});
