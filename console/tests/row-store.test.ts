import assert from "node:assert/strict";
import { test } from "node:test";
import { NAME_LIMIT } from "../src/traffic/name-counts.ts";
import { RowStore } from "../src/traffic/row-store.ts";
import { row } from "./support.ts";

const ids = (store: RowStore) => store.rows.map(({ id }) => id);

test("rows are ordered by their beginning, newest first", () => {
  const store = new RowStore();
  store.merge([row({ id: "b", began_s: 2 })]);
  store.merge([row({ id: "a", began_s: 1 }), row({ id: "c", began_s: 3 })]);
  assert.deepEqual(ids(store), ["c", "b", "a"]);
});

test("a row replaces the one with its id, in its place", () => {
  const store = new RowStore();
  store.merge([1, 2, 3].map((began_s) => row({ id: `r${began_s}`, began_s, state: "running" })));
  store.merge([row({ id: "r2", began_s: 2, finish: "stop" })]);
  assert.deepEqual(ids(store), ["r3", "r2", "r1"]);
  assert.equal(store.rows[1]?.finish, "stop");
});

test("a replaced row may have another beginning", () => {
  const store = new RowStore();
  store.merge([1, 2].map((began_s) => row({ id: `r${began_s}`, began_s, state: "running" })));
  store.merge([row({ id: "r1", began_s: 5 })]);
  assert.deepEqual(ids(store), ["r1", "r2"]);
});

test("a finished row is not replaced by a running one", () => {
  const store = new RowStore();
  store.merge([row({ id: "a", state: "done" })]);
  store.merge([row({ id: "a", state: "running" })]);
  assert.equal(store.rows[0]?.state, "done");
});

test("the oldest rows are dropped above the limit", () => {
  const store = new RowStore(2);
  store.merge([1, 2, 3].map((began_s) => row({ id: `r${began_s}`, began_s })));
  assert.deepEqual(ids(store), ["r3", "r2"]);
});

test("each change makes another array", () => {
  const store = new RowStore();
  store.merge([row({ id: "a" })]);
  const before = store.rows;
  store.merge([row({ id: "b" })]);
  assert.equal(before.length, 1);
});

test("the names of agents and models are kept, without the empty one", () => {
  const store = new RowStore();
  store.merge([row({ agent: "codex", model: "qwen" }), row({ id: "b", agent: "", model: "qwen" })]);
  assert.deepEqual([store.agents.list, store.models.list], [["codex"], ["qwen"]]);
});

test("names disappear with their last row, and their list changes only then", () => {
  const store = new RowStore(2);
  store.merge([row({ id: "a", model: "x" }), row({ id: "b", began_s: 2, model: "x" })]);
  const before = store.models.list;
  store.merge([row({ id: "c", began_s: 3, model: "x" })]);
  assert.equal(store.models.list, before);
  store.merge([row({ id: "c", began_s: 3, model: "y" }), row({ id: "d", began_s: 4, model: "z" })]);
  assert.deepEqual(store.models.list, ["y", "z"]);
  store.remove("d");
  assert.deepEqual([ids(store), store.models.list], [["c"], ["y"]]);
});

test("of too many names, the most frequent are listed", () => {
  const store = new RowStore();
  store.merge(Array.from({ length: 300 }, (_, n) => row({ id: `r${n}`, model: `stranger-${n}` })));
  store.merge(Array.from({ length: 2 }, (_, n) => row({ id: `own-${n}`, model: "own" })));
  assert.equal(store.models.list.length, NAME_LIMIT);
  assert.ok(store.models.list.includes("own"));
});

test("a row that was captured once is known to have been", () => {
  const store = new RowStore(1);
  store.merge([row({ id: "a", is_captured: true })]);
  store.merge([row({ id: "a", is_captured: false })]);
  assert.equal(store.captured.has("a"), true);
  store.merge([row({ id: "b", began_s: 2 })]);
  assert.equal(store.captured.has("a"), false);
});
