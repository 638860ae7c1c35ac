import { useSignal } from "@preact/signals";
import { apiUrl, sendJson } from "../api.ts";
import { AsyncContent } from "../components/async-content.tsx";
import { Badge, type Tone } from "../components/badge.tsx";
import { ErrorNotice } from "../components/error-notice.tsx";
import { Table } from "../components/table.tsx";
import { errorText } from "../errors.ts";
import { formatDuration } from "../format.ts";
import { useData } from "../use-data.ts";
import { Facts } from "./facts.tsx";
import { Pulls } from "./models/pulls.tsx";
import { formatBytes, formatExact } from "./numbers.ts";
import type {
  LoadResult,
  LocalModelView,
  MemoryView,
  ModelDetail,
  ModelList,
  ServedModelView,
} from "./types/upstreams.ts";
import { usePolling } from "./use-polling.ts";
import "./pages.css";

const POLL_MS = 3000;
const TONES: Record<LocalModelView["state"], Tone> = {
  "": "neutral",
  waiting: "warning",
  loading: "warning",
  ready: "good",
  unloading: "warning",
};

/** The models of this machine, which can be loaded, and those that clients can request. */
export default function ModelsPage() {
  const data = useData<ModelList>(apiUrl("models"));
  usePolling(data.refresh, POLL_MS);
  return (
    <div class="page">
      <h1>Models</h1>
      <AsyncContent data={data}>
        {(list) => (
          <>
            {list.note && <p class="notice">{list.note}</p>}
            <section aria-labelledby="local">
              <h2 id="local">On this machine</h2>
              <Memory memory={list.memory} />
              {list.local.length === 0 && <p class="quiet">None. Pull one below.</p>}
              {list.local.map((model) => (
                <LocalModel key={model.name} model={model} canLoad={list.can_load} onChanged={data.reload} />
              ))}
            </section>
            <section aria-labelledby="pull">
              <h2 id="pull">Pull a model</h2>
              <Pulls running={list.pulls} catalogue={list.catalogue} onPulled={data.reload} />
            </section>
            <section aria-labelledby="served">
              <h2 id="served">What clients can request</h2>
              <Table caption="Models of the API" columns={SERVED_COLUMNS} rows={list.served} rowKey={servedKey} />
              {list.served_count > list.served.length && (
                <p class="quiet">{formatExact(list.served_count - list.served.length)} more are not listed.</p>
              )}
            </section>
          </>
        )}
      </AsyncContent>
    </div>
  );
}

function Memory({ memory }: { memory: MemoryView }) {
  const limit = memory.limit_bytes ?? memory.total_bytes;
  const facts = [
    { name: "Loaded models", value: formatBytes(memory.used_bytes) },
    ...(limit ? [{ name: memory.limit_bytes ? "Limit" : "Memory", value: formatBytes(limit) }] : []),
    ...(memory.free_bytes === null ? [] : [{ name: "Free", value: formatBytes(memory.free_bytes) }]),
  ];
  return <Facts facts={facts} />;
}

interface LocalProps {
  model: LocalModelView;
  canLoad: boolean;
  onChanged: () => void;
}

function LocalModel({ model, canLoad, onChanged }: LocalProps) {
  const id = `model-${model.name}`;
  return (
    <article class="card" aria-labelledby={id}>
      <h3 id={id}>
        {model.name} <Badge tone={TONES[model.state]}>{model.state || "not loaded"}</Badge>{" "}
        {model.is_default && <Badge>default</Badge>} {model.is_pinned && <Badge>always loaded</Badge>}{" "}
        {model.kind !== "text" && <Badge>{model.kind}</Badge>} {model.vision && <Badge>images</Badge>}{" "}
        {model.audio && <Badge>audio</Badge>}
      </h3>
      <Facts facts={localFacts(model)} />
      {canLoad && <LoadButton model={model} onChanged={onChanged} />}
      <Details name={model.name} />
    </article>
  );
}

function localFacts(model: LocalModelView) {
  const facts = [
    { name: "File", value: formatBytes(model.size_bytes) },
    { name: "Memory", value: model.memory_bytes ? `about ${formatBytes(model.memory_bytes)}` : "" },
    { name: "Context window", value: model.context_window ? formatExact(model.context_window) : "" },
    { name: "Format", value: model.call_format },
    { name: "From", value: model.origin },
    { name: "Running", value: model.state === "ready" ? String(model.active) : "" },
    { name: "Waiting", value: model.waiting ? String(model.waiting) : "" },
    { name: "Restarts", value: model.restarts ? String(model.restarts) : "" },
    { name: "Unloaded in", value: model.expires_s === null ? "" : formatDuration(1000 * model.expires_s) },
    { name: "Aliases", value: model.aliases.join(", ") },
    ...model.facts,
  ];
  return facts.filter(({ value }) => value !== "");
}

function LoadButton({ model, onChanged }: { model: LocalModelView; onChanged: () => void }) {
  const message = useSignal("");
  const error = useSignal("");
  const isBusy = useSignal(false);
  const action = model.state === "" ? "load" : "unload";

  async function run(): Promise<void> {
    isBusy.value = true;
    error.value = "";
    message.value = action === "load" ? "Loading …" : "Unloading …";
    try {
      const result = await sendJson<LoadResult>("POST", apiUrl("models", action), { model: model.name });
      message.value = result.message;
    } catch (cause) {
      message.value = "";
      error.value = errorText(cause);
    }
    isBusy.value = false;
    onChanged();
  }

  return (
    <div class="controls">
      <button type="button" onClick={run} disabled={isBusy.value} aria-label={`${action} ${model.name}`}>
        {action === "load" ? "Load" : "Unload"}
      </button>
      <span role="status">{message.value}</span>
      {error.value && <ErrorNotice message={error.value} />}
    </div>
  );
}

/** What `dragoman models show` prints, fetched when it is opened. */
function Details({ name }: { name: string }) {
  const isOpen = useSignal(false);
  return (
    <details onToggle={(event) => (isOpen.value = event.currentTarget.open)}>
      <summary>Details</summary>
      {isOpen.value && <DetailsOf name={name} />}
    </details>
  );
}

function DetailsOf({ name }: { name: string }) {
  const data = useData<ModelDetail>(`${apiUrl("models", "facts")}?name=${encodeURIComponent(name)}`);
  return <AsyncContent data={data}>{({ facts }) => <Facts facts={facts} />}</AsyncContent>;
}

const SERVED_COLUMNS = [
  { title: "Model", cell: ({ id }: ServedModelView) => <code>{id}</code> },
  { title: "Name", cell: ({ display_name }: ServedModelView) => display_name },
  { title: "Upstream", cell: ({ upstream }: ServedModelView) => upstream },
  {
    title: "Context window",
    cell: ({ context_window }: ServedModelView) => (context_window ? formatExact(context_window) : "–"),
    isNumber: true,
  },
  { title: "Aliases", cell: ({ aliases }: ServedModelView) => aliases.join(", ") },
];

function servedKey({ id, upstream }: ServedModelView): string {
  return `${upstream} ${id}`;
}
