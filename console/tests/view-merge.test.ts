import assert from "node:assert/strict";
import { test } from "node:test";
import { mergeView } from "../src/exchange/view-merge.ts";
import { block, view } from "./support.ts";

test("an event replaces the lanes that it has, and keeps the others", () => {
  const before = view({ client: [block({ title: "user" })], model: [block({ title: "half" })] });
  const lane = { name: "model" as const, title: "Model", summary: "", blocks: [block({ title: "whole" })] };
  const after = mergeView(before, { lanes: [lane], is_running: false });
  assert.deepEqual(
    after.lanes.map(({ name, blocks }) => [name, blocks[0]?.title]),
    [
      ["client", "user"],
      ["sent", undefined],
      ["model", "whole"],
      ["reply", undefined],
    ],
  );
  assert.equal(after.is_running, false);
  assert.equal(before.lanes[2]?.blocks[0]?.title, "half");
});

test("an event without lanes keeps all of them", () => {
  const before = view({});
  assert.equal(mergeView(before, { cache_note: "x" }).lanes, before.lanes);
});
