import type { Block, ExchangeView, Lane, LaneName, Note, Segment } from "../types.ts";

/** One of the columns that are shown side by side. */
export interface LaneColumn {
  key: string;
  title: string;
  summary: string;
  lane: Lane;
  /** Whether more is appended. */
  isLive: boolean;
  /** A remark about the whole column. */
  remark?: string;
}

export const LANE_NAMES: Record<LaneName, string> = {
  client: "Client sent",
  sent: "Model was asked",
  model: "Model wrote",
  reply: "Client got",
};

/** The four lanes of one exchange. */
export function exchangeColumns(view: ExchangeView): LaneColumn[] {
  return view.lanes.map((lane) => ({
    key: lane.name,
    title: LANE_NAMES[lane.name],
    summary: lane.summary,
    lane,
    isLive: view.is_running,
    ...(lane.name === "client" && view.cache_note ? { remark: `Prompt cache: ${view.cache_note}` } : {}),
  }));
}

/** The same lane of several exchanges, each with a title. */
export function comparedColumns(name: LaneName, views: { title: string; view: ExchangeView }[]): LaneColumn[] {
  return views.flatMap(({ title, view }, index) => {
    const lane = view.lanes.find((candidate) => candidate.name === name);
    return lane ? [{ key: `${index}-${name}`, title, summary: lane.summary, lane, isLive: view.is_running }] : [];
  });
}

/** A place in the columns. */
export interface Place {
  column: string;
  block: number;
  segment: number;
}

export interface Chosen extends Place {
  link: string;
}

/** The link of a segment: its own, or that of its block. */
export function linkOf(block: Block, segment: Segment): string {
  return segment.link || block.link;
}

/** Whether there is something to tell about a segment. */
export function isChoosable(block: Block, segment: Segment): boolean {
  return segment.notes.length > 0 || (linkOf(block, segment) !== "" && segment.text.trim() !== "");
}

export interface Counterpart extends Place {
  columnTitle: string;
  blockTitle: string;
  text: string;
}

/** The blocks of each column with a segment of this link, with the text of these segments. */
export function counterparts(columns: LaneColumn[], link: string): Counterpart[] {
  if (!link) return [];
  return columns.flatMap((column) =>
    column.lane.blocks.flatMap((block, index) => {
      const segment = block.segments.findIndex((candidate) => linkOf(block, candidate) === link);
      if (segment < 0) return [];
      const linked = block.segments.filter((candidate) => linkOf(block, candidate) === link);
      const text = linked.map((candidate) => candidate.text).join("");
      return [{ column: column.key, block: index, segment, columnTitle: column.title, blockTitle: block.title, text }];
    }),
  );
}

/** The notes of all segments with this link, each once. */
export function linkedNotes(columns: LaneColumn[], link: string): Note[] {
  const linked = columns.flatMap((column) =>
    column.lane.blocks.flatMap((block) =>
      block.segments.filter((segment) => linkOf(block, segment) === link).flatMap((segment) => segment.notes),
    ),
  );
  return distinctNotes(linked);
}

/** Whether a note is about a problem, and not only about a rule that applied. */
export function isWarning(note: Note): boolean {
  return note.code === "error" || note.meaning !== "" || note.remedy !== "";
}

/** The notes, each once, warnings first. */
export function distinctNotes(notes: Note[]): Note[] {
  const distinct = [...new Map(notes.map((note) => [`${note.code}\n${note.message}`, note])).values()];
  return [...distinct.filter(isWarning), ...distinct.filter((note) => !isWarning(note))];
}

export function segmentAt(columns: LaneColumn[], place: Place): { block: Block; segment: Segment } | undefined {
  const block = columns.find((column) => column.key === place.column)?.lane.blocks[place.block];
  const segment = block?.segments[place.segment];
  return block && segment && { block, segment };
}

/** The place of the next or previous segment that can be chosen in a column; the first or last one without a place. */
export function neighbour(column: LaneColumn, from: Place | undefined, step: number): Place | undefined {
  const places = column.lane.blocks.flatMap((block, index) =>
    block.segments.flatMap((segment, position) =>
      isChoosable(block, segment) ? [{ column: column.key, block: index, segment: position }] : [],
    ),
  );
  if (!from) return step > 0 ? places[0] : places.at(-1);
  const at = places.findIndex((place) => place.block === from.block && place.segment === from.segment);
  return places[at + step];
}
