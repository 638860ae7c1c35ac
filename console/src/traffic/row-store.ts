import type { TrafficRow } from "../types.ts";
import { NameCounts } from "./name-counts.ts";

export const ROW_LIMIT = 10_000;

/** Rows by the time at which they began, newest first, at most as many as the limit; the oldest are dropped. */
export class RowStore {
  readonly #limit: number;
  #rows: TrafficRow[] = [];
  readonly #byId = new Map<string, TrafficRow>();
  /** The names of the rows, for the choices of the filter. */
  readonly agents = new NameCounts();
  readonly models = new NameCounts();
  /** The ids of the rows that were captured once. */
  readonly captured = new Set<string>();

  constructor(limit = ROW_LIMIT) {
    this.#limit = limit;
  }

  get rows(): readonly TrafficRow[] {
    return this.#rows;
  }

  get running(): TrafficRow[] {
    return this.#rows.filter((row) => row.state === "running");
  }

  isRunning(id: string): boolean {
    return this.#byId.get(id)?.state === "running";
  }

  remove(id: string): void {
    this.#forget(id);
    this.#rows = this.#rows.filter((row) => row.id !== id);
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
    for (const row of rows.splice(this.#limit)) this.#forget(row.id);
    this.#rows = rows;
  }

  #keep(row: TrafficRow): void {
    const known = this.#byId.get(row.id);
    this.#byId.set(row.id, row);
    if (row.is_captured) this.captured.add(row.id);
    this.agents.replace(known?.agent, row.agent);
    this.models.replace(known?.model, row.model);
  }

  #forget(id: string): void {
    const known = this.#byId.get(id);
    this.#byId.delete(id);
    this.captured.delete(id);
    this.agents.replace(known?.agent, undefined);
    this.models.replace(known?.model, undefined);
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
