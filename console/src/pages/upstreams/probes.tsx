import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { apiUrl } from "../../api.ts";
import { Badge, type Tone } from "../../components/badge.tsx";
import { ErrorNotice } from "../../components/error-notice.tsx";
import { Table } from "../../components/table.tsx";
import { errorText } from "../../errors.ts";
import { formatDuration, formatTime } from "../../format.ts";
import { runEventAction } from "../event-action.ts";
import { Facts } from "../facts.tsx";
import { TextFrame } from "../text-frame.tsx";
import type { FindingView, ProbeProgress, ProbeView, UpstreamView } from "../types/upstreams.ts";

const TONES: Record<FindingView["verdict"], Tone> = { yes: "good", partly: "warning", no: "bad", unknown: "neutral" };

interface Props {
  upstream: UpstreamView;
  onProbed: () => void;
}

/** The findings of earlier probes, and a new one. */
export function Probes({ upstream, onProbed }: Props) {
  const newest = useSignal<ProbeView | null>(null);
  const probes = upstream.probes.filter(({ model }) => model !== newest.value?.model);
  return (
    <>
      {upstream.can_probe && (
        <ProbeForm
          upstream={upstream}
          onResult={(probe) => {
            newest.value = probe;
            onProbed();
          }}
        />
      )}
      {newest.value && <Probe probe={newest.value} isOpen />}
      {probes.map((probe) => (
        <Probe key={`${probe.model} ${probe.api}`} probe={probe} />
      ))}
    </>
  );
}

function ProbeForm({ upstream, onResult }: { upstream: UpstreamView; onResult: (probe: ProbeView) => void }) {
  const model = useSignal("");
  // The models may be known later than the upstream.
  const chosen = model.value || (upstream.models[0] ?? "");
  const progress = useSignal<ProbeProgress | null>(null);
  const error = useSignal("");
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);

  async function probe(event: Event): Promise<void> {
    event.preventDefault();
    const controller = new AbortController();
    running.current = controller;
    error.value = "";
    progress.value = { what: "the server", number: 0, count: 0 };
    const url = apiUrl("upstreams", upstream.name, "probe");
    try {
      const onEvent = (name: string, data: unknown) => {
        if (name === "progress") progress.value = data as ProbeProgress;
      };
      onResult(await runEventAction<ProbeView>(url, { model: chosen }, onEvent, controller.signal));
    } catch (cause) {
      if (!controller.signal.aborted) error.value = errorText(cause);
    }
    progress.value = null;
  }

  return (
    <form class="controls" onSubmit={probe}>
      <label>
        Model{" "}
        <select
          value={chosen}
          disabled={progress.value !== null}
          onChange={(event) => (model.value = event.currentTarget.value)}
        >
          {upstream.models.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      {progress.value ? (
        <>
          <button type="button" onClick={() => running.current?.abort()}>
            Stop
          </button>
          <Progress progress={progress.value} />
        </>
      ) : (
        <button type="submit">Probe now</button>
      )}
      <span class="quiet">sends about thirty short requests</span>
      {error.value && <ErrorNotice message={error.value} />}
    </form>
  );
}

function Progress({ progress }: { progress: ProbeProgress }) {
  const { what, number, count } = progress;
  const text = `Checking ${what}${count ? ` (${number} of ${count})` : ""}`;
  return (
    <span role="status">
      {count ? <progress max={count} value={number - 1} aria-label="Probe" /> : <progress aria-label="Probe" />} {text}
    </span>
  );
}

function Probe({ probe, isOpen = false }: { probe: ProbeView; isOpen?: boolean }) {
  return (
    <details open={isOpen}>
      <summary>
        Probe of {probe.model}: tool mode{" "}
        {[probe.tool_mode || "not known", probedTime(probe)].filter(Boolean).join(", ")}
      </summary>
      <p>{probe.why}</p>
      <Facts facts={probeFacts(probe)} />
      {probe.findings.length > 0 && (
        <Table
          caption={`Findings for ${probe.model}`}
          columns={COLUMNS}
          rows={probe.findings}
          rowKey={({ what }) => what}
        />
      )}
      {probe.quirks.length > 0 && (
        <>
          <h3>Known of {probe.title || probe.provider}</h3>
          <ul>
            {probe.quirks.map(({ description, source }) => (
              <li key={description}>
                {description} <span class="quiet">({source})</span>
              </li>
            ))}
          </ul>
        </>
      )}
      {probe.settings && (
        <>
          <h3>Settings</h3>
          <TextFrame label={`Settings for ${probe.model}`} text={probe.settings} />
        </>
      )}
    </details>
  );
}

/** When the probe was; "" for one of which only the results are kept. */
function probedTime({ probed_s }: ProbeView): string {
  return probed_s ? formatTime(probed_s) : "";
}

function probeFacts(probe: ProbeView) {
  const facts = [
    { name: "Server", value: [probe.title || probe.provider, probe.version].filter(Boolean).join(" ") },
    { name: "API", value: probe.api },
    { name: "Format", value: probe.call_format },
    { name: "Constrained by", value: probe.constrain.join(", ") },
    { name: "Took", value: probe.seconds ? formatDuration(1000 * probe.seconds) : "" },
  ];
  return facts.filter(({ value }) => value);
}

const COLUMNS = [
  { title: "Check", cell: ({ what }: FindingView) => what },
  { title: "Result", cell: ({ verdict }: FindingView) => <Badge tone={TONES[verdict]}>{verdict}</Badge> },
  { title: "Evidence", cell: (finding: FindingView) => <Evidence finding={finding} /> },
];

function Evidence({ finding }: { finding: FindingView }) {
  return (
    <>
      {finding.text}
      {finding.facts.length > 0 && (
        <details>
          <summary>Data</summary>
          <Facts facts={finding.facts.map(({ name, value }) => ({ name, value: <code>{value}</code> }))} />
        </details>
      )}
    </>
  );
}
