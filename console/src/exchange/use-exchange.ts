import { type Signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { apiUrl, getJson } from "../api.ts";
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
          if (fetched.is_running && fetched.is_captured) stream ??= follow();
        },
        (cause: unknown) => {
          if (!signal.aborted) error.value = errorText(cause);
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
