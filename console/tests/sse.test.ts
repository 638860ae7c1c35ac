import assert from "node:assert/strict";
import { test } from "node:test";
import { readEvents, SseParser } from "../src/sse.ts";

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

function streamed(...parts: string[]): { response: Response; isCancelled: () => boolean } {
  let isCancelled = false;
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => {
      for (const part of parts) controller.enqueue(new TextEncoder().encode(part));
    },
    cancel: () => {
      isCancelled = true;
    },
  });
  // As browsers have it that cannot iterate over a stream.
  Object.defineProperty(body, Symbol.asyncIterator, { value: undefined });
  return { response: new Response(body), isCancelled: () => isCancelled };
}

test("a response is read until its reader wants no more", async () => {
  const { response, isCancelled } = streamed("data: o", "ne\n\n", "data: two\n\n");
  for await (const { data } of readEvents(response)) {
    if (data === "two") break;
    assert.equal(data, "one");
  }
  await new Promise(setImmediate);
  assert.ok(isCancelled());
});
