import assert from "node:assert/strict";
import { test } from "node:test";
import { indentJson, readJsonObject } from "../src/exchange/actions/json-text.ts";

test("an object is read", () => {
  assert.deepEqual(readJsonObject('{"a": [1]}'), { value: { a: [1] }, error: "" });
});

test("other values are refused", () => {
  for (const text of ["[1]", "null", "1"]) assert.match(readJsonObject(text).error, /^Expected an object/);
});

test("an error names its line", () => {
  assert.match(readJsonObject('{\n  "a": 1,\n  b\n}').error, /line 3 column 3/);
});

test("text is indented as by the language, with its numbers as they are written", () => {
  const values = [{ a: [1, { b: 'say "{[,:]}"', c: "\\" }], d: {}, e: [], f: null }, [], "a b", -1.5e-7, [[true]]];
  for (const value of values) {
    const expected = JSON.stringify(value, null, 2);
    assert.equal(indentJson(JSON.stringify(value)), expected);
    assert.equal(indentJson(expected), expected);
  }
  assert.equal(indentJson('{"id":12345678901234567890,"x":1.0}'), '{\n  "id": 12345678901234567890,\n  "x": 1.0\n}');
});

test("text that is not JSON stays", () => {
  assert.equal(indentJson('{"city": "Par'), '{"city": "Par');
});
