import assert from "node:assert/strict";
import { test } from "node:test";
import { scrollToRow, virtualWindow } from "../src/traffic/virtual-window.ts";

test("few rows are all rendered", () => {
  assert.deepEqual(virtualWindow(3, 20, 0, 200), { first: 0, end: 3, offset: 0, height: 60 });
});

test("only rows near the view are rendered", () => {
  assert.deepEqual(virtualWindow(10_000, 20, 20_000, 400), { first: 992, end: 1028, offset: 19_840, height: 200_000 });
});

test("a position below the last row shows the last rows", () => {
  const { first, end } = virtualWindow(100, 20, 50_000, 200);
  assert.deepEqual([first, end], [82, 100]);
});

test("no rows", () => {
  assert.deepEqual(virtualWindow(0, 20, 0, 200), { first: 0, end: 0, offset: 0, height: 0 });
});

test("a visible row needs no scrolling", () => {
  assert.equal(scrollToRow(5, 20, 60, 200), 60);
});

test("a row above or below is scrolled to the nearest edge", () => {
  assert.equal(scrollToRow(2, 20, 60, 200), 40);
  assert.equal(scrollToRow(20, 20, 60, 200), 220);
});
