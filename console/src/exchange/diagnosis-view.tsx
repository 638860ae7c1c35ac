import type { Diagnosis, Remedy } from "../types.ts";

/** The cause in one sentence, and what to change. */
export function DiagnosisView({ diagnosis }: { diagnosis: Diagnosis }) {
  return (
    <section class="diagnosis" aria-label="Cause and remedy">
      <p class="diagnosis-cause">{diagnosis.cause}</p>
      {diagnosis.remedies.length > 0 && (
        <ul>
          {diagnosis.remedies.map((remedy) => (
            <RemedyView key={remedy.text} remedy={remedy} />
          ))}
        </ul>
      )}
    </section>
  );
}

function RemedyView({ remedy }: { remedy: Remedy }) {
  return (
    <li>
      {remedy.text}
      {remedy.toml && (
        <>
          {" "}
          <span class="detail">
            In <code>{remedy.path}</code>
            {remedy.is_new_file ? ", a new file that is read at the next start:" : ":"}
          </span>
          <pre>{remedy.toml}</pre>
        </>
      )}
    </li>
  );
}
