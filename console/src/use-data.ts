import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { getJson } from "./api.ts";
import { errorText } from "./errors.ts";
import { forgotten } from "./gateway-state.ts";

export interface Data<T> {
  value: Signal<T | undefined>;
  error: Signal<string>;
  reload: () => void;
  /** Fetches again, unless a fetch runs: a slow answer would otherwise never arrive. */
  refresh: () => void;
}

/** Fetches JSON when a component appears and whenever the URL changes. */
export function useData<T>(url: string): Data<T> {
  const value = useSignal<T | undefined>(undefined);
  const error = useSignal("");
  const generation = useSignal(0);
  const running = useRef<AbortController | undefined>(undefined);
  const current = generation.value;
  const captures = forgotten.value;
  useEffect(() => {
    value.value = undefined;
  }, [captures]);
  useEffect(() => {
    const controller = new AbortController();
    const end = () => {
      if (running.current === controller) running.current = undefined;
    };
    running.current = controller;
    getJson<T>(url, controller.signal)
      .then(
        (fetched) => {
          value.value = fetched;
          error.value = "";
        },
        (cause: unknown) => {
          if (!controller.signal.aborted) error.value = errorText(cause);
        },
      )
      .finally(end);
    return () => controller.abort();
  }, [url, current, captures]);
  const reload = () => {
    generation.value++;
  };
  const refresh = () => {
    if (!running.current) reload();
  };
  return { value, error, reload, refresh };
}
