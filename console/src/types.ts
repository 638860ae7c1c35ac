// The structs of the JSON API, as `src/dragoman/console` defines them.

export interface CaptureState {
  mode: "off" | "disk" | "memory";
  /** Which exchanges are captured: `all`, `failed`, `requested`. */
  filter: string;
}

export interface GatewayState {
  version: string;
  capture: CaptureState;
  has_keys: boolean;
  key: string;
  has_records: boolean;
  models: string[];
  /** Paths of the APIs. */
  apis: string[];
  workers: number;
}

export type CallOutcome =
  | "valid"
  | "repaired"
  | "reasked"
  | "recovered"
  | "unchecked"
  | "invalid"
  | "incomplete"
  | "unknown";

export interface RowCall {
  tool: string;
  outcome: CallOutcome;
  repairs: string[];
  count: number;
}

export type RowState = "running" | "done" | "failed";

export interface TrafficRow {
  id: string;
  began_s: number;
  state: RowState;
  dialect: string;
  agent: string;
  role: string;
  key: string;
  model: string;
  upstream: string;
  upstream_model: string;
  tool_mode: string;
  format: string;
  finish: string;
  error: string;
  status: number;
  stream: boolean;
  session: string;
  input_tokens: number | null;
  cached_tokens: number | null;
  output_tokens: number | null;
  first_ms: number | null;
  total_ms: number | null;
  attempts: number;
  calls: RowCall[];
  warnings: string[];
  is_captured: boolean;
}

export interface TrafficPage {
  rows: TrafficRow[];
  has_more: boolean;
}

export interface Note {
  code: string;
  message: string;
  rule: string;
  meaning: string;
  remedy: string;
  /** The keys of the settings that change it. */
  settings: string[];
}

export type SegmentKind =
  | "text"
  | "reasoning"
  | "markup"
  | "name"
  | "arguments"
  | "repair"
  | "broken"
  | "dropped"
  | "unread"
  | "json"
  | "role"
  | "plain";

export interface Segment {
  text: string;
  kind: SegmentKind;
  link: string;
  notes: Note[];
}

export type Change = "" | "added" | "changed" | "removed" | "same";

export interface Block {
  title: string;
  link: string;
  change: Change;
  segments: Segment[];
  ms: number | null;
  number: number;
}

export type LaneName = "client" | "sent" | "model" | "reply";

export interface Lane {
  name: LaneName;
  title: string;
  summary: string;
  blocks: Block[];
}

export interface SentCall {
  number: number;
  backend: string;
  model: string;
  mode: string;
  format: string;
  why: "first" | "retry" | "failover" | "reask" | "tools" | "continued";
  error: string;
}

export interface Remedy {
  text: string;
  toml: string;
  path: string;
  is_new_file: boolean;
}

export interface Diagnosis {
  cause: string;
  remedies: Remedy[];
}

export interface ExchangeView {
  id: string;
  row: TrafficRow;
  is_captured: boolean;
  is_running: boolean;
  lanes: Lane[];
  notes: Note[];
  previous_id: string;
  cache_note: string;
  sent_calls: SentCall[];
  diagnosis: Diagnosis | null;
}

export type Chunking = "recorded" | "chars" | "whole" | "random";

export interface ReplayStage {
  name: string;
  same: boolean;
  diff: string;
}

export interface Replay {
  stages: ReplayStage[];
  view: ExchangeView;
}

export type CodeLanguage = "curl" | "python-openai" | "python-anthropic" | "typescript";
