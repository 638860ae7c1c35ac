import type { TrafficRow } from "../types.ts";

export const ROW_LIMIT = 10_000;

/** Rows by the time at which they began, newest first, at most as many as the limit; the oldest are dropped. */
export class RowStore {
  readonly #limit: number;
  #rows: TrafficRow[] = [];
  readonly #byId = new Map<string, TrafficRow>();

  constructor(limit = ROW_LIMIT) {
    this.#limit = limit;
  }

  get rows(): readonly TrafficRow[] {
    return this.#rows;
  }

  /** Inserts rows, or replaces those with the same id. */
  merge(changed: readonly TrafficRow[]): void {
    if (changed.length === 0) return;
    const rows = this.#rows.slice();
    for (const row of changed) {
      const known = this.#byId.get(row.id);
      // A page of older rows, fetched while an exchange ended, may know less of it.
      if (known && known.state !== "running" && row.state === "running") continue;
      if (known) rows.splice(rows.indexOf(known, position(rows, known.began_s)), 1);
      rows.splice(position(rows, row.began_s), 0, row);
      this.#byId.set(row.id, row);
    }
    for (const row of rows.splice(this.#limit)) this.#byId.delete(row.id);
    this.#rows = rows;
  }
}

/** The index of the first row that did not begin later. */
function position(rows: readonly TrafficRow[], beganS: number): number {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((rows[middle] as TrafficRow).began_s > beganS) low = middle + 1;
    else high = middle;
  }
  return low;
}
