import { type ComponentChildren, Fragment } from "preact";
import { Prose } from "../components/prose.tsx";
import { SettingLink } from "../components/setting-link.tsx";
import type { Note } from "../types.ts";
import { isWarning } from "./lane-columns.ts";

/** What happened, what it means, and what changes it. */
export function NoteView({ note }: { note: Note }) {
  if (!isWarning(note)) {
    return (
      <p class="note is-rule">
        <code>{note.code}</code> {note.message}
        {note.rule && <span class="detail"> · {note.rule}</span>}
      </p>
    );
  }
  return (
    <article class="note">
      <h3>
        <span aria-hidden="true">⚠ </span>
        <code>{note.code}</code>
      </h3>
      <dl>
        {note.message && <Entry term="What">{note.message}</Entry>}
        {note.rule && <Entry term="Rule">{note.rule}</Entry>}
        {note.meaning && (
          <Entry term="Meaning">
            <Prose text={note.meaning} />
          </Entry>
        )}
        {(note.remedy || note.settings.length > 0) && (
          <Entry term="Remedy">
            <Prose text={note.remedy} />
            {note.settings.map((name) => (
              <Fragment key={name}>
                {" "}
                <SettingLink name={name} />
              </Fragment>
            ))}
          </Entry>
        )}
      </dl>
    </article>
  );
}

function Entry({ term, children }: { term: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{term}</dt>
      <dd>{children}</dd>
    </div>
  );
}
