import { type Signal, useSignal } from "@preact/signals";
import { apiUrl, sendJson } from "../../api.ts";
import { Dialog } from "../../components/dialog.tsx";
import { errorText } from "../../errors.ts";
import type { Chunking, Replay } from "../../types.ts";

export const CHUNKINGS: Record<Chunking, string> = {
  recorded: "as recorded",
  chars: "each character alone",
  whole: "everything at once",
  random: "random pieces",
};

/** A replay, and in which pieces the model's output arrived. */
export interface NamedReplay extends Replay {
  pieces: string;
}

interface Props {
  id: string;
  replay: Signal<NamedReplay | undefined>;
  onClose: () => void;
}

/** Handles the exchange again, with the captured output in place of the model. */
export function ReplayDialog({ id, replay, onClose }: Props) {
  const chunking = useSignal<Chunking>("recorded");
  const seed = useSignal(1);
  const error = useSignal("");
  const isRunning = useSignal(false);

  async function run(event: Event) {
    event.preventDefault();
    isRunning.value = true;
    try {
      const body = { chunking: chunking.value, seed: seed.value };
      const result = await sendJson<Replay>("POST", apiUrl("exchanges", id, "replay"), body);
      const seedText = body.chunking === "random" ? `, seed ${body.seed}` : "";
      replay.value = { ...result, pieces: CHUNKINGS[body.chunking] + seedText };
      onClose();
    } catch (cause) {
      error.value = errorText(cause);
    } finally {
      isRunning.value = false;
    }
  }

  return (
    <Dialog title="Replay" onClose={onClose}>
      <form class="form" onSubmit={run}>
        <p>
          The exchange is handled again by this gateway, with the captured output in place of the model. A difference
          shows a change of Dragoman, of its settings, or that the pieces in which the output arrives matter.
        </p>
        <fieldset>
          <legend>The model's output arrives</legend>
          {(Object.keys(CHUNKINGS) as Chunking[]).map((name) => (
            <label key={name}>
              <input
                type="radio"
                name="chunking"
                checked={chunking.value === name}
                onChange={() => {
                  chunking.value = name;
                }}
              />
              {CHUNKINGS[name]}
            </label>
          ))}
        </fieldset>
        {chunking.value === "random" && (
          <label>
            Seed{" "}
            <input
              type="number"
              min="0"
              value={seed.value}
              onInput={(event) => {
                seed.value = event.currentTarget.valueAsNumber || 0;
              }}
            />
          </label>
        )}
        {error.value && (
          <p class="field-error" role="alert">
            {error.value}
          </p>
        )}
        <button type="submit" class="primary" disabled={isRunning.value}>
          Replay
        </button>
      </form>
    </Dialog>
  );
}
