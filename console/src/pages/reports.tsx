import { apiUrl } from "../api.ts";
import { AsyncContent } from "../components/async-content.tsx";
import { EmptyState } from "../components/empty-state.tsx";
import { query, setQuery } from "../router.ts";
import { useData } from "../use-data.ts";
import { Keys } from "./reports/keys.tsx";
import { ReportCharts } from "./reports/report-charts.tsx";
import { ReportTotals } from "./reports/report-totals.tsx";
import { seriesName } from "./reports/series.ts";
import type { KeysView, ReportsView } from "./types/reports.ts";
import "./pages.css";

const LABELS = ["model", "upstream", "agent", "role", "key", "tool", "mode", "format", "api", "version", "error"];
const PERIODS = [
  { days: "1", title: "1 day" },
  { days: "7", title: "7 days" },
  { days: "30", title: "30 days" },
  { days: "90", title: "90 days" },
];

/** The recorded exchanges over time; keys with their budgets and use. */
export default function ReportsPage() {
  const by = query.value.get("by") || "model";
  const days = query.value.get("days") || "7";
  const params = new URLSearchParams({ by, days });
  const report = useData<ReportsView>(`${apiUrl("reports")}?${params}`);
  const keys = useData<KeysView>(apiUrl("keys"));
  return (
    <div class="page">
      <h1>Reports</h1>
      <AsyncContent data={report}>{(view) => <Report view={view} by={by} days={days} />}</AsyncContent>
      <section aria-labelledby="keys">
        <h2 id="keys">Keys</h2>
        <AsyncContent data={keys}>{(view) => <Keys view={view} />}</AsyncContent>
      </section>
    </div>
  );
}

function Report({ view, by, days }: { view: ReportsView; by: string; days: string }) {
  const of = query.value.get("of") ?? "";
  const group = view.series.find((series) => seriesName(series, by) === of) ?? view.total;
  return (
    <>
      <form class="controls" onSubmit={(event) => event.preventDefault()}>
        <label>
          Period{" "}
          <select value={days} onChange={(event) => setQuery({ days: event.currentTarget.value })}>
            {PERIODS.map(({ days, title }) => (
              <option key={days} value={days}>
                {title}
              </option>
            ))}
          </select>
        </label>
        <label>
          By{" "}
          <select value={by} onChange={(event) => setQuery({ by: event.currentTarget.value, of: "" })}>
            {LABELS.map((label) => (
              <option key={label}>{label}</option>
            ))}
          </select>
        </label>
        <label>
          Only{" "}
          <select value={of} onChange={(event) => setQuery({ of: event.currentTarget.value })}>
            <option value="">all</option>
            {view.series
              .map((series) => seriesName(series, by))
              .map((name) => (
                <option key={name}>{name}</option>
              ))}
          </select>
        </label>
      </form>
      {view.notes.map((note) => (
        <p key={note} class="quiet">
          {note}
        </p>
      ))}
      {view.total.totals.exchanges[0] || view.total.totals.calls[0] ? (
        <>
          {view.worst.map(({ text }) => (
            <p key={text} class="notice">
              {text}
            </p>
          ))}
          <p class="quiet">{view.rule}</p>
          <ReportTotals view={view} />
          <ReportCharts view={view} group={group} />
        </>
      ) : (
        <EmptyState title="No exchanges in this period" />
      )}
    </>
  );
}
