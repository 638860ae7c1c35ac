import { signal, useSignal } from "@preact/signals";
import { useEffect, useId } from "preact/hooks";
import { apiUrl, sendJson } from "../../api.ts";
import { Badge } from "../../components/badge.tsx";
import { errorText, reportError } from "../../errors.ts";
import { formatDuration } from "../../format.ts";
import { runEventAction } from "../event-action.ts";
import { formatBytes } from "../numbers.ts";
import type { CatalogueModelView, PullProgress, PullResult, PullStop, PullView } from "../types/upstreams.ts";

/** A download; the gateway continues it without the page. */
interface Pull {
  model: string;
  progress: PullProgress | null;
  notes: string[];
  /** How it ended; "" while it runs. */
  result: string;
  error: string;
}

const pulls = signal<Pull[]>([]);

function update(pull: Pull, change: Partial<Pull>): Pull {
  const changed = { ...pull, ...change };
  pulls.value = pulls.value.map((other) => (other.model === pull.model ? changed : other));
  return changed;
}

/** The connections on which downloads are followed; a browser has few. */
const followed = new Set<AbortController>();
const LEFT = "The gateway continues the download.";
const ENDED = "The download has ended while this page was not shown. If it succeeded, its model is listed above.";

/** Follows the downloads no more; the list of the running ones begins it again. */
function leave(): void {
  for (const controller of followed) controller.abort();
}

/** Starts a download, or follows the running one. */
async function start(model: string): Promise<void> {
  const controller = new AbortController();
  followed.add(controller);
  let pull: Pull = { model, progress: null, notes: [], result: "", error: "" };
  pulls.value = [...pulls.value.filter((other) => other.model !== model), pull];
  const onEvent = (name: string, data: unknown) => {
    if (name === "progress") pull = update(pull, { progress: data as PullProgress });
    if (name === "note") pull = update(pull, { notes: [...pull.notes, (data as { text: string }).text] });
  };
  try {
    const result = await runEventAction<PullResult>(apiUrl("models", "pull"), { model }, onEvent, controller.signal);
    update(pull, { progress: null, result: `${result.model} is in ${result.path}.` });
  } catch (cause) {
    update(pull, { progress: null, ...(controller.signal.aborted ? { result: LEFT } : { error: errorText(cause) }) });
  } finally {
    followed.delete(controller);
  }
}

async function stop(pull: Pull): Promise<void> {
  try {
    await sendJson<PullStop>("POST", apiUrl("models", "pull", "stop"), { model: pull.model });
  } catch (cause) {
    reportError(cause);
  }
}

interface Props {
  /** The downloads that the gateway runs. */
  running: PullView[];
  catalogue: CatalogueModelView[];
  onPulled: () => void;
}

/** Pulls a model by its name, with its progress. */
export function Pulls({ running, catalogue, onPulled }: Props) {
  const name = useSignal("");
  const id = useId();
  const isRunning = (model: string) => pulls.value.some((pull) => pull.model === model && isActive(pull));
  const pull = (model: string) => {
    if (model && !isRunning(model)) void start(model).then(onPulled);
  };
  // Those that another page has started, or that this one has left.
  useEffect(() => {
    if (document.hidden) return;
    for (const { model } of running) pull(model);
    for (const left of pulls.value) if (left.result === LEFT) update(left, { result: ENDED });
  }, [running]);
  useEffect(() => {
    const onChange = () => {
      if (document.hidden) leave();
    };
    document.addEventListener("visibilitychange", onChange);
    return () => {
      document.removeEventListener("visibilitychange", onChange);
      leave();
    };
  }, []);
  return (
    <>
      <form
        class="controls"
        onSubmit={(event) => {
          event.preventDefault();
          pull(name.value.trim());
        }}
      >
        <label for={id}>Name or address</label>
        <input
          id={id}
          value={name.value}
          placeholder="hf:OWNER/REPO:Q4_K_M"
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => (name.value = event.currentTarget.value)}
        />
        <button type="submit" disabled={!name.value.trim()}>
          Pull
        </button>
      </form>
      {pulls.value.map((pull) => (
        <PullProgressView key={pull.model} pull={pull} />
      ))}
      <ul class="catalogue">
        {catalogue.map((model) => (
          <li key={model.name} class="card">
            <h3>
              {model.name} {model.is_default && <Badge>default</Badge>}{" "}
              {model.is_downloaded ? (
                <Badge tone="good">downloaded</Badge>
              ) : (
                <button
                  type="button"
                  aria-label={`Pull ${model.name}`}
                  disabled={isRunning(model.name)}
                  onClick={() => pull(model.name)}
                >
                  Pull
                </button>
              )}
            </h3>
            <p>{model.description}</p>
            <p class="quiet">
              {[formatBytes(model.size_bytes), model.licence, model.note].filter(Boolean).join(" · ")}
            </p>
          </li>
        ))}
      </ul>
    </>
  );
}

function isActive(pull: Pull): boolean {
  return !pull.result && !pull.error;
}

function PullProgressView({ pull }: { pull: Pull }) {
  const { model, progress, notes, result, error } = pull;
  return (
    <div class="card">
      <h3>{model}</h3>
      {isActive(pull) && (
        <div class="controls">
          <progress
            aria-label={`Download of ${model}`}
            {...(progress?.total_bytes && { max: progress.total_bytes, value: progress.done_bytes })}
          />
          <button type="button" onClick={() => stop(pull)}>
            Stop
          </button>
          <span>{progress ? describe(progress) : "Starting …"}</span>
        </div>
      )}
      {notes.map((note) => (
        <p key={note} class="quiet">
          {note}
        </p>
      ))}
      <p role="status">{result || error}</p>
    </div>
  );
}

function describe(progress: PullProgress): string {
  const { step, done_bytes, total_bytes, bytes_per_s, seconds_left } = progress;
  const size = total_bytes ? `${formatBytes(done_bytes)} of ${formatBytes(total_bytes)}` : formatBytes(done_bytes);
  const speed = bytes_per_s ? `${formatBytes(bytes_per_s)}/s` : "";
  const left = seconds_left === null ? "" : `${formatDuration(1000 * seconds_left)} left`;
  return [step, size, speed, left].filter(Boolean).join(" · ");
}
