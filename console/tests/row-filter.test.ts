import assert from "node:assert/strict";
import { test } from "node:test";
import { filterRows, isFailure, NO_FILTER } from "../src/traffic/row-filter.ts";
import type { RowCall } from "../src/types.ts";
import { row } from "./support.ts";

const call = (outcome: RowCall["outcome"], tool = "get_weather"): RowCall => ({ tool, outcome, repairs: [], count: 1 });
const rows = [
  row({ id: "a", agent: "codex", model: "qwen", calls: [call("valid")] }),
  row({ id: "b", agent: "claude_code", model: "qwen", calls: [call("valid"), call("repaired", "Read")] }),
  row({ id: "c", agent: "codex", state: "failed", status: 502, error: "upstream_unreachable: refused" }),
  row({ id: "d", calls: [call("invalid")] }),
];
const ids = (filter: Partial<typeof NO_FILTER>) => filterRows(rows, { ...NO_FILTER, ...filter }).map(({ id }) => id);

test("an empty filter returns the same array", () => {
  assert.equal(filterRows(rows, NO_FILTER), rows);
});

test("filters by agent, model and outcome", () => {
  assert.deepEqual(ids({ agent: "codex" }), ["a", "c"]);
  assert.deepEqual(ids({ agent: "codex", model: "qwen" }), ["a"]);
  assert.deepEqual(ids({ outcome: "repaired" }), ["b"]);
});

test("failed are requests and calls", () => {
  assert.deepEqual(ids({ isFailedOnly: true }), ["c", "d"]);
});

test("a search matches all words, of any field and case", () => {
  assert.deepEqual(ids({ search: "READ repaired" }), ["b"]);
  assert.deepEqual(ids({ search: "502 refused" }), ["c"]);
  assert.deepEqual(ids({ search: "502 valid" }), []);
});

test("a call that the client cannot run is a failure, as in the reports", () => {
  const failed = (["invalid", "incomplete", "unknown"] as const).map((outcome) =>
    isFailure(row({ calls: [call(outcome)] })),
  );
  assert.deepEqual(failed, [true, true, true]);
  assert.equal(isFailure(row({ calls: [call("repaired")] })), false);
});

test("re-asked exchanges are found also if no call is valid", () => {
  const reasked = [
    row({ id: "e", calls: [call("incomplete", "")], warnings: ["incomplete_call", "reasked"] }),
    row({ id: "f", calls: [call("reasked")] }),
    row({ id: "g", warnings: ["reask_failed_elsewhere"] }),
  ];
  const found = filterRows(reasked, { ...NO_FILTER, outcome: "reasked" });
  assert.deepEqual(
    found.map(({ id }) => id),
    ["e", "f"],
  );
});
