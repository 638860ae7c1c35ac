import { useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ErrorNotice } from "../components/error-notice.tsx";
import type { StreamState } from "../event-stream.ts";
import { formatExactCount } from "../format.ts";
import { query } from "../router.ts";
import type { CallOutcome, TrafficRow } from "../types.ts";
import { FilterBar } from "./filter-bar.tsx";
import { NoMatches } from "./no-matches.tsx";
import { NoRows } from "./no-rows.tsx";
import { countNewer } from "./row-count.ts";
import { filterRows, type RowFilter } from "./row-filter.ts";
import { RowList } from "./row-list.tsx";
import { feed } from "./traffic-feed.ts";
import "./traffic.css";

export default function TrafficPage() {
  useEffect(() => {
    feed.open();
    return () => feed.close();
  }, []);
  /** The rows at the time of the pause; undefined while the list is live. */
  const paused = useSignal<readonly TrafficRow[] | undefined>(undefined);
  const rows = useComputed(() => paused.value ?? feed.rows.value);
  const filter = useComputed(() => filterFromQuery(query.value));
  const shown = useComputed(() => filterRows(rows.value, filter.value));

  return (
    <div class="traffic-page">
      <h1 class="visually-hidden">Traffic</h1>
      <div class="traffic-tools">
        <FilterBar agents={feed.agents.value} models={feed.models.value} filter={filter.value} />
        <button
          type="button"
          data-testid="pause"
          aria-pressed={paused.value !== undefined}
          disabled={!feed.isLoaded.value}
          onClick={() => {
            paused.value = paused.value ? undefined : feed.rows.value;
          }}
        >
          {paused.value ? "Resume" : "Pause"}
        </button>
        <ListState shown={shown.value.length} total={rows.value.length} paused={paused.value} />
      </div>
      {feed.error.value && <ErrorNotice message={feed.error.value} onRetry={() => void feed.retry()} />}
      <List rows={shown.value} isFiltered={rows.value.length > 0} isPaused={paused.value !== undefined} />
    </div>
  );
}

interface ListProps {
  rows: readonly TrafficRow[];
  isFiltered: boolean;
  isPaused: boolean;
}

function List({ rows, isFiltered, isPaused }: ListProps) {
  if (rows.length > 0) return <RowList rows={rows} onEnd={() => isPaused || void feed.fetchOlder()} />;
  return isFiltered ? <NoMatches /> : <NoRows />;
}

function filterFromQuery(values: URLSearchParams): RowFilter {
  return {
    search: values.get("search") ?? "",
    agent: values.get("agent") ?? "",
    model: values.get("model") ?? "",
    outcome: (values.get("outcome") ?? "") as CallOutcome | "",
    isFailedOnly: values.get("failed") === "1",
  };
}

const STREAM_STATES: Record<StreamState, string> = {
  open: "live",
  connecting: "connecting …",
  waiting: "disconnected, trying again …",
  closed: "ended",
};

interface ListStateProps {
  shown: number;
  total: number;
  paused: readonly TrafficRow[] | undefined;
}

function ListState({ shown, total, paused }: ListStateProps) {
  const state = feed.streamState.value;
  const newer = paused ? countNewer(feed.rows.value, paused) : 0;
  return (
    <p class="list-state" data-stream={state}>
      {shown === total ? formatExactCount(total) : `${formatExactCount(shown)} of ${formatExactCount(total)}`} ·{" "}
      {/* The counts change too often to be announced. */}
      <span role="status">{paused ? "paused" : STREAM_STATES[state]}</span>
      {paused && `, ${newer} newer`}
    </p>
  );
}
