import { effect, signal } from "@preact/signals";
import { ApiError, apiUrl, getJson } from "../api.ts";
import { errorText } from "../errors.ts";
import { EventStream, type StreamState } from "../event-stream.ts";
import { forgotten, gateway } from "../gateway-state.ts";
import type { ExchangeView, TrafficPage, TrafficRow } from "../types.ts";
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
  /** What the last request asked for; undefined: the newest rows. */
  #before: number | undefined;
  #newest: Promise<void> = Promise.resolve();
  /** The exchanges that ran when the stream was interrupted; its first event contains those that still run. */
  #unconfirmed = new Set<string>();

  constructor() {
    effect(() => {
      if (forgotten.value === 0) return;
      const captured = this.#store.rows.filter((row) => row.is_captured);
      this.#merge(captured.map((row) => ({ ...row, is_captured: false })));
    });
  }

  /** Whether captures exist, as far as it is known: while the list is not live, any may. */
  get mayHaveCaptures(): boolean {
    const isLive = this.isLoaded.value && this.streamState.value === "open";
    return !isLive || this.rows.value.some((row) => row.is_captured);
  }

  /** Whether an exchange of this id was captured once. */
  wasCaptured(id: string): boolean {
    return this.#store.captured.has(id);
  }

  open(): void {
    this.#stream = new EventStream(apiUrl("traffic", "stream"), {
      events: { rows: (rows) => this.#receive(rows as TrafficRow[]) },
      onOpen: () => {
        this.#unconfirmed = new Set(this.#store.running.map(({ id }) => id));
        this.#newest = this.#fetchNewest();
      },
    });
    this.#stream.state.subscribe((state) => {
      this.streamState.value = state;
    });
  }

  close(): void {
    this.#stream?.close();
    this.#stream = undefined;
  }

  /** Fetches exchanges that ended before all known ones. */
  async fetchOlder(): Promise<void> {
    const rows = this.rows.value.filter(hasEnded);
    if (this.#isFetching || !this.hasMore.value || rows.length === 0 || this.rows.value.length >= ROW_LIMIT) return;
    await this.#fetch(Math.min(...rows.map(endedS)));
  }

  /** Repeats the request that failed. */
  async retry(): Promise<void> {
    if (this.#isFetching) return;
    if (this.#before === undefined) await this.#fetchNewest();
    else await this.#fetch(this.#before);
  }

  async #fetchNewest(): Promise<void> {
    const known = new Set(this.rows.value.filter(hasEnded).map((row) => row.id));
    const page = await this.#fetch();
    // Exchanges between the known and the fetched ones are missing, so older ones would look like the next.
    const hasGap = page?.has_more && known.size > 0 && !page.rows.some((row) => known.has(row.id));
    if (!page || !hasGap) return;
    const { running } = this.#store;
    this.#store = new RowStore();
    this.hasMore.value = true;
    this.#merge([...running, ...page.rows]);
  }

  #receive(rows: TrafficRow[]): void {
    this.#merge(rows);
    if (this.#unconfirmed.size === 0) return;
    const missing = this.#unconfirmed;
    this.#unconfirmed = new Set();
    for (const { id } of rows) missing.delete(id);
    void this.#resolve(missing);
  }

  /** Finds out how exchanges have ended that ran before the stream was interrupted. */
  async #resolve(ids: Iterable<string>): Promise<void> {
    await this.#newest;
    for (const id of ids) {
      if (!this.#store.isRunning(id)) continue;
      try {
        const { row } = await getJson<ExchangeView>(apiUrl("exchanges", id));
        this.#merge([row]);
      } catch (error) {
        if (!(error instanceof ApiError && error.status === 404)) return;
        // One process of several does not know what runs in the others.
        if (gateway.value?.workers === 1) this.#store.remove(id);
        this.#publish();
      }
    }
  }

  async #fetch(before?: number): Promise<TrafficPage | undefined> {
    const query = new URLSearchParams({ limit: String(PAGE_ROWS) });
    if (before !== undefined) query.set("before", String(before));
    this.#before = before;
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
    this.#publish();
  }

  #publish(): void {
    this.rows.value = this.#store.rows;
    this.agents.value = this.#store.agents.list;
    this.models.value = this.#store.models.list;
  }
}

function hasEnded(row: TrafficRow): boolean {
  return row.state !== "running";
}

/** The records are read by the end of the exchanges. */
function endedS(row: TrafficRow): number {
  return row.began_s + (row.total_ms ?? 0) / 1000;
}

/** One feed for all visits of the page, so that going back to it shows the same rows at once. */
export const feed = new TrafficFeed();
