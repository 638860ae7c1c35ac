import { useSignal } from "@preact/signals";
import { formatCount } from "../format.ts";
import type { Segment } from "../types.ts";
import { isWarning } from "./lane-columns.ts";
import { SEGMENT_KINDS } from "./segment-kinds.ts";

/** Longer texts are cut until the user asks for the rest: what was sent is long, and little of it explains a reply. */
const SENT_CHARS = 1500;
const WRITTEN_CHARS = 20_000;
const SENT_KINDS = new Set(["plain", "json", "role"]);

interface Props {
  segment: Segment;
  link: string;
  place: string;
  isChoosable: boolean;
  isChosen: boolean;
  isLinked: boolean;
}

export function SegmentView({ segment, link, place, isChoosable, isChosen, isLinked }: Props) {
  const isWhole = useSignal(false);
  const { text, kind, notes } = segment;
  const limit = SENT_KINDS.has(kind) ? SENT_CHARS : WRITTEN_CHARS;
  const isCut = !isWhole.value && text.length > limit;
  const shown = isCut ? text.slice(0, limit) : text;
  const look = `segment kind-${kind}${isLinked ? " is-linked" : ""}${isChosen ? " is-chosen" : ""}`;
  const more = isCut && (
    <button
      type="button"
      class="more"
      onClick={() => {
        isWhole.value = true;
      }}
    >
      {formatCount(text.length - limit)} more characters
    </button>
  );
  if (!isChoosable) {
    return (
      <>
        <span class={look}>{shown}</span>
        {more}
      </>
    );
  }
  return (
    <>
      <span
        class={look}
        role="button"
        tabIndex={-1}
        aria-pressed={isChosen}
        aria-label={text && !text.trim() ? "white space" : undefined}
        aria-description={SEGMENT_KINDS[kind]?.label}
        data-link={link}
        data-place={place}
      >
        {notes.some(isWarning) && <sup class="note-mark">⚠</sup>}
        {shown || "∅"}
      </span>
      {more}
    </>
  );
}
