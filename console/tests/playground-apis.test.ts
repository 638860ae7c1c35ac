import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type Answer,
  type ApiName,
  emptyAnswer,
  type JsonObject,
  type Options,
  type Turn,
} from "../src/pages/playground/apis/api.ts";
import { APIS } from "../src/pages/playground/apis/index.ts";

const NAMES = Object.keys(APIS) as ApiName[];
const OPTIONS: Options = {
  model: "m",
  system: "Be brief.",
  tools: [{ name: "weather", description: "Weather", parameters: { type: "object" } }],
  maxTokens: 64,
  temperature: 0.5,
};
const ARGUMENTS = '{"city": "Rome"}';

/** One response with reasoning, text and a call, as each API streams it. */
const STREAMS: Record<ApiName, JsonObject[]> = {
  openai_chat: [
    { choices: [{ delta: { role: "assistant", reasoning_content: "Hm" } }] },
    { choices: [{ delta: { content: "Let " } }] },
    { choices: [{ delta: { content: "me look." } }] },
    {
      choices: [
        { delta: { tool_calls: [{ index: 0, id: "c1", function: { name: "weather", arguments: '{"city": ' } }] } },
      ],
    },
    { choices: [{ delta: { tool_calls: [{ index: 0, function: { arguments: '"Rome"}' } }] } }] },
    { choices: [{ delta: {}, finish_reason: "tool_calls" }] },
    { choices: [], usage: { prompt_tokens: 9, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 4 } } },
  ],
  openai_responses: [
    { type: "response.created", response: { status: "in_progress", error: null } },
    { type: "response.reasoning_text.delta", delta: "Hm" },
    { type: "response.output_item.done", item: { type: "reasoning", id: "r1", content: [] } },
    { type: "response.output_text.delta", delta: "Let " },
    { type: "response.output_text.delta", delta: "me look." },
    { type: "response.output_item.done", item: { type: "message", role: "assistant", content: [] } },
    {
      type: "response.output_item.added",
      item: { type: "function_call", call_id: "c1", name: "weather", arguments: "" },
    },
    { type: "response.function_call_arguments.delta", delta: '{"city": ' },
    { type: "response.function_call_arguments.delta", delta: '"Rome"}' },
    {
      type: "response.output_item.done",
      item: { type: "function_call", call_id: "c1", name: "weather", arguments: ARGUMENTS },
    },
    {
      type: "response.completed",
      response: {
        status: "completed",
        error: null,
        usage: { input_tokens: 9, output_tokens: 5, input_tokens_details: { cached_tokens: 4 } },
      },
    },
  ],
  anthropic_messages: [
    { type: "message_start", message: { usage: { input_tokens: 5, cache_read_input_tokens: 4, output_tokens: 1 } } },
    { type: "content_block_start", index: 0, content_block: { type: "thinking", thinking: "", signature: "" } },
    { type: "content_block_delta", index: 0, delta: { type: "thinking_delta", thinking: "Hm" } },
    { type: "content_block_delta", index: 0, delta: { type: "signature_delta", signature: "s" } },
    { type: "content_block_stop", index: 0 },
    { type: "content_block_start", index: 1, content_block: { type: "text", text: "" } },
    { type: "content_block_delta", index: 1, delta: { type: "text_delta", text: "Let " } },
    { type: "ping" },
    { type: "content_block_delta", index: 1, delta: { type: "text_delta", text: "me look." } },
    { type: "content_block_stop", index: 1 },
    {
      type: "content_block_start",
      index: 2,
      content_block: { type: "tool_use", id: "c1", name: "weather", input: {} },
    },
    { type: "content_block_delta", index: 2, delta: { type: "input_json_delta", partial_json: '{"city": ' } },
    { type: "content_block_delta", index: 2, delta: { type: "input_json_delta", partial_json: '"Rome"}' } },
    { type: "content_block_stop", index: 2 },
    { type: "message_delta", delta: { stop_reason: "tool_use" }, usage: { output_tokens: 5 } },
    { type: "message_stop" },
  ],
};

function answerOf(name: ApiName, events = STREAMS[name]): Answer {
  const answer = emptyAnswer(name);
  for (const event of events) APIS[name].read(answer, event);
  return answer;
}

