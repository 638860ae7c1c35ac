/** OpenAI Chat Completions: POST /v1/chat/completions. */

import {
  type Answer,
  type Api,
  callsWithResult,
  errorMessage,
  type JsonObject,
  numberAt,
  type Options,
  objectAt,
  objectsAt,
  type Turn,
  textAt,
} from "./api.ts";

function request(turns: Turn[], options: Options): JsonObject {
  const system: JsonObject[] = options.system ? [{ role: "system", content: options.system }] : [];
  const tools = options.tools.map(({ name, description, parameters }) => ({
    type: "function",
    function: { name, description, parameters },
  }));
  return {
    model: options.model,
    messages: [...system, ...turns.flatMap(messages)],
    ...(tools.length > 0 && { tools }),
    ...(options.temperature !== null && { temperature: options.temperature }),
    max_completion_tokens: options.maxTokens,
    stream: true,
    stream_options: { include_usage: true },
  };
}

function messages(turn: Turn): JsonObject[] {
  if (turn.kind === "question") return [{ role: "user", content: turn.text }];
  const calls = callsWithResult(turn);
  if (!turn.text && calls.length === 0) return [];
  const reply: JsonObject = { role: "assistant", content: turn.text };
  // Models that reason between their calls are sent their reasoning.
  if (turn.reasoning && calls.length > 0) reply.reasoning_content = turn.reasoning;
  if (calls.length > 0) {
    reply.tool_calls = calls.map((call) => ({
      id: call.id,
      type: "function",
      function: { name: call.name, arguments: call.arguments || "{}" },
    }));
  }
  return [reply, ...calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: call.result.text }))];
}

function read(answer: Answer, event: JsonObject): void {
  answer.error ||= errorMessage(event);
  const usage = objectAt(event, "usage");
  if ("prompt_tokens" in usage) {
    const cached = numberAt(objectAt(usage, "prompt_tokens_details"), "cached_tokens");
    answer.usage = { input: numberAt(usage, "prompt_tokens"), cached, output: numberAt(usage, "completion_tokens") };
  }
  for (const choice of objectsAt(event, "choices")) {
    const delta = objectAt(choice, "delta");
    answer.text += textAt(delta, "content") + textAt(delta, "refusal");
    answer.reasoning += textAt(delta, "reasoning_content") || textAt(delta, "reasoning");
    for (const call of objectsAt(delta, "tool_calls")) readCall(answer, call);
    answer.finish ||= textAt(choice, "finish_reason");
  }
}

function readCall(answer: Answer, delta: JsonObject): void {
  const index = numberAt(delta, "index");
  const call = answer.calls[index] ?? { id: "", name: "", arguments: "", result: null };
  answer.calls[index] = call;
  const called = objectAt(delta, "function");
  call.id ||= textAt(delta, "id");
  call.name ||= textAt(called, "name");
  call.arguments += textAt(called, "arguments");
}

export const openaiChat: Api = {
  name: "openai_chat",
  title: "OpenAI Chat Completions",
  path: "/v1/chat/completions",
  request,
  read,
};
