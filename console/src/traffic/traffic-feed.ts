import { effect, type Signal, signal } from "@preact/signals";
import { apiUrl, getJson } from "../api.ts";
import { errorText } from "../errors.ts";
import { EventStream, type StreamState } from "../event-stream.ts";
import { forgotten } from "../gateway-state.ts";
import type { TrafficPage, TrafficRow } from "../types.ts";
import { ROW_LIMIT, RowStore } from "./row-store.ts";

const PAGE_ROWS = 200;

/** The exchanges of the gateway: finished ones from its records, and those that run and end while the page is open. */
export class TrafficFeed {
  readonly rows = signal<readonly TrafficRow[]>([]);
  /** Names for the choices of the filter, sorted. */
  readonly agents = signal<readonly string[]>([]);
  readonly models = signal<readonly string[]>([]);
  readonly hasMore = signal(false);
  readonly isLoaded = signal(false);
  readonly error = signal("");
  readonly streamState = signal<StreamState>("connecting");
  #store = new RowStore();
  #stream: EventStream | undefined;
  #isFetching = false;

  constructor() {
    effect(() => {
      if (forgotten.value === 0) return;
      const captured = this.#store.rows.filter((row) => row.is_captured);
      this.#merge(captured.map((row) => ({ ...row, is_captured: false })));
    });
  }

  /** Whether captures exist, as far as it is known: before the page has seen the list, any may. */
  get mayHaveCaptures(): boolean {
    return !this.isLoaded.value || this.rows.value.some((row) => row.is_captured);
  }

  /** Whether an exchange of this id was captured once. */
  wasCaptured(id: string): boolean {
    return this.#store.captured.has(id);
  }

  open(): void {
    this.#stream = new EventStream(apiUrl("traffic", "stream"), {
      events: { rows: (rows) => this.#merge(rows as TrafficRow[]) },
      onOpen: () => this.#fetchNewest(),
    });
    this.#stream.state.subscribe((state) => {
      this.streamState.value = state;
    });
  }

  close(): void {
    this.#stream?.close();
    this.#stream = undefined;
  }

  /** Fetches exchanges that are older than all known ones. */
  async fetchOlder(): Promise<void> {
    const rows = this.rows.value;
    if (this.#isFetching || !this.hasMore.value || rows.length >= ROW_LIMIT) return;
    await this.#fetch(Math.min(...rows.map(endedS)));
  }

  async #fetchNewest(): Promise<void> {
    const known = new Set(this.rows.value.map((row) => row.id));
    const page = await this.#fetch();
    // Exchanges between the known and the fetched ones are missing, so older ones would look like the next.
    const hasGap = page?.has_more && known.size > 0 && !page.rows.some((row) => known.has(row.id));
    if (!page || !hasGap) return;
    this.#store = new RowStore();
    this.hasMore.value = true;
    this.#merge(page.rows);
  }

  async #fetch(before?: number): Promise<TrafficPage | undefined> {
    const query = new URLSearchParams({ limit: String(PAGE_ROWS) });
    if (before !== undefined) query.set("before", String(before));
    this.#isFetching = true;
    try {
      const page = await getJson<TrafficPage>(`${apiUrl("traffic")}?${query}`);
      if (before !== undefined || !this.isLoaded.value) this.hasMore.value = page.has_more;
      this.#merge(page.rows);
      this.isLoaded.value = true;
      this.error.value = "";
      return page;
    } catch (error) {
      this.error.value = errorText(error);
      return undefined;
    } finally {
      this.#isFetching = false;
    }
  }

  #merge(rows: TrafficRow[]): void {
    this.#store.merge(rows);
    this.rows.value = this.#store.rows;
    updateNames(this.agents, this.#store.agents);
    updateNames(this.models, this.#store.models);
  }
}

function updateNames(shown: Signal<readonly string[]>, names: Set<string>): void {
  if (shown.value.length !== names.size) shown.value = [...names].sort((a, b) => a.localeCompare(b));
}

/** The records are read by the end of the exchanges. */
function endedS(row: TrafficRow): number {
  return row.began_s + (row.total_ms ?? 0) / 1000;
}

/** One feed for all visits of the page, so that going back to it shows the same rows at once. */
export const feed = new TrafficFeed();
