import type { ChartSeries } from "../charts/chart.tsx";
import type { ReportColumns, ReportSeries, ReportsView } from "../types/reports.ts";

const COLORS = [0, 1, 2, 3, 5, 6, 7, 9];
const REST_COLOR = 8;
const REST = "(all others)";

/** The group of the exchanges without a name, by what they are grouped. */
const UNNAMED: Record<string, string> = {
  model: "(no model requested)",
  upstream: "(no upstream answered)",
  agent: "(agent not identified)",
  role: "(no role known)",
  key: "(without API key)",
  tool: "(tool not offered or not known)",
  mode: "(no tool mode)",
  format: "(no format: server reads the calls)",
  error: "(without error)",
};

export type ColumnName = keyof ReportColumns;

/** The name of a group for people. */
export function seriesName({ name, is_rest }: ReportSeries, by = ""): string {
  if (is_rest) return REST;
  return name || UNNAMED[by] || "(not known)";
}

/** Returns a column of each group; small groups are added up. */
export function groupSeries(view: ReportsView, column: ColumnName): ChartSeries[] {
  return chartGroups(view).map(({ name, color, members }) => ({ name, color, values: sum(members, column) }));
}

/** Returns the quotient of two columns of each group; null where the second is 0. */
export function groupShares(view: ReportsView, column: ColumnName, ofColumn: ColumnName): ChartSeries[] {
  return chartGroups(view).map(({ name, color, members }) => ({
    name,
    color,
    values: shares(sum(members, column), sum(members, ofColumn)),
  }));
}

interface ChartGroup {
  name: string;
  color: number;
  members: ReportSeries[];
}

function chartGroups({ series, by }: ReportsView): ChartGroup[] {
  const own = series.filter(({ is_rest }, index) => !is_rest && index < COLORS.length);
  const groups = own.map((member, index) => ({
    name: seriesName(member, by),
    color: COLORS[index] ?? REST_COLOR,
    members: [member],
  }));
  const rest = series.slice(own.length);
  return rest.length > 0 ? [...groups, { name: REST, color: REST_COLOR, members: rest }] : groups;
}

function sum(members: ReportSeries[], column: ColumnName): number[] {
  const columns = members.map(({ points }) => points[column]);
  return (columns[0] ?? []).map((_, index) => columns.reduce((total, values) => total + (values[index] ?? 0), 0));
}

/** Returns the quotients of two columns. */
export function shares(values: (number | null)[], of: (number | null)[]): (number | null)[] {
  return values.map((value, index) => {
    const divisor = of[index];
    return divisor ? (value ?? 0) / divisor : null;
  });
}

const DAY_S = 86_400;
const MAX_HOURS = 48;
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
const hour = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: "UTC" });

/** Returns short and long labels of the times of a report, in UTC. */
export function timeLabels({ times, step_s }: ReportsView): { labels: string[]; longLabels: string[] } {
  const dates = times.map((time) => new Date(1000 * time));
  if (step_s >= DAY_S) {
    return { labels: dates.map(formatDay), longLabels: dates.map((date) => date.toISOString().slice(0, 10)) };
  }
  const formatHour = (date: Date) => (times.length > MAX_HOURS ? "" : hour.format(date));
  return {
    labels: dates.map((date) => (date.getUTCHours() === 0 ? formatDay(date) : formatHour(date))),
    longLabels: dates.map((date) => date.toISOString().slice(0, 16).replace("T", " ")),
  };
}

function formatDay(date: Date): string {
  return day.format(date);
}
