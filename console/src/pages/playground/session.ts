import { signal } from "@preact/signals";
import { ApiError, apiUrl, request } from "../../api.ts";
import { errorText } from "../../errors.ts";
import { readEvents } from "../../sse.ts";
import type { PlaygroundImage, PlaygroundRunView } from "../types/playground.ts";
import {
  type Answer,
  type ApiName,
  emptyAnswer,
  type JsonObject,
  type Options,
  type ToolCall,
  type ToolResult,
  type Turn,
} from "./apis/api.ts";
import { APIS } from "./apis/index.ts";

const MAX_ROUNDS = 20;
const SHOWN_IMAGES = /^image\/(png|jpeg|gif|webp)$/;

/** The conversation; it stays while other pages of the console are shown, and ends with the browser's page. */
export const turns = signal<Turn[]>([]);
/** What is going on: "" nothing. */
export const activity = signal<"" | "answering" | "running">("");
/** Id of the exchange that is shown next to the conversation. */
export const shownExchange = signal("");
export const api = signal<ApiName>("openai_chat");
export const options = signal<Options>({ model: "", system: "", tools: [], maxTokens: 1024, temperature: null });
/** Whether calls run without a click. */
export const isAutomatic = signal(false);

let controller = new AbortController();

/** Asks the model. */
export async function ask(text: string): Promise<void> {
  turns.value = [...turns.value, { kind: "question", text }];
  await answer();
}

/** Asks the last question again: its answers are removed. */
export async function askAgain(): Promise<void> {
  const last = turns.value.findLastIndex(({ kind }) => kind === "question");
  turns.value = turns.value.slice(0, last + 1);
  await answer();
}

export function stop(): void {
  controller.abort();
}

export function clear(): void {
  stop();
  turns.value = [];
  shownExchange.value = "";
}

/** Runs a call; when all calls of the answer have run, their results are sent to the model. */
export async function runCalls(calls: ToolCall[]): Promise<void> {
  const { signal } = begin("running");
  for (const call of calls) {
    call.result ??= await runTool(call, signal);
    show();
    if (signal.aborted) break;
  }
  activity.value = "";
  if (!signal.aborted && waitingCalls(turns.value.at(-1)).length === 0) await answer();
}

/** Returns the calls that have not run. */
export function waitingCalls(turn: Turn | undefined): ToolCall[] {
  return turn?.kind === "answer" && !turn.error ? turn.calls.filter(({ result }) => result === null) : [];
}

function begin(what: "answering" | "running"): AbortController {
  controller = new AbortController();
  activity.value = what;
  return controller;
}

/** Shows changes inside the turns. */
function show(): void {
  turns.value = [...turns.value];
}

async function answer(): Promise<void> {
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const { signal } = begin("answering");
    const body = APIS[api.value].request(turns.value, options.value);
    const written = emptyAnswer(api.value);
    turns.value = [...turns.value, written];
    await read(written, body, signal);
    const calls = waitingCalls(written);
    if (signal.aborted || calls.length === 0 || !isAutomatic.value) break;
    activity.value = "running";
    for (const call of calls) {
      call.result = await runTool(call, signal);
      show();
    }
    if (signal.aborted) break;
  }
  activity.value = "";
}

async function read(written: Answer, body: JsonObject, signal: AbortSignal): Promise<void> {
  const { path, read } = APIS[written.api];
  try {
    const sent = { path, body, model: "", upstream: "" };
    const response = await request(apiUrl("send"), { method: "POST", body: sent, signal });
    setExchange(written, response.headers.get("x-request-id") ?? "");
    for await (const { data } of readEvents(response)) {
      if (data !== "[DONE]") read(written, JSON.parse(data) as JsonObject);
      showSoon();
    }
  } catch (cause) {
    written.error = signal.aborted ? "Stopped." : errorText(cause);
    if (cause instanceof ApiError && cause.requestId) setExchange(written, cause.requestId);
  }
  if (!written.finish) written.error ||= "The response ended before it was complete.";
  show();
}

function setExchange(written: Answer, id: string): void {
  written.exchange = id;
  shownExchange.value = id;
  show();
}

let isShowing = false;

/** Shows what has arrived, once for each frame. */
function showSoon(): void {
  if (isShowing) return;
  isShowing = true;
  requestAnimationFrame(() => {
    isShowing = false;
    show();
  });
}

async function runTool(call: ToolCall, signal: AbortSignal): Promise<ToolResult | null> {
  try {
    const body = { name: call.name, arguments: call.arguments };
    const response = await request(apiUrl("playground", "tools", "run"), { method: "POST", body, signal });
    const view = (await response.json()) as PlaygroundRunView;
    return { text: view.text, isError: view.is_error, images: view.images.flatMap(imageUrls) };
  } catch (cause) {
    return signal.aborted ? null : { text: errorText(cause), isError: true, images: [] };
  }
}

function imageUrls({ media_type, data }: PlaygroundImage): string[] {
  return SHOWN_IMAGES.test(media_type) ? [`data:${media_type};base64,${data}`] : [];
}
