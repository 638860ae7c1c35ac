/** Anthropic Messages: POST /v1/messages. */

import {
  type Answer,
  type Api,
  argumentsOf,
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
    name,
    description,
    input_schema: parameters,
  }));
  return {
    model: options.model,
    max_tokens: options.maxTokens,
    ...(options.system && { system: options.system }),
    messages: joined(turns.flatMap(messages)),
    ...(tools.length > 0 && { tools }),
    ...(options.temperature !== null && { temperature: options.temperature }),
    stream: true,
  };
}

interface Message {
  role: "user" | "assistant";
  content: JsonObject[];
}

function messages(turn: Turn): Message[] {
  if (turn.kind === "question") return [{ role: "user", content: [{ type: "text", text: turn.text }] }];
  const calls = callsWithResult(turn);
  const results = calls.map((call) => ({
    type: "tool_result",
    tool_use_id: call.id,
    content: call.result.text,
    ...(call.result.isError && { is_error: true }),
  }));
  // The API rejects empty text.
  const native = nativeItems(turn, "anthropic_messages").filter((block) => block.text !== "");
  const content = native.length > 0 ? native : blocks(turn);
  const reply: Message[] = content.length > 0 ? [{ role: "assistant", content }] : [];
  return results.length > 0 ? [...reply, { role: "user", content: results }] : reply;
}

function blocks(answer: Answer): JsonObject[] {
  const text: JsonObject[] = answer.text ? [{ type: "text", text: answer.text }] : [];
  const uses = callsWithResult(answer).map((call) => ({
    type: "tool_use",
    id: call.id,
    name: call.name,
    input: argumentsOf(call),
  }));
  return [...text, ...uses];
}

/** Joins neighbours of the same role: results of tools and the next question are one message. */
function joined(messages: Message[]): JsonObject[] {
  const result: Message[] = [];
  for (const message of messages) {
    const last = result.at(-1);
    if (last?.role === message.role) last.content = [...last.content, ...message.content];
    else result.push({ ...message });
  }
  return result.map(({ role, content }) => ({ role, content }));
}

function read(answer: Answer, event: JsonObject): void {
  switch (textAt(event, "type")) {
    case "message_start":
      readUsage(answer, objectAt(objectAt(event, "message"), "usage"));
      break;
    case "content_block_start":
      readStart(answer, objectAt(event, "content_block"));
      break;
    case "content_block_delta":
      readDelta(answer, objectAt(event, "delta"));
      break;
    case "content_block_stop":
      readStop(answer);
      break;
    case "message_delta":
      answer.finish = textAt(objectAt(event, "delta"), "stop_reason");
      readUsage(answer, objectAt(event, "usage"));
      break;
    case "error":
    case "":
      answer.error ||= errorMessage(event);
  }
}

function readStart(answer: Answer, block: JsonObject): void {
  answer.native.push({ ...block });
  if (textAt(block, "type") === "tool_use") {
    answer.calls.push({ id: textAt(block, "id"), name: textAt(block, "name"), arguments: "", result: null });
  }
  answer.text += textAt(block, "text");
  answer.reasoning += textAt(block, "thinking");
}

function readDelta(answer: Answer, delta: JsonObject): void {
  const block = answer.native.at(-1);
  const call = answer.calls.at(-1);
  switch (textAt(delta, "type")) {
    case "text_delta":
      answer.text += textAt(delta, "text");
      append(block, "text", textAt(delta, "text"));
      break;
    case "thinking_delta":
      answer.reasoning += textAt(delta, "thinking");
      append(block, "thinking", textAt(delta, "thinking"));
      break;
    case "signature_delta":
      append(block, "signature", textAt(delta, "signature"));
      break;
    case "input_json_delta":
      if (call) call.arguments += textAt(delta, "partial_json");
  }
}

function append(block: JsonObject | undefined, name: string, text: string): void {
  if (block) block[name] = textAt(block, name) + text;
}

function readStop(answer: Answer): void {
  const block = answer.native.at(-1);
  const call = answer.calls.at(-1);
  if (block && call && textAt(block, "type") === "tool_use") block.input = argumentsOf(call);
}

function readUsage(answer: Answer, usage: JsonObject): void {
  const earlier = answer.usage ?? { input: 0, cached: 0, output: 0 };
  const cached = numberAt(usage, "cache_read_input_tokens");
  const input = numberAt(usage, "input_tokens") + cached + numberAt(usage, "cache_creation_input_tokens");
  answer.usage = {
    input: input || earlier.input,
    cached: input ? cached : earlier.cached,
    output: numberAt(usage, "output_tokens") || earlier.output,
  };
}

export const anthropicMessages: Api = {
  name: "anthropic_messages",
  title: "Anthropic Messages",
  path: "/v1/messages",
  request,
  read,
};
