// The npm packages against a gateway: every way that they have to ask, for every scenario, in one process.
//
//     node --input-type=module - BASE_URL < drive.mjs      in the folder that holds node_modules
//
// The environment gives SCENARIOS, names that are models too, and SCHEMAS of the tools. Prints for each way and
// scenario what was said first ({text, thoughts, refusal, calls, end}), what the tools were run with, and the last word.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";

globalThis.AI_SDK_LOG_WARNINGS = false;
const url = process.argv[2];
const scenarios = JSON.parse(process.env.SCENARIOS);
const schemas = JSON.parse(process.env.SCHEMAS);
const question = process.env.QUESTION;
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "k", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: "k", maxRetries: 0 });
const user = { role: "user", content: question };

// The tools, which note down what they are run with.

function answer(name, given) {
  if (name === "get_weather") return `18 degrees in ${given.city}`;
  return name === "write_note" ? `${[...given.text].length} characters` : "pong";
}

const each = (make) => Object.entries(schemas).map(([name, schema]) => make(name, schema));
const noting = (runs, name) => (given) => {
  runs.push([name, given]);
  return answer(name, given);
};

// OpenAI Chat Completions

const chatTools = each((name, parameters) => ({ type: "function", function: { name, parameters } }));

function ofChat({ choices: [{ message, finish_reason }] }) {
  const whole = finish_reason === "length" ? [] : (message.tool_calls ?? []);
  const calls = whole.map((c) => [c.id, c.function.name, JSON.parse(c.function.arguments)]);
  const thoughts = message.reasoning_content ?? "";
  return { text: message.content ?? "", thoughts, refusal: message.refusal ?? "", calls, end: finish_reason };
}

async function chatTurns(ask, model) {
  const asked = (messages) => ({ model, messages, tools: chatTools });
  const reply = await ask(asked([user]));
  const said = ofChat(reply);
  if (!said.calls.length) return { said };
  const results = said.calls.map(([id, name, given]) => ({ role: "tool", tool_call_id: id, content: answer(name, given) }));
  const last = await ask(asked([user, reply.choices[0].message, ...results]));
  return { said, last: ofChat(last).text };
}

async function runTools(model, stream) {
  const runs = [];
  const tools = each((name, parameters) => ({
    type: "function",
    function: { name, parameters, parse: JSON.parse, function: noting(runs, name) },
  }));
  const runner = openai.chat.completions.runTools({ model, messages: [user], tools, stream });
  const last = await runner.finalContent().catch(async (error) => {
    if (!runner.allChatCompletions().length) throw error;
    return null; // cut off, or nothing but a refusal
  });
  return { said: ofChat(runner.allChatCompletions()[0]), runs, last };
}

// OpenAI Responses

const responsesTools = each((name, parameters) => ({ type: "function", name, parameters, strict: false }));

function ofResponse(response) {
  if (response.error) throw new Error(response.error.message);
  const parts = response.output.flatMap((item) => (item.type === "message" ? item.content : []));
  const joined = (list, field) => list.map((x) => x[field] ?? "").join("");
  const whole = response.output.filter((item) => item.type === "function_call" && item.status === "completed");
  return {
    text: joined(parts, "text"),
    thoughts: joined(response.output.flatMap((item) => item.summary ?? []), "text"),
    refusal: joined(parts, "refusal"),
    calls: whole.map((c) => [c.call_id, c.name, JSON.parse(c.arguments)]),
    end: response.incomplete_details?.reason ?? response.status,
  };
}

async function responseTurns(ask, model) {
  const asked = (input) => ({ model, input, tools: responsesTools });
  const reply = await ask(asked([user]));
  const said = ofResponse(reply);
  if (!said.calls.length) return { said };
  const results = said.calls.map(([call_id, name, given]) => ({
    type: "function_call_output",
    call_id,
    output: answer(name, given),
  }));
  return { said, last: ofResponse(await ask(asked([user, ...reply.output, ...results]))).text };
}

async function lastOf(events) {
  let last;
  for await (const event of events) last = event;
  return last.response;
}

// Anthropic Messages

const messagesTools = each((name, input_schema) => ({ name, input_schema }));

function ofMessage({ content, stop_reason }) {
  const joined = (type, field) => content.filter((b) => b.type === type).map((b) => b[field]).join("");
  const text = joined("text", "text");
  const whole = content.filter((b) => b.type === "tool_use" && stop_reason !== "max_tokens");
  const refused = stop_reason === "refusal";
  const calls = whole.map((b) => [b.id, b.name, b.input]);
  const thoughts = joined("thinking", "thinking");
  return { text: refused ? "" : text, thoughts, refusal: refused ? text : "", calls, end: stop_reason };
}

async function messageTurns(ask, model) {
  const asked = (messages) => ({ model, max_tokens: 99, messages, tools: messagesTools });
  const reply = await ask(asked([user]));
  const said = ofMessage(reply);
  if (!said.calls.length) return { said };
  const results = said.calls.map(([id, name, given]) => ({
    type: "tool_result",
    tool_use_id: id,
    content: answer(name, given),
  }));
  const further = [{ role: "assistant", content: reply.content }, { role: "user", content: results }];
  return { said, last: ofMessage(await ask(asked([user, ...further]))).text };
}

