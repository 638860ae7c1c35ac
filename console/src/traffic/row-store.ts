import type { TrafficRow } from "../types.ts";

export const ROW_LIMIT = 10_000;

/** Rows by the time at which they began, newest first, at most as many as the limit; the oldest are dropped. */
export class RowStore {
  readonly #limit: number;
  #rows: TrafficRow[] = [];
  readonly #byId = new Map<string, TrafficRow>();
  /** All names that occurred, for the choices of the filter. */
  readonly agents = new Set<string>();
  readonly models = new Set<string>();
  /** The ids of the rows that were captured once. */
  readonly captured = new Set<string>();

  constructor(limit = ROW_LIMIT) {
    this.#limit = limit;
  }

  get rows(): readonly TrafficRow[] {
    return this.#rows;
  }

  /** Inserts rows, or replaces those with the same id. The cost of a batch is linear in the number of rows. */
  merge(changed: readonly TrafficRow[]): void {
    const fresh = new Map<string, TrafficRow>();
    for (const row of changed) {
      const known = fresh.get(row.id) ?? this.#byId.get(row.id);
      // A page of rows that was fetched while an exchange ended may know less of it.
      if (!known || known.state === "running" || row.state !== "running") fresh.set(row.id, row);
    }
    if (fresh.size === 0) return;
    const kept = this.#rows.filter((row) => !fresh.has(row.id));
    const rows = mergeOrdered([...fresh.values()].sort(byBeginning), kept);
    for (const row of fresh.values()) this.#keep(row);
    for (const row of rows.splice(this.#limit)) {
      this.#byId.delete(row.id);
      this.captured.delete(row.id);
    }
    this.#rows = rows;
  }

  #keep(row: TrafficRow): void {
    this.#byId.set(row.id, row);
    if (row.is_captured) this.captured.add(row.id);
    if (row.agent) this.agents.add(row.agent);
    if (row.model) this.models.add(row.model);
  }
}

function byBeginning(a: TrafficRow, b: TrafficRow): number {
  return b.began_s - a.began_s;
}

function mergeOrdered(fresh: readonly TrafficRow[], kept: readonly TrafficRow[]): TrafficRow[] {
  const rows: TrafficRow[] = [];
  let next = 0;
  for (const row of fresh) {
    for (let old = kept[next]; old && old.began_s > row.began_s; old = kept[++next]) rows.push(old);
    rows.push(row);
  }
  return rows.concat(kept.slice(next));
}
