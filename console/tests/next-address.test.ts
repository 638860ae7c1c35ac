import assert from "node:assert/strict";
import { test } from "node:test";
import { nextPath } from "../src/next-address.ts";

const ORIGIN = "http://127.0.0.1:8484";
const pathOf = (next: string) => nextPath(new URLSearchParams({ next }), ORIGIN);

test("a sign-in leads to the page that was asked for", () => {
  assert.equal(pathOf("/console/exchanges/req_1?with=req_2"), "/exchanges/req_1?with=req_2");
  assert.equal(pathOf("/console?search=a%20b"), "?search=a%20b");
  assert.equal(pathOf("/console"), "/");
  assert.equal(nextPath(new URLSearchParams(), ORIGIN), "/");
});

test("a sign-in leads nowhere else", () => {
  const others = ["https://evil.test/console", "//evil.test/console", "\\\\evil.test/console", "javascript:alert(1)"];
  const outside = ["/v1/models", "/consoles", "/console/../v1/models", "/console/%2e%2e/v1", "http:console", "//", ""];
  const own = ["/console/login?next=/console", "/console/api/state", "/console/logout", "/console/assets/x.js"];
  for (const next of [...others, ...outside, ...own]) assert.equal(pathOf(next), "/", next);
});
