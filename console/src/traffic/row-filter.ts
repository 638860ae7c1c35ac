import type { CallOutcome, TrafficRow } from "../types.ts";

export interface RowFilter {
  search: string;
  agent: string;
  model: string;
  outcome: CallOutcome | "";
  isFailedOnly: boolean;
}

export const NO_FILTER: RowFilter = { search: "", agent: "", model: "", outcome: "", isFailedOnly: false };

/** Returns the rows that match; the same array if the filter is empty. */
export function filterRows(rows: readonly TrafficRow[], filter: RowFilter): readonly TrafficRow[] {
  const words = filter.search.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0 && !filter.agent && !filter.model && !filter.outcome && !filter.isFailedOnly) return rows;
  return rows.filter((row) => matches(row, filter) && words.every((word) => searchText(row).includes(word)));
}

function matches(row: TrafficRow, { agent, model, outcome, isFailedOnly }: RowFilter): boolean {
  if (agent && row.agent !== agent) return false;
  if (model && row.model !== model) return false;
  if (isFailedOnly && !isFailure(row)) return false;
  return !outcome || hasOutcome(row, outcome);
}

function hasOutcome(row: TrafficRow, outcome: CallOutcome): boolean {
  return row.calls.some((call) => call.outcome === outcome) || (outcome === "reasked" && isReasked(row));
}

/** The outcomes of calls that the client cannot run; the reports count them as failed. */
const FAILED: ReadonlySet<string> = new Set(["invalid", "incomplete", "unknown"]);

/** Whether the request failed, or a tool call of its response. */
export function isFailure(row: TrafficRow): boolean {
  return row.state === "failed" || row.calls.some(({ outcome }) => FAILED.has(outcome));
}

/** Whether the model was shown an error of its response, also if its second one is no better. */
export function isReasked(row: TrafficRow): boolean {
  return row.warnings.some((warning) => warning === "reasked" || warning.startsWith("reasked:"));
}

// A row never changes; a newer state of the exchange is another row.
const searchTexts = new WeakMap<TrafficRow, string>();

function searchText(row: TrafficRow): string {
  let text = searchTexts.get(row);
  if (text === undefined) {
    const { id, agent, role, key, model, upstream, upstream_model, tool_mode, format, dialect, finish, error } = row;
    const calls = row.calls.flatMap((call) => [call.tool, call.outcome, ...call.repairs]);
    const texts = [id, agent, role, key, model, upstream, upstream_model, tool_mode, format, dialect, finish, error];
    text = [...texts, row.session, String(row.status), ...calls, ...row.warnings].join("\n").toLowerCase();
    searchTexts.set(row, text);
  }
  return text;
}
