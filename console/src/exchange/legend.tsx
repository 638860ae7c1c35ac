import type { SegmentKind } from "../types.ts";
import type { LaneColumn } from "./lane-columns.ts";
import { SEGMENT_KINDS } from "./segment-kinds.ts";

/** The kinds of text that occur, as they look. */
export function Legend({ columns }: { columns: LaneColumn[] }) {
  const present = new Set(
    columns.flatMap(({ lane }) => lane.blocks.flatMap((block) => block.segments.map((segment) => segment.kind))),
  );
  const kinds = (Object.keys(SEGMENT_KINDS) as SegmentKind[]).filter((kind) => present.has(kind) && kind !== "plain");
  return (
    <ul class="legend" aria-label="Kinds of text">
      {kinds.map((kind) => (
        <li key={kind}>
          <span class={`segment kind-${kind}`} title={SEGMENT_KINDS[kind].meaning}>
            {SEGMENT_KINDS[kind].label}
          </span>
        </li>
      ))}
    </ul>
  );
}
