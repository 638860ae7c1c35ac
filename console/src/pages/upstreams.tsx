import { apiUrl } from "../api.ts";
import { AsyncContent } from "../components/async-content.tsx";
import { Badge, type Tone } from "../components/badge.tsx";
import { EmptyState } from "../components/empty-state.tsx";
import { Table } from "../components/table.tsx";
import { formatDuration, formatTime } from "../format.ts";
import { href } from "../router.ts";
import { useData } from "../use-data.ts";
import { Facts } from "./facts.tsx";
import type { FailureView, ModeView, UpstreamList, UpstreamView } from "./types/upstreams.ts";
import { Probes } from "./upstreams/probes.tsx";
import { usePolling } from "./use-polling.ts";
import "./pages.css";

const POLL_MS = 5000;
const TONES: Record<UpstreamView["state"], Tone> = {
  ready: "good",
  limited: "warning",
  trying: "warning",
  failing: "bad",
  unavailable: "bad",
};

/** The state of all upstreams, and what is known of them. */
export default function UpstreamsPage() {
  const data = useData<UpstreamList>(apiUrl("upstreams"));
  usePolling(data.refresh, POLL_MS);
  return (
    <div class="page">
      <h1>Upstreams</h1>
      <AsyncContent data={data}>
        {(list) => (
          <>
            {list.workers > 1 && (
              <p class="quiet">
                Of process {list.process}: each of the {list.workers} gateway processes has its own state.
              </p>
            )}
            {list.upstreams.length === 0 && (
              <EmptyState title="There are no upstreams">
                <p>Run `dragoman init`, or add one to the settings file.</p>
              </EmptyState>
            )}
            {list.upstreams.map((upstream) => (
              <Upstream key={upstream.name} upstream={upstream} hasRecords={list.has_records} onProbed={data.reload} />
            ))}
          </>
        )}
      </AsyncContent>
    </div>
  );
}

interface Props {
  upstream: UpstreamView;
  hasRecords: boolean;
  onProbed: () => void;
}

function Upstream({ upstream, hasRecords, onProbed }: Props) {
  const id = `upstream-${upstream.name}`;
  return (
    <section class="card" aria-labelledby={id}>
      <h2 id={id}>
        {upstream.name} <Badge tone={TONES[upstream.state]}>{upstream.state}</Badge>
      </h2>
      <p>{upstream.explanation}</p>
      <Facts facts={facts(upstream)} />
      {upstream.quota.map(({ model, seconds }) => (
        <p key={model} class="notice">
          {model} has reached its quota; it gets requests again in {formatDuration(1000 * seconds)}.
        </p>
      ))}
      <Models upstream={upstream} />
      {upstream.modes.length > 0 && (
        <details>
          <summary>Tool modes ({upstream.modes.length})</summary>
          <Table
            caption={`Tool modes of ${upstream.name}`}
            columns={MODE_COLUMNS}
            rows={upstream.modes}
            rowKey={({ model }) => model}
          />
        </details>
      )}
      <Failures upstream={upstream} hasRecords={hasRecords} />
      <Probes upstream={upstream} onProbed={onProbed} />
    </section>
  );
}

function facts(upstream: UpstreamView) {
  const { active, waiting, max_concurrency, max_queue } = upstream;
  const known = [
    { name: "Server", value: upstream.title },
    { name: "URL", value: upstream.url },
    { name: "API", value: upstream.api },
    { name: "Circuit breaker", value: upstream.breaker },
    { name: "Running", value: formatOf(active, max_concurrency) },
    { name: "Waiting", value: formatOf(waiting, max_queue) },
    ...upstream.facts,
  ];
  return known.filter(({ value }) => value !== "");
}

/** "3 of 8"; 0 as the limit is none. */
function formatOf(count: number | null, limit: number | null): string {
  if (count === null) return "";
  return limit ? `${count} of at most ${limit}` : String(count);
}

function Models({ upstream }: { upstream: UpstreamView }) {
  const { models, model_count } = upstream;
  if (models.length === 0) return null;
  return (
    <details>
      <summary>Models ({model_count})</summary>
      <ul class="names">
        {models.map((model) => (
          <li key={model}>
            <code>{model}</code>
          </li>
        ))}
      </ul>
      {model_count > models.length && <p class="quiet">{model_count - models.length} more are not listed.</p>}
    </details>
  );
}

function Failures({ upstream: { name, failures }, hasRecords }: { upstream: UpstreamView; hasRecords: boolean }) {
  if (!hasRecords) return <p class="quiet">Failures are not known, because no exchanges are recorded.</p>;
  if (failures.length === 0) return <p class="quiet">No recorded failures.</p>;
  return (
    <details>
      <summary>Latest failures ({failures.length})</summary>
      <Table
        caption={`Latest failures of ${name}`}
        columns={FAILURE_COLUMNS}
        rows={failures}
        rowKey={({ id, ended_s, reason }) => `${id} ${ended_s} ${reason}`}
      />
    </details>
  );
}

const MODE_COLUMNS = [
  { title: "Model", cell: ({ model }: ModeView) => model },
  { title: "Tool mode", cell: ({ tool_mode, is_auto }: ModeView) => `${tool_mode}${is_auto ? " (auto)" : ""}` },
  { title: "Format", cell: ({ call_format }: ModeView) => call_format || "by the model's name" },
  { title: "Endpoint", cell: ({ endpoint }: ModeView) => endpoint },
  { title: "Constrained by", cell: ({ constrain }: ModeView) => constrain.join(", ") || "–" },
  { title: "Why", cell: ({ why }: ModeView) => why },
];

const FAILURE_COLUMNS = [
  {
    title: "Time",
    cell: ({ id, ended_s }: FailureView) => <a href={href(`/exchanges/${id}`)}>{formatTime(ended_s)}</a>,
  },
  { title: "Model", cell: ({ model }: FailureView) => model },
  { title: "Reason", cell: ({ reason }: FailureView) => reason },
  { title: "Client", cell: ({ answered }: FailureView) => (answered ? "got a response" : "got an error") },
];
