import type { Signal } from "@preact/signals";
import type { Diagnosis, Note } from "../types.ts";
import { DiagnosisView } from "./diagnosis-view.tsx";
import { focusPlace } from "./lane-alignment.ts";
import {
  type Chosen,
  type Counterpart,
  counterparts,
  distinctNotes,
  type LaneColumn,
  linkedNotes,
  segmentAt,
} from "./lane-columns.ts";
import { NoteView } from "./note-view.tsx";
import { SEGMENT_KINDS } from "./segment-kinds.ts";

interface Props {
  columns: LaneColumn[];
  chosen: Signal<Chosen | undefined>;
  /** The notes about the whole exchange, shown while no span is chosen. */
  notes: Note[];
  diagnosis: Diagnosis | null;
}

/** Explains the chosen span, or the exchange. */
export function DetailPanel({ columns, chosen, notes, diagnosis }: Props) {
  const current = chosen.value;
  const found = current && segmentAt(columns, current);
  if (!current || !found) return <Overview notes={notes} diagnosis={diagnosis} />;
  const { block, segment } = found;
  const { label, meaning } = SEGMENT_KINDS[segment.kind] ?? SEGMENT_KINDS.plain;
  const shown = distinctNotes([...segment.notes, ...(current.link ? linkedNotes(columns, current.link) : [])]);
  /** Returns to the span, as this panel is replaced. */
  function close() {
    chosen.value = undefined;
    if (current) focusPlace(document.body, current);
  }

  return (
    <aside
      class="detail-panel"
      data-testid="rule"
      aria-label="Chosen span"
      aria-live="polite"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a frame that scrolls must be reachable by keyboard
      tabIndex={0}
      onKeyDown={(event) => {
        if (event.key === "Escape") close();
      }}
    >
      <header class="detail-head">
        <h2>
          {label} <span class="detail">in {block.title}</span> {current.link && <code>{current.link}</code>}
        </h2>
        <p class="detail">{meaning}</p>
        <button type="button" onClick={close}>
          Close <kbd>Esc</kbd>
        </button>
      </header>
      <div class="detail-body">
        {current.link && <Counterparts found={counterparts(columns, current.link)} chosen={chosen} />}
        <NoteList notes={shown} empty="No rule changed this part: it was passed on as it is." />
      </div>
    </aside>
  );
}

function Overview({ notes, diagnosis }: { notes: Note[]; diagnosis: Diagnosis | null }) {
  const list = <NoteList notes={notes} empty="" />;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a frame that scrolls must be reachable by keyboard
    <aside class="detail-panel is-overview" data-testid="rule" aria-label="Explanation" tabIndex={0}>
      <header class="detail-head">
        <h2>{notes.length > 0 || diagnosis ? "What happened" : "Nothing was changed or dropped"}</h2>
        <p class="detail">Choose a span to see where it came from and which rule applied. Arrow keys move.</p>
      </header>
      <div class="detail-body">
        {diagnosis && <DiagnosisView diagnosis={diagnosis} />}
        {diagnosis && notes.length > 0 ? (
          <details>
            <summary>All warnings ({notes.length})</summary>
            {list}
          </details>
        ) : (
          list
        )}
      </div>
    </aside>
  );
}

function NoteList({ notes, empty }: { notes: Note[]; empty: string }) {
  if (notes.length === 0) return <p class="detail">{empty}</p>;
  return (
    <div class="note-list">
      {notes.map((note) => (
        <NoteView key={`${note.code}${note.message}`} note={note} />
      ))}
    </div>
  );
}

interface CounterpartsProps {
  found: Counterpart[];
  chosen: Signal<Chosen | undefined>;
}

const EXCERPT_CHARS = 90;

function Counterparts({ found, chosen }: CounterpartsProps) {
  return (
    <ul class="counterparts" aria-label="The same part in each lane">
      {found.map(({ columnTitle, blockTitle, text, ...place }) => (
        <li key={`${place.column}${place.block}`}>
          <button
            type="button"
            onClick={() => {
              if (chosen.value) chosen.value = { ...place, link: chosen.value.link };
            }}
          >
            <span class="detail">
              {columnTitle} · {blockTitle}
            </span>
            <code>{text.trim().slice(0, EXCERPT_CHARS) || "∅"}</code>
          </button>
        </li>
      ))}
    </ul>
  );
}
