import type { TrafficRow } from "../src/types.ts";

/** A row of a finished exchange with the given members. */
export function row(members: Partial<TrafficRow>): TrafficRow {
  return {
    id: "req_1",
    began_s: 1,
    state: "done",
    dialect: "openai_chat",
    agent: "",
    role: "",
    key: "",
    model: "default",
    upstream: "lmstudio",
    upstream_model: "default",
    tool_mode: "native",
    format: "",
    finish: "stop",
    error: "",
    status: 200,
    stream: false,
    session: "",
    input_tokens: null,
    cached_tokens: null,
    output_tokens: null,
    first_ms: null,
    total_ms: null,
    attempts: 1,
    calls: [],
    warnings: [],
    is_captured: false,
    ...members,
  };
}
