import type { TrafficRow } from "../types.ts";

/** The number of rows that came since a pause; all of them if the list was empty, or its first row was dropped. */
export function countNewer(rows: readonly TrafficRow[], paused: readonly TrafficRow[]): number {
  const first = paused[0];
  const index = first ? rows.findIndex((row) => row.id === first.id) : -1;
  return index < 0 ? rows.length : index;
}
