import { ApiError, request } from "../api.ts";
import { readEvents } from "../sse.ts";

interface ErrorEvent {
  error: { message: string; code: string };
}

/**
 * Sends a request whose response is a stream of events, and returns the data of its `result`; throws an ApiError for
 * its `error`.
 *
 * @param onEvent gets the name and the data of each other event
 */
export async function runEventAction<T>(
  url: string,
  body: unknown,
  onEvent: (name: string, data: unknown) => void,
  signal: AbortSignal,
): Promise<T> {
  const response = await request(url, { method: "POST", body, signal });
  for await (const { event, data } of readEvents(response)) {
    const value: unknown = JSON.parse(data);
    if (event === "result") return value as T;
    if (event === "error") {
      const { error } = value as ErrorEvent;
      throw new ApiError(error.message, 0, error.code);
    }
    onEvent(event, value);
  }
  throw new ApiError("The gateway ended its response before the result.", 0, "incomplete");
}
