/** OpenAI Responses: POST /v1/responses. */

import {
  type Answer,
  type Api,
  callsWithResult,
  errorMessage,
  type JsonObject,
  nativeItems,
  numberAt,
  type Options,
  objectAt,
  type Turn,
  textAt,
} from "./api.ts";

function request(turns: Turn[], options: Options): JsonObject {
  const tools = options.tools.map(({ name, description, parameters }) => ({
    type: "function",
    name,
    description,
    parameters,
    strict: false,
  }));
  return {
    model: options.model,
    ...(options.system && { instructions: options.system }),
    input: turns.flatMap(items),
    ...(tools.length > 0 && { tools }),
    ...(options.temperature !== null && { temperature: options.temperature }),
    max_output_tokens: options.maxTokens,
    include: ["reasoning.encrypted_content"],
    store: false,
    stream: true,
  };
}

function items(turn: Turn): JsonObject[] {
  if (turn.kind === "question") return [{ type: "message", role: "user", content: turn.text }];
  const calls = callsWithResult(turn);
  const results = calls.map((call) => ({ type: "function_call_output", call_id: call.id, output: call.result.text }));
  const native = nativeItems(turn, "openai_responses");
  if (native.length > 0) return [...native, ...results];
  const text: JsonObject[] = turn.text ? [{ type: "message", role: "assistant", content: turn.text }] : [];
  const written = calls.map((call) => ({
    type: "function_call",
    call_id: call.id,
    name: call.name,
    arguments: call.arguments || "{}",
  }));
  return [...text, ...written, ...results];
}

function read(answer: Answer, event: JsonObject): void {
  const item = objectAt(event, "item");
  switch (textAt(event, "type")) {
    case "response.output_text.delta":
    case "response.refusal.delta":
      answer.text += textAt(event, "delta");
      break;
    case "response.reasoning_text.delta":
    case "response.reasoning_summary_text.delta":
      answer.reasoning += textAt(event, "delta");
      break;
    case "response.output_item.added":
      if (textAt(item, "type") === "function_call") {
        answer.calls.push({ id: textAt(item, "call_id"), name: textAt(item, "name"), arguments: "", result: null });
      }
      break;
    case "response.function_call_arguments.delta": {
      const call = answer.calls.at(-1);
      if (call) call.arguments += textAt(event, "delta");
      break;
    }
    case "response.output_item.done":
      readItem(answer, item);
      break;
    case "response.completed":
    case "response.incomplete":
    case "response.failed":
      readEnd(answer, objectAt(event, "response"));
      answer.error ||= errorMessage(event);
      break;
    case "error":
      answer.error ||= textAt(event, "message") || errorMessage(event);
      break;
    case "":
      answer.error ||= errorMessage(event);
  }
}

function readItem(answer: Answer, item: JsonObject): void {
  answer.native.push(item);
  const call = answer.calls.find(({ id }) => id === textAt(item, "call_id"));
  if (call) call.arguments = textAt(item, "arguments");
}

function readEnd(answer: Answer, response: JsonObject): void {
  answer.finish = textAt(objectAt(response, "incomplete_details"), "reason") || textAt(response, "status");
  const usage = objectAt(response, "usage");
  if ("input_tokens" in usage) {
    const cached = numberAt(objectAt(usage, "input_tokens_details"), "cached_tokens");
    answer.usage = { input: numberAt(usage, "input_tokens"), cached, output: numberAt(usage, "output_tokens") };
  }
}

export const openaiResponses: Api = {
  name: "openai_responses",
  title: "OpenAI Responses",
  path: "/v1/responses",
  request,
  read,
};
