import type { ComponentChildren } from "preact";
import { Duration } from "../../components/duration.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { Tokens } from "../../components/tokens.tsx";
import { formatExact, formatShare, formatUsd } from "../numbers.ts";
import type { ReportSeries, ReportsView } from "../types/reports.ts";
import { type ColumnName, seriesName } from "./series.ts";

/** The sums of each group, as `dragoman report` prints them. */
export function ReportTotals({ view }: { view: ReportsView }) {
  return (
    <>
      {view.by !== "tool" && <Totals view={view} caption={`Exchanges by ${view.by}`} columns={TRAFFIC} />}
      <Totals view={view} caption={`Tool calls by ${view.by}`} columns={CALLS} />
    </>
  );
}

interface TotalsProps {
  view: ReportsView;
  caption: string;
  columns: Column<ReportSeries>[];
}

function Totals({ view, caption, columns }: TotalsProps) {
  const name = (series: ReportSeries) => (series === view.total ? "all" : seriesName(series, view.by));
  return (
    <Table
      caption={caption}
      columns={[{ title: view.by, cell: (series) => <span class="name">{name(series)}</span> }, ...columns]}
      rows={[...view.series, view.total]}
      rowKey={(series) => (series === view.total ? "" : ` ${seriesName(series, view.by)}`)}
    />
  );
}

type Cell = (sum: (name: ColumnName) => number | null) => ComponentChildren;

function column(title: string, cell: Cell) {
  const cellOf = (series: ReportSeries) => cell((name) => series.totals[name][0] ?? null);
  return { title, cell: cellOf, isNumber: true };
}

function count(value: number | null): string {
  return value === null ? "–" : formatExact(value);
}

function share(value: number | null, of: number | null): string {
  return of ? formatShare((value ?? 0) / of) : "–";
}

const TRAFFIC = [
  column("Exchanges", (sum) => count(sum("exchanges"))),
  column("Errors", (sum) => count(sum("errors"))),
  column("Input", (sum) => <Tokens count={sum("input_tokens")} />),
  column("Cached", (sum) => share(sum("cached_tokens"), sum("input_tokens"))),
  column("Output", (sum) => <Tokens count={sum("output_tokens")} />),
  column("Cost", (sum) => formatUsd(sum("cost_usd") ?? 0)),
  column("First event (median)", (sum) => <Duration ms={sum("first_p50_ms")} />),
  column("First event (95 %)", (sum) => <Duration ms={sum("first_p95_ms")} />),
  column("Total (median)", (sum) => <Duration ms={sum("total_p50_ms")} />),
  column("Total (95 %)", (sum) => <Duration ms={sum("total_p95_ms")} />),
];

const CALLS = [
  column("Calls", (sum) => count(sum("calls"))),
  column("Valid", (sum) => count(sum("valid"))),
  column("Repaired", (sum) => count(sum("repaired"))),
  column("Re-asked", (sum) => count(sum("reasked"))),
  column("Recovered", (sum) => count(sum("recovered"))),
  column("Failed", (sum) => count(sum("failed"))),
  column("Failed share", (sum) => share(sum("failed"), sum("calls"))),
];