async function gathered(events) {
  let message;
  const given = [];
  for await (const event of events) {
    if (event.type === "message_start") message = event.message;
    if (event.type === "content_block_start") message.content.push(event.content_block);
    if (event.type === "message_delta") Object.assign(message, event.delta);
    if (event.type !== "content_block_delta") continue;
    const { type, ...delta } = event.delta;
    const [[field, piece]] = Object.entries(delta);
    const block = message.content[event.index];
    if (type === "input_json_delta") given[event.index] = (given[event.index] ?? "") + piece;
    else block[field] = (block[field] ?? "") + piece;
  }
  if (message.stop_reason !== "max_tokens") given.forEach((text, i) => (message.content[i].input = JSON.parse(text)));
  return message;
}

async function toolRunner(model, stream) {
  const runs = [];
  const tools = each((name, input_schema) => ({
    type: "custom",
    name,
    input_schema,
    run: noting(runs, name),
    parse: (given) => given,
  }));
  const turns = [];
  const runner = anthropic.beta.messages.toolRunner({ model, max_tokens: 99, messages: [user], tools, stream });
  for await (const turn of runner) turns.push(stream ? await turn.finalMessage() : turn);
  return { said: ofMessage(turns[0]), runs, last: ofMessage(turns.at(-1)).text };
}

// Vercel AI

const providers = {
  openai_chat: createOpenAI({ baseURL: `${url}/v1`, apiKey: "k" }).chat,
  openai_responses: createOpenAI({ baseURL: `${url}/v1`, apiKey: "k" }).responses,
  openai_compatible: createOpenAICompatible({ name: "c", baseURL: `${url}/v1`, apiKey: "k", includeUsage: true }),
  anthropic: createAnthropic({ baseURL: `${url}/v1`, apiKey: "k" }),
};

async function vercel(model, streamed, openai = { store: false }) {
  const runs = [];
  const made = each((name, schema) => [
    name,
    tool({ inputSchema: jsonSchema(schema), execute: async (given) => noting(runs, name)(given) }),
  ]);
  let failed;
  const asked = {
    model,
    prompt: question,
    tools: Object.fromEntries(made),
    stopWhen: isStepCount(3),
    maxRetries: 0,
    maxOutputTokens: 99,
    providerOptions: { openai },
  };
  const onError = ({ error }) => (failed = error);
  const result = streamed ? streamText({ ...asked, onError }) : await generateText(asked);
  if (streamed) await result.consumeStream({ onError });
  if (failed) throw failed;
  const [first, ...rest] = await result.steps;
  const said = {
    text: first.text,
    thoughts: first.reasoningText ?? "",
    refusal: "",
    calls: first.toolCalls.filter((c) => !c.invalid).map((c) => [c.toolCallId, c.toolName, c.input]),
    end: first.finishReason,
  };
  return { said, runs, last: rest.at(-1)?.text };
}

// All of them

const usage = { stream_options: { include_usage: true } };
const chat = openai.chat.completions;
const ways = {
  chat_create: (model) => chatTurns((asked) => chat.create(asked), model),
  chat_stream: (model) => chatTurns((asked) => chat.stream({ ...asked, ...usage }).finalChatCompletion(), model),
  run_tools: (model) => runTools(model, false),
  run_tools_stream: (model) => runTools(model, true),
  responses_create: (model) => responseTurns((asked) => openai.responses.create(asked), model),
  responses_events: (model) =>
    responseTurns(async (asked) => lastOf(await openai.responses.create({ ...asked, stream: true })), model),
  responses_stream: (model) => responseTurns((asked) => openai.responses.stream(asked).finalResponse(), model),
  messages_create: (model) => messageTurns((asked) => anthropic.messages.create(asked), model),
  messages_events: (model) =>
    messageTurns(async (asked) => gathered(await anthropic.messages.create({ ...asked, stream: true })), model),
  messages_stream: (model) => messageTurns((asked) => anthropic.messages.stream(asked).finalMessage(), model),
  tool_runner: (model) => toolRunner(model, false),
  tool_runner_stream: (model) => toolRunner(model, true),
};
for (const [name, provider] of Object.entries(providers)) {
  ways[`generate_text ${name}`] = (model) => vercel(provider(model), false);
  ways[`stream_text ${name}`] = (model) => vercel(provider(model), true);
}
// By default it names what it was told earlier by id, and does not send it again.
ways["generate_text by reference"] = (model) => vercel(providers.openai_responses(model), false, {});

const told = {};
for (const [way, ask] of Object.entries(ways)) {
  told[way] = {};
  for (const scenario of scenarios) {
    told[way][scenario] = await ask(scenario).catch((error) => ({ error: String(error?.message ?? error) }));
  }
}
console.log(JSON.stringify(told));
