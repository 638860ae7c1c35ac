import { signal, useSignal } from "@preact/signals";
import { useId } from "preact/hooks";
import { apiUrl } from "../../api.ts";
import { Badge } from "../../components/badge.tsx";
import { errorText } from "../../errors.ts";
import { formatDuration } from "../../format.ts";
import { runEventAction } from "../event-action.ts";
import { formatBytes } from "../numbers.ts";
import type { CatalogueModelView, PullProgress, PullResult } from "../types/upstreams.ts";

/** A download; it goes on while another page of the console is shown. */
interface Pull {
  model: string;
  progress: PullProgress | null;
  notes: string[];
  /** How it ended; "" while it runs. */
  result: string;
  error: string;
  controller: AbortController;
}

const pulls = signal<Pull[]>([]);

function update(pull: Pull, change: Partial<Pull>): Pull {
  const changed = { ...pull, ...change };
  pulls.value = pulls.value.map((other) => (other.model === pull.model ? changed : other));
  return changed;
}

async function start(model: string): Promise<void> {
  const controller = new AbortController();
  let pull: Pull = { model, progress: null, notes: [], result: "", error: "", controller };
  pulls.value = [...pulls.value.filter((other) => other.model !== model), pull];
  const onEvent = (name: string, data: unknown) => {
    if (name === "progress") pull = update(pull, { progress: data as PullProgress });
    if (name === "note") pull = update(pull, { notes: [...pull.notes, (data as { text: string }).text] });
  };
  try {
    const result = await runEventAction<PullResult>(apiUrl("models", "pull"), { model }, onEvent, controller.signal);
    update(pull, { progress: null, result: `${result.model} is in ${result.path}.` });
  } catch (cause) {
    const error = controller.signal.aborted ? "Stopped. A new pull continues from here." : errorText(cause);
    update(pull, { progress: null, error });
  }
}

interface Props {
  catalogue: CatalogueModelView[];
  onPulled: () => void;
}

/** Pulls a model by its name, with its progress. */
export function Pulls({ catalogue, onPulled }: Props) {
  const name = useSignal("");
  const id = useId();
  const isRunning = (model: string) => pulls.value.some((pull) => pull.model === model && isActive(pull));
  const pull = (model: string) => {
    if (model && !isRunning(model)) void start(model).then(onPulled);
  };
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
        <PullView key={pull.model} pull={pull} />
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

function PullView({ pull }: { pull: Pull }) {
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
          <button type="button" onClick={() => pull.controller.abort()}>
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
