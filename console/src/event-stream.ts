import { type Signal, signal } from "@preact/signals";
import { ApiError } from "./api.ts";
import { refreshGateway } from "./gateway-state.ts";

export type StreamState = "connecting" | "open" | "waiting" | "closed";

const FIRST_DELAY_MS = 500;
const LAST_DELAY_MS = 8000;

interface Handlers {
  /** Called with the parsed data of each event of that name. */
  events: Record<string, (data: unknown) => void>;
  /** Called for each connection, so that what was missed can be fetched. */
  onOpen?: () => void;
  /** Called before the stream is opened again, unless the gateway is unreachable; may close it. */
  onRetry?: () => Promise<void>;
  /** The events after which the stream is not opened again. */
  last?: string[];
}

/**
 * A stream of server-sent events that reconnects, and is closed while the page is hidden: browsers open only six
 * connections to a host, and a hidden page should cost the gateway nothing.
 */
export class EventStream {
  readonly state: Signal<StreamState> = signal("connecting");
  readonly #url: string;
  readonly #handlers: Handlers;
  #source: EventSource | undefined;
  #timer: number | undefined;
  #delayMs = FIRST_DELAY_MS;

  constructor(url: string, handlers: Handlers) {
    this.#url = url;
    this.#handlers = handlers;
    document.addEventListener("visibilitychange", this.#onVisibility);
    if (!document.hidden) this.#open();
  }

  close(): void {
    document.removeEventListener("visibilitychange", this.#onVisibility);
    this.#disconnect();
    this.state.value = "closed";
  }

  #open(): void {
    this.#disconnect();
    this.state.value = "connecting";
    const source = new EventSource(this.#url);
    this.#source = source;
    source.onopen = () => {
      this.#delayMs = FIRST_DELAY_MS;
      this.state.value = "open";
      this.#handlers.onOpen?.();
    };
    source.onerror = () => this.#retry();
    for (const [name, handle] of Object.entries(this.#handlers.events)) {
      source.addEventListener(name, (event: MessageEvent<string>) => {
        if (this.#handlers.last?.includes(name)) this.close();
        handle(JSON.parse(event.data));
      });
    }
  }

  #retry(): void {
    this.#disconnect();
    this.state.value = "waiting";
    this.#timer = window.setTimeout(() => this.#openIfAllowed(), this.#delayMs);
    this.#delayMs = Math.min(this.#delayMs * 2, LAST_DELAY_MS);
  }

  /** An EventSource does not show the status of an error, so a session that ended is found by another request. */
  async #openIfAllowed(): Promise<void> {
    try {
      await refreshGateway();
      await this.#handlers.onRetry?.();
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return this.close();
      if (this.state.value === "waiting") this.#retry();
      return;
    }
    if (this.state.value === "waiting" && !document.hidden) this.#open();
  }

  #disconnect(): void {
    window.clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = undefined;
  }

  readonly #onVisibility = (): void => {
    this.#disconnect();
    this.state.value = "waiting";
    this.#delayMs = FIRST_DELAY_MS;
    if (!document.hidden) void this.#openIfAllowed();
  };
}
