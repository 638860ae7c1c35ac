import { type Signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { getJson } from "./api.ts";
import { errorText } from "./errors.ts";
import { forgotten } from "./gateway-state.ts";

export interface Data<T> {
  value: Signal<T | undefined>;
  error: Signal<string>;
  reload: () => void;
}

/** Fetches JSON when a component appears and whenever the URL changes. */
export function useData<T>(url: string): Data<T> {
  const value = useSignal<T | undefined>(undefined);
  const error = useSignal("");
  const generation = useSignal(0);
  const current = generation.value;
  const captures = forgotten.value;
  useEffect(() => {
    value.value = undefined;
  }, [captures]);
  useEffect(() => {
    const controller = new AbortController();
    getJson<T>(url, controller.signal).then(
      (fetched) => {
        value.value = fetched;
        error.value = "";
      },
      (cause: unknown) => {
        if (!controller.signal.aborted) error.value = errorText(cause);
      },
    );
    return () => controller.abort();
  }, [url, current, captures]);
  return { value, error, reload: () => generation.value++ };
}
