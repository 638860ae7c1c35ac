import { type Signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, apiUrl, getJson } from "../api.ts";
import { errorText } from "../errors.ts";
import { EventStream } from "../event-stream.ts";
import { forgotten } from "../gateway-state.ts";
import type { ExchangeView } from "../types.ts";
import { mergeView } from "./view-merge.ts";

export interface Exchange {
  view: Signal<ExchangeView | undefined>;
  error: Signal<string>;
}

/** The view of an exchange, which changes as long as it runs; "" is none. */
export function useExchange(id: string): Exchange {
  const view = useSignal<ExchangeView | undefined>(undefined);
  const error = useSignal("");
  const generation = forgotten.value;
  useEffect(() => {
    view.value = undefined;
    error.value = "";
    if (!id) return;
    const controller = new AbortController();
    const { signal } = controller;
    let stream: EventStream | undefined;

    const load = () =>
      getJson<ExchangeView>(apiUrl("exchanges", id), signal).then(
        (fetched) => {
          view.value = fetched;
          error.value = "";
          if (fetched.is_running) stream ??= follow();
          else stream?.close();
        },
        (cause: unknown) => {
          if (signal.aborted) return;
          error.value = errorText(cause);
          // The gateway was started again, or nothing recorded the end of the exchange.
          if (!(cause instanceof ApiError && cause.status === 404)) return;
          view.value = undefined;
          stream?.close();
        },
      );
    const follow = () =>
      new EventStream(apiUrl("exchanges", id, "stream"), {
        events: {
          view: (changed) => {
            if (view.value) view.value = mergeView(view.value, changed as Partial<ExchangeView>);
          },
          // What was not known before the end, such as the sums of tokens.
          done: () => void load(),
        },
        onRetry: load,
        last: ["done"],
      });

    void load();
    return () => {
      controller.abort();
      stream?.close();
    };
  }, [id, generation, view, error]);
  return { view, error };
}
