import assert from "node:assert/strict";
import { test } from "node:test";
import { formatCount, formatDuration, formatTime } from "../src/format.ts";

test("durations have two or three digits", () => {
  const cases = { 0: "0 ms", 999: "999 ms", 1000: "1.0 s", 9949: "9.9 s", 9950: "10 s", 61000: "1 min 1 s" };
  for (const [ms, expected] of Object.entries(cases)) assert.equal(formatDuration(Number(ms)), expected);
});

test("counts are shortened from a thousand on", () => {
  const cases = { 0: "0", 999: "999", 1000: "1k", 12345: "12.3k", 99960: "100k", 999960: "1M", 1250000: "1.3M" };
  for (const [count, expected] of Object.entries(cases)) assert.equal(formatCount(Number(count)), expected);
});

test("times of another day have their date", () => {
  const today = new Date(2026, 10, 27, 9, 5, 7).getTime() / 1000;
  assert.equal(formatTime(today, today * 1000), "09:05:07");
  assert.equal(formatTime(today - 86_400, today * 1000), "26 Nov 09:05");
  assert.equal(formatTime(today - 30 * 86_400, today * 1000), "28 Oct 09:05");
});
