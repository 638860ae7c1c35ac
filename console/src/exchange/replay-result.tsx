import type { ReplayStage } from "../types.ts";
import { stageMeaning } from "./stage-meaning.ts";

interface Props {
  stages: ReplayStage[];
  /** In which pieces the model's output arrived. */
  pieces: string;
  onClose: () => void;
}

/** The stages of a replay; those that differ show how. */
export function ReplayResult({ stages, pieces, onClose }: Props) {
  const different = stages.filter((stage) => !stage.same);
  return (
    <section class="replay" aria-label="Replay">
      <header class="detail-head">
        <h2>{different.length === 0 ? "The replay is the same" : "The replay differs"}</h2>
        <p class="detail">The model's output arrived {pieces}. − captured, + now</p>
        <button type="button" onClick={onClose}>
          Close
        </button>
      </header>
      <ul class="stages">
        {stages.map(({ name, same, diff }) => (
          <li key={name}>
            <span class={same ? "badge badge-good" : "badge badge-bad"}>{same ? "✓ same" : "✗ differs"}</span> {name}{" "}
            <span class="detail">{stageMeaning(name)}</span>
            {diff && (
              <pre class="diff">
                {diff.split("\n").map((line, index) => (
                  <span key={index} data-sign={line[0]}>
                    {line}
                    {"\n"}
                  </span>
                ))}
              </pre>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
