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
let answerCount = 0;

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

/** Runs calls of the last answer; when all of it have run, their results are sent to the model. */
export async function runCalls(calls: ToolCall[]): Promise<void> {
  const written = turns.value.at(-1);
  if (written?.kind !== "answer") return;
  const { signal } = begin("running");
  await runEach(written, calls, signal);
  activity.value = "";
  if (!signal.aborted && waitingCalls(written).length === 0) await answer();
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

/** Shows a changed answer: as a copy, because a component is rendered again only for another object. */
function show(written: Answer): void {
  const copy = { ...written, calls: written.calls.map((call) => ({ ...call })) };
  turns.value = turns.value.map((turn) => (turn.kind === "answer" && turn.key === written.key ? copy : turn));
}

async function answer(): Promise<void> {
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const { signal } = begin("answering");
    const body = APIS[api.value].request(turns.value, options.value);
    const written = emptyAnswer(api.value, ++answerCount);
    turns.value = [...turns.value, written];
    await read(written, body, signal);
    const calls = waitingCalls(written);
    if (signal.aborted || calls.length === 0 || !isAutomatic.value) break;
    activity.value = "running";
    await runEach(written, calls, signal);
    if (signal.aborted) break;
  }
  activity.value = "";
}

async function runEach(written: Answer, calls: ToolCall[], signal: AbortSignal): Promise<void> {
  for (const call of calls) {
    if (signal.aborted) break;
    call.result = await runTool(call, signal);
    show(written);
  }
}

async function read(written: Answer, body: JsonObject, signal: AbortSignal): Promise<void> {
  const { path, read } = APIS[written.api];
  try {
    const sent = { path, body, model: "", upstream: "" };
    const response = await request(apiUrl("send"), { method: "POST", body: sent, signal });
    setExchange(written, response.headers.get("x-request-id") ?? "");
    for await (const { data } of readEvents(response)) {
      if (data !== "[DONE]") read(written, JSON.parse(data) as JsonObject);
      showSoon(written);
    }
  } catch (cause) {
    written.error = signal.aborted ? "Stopped." : errorText(cause);
    if (cause instanceof ApiError && cause.requestId) setExchange(written, cause.requestId);
  }
  if (!written.finish) written.error ||= "The response ended before it was complete.";
  show(written);
}

function setExchange(written: Answer, id: string): void {
  written.exchange = id;
  shownExchange.value = id;
  show(written);
}

let shownSoon: Answer | null = null;

/** Shows what has arrived, once for each frame. */
function showSoon(written: Answer): void {
  if (shownSoon === null) {
    requestAnimationFrame(() => {
      if (shownSoon) show(shownSoon);
      shownSoon = null;
    });
  }
  shownSoon = written;
}

async function runTool(call: ToolCall, signal: AbortSignal): Promise<ToolResult | null> {
  try {
    const body = { name: call.name, arguments: call.arguments };
    const response = await request(apiUrl("playground", "tools", "run"), { method: "POST", body, signal });
    const view = (await response.json()) as PlaygroundRunView;
    return { text: view.text, isError: view.is_error, isCut: view.is_cut, images: view.images.flatMap(imageUrls) };
  } catch (cause) {
    return signal.aborted ? null : { text: errorText(cause), isError: true, isCut: false, images: [] };
  }
}

function imageUrls({ media_type, data }: PlaygroundImage): string[] {
  return SHOWN_IMAGES.test(media_type) ? [`data:${media_type};base64,${data}`] : [];
}
