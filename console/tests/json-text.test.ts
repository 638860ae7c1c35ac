import assert from "node:assert/strict";
import { test } from "node:test";
import { readJsonObject } from "../src/exchange/actions/json-text.ts";

test("an object is read", () => {
  assert.deepEqual(readJsonObject('{"a": [1]}'), { value: { a: [1] }, error: "" });
});

test("other values are refused", () => {
  for (const text of ["[1]", "null", "1"]) assert.match(readJsonObject(text).error, /^Expected an object/);
});

test("an error names its line", () => {
  assert.match(readJsonObject('{\n  "a": 1,\n  b\n}').error, /line 3 column 3/);
});
