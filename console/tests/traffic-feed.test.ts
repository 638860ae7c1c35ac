import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { asked, FakeSource, fakeDocument, responses, settled } from "./browser-fakes.ts";
import { row } from "./support.ts";

const { TrafficFeed } = await import("../src/traffic/traffic-feed.ts");
const { gateway } = await import("../src/gateway-state.ts");
const NEWEST = "/console/api/traffic?limit=200";
const state = { capture: { mode: "off", filter: "" }, workers: 1 };
const running = (id: string, began_s = 1) => row({ id, began_s, state: "running" });
const ids = (feed: InstanceType<typeof TrafficFeed>) => feed.rows.value.map(({ id }) => id);

beforeEach(() => {
  responses.clear();
  asked.length = 0;
  responses.set("/console/api/state", state);
  gateway.value = undefined;
});

/** Opens the feed, whose stream begins with these rows. */
async function open(feed: InstanceType<typeof TrafficFeed>, first: unknown[], page: unknown[], has_more = false) {
  responses.set(NEWEST, { rows: page, has_more });
  feed.open();
  await begin(first);
}

/** The browser connects. */
async function begin(first: unknown[]) {
  FakeSource.opened.at(-1)?.onopen?.();
  FakeSource.opened.at(-1)?.send("rows", first);
  await settled();
}

/** The page was hidden, and is visible again. */
async function reopen(first: unknown[]) {
  fakeDocument.dispatchEvent(new Event("visibilitychange"));
  await settled();
  await begin(first);
}

test("older rows are those that ended before the known ones, whatever still runs", async () => {
  const feed = new TrafficFeed();
  await open(feed, [running("old", 10)], [row({ id: "a", began_s: 5000, total_ms: 500 })], true);
  await feed.fetchOlder();
  assert.equal(asked.at(-1), `/console/api/traffic?limit=200&before=5000.5`);
  feed.close();
});

test("rows that ran before an interruption get their end, or disappear if the gateway does not know them", async () => {
  const feed = new TrafficFeed();
  await open(
    feed,
    ["ended", "gone", "runs", "recorded"].map((id) => running(id)),
    [],
  );
  responses.set(NEWEST, { rows: [row({ id: "recorded" })], has_more: false });
  responses.set("/console/api/exchanges/ended", { row: row({ id: "ended", finish: "length" }) });
  await reopen([running("runs")]);
  assert.deepEqual(ids(feed).sort(), ["ended", "recorded", "runs"]);
  assert.equal(feed.rows.value.find(({ id }) => id === "ended")?.finish, "length");
  assert.ok(!asked.includes("/console/api/exchanges/recorded") && !asked.includes("/console/api/exchanges/runs"));
  feed.close();
});

test("with several processes, a row that one of them does not know is kept", async () => {
  responses.set("/console/api/state", { ...state, workers: 2 });
  const feed = new TrafficFeed();
  await open(feed, [running("elsewhere")], []);
  await reopen([]);
  assert.deepEqual(ids(feed), ["elsewhere"]);
  feed.close();
});

test("after a gap the list begins anew with the rows that run, and with their names", async () => {
  const feed = new TrafficFeed();
  await open(feed, [running("x")], [row({ id: "a", model: "m-a" }), row({ id: "b", model: "m-b" })]);
  responses.set(NEWEST, {
    rows: [row({ id: "c", model: "m-c" }), row({ id: "x", began_s: 9, model: "m-x" })],
    has_more: true,
  });
  await reopen([running("y", 20)]);
  assert.deepEqual(ids(feed), ["y", "x", "c"]);
  assert.deepEqual(feed.models.value, ["default", "m-c", "m-x"]);
  feed.close();
});

test("a request that failed is repeated", async () => {
  const feed = new TrafficFeed();
  responses.set(NEWEST, 503);
  feed.open();
  await begin([]);
  assert.match(feed.error.value, /status 503/);
  responses.set(NEWEST, { rows: [row({ id: "a" })], has_more: false });
  await feed.retry();
  assert.deepEqual([ids(feed), feed.error.value, feed.isLoaded.value], [["a"], "", true]);
  feed.close();
});

test("captures may exist as long as the list is not live", async () => {
  const feed = new TrafficFeed();
  await open(feed, [], [row({ id: "a" })]);
  assert.equal(feed.mayHaveCaptures, false);
  feed.close();
  assert.equal(feed.mayHaveCaptures, true);
});
