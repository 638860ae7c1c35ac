import assert from "node:assert/strict";
import { test } from "node:test";
import { stageMeaning } from "../src/exchange/stage-meaning.ts";

test("stages with and without numbers have a meaning", () => {
  for (const name of ["values", "request 1", "sent 1", "sent 1, 2", "events 1", "events", "reply"]) {
    assert.notEqual(stageMeaning(name), "", name);
  }
  assert.notEqual(stageMeaning("events"), stageMeaning("events 2"));
  assert.equal(stageMeaning("other"), "");
});
