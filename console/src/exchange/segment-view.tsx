import { useSignal } from "@preact/signals";
import { formatCount } from "../format.ts";
import type { Segment } from "../types.ts";
import { isWarning } from "./lane-columns.ts";
import { SEGMENT_KINDS } from "./segment-kinds.ts";

interface Props {
  segment: Segment;
  /** Number of characters from which on the text is cut until the user asks for the rest. */
  limit: number;
  link: string;
  place: string;
  isChoosable: boolean;
  isChosen: boolean;
  isLinked: boolean;
}

export function SegmentView({ segment, limit, link, place, isChoosable, isChosen, isLinked }: Props) {
  const isWhole = useSignal(false);
  const { text, kind, notes } = segment;
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
        aria-label={shown.trim() ? undefined : "white space"}
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
