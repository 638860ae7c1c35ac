import assert from "node:assert/strict";
import { test } from "node:test";
import { countNewer } from "../src/traffic/row-count.ts";
import { row } from "./support.ts";

const rows = ["c", "b", "a"].map((id) => row({ id }));

test("rows above the first one of the pause are newer", () => {
  assert.equal(countNewer(rows, rows), 0);
  assert.equal(countNewer(rows, rows.slice(2)), 2);
});

test("all rows are newer than an empty list, and than one whose first row was dropped", () => {
  assert.equal(countNewer(rows, []), 3);
  assert.equal(countNewer(rows, [row({ id: "old" })]), 3);
});
