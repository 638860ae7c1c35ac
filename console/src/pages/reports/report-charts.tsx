import { formatCount, formatDuration } from "../../format.ts";
import { countTicks, durationTicks } from "../charts/axis.ts";
import { Chart, type ChartSeries } from "../charts/chart.tsx";
import { formatShare, formatUsd } from "../numbers.ts";
import type { ReportSeries, ReportsView } from "../types/reports.ts";
import { groupSeries, groupShares, seriesName, shares, timeLabels } from "./series.ts";

interface Props {
  view: ReportsView;
  /** The group of the charts that have no place for all groups. */
  group: ReportSeries;
}

/** The charts of a report. */
export function ReportCharts({ view, group }: Props) {
  const common = { ...timeLabels(view), labelTitle: "Time (UTC)" };
  const of = group === view.total ? "" : ` of ${seriesName(group, view.by)}`;
  const { points } = group;
  const calls = (
    <>
      <Chart
        title={`Tool calls by outcome${of}`}
        kind="bars"
        series={outcomes(group)}
        format={formatCount}
        scale={countTicks}
        {...common}
      />
      <Chart
        title={`Failed share of tool calls by ${view.by}`}
        kind="lines"
        series={groupShares(view, "failed", "calls")}
        format={formatShare}
        {...common}
      />
    </>
  );
  if (view.by === "tool") {
    return (
      <div class="charts">
        <Chart
          title="Calls by tool"
          kind="bars"
          series={groupSeries(view, "calls")}
          format={formatCount}
          scale={countTicks}
          {...common}
        />
        {calls}
      </div>
    );
  }
  return (
    <div class="charts">
      <Chart
        title={`Exchanges by ${view.by}`}
        kind="bars"
        series={groupSeries(view, "exchanges")}
        format={formatCount}
        scale={countTicks}
        {...common}
      />
      <Chart
        title={`Errors by ${view.by}`}
        kind="bars"
        series={groupSeries(view, "errors")}
        format={formatCount}
        scale={countTicks}
        {...common}
      />
      {calls}
      <Chart
        title={`Tokens${of}`}
        kind="bars"
        series={tokens(group)}
        format={formatCount}
        scale={countTicks}
        {...common}
      />
      <Chart
        title={`Share of the input read from the prompt cache, by ${view.by}`}
        kind="lines"
        series={groupShares(view, "cached_tokens", "input_tokens")}
        format={formatShare}
        max={1}
        {...common}
      />
      <Chart
        title={`Cost by ${view.by}`}
        kind="bars"
        series={groupSeries(view, "cost_usd")}
        format={formatUsd}
        {...common}
      />
      <Chart
        title={`Time to the first event${of}`}
        kind="lines"
        series={[
          { name: "median", color: 0, values: points.first_p50_ms },
          { name: "95th percentile", color: 1, values: points.first_p95_ms },
        ]}
        format={formatTick}
        scale={durationTicks}
        {...common}
      />
      <Chart
        title={`Total time${of}`}
        kind="lines"
        series={[
          { name: "median", color: 0, values: points.total_p50_ms },
          { name: "95th percentile", color: 1, values: points.total_p95_ms },
        ]}
        format={formatTick}
        scale={durationTicks}
        {...common}
      />
      <Chart
        title={`Requests to backends for each exchange${of}`}
        kind="lines"
        series={[{ name: "attempts", color: 3, values: shares(points.attempts, points.exchanges) }]}
        format={(value) => String(Number(value.toFixed(2)))}
        {...common}
      />
    </div>
  );
}

/** "2 min" rather than "2 min 0 s". */
function formatTick(ms: number): string {
  return formatDuration(ms).replace(/(?: 0|\.0) s$/, (end) => (end.startsWith(".") ? " s" : ""));
}

function outcomes({ points }: ReportSeries): ChartSeries[] {
  return [
    { name: "valid", color: 2, values: points.valid },
    { name: "repaired", color: 6, values: points.repaired },
    { name: "re-asked", color: 1, values: points.reasked },
    { name: "recovered", color: 5, values: points.recovered },
    { name: "unchecked", color: 8, values: points.unchecked },
    { name: "invalid", color: 4, values: points.invalid },
    { name: "incomplete", color: 7, values: points.incomplete },
    { name: "unknown tool", color: 3, values: points.unknown },
  ];
}

function tokens({ points }: ReportSeries): ChartSeries[] {
  const fresh = points.input_tokens.map((count, index) => count - (points.cached_tokens[index] ?? 0));
  const written = points.output_tokens.map((count, index) => count - (points.reasoning_tokens[index] ?? 0));
  return [
    { name: "input", color: 0, values: fresh },
    { name: "input, cached", color: 5, values: points.cached_tokens },
    { name: "output", color: 1, values: written },
    { name: "output, reasoning", color: 3, values: points.reasoning_tokens },
  ];
}