/** A question, the answer of the API with the result of its call, and the next question. */
function conversation(name: ApiName, isError = false): Turn[] {
  const answer = answerOf(name);
  for (const call of answer.calls) call.result = { text: "18 °C", isError, isCut: false, images: [] };
  return [{ kind: "question", text: "Rome?" }, answer, { kind: "question", text: "And now?" }];
}

for (const name of NAMES) {
  test(`${name}: a stream becomes an answer`, () => {
    const { reasoning, text, calls, usage, error, finish } = answerOf(name);
    assert.equal(reasoning, "Hm");
    assert.equal(text, "Let me look.");
    assert.deepEqual(calls, [{ id: "c1", name: "weather", arguments: ARGUMENTS, result: null }]);
    assert.deepEqual(usage, { input: 9, cached: 4, output: 5 });
    assert.equal(error, "");
    assert.notEqual(finish, "");
  });

  test(`${name}: the model, tools and limits are sent`, () => {
    const body = APIS[name].request([{ kind: "question", text: "Hi" }], OPTIONS);
    assert.equal(body.model, "m");
    assert.equal(body.temperature, 0.5);
    assert.equal(body.stream, true);
    assert.ok(JSON.stringify(body).includes("Be brief."));
    assert.equal((body.tools as JsonObject[]).length, 1);
    const bare = APIS[name].request([], { ...OPTIONS, system: "", tools: [], temperature: null });
    for (const member of ["tools", "temperature", "system", "instructions"]) assert.ok(!(member in bare), member);
  });

  test(`${name}: an error is shown`, () => {
    const event = { type: "error", error: { message: "overloaded" } };
    assert.equal(answerOf(name, [event]).error, "overloaded");
  });

  test(`${name}: a call without result is not sent back`, () => {
    const turns: Turn[] = [{ kind: "question", text: "Rome?" }, answerOf(name), { kind: "question", text: "Stop." }];
    assert.ok(!JSON.stringify(APIS[name].request(turns, { ...OPTIONS, tools: [] })).includes("c1"));
  });

  test(`${name}: a conversation continues answers of all APIs`, () => {
    const bodies = NAMES.map((from) => JSON.stringify(APIS[name].request(conversation(from), OPTIONS)));
    for (const body of bodies) {
      for (const part of ["Rome?", "c1", "18 °C", "And now?"]) assert.ok(body.includes(part), `${part} in ${body}`);
    }
  });
}

test("openai_chat: results follow their calls", () => {
  const body = APIS.openai_chat.request(conversation("openai_chat"), OPTIONS);
  assert.deepEqual(body.messages, [
    { role: "system", content: "Be brief." },
    { role: "user", content: "Rome?" },
    {
      role: "assistant",
      content: "Let me look.",
      reasoning_content: "Hm",
      tool_calls: [{ id: "c1", type: "function", function: { name: "weather", arguments: ARGUMENTS } }],
    },
    { role: "tool", tool_call_id: "c1", content: "18 °C" },
    { role: "user", content: "And now?" },
  ]);
});

test("openai_responses: own items are sent back as they came", () => {
  const body = APIS.openai_responses.request(conversation("openai_responses"), OPTIONS);
  const types = (body.input as JsonObject[]).map(({ type }) => type);
  assert.deepEqual(types, ["message", "reasoning", "message", "function_call", "function_call_output", "message"]);
});

test("anthropic_messages: own blocks are sent back, and results are joined with the next question", () => {
  const body = APIS.anthropic_messages.request(conversation("anthropic_messages", true), OPTIONS);
  assert.deepEqual(body.messages, [
    { role: "user", content: [{ type: "text", text: "Rome?" }] },
    {
      role: "assistant",
      content: [
        { type: "thinking", thinking: "Hm", signature: "s" },
        { type: "text", text: "Let me look." },
        { type: "tool_use", id: "c1", name: "weather", input: { city: "Rome" } },
      ],
    },
    {
      role: "user",
      content: [
        { type: "tool_result", tool_use_id: "c1", content: "18 °C", is_error: true },
        { type: "text", text: "And now?" },
      ],
    },
  ]);
});

test("an answer that was stopped is sent back as text", () => {
  for (const name of NAMES) {
    const stopped = emptyAnswer(name);
    for (const event of STREAMS[name]) if (stopped.text !== "Let me look.") APIS[name].read(stopped, event);
    const body = APIS[name].request([{ kind: "question", text: "Rome?" }, stopped], OPTIONS);
    assert.ok(JSON.stringify(body).includes("Let me look."), name);
  }
});
