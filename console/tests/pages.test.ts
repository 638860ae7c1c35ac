import assert from "node:assert/strict";
import { test } from "node:test";
import { countTicks, durationTicks, labelledIndexes, ticks } from "../src/pages/charts/axis.ts";
import { tokensByGroup } from "../src/pages/context/part-kinds.ts";
import { formatBytes, formatShare, formatUsd } from "../src/pages/numbers.ts";
import { groupSeries, groupShares, shares } from "../src/pages/reports/series.ts";
import { filterSettings } from "../src/pages/settings/filter-settings.ts";
import type { PartKind } from "../src/pages/types/context-use.ts";
import type { ReportColumns, ReportSeries, ReportsView } from "../src/pages/types/reports.ts";
import type { SettingView } from "../src/pages/types/upstreams.ts";

test("ticks are round and cover the maximum", () => {
  assert.deepEqual(ticks(37), [0, 10, 20, 30, 40]);
  assert.deepEqual(ticks(1), [0, 0.5, 1]);
  assert.deepEqual(ticks(0), [0, 1]);
  for (const max of [1e-6, 0.3, 7, 12_345, 9e9]) assert.ok((ticks(max).at(-1) ?? 0) >= max * 0.999);
});

test("ticks of counts are whole", () => {
  assert.deepEqual(countTicks(1), [0, 1]);
  assert.deepEqual(countTicks(2), [0, 1, 2]);
  assert.deepEqual(countTicks(37), [0, 10, 20, 30, 40]);
});

test("ticks of long durations are whole minutes", () => {
  assert.deepEqual(durationTicks(3700), [0, 1000, 2000, 3000, 4000]);
  assert.deepEqual(durationTicks(200_000), [0, 60_000, 120_000, 180_000, 240_000]);
  assert.ok((durationTicks(125_000).at(-1) ?? 0) >= 125_000);
});

test("labels have room, and empty ones are skipped", () => {
  assert.deepEqual(labelledIndexes(["a", "b", "c", "d"], 100, 50), [0, 2]);
  assert.deepEqual(labelledIndexes(["", "b", "", "d"], 400, 50), [1, 3]);
  assert.deepEqual(labelledIndexes([], 100, 50), []);
});

test("numbers are short", () => {
  assert.deepEqual([0, 999, 1000, 1_460_000, 145_200_000].map(formatBytes), [
    "0 B",
    "999 B",
    "1 kB",
    "1.5 MB",
    "145 MB",
  ]);
  assert.deepEqual([0, 0.004, 0.0996, 1].map(formatShare), ["0 %", "0.4 %", "10 %", "100 %"]);
  assert.deepEqual([0, 0.00421, 0.5, 12.345].map(formatUsd), ["$0.00", "$0.0042", "$0.50", "$12.35"]);
});

test("every kind of part belongs to one group", () => {
  const kinds: PartKind[] = ["system", "tool", "schema", "user", "assistant", "reasoning", "call", "result"];
  kinds.push("image", "document", "audio", "frame", "other");
  const groups = tokensByGroup(kinds.map((kind) => ({ kind, tokens: 1, count: 1 })));
  assert.equal(
    groups.reduce((sum, { value }) => sum + value, 0),
    kinds.length,
  );
  assert.ok(groups.every(({ value }) => value > 0));
});

test("settings are found by all words of the text", () => {
  const setting = (key: string, is_default: boolean): SettingView => ({
    key,
    section: "server",
    value: "1",
    is_secret: false,
    origin: "default",
    is_default,
    choices: [],
    description: "Port of the HTTP server",
  });
  const settings = [setting("server.port", true), setting("server.host", false)];
  const found = (text: string, isChangedOnly = false) =>
    filterSettings(settings, text, isChangedOnly).map(({ key }) => key);
  assert.deepEqual(found(""), ["server.port", "server.host"]);
  assert.deepEqual(found(" HTTP  server.po"), ["server.port"]);
  assert.deepEqual(found("nothing"), []);
  assert.deepEqual(found("", true), ["server.host"]);
});

function series(name: string, exchanges: number[], is_rest = false): ReportSeries {
  const points = { exchanges, calls: exchanges, failed: exchanges.map(() => 1) } as unknown as ReportColumns;
  return { name, is_rest, totals: points, points };
}

test("small groups are added up in charts", () => {
  const groups = Array.from({ length: 12 }, (_, index) => series(`m${index}`, [1, index]));
  const view = { series: [...groups, series("", [5, 5], true)] } as ReportsView;
  const lines = groupSeries(view, "exchanges");
  assert.equal(lines.length, 9);
  assert.deepEqual(lines.at(-1)?.values, [4 + 5, 8 + 9 + 10 + 11 + 5]);
  assert.equal(new Set(lines.map(({ color }) => color)).size, lines.length);
  assert.deepEqual(groupShares(view, "failed", "calls").at(-1)?.values, [5 / 9, 5 / 43]);
});

test("a share of nothing is not known", () => {
  assert.deepEqual(shares([1, 0, null], [2, 0, 4]), [0.5, null, 0]);
});
