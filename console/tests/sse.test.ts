import assert from "node:assert/strict";
import { test } from "node:test";
import { SseParser } from "../src/sse.ts";

const text = ': ping\n\nevent: view\ndata: {"a": 1}\n\ndata: one\r\ndata: two\r\n\r\ndata: unfinished';
const expected = [
  { event: "view", data: '{"a": 1}' },
  { event: "message", data: "one\ntwo" },
];

test("events are the same for every place of a cut", () => {
  for (let cut = 0; cut <= text.length; cut++) {
    const parser = new SseParser();
    assert.deepEqual([...parser.feed(text.slice(0, cut)), ...parser.feed(text.slice(cut))], expected);
  }
});
