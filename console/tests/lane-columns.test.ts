import assert from "node:assert/strict";
import { test } from "node:test";
import {
  comparedColumns,
  counterparts,
  exchangeColumns,
  isChoosable,
  linkedNotes,
  neighbour,
} from "../src/exchange/lane-columns.ts";
import { block, note, segment, view } from "./support.ts";

const call = (text: string, notes = [note("json_repaired")]) =>
  segment({ text, kind: "arguments", link: "call:0", notes });
const exchange = view({
  model: [
    block({ title: "output 1", segments: [segment({ text: "Hi " }), call("{a"), segment({ text: "b" }), call("}")] }),
  ],
  reply: [block({ title: "text" }), block({ title: "tool call", link: "call:0", segments: [segment({ text: "{}" })] })],
});
const columns = exchangeColumns(exchange);

test("counterparts are the blocks with a link, their own or of their segments", () => {
  const found = counterparts(columns, "call:0").map(({ column, block, segment, text }) => [
    column,
    block,
    segment,
    text,
  ]);
  assert.deepEqual(found, [
    ["model", 0, 1, "{a}"],
    ["reply", 1, 0, "{}"],
  ]);
});

test("text without a link has no counterparts", () => {
  assert.deepEqual(counterparts(columns, ""), []);
});

test("equal notes of several segments are shown once", () => {
  assert.deepEqual(
    linkedNotes(columns, "call:0").map(({ code }) => code),
    ["json_repaired"],
  );
});

test("segments with a link or a note can be chosen", () => {
  assert.equal(isChoosable(block({}), segment({})), false);
  assert.equal(isChoosable(block({ link: "call:0" }), segment({ text: "{" })), true);
  assert.equal(isChoosable(block({ link: "call:0" }), segment({ text: "\n" })), false);
  assert.equal(isChoosable(block({}), segment({ notes: [note("stray_closing_tag")] })), true);
});

test("arrows move between the segments that can be chosen", () => {
  const model = columns.find(({ key }) => key === "model");
  assert.ok(model);
  const first = neighbour(model, undefined, 1);
  assert.deepEqual(first, { column: "model", block: 0, segment: 1 });
  const second = neighbour(model, first, 1);
  assert.deepEqual(second, { column: "model", block: 0, segment: 3 });
  assert.equal(neighbour(model, second, 1), undefined);
  assert.deepEqual(neighbour(model, second, -1), first);
  assert.deepEqual(neighbour(model, undefined, -1), second);
});

test("the note about the prompt cache is in the client's lane", () => {
  const remarks = exchangeColumns({ ...exchange, cache_note: "the tools changed" }).map(({ remark }) => remark);
  assert.deepEqual(remarks, ["Prompt cache: the tools changed", undefined, undefined, undefined]);
});

test("compared exchanges have the same lane", () => {
  const compared = comparedColumns("reply", [
    { title: "a", view: exchange },
    { title: "b", view: exchange },
  ]);
  assert.deepEqual(
    compared.map(({ key, title, lane }) => [key, title, lane.name]),
    [
      ["0-reply", "a", "reply"],
      ["1-reply", "b", "reply"],
    ],
  );
});
