import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { asked, FakeSource, fakeDocument, fakeLocation, responses, settled } from "./browser-fakes.ts";

const { getJson, isSignedIn } = await import("../src/api.ts");
const { EventStream } = await import("../src/event-stream.ts");
const { forgotten, gateway } = await import("../src/gateway-state.ts");
const STATE = "/console/api/state";
const state = (mode: string) => ({ capture: { mode, filter: "" }, workers: 1 });

beforeEach(() => {
  responses.clear();
  asked.length = 0;
  gateway.value = undefined;
});

test("a stream that is opened again brings the state of the gateway", async () => {
  const stream = new EventStream("/x", { events: {} });
  const before = forgotten.value;
  for (const [mode, deleted] of [
    ["memory", 0],
    ["off", 1],
    ["memory", 1],
    ["disk", 2],
  ] as const) {
    responses.set(STATE, state(mode));
    fakeDocument.dispatchEvent(new Event("visibilitychange"));
    await settled();
    assert.equal(gateway.peek()?.capture.mode, mode);
    assert.equal(forgotten.value - before, deleted);
  }
  stream.close();
});

test("a stream that is closed by its check is not opened again", async () => {
  responses.set(STATE, state("off"));
  const stream = new EventStream("/x", { events: {}, onRetry: async () => stream.close() });
  const { length } = FakeSource.opened;
  fakeDocument.dispatchEvent(new Event("visibilitychange"));
  await settled();
  assert.deepEqual([FakeSource.opened.length, stream.state.value], [length, "closed"]);
});

test("an error of a session opens the sign-in page, but on that page itself", async () => {
  responses.set("/x", 401);
  await assert.rejects(getJson("/x"));
  assert.deepEqual([asked.at(-1), isSignedIn.value], ["page /console/login?next=%2Fconsole%3Fa%3D1", false]);
  fakeLocation.pathname = "/console/login";
  await assert.rejects(getJson("/x"));
  assert.equal(asked.at(-1), "/x");
});

test("an error of an upstream server is not one of the session", async () => {
  isSignedIn.value = true;
  responses.set("/x", new Response("{}", { status: 401, headers: { "x-request-id": "req_1" } }));
  await assert.rejects(getJson("/x"));
  assert.equal(isSignedIn.value, true);
});
