/** What the playground needs of an API: requests of a conversation, and the text and calls of a streamed response. */

/** A value that JSON can express. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type JsonObject = { [name: string]: Json };

/** A tool that the model may call. */
export interface Tool {
  name: string;
  description: string;
  /** JSON Schema of its arguments. */
  parameters: JsonObject;
}

/** What a tool returned. */
export interface ToolResult {
  text: string;
  isError: boolean;
  /** Whether the tool returned more than is kept. */
  isCut: boolean;
  /** URLs of images, which are shown but not sent to the model. */
  images: string[];
}

/** One tool call of the model. */
export interface ToolCall {
  id: string;
  name: string;
  /** The arguments as JSON text, complete only when the answer has ended. */
  arguments: string;
  /** null until the tool has run. */
  result: ToolResult | null;
}

export type CallWithResult = ToolCall & { result: ToolResult };

/** What the user wrote. */
export interface Question {
  kind: "question";
  text: string;
}

/** What the model wrote, in one response. */
export interface Answer {
  kind: "answer";
  /** Tells answers apart. */
  key: number;
  /** Name of the API in which it was requested. */
  api: ApiName;
  reasoning: string;
  text: string;
  calls: ToolCall[];
  /** The finish reason as the API names it; "" while it streams. */
  finish: string;
  error: string;
  /** The items of the response in the API's own form, which a later request of the same API sends back. */
  native: JsonObject[];
  usage: Usage | null;
  /** Id of the exchange; "" until the response begins. */
  exchange: string;
}

/** Numbers of tokens of one response. */
export interface Usage {
  input: number;
  cached: number;
  output: number;
}

export type Turn = Question | Answer;
export type ApiName = "openai_chat" | "openai_responses" | "anthropic_messages";

/** The choices of the user for the next request. */
export interface Options {
  model: string;
  system: string;
  tools: Tool[];
  /** Maximum number of tokens of the answer. */
  maxTokens: number;
  /** null: the model's default. */
  temperature: number | null;
}

/** One of the APIs. */
export interface Api {
  name: ApiName;
  title: string;
  path: string;
  /** Returns the body of the request that continues a conversation. */
  request(turns: Turn[], options: Options): JsonObject;
  /** Adds one event of the stream to the answer. */
  read(answer: Answer, event: JsonObject): void;
}

/** Returns an answer without content. */
export function emptyAnswer(api: ApiName, key = 0): Answer {
  return {
    kind: "answer",
    key,
    api,
    reasoning: "",
    text: "",
    calls: [],
    finish: "",
    error: "",
    native: [],
    usage: null,
    exchange: "",
  };
}

/** Returns the member as an object; an empty one if it is not one. */
export function objectAt(value: JsonObject, name: string): JsonObject {
  return asObject(value[name]);
}

/** Returns the value as an object; an empty one if it is not one. */
export function asObject(value: Json | undefined): JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
}

/** Returns the objects of the member, which should be an array. */
export function objectsAt(value: JsonObject, name: string): JsonObject[] {
  const member = value[name];
  return Array.isArray(member) ? member.map(asObject) : [];
}

/** Returns the member as text; "" if it is not text. */
export function textAt(value: JsonObject, name: string): string {
  const member = value[name];
  return typeof member === "string" ? member : "";
}

/** Returns the member as a number; 0 if it is not one. */
export function numberAt(value: JsonObject, name: string): number {
  const member = value[name];
  return typeof member === "number" ? member : 0;
}

/** Returns the message of an error body or error event of any of the APIs; "" if there is none. */
export function errorMessage(value: JsonObject): string {
  const error = value.error ?? objectAt(value, "response").error;
  if (typeof error === "string") return error;
  return textAt(asObject(error), "message");
}

/** Returns the arguments of a call as an object; an empty one if they are not one. */
export function argumentsOf(call: ToolCall): JsonObject {
  try {
    return asObject(JSON.parse(call.arguments) as Json);
  } catch {
    return {};
  }
}

/** Returns the calls of an answer that have a result: only these may be sent back. */
export function callsWithResult(answer: Answer): CallWithResult[] {
  return answer.calls.filter((call): call is CallWithResult => call.result !== null);
}

/** Returns the native items of an answer, if a request of this API may send all of them back; else none. */
export function nativeItems(answer: Answer, api: ApiName): JsonObject[] {
  const isWhole = answer.finish !== "" && answer.calls.every(({ result }) => result !== null);
  return answer.api === api && isWhole ? answer.native : [];
}
