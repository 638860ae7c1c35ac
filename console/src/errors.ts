import { signal } from "@preact/signals";
import { ApiError } from "./api.ts";

/** The error that the shell shows; "" is none. */
export const shownError = signal("");

/** Shows an error of an action; the shell itself shows that a session ended, and aborted requests are none. */
export function reportError(error: unknown): void {
  if (error instanceof ApiError && error.status === 401) return;
  if (error instanceof DOMException && error.name === "AbortError") return;
  shownError.value = errorText(error);
}

export function errorText(error: unknown): string {
  if (error instanceof ApiError && error.status > 0) return `${error.message} (status ${error.status})`;
  return error instanceof Error ? error.message : String(error);
}
