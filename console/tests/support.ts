import type { Block, ExchangeView, LaneName, Note, Segment, TrafficRow } from "../src/types.ts";

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

export function note(code: string): Note {
  return { code, message: "", rule: "", meaning: "", remedy: "", settings: [] };
}

export function segment(members: Partial<Segment>): Segment {
  return { text: "", kind: "text", link: "", notes: [], ...members };
}

export function block(members: Partial<Block>): Block {
  return { title: "", link: "", change: "", segments: [], ms: null, number: 0, ...members };
}

/** The view of an exchange with the given blocks in its lanes. */
export function view(blocks: Partial<Record<LaneName, Block[]>>): ExchangeView {
  const names: LaneName[] = ["client", "sent", "model", "reply"];
  return {
    id: "req_1",
    row: row({}),
    is_captured: true,
    is_running: true,
    lanes: names.map((name) => ({ name, title: name, summary: "", blocks: blocks[name] ?? [] })),
    notes: [],
    previous_id: "",
    cache_note: "",
    sent_calls: [],
    diagnosis: null,
  };
}
