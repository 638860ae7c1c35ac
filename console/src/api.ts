import { signal } from "@preact/signals";

const PREFIX = "/console/api";

const SIGN_IN_PATH = "/console/login";

/** False once the gateway rejected the session; the shell then shows the sign-in form. */
export const isSignedIn = signal(true);

/** Loads the sign-in page, so that nothing that was shown stays in memory. It can return to the current page. */
export function openSignIn({ returns }: { returns: boolean }): void {
  isSignedIn.value = false;
  if (location.pathname === SIGN_IN_PATH) return;
  const next = new URLSearchParams({ next: location.pathname + location.search });
  location.assign(returns ? `${SIGN_IN_PATH}?${next}` : SIGN_IN_PATH);
}

export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  /** The id of the exchange that failed; "" if the response has none. */
  readonly requestId: string;

  constructor(message: string, status: number, code: string, requestId = "") {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.requestId = requestId;
  }
}

/** The URL of a path of the API, each segment encoded. */
export function apiUrl(...segments: string[]): string {
  return [PREFIX, ...segments.map(encodeURIComponent)].join("/");
}

interface Options {
  method?: "GET" | "POST" | "PUT" | "DELETE";
  body?: unknown;
  /** The body as JSON, in place of `body`. */
  text?: string;
  signal?: AbortSignal;
}

/** Sends a request; throws an ApiError unless the gateway accepted it. */
export async function request(url: string, options: Options = {}): Promise<Response> {
  const { method = "GET", body, text, signal } = options;
  const init: RequestInit = { method, headers: { "x-dragoman-console": "1" } };
  if (method !== "GET") {
    init.headers = { "x-dragoman-console": "1", "content-type": "application/json" };
    init.body = text ?? JSON.stringify(body ?? {});
  }
  if (signal) init.signal = signal;
  const response = await fetch(url, init).catch((cause: unknown) => {
    if (signal?.aborted) throw cause;
    throw new ApiError("The gateway does not respond. Check that `dragoman serve` is running.", 0, "unreachable");
  });
  if (!response.ok) throw await apiError(response);
  return response;
}

export async function getJson<T>(url: string, signal?: AbortSignal): Promise<T> {
  const response = await request(url, signal ? { signal } : {});
  return (await response.json()) as T;
}

export async function getText(url: string, signal?: AbortSignal): Promise<string> {
  const response = await request(url, signal ? { signal } : {});
  return response.text();
}

export async function sendJson<T>(method: "POST" | "PUT" | "DELETE", url: string, body: unknown = {}): Promise<T> {
  const response = await request(url, { method, body });
  return (await response.json()) as T;
}

/** The error of a response, as the gateway or an API of a vendor writes it. */
export async function apiError(response: Response): Promise<ApiError> {
  const requestId = response.headers.get("x-request-id") ?? "";
  // The response to a request that was sent through the gateway may be the 401 of an upstream server.
  if (response.status === 401 && !requestId) openSignIn({ returns: true });
  const text = await response.text().catch(() => "");
  const error = errorMember(text);
  const message = error?.message || text.slice(0, 300) || response.statusText || "no message";
  return new ApiError(message, response.status, error?.code ?? "", requestId);
}

function errorMember(text: string): { message?: string; code?: string } | undefined {
  try {
    return (JSON.parse(text) as { error?: { message?: string; code?: string } }).error;
  } catch {
    return undefined;
  }
}
