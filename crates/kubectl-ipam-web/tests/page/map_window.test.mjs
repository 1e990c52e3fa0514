import assert from "node:assert/strict";
import { test } from "node:test";

import {
  cellClass, cellText, cellsFor, ends, firstUsable, indexOf, isWhole, layoutOf, moved, parsePosition, placeOf, sizeOf, zoomed,
} from "../../src/page/map_window.js";

/** Three cells of 2⁶⁰ addresses of a pool, of which the last one has fewer. */
const block = 2n ** 60n;
const window = {
  poolTotal: String(2n ** 64n - 3n), total: String(2n ** 64n), start: String(block), length: String(3n * block - 5n), cellSize: String(block),
  zoom: String(block), labels: ["a", "b", "c"], isPart: false, used: [], slices: [],
};

test("a cell has its position in the pool", () => {
  assert.equal(placeOf(window, 2), 3n * block);
  assert.equal(indexOf(window, 3n * block + 7n), 2);
  assert.equal(indexOf(window, 0n), 0, "before the window");
  assert.deepEqual([0, 2].map((index) => sizeOf(window, index)), [block, block - 5n]);
});

test("a cell is zoomed to a multiple of its length, and an address is not", () => {
  assert.deepEqual(zoomed(window, 1), { start: String(2n * block), length: String(block) });
  assert.equal(zoomed({ ...window, zoom: undefined }, 1), null);
});

test("the first cell that can be used is selected", () => {
  const [outside, taken] = [{ index: 0, unusable: true }, { index: 1, unusable: false }];
  assert.equal(firstUsable({ ...window, used: [outside, taken] }), 1);
  assert.equal(firstUsable({ ...window, used: [0, 1, 2].map((index) => ({ index, unusable: true })) }), 0);
});

test("a window moves by its length", () => {
  assert.deepEqual(moved(window, String(block), -1), { start: "0", length: String(block) });
});

test("a window knows whether it is the whole pool, the first or the last", () => {
  assert.equal(isWhole(window), false);
  assert.deepEqual(ends(window), { isFirst: false, isLast: false });
  const whole = { ...window, start: "0", length: window.total };
  assert.equal(isWhole(whole), true);
  assert.deepEqual(ends(whole), { isFirst: true, isLast: true });
});

test("a position is an address, or a start with a length", () => {
  const position = (text) => parsePosition(new URLSearchParams(text));
  assert.deepEqual(position("at=10.0.0.7&start=1&length=2"), { at: "10.0.0.7" });
  assert.deepEqual(position("start=1&length=2"), { start: "1", length: "2" });
  assert.deepEqual(position("start=1"), {});
});

test("a cell has the state of most of its addresses, and a shade", () => {
  const cell = { index: 0, allocated: 1, reserved: 0, coolingDown: 2, full: false };
  assert.equal(cellClass(undefined, 16n), "cell");
  assert.equal(cellClass(cell, 16n), "cell cooling level-3");
  assert.equal(cellClass({ ...cell, full: true }, 3n), "cell cooling level-8");
  assert.equal(cellClass(cell, 2n ** 64n), "cell cooling level-1", "a few addresses are visible");
});

test("1 and 5 of 64 addresses look different", () => {
  const cell = (allocated) => cellClass({ index: 0, allocated, reserved: 0, coolingDown: 0, full: false }, 64n);
  assert.deepEqual([1, 5, 32, 63].map(cell), [1, 2, 6, 7].map((level) => `cell allocated level-${level}`));
});

test("cells are large enough for a finger, and their number is a power of two", () => {
  const labels = ["172.16.10.0"];
  assert.deepEqual(layoutOf(332, labels), { columns: 8, beside: 82 });
  assert.deepEqual(layoutOf(870, labels), { columns: 32, beside: 82 });
  assert.deepEqual(layoutOf(600, labels), { columns: 16, beside: 82 });
  const long = ["fd00:30:0:7:ffff:ffff:ffff:ff00"];
  assert.deepEqual(layoutOf(870, long), { columns: 32, beside: 0 }, "a long label is above its row");
  assert.deepEqual(layoutOf(332, long), { columns: 8, beside: 0 });
  assert.deepEqual([8, 32].map(cellsFor), [256, 1024]);
});

test("a cell without an address that can be allocated says why", () => {
  const cell = { index: 0, allocated: 0, reserved: 0, coolingDown: 0, full: false };
  const gateway = { ...cell, unusable: true, gateway: true, excluded: 1 };
  assert.equal(cellClass(gateway, 1n), "cell gateway");
  assert.equal(cellClass({ ...cell, unusable: true, excluded: 3, outside: 1 }, 4n), "cell excluded");
  assert.equal(cellClass({ ...cell, unusable: true, outside: 4 }, 4n), "cell outside");
  assert.equal(cellText("10.0.0.1", gateway, 1n), "10.0.0.1, gateway");
  assert.equal(cellText("10.0.0.0", { ...cell, unusable: true, outside: 4 }, 4n), "10.0.0.0, block of 4, outside of the pool");
});

test("addresses outside of the pool do not count for the shade of a cell", () => {
  const cell = { index: 0, allocated: 1, reserved: 0, coolingDown: 0, outside: 14, full: false };
  assert.equal(cellClass(cell, 16n), "cell allocated level-6");
  assert.equal(cellClass({ ...cell, allocated: 0 }, 16n), "cell", "free");
  assert.equal(cellText("10.0.0.0", cell, 16n), "10.0.0.0, block of 16, 1 allocated, 14 outside of the pool");
});

test("draining addresses and those of other blocks are not free", () => {
  const cell = { index: 0, allocated: 0, reserved: 0, coolingDown: 0, full: true };
  const draining = { ...cell, draining: 4 };
  assert.equal(cellClass(draining, 4n), "cell draining level-8");
  assert.equal(cellText("10.0.0.0", draining, 4n), "10.0.0.0, block of 4, 4 draining, full");
  assert.equal(cellText("10.0.0.0", { ...cell, draining: 1 }, 1n), "10.0.0.0, draining");
  const other = { ...cell, full: false, unusable: true, otherBlocks: 4 };
  assert.equal(cellClass(other, 4n), "cell elsewhere");
  assert.equal(cellText("10.0.0.0", other, 4n), "10.0.0.0, block of 4, not in a block of this management cluster");
  const partly = { ...cell, full: false, allocated: 1, otherBlocks: 62 };
  assert.equal(cellClass(partly, 64n), "cell allocated level-6");
});

test("a cell is described in words", () => {
  const cell = { index: 0, allocated: 1, reserved: 0, coolingDown: 2, full: true };
  assert.equal(cellText("10.0.0.0", cell, 4n), "10.0.0.0, block of 4, 1 allocated, 2 cooling down, full");
  assert.equal(cellText("10.0.0.0", undefined, 4n), "10.0.0.0, block of 4, free");
  assert.equal(cellText("10.0.0.0", undefined, 1n), "10.0.0.0, free");
  assert.equal(cellText("10.0.0.0", cell, 1n, { state: "Promised", claim: "a/vm" }), "10.0.0.0, Promised, a/vm");
  assert.equal(cellText("10.0.0.0", cell, 1n), "10.0.0.0, not free");
});
